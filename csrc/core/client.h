/* Clients and operations as the core's own files see them; drivers include holdfast.h.
 *
 * A client has one or several nodes. A node is a server with three links. All commands for a key go
 * to one node (hf_client_node). */
#ifndef HF_CLIENT_H
#define HF_CLIENT_H

#include "holdfast.h"
#include "link/ring.h"
#include "link/session.h"
#include "lock/ended.h"
#include "lock/holds.h"
#include "lock/names.h"
#include "lock/wire.h"
#include "op/observe.h"

typedef struct hf_sentinels hf_sentinels;

/* What the client publishes about itself: see op/presence.h. */
typedef struct hf_presence {
    char who[HF_WHO_SIZE]; /* the string passed to hf_client_introduce; "" to publish nothing */
    hf_time check_at;      /* when to check what to publish; HF_NEVER until an operation begins */
    hf_time publish_at;    /* when to publish `who` again; 0 if it is not published yet */
    size_t goodbyes;       /* requests under way that were sent after the client was closed */
} hf_presence;

typedef struct hf_walk hf_walk;
typedef struct hf_lookout hf_lookout;
typedef struct hf_kept hf_kept;
typedef struct hf_quorum hf_quorum;
typedef struct hf_round hf_round;
typedef struct hf_cluster hf_cluster;
typedef struct hf_op_impl hf_op_impl;
typedef struct hf_topology hf_topology;
typedef struct hf_decider hf_decider;

/* A server and its links. The struct does not move in memory. */
typedef struct hf_node {
    hf_client *client;
    hf_server server;
    hf_session links[HF_LINKS];
    size_t events_users;  /* the number of operations and kept locks that need the events link */
    bool subscribed;      /* the server has confirmed the subscription to `client->grants` */
    bool pattern_denied;  /* the user may not subscribe to Redisson's releases */
    hf_time linger_until; /* the events link remains open until this time even if unused */
    hf_time ping_at;      /* when to send a PING over a silent events link, or HF_NEVER */

    /* When the server fell silent on a link that was given up. HF_NEVER if there is no such link,
     * or once the links for calls and events have been notified of it. */
    hf_time silent_since;

    bool may_have_keys; /* false for a Sentinel, or if a cluster's map does not contain it */
    char id[HF_NODE_ID_SIZE + 1]; /* in a cluster: its id in the map; or "" */
} hf_node;

#define HF_PLACE_SIZE 32 /* the size of a queue place as the server writes it, with the NUL */

struct hf_client {
    hf_client_config config;
    char uuid[HF_UUID_SIZE + 1];
    char grants[HF_UUID_SIZE + 16]; /* the channel on which this client receives its grants */
    const hf_topology *topology;
    const hf_decider *decider;
    void (*prepare_node)(hf_node *node); /* prepares a new node's events link */
    hf_node first;
    hf_node **nodes; /* all nodes; points to `inline_nodes` until a second node is added */
    size_t node_count;
    hf_node *inline_nodes[1];
    hf_cluster *cluster;     /* the cluster's map, owned; or NULL */
    hf_ring ring;            /* the ring of HF_MODE_SHARDS, otherwise empty */
    hf_sentinels *sentinels; /* the Sentinels that locate the first node, owned; or NULL */
    hf_holds holds;
    hf_number_table kept;  /* kept locks, keyed by a hash of kind and key */
    hf_op *ops, **ops_end; /* the operations, oldest first */
    hf_number_table waits; /* operations that messages can name, keyed by hf_op_wait.number */
    hf_ended_waits ended;  /* queued waits that ended recently */
    uint64_t last_op;      /* the number of the last operation */

    /* How many consecutive batches of renewals were refused although the server then accepted their
     * keys one by one: see op/renew.c. */
    uint64_t splits;
    bool split_suspected;  /* a batch was refused: a split if one of its keys is then accepted */
    hf_time next_batch_at; /* no batch is sent before this time, after too many splits */
    uint64_t approval_requests; /* how often a hold, or a member's, has asked for approval */
    uint64_t random;            /* the state of hf_jitter */
    size_t unanswered; /* requests that await a reply although their operations have ended */
    size_t detached;   /* the number of detached operations, which the client itself ends */
    hf_stats stats;
    hf_presence presence;
    hf_observer observer;
    bool closed;

    /* The quorum of HF_MODE_QUORUM, owned; or NULL. A client with a quorum has no links of its own:
     * the members have them. */
    hf_quorum *quorum;

    bool is_member;           /* it is the client of one server of a quorum */
    hf_client *quorum_client; /* with `is_member`: the quorum's client */
};

/* Initialises a client. `entropy` is 24 bytes from the system's random source. Returns false when
 * out of memory; the caller must call hf_client_free in either case. */
