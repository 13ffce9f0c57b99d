#!/bin/sh
# Checks the models of docs/model with spin: the protocol must hold, and each mutant must be found.
#   tools/model.sh        what `make check` runs
#   tools/model.sh long   and two larger searches
# One line for each run; exit 1 if any run ends otherwise than expected.
set -u
cd "$(dirname "$0")/.." || exit 1

model=$PWD/docs/model/handoff.pml
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0 states_in_all=0

for tool in spin gcc; do
    command -v $tool >/dev/null || { echo "model: $tool is not installed" >&2; exit 1; }
done

# verify KIND [-DSWITCH...]: leaves errors and states; KIND is safety, progress, or tokens: no assertion of $model fails
verify() {
    kind=$1
    shift
    rm -rf "$work"/*
    if [ "$kind" = safety ]; then
        flags="-DSAFETY -DNOCLAIM" options=""
    elif [ "$kind" = tokens ]; then
        flags="-DSAFETY -DNOCLAIM" options="-E -w25"
    else
        flags="-DNFAIR=6" options="-a -f -N gets_in"
    fi
    # shellcheck disable=SC2086
    (
        cd "$work" || exit 1
        spin -a "$@" "$model" >spin.log 2>&1 && gcc -w -O2 -DCOLLAPSE $flags -o pan pan.c >gcc.log 2>&1 &&
            ./pan -m1000000 $options >pan.log 2>&1
    ) || { cat "$work"/*.log >&2; errors=broken states=0; return; }
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$work/pan.log")
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$work/pan.log" | awk '{ printf "%.0f", $1 }')
    if grep -q "max search depth too small" "$work/pan.log"; then errors=unfinished; fi
}

row() { printf '%-9s  %-8s  %-46s  %12s  %s\n' "$@"; }

holds() { # holds KIND TITLE [-DSWITCH...]
    kind=$1 title=$2
    shift 2
    verify "$kind" "$@"
    verdict="holds"
    if [ "$errors" != 0 ]; then verdict="FAILS ($errors)" bad=1; fi
    states_in_all=$((states_in_all + states))
    row protocol "$kind" "$title" "$states" "$verdict"
}

found() { # found KIND MUTANT [-DSWITCH...]
    kind=$1 mutant=$2
    shift 2
    verify "$kind" "-DMUTANT_$mutant" "$@"
    verdict="found"
    case $errors in [1-9]*) ;; *) verdict="NOT FOUND ($errors)" bad=1 ;; esac
    row mutant "$kind" "$mutant" "$states" "$verdict"
}

row what check which states verdict
holds safety "calm, 2 clients" -DCLIENTS=2
holds progress "calm, 2 clients" -DCLIENTS=2
holds safety "calm, 3 clients" -DCLIENTS=3
holds progress "calm, 3 clients" -DCLIENTS=3
holds safety "faulty, 2 clients" -DCLIENTS=2 -DFAULTY
holds progress "faulty, 2 clients" -DCLIENTS=2 -DFAULTY
holds safety "faulty, 2 clients, twice each" -DCLIENTS=2 -DROUNDS=2 -DFAULTY
if [ "${1:-}" = long ]; then
    holds safety "calm, 3 clients, twice each" -DCLIENTS=3 -DROUNDS=2
    holds progress "faulty, 2 clients, twice each" -DCLIENTS=2 -DROUNDS=2 -DFAULTY
fi
found safety LAST_FIRST -DCLIENTS=3
found safety NO_SKIP -DCLIENTS=3
found safety FORGET_EARLY -DCLIENTS=2
found safety DEAF_PLACE -DCLIENTS=2
found safety LEAVE_KEEPS -DCLIENTS=2
found progress NO_LOOK -DCLIENTS=2 -DFAULTY
found safety NO_BOUND -DCLIENTS=2 -DROUNDS=2 -DFAULTY
found safety LATE_CLOCK -DCLIENTS=2 -DFAULTY
found safety STALE_GRANT -DCLIENTS=2 -DROUNDS=2 -DFAULTY
found safety TELL_FIRST -DCLIENTS=2 -DROUNDS=2 -DFAULTY
model=$PWD/docs/model/quorum.pml
holds tokens "quorum, twice each, counters up to 4" -DROUNDS=2
found tokens LESS_ONE -DROUNDS=1
found tokens LOWEST -DROUNDS=1
found tokens NO_RAISE -DROUNDS=1
found tokens SENT_IS_KNOWN -DROUNDS=1
found tokens LATE_PARTS -DROUNDS=1
found tokens LOWERS
model=$PWD/docs/model/kept.pml
holds progress "kept locks, calm, 2 clients of 2 callers"
holds progress "kept locks, calm, 3 clients" -DCLIENTS=3 -DCALLERS=1
holds progress "kept locks, lossy, 2 clients" -DLOSSY -DCALLERS=1
holds safety "kept locks, faulty, 2 clients" -DFAULTY -DCALLERS=1
holds tokens "kept locks, calm, counter up to 8" -DTOKENS
if [ "${1:-}" = long ]; then
    holds progress "kept locks, lossy, 2 clients of 2 callers" -DLOSSY
    holds safety "kept locks, faulty, 2 clients, 2 leases end" -DFAULTY -DCALLERS=1 -DENDS=2
    holds tokens "kept locks, faulty, counter up to 6" -DFAULTY -DCALLERS=1 -DTOKENS -DMOST=6
fi
found progress WISH_UNHEARD -DCALLERS=1
found progress EARLY_WISH
found progress WISH_ONCE
found progress LATER_FIRST
found progress KEEPS_ON -DLOSSY -DCALLERS=1
found progress NO_RECHECK -DLOSSY -DCALLERS=1
found safety LENT_AFTER_END -DFAULTY -DCALLERS=1
found safety GONE_UNHEARD -DFAULTY -DCALLERS=1
found safety SHORT_UNNOTICED -DFAULTY -DCALLERS=1
found safety DOUBT_UNHEARD -DFAULTY -DCALLERS=1
found safety SAME_OWNER -DFAULTY -DCALLERS=1
found tokens RANGE_UNRESERVED -DTOKENS -DCALLERS=1
found tokens RANGE_EXCEEDED -DTOKENS -DCALLERS=1
found tokens TOKEN_AGAIN -DTOKENS -DCALLERS=1
model=$PWD/docs/model/read_write.pml
holds safety "read/write lock, calm, 2 readers, 1 writer"
holds progress "read/write lock, calm, 2 readers, 1 writer"
holds safety "read/write lock, calm, 2 readers, 2 writers" -DCLIENTS=4
holds safety "read/write lock, faulty, 2 readers, 1 writer" -DFAULTY
holds progress "read/write lock, lossy, 2 readers, 1 writer" -DFAULTY -DENDS=0
found safety READER_PASSES
found safety WRITER_JOINS
found safety RELEASE_FREES
found safety ONE_READER
found safety BATCH_PASSES
found safety LEAVE_SILENT -DCLIENTS=4
found progress NO_SKIP
found safety DEAD_COUNT -DFAULTY
found safety NO_BOUND -DFAULTY
found progress NO_RECHECK -DFAULTY -DENDS=0
echo "states of the protocol: $states_in_all"
exit $bad
