/* A node's events link, which carries our grants and Redisson's releases while an operation waits.
 *
 * The link is open while an operation or a kept lock needs it, and for a moment after an operation
 * got its lock. A PING detects a server that has vanished without closing the connection. */
#ifndef HF_EVENTS_H
#define HF_EVENTS_H

#include "interfaces.h"

/* Prepares a new node's events link. */
void hf_events_prepare(hf_node *node);
void hf_events_tick(hf_node *node, hf_time now);
hf_time hf_events_deadline(const hf_node *node);

/* Returns whether this node has sharded channels for Redisson's releases, as far as is known. */
bool hf_node_has_sharded_channels(const hf_node *node);

/* Counts one more user of the node's events link if `listen`, otherwise one less. With `linger`, a
 * link without users remains open for a moment. */
void hf_node_listen(hf_node *node, bool listen, bool linger, hf_time now);

/* Does the same for an operation. */
void hf_client_listen(hf_op *op, bool listen, hf_time now);

/* Also subscribes an operation that uses the events link to Redisson's releases. */
void hf_client_listen_to_releases(hf_op *op, hf_time now);

/* Moves the operation, and its use of the events link, to this node, which now has its key. */
void hf_op_move(hf_op *op, hf_node *node, hf_time now);

#endif
