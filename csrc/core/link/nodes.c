#include "link/nodes.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* Called when one of a node's links was given up as silent. Makes the other links doubtful: the
 * renewer's link now, the links for calls and events at the next tick for calls. Until that tick,
 * another thread may be sleeping until the deadline of those two links, so the deadline must not
 * become earlier. Ignored by a closed client, which does not use its links for much longer. */
static void on_silence(void *context, hf_time since, hf_time now) {
    hf_node *node = context;
    if (node->client->closed) return;
    node->silent_since = since;
    hf_session_doubt(&node->links[HF_LINK_RENEWER], since, now);
}

void hf_node_report_silence(hf_node *node, hf_time now) {
    if (node->silent_since == HF_NEVER) return;
    hf_session_doubt(&node->links[HF_LINK_CALLS], node->silent_since, now);
    hf_session_doubt(&node->links[HF_LINK_EVENTS], node->silent_since, now);
    node->silent_since = HF_NEVER;
}

static void init_node(hf_node *node, hf_client *client, const hf_server *server) {
    assert(client->prepare_node && client->topology->node_of && client->topology->submit);
    *node = (hf_node){.client = client,
                      .server = *server,
                      .ping_at = HF_NEVER,
                      .silent_since = HF_NEVER,
                      .may_have_keys = true};
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session_init(&node->links[link], &client->config.session, &client->random);
        node->links[link].server = &node->server;
        node->links[link].context = node;
        node->links[link].on_change = client->decider->on_link;
        node->links[link].on_reply = client->decider->on_reply;
        node->links[link].on_delay = client->decider->on_delay;
        node->links[link].on_silence = on_silence;
    }
    client->prepare_node(node);
    if (client->topology->set_callbacks) client->topology->set_callbacks(node);
}

void hf_nodes_begin(hf_client *client, const hf_server *server) {
    client->inline_nodes[0] = &client->first;
    client->nodes = client->inline_nodes;
    client->node_count = 1;
    init_node(&client->first, client, server);
}

/* Frees the links. Their background requests, which nothing else owns, are freed by failing. */
static void free_node(hf_node *node) {
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session_fail_all(&node->links[link], HF_CLOSED, "the client was closed", 0);
        hf_session_free(&node->links[link]);
    }
}

void hf_nodes_free(hf_client *client) {
    for (size_t i = 0; i < client->node_count; i++) free_node(client->nodes[i]);
    for (size_t i = 1; i < client->node_count; i++) free(client->nodes[i]);
    if (client->nodes != client->inline_nodes) free(client->nodes);
}

hf_node *hf_client_add_node(hf_client *client, const hf_server *server) {
    bool is_inline = client->nodes == client->inline_nodes;
    if (client->node_count == HF_NODES_MAX) return NULL;
    hf_node **grown =
        realloc(is_inline ? NULL : client->nodes, (client->node_count + 1) * sizeof *grown);
    if (!grown) return NULL;
    if (is_inline) grown[0] = &client->first;
    client->nodes = grown;
    hf_node *node = malloc(sizeof *node);
    if (!node) return NULL;
    init_node(node, client, server);
    assert(client->node_count < HF_NODES_MAX);
    client->nodes[client->node_count++] = node;
    return node;
}

/* ---- the log-in ---- */

static void set_login(hf_server *server, const char *user, const char *password) {
    snprintf(server->user, sizeof server->user, "%s", user);
    snprintf(server->password, sizeof server->password, "%s", password);
}

void hf_session_log_in(hf_session *session, const char *user, const char *password) {
    hf_node *node = session->context;
    hf_client *client = node->client;
    bool shared = client->topology->shares_login;
    set_login(&node->server, user, password);
    for (size_t i = 0; shared && i < client->node_count; i++)
        set_login(&client->nodes[i]->server, user, password);
    if (shared) set_login(&client->config.session.server, user, password);
    hf_session_log_in_again(session);
}

/* ---- requests by key ---- */

hf_node *hf_client_node(const hf_client *client, hf_slice key) {
    return client->topology->node_of(client, key);
}

size_t hf_client_group(const hf_client *client, hf_slice key) {
    return client->topology->group_of(client, key);
}

void hf_client_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                      hf_time now) {
    assert(link < HF_LINKS);
    client->topology->submit(client, key, link, request, now);
}

bool hf_client_sync(const hf_client *client, hf_request *request) {
    const hf_sync *sync = &client->config.sync;
    return sync->replicas == 0 || hf_request_confirm(request, sync->replicas, sync->timeout);
}

/* ---- a single server ---- */

hf_node *hf_nodes_first(const hf_client *client, hf_slice key) {
    (void)key;
    return client->nodes[0];
}

size_t hf_nodes_one_group(const hf_client *client, hf_slice key) {
    (void)client, (void)key;
    return 0;
}

void hf_nodes_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                     hf_time now) {
    hf_session_submit(&client->topology->node_of(client, key)->links[link], request, now);
}

const hf_topology hf_single_topology = {
    .node_of = hf_nodes_first, .group_of = hf_nodes_one_group, .submit = hf_nodes_submit};