bool hf_client_init(hf_client *client, const hf_client_config *config,
                    const unsigned char entropy[24]);

/* Frees what the client owns, but not the struct. All operations must have ended. */
void hf_client_free(hf_client *client);

/* Returns the node believed to have the key; never NULL. */
hf_node *hf_client_node(const hf_client *client, hf_slice key);

/* Marks the hold lost for this reason, and counts the loss. */
void hf_client_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason);

/* Returns the reason for which a claim's hold is lost when its validity ends. */
hf_lost_reason hf_lost_reason_at_end(const hf_claim *claim);

/* ---- operations ---- */

/* The states of an acquire; op/operation.c defines the transitions. Operations that poll use some
 * of these states; all others remain BEGUN. An operation that is done remains in its last state. */
typedef enum hf_acquire_state {
    HF_ACQUIRE_BEGUN,
    HF_ACQUIRE_BLOCKED,          /* waiting until an earlier command or call for its hold is done */
    HF_ACQUIRE_AWAITING_RELEASE, /* waiting until the caller's own earlier release is done */
    HF_ACQUIRE_ASKING,           /* the program has been sent, with or without a queue member */
    HF_ACQUIRE_SUBSCRIBING,      /* waiting for the subscription to the client's channel */
    HF_ACQUIRE_WAITING,          /* queued, or waiting for a message on a channel */
    HF_ACQUIRE_CANCELLING,       /* leaving the queue */
    HF_ACQUIRE_QUEUED_LOCALLY,   /* in this client's own queue for a kept lock: see op/kept.h */
    HF_ACQUIRE_STATES
} hf_acquire_state;

/* Whether an operation is subscribed to the channel of its lock's releases. */
typedef enum hf_subscription_state {
    HF_SUBSCRIPTION_NONE,
    HF_SUBSCRIPTION_REQUESTED, /* this or another operation has sent the subscription */
    HF_SUBSCRIPTION_CONFIRMED  /* the server has confirmed it; not used for patterns */
} hf_subscription_state;

/* The fields of operations that wait for a time or a message. */
typedef struct hf_op_wait {
    hf_time until;             /* when the wait ends; HF_NEVER for no limit */
    hf_time recheck_at;        /* when to ask the server again even without a message */
    uint64_t number;           /* the number by which grants name this wait */
    hf_number_entry by_number; /* the wait's entry in client->waits */
    hf_names *channels;        /* its own channels (for `uses_list` or a watch), or NULL */
    hf_subscription_state
        listening;     /* the subscription to releases by clients that are not in the queue */
    hf_time turn_end;  /* until this time it leaves free permits to other clients; or 0 */
    bool needs_events; /* it needs the events link and is counted in node->events_users */
    bool accepted; /* the server has let it wait and subscribe; a later permission error does not
                      end it */
    bool cut_off;  /* HF_EVENT_CUT_OFF was added: its server is unreachable or refuses it */
    bool woken; /* a message arrived while a command was under way, which may have run too early to
                   see the change */
    bool interrupted; /* hf_op_interrupt was called */
} hf_op_wait;

/* A grant that arrived before the reply to the command that queued the waiter. */
typedef struct hf_early_grant {
    char place[HF_PLACE_SIZE]; /* the queue place that it names; "" if there is no early grant */
    hf_time received_at;
    hf_time lease;              /* the granted lease */
    uint64_t token, last_token; /* as in hf_message */
} hf_early_grant;

/* The fields of an acquire on one server. */
typedef struct hf_op_acquire {
    char *waiter; /* the waiter's queue member, owned */
    size_t waiter_size;
    char place[HF_PLACE_SIZE];  /* its queue place, from the last reply, or "" */
    hf_time placed_at;          /* when the command that got that reply was sent */
    hf_early_grant early_grant; /* ASKING: the last grant that arrived before the reply */
    hf_time busy_until; /* the end of the holder's lease, from the last reply; 0 if unknown */

    /* If the holder will not announce its release: when this acquire first saw that holder, and the
     * end that the holder's lease had then. */
    hf_time silent_since, silent_holder_end;

    /* The lock is being left to polling clients. If one of them acquires it, it will not announce
     * its release. */
    bool is_pollers_turn;

    hf_time listen_at;  /* when to subscribe to Redisson's releases, or HF_NEVER */
    hf_time checked_at; /* when it last asked the server about a grant */
    hf_kept *kept; /* the kept lock in whose local queue it is, or for which it is about to ask the
                      server; or NULL */
    hf_op *next_for_kept;  /* QUEUED_LOCALLY: the next acquire in that lock's queue, or NULL */
    uint64_t last_token;   /* the last fencing token received with the lock */
    long long server_us;   /* the server's clock when the lock was acquired, in us; 0 if unknown */
    uint32_t holds_before; /* the server's count of the owner's holds before the command */
    uint32_t recounts; /* how many times it asked again because another process changed the count */
    hf_code end_code;  /* CANCELLING: the code with which it will fail */
    long long waiters_when_refused; /* how many were ahead when max_waiters ended its wait, or 0 */
    bool queued;                    /* it may be in the server's queue */
    bool admitted;    /* it has been queued; max_waiters and denied permissions no longer end it */
    bool handed_over; /* it got the lock by a grant */
} hf_op_acquire;

