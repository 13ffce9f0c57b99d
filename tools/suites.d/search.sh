# Sourced by tools/suites: the suites that search for schedules and inputs that break something

# Try each mutant first with the seed that is known to expose it.
known="--known spec/sim/mutant_seeds.txt"

# Random calls through many handles. With MALLOC_PERTURB_, glibc overwrites freed memory, so a use after free corrupts
# what is sent.
handles="with MALLOC_PERTURB_=165 -- bounded luajit spec/fuzz/handles.lua"

model() { suite model one docs/model/run; }

# A search can take very long on a slow machine, so it gets an hour.
with_long_timeout() { timeout -k 10 3600 "$@"; }

# A short version for make test: 500 seeds of each generator, the kept schedules, and the mutants that are caught within
# seconds.
short_simulations() {
    suite sim-build one make -s SIM_FLAVOURS=luajit sim-mutants
    suite sim-kept one bounded luajit spec/sim/run.lua --kept
    suite sim one bounded luajit spec/sim/run.lua --from 1000001 --seeds 500
    suite sim-guided one bounded luajit spec/sim/run.lua --guided --from 2000001 --seeds 500
    suite sim-system one bounded luajit spec/sim/run.lua --system --from 3000001 --seeds 500
    suite sim-mutants one bounded luajit spec/sim/run.lua --mutants --quick $known
    suite sim-system-mutants one bounded luajit spec/sim/run.lua --system --mutants --quick $known
    suite explore-kept one bounded luajit spec/explore/run.lua --kept
    suite explore-rare one bounded luajit spec/explore/run.lua --rare
}

# Needs no core with mutants. Also runs 400 seeds of random calls through many handles.
small_worlds() {
    suite explore one bounded luajit spec/explore/run.lua
    suite handles one $handles --seeds 400
}

# Explores every schedule of the small worlds that departs once from the default order and then, for up to
# $HOLDFAST_EXPLORE_SECONDS, more often. Also runs the mutants that random seeds rarely catch.
explore() {
    suite sim-build one make -s sim-mutants
    suite explore-kept one bounded luajit spec/explore/run.lua --kept
    suite explore one with_long_timeout luajit spec/explore/run.lua --seconds "${HOLDFAST_EXPLORE_SECONDS:-480}"
    suite explore-rare one bounded luajit spec/explore/run.lua --rare
}

# Runs $HOLDFAST_SIM_SEEDS random schedules.
sim_seeds() {
    suite sim-kept one bounded luajit spec/sim/run.lua --kept
    suite sim one with_long_timeout luajit spec/sim/run.lua --seeds "${HOLDFAST_SIM_SEEDS:-30000}"
}

# Schedules guided by coverage, and each fault in each state that was reached.
sim_coverage() {
    suite sim-build one make -s sim-mutants
    suite sim-guided one with_long_timeout luajit spec/sim/run.lua --guided --coverage --from 2000001 --seeds 5000
    suite sim-meet one with_long_timeout luajit spec/sim/run.lua --coverage --meet --from 3000001 --seeds 4000
}

sim_systems() {
    suite sim-build one make -s sim-mutants
    suite sim-system one with_long_timeout luajit spec/sim/run.lua --system --from 4000001 --seeds "${HOLDFAST_SYSTEM_SEEDS:-8000}"
    suite sim-crash one with_long_timeout luajit spec/sim/run.lua --system --kind crash --seeds "${HOLDFAST_SYSTEM_SEEDS:-8000}"
    suite sim-addresses one with_long_timeout luajit spec/sim/run.lua --system --kind addresses --seeds "${HOLDFAST_SYSTEM_SEEDS:-8000}"
    suite sim-system-mutants one with_long_timeout luajit spec/sim/run.lua --system --mutants --seeds 4000 $known
}

# Each mutant must be caught by its seed in spec/sim/mutant_seeds.txt. Without --known the run finds the seeds again and
# prints new rows.
sim_mutants() {
    suite rows one lua5.4 tools/check_rows.lua
    suite sim-build one make -s sim-mutants
    suite sim-mutants one with_long_timeout luajit spec/sim/run.lua --mutants --seeds 4000 $known
}

