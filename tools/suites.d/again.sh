# Sourced by tools/suites: reruns what failed in make test

# On a busy machine, a correct test fails now and then. After everything has run, each spec file and each unit program that
# failed is rerun alone. If it passes, it counts as passed but "shaky"; tools/tally names it, and fails the run if more
# than three files are shaky. A file fails if it fails twice, or if it has seen two owners at the same time
# (spec/support/crowd.lua), which a busy machine cannot cause. Nothing else is rerun. The first output is kept in
# NAME.first.log.

# may_run_again NAME KIND FILE COMMAND...
may_run_again() { echo "$*" >>"$tally/again"; }

failed_tests() { # LOG: the names of the tests that failed, on one line
    awk '/^(Failure|Error) -> / { name_follows = 1; next }
        name_follows { print; name_follows = 0 }
        sub(/^not ok (- )?/, "") { print }' "$1" | awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $0 }' | cut -c1-300
}

second_look() {
    [ -f "$tally/again" ] || return
    while read -r name kind file command; do
        read -r _ failed <"$tally/$name.count"
        [ "$failed" != 0 ] || continue
        if grep "two owners at once" "$tally/$name.log"; then continue; fi
        mv "$tally/$name.log" "$tally/$name.first.log"
        mv "$tally/$name.status" "$tally/$name.first.status"
        tests=$(failed_tests "$tally/$name.first.log")
        printf '== %s failed, and runs again alone\n' "$name"
        suite "$name" "$kind" $command
        read -r _ failed <"$tally/$name.count"
        [ "$failed" != 0 ] || echo "$file: ${tests:-exit code $(cat "$tally/$name.first.status")} ($name)" >"$tally/$name.shaky"
    done <"$tally/again"
}
