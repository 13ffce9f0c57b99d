/* The interfaces of operations, topologies and deciders. Lower files call higher ones only through
 * these; registry.c is the one file that names all of them. */
#ifndef HF_INTERFACES_H
#define HF_INTERFACES_H

#include "client.h"

/* An operation that waits for messages about its lock. op/events.c calls these functions, only for
 * operations that are not done and need the events link. */
typedef struct hf_wait_functions {
    /* Returns whether a message may change what the operation does next. */
    bool (*waits)(const hf_op *op);

    /* The server has confirmed the subscription to the client's own channel. */
    void (*on_subscribed)(hf_op *op, hf_time now);

    /* The lock was granted to this wait. NULL: no message names the wait, because it has no
     * number. */
    void (*on_grant)(hf_op *op, const hf_message *grant, hf_time now);

    /* A release leaves the lock to Redisson's waiters for `window`, at most a second. */
    void (*on_window)(hf_op *op, hf_time window, hf_time now);

    /* The operation must ask the server again after `delay`. */
    void (*on_recheck)(hf_op *op, hf_time delay, hf_time now);

    /* A message came over the channel of releases. NULL: on_recheck is called without a delay,
     * whatever the message says. */
    void (*on_announced)(hf_op *op, hf_slice message, hf_time now);

    /* The server refuses a subscription that the operation needs. */
    void (*on_denied)(hf_op *op, hf_code code, const char *reason, hf_time now);
} hf_wait_functions;

/* An operation that sends a command again and again until it has done what it is for: see
 * op/poll.h. */
typedef struct hf_poll_functions {
    /* Encodes the command into op->request. Returns false when out of memory. */
    bool (*encode)(hf_op *op);

    /* Reads the reply. Returns whether the operation has succeeded; it may also fail it. */
    bool (*is_done)(hf_op *op, const hf_reply *reply, hf_time now);

    /* Fails the operation because its time is over. */
    void (*fail_in_time)(hf_op *op);

    /* The operation is done, with whatever result. May be NULL. */
    void (*on_end)(hf_op *op, hf_time now);

    /* It accompanies another operation's wait: counters and events leave it out, and it polls no
     * more often if its channel cannot be subscribed to. */
    bool aside;
} hf_poll_functions;

/* What differs between operations. A function that is not said to be optional must be set. */
struct hf_op_impl {
    const char *verb; /* completes "cannot <verb> <key>" in messages */
    bool acquires;    /* it acquires a lock; its failures are counted by code */
    bool releases;    /* it ends a hold of the caller */
    bool needs_hold;  /* it is about a hold of the caller, and fails if there is none */
    bool sets_lease;  /* with needs_hold and HF_NUMBER_LEASE: the hold gets the spec's lease */

    /* With `releases`: it ends the hold with all its entries, and leaves a record of the run. */
    bool leaves_record;

    const char *quorum_refusal; /* why a quorum refuses it; NULL: a quorum runs it */

    /* What the server has carried out is not undone if the operation is stopped. Its message says
     * then that the call may have taken effect. */
    bool effect_remains;

    /* It touches no lock and sends nothing. In a quorum only the first member runs it. */
    bool local_only;

    /* It may leave something on the server that the client settles in the background after its end.
     * Only kinds with call notes have such operations. */
    bool settles_later;

    const hf_wait_functions *wait; /* NULL: it never waits for a message */
    const hf_poll_functions *poll; /* NULL: it does not wait by polling */

    /* Begins the operation, which may be done when this returns. */
    void (*begin)(hf_op *op, hf_time now);

    /* The command that blocked the operation is done. NULL: nothing ever blocks it. */
    void (*unblock)(hf_op *op, hf_time now);

    /* Reads the reply to the one command that hf_op_run has sent. NULL: it sends none that way. */
    void (*answer)(hf_op *op, const hf_reply *reply, hf_time now);

    /* `deadline` returns when `tick` has something to do. Both or neither are NULL. Without them
     * the operation has one limit: it waits for a hold's command in flight for at most the
     * command_timeout. An operation on several holds may wait for one after the other. */
    hf_time (*deadline)(const hf_op *op);
    void (*tick)(hf_op *op, hf_time now);

    /* A signal ends its wait: see hf_op_interrupt. NULL: it never waits. */
    void (*interrupt)(hf_op *op, hf_time now);

    /* Undoes what it may have left on the server. NULL: its command is dropped. */
    void (*abandon)(hf_op *op, hf_time now);

    /* Frees the memory of its own part of hf_op. NULL: that part owns none. */
    void (*end)(hf_op *op, hf_time now);
};

/* The implementations, indexed by hf_op_kind. */
extern const hf_op_impl *const hf_op_impls[];

#define HF_OP_DECLARE(NAME, name, ...) extern const hf_op_impl hf_##name##_impl;
HF_OP_LIST(HF_OP_DECLARE)
#undef HF_OP_DECLARE

