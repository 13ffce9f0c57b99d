# Read by tools/suites: the specs that depend on the server, on the servers of this machine
# shellcheck shell=sh disable=SC2154

# What depends on the server most runs on the newest Redis and the newest Valkey, and what every server must do on each
# version there is: tools/servers says where they are looked for.
SERVER_SPECS="spec/lock_spec.lua spec/waiting_spec.lua spec/foreign_spec.lua spec/sentinel_spec.lua spec/cluster_spec.lua"

newest_servers() {
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
    suite versions busted with "files=spec/versions_spec.lua" -- run_busted lua5.4
}
