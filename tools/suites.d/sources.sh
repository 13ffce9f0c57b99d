# Sourced by tools/suites: checks of the sources and of the build that run no specs

# Debian's luacheck is for Lua 5.1; LuaJIT runs it in a third of the time.
fast_luacheck() {
    case $(head -n 1 "$(command -v luacheck)") in
    *lua5.1) luajit "$(command -v luacheck)" "$@" ;;
    *) luacheck "$@" ;;
    esac
}
# luacheck would follow symbolic links forever in the root file systems that tools/roots leaves in build.
lint() {
    make -s programs &&
        fast_luacheck --quiet build/programs ./*.rockspec $(ls -d ./*/ | grep -v '^./build/$')
}

# Builds for every Lua; make test builds only for two. gcc 11 is the compiler in Ubuntu 22.04.
clang_build() { suite clang-build one build build/clang CC=clang WERROR=1; }
OLDEST_GCC=gcc-11
oldest_gcc_build() {
    if has $OLDEST_GCC; then
        suite $OLDEST_GCC-build one build build/$OLDEST_GCC CC=$OLDEST_GCC WERROR=1
    else
        skipped $OLDEST_GCC-build "there is no $OLDEST_GCC"
    fi
}

# The versions of clang-format differ slightly. In CI, a missing clang-format is a failure.
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
    # one file per run: clang-tidy 14 models va_start only in the first file
    suite clang-tidy one sh -c "printf '%s\n' csrc/*/*.c csrc/core/*/*.c | xargs -P $jobs -I FILE clang-tidy --quiet FILE -- $flags"
    suite cppcheck one cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,performance,portability \
        --suppress=missingIncludeSystem -D_GNU_SOURCE -Icsrc -Icsrc/core -Icsrc/posix csrc
}

# Runs the installation steps in README.md and docs/how-to/install.md, here and in a clean root file system.
packages() {
    suite install busted bounded lua5.4 "$(command -v busted)" --output=plainTerminal --run=install spec/install_spec.lua
    if is_root; then
        suite packages tap timeout -k 10 1800 tools/check_packages
        suite clean-demos tap timeout -k 10 1800 tools/roots demos
    else
        skipped packages "a clean root is made by root alone"
    fi
}

# Runs the installation steps on every system that README.md and docs/how-to/install.md name; takes hours.
roots() { suite roots tap tools/roots; }

# Runs the first commands that README.md shows.
demos() {
    for demo in demo demo-quorum demo-openresty; do suite $demo one bounded make -s $demo; done
}

# Checks what the annotations show in a user's editor or CI. No distribution packages the type checker.
types() {
    if has emmylua_check; then
        suite types busted bounded luajit "$(command -v busted)" --output=plainTerminal --pattern=_types spec/types
    else
        skipped types "there is no emmylua_check: cargo install emmylua_check"
    fi
}

# Builds the documentation as a site, and tests it in a browser.
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
