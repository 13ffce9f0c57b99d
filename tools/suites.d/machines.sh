# Sourced by tools/suites: builds that use only POSIX interfaces, and builds for other processor architectures

PORTABLE_SPECS="spec/lock_spec.lua spec/waiting_spec.lua spec/signal_spec.lua spec/threads_spec.lua \
spec/trouble_spec.lua spec/tls_spec.lua spec/command_run_*_spec.lua spec/command_hold_spec.lua"
MACHINE_SPECS="spec/lock_spec.lua spec/with_lock_spec.lua"

# Declares only POSIX functions, and lets the linker keep the module loaded in place of dladdr. Uses link-time
# optimisation, like Ubuntu's packages.
portable() {
    suite portable-build one build build/portable "DEFINES=-D_XOPEN_SOURCE=700 -DHF_PORTABLE" "CFLAGS=-O2 -g -flto=auto" \
        "LDFLAGS=-Wl,-z,nodelete -flto=auto" FLAVOURS=lua5.4 WERROR=1
    unit portable build/portable
    with HOLDFAST_BUILD=./build/portable -- specs_under lua5.4 portable $PORTABLE_SPECS $COMMAND_SPECS
}

# on_machine MACHINE [RUNNER]: tests the build in build/MACHINE with the Lua in build/machines/MACHINE
on_machine() {
    machine=$1
    shift
    unit "$machine" "build/$machine" "$@"
    for spec in $MACHINE_SPECS; do
        suite "$machine-$(basename "$spec" _spec.lua)" busted with "HOLDFAST_BUILD=./build/$machine" "files=$spec" \
            "HOLDFAST_INTERPRETER=$PWD/build/machines/$machine/bin/lua5.4" -- run_busted "build/machines/$machine/bin/lua5.4"
    done
}

# cross MACHINE ARCH TRIPLET COMPILER: builds with Debian's packages for that architecture
cross() {
    machine=$1 triplet=$3 compiler=$4 made=$PWD/build/machines/$1
    if ! command -v "$compiler" >/dev/null || ! tools/machine debian "$2" "$made"; then
        skipped "$machine" "no $compiler, or no packages of Debian for $2: $made/log"
        return
    fi
    suite "$machine-build" one build "build/$machine" "CC=$compiler --sysroot=$made/root" FLAVOURS=lua5.4 WERROR=1 \
        "CFLAGS_lua5.4=-isystem $made/root/usr/include/lua5.4" "HIREDIS_A=$made/root/usr/lib/$triplet/libhiredis.a"
    with HOLDFAST_RUNNER=1 -- on_machine "$machine" "$made/bin/run"
}

musl() {
    made=$PWD/build/machines/musl
    if ! command -v musl-gcc >/dev/null || ! tools/machine musl "$made"; then
        skipped musl "no musl-gcc, or no sources of Lua, OpenSSL and hiredis: $made/log"
        return
    fi
    suite musl-build one build build/musl CC=musl-gcc FLAVOURS=lua5.4 "CFLAGS_lua5.4=-isystem $made/include/lua" \
        "HIREDIS_DIR=$(cat "$made/hiredis-directory")" "OPENSSL_INCDIR=$made/include" "OPENSSL_LIBDIR=$made/lib" \
        "LDFLAGS=-L$made/lib"
    on_machine musl
}

# Builds OpenSSL for musl while the other builds are waiting for packages and servers.
machines() {
    mkdir -p build/machines
    tools/machine musl build/machines/musl >build/machines/musl.said 2>&1 &
    making=$!
    portable
    cross i386 i386 i386-linux-gnu i686-linux-gnu-gcc
    with HOLDFAST_EMULATED=1 -- cross aarch64 arm64 aarch64-linux-gnu aarch64-linux-gnu-gcc
    wait $making
    musl
}
