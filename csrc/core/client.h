/* A client and an operation as the core's own files see them: holdfast.h is for drivers.
 *
 * A client has one or several nodes, each a server with three links. All commands for a key go to
 * one node (hf_client_node). */
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
    char who[HF_WHO_SIZE]; /* the text of hf_client_introduce; "": the client publishes nothing */
    hf_time check_at; /* when to check what to publish; HF_NEVER: not before an operation begins */
    hf_time publish_at; /* when to publish `who` again; 0: it is not published yet */
    size_t goodbyes;    /* requests under way that the client has sent since it was closed */
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

/* A server and the links to it. The struct does not move in memory while the client lives. */
typedef struct hf_node {
    hf_client *client;
    hf_server server;
    hf_session links[HF_LINKS];
    size_t waiting;       /* how many operations and kept locks need the events link */
    bool subscribed;      /* the server has confirmed the subscription to `client->grants` */
    bool pattern_denied;  /* the user may not subscribe to Redisson's releases */
    hf_time linger_until; /* until when the events link stays open although nothing needs it */
    hf_time ping_at;      /* when an events link that is silent gets a PING, or HF_NEVER */

    /* A link was given up on which the server had been silent since then, and the links for calls
     * and events do not know yet. Otherwise HF_NEVER. */
    hf_time silent_since;

    bool serves; /* it may have keys: it is no Sentinel, and in a cluster the map names it */
    char id[HF_NODE_ID_SIZE + 1]; /* in a cluster: its id in the map; "": the map gives none */
} hf_node;

#define HF_NODES_MAX 1024

#define HF_PLACE_SIZE 32 /* bytes of a place in a queue as the server writes it, with the NUL */

struct hf_client {
    hf_client_config config;
    char uuid[HF_UUID_SIZE + 1];
    char grants[HF_UUID_SIZE + 16]; /* the channel over which this client gets its grants */
    const hf_topology *topology;
    const hf_decider *decider;
    void (*on_node)(hf_node *node); /* makes a new node ready for events */
    hf_node first;
    hf_node **nodes;         /* all nodes; `only` as long as there is no other than `first` */
    size_t node_count;       /* of `nodes` */
    hf_node *only[1];        /* &first */
    hf_cluster *cluster;     /* the map of a cluster, owned; or NULL */
    hf_ring ring;            /* the ring of HF_MODE_SHARDS; else empty */
    hf_sentinels *sentinels; /* the Sentinels that the first node follows, owned; or NULL */
    hf_holds holds;
    hf_numbers kept;       /* the locks that the client keeps, by a hash of kind and key */
    hf_op *ops, **ops_end; /* the operations, in the order in which they began */
    hf_numbers waits;      /* the operations that messages can name, by hf_op_wait.number */
    hf_ended ended;        /* waits that were in a queue and have ended lately */
    uint64_t last_op;      /* the number of the last operation */

    /* How many batches of renewals in a row were refused although the server accepted their keys
     * one by one. See op/renew.c. */
    uint64_t splits;
    bool split_open;        /* a batch was refused; it counts as a split when a key is accepted */
    hf_time batch_again_at; /* after too many splits, the next batch is not sent before this time */

    uint64_t approvals_asked; /* how often a hold began to need its owner's approval */
    uint64_t random;          /* the state of the random numbers */
    size_t unanswered;        /* requests without a reply whose operations have ended */
    size_t detached;          /* operations that the client ends itself */
    hf_stats stats;
    hf_presence presence;
    hf_observer observer;
    bool closed;
    hf_quorum *quorum;        /* the members of HF_MODE_QUORUM, owned: such a client has no links of
                                 its own; or NULL */
    bool is_member;           /* it is the client of one server of a quorum */
    hf_client *quorum_client; /* with `is_member`: the quorum's client */
};

/* Makes a client. `entropy` is 24 bytes from the system's random source. Returns false when out of
 * memory. The caller calls hf_client_free in either case. */
bool hf_client_init(hf_client *client, const hf_client_config *config,
                    const unsigned char entropy[24]);

/* Frees the client. All operations must have ended. */
void hf_client_free(hf_client *client);

/* Returns the key's node, as far as it is known; never NULL. */
hf_node *hf_client_node(const hf_client *client, hf_slice key);

