/* The interfaces of operations, topologies and deciders. Lower layers call higher ones only through
 * these; only registry.c names all implementations. */
#ifndef HF_INTERFACES_H
#define HF_INTERFACES_H

#include "client.h"

/* For operations that wait for messages about their locks. link/cluster.c calls `is_waiting`.
 * op/events.c calls the others, only for operations that are not done and need the events link. */
typedef struct hf_wait_functions {
    /* Returns whether a message may change what the operation does next. */
    bool (*is_waiting)(const hf_op *op);

    /* Called when the server has confirmed the subscription to the client's own channel. */
    void (*on_subscribed)(hf_op *op, hf_time now);

    /* Called when this wait is granted the lock. NULL if no message can name the wait, because it
     * has no number. */
    void (*on_grant)(hf_op *op, const hf_message *grant, hf_time now);

    /* Called when a release leaves the lock to Redisson's waiters for `window`, up to 1 s. */
    void (*on_window)(hf_op *op, hf_time window, hf_time now);

    /* Called when the operation must ask the server again after `delay`. */
    void (*on_recheck)(hf_op *op, hf_time delay, hf_time now);

    /* Called for a message on the lock's release channel. If NULL, on_recheck is called instead,
     * without a delay. */
    void (*on_release_message)(hf_op *op, hf_slice message, hf_time now);

    /* Called when the server refuses a subscription that the operation needs. */
    void (*on_denied)(hf_op *op, hf_code code, const char *reason, hf_time now);
} hf_wait_functions;

/* For operations that resend a command until it has succeeded: see op/poll.h. */
typedef struct hf_poll_functions {
    /* Encodes the command into op->request. Returns false when out of memory. */
    bool (*encode)(hf_op *op);

    /* Reads the reply. Returns true if the wait has succeeded. May fail the operation instead. */
    bool (*read_reply)(hf_op *op, const hf_reply *reply, hf_time now);

    /* Fails the operation when its wait times out. */
    void (*on_timeout)(hf_op *op);

    /* Called when the operation is done, whatever the result. May be NULL. */
    void (*on_end)(hf_op *op, hf_time now);

    /* The operation accompanies another operation's wait. It is not counted in the statistics and
     * reports no events to observers, and it does not poll more often if it cannot subscribe to its
     * channel. */
    bool accompanies_wait;
} hf_poll_functions;

/* Implements one kind of operation. A function may be NULL only if its comment says so. */
struct hf_op_impl {
    const char *verb; /* completes "cannot <verb> <key>" in messages */
    bool acquires;    /* it acquires a lock; its failures are counted by code */
    bool releases;    /* it ends the caller's hold */
    bool needs_hold;  /* it uses the caller's hold, and fails without one */
    bool sets_lease;  /* with needs_hold and HF_NUMBER_LEASE: the hold gets the spec's lease */

    /* With `releases`: it ends the hold with all its entries, and leaves a record of the run. */
    bool leaves_record;

    /* Why a quorum refuses it, or NULL. A quorum also refuses every operation with
     * HF_RETURNS_REPLY. */
    const char *quorum_refusal;

    /* Its effect on the server is not undone when it is stopped. The message then says that the
     * call may have taken effect. */
    bool effect_remains;

    /* It uses no lock and sends nothing. In a quorum only the first member runs it. */
    bool local_only;

    /* It may leave something on the server that the client cleans up later, in the background. Only
     * kinds with call notes have such operations. */
    bool settles_later;

    const hf_wait_functions *wait; /* NULL if it never waits for a message */
    const hf_poll_functions *poll; /* NULL if it does not poll */

    /* Begins the operation, which may already be done when this returns. */
    void (*begin)(hf_op *op, hf_time now);

    /* Called when the command that blocked the operation is done. NULL if it is never blocked. */
    void (*unblock)(hf_op *op, hf_time now);

    /* Called by hf_op_on_reply. NULL if the operation does not use that function. */
    void (*on_reply)(hf_op *op, const hf_reply *reply, hf_time now);

    /* `next_tick` returns when `tick` has something to do. Both or neither are NULL. Without them,
     * the only time limit is command_timeout, for the total time that the operation may be blocked
     * by other commands on its holds. */
    hf_time (*next_tick)(const hf_op *op);
    void (*tick)(hf_op *op, hf_time now);

    /* Implements hf_op_interrupt. NULL if it never waits. */
    void (*interrupt)(hf_op *op, hf_time now);

    /* Undoes what the operation, which has just failed, may have left on the server. If NULL, its
     * command is dropped. */
    void (*abandon)(hf_op *op, hf_time now);

    /* Called at the operation's end: frees or cleans up whatever the operation's own fields in
     * hf_op refer to. May be NULL. */
    void (*end)(hf_op *op, hf_time now);
};

/* The implementations, indexed by hf_op_kind. */
extern const hf_op_impl *const hf_op_impls[];

#define HF_OP_DECLARE(NAME, name, ...) extern const hf_op_impl hf_##name##_impl;
HF_OP_LIST(HF_OP_DECLARE)
#undef HF_OP_DECLARE

