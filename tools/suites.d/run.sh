# Sourced by tools/suites: runs suites, and counts their tests

# count NAME KIND STATUS: prints the numbers of tests in the log, as "PASSED FAILED"
count() {
    awk -v kind="$2" -v status="$3" '
        kind == "tap" && /^ok / { passed++ }
        kind == "tap" && /^not ok / { failed++ }
        kind == "busted" && /^[0-9]+ success(es)? \/ [0-9]+ failures? \/ [0-9]+ errors? \/ [0-9]+ pending/ {
            passed += $1; failed += $4 + $7
        }
        END {
            if (kind == "one" && status == 0) passed = 1
            if (!failed && (status != 0 || !passed)) failed = 1
            print passed + 0, failed + 0
        }' "$tally/$1.log" >"$tally/$1.count"
}

# suite NAME KIND COMMAND...: runs a suite. KIND is tap, busted or one (the exit code is the only result). Suites that run
# in parallel print their output when they end. build/tally/STAGE/seconds contains each suite's duration.
suite() {
    name=$1 kind=$2 begun=$(date +%s)
    shift 2
    if [ "$at_once" = 1 ]; then
        "$@" </dev/null >"$tally/$name.log" 2>&1
        echo $? >"$tally/$name.status"
        flock "$tally/output.lock" sh -c 'printf "== %s\n" "$1"; cat "$2"' show "$name" "$tally/$name.log"
    else
        printf '== %s\n' "$name"
        { "$@" </dev/null; echo $? >"$tally/$name.status"; } 2>&1 | tee "$tally/$name.log"
    fi
    echo "$(($(date +%s) - begun)) $name" >>"$tally/seconds"
    count "$name" "$kind" "$(cat "$tally/$name.status")"
}

skipped() { # skipped NAME WHY: repeated before the last line
    printf '== %s SKIPPED: %s\n' "$1" "$2"
    echo "$2" >"$tally/$1.skipped"
}

has() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }

# Runs these parts one after the other, in parallel with the parts that are already running.
lane() {
    at_once=1
    for part in "$@"; do "$part"; done &
    at_once=0
}

next_part() { flock "$tally/parts.lock" sh -c 'head -n 1 "$1"; sed -i 1d "$1"' next "$tally/parts"; }

take_parts() {
    while part=$(next_part) && [ "$part" ]; do
        part_begun=$(date +%s)
        $part
        echo "$(($(date +%s) - part_begun)) $part" >>"$tally/part-seconds"
    done
}

# Runs each part in the next free lane. There are two lanes per processor, because many suites mostly wait.
shared_out() {
    printf '%s\n' "$@" >"$tally/parts"
    for one in $(seq $((jobs * 2))); do lane take_parts; done
}

# Kills a suite that hangs, which then counts as failed.
bounded() { timeout -k 10 "${HOLDFAST_SUITE_TIMEOUT:-600}" "$@"; }

with() ( # with VARIABLE=value... -- COMMAND
    while [ "$1" != -- ]; do
        export "$1"
        shift
    done
    shift
    "$@"
)