/* Marks the hold lost for this reason, and counts the loss. */
void hf_client_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason);

/* Returns the reason for which a hold is lost whose time is over. */
hf_lost_reason hf_lost_reason_at_end(const hf_hold *hold);

/* ---- operations ---- */

/* The states of an acquire; op/operation.c has the steps between them. Operations that poll use
 * some of the states, and all others remain BEGUN. */
typedef enum hf_acquire_state {
    HF_ACQUIRE_BEGUN,
    HF_ACQUIRE_BLOCKED,     /* waits until an earlier command or call for its hold is done */
    HF_ACQUIRE_FOLLOWING,   /* waits until the caller's own release, sent before, is done */
    HF_ACQUIRE_ASKING,      /* the program is under way, with or without a text for the queue */
    HF_ACQUIRE_SUBSCRIBING, /* waits for the subscription to the client's channel */
    HF_ACQUIRE_WAITING,     /* is in the queue, or waits for a message on a channel */
    HF_ACQUIRE_CANCELLING,  /* leaves the queue */
    HF_ACQUIRE_QUEUED,      /* waits in this client until it gets the kept lock or may ask for it */
    HF_ACQUIRE_DONE,
    HF_ACQUIRE_STATES
} hf_acquire_state;

/* Whether an operation is subscribed to the channel of its lock's releases. */
typedef enum hf_listening {
    HF_LISTENING_NOT,
    HF_LISTENING_ASKED,    /* it, or another operation, has sent the subscription */
    HF_LISTENING_CONFIRMED /* the server has confirmed a channel that it may also refuse, such as a
                              sharded one */
} hf_listening;

/* The part of operations that wait until a time or for a message. */
typedef struct hf_op_wait {
    hf_time until;          /* when the wait ends; HF_NEVER: it has no limit */
    hf_time recheck_at;     /* when it asks again without a message */
    uint64_t number;        /* by which grants name this wait */
    hf_number by_number;    /* its entry in client->waits */
    hf_names channels;      /* its own channels, for a listed kind or a watch; empty: none yet */
    hf_listening listening; /* to the releases of clients that are not in the queue */
    hf_time turn_ends;      /* until when what is free is left to others; 0: it is not */
    bool needs_events;      /* it needs the events link, and is counted in node->waiting */
    bool accepted;    /* the server has let it wait and listen: no missing right ends it now */
    bool cut_off;     /* its server is away or refuses it, and the event of that was added */
    bool woken;       /* a message came that the command under way may not have seen */
    bool interrupted; /* hf_op_interrupt was called */
} hf_op_wait;

/* A grant that overtook the reply to the command that entered its place in the queue. */
typedef struct hf_early_grant {
    char place[HF_PLACE_SIZE]; /* the place that it names; "": there is no such grant */
    hf_time received_at;
    hf_time lease;              /* the lease that the grant gives */
    uint64_t token, last_token; /* as in hf_message */
} hf_early_grant;

/* The part of an acquire, on one server. */
typedef struct hf_op_acquire {
    char *waiter;              /* the waiter's text in the queue, owned */
    size_t waiter_size;        /* of `waiter`, in bytes */
    char place[HF_PLACE_SIZE]; /* its place in the queue, from the last reply; "": none */
    hf_time placed_at;         /* when the command of that reply was sent */
    hf_early_grant early;      /* ASKING: the last grant that came in the meantime */
    hf_time busy_until;        /* the end of the holder's lease, from the last reply; 0: unknown */

    /* A holder that will not announce its release: when it was first seen, and the end of its lease
     * then. */
    hf_time silent_since, silent_until;

    bool turn_of_pollers; /* the lock is being left to clients that poll: the next holder may be
                             one, which does not announce its release */
    hf_time listen_at;    /* when it subscribes to Redisson's releases, or HF_NEVER */
    hf_time doubted_at;   /* when it last asked the server because it doubted a grant */
    hf_hold *behind;  /* the caller's previous hold with a detached release, referenced; or NULL */
    hf_kept *kept;    /* the kept lock for which it is QUEUED, or about to ask; or NULL */
    hf_op *next_kept; /* QUEUED: the next acquire in that lock's queue, or NULL */
    uint64_t last_token;   /* the last of the tokens that came with the lock */
    long long server_us;   /* the server's clock when it gave the lock, in us; 0: not known */
    uint32_t from;         /* the owner's count of holds on the server before the command */
    uint32_t joins;        /* how often it asked again because another process changed that count */
    hf_code ended;         /* CANCELLING: the code with which it will fail */
    long long shed_behind; /* how many were waiting when max_waiters ended it; 0: not ended so */
    bool queued;           /* the server may have it in its queue */
    bool let_in;           /* it has a place in a queue: max_waiters and rights do not end it now */
    bool handed_over;      /* it got the lock by a grant */
} hf_op_acquire;