# Runs one harness for $HOLDFAST_FUZZ_SECONDS, starting from the saved inputs. An input that makes it fail is saved in
# build/fuzz.
fuzz_harness() {
    harness=$1
    mkdir -p "build/fuzz/inputs/$harness"
    if bounded nice "build/fuzz/harness/$harness" -max_total_time="${HOLDFAST_FUZZ_SECONDS:-60}" -timeout=20 -max_len=600 \
        -len_control=0 -dict="spec/fuzz/$harness.dict" -artifact_prefix="build/fuzz/$harness-" \
        "build/fuzz/inputs/$harness" "spec/fuzz/corpus/$harness" >"build/fuzz/$harness.log" 2>&1; then
        echo "ok - $harness: $(grep '^Done ' "build/fuzz/$harness.log")"
        return
    fi
    grep -v '^#[0-9]' "build/fuzz/$harness.log" | tail -n 60
    input=$(sed -n 's/.*Test unit written to //p' "build/fuzz/$harness.log" | tail -n 1)
    echo "not ok - $harness"
    echo "# to replay it: make fuzz-build && build/fuzz/harness/$harness ${input:-(no input was kept)}"
    return 1
}

fuzz_in_parallel() {
    pids=
    for each in "$@"; do
        fuzz_harness "$each" &
        pids="$pids $!"
    done
    failed=0
    for pid in $pids; do wait "$pid" || failed=1; done
    return $failed
}

fuzz() {
    seconds=${HOLDFAST_FUZZ_SECONDS:-60} seed=$(date +%s)
    limit=HOLDFAST_SUITE_TIMEOUT=$((2 * seconds + 600))
    suite fuzz-build one make -s fuzz-build
    suite fuzz tap with "$limit" -- fuzz_in_parallel reply url options
    suite fuzz-handles one with "$limit" -- $handles --from "$seed" --seconds "$seconds"
    echo "# texts: HOLDFAST_HOSTILE_SEED=$seed HOLDFAST_HOSTILE_KEYS=${HOLDFAST_HOSTILE_KEYS:-20000}"
    suite fuzz-texts busted with "HOLDFAST_HOSTILE_SEED=$seed" "HOLDFAST_HOSTILE_KEYS=${HOLDFAST_HOSTILE_KEYS:-20000}" \
        "files=spec/completion_spec.lua spec/command_hostile_spec.lua" -- run_busted luajit
    suite fuzz-tools busted with "$limit" "HOLDFAST_HOSTILE_SEED=$seed" "HOLDFAST_HOSTILE_SECONDS=$seconds" \
        "files=--filter=whatever.data.is.on.the.server spec/command_hostile_spec.lua spec/status_locks_spec.lua" -- run_busted luajit
}

# Injects faults into real processes and servers for $HOLDFAST_CHAOS_SECONDS, starting at $HOLDFAST_CHAOS_SEED, half of the
# time under each Lua. Then runs a round of each special kind (upgrades and Redisson only if installed), and checks that
# the mutants are caught.
chaos() {
    from=${HOLDFAST_CHAOS_SEED:-1} seconds=$((${HOLDFAST_CHAOS_SECONDS:-60} / 2))
    suite chaos-build one make -s build sim-mutants
    suite chaos-lua5.4 one timeout $((seconds + 120)) lua5.4 spec/chaos/run.lua --seconds "$seconds" --from "$from"
    suite chaos-luajit one timeout $((seconds + 120)) luajit spec/chaos/run.lua --seconds "$seconds" --from $((from + 1003))
    for kind in sentinel cluster slots kinds moving; do
        suite "chaos-$kind" one timeout 180 luajit spec/chaos/run.lua --kind "$kind" --seconds 10 --from "$from"
    done
    if luajit spec/chaos/run.lua --missing upgrade; then
        suite chaos-upgrade one timeout 180 luajit spec/chaos/run.lua --kind upgrade --seconds 10 --from "$from"
    else
        skipped chaos-upgrade "HOLDFAST_SERVERS_DIR names no second version of the server"
    fi
    if spec/interop/build_java --offline; then
        suite chaos-redisson one timeout 180 luajit spec/chaos/run.lua --kind redisson --seconds 25 --from "$from"
    else
        skipped chaos-redisson "spec/interop/build_java fetches Redisson once"
    fi
    suite chaos-mutants one bounded luajit spec/chaos/run.lua --mutants
}
