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
hf_time hf_events_next_tick(const hf_node *node);

/* Returns whether this node has sharded channels for Redisson's releases, as far as is known. */
bool hf_node_has_sharded_channels(const hf_node *node);

/* Adds a user of the node's events link if `listen` is true, otherwise removes one. With `linger`,
 * a link whose last user is removed remains open for a moment. */
void hf_node_change_listeners(hf_node *node, bool listen, bool linger, hf_time now);

/* Adds the operation as a user of its node's events link, or removes it. */
void hf_op_set_listening(hf_op *op, bool listen, hf_time now);

/* Subscribes an operation that uses the events link to Redisson's releases, too. */
void hf_op_listen_to_releases(hf_op *op, hf_time now);

/* Moves the operation and its use of the events link to this node, which now serves its key. */
void hf_op_move(hf_op *op, hf_node *node, hf_time now);

#endif