/* The part of a call on a hold. */
typedef struct hf_op_call {
    hf_time believed_until;    /* extend: the hold's end before the operation */
    uint32_t pending_releases; /* release: how many pending releases of the hold it sends, too */
    bool confirms;             /* check: it also renews the hold */
} hf_op_call;

/* The part of the _ALL kinds. */
typedef struct hf_op_batch {
    hf_hold **holds; /* spec.batch_count holds, referenced; NULL before they are chosen */
    bool waited;     /* it has been blocked */
} hf_op_batch;

/* The part of an operation on a plain semaphore, whose calls leave notes. */
typedef struct hf_op_noted {
    bool answered;     /* the reply to the command under way has come */
    bool in_doubt;     /* a command was sent more than once, so a copy of it may still be run */
    bool result_taken; /* the caller has the result */
    bool turn_used;    /* others have released since the last turn that was left to them */
} hf_op_noted;

/* What is published about the operation's wait: see op/presence.h. */
typedef struct hf_op_presence {
    hf_time publish_at; /* when it is published next; 0: the operation does not wait */
    bool published;
} hf_op_presence;

/* The operation's search for a deadlock: see op/deadlock.h. */
typedef struct hf_op_deadlock {
    hf_time walked_after; /* how long it had waited at its last check; 0: it has not checked */
    hf_walk *walk;        /* the check under way, or NULL */
    char *cycle; /* the cycle in which it is the youngest waiter, as text, owned; or NULL */
} hf_op_deadlock;

/* How the operation watches for a holder whose process has crashed: see op/crash.h. */
typedef struct hf_op_crash {
    hf_time next_at;     /* when it checks next; 0: it has not checked yet */
    hf_lookout *lookout; /* what it knows of the holder; NULL: nothing yet */
} hf_op_crash;

/* What the operation has read for its caller, and owns until hf_op_take_result. */
typedef struct hf_op_result {
    long long value;    /* as in hf_result */
    char *record;       /* acquire of a guard: the record of an earlier run, or NULL */
    size_t record_size; /* of `record`, in bytes */
    hf_reply *reply;    /* command, fenced, once: the reply, or NULL */
    hf_lock_info *info; /* info, watch: what was read, or NULL */
} hf_op_result;

struct hf_op {
    hf_op *next, **link; /* the next one in client->ops, and the pointer to this one there */
    hf_client *client;
    const hf_op_impl *impl;
    hf_node *node;   /* the node of its key, as far as it is known */
    hf_round *round; /* the round of a quorum's operation, or NULL */
    hf_op_spec spec;
    uint64_t number; /* greater than those of earlier operations of the client */
    hf_time begun_at;
    hf_acquire_state state; /* changed only by hf_op_become */
    bool done;
    bool reported; /* hf_client_next_done has returned it */
    bool detached; /* no caller waits for it: the client ends it */
    bool blocked;  /* it waits for a command in flight for its hold */
    hf_hold *hold; /* the hold that it is about, referenced; or NULL */
    hf_request request;
    hf_names own_names; /* detached: the names to which its spec points */
    char *own_caller;   /* detached: the caller to which its spec points, owned */
    hf_failure failure; /* code HF_OK while it has not failed */
    hf_op_result result;
    hf_op_wait wait;
    hf_op_acquire acquire;
    hf_op_call call;
    hf_op_batch batch;
    hf_op_noted noted;
    hf_op_presence presence;
    hf_op_deadlock deadlock;
    hf_op_crash crash;
};

/* Returns the names of the operation's lock, or of the first of several; NULL: it has no lock. */
static inline const hf_names *hf_op_names(const hf_op *op) {
    if (op->spec.names) return op->spec.names;
    return op->spec.batch_count > 0 ? op->spec.batch[0] : NULL;
}

#endif
