/* The events link of a node: the channel of our grants, and Redisson's releases, while an operation
 * waits.
 *
 * It is open while an operation needs it, and stays open for a moment after one that got its lock.
 * A PING notices a server that is gone without closing the connection. */
#ifndef HF_EVENTS_H
#define HF_EVENTS_H

#include "interfaces.h"

/* Prepares a new node's link. */
void hf_events_open(hf_node *node);
void hf_events_tick(hf_node *node, hf_time now);
hf_time hf_events_deadline(const hf_node *node);

/* Returns whether Redisson's releases are published on sharded channels there, as far as the node
 * has said. */
bool hf_node_is_sharded(const hf_node *node);

/* Something needs the node's events link, or does not need it any more. With `again` a link that
 * nothing needs stays open for a moment. */
void hf_node_listen(hf_node *node, bool listen, bool again, hf_time now);

/* The operation needs the events link, or does not need it any more. */
void hf_client_listen(hf_op *op, bool listen, hf_time now);
void hf_client_listen_foreign(hf_op *op, hf_time now);

/* The operation's key is on this node now; the operation listens there. */
void hf_op_move(hf_op *op, hf_node *node, hf_time now);

#endif
