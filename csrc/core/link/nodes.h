/* A client's nodes, their links, and how a request reaches its key's node. The topologies have
 * their own files: shards.c, sentinel.c, cluster.c. */
#ifndef HF_NODES_H
#define HF_NODES_H

#include "interfaces.h"

/* Initialises the client's first node. */
void hf_nodes_begin(hf_client *client, const hf_server *server);

/* Fails all requests and frees the nodes. */
void hf_nodes_free(hf_client *client);

/* Appends a node to client->nodes, which owns it. Returns NULL when out of memory, or if there are
 * already HF_NODES_MAX nodes. */
hf_node *hf_client_add_node(hf_client *client, const hf_server *server);

/* If one of the node's links was given up as silent, makes its links for calls and events
 * doubtful. */
void hf_node_report_silence(hf_node *node, hf_time now);

/* Sends the request over this link of the key's node, or of any node if the key is empty. */
void hf_client_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                      hf_time now);

/* Functions that topologies share: the first node serves every key; all keys are in one group; a
 * request is sent to its key's node. */
hf_node *hf_nodes_first(const hf_client *client, hf_slice key);
size_t hf_nodes_one_group(const hf_client *client, hf_slice key);
void hf_nodes_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                     hf_time now);

/* Makes the encoded request wait until config.sync.replicas replicas confirm it. Returns false when
 * out of memory. */
bool hf_client_sync(const hf_client *client, hf_request *request);

#endif
