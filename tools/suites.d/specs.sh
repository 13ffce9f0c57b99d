# Sourced by tools/suites: runs the specs under each Lua

run_busted() { # run_busted [WRAPPER...] INTERPRETER: runs $files, or all specs if it is not set
    bounded "$@" "$(command -v busted)" --output=plainTerminal ${files:-}
}

# Specs mostly wait, so several files run in parallel, each in its own process; fewer if other suites are running.
spec_jobs() { echo "${HOLDFAST_SPEC_JOBS:-$((at_once ? jobs : jobs * 4))}"; }

spec_queue() { # reads lines "INTERPRETER FILE", and runs each as suite LABEL-INTERPRETER-FILE
    label=$1
    queue=$(mktemp "$tally/$label.XXXXXX")
    cat >"$queue"
    xargs -P "$(spec_jobs)" -L 1 tools/spec "$tally" "$label" <"$queue"
    while read -r interpreter file; do
        name=$label-$interpreter-$(basename "$file" _spec.lua)
        printf '== %s\n' "$name"
        cat "$tally/$name.log"
        may_run_again "$name" busted "$file" with "files=$file" -- run_busted "$interpreter"
        count "$name" busted "$(cat "$tally/$name.status")"
    done <"$queue"
}

specs_under() { # specs_under "INTERPRETERS" LABEL FILE...
    interpreters=$1 label=$2
    shift 2
    for file in "$@"; do
        for interpreter in $interpreters; do echo "$interpreter $file"; done
    done | spec_queue "$label"
}

# The specs that test nginx, whose Lua is LuaJIT.
NGX_SPECS="$(grep -l 'require "spec.support.resty"' spec/*_spec.lua | tr '\n' ' ')spec/status_truth_spec.lua \
spec/failing_ngx_spec.lua"

# The specs of the command's subcommands, its installation, its help and its use.
COMMAND_SPECS="spec/command_show_spec.lua spec/command_break_spec.lua spec/command_output_spec.lua spec/command_usage_spec.lua \
spec/command_installed_spec.lua spec/command_tls_spec.lua spec/command_terminal_spec.lua"

# make test runs these specs under both Luas. What the others test does not depend on the Lua version: make test runs them
# under one interpreter (UNDER_LUA: Lua 5.4, the rest: LuaJIT), make check also under the other.
UNDER_BOTH="spec/async_release_spec.lua spec/core_calls_spec.lua spec/driven_*_spec.lua spec/lead_spec.lua spec/loads_spec.lua \
spec/lock_spec.lua spec/misuse*_spec.lua spec/signal_spec.lua spec/sim/redis_spec.lua spec/threads_spec.lua spec/with_lock_spec.lua"
UNDER_LUA="spec/cluster_spec.lua spec/sentinel_spec.lua spec/shards_spec.lua $COMMAND_SPECS spec/command_lead_spec.lua"

# Only in make check. The specs of the Makefile and of the set-up run builds, and fail only if these files change.
NOT_IN_TEST="spec/command_help_spec.lua spec/partitions_spec.lua spec/doctor_servers_spec.lua spec/upgrade_spec.lua \
spec/unreadable_jobs_spec.lua spec/install_spec.lua spec/setup_spec.lua spec/static_spec.lua"

# The files that take longest. They run first, so that the run does not have to wait for them at its end.
SLOW_FILES="spec/command_run_job_spec.lua spec/loops_events_spec.lua spec/loops_tasks_spec.lua spec/loops_outages_spec.lua \
spec/status_locks_spec.lua spec/status_workers_spec.lua spec/status_truth_spec.lua spec/resty_connections_spec.lua \
spec/resty_finish_spec.lua spec/resty_idempotent_spec.lua spec/cluster_spec.lua \
spec/watchdog_spec.lua spec/quorum_spec.lua spec/waiting_spec.lua spec/trouble_spec.lua spec/sentinel_spec.lua spec/waiting_faults_spec.lua"
specs_but() { # specs_but FILE...: prints all other files, the slow ones first
    { printf '%s\n' $SLOW_FILES; find spec -name '*_spec.lua' | sort; } | awk '!seen[$0]++' |
        grep -vxF "$(printf '%s\n' "$@")"
}

# Ubuntu 22.04 does not package ngx_lua. Other files skip their tests in nginx: see spec/support/nginx.lua.
has_ngx_lua() { [ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ]; }

# These specs use commands and settings of Redis 7. Ubuntu 22.04 has Redis 6.0.
REDIS_7_SPECS="spec/acl_spec.lua spec/channel_waits_spec.lua spec/cluster_spec.lua spec/connect_spec.lua \
spec/credentials_spec.lua spec/doctor_spec.lua spec/rotation_spec.lua spec/deadlocks_kinds_spec.lua \
spec/fence_spec.lua spec/foreign_spec.lua spec/latch_spec.lua spec/leader_spec.lua spec/plain_semaphore_spec.lua \
spec/redis_diff_spec.lua spec/refusals_spec.lua spec/sentinel_spec.lua spec/support_spec.lua spec/tenants_spec.lua \
spec/tls_spec.lua spec/trouble_spec.lua spec/waiting_spec.lua spec/waiting_faults_spec.lua spec/watchdog_spec.lua"
redis_version() { "${HOLDFAST_REDIS_SERVER:-redis-server}" --version | sed -n 's/.* v=\([0-9]*\.[0-9]*\).*/\1/p'; }

