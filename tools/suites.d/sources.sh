# Read by tools/suites: what is checked of the sources and the build without running them
# shellcheck shell=sh disable=SC2034,SC2154

# Debian's luacheck is for Lua 5.1; LuaJIT runs it in a third of the time.
fast_luacheck() {
    case $(head -n 1 "$(command -v luacheck)") in
    *lua5.1) luajit "$(command -v luacheck)" "$@" ;;
    *) luacheck "$@" ;;
    esac
}

# shellcheck disable=SC2046
# luacheck follows links for ever in the systems that tools/roots leaves in build.
lint() {
    make -s programs &&
        fast_luacheck --quiet build/programs ./*.rockspec $(ls -d ./*/ | grep -v '^./build/$')
}

# For each Lua, where make test builds for two. gcc 11 is Ubuntu 22.04's.
clang_build() { suite clang-build one build build/clang CC=clang WERROR=1; }
OLDEST_GCC=gcc-11
oldest_gcc_build() {
    if has $OLDEST_GCC; then
        suite $OLDEST_GCC-build one build build/$OLDEST_GCC CC=$OLDEST_GCC WERROR=1
    else
        skipped $OLDEST_GCC-build "there is no $OLDEST_GCC"
    fi
}

# Each version of clang-format formats a little differently. In CI its absence is a failure.
CLANG_FORMAT=14
clang_format_version() { clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p'; }

format() {
    version=$(clang_format_version)
    if [ "$version" = "$CLANG_FORMAT" ] || { [ "${CI:-}" ] && [ -z "$version" ]; }; then
        suite format one tools/check_format
    else
        suite format one tools/check_format lines
        skipped clang-format "the sources are formatted by clang-format $CLANG_FORMAT; here is ${version:-none}"
    fi
}

static_analysis() {
    format
    suite kind one bounded tools/check_kind
    flags="-std=c11 -D_GNU_SOURCE -Icsrc -Icsrc/core -Icsrc/posix $(pkg-config --cflags lua5.4 2>/dev/null || echo -I/usr/include/lua5.4)"
    # one file a run: clang-tidy 14 forgets what va_start does after the first
    suite clang-tidy one sh -c "printf '%s\n' csrc/*/*.c csrc/core/*/*.c | xargs -P $jobs -I FILE clang-tidy --quiet FILE -- $flags"
    # shellcheck disable=SC2086
    suite cppcheck one cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,performance,portability \
        --suppress=missingIncludeSystem -D_GNU_SOURCE -Icsrc -Icsrc/core -Icsrc/posix csrc
}

# What README.md and docs/how-to/install.md say, here and in a clean root.
packages() {
    suite install busted bounded lua5.4 "$(command -v busted)" --output=plainTerminal --run=install spec/install_spec.lua
    if is_root; then
        suite packages tap timeout -k 10 1800 tools/check_packages
        suite clean-demos tap timeout -k 10 1800 tools/roots demos
    else
        skipped packages "a clean root is made by root alone"
    fi
}

# What README.md and docs/how-to/install.md say, on each system that they name; takes hours.
roots() { suite roots tap tools/roots; }

# What README.md has people type first.
demos() {
    for demo in demo demo-quorum demo-openresty; do suite $demo one bounded make -s $demo; done
}

# What a user's editor or CI finds by the annotations. No system packages the checker.
types() {
    if has emmylua_check; then
        suite types busted bounded luajit "$(command -v busted)" --output=plainTerminal --pattern=_types spec/types
    else
        skipped types "there is no emmylua_check: cargo install emmylua_check"
    fi
}

# The documents as a site, in a browser.
site() {
    for program in python3 chromedriver; do
        command -v $program >/dev/null && continue
        skipped site "there is no $program"
        return
    done
    if [ ! -e build/site-tools ] && ! npm --version >/dev/null 2>&1; then
        skipped site "there is no npm, which fetches what draws diagrams"
        return
    fi
    suite site-build one tools/site
    suite site busted bounded luajit "$(command -v busted)" --output=plainTerminal \
        --pattern='_site%.lua$' spec/site
}

checks_of_files() {
    suite lint one lint
    format
    suite symbols one tools/check_symbols build
    suite rockspec one lua5.4 tools/rockspec_check.lua
    suite calls one lua5.4 tools/check_calls.lua
    suite kinds one lua5.4 tools/check_kinds.lua
    suite private one bounded lua5.4 tools/check_private.lua
    suite worlds one lua5.4 tools/check_worlds.lua
    suite systems one lua5.4 tools/check_systems.lua
    suite locale one lua5.4 tools/check_locale.lua
    suite pins one lua5.4 tools/check_pins.lua
    suite path one bounded lua5.4 tools/check_path.lua
    suite commits one lua5.4 tools/check_commits.lua
    suite docs one lua5.4 tools/check_docs.lua
    suite reference one lua5.4 tools/check_reference.lua
}
