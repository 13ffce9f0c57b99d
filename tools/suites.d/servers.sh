# Sourced by tools/suites: runs the specs that depend on the server, with each server installed on this machine

# The specs that depend most on the server run on the newest Redis and the newest Valkey. Some of them also run on the
# other servers. spec/versions_spec.lua covers the basics on every server. tools/servers finds the servers, or installs
# those that docs/how-to/install.md names.
OTHER_SERVER_SPECS="spec/lock_spec.lua spec/waiting_spec.lua spec/foreign_spec.lua"
SERVER_SPECS="$OTHER_SERVER_SPECS spec/sentinel_spec.lua spec/cluster_spec.lua spec/doctor_spec.lua spec/doctor_servers_spec.lua"
SERVER_VERSIONS="redis-6.2 redis-7 redis-8 valkey-8 valkey-9"

get_servers() {
    HOLDFAST_SERVERS_DIR=build/servers
    export HOLDFAST_SERVERS_DIR
    tools/servers get build/servers
    for wanted in $SERVER_VERSIONS; do
        tools/servers list | grep -q "^${wanted%-*} ${wanted#*-}\." || skipped "$wanted" "not available in build/servers"
    done
}

# Redis 6.2 or newer only: the specs use CLIENT PAUSE … WRITE, which older versions lack.
other_servers() {
    tools/servers list | awk '$1 == "valkey" || $2 + 0 >= 6.2' | while read -r family version server; do
        case $server in "$(tools/servers newest "$family")" | "$(command -v redis-server)") continue ;; esac
        suite "$family-$version" busted with "HOLDFAST_REDIS_SERVER=$server" "files=$OTHER_SERVER_SPECS" -- run_busted luajit
    done
}

newest_servers() {
    [ -n "${HOLDFAST_SERVERS_DIR:-}" ] || get_servers
    for family in redis valkey; do
        server=$(tools/servers newest "$family")
        if [ -z "$server" ]; then
            skipped "newest-$family" "no $family-server in HOLDFAST_SERVERS_DIR or PATH"
        elif [ "$server" = "$(command -v redis-server)" ]; then
            echo "== newest-$family: all specs run on it: $server"
        else
            "$server" --version
            suite "newest-$family" busted with "HOLDFAST_REDIS_SERVER=$server" "files=$SERVER_SPECS" -- run_busted luajit
        fi
    done
    other_servers
    suite versions busted with "files=spec/versions_spec.lua" -- run_busted lua5.4
    suite upgrades busted with "files=--run=check spec/upgrade_spec.lua" -- run_busted luajit
}