# Ubuntu 22.04 does not package lua-system for Lua 5.4, which busted needs.
has_busted() { "$1" -e 'require "busted.core"' 2>/dev/null; }

# Sets which specs all_specs skips because this system lacks the packages for them, and prints their names.
leave_out() {
    without=$NOT_IN_TEST under_lua=$UNDER_LUA version=$(redis_version)
    if ! has_ngx_lua; then
        without="$without $NGX_SPECS"
        skipped nginx "nginx has no Lua module here (libnginx-mod-http-lua): nothing is tested in nginx"
    fi
    if [ "${version%.*}" -lt 7 ]; then
        without="$without $REDIS_7_SPECS"
        skipped redis-7 "Redis is $version here; $(echo $REDIS_7_SPECS | wc -w) spec files need 7.0 (HOLDFAST_REDIS_SERVER names another server)"
    fi
    if ! has_busted lua5.4; then
        under_lua=
        skipped lua5.4 "busted does not run under Lua 5.4 here (no lua-system for it): all specs run under LuaJIT alone"
    fi
    if ! has tmux; then
        without="$without spec/command_terminal_spec.lua"
        skipped terminal "there is no tmux: the command and its jobs are tried on no terminal"
    fi
}

# The files that make test runs under LuaJIT but that also test features which LuaJIT lacks: to-be-closed variables,
# closed coroutines, hooks.
PUC_SPECS=$(grep -l '#puc' spec/*_spec.lua | tr '\n' ' ')

run_puc() { files="--tags=puc $PUC_SPECS" run_busted lua5.4; }

puc_specs() {
    has_busted lua5.4 || return 0
    may_run_again spec-puc busted spec/loops_abandoned_spec.lua run_puc
    suite spec-puc busted run_puc
}
all_specs() {
    leave_out
    {
        specs_but $under_lua $without | sed 's/^/luajit /'
        [ -z "$under_lua" ] || printf '%s\n' $UNDER_LUA $UNDER_BOTH | grep -vxF "$(printf '%s\n' $without)" | sed 's/^/lua5.4 /'
    } | spec_queue spec
}

# Runs one round of tools/shaky: all specs, or $FILES. Odd rounds use LuaJIT, even rounds Lua 5.4.
shaky_round() {
    interpreter=luajit
    [ $((${stage#shaky-} % 2)) = 1 ] || interpreter=lua5.4
    for file in ${FILES:-$(specs_but $NOT_IN_TEST)}; do
        case " $NGX_SPECS " in *" $file "*) echo "luajit $file" ;; *) echo "$interpreter $file" ;; esac
    done | spec_queue spec
}

# Tests the binding and the Lua files under the other Luas, with every kind and feature. The code below the binding does
# not depend on the Lua version. Event loops do not work under Lua 5.1.
BINDING_SPECS="spec/lead_spec.lua spec/semaphore_spec.lua spec/watchdog_spec.lua spec/waiting_spec.lua \
spec/lock_spec.lua spec/with_lock_spec.lua spec/misuse*_spec.lua spec/templates_spec.lua spec/signal_spec.lua \
spec/threads_spec.lua $COMMAND_SPECS spec/command_run_*_spec.lua spec/command_hold_spec.lua spec/command_kinds_spec.lua \
spec/command_latch_spec.lua spec/command_lead_spec.lua spec/completion_spec.lua spec/command_hostile_spec.lua spec/kinds_spec.lua spec/latch_spec.lua spec/read_write_spec.lua \
spec/plain_semaphore_spec.lua spec/channel_waits_spec.lua spec/fair_spec.lua spec/keep_spec.lua \
spec/async_release_spec.lua spec/metrics_spec.lua spec/names_spec.lua spec/deadlocks_spec.lua \
spec/deadlocks_kinds_spec.lua spec/connect_spec.lua spec/fence_spec.lua"
LOOP_SPECS="spec/loops_[!s]*_spec.lua spec/coroutines_spec.lua spec/failing_loops_spec.lua spec/turns_spec.lua"

get_lua5_5() { tools/machine lua5.5 "$1"; }

# Unlike the other versions, Lua 5.5 does not compile assignments to a loop's variable.
loads_all() { # INTERPRETER
    echo 'for _, path in ipairs(dofile("tools/files.lua").sources "-name *.lua") do assert(loadfile(path)) end' |
        "$1" -
}

# Lua 5.5 with busted: the one that make found on this machine, or the one in a later Debian release.
lua5_5() {
    made=$PWD/build/machines/lua5.5
    if has lua5.5 && [ -d build/lua5.5 ] && lua5.5 -e 'require "busted.runner"' 2>/dev/null; then
        specs_under lua5.5 spec $BINDING_SPECS $LOOP_SPECS
    elif get_lua5_5 "$made"; then
        suite lua5.5-build one build build FLAVOURS=lua5.5 "CFLAGS_lua5.5=-isystem $made/include"
        suite lua5.5-syntax one loads_all "$made/bin/lua5.5"
        with "PATH=$made/bin:$PATH" "HOLDFAST_INTERPRETER=$made/bin/lua5.5" -- specs_under lua5.5 spec $BINDING_SPECS $LOOP_SPECS
    else
        skipped lua5.5 "there is no lua5.5 with busted"
    fi
}
lua_of_debian() { # LUA
    specs_under "$1" spec $BINDING_SPECS
    [ "$1" = lua5.1 ] || specs_under "$1" spec $LOOP_SPECS spec/loops_single_spec.lua # needs luv or cqueues
}

other_luas() {
    for lua in lua5.1 lua5.2 lua5.3; do lua_of_debian "$lua"; done
    lua5_5
}

# Tests the code that links to hiredis, in the core, the driver and TLS, with an old and the newest hiredis 1.x, built from
# source, and with those in $HOLDFAST_HIREDIS_DIRS.
other_hiredis() {
    built=$(tools/hiredis build/hiredis) || skipped hiredis "no sources of other versions can be had: python3 -m pip"
    for hiredis in $built ${HOLDFAST_HIREDIS_DIRS:-}; do
        version=$(basename "$hiredis")
        suite "$version-build" one build "build/$version" "HIREDIS_DIR=$hiredis" FLAVOURS=lua5.4
        unit "$version" "build/$version"
        suite "$version-spec" busted with "HOLDFAST_BUILD=./build/$version" \
            "files=spec/lock_spec.lua spec/waiting_spec.lua spec/trouble_spec.lua spec/tls_spec.lua" -- run_busted lua5.4
    done
}

# Compares the small Redis with the real one and the API with its model, and makes calls fail, longer than in make test.
# LuaJIT runs the model ten times as fast.
redis_diff() {
    for each in lua5.4:500 luajit:5000; do
        interpreter=${each%:*}
        suite "redis-diff-$interpreter" busted with HOLDFAST_DIFF_SEEDS=1000 "files=spec/redis_diff_spec.lua" \
            -- run_busted "$interpreter"
        suite "model-$interpreter" busted with "HOLDFAST_MODEL_SEEDS=${each#*:}" \
            "files=spec/model_spec.lua spec/guard_model_spec.lua" -- run_busted "$interpreter"
    done
    suite failing-calls-build one make -s build/unit/test_driver
    suite failing-calls tap with HOLDFAST_EACH_CALL=1 -- bounded build/unit/test_driver
    suite failing-ngx busted with HOLDFAST_FAILING_NGX=3 "files=spec/failing_ngx_spec.lua" -- run_busted luajit
}

# Tests the live page in a real browser; leaves the screenshots in build/status.
browser_specs() {
    if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
        suite status-page busted bounded luajit "$(command -v busted)" --output=plainTerminal --pattern=status_page spec/browser
    else
        skipped status-page "no chromium and chromedriver: tools/setup.sh check installs them"
    fi
}

# Tests stale writes with real databases, and 1,000 holders that are stopped before they write.
fencing() {
    suite fencing busted with HOLDFAST_DATABASES=1 "files=--pattern=_fencing spec/fencing" -- run_busted lua5.4
}

# Runs 100 rounds of each case in parallel with other suites: one try in three must meet the time limits.
crash_rounds() { suite crash tap with_long_timeout lua5.4 spec/crash/run.lua; }

# Runs the specs that take minutes.
long_specs() {
    suite help busted with files=spec/command_help_spec.lua -- run_busted luajit
    suite servers busted with HOLDFAST_CLUSTER_SECONDS=10 "files=$UNDER_LUA spec/doctor_servers_spec.lua" -- run_busted luajit
    specs_under lua5.4 other $(specs_but $UNDER_LUA $UNDER_BOTH $NOT_IN_TEST $NGX_SPECS) spec/setup_spec.lua spec/install_spec.lua
    suite long-spec-luajit busted with_long_timeout luajit "$(command -v busted)" --output=plainTerminal --run=check
}

# Tests the command as a single file, in its own root file system and in place of the usual command.
static_command() {
    suite static-build one make -s LUA=lua5.4 static
    with "HOLDFAST_STATIC=$PWD/build/static/holdfast" -- specs_under luajit static spec/static_spec.lua \
        spec/command_run_*_spec.lua spec/command_hold_spec.lua spec/command_once_spec.lua
}
gc_stress() { with HOLDFAST_GC=stress -- specs_under "lua5.4 luajit" gc-stress $SLOWEST_SPECS; }
