/* The interfaces of operations, topologies and deciders. Lower files call higher ones only through
 * these; registry.c is the one file that names all of them. */
#ifndef HF_INTERFACES_H
#define HF_INTERFACES_H

#include "client.h"

/* An operation that may wait in a lock's queue. The functions are called only for operations that
 * are not done. */
typedef struct hf_wait_functions {
    bool (*waits)(const hf_op *op); /* whether a message may change what it does next */
    void (*on_subscribed)(hf_op *op, hf_time now);
    /* NULL: no message names it, as its wait has no number. */
    void (*on_grant)(hf_op *op, const hf_message *grant, hf_time now);
    void (*on_window)(hf_op *op, hf_time window, hf_time now);
    void (*on_recheck)(hf_op *op, hf_time delay, hf_time now); /* it asks again after `delay` */
    /* A message on the channel of releases; NULL: whatever it says, it asks again. */
    void (*on_announced)(hf_op *op, hf_slice message, hf_time now);
    void (*on_denied)(hf_op *op, hf_code code, const char *reason, hf_time now);
} hf_wait_functions;

/* An operation that sends a command until that has done what it is for: see op/poll.h. */
typedef struct hf_poll_functions {
    bool (*encode)(hf_op *op); /* the command; false: out of memory */
    bool (*is_done)(hf_op *op, const hf_reply *reply,
                    hf_time now);           /* reads its reply; may fail the operation */
    void (*fail_in_time)(hf_op *op);        /* the time is over */
    void (*on_end)(hf_op *op, hf_time now); /* however it ends; NULL: there is nothing to do */
} hf_poll_functions;

struct hf_op_impl {
    const char *verb;       /* for messages: "cannot <verb> <key>" */
    bool acquires;          /* its failures are counted by code */
    bool releases;          /* it ends a hold of the caller */
    bool on_hold;           /* it needs a hold of the caller, and fails without one */
    bool sets_lease;        /* on a hold: the hold gets the lease of the spec */
    bool leaves_record;     /* releases: it ends the hold with all its entries, and leaves a
                               record of the run */
    const char *one_server; /* why a quorum refuses it; NULL: it does not */
    bool stays;             /* what the server has carried out is not undone */
    bool apart;             /* it is no matter of a quorum, and is one of its first member */
    bool lingers;           /* what it may have left on the server is settled behind its end */
    const hf_wait_functions *wait; /* NULL: it never waits in a queue */
    const hf_poll_functions *poll; /* NULL: it does not wait by polling */
    void (*begin)(hf_op *op, hf_time now);
    void (*unblock)(hf_op *op, hf_time now); /* the command that blocked it is done */
    void (*answer)(hf_op *op, const hf_reply *reply, hf_time now); /* see hf_op_on_answer */
    /* Both NULL: it waits only until a hold is not in flight any more, as long as a command may
     * take. An operation on several holds may wait for one after the other. */
    hf_time (*deadline)(const hf_op *op);
    void (*tick)(hf_op *op, hf_time now);
    void (*interrupt)(hf_op *op, hf_time now); /* NULL: it never waits */
    void (*abandon)(hf_op *op, hf_time now);   /* undoes what it may have left on the server; NULL:
                                                  its command is dropped */
    void (*end)(hf_op *op, hf_time now);       /* frees its own memory; NULL: it has none */
};

/* By hf_op_kind. */
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
    bool listed;      /* the servers are config.servers, with the first node; else session.server */
    bool moves_slots; /* keys move between nodes slot by slot: the keys of a program are in one
                         slot, and while it moves the server runs only programs with one key */
    bool places_by_key; /* a lock's names are on the node of its key, whatever their own text; a
                           group is the node's index */
    bool shares_login;  /* all nodes have the users of session.server, nodes to come too */
    bool (*open)(hf_client *client);  /* false: out of memory */
    void (*close)(hf_client *client); /* before the nodes are freed */
    void (*free)(hf_client *client);  /* after that */
    void (*watch)(hf_node *node);     /* a new node */
    hf_node *(*node_of)(const hf_client *client, hf_slice key);
    size_t (*group_of)(const hf_client *client,
                       hf_slice key); /* keys of one group can be used in one program */
    void (*submit)(hf_client *client, hf_slice key, hf_link link, hf_request *request, hf_time now);
    void (*invalidate)(hf_node *node, hf_link link, hf_time now); /* the node's link was lost */
    hf_time (*deadline)(const hf_client *client, hf_link half);
    void (*tick)(hf_client *client, hf_link half,
                 hf_time now); /* half: HF_LINK_CALLS or HF_LINK_RENEWER */
};

/* One server that does not move; several with a ring, Sentinels, or a cluster. By hf_mode. */
extern const hf_topology hf_single, hf_shards, hf_sentinel_topology, hf_cluster_topology;
extern const hf_topology *const hf_topologies[HF_MODES];

/* What decides about a lock: the server where its key is, or a majority of several servers. The
 * functions of client.h with these names are for all clients, these for one decider. */
struct hf_decider {
    const hf_op_impl *op; /* of all its operations; NULL: hf_op_impls */
    bool everywhere;      /* each key is on every server */
    bool early;           /* an operation may be done before all its replies have come */
    bool (*open)(hf_client *client);
    void (*close)(hf_client *client, hf_time now);
    void (*free)(hf_client *client);
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
    void (*on_link)(void *node, const hf_session *session, bool open); /* NULL: it has no nodes */
    void (*on_answer)(void *node, const hf_request *request, hf_time now); /* as on_link */
    void (*on_delay)(void *node, const hf_request *request, hf_code code, const char *reason,
                     hf_time now);                       /* as on_link */
    void (*move)(hf_op *op, hf_node *node, hf_time now); /* the key has moved; as on_link */
    void (*add_stats)(const hf_client *client,
                      hf_stats *stats); /* NULL: there are only the client's */
    uint64_t (*approvals_asked)(const hf_client *client);
    hf_client *(*holder)(hf_client *client, size_t index); /* a client with its holds; or NULL */
};

/* By hf_mode. */
extern const hf_decider hf_alone, hf_majority;
extern const hf_decider *const hf_deciders[HF_MODES];

#endif
