# Read by tools/suites: the specs and unit programs under sanitizers and valgrind
# shellcheck shell=sh disable=SC2034,SC2154

# The specs that the slow tools run: all of the binding and the driver, without the specs that are about time or
# about other programs. Run a tool over everything with SPEC_FILES=spec tools/suites asan.
SLOW_SPECS="${SPEC_FILES:-spec/lock_spec.lua spec/with_lock_spec.lua spec/misuse*_spec.lua spec/templates_spec.lua \
spec/signal_spec.lua spec/threads_spec.lua}"
ASAN_SPECS="${SPEC_FILES:-$SLOW_SPECS spec/loops_[!s]*_spec.lua spec/loops_single_spec.lua spec/coroutines_spec.lua \
spec/async_release_spec.lua spec/quorum_spec.lua spec/core_calls_spec.lua}"
SLOWEST_SPECS="${SPEC_FILES:-spec/lock_spec.lua spec/misuse*_spec.lua}"

# The sanitizers' runtimes come first in an interpreter that was built without them.
runtime() { gcc -print-file-name="lib$1.so"; }

ASAN_FLAGS="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow \
-fno-omit-frame-pointer"

build_asan() { make -s -j"$jobs" BUILD=build/asan "SANITIZE=$ASAN_FLAGS" "CFLAGS=-O1 -g" "FLAVOURS=lua5.4 luajit" "$@"; }

# Not optimised: they are built in half the time, and take two seconds more.
sanitized_units() {
    suite asan-unit-build one build_asan "CFLAGS=-O0 -g" unit-programs
    unit asan-unit build/asan
}

# Without a sanitizer, which leaves time for many more orders of threads.
orders_in_short() {
    suite orders-build one make -s build/unit/test_orders
    suite orders tap bounded build/unit/test_orders
}

# More of them, and more leases.
orders() {
    suite orders-build one make -s build/unit/test_orders build/unit/test_margins
    suite orders tap with "HOLDFAST_ORDERS=${HOLDFAST_ORDERS:-1000000}" -- patient build/unit/test_orders
    suite margins tap with HOLDFAST_MARGINS=2000 -- bounded build/unit/test_margins
    suite margins-command busted with HOLDFAST_MARGINS=300 files=spec/margins_spec.lua -- run_busted luajit
}

asan() {
    sanitized_units
    suite asan-build one build_asan build
    # A call with random arguments may ask Lua for more memory than there is. LuaJIT keeps its objects where the leak
    # checker does not look.
    suite asan-spec-lua5.4 busted with HOLDFAST_SUITE_TIMEOUT=1200 "files=$ASAN_SPECS" "HOLDFAST_CALLS=40" "HOLDFAST_BUILD=./build/asan" "LD_PRELOAD=$(runtime asan) $(runtime ubsan)" \
        "ASAN_OPTIONS=allocator_may_return_null=1" -- run_busted lua5.4
    suite asan-spec-luajit busted with HOLDFAST_SUITE_TIMEOUT=1200 "files=$ASAN_SPECS" "HOLDFAST_BUILD=./build/asan" "LD_PRELOAD=$(runtime asan) $(runtime ubsan)" \
        "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1" -- run_busted luajit
}

# The thread sanitizer needs addresses in places that some kernels randomise away.
fixed_addresses() {
    if setarch "$(uname -m)" -R true 2>/dev/null; then echo setarch "$(uname -m)" -R; fi
}

tsan_spec() { # tsan_spec NAME FILES
    suite "$1" busted with "files=$2" "HOLDFAST_BUILD=./build/tsan" "LD_PRELOAD=$(runtime tsan)" \
        "TSAN_OPTIONS=exitcode=66 die_after_fork=0" -- run_busted $(fixed_addresses) lua5.4
}

tsan() {
    suite tsan-build one build build/tsan "SANITIZE=-fsanitize=thread" "CFLAGS=-O1 -g" "FLAVOURS=lua5.4 luajit"
    tsan_spec tsan-spec "$SLOW_SPECS"
    tsan_spec tsan-failover "--filter=names.the.new.master spec/sentinel_spec.lua"
}

valgrind_suites() {
    suite valgrind-build one build build
    # no fibers: it does not follow their stacks; no leaks, for which asan looks: the child of a fork has lost what
    # its parent's other threads knew
    with HOLDFAST_ORDERS=0 HOLDFAST_MARGINS=0 -- \
        unit valgrind-unit build valgrind -q --error-exitcode=99
    suite valgrind-spec busted with "files=$SLOWEST_SPECS" -- run_busted valgrind -q --error-exitcode=99 --leak-check=full \
        --show-leak-kinds=definite --errors-for-leak-kinds=definite lua5.4
}
