/* A client of a Redis Cluster: which node a command goes to, and what to do when it is not there.
 *
 * The map, which node serves each slot, is all that is known of the cluster; it is asked of one node after the other,
 * the configuration's first. It is read before the first command goes out, and again when a command was redirected, a
 * node was lost or the cluster was down: at most ten times a second. A redirected command has not been carried out; it
 * goes where the node said, at once. Commands that cannot go anywhere yet wait, within their deadlines. */
#ifndef HF_CLUSTER_H
#define HF_CLUSTER_H

#include "client.h"
#include "slots.h"

/* Adds a node for each of the configuration's servers. False when out of memory. */
bool hf_cluster_open(hf_client *client);

/* Before the client's nodes are freed: fails what waits. Does not free the cluster. */
void hf_cluster_close(hf_cluster *cluster);

/* Of a new node: from here on it tells of refusals and lost connections. */
void hf_cluster_watch(hf_node *node);

/* The node that serves the key; the first one while nobody is known to. */
hf_node *hf_cluster_node(const hf_cluster *cluster, hf_slice key);

/* Whether Redisson uses sharded channels here: the server has them. */
bool hf_cluster_is_sharded(const hf_cluster *cluster);

/* Sends the request to the key's node; without a key to any. An operation's moves there. */
void hf_cluster_submit(hf_cluster *cluster, hf_slice key, hf_link link, hf_request *request, hf_time now);

/* The node's link was lost: the map may have changed. */
void hf_cluster_doubt(hf_node *node, hf_link link, hf_time now);

hf_time hf_cluster_deadline(const hf_cluster *cluster);
void hf_cluster_tick(hf_cluster *cluster, hf_time now);

#endif
