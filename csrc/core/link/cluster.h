/* A client of a Redis Cluster: to which node a command goes, and how it follows a key that moves.
 *
 * The client knows only the map of the cluster: the node that serves each slot. It requests the map
 * from one node after the other, the configuration's first: before the first command is sent, and
 * again after a redirect, a lost node or CLUSTERDOWN, at most ten times a second. A redirected
 * command has not been run; it is sent to the named node at once. Commands without a node wait,
 * within their deadlines. */
#ifndef HF_CLUSTER_H
#define HF_CLUSTER_H

#include "classes.h"

extern const hf_topology hf_cluster_topology;

#endif
