# Read by tools/suites: what looks for schedules and inputs that break something
# shellcheck shell=sh disable=SC2034,SC2086,SC2154

# Rows begin with the seed that showed their mutant before.
known="--known spec/sim/mutant_seeds.txt"

# Random calls through many handles. glibc overwrites memory that is freed, which shows in what is sent from it.
handles="with MALLOC_PERTURB_=165 -- bounded luajit spec/fuzz/handles.lua"

model() { suite model one docs/model/run; }

# A search takes its time on a slow machine.
patient() { timeout -k 10 3600 "$@"; }

# Some of it for make test: 500 seeds of each generator, the kept schedules, the mutants that fall in seconds, and 400
# runs with many handles.
simulations_in_short() {
    suite sim-build one make -s sim-mutants
    suite sim-kept one bounded luajit spec/sim/run.lua --kept
    suite sim one bounded luajit spec/sim/run.lua --from 1000001 --seeds 500
    suite sim-guided one bounded luajit spec/sim/run.lua --guided --from 2000001 --seeds 500
    suite sim-system one bounded luajit spec/sim/run.lua --system --from 3000001 --seeds 500
    suite sim-mutants one bounded luajit spec/sim/run.lua --mutants --quick $known
    suite sim-system-mutants one bounded luajit spec/sim/run.lua --system --mutants --quick $known
    suite explore one bounded luajit spec/explore/run.lua
    suite explore-kept one bounded luajit spec/explore/run.lua --kept
    suite explore-rare one bounded luajit spec/explore/run.lua --rare
    suite handles one $handles --seeds 400
}

# Small worlds in each order with one departure and, for $HOLDFAST_EXPLORE_SECONDS, with two; the mutants that are rare.
explore() {
    suite sim-build one make -s sim-mutants
    suite explore-kept one bounded luajit spec/explore/run.lua --kept
    suite explore one patient luajit spec/explore/run.lua --seconds "${HOLDFAST_EXPLORE_SECONDS:-480}"
    suite explore-rare one bounded luajit spec/explore/run.lua --rare
}

# $HOLDFAST_SIM_SEEDS schedules.
sim_seeds() {
    suite sim-kept one bounded luajit spec/sim/run.lua --kept
    suite sim one patient luajit spec/sim/run.lua --seeds "${HOLDFAST_SIM_SEEDS:-30000}"
}

# Schedules that follow what others reached, and each fault in each state.
sim_coverage() {
    suite sim-build one make -s sim-mutants
    suite sim-guided one patient luajit spec/sim/run.lua --guided --coverage --from 2000001 --seeds 5000
    suite sim-meet one patient luajit spec/sim/run.lua --coverage --meet --from 3000001 --seeds 4000
}

sim_systems() {
    suite sim-build one make -s sim-mutants
    suite sim-system one patient luajit spec/sim/run.lua --system --from 4000001 --seeds "${HOLDFAST_SYSTEM_SEEDS:-8000}"
    suite sim-crash one patient luajit spec/sim/run.lua --system --kind crash --seeds "${HOLDFAST_SYSTEM_SEEDS:-8000}"
    suite sim-addresses one patient luajit spec/sim/run.lua --system --kind addresses --seeds "${HOLDFAST_SYSTEM_SEEDS:-8000}"
    suite sim-system-mutants one patient luajit spec/sim/run.lua --system --mutants --seeds 4000 $known
}

# Each mutant falls with its seed in spec/sim/mutant_seeds.txt; without --known the run prints the rows anew.
sim_mutants() {
    suite rows one lua5.4 tools/check_rows.lua
    suite sim-build one make -s sim-mutants
    suite sim-mutants one patient luajit spec/sim/run.lua --mutants --seeds 4000 $known
}

# One harness for $HOLDFAST_FUZZ_SECONDS, from the inputs that are kept. What ends it is kept in build/fuzz.
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

fuzz_at_once() {
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
    suite fuzz tap with "$limit" -- fuzz_at_once reply url options
    suite fuzz-handles one with "$limit" -- $handles --from "$seed" --seconds "$seconds"
    echo "# texts: HOLDFAST_HOSTILE_SEED=$seed HOLDFAST_HOSTILE_KEYS=${HOLDFAST_HOSTILE_KEYS:-20000}"
    suite fuzz-texts busted with "HOLDFAST_HOSTILE_SEED=$seed" "HOLDFAST_HOSTILE_KEYS=${HOLDFAST_HOSTILE_KEYS:-20000}" \
        "files=spec/completion_spec.lua spec/command_hostile_spec.lua" -- run_busted luajit
    suite fuzz-tools busted with "$limit" "HOLDFAST_HOSTILE_SEED=$seed" "HOLDFAST_HOSTILE_SECONDS=$seconds" \
        "files=--filter=whatever.data.is.on.the.server spec/command_hostile_spec.lua spec/status_locks_spec.lua" -- run_busted luajit
}

# Real processes and servers under faults, for $HOLDFAST_CHAOS_SECONDS from $HOLDFAST_CHAOS_SEED on, half of it under each
# Lua; rounds with Sentinels, with clusters, of kinds, and with Redisson if that is here; then whether mutants are found.
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
        echo "# chaos: NOT RUN with upgrades: HOLDFAST_SERVERS_DIR names no second version of the server"
    fi
    if spec/interop/build_java --offline; then
        suite chaos-redisson one timeout 180 luajit spec/chaos/run.lua --kind redisson --seconds 25 --from "$from"
    else
        echo "# chaos: NOT RUN with Redisson: spec/interop/build_java fetches it once"
    fi
    suite chaos-mutants one bounded luajit spec/chaos/run.lua --mutants
}