/* Returns the implementation of the operation's kind. op->impl may instead be the decider's, which
 * is the same for all kinds. */
static inline const hf_op_impl *hf_op_impl_of(const hf_op *op) {
    return hf_op_impls[op->spec.kind];
}

/* Where keys are stored, and how requests get there. Only node_of, group_of and submit are
 * required. */
struct hf_topology {
    /* The client's first node is config.servers[0] instead of session.server. */
    bool has_server_list;

    /* Keys move between nodes slot by slot. All keys of a program must be in one slot; while that
     * slot moves, the server refuses a program unless it has all of the program's keys. */
    bool slots_can_move;

    /* All keys and channels of a lock are on the node of the lock's key, even if hashing their own
     * names would place them elsewhere. A key's group is the index of its node. */
    bool routes_by_key;

    /* All nodes, even those found later, have the same users as session.server. */
    bool shares_login;

    /* Prepares a new client. Returns false when out of memory. */
    bool (*open)(hf_client *client);

    void (*close)(hf_client *client);     /* called before the client's nodes are freed */
    void (*free)(hf_client *client);      /* called after the client's nodes are freed */
    void (*set_callbacks)(hf_node *node); /* for a new node's links */

    /* Returns the node believed to have the key. */
    hf_node *(*node_of)(const hf_client *client, hf_slice key);

    /* Implements hf_client_group. */
    size_t (*group_of)(const hf_client *client, hf_slice key);

    /* Sends the request over this link of the key's node. An empty key means any node. */
    void (*submit)(hf_client *client, hf_slice key, hf_link link, hf_request *request, hf_time now);

    /* Called when this link has been lost: what is known about the node may be outdated. */
    void (*invalidate)(hf_node *node, hf_link link, hf_time now);

    /* `next_tick` returns when `tick` has something to do. `caller_link` says which thread is
     * calling: HF_LINK_CALLS for a caller's, HF_LINK_RENEWER for the renewer's. */
    hf_time (*next_tick)(const hf_client *client, hf_link caller_link);
    void (*tick)(hf_client *client, hf_link caller_link, hf_time now);
};

/* One server at a fixed address, shards on a ring, a master behind Sentinels, and a cluster. */
extern const hf_topology hf_single_topology, hf_shards_topology, hf_sentinel_topology,
    hf_cluster_topology;

/* The topologies, indexed by hf_mode. */
extern const hf_topology *const hf_topologies[HF_MODES];

/* Decides the result of an operation: the key's server, or a majority of several servers. Functions
 * of this struct implement those of holdfast.h with the same names. */
struct hf_decider {
    const hf_op_impl *op_impl; /* the implementation of all operations; NULL for hf_op_impls */
    bool keys_on_every_server; /* every server has each key, and a majority decides */

    /* Prepares a new client. Returns false when out of memory. */
    bool (*open)(hf_client *client);
    void (*close)(hf_client *client, hf_time now);
    void (*free)(hf_client *client); /* may be NULL */

    size_t (*link_count)(const hf_client *client);
    hf_session *(*link)(const hf_client *client, size_t index);
    hf_time (*calls_next_tick)(const hf_client *client);
    hf_time (*renewer_next_tick)(const hf_client *client);
    void (*tick_calls)(hf_client *client, hf_time now);
    void (*tick_renewer)(hf_client *client, hf_time now);
    bool (*is_quiet)(const hf_client *client);
    void (*refresh)(hf_client *client, hf_hold *hold, hf_time now);
    void (*detect_losses)(hf_client *client, hf_time now);
    void (*approve)(hf_client *client, hf_hold *hold, hf_time now);
    void (*set_renewed)(hf_client *client, hf_hold *hold, bool renewed, hf_time now);
    void (*abandon)(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

    /* The next four are NULL if the client has no nodes of its own. `node` is an hf_node.
     * on_link: called when one of the node's links has been opened or closed.
     * on_reply: called when a request over one of the node's links has got its reply.
     * on_delay: called when a request cannot be served now, for `reason`, and will be sent again.
     * move: called when the operation's key has moved to this node. */
    void (*on_link)(void *node, const hf_session *session, bool open);
    void (*on_reply)(void *node, const hf_request *request, hf_time now);
    void (*on_delay)(void *node, const hf_request *request, hf_code code, const char *reason,
                     hf_time now);
    void (*move)(hf_op *op, hf_node *node, hf_time now);

    /* Adds the counters of a quorum's member clients. NULL if there are none. */
    void (*add_stats)(const hf_client *client, hf_stats *stats);

    /* Returns the client that holds this client's locks on the server with this index, from 0, or
     * NULL if the index is too large. */
    hf_client *(*client_at)(hf_client *client, size_t index);
};

/* The key's server, and a majority of several servers. */
extern const hf_decider hf_single_decider, hf_majority_decider;

/* The deciders, indexed by hf_mode. */
extern const hf_decider *const hf_deciders[HF_MODES];

#endif
