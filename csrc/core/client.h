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

/* What the client publishes about itself; presence.h. */
typedef struct hf_presence {
    char who[HF_WHO_SIZE]; /* "": it publishes nothing */
    hf_time check_at; /* when to check what to publish; HF_NEVER: not before an operation begins */
    hf_time publish_at; /* when to publish `who` again; 0: not published yet */
    size_t goodbyes;    /* requests under way since it was closed */
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
    size_t waiting;       /* operations that need the events link */
    bool subscribed;      /* the server has confirmed our channel */
    bool pattern_denied;  /* the user may not subscribe to Redisson's releases */
    hf_time linger_until; /* until when the events link stays open without a waiter */
    hf_time ping_at;      /* when a silent events link gets a PING */
    hf_time silent_since; /* since when a link that was given up was silent, or HF_NEVER once the
                             node's other links are in doubt */
    bool serves;          /* it may have keys: no Sentinel, and in a cluster a node of the map */
    char id[HF_NODE_ID_SIZE + 1]; /* in a cluster: by the map; "": it gives none */
} hf_node;

#define HF_NODES_MAX 1024

#define HF_PLACE_SIZE 32 /* of a place in a queue, as the server writes it */

struct hf_client {
    hf_client_config config;
    char uuid[HF_UUID_SIZE + 1];
    char grants[HF_UUID_SIZE + 16]; /* the channel of our grants */
    const hf_topology *topology;
    const hf_decider *decider;
    void (*on_node)(hf_node *node); /* makes a new node ready for events */
    hf_node first;
    hf_node **nodes; /* &first while there is no other */
    size_t node_count;
    hf_node *only[1];
    hf_cluster *cluster;     /* NULL: it is none */
    hf_ring ring;            /* SHARDS; else empty */
    hf_sentinels *sentinels; /* NULL: the first node does not move */
    hf_holds holds;
    hf_numbers kept;       /* by a hash of kind and key */
    hf_op *ops, **ops_end; /* in the order in which they began */
    hf_numbers waits;      /* their waits, by the number in messages */
    hf_ended ended;        /* waits that were in a queue */
    uint64_t last_op;
    uint64_t splits; /* in a row: refused batches of renewals whose keys were accepted one by one */
    bool split_open; /* the last refused batch may be one of these */
    hf_time batch_again_at;   /* after too many of these, a batch is tried again */
    uint64_t approvals_asked; /* how often a hold began to need its owner's approval */
    uint64_t random;
    size_t unanswered; /* requests whose operations have ended before the reply */
    size_t detached;   /* operations that end themselves */
    hf_stats stats;
    hf_presence presence;
    hf_observer observer;
    bool closed;
    hf_quorum *quorum;        /* QUORUM: its members; the client has no links of its own */
    bool is_member;           /* of a quorum */
    hf_client *quorum_client; /* member: the quorum's client */
};

/* Makes a client. `entropy`: 24 bytes from the system's random source. Returns false when out of
 * memory; call hf_client_free in either case. */
bool hf_client_init(hf_client *client, const hf_client_config *config,
                    const unsigned char entropy[24]);

/* Frees the client. All operations must have ended. */
void hf_client_free(hf_client *client);

/* Returns the key's node, as far as it is known. */
hf_node *hf_client_node(const hf_client *client, hf_slice key);

/* Marks the hold lost and counts it. */
void hf_client_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason);

/* Returns the reason of the loss of a hold whose time is over. */
hf_lost_reason hf_lost_reason_at_end(const hf_hold *hold);

/* ---- operations ---- */

typedef enum hf_acquire_state {
    HF_ACQUIRE_BEGUN,
    HF_ACQUIRE_BLOCKED,   /* until an earlier command or call for this hold is done */
    HF_ACQUIRE_FOLLOWING, /* until the caller's own release, which was sent before, is done */
    HF_ACQUIRE_ASKING,    /* the program is under way, with or without a text for the queue */
    HF_ACQUIRE_SUBSCRIBING,
    HF_ACQUIRE_WAITING, /* in the queue, or for a message on a channel */
    HF_ACQUIRE_CANCELLING,
    HF_ACQUIRE_QUEUED, /* in this client, until it may have the kept lock or ask for it */
    HF_ACQUIRE_DONE,
    HF_ACQUIRE_STATES
} hf_acquire_state;

/* Whether an operation listens to the channel of its lock's releases. */
typedef enum hf_listening {
    HF_LISTENING_NOT,
    HF_LISTENING_ASKED,    /* it has subscribed, or another operation has */
    HF_LISTENING_CONFIRMED /* …and the server has confirmed a channel that it may also refuse */
} hf_listening;

/* Of operations that wait for a time or a message. */
typedef struct hf_op_wait {
    hf_time until;
    hf_time recheck_at;
    uint64_t number;        /* of this wait, in grants */
    hf_number by_number;    /* in the client's waits */
    hf_names channels;      /* waiter of a listed kind: its own; no block: not made yet */
    hf_listening listening; /* to releases of clients without a queue */
    hf_time turn_ends;      /* until when what is free is left to others; 0: it is not */
    bool events;            /* counted in node->waiting */
    bool accepted;          /* the server has let it wait and listen: no missing right ends it */
    bool cut_off;           /* its server is away or refuses it, and that was told */
    bool woken;             /* a message came that the command under way may not have seen */
    bool interrupted;
} hf_op_wait;

