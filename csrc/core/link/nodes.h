/* A client's nodes: its servers, the links to each, and how a request gets to the node of its key.
 * The topologies have their own files: shards.c, sentinel.c, cluster.c. */
#ifndef HF_NODES_H
#define HF_NODES_H

#include "interfaces.h"

/* Makes the client's first node. */
void hf_nodes_begin(hf_client *client, const hf_server *server);

/* Ends all requests and frees the nodes. */
void hf_nodes_free(hf_client *client);

/* Adds a node at the end of client->nodes. Returns NULL when out of memory, or when there are
 * HF_NODES_MAX. */
hf_node *hf_client_add_node(hf_client *client, const hf_server *server);

/* Tells the links of calls and of events that another link of the node was silent, if one was. */
void hf_node_tell_calls(hf_node *node, hf_time now);

/* Sends the request over this link of the key's node; without a key, of any node. */
void hf_client_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                      hf_time now);

/* Functions for topologies: the node of every key is the first one; all keys are in one group; a
 * request goes to the node of its key. */
hf_node *hf_nodes_first(const hf_client *client, hf_slice key);
size_t hf_nodes_one_group(const hf_client *client, hf_slice key);
void hf_nodes_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request,
                     hf_time now);

/* Makes the encoded request wait for the number of replicas in the configuration. Returns false
 * when out of memory. */
bool hf_client_sync(const hf_client *client, hf_request *request);

#endif
