# Sourced by tools/suites: the specs and unit programs under sanitizers and valgrind

# The specs that run under the slow tools: everything about the binding and the driver, except the specs that test
# timing or other programs. To run a tool on all specs: SPEC_FILES=spec tools/suites asan.
SLOW_SPECS="${SPEC_FILES:-spec/lock_spec.lua spec/with_lock_spec.lua spec/misuse*_spec.lua spec/templates_spec.lua \
spec/signal_spec.lua spec/threads_spec.lua}"
ASAN_SPECS="${SPEC_FILES:-$SLOW_SPECS spec/loops_[!s]*_spec.lua spec/loops_single_spec.lua spec/coroutines_spec.lua \
spec/async_release_spec.lua spec/quorum_spec.lua spec/core_calls_spec.lua}"
SLOWEST_SPECS="${SPEC_FILES:-spec/lock_spec.lua spec/misuse*_spec.lua}"

# An interpreter that was built without sanitizers must preload their runtimes.
runtime() { gcc -print-file-name="lib$1.so"; }

ASAN_FLAGS="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow \
-fno-omit-frame-pointer"

build_asan() { make -s -j"$jobs" BUILD=build/asan "SANITIZE=$ASAN_FLAGS" "CFLAGS=-O1 -g" "FLAVOURS=lua5.4 luajit" "$@"; }

# Not optimised: the build takes half the time, and the run only two seconds longer. Reports need only line numbers.
sanitized_units() {
    suite asan-unit-build one build_asan "CFLAGS=-O0 -g1" unit-programs
    unit asan-unit build/asan
}

# Runs without a sanitizer, which leaves time for many more thread interleavings.
orders_quick() {
    suite orders-build one make -s build/unit/test_orders
    suite orders tap bounded build/unit/test_orders
}

# Runs more thread interleavings than orders_quick, and the margins tests with more randomly drawn leases.
orders() {
    suite orders-build one make -s build/unit/test_orders build/unit/test_margins
    suite orders tap with "HOLDFAST_ORDERS=${HOLDFAST_ORDERS:-1000000}" -- with_long_timeout build/unit/test_orders
    suite margins tap with HOLDFAST_MARGINS=2000 -- bounded build/unit/test_margins
    suite margins-command busted with HOLDFAST_MARGINS=300 files=spec/margins_spec.lua -- run_busted luajit
}

asan() {
    sanitized_units
    suite asan-build one build_asan build
    # A call with random arguments may request more memory than is available. The leak checker does not search
    # LuaJIT's heap.
    suite asan-spec-lua5.4 busted with HOLDFAST_SUITE_TIMEOUT=1200 "files=$ASAN_SPECS" "HOLDFAST_CALLS=40" "HOLDFAST_BUILD=./build/asan" "LD_PRELOAD=$(runtime asan) $(runtime ubsan)" \
        "ASAN_OPTIONS=allocator_may_return_null=1" -- run_busted lua5.4
    suite asan-spec-luajit busted with HOLDFAST_SUITE_TIMEOUT=1200 "files=$ASAN_SPECS" "HOLDFAST_BUILD=./build/asan" "LD_PRELOAD=$(runtime asan) $(runtime ubsan)" \
        "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1" -- run_busted luajit
}

# ThreadSanitizer needs a fixed memory layout, so this turns off address space randomisation (ASLR).
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
    # Skips the tests that use fibers, because valgrind cannot follow their stacks. Does not check the unit programs for
    # leaks: asan does that, and in a forked child valgrind would report memory that only the parent's other threads
    # referenced.
    with HOLDFAST_ORDERS=0 HOLDFAST_MARGINS=0 -- \
        unit valgrind-unit build valgrind -q --error-exitcode=99
    suite valgrind-spec busted with "files=$SLOWEST_SPECS" -- run_busted valgrind -q --error-exitcode=99 --leak-check=full \
        --show-leak-kinds=definite --errors-for-leak-kinds=definite lua5.4
}