/* The fields of a call on a hold. */
typedef struct hf_op_call {
    hf_time previous_valid_until; /* extend: the hold's end before the operation */
    uint32_t pending_releases;    /* release: how many of the hold's pending releases it includes */
    bool also_renews;             /* check: it also renews the hold */
} hf_op_call;

/* The fields of acquire_all and release_all. */
typedef struct hf_op_batch {
    hf_hold **holds;  /* spec.batch_count holds, referenced; NULL until they are chosen */
    bool was_blocked; /* it has waited for an earlier command for one of its holds */
} hf_op_batch;

/* The fields of an operation on a plain semaphore. */
typedef struct hf_op_semaphore {
    bool answered;  /* the reply to the command under way has arrived */
    bool in_doubt;  /* a command was sent more than once, so a copy may still run */
    bool ends_turn; /* Redisson's clients have released a permit during their turn, so it ends */
} hf_op_semaphore;

/* What is published about the operation's wait: see op/presence.h. */
typedef struct hf_op_presence {
    hf_time publish_at; /* when to publish it next; 0 if the operation is not waiting */
    bool published;
} hf_op_presence;

/* The operation's search for a deadlock: see op/deadlock.h. */
typedef struct hf_op_deadlock {
    hf_time waited_at_check; /* how long it had waited at its last check, or 0 */
    hf_walk *walk;           /* the check under way, or NULL */
    char *cycle; /* describes the cycle in which it is the youngest waiter, owned; or NULL */
} hf_op_deadlock;

/* How the operation finds out whether the holder's process has crashed: see op/crash.h. */
typedef struct hf_op_crash {
    hf_time next_at;     /* when it checks next; 0 before the first check */
    hf_lookout *lookout; /* what it knows about the holder, or NULL */
} hf_op_crash;

/* Results for the caller, owned by the operation until hf_op_take_result. */
typedef struct hf_op_result {
    long long value; /* as in hf_result */
    char *record;    /* acquire of a guard: the record of an earlier run, or NULL */
    size_t record_size;
    hf_reply *reply;    /* command, fenced, once: the reply, or NULL */
    hf_lock_info *info; /* info, watch: the result, or NULL */
    bool taken;         /* the caller has taken the result */
} hf_op_result;

struct hf_op {
    hf_op *next, **link; /* the next operation in client->ops, and the pointer to this one */
    hf_client *client;
    const hf_op_impl *impl;
    hf_node *node;   /* the node believed to have its key */
    hf_round *round; /* the round of a quorum's operation, or NULL */
    hf_op_spec spec;
    uint64_t number; /* greater than those of earlier operations of the client */
    hf_time begun_at;
    hf_acquire_state state; /* changed only by hf_op_become */
    bool done;
    bool reported; /* hf_client_next_done has returned it */
    bool detached; /* no caller is waiting for it, so the client ends it */
    bool blocked;  /* it is waiting until no command is in flight for `awaited_claim` or its hold */
    hf_hold *hold; /* the hold that it acquires or uses, referenced; or NULL */
    hf_claim *awaited_claim; /* the claim whose command it must wait for, referenced; or NULL */
    hf_request request;
    hf_names *owned_names; /* detached: the names to which its spec points, owned */
    char *owned_caller;    /* detached: the caller to which its spec points, owned */
    hf_fault failure;      /* code HF_OK unless it has failed */
    hf_op_result result;
    hf_op_wait wait;
    union {                        /* the kind of the operation decides which one is used */
        hf_op_acquire acquire;     /* acquire */
        hf_op_call call;           /* release, complete, extend, check */
        hf_op_batch batch;         /* acquire_all, release_all */
        hf_op_semaphore semaphore; /* take, drain, give */
    };
    hf_op_presence presence;
    hf_op_deadlock deadlock;
    hf_op_crash crash;
};

/* Returns the names of the operation's lock, or of the first of several, or NULL without a lock. */
static inline const hf_names *hf_op_names(const hf_op *op) {
    if (op->spec.names) return op->spec.names;
    return op->spec.batch_count > 0 ? op->spec.batch[0] : NULL;
}

#endif
