/* Independent servers, each with its own keys. ring.h chooses the server of a key. */
#include "link/nodes.h"

static bool open_shards(hf_client *client) {
    const hf_client_config *config = &client->config;
    if (!hf_ring_init(&client->ring, config->shards, config->server_count)) return false;
    for (size_t i = 1; i < config->server_count; i++) {
        if (!hf_client_add_node(client, &config->servers[i])) return false;
    }
    return true;
}

static void free_ring(hf_client *client) {
    hf_ring_free(&client->ring);
}

static size_t group_of(const hf_client *client, hf_slice key) {
    return hf_ring_find(&client->ring, key);
}

static hf_node *node_of(const hf_client *client, hf_slice key) {
    return client->nodes[group_of(client, key)];
}

const hf_topology hf_shards_topology = {.has_server_list = true,
                                        .routes_by_key = true,
                                        .open = open_shards,
                                        .free = free_ring,
                                        .node_of = node_of,
                                        .group_of = group_of,
                                        .submit = hf_nodes_submit};