/* A grant that overtook the reply to the command that entered its place in the queue. */
typedef struct hf_early_grant {
    char place[HF_PLACE_SIZE]; /* empty: none */
    hf_time received_at, lease;
    uint64_t token, last_token;
} hf_early_grant;

/* Of an acquire, on one server. */
typedef struct hf_op_acquire {
    char *waiter; /* our text in the queue */
    size_t waiter_size;
    char place[HF_PLACE_SIZE]; /* in the queue, from the last reply; empty: none */
    hf_time placed_at;         /* when the command of that reply was sent */
    hf_early_grant early;      /* ASKING: the last grant that came meanwhile */
    hf_time busy_until;        /* the end of the holder's lease, from it; 0: not known */
    hf_time silent_since,
        silent_until;     /* a holder that announces nothing: when it was first seen, its end */
    bool turn_of_pollers; /* its next holder does not announce its release */
    hf_time listen_at;    /* when to listen to Redisson's releases */
    hf_time doubted_at;   /* when it last asked because a grant came */
    hf_hold *behind;  /* the caller's previous hold, with a detached release; referenced; or NULL */
    hf_kept *kept;    /* QUEUED, or about to ask for a lock to be kept; else NULL */
    hf_op *next_kept; /* QUEUED: the one behind it */
    uint64_t last_token;
    long long server_us; /* the server's clock at its yes; 0: not given */
    uint32_t from;       /* the owner's count before it */
    uint32_t joins;
    hf_code ended;         /* the code after cancelling */
    long long shed_behind; /* how many waited when it was shed; 0: it was not */
    bool queued;           /* the server may have us in its queue */
    bool let_in;           /* it has a place in a queue, and is not shed or denied any more */
    bool handed_over;      /* it came by a grant */
} hf_op_acquire;

/* Of a call on a hold. */
typedef struct hf_op_call {
    hf_time believed_until;    /* extend: the hold's end before the operation */
    uint32_t pending_releases; /* release: those of the hold that it also releases */
    bool confirms;             /* check: it also renews the hold */
} hf_op_call;

/* Of the _ALL kinds. */
typedef struct hf_op_batch {
    hf_hold **holds; /* spec.batch_count holds, referenced; NULL before they are chosen */
    bool waited;     /* has been blocked */
} hf_op_batch;

/* Of a call to a plain semaphore. */
typedef struct hf_op_noted {
    bool answered;     /* the reply to the command under way has come */
    bool in_doubt;     /* …a command was sent again, so a copy of it may still be run */
    bool result_taken; /* the caller has it */
    bool turn_used;    /* others have released since the last turn that was left to them */
} hf_op_noted;

/* What is published about its wait: presence.h. */
typedef struct hf_op_presence {
    hf_time publish_at; /* 0: it does not wait */
    bool published;
} hf_op_presence;

/* Its search for a deadlock: deadlock.h. */
typedef struct hf_op_deadlock {
    hf_time walked_after; /* how long it had waited at its last check; 0: none yet */
    hf_walk *walk;        /* the check under way; NULL: none */
    char *cycle;          /* that it is in; NULL: none */
} hf_op_deadlock;

/* How it watches for a holder whose process has crashed: crash.h. */
typedef struct hf_op_crash {
    hf_time next_at;     /* when it checks next; 0: it has not checked yet */
    hf_lookout *lookout; /* NULL: none yet */
} hf_op_crash;

/* What it has read for its caller. It belongs to the operation. */
typedef struct hf_op_result {
    long long value; /* force: was locked; ttl: PTTL's result */
    char *record;    /* acquire of a guard: the record of an earlier run; NULL: none */
    size_t record_size;
    hf_reply *reply;    /* command */
    hf_lock_info *info; /* info; NULL: nothing */
} hf_op_result;

struct hf_op {
    hf_op *next, **link; /* `link`: the pointer to this operation in the list */
    hf_client *client;
    const hf_op_impl *impl;
    hf_node *node;   /* of its key */
    hf_round *round; /* of a quorum's operation */
    hf_op_spec spec;
    uint64_t number; /* unique for the client, growing */
    hf_time begun_at;
    hf_acquire_state state; /* see hf_op_become; of other operations BEGUN */
    bool done;
    bool reported; /* for the driver: it has seen that the operation is done */
    bool detached; /* no caller waits for it: the client ends it */
    bool blocked;  /* waits for a command that the renewer has in flight */
    hf_hold *hold; /* referenced while the operation lives; NULL: none */
    hf_request request;
    hf_names own_names; /* detached: what it points to */
    char *own_caller;
    hf_failure failure; /* code HF_OK on success */
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

/* Returns the names of the operation's lock, of several the first; NULL: it has none. */
static inline const hf_names *hf_op_names(const hf_op *op) {
    if (op->spec.names) return op->spec.names;
    return op->spec.batch_count > 0 ? op->spec.batch[0] : NULL;
}

#endif