/* Returns the implementation of what was requested: op->impl may be the decider's, one for all
 * requests. */
static inline const hf_op_impl *hf_op_asked_for(const hf_op *op) {
    return hf_op_impls[op->spec.kind];
}

/* Where keys are, and how a request gets there. Every function except node_of, group_of and submit
 * may be NULL. */
struct hf_topology {
    /* The client's first node is config.servers[0]. Otherwise it is session.server. */
    bool has_server_list;

    /* Keys move between nodes slot by slot. All keys of a program must be in one slot, and while
     * that slot moves the server runs only programs with one key. */
    bool moves_slots;

    /* All names of a lock are on the node of its key, whatever their own text. A key's group is the
     * index of that node. */
    bool places_by_key;

    /* All nodes have the users of session.server, also nodes that are found later. */
    bool shares_login;

    /* Prepares a new client. Returns false when out of memory. */
    bool (*open)(hf_client *client);

    void (*close)(hf_client *client); /* called before the client's nodes are freed */
    void (*free)(hf_client *client);  /* called after the client's nodes are freed */
    void (*watch)(hf_node *node);     /* sets the callbacks of a new node's links */

    /* Returns the node of the key, as far as it is known. */
    hf_node *(*node_of)(const hf_client *client, hf_slice key);

    /* Returns the key's group. Keys of one group can be used in one program. */
    size_t (*group_of)(const hf_client *client, hf_slice key);

    /* Sends the request over this link of the key's node. An empty key means any node. */
    void (*submit)(hf_client *client, hf_slice key, hf_link link, hf_request *request, hf_time now);

    /* This link of the node was lost, so what is known about the node may be old. */
    void (*invalidate)(hf_node *node, hf_link link, hf_time now);

    /* `deadline` returns when `tick` has something to do. `half` is HF_LINK_CALLS or
     * HF_LINK_RENEWER: the thread that calls. */
    hf_time (*deadline)(const hf_client *client, hf_link half);
    void (*tick)(hf_client *client, hf_link half, hf_time now);
};

/* One server that does not move; several with a ring; Sentinels; a cluster. */
extern const hf_topology hf_single, hf_shards, hf_sentinel_topology, hf_cluster_topology;

/* The topologies, indexed by hf_mode. */
extern const hf_topology *const hf_topologies[HF_MODES];

/* What decides about a lock: the server where its key is, or a majority of several servers. The
 * functions of holdfast.h with these names are for all clients, these for one decider. */
struct hf_decider {
    const hf_op_impl *op; /* implements all its operations; NULL: hf_op_impls do */
    bool on_every_server; /* each key is on every server, and a majority of them decides */
    bool decides_early;   /* an operation may be done before all its replies have come */

    /* Prepares a new client. Returns false when out of memory. */
    bool (*open)(hf_client *client);
    void (*close)(hf_client *client, hf_time now);
    void (*free)(hf_client *client); /* may be NULL */

    size_t (*link_count)(const hf_client *client);
    hf_session *(*link)(const hf_client *client, size_t index);
    hf_time (*calls_deadline)(const hf_client *client);
    hf_time (*renewer_deadline)(const hf_client *client);
    void (*tick_calls)(hf_client *client, hf_time now);
    void (*tick_renewer)(hf_client *client, hf_time now);
    bool (*is_quiet)(const hf_client *client);
    void (*refresh)(hf_client *client, hf_hold *hold, hf_time now);
    void (*notice)(hf_client *client, hf_time now);
    void (*approve)(hf_client *client, hf_hold *hold, hf_time now);
    void (*set_renewed)(hf_client *client, hf_hold *hold, bool renewed, hf_time now);
    void (*abandon)(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

    /* These four are NULL for a client that has no nodes of its own. A link was opened or closed; a
     * reply to the request has come; the request is delayed for this reason; the operation's key is
     * now on this node. */
    void (*on_link)(void *node, const hf_session *session, bool open);
    void (*on_answer)(void *node, const hf_request *request, hf_time now);
    void (*on_delay)(void *node, const hf_request *request, hf_code code, const char *reason,
                     hf_time now);
    void (*move)(hf_op *op, hf_node *node, hf_time now);

    /* Adds what other clients have counted for this one. NULL: there are no others. */
    void (*add_stats)(const hf_client *client, hf_stats *stats);

    uint64_t (*approvals_asked)(const hf_client *client);

    /* Returns the client that holds this client's locks on the server with this index, from 0, or
     * NULL if there is no such server. */
    hf_client *(*holder)(hf_client *client, size_t index);
};

/* One server decides; a majority does. */
extern const hf_decider hf_alone, hf_majority;

/* The deciders, indexed by hf_mode. */
extern const hf_decider *const hf_deciders[HF_MODES];

#endif
