#!/bin/sh
# Installs the missing packages for one kind of work: tools/setup.sh build|demo|demo-openresty|test|check
# A need is a package name, or several alternatives joined with |.
# Each kind includes the ones before it. Nothing is upgraded, removed or started.
set -eu

say() { printf 'setup: %s\n' "$*" >&2; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# A package that only other packages mention has no candidate.
available() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'; }
alternatives() { printf '%s\n' "$1" | tr '|' ' '; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Lets sudo ask for the password once at the beginning, not in the middle of the installation.
may_install() {
    [ "$(id -u)" = 0 ] && return
    command -v sudo >/dev/null 2>&1 && sudo true
}

# The two LuaJIT packages conflict, so this uses the one that is installed.
luajit_needs() {
    if installed luajit || installed libluajit-5.1-dev; then
        echo luajit libluajit-5.1-dev
    else
        echo "luajit2|luajit" "libluajit2-5.1-dev|libluajit-5.1-dev"
    fi
}

# The names of clang's sanitizer runtimes contain clang's version.
clang_version() {
    if command -v clang >/dev/null 2>&1; then
        clang -dumpversion | cut -d. -f1
    else
        apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1
    fi
}

# If Node.js comes from another source, npm is not a Debian package.
npm_needs() { command -v npm >/dev/null 2>&1 || echo npm; }
pip_needs() { python3 -m pip --version >/dev/null 2>&1 || echo python3-pip; }

NGX_LUA=libnginx-mod-http-lua

needs() {
    case $1 in
    build) echo gcc make libc6-dev lua5.4 liblua5.4-dev $(luajit_needs) libhiredis-dev libssl-dev pkg-config\|pkgconf luarocks ;;
    demo) needs build; echo redis-server ;;
    demo-openresty) needs demo; echo "nginx-light|nginx-core|nginx" $NGX_LUA lua-resty-core wrk ;;
    test)
        needs demo-openresty
        echo redis-sentinel openssl jq locales procps clang-format lua-busted lua-check lua-socket lua-cqueues lua-http lua-copas lua-luv lua-yaml python3-prometheus-client
        ;;
    check)
        needs test
        echo clang clang-tidy gcc-11 cppcheck valgrind libc6-dbg "libclang-rt-$(clang_version)-dev|libclang-common-$(clang_version)-dev" \
            spin tmux mandoc zsh fish lua5.1 liblua5.1-0-dev lua5.2 liblua5.2-dev lua5.3 liblua5.3-dev \
            dpkg-dev debhelper fakeroot lintian debootstrap musl-tools \
            gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-i686-linux-gnu libc6-dev-i386-cross qemu-user chromium chromium-driver \
            postgresql prometheus mariadb-server-core mariadb-client-core lua-dbi-postgresql lua-dbi-mysql lua-dbi-sqlite3 python3-venv
        pip_needs
        npm_needs
        ;;
    esac
}

missing() {
    for need in $(needs "$1"); do
        found=
        for package in $(alternatives "$need"); do
            if installed "$package"; then found=yes; fi
        done
        [ -n "$found" ] || echo "$need"
    done
}

# Returns false before the first `apt-get update`.
has_lists() { available libc6; }

# Chooses an available alternative for each need, or the first one if there are no package lists.
choose() {
    lists=yes
    has_lists || lists=
    for need in "$@"; do
        chosen=
        for package in $(alternatives "$need"); do
            if [ -z "$chosen" ] && { [ -z "$lists" ] || available "$package"; }; then chosen=$package; fi
        done
        if [ -n "$chosen" ]; then
            echo "$chosen"
        else
            say "no package here for $need"
        fi
    done
}

# Installing redis-server and nginx would start system services; the tests start their own.
policy=/usr/sbin/policy-rc.d
forbid_services() {
    [ ! -e $policy ] || return 0
    trap 'as_root rm -f $policy' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
    as_root chmod 755 $policy
}

# Retries twice, a few seconds apart, because downloads sometimes fail.
try_again() {
    for pause in 5 15; do
        "$@" && return
        say "failed, again in $pause s: $*"
        sleep $pause
    done
    "$@"
}

install_packages() {
    say "installing: $*"
    forbid_services
    try_again as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

# Ubuntu 22.04 packages nginx, but not its Lua module.
check_ngx_lua() {
    [ "$set_name" = demo-openresty ] || return 0
    if installed $NGX_LUA || ! has_lists || available $NGX_LUA; then return; fi
    say "$(. /etc/os-release && echo "$PRETTY_NAME") packages no Lua module for nginx ($NGX_LUA), and the demo needs it."
    say "Run the demo on Debian 12 or 13 or on Ubuntu 24.04. To use holdfast in nginx on this system, install OpenResty's"
    say "own packages (https://openresty.org/en/linux-packages.html) and follow \"OpenResty and nginx\" in docs/how-to/install.md."
    exit 1
}

# Other users cannot rebuild files that root has built here, so this moves them out of the way.
take_over_build() {
    [ -n "$(find build ! -type l ! -writable -print -quit 2>/dev/null)" ] || return 0
    aside=build.$(date +%Y%m%d%H%M%S)
    if mv build "$aside" 2>/dev/null; then
        say "build has files of another user. It is now $aside; remove that as root: rm -r $aside"
    else
        say "this folder belongs to another user, and you may not write here. Copy it: cp -r . ~/holdfast && cd ~/holdfast"
        exit 1
    fi
}

case ${1:-} in
build | demo | demo-openresty | test | check) set_name=$1 ;;
*) say "usage: tools/setup.sh build|demo|demo-openresty|test|check"; exit 2 ;;
esac

take_over_build

if ! command -v apt-get >/dev/null 2>&1; then
    say "no apt-get here: install the packages named in tools/setup.sh by your own means"
    exit 0
fi

check_ngx_lua
packages=$(choose $(missing "$set_name") 2>/dev/null)
[ -n "$packages" ] || exit 0
if ! may_install; then
    say "packages are missing, and only root can install them. As root, run:"
    say "  apt-get update && apt-get install -y --no-install-recommends $(echo $packages)"
    exit 1
fi
try_again as_root apt-get update -q >&2
check_ngx_lua
packages=$(choose $(missing "$set_name"))
[ -n "$packages" ] || exit 0
install_packages $packages
