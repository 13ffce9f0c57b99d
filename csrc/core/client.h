/* Everything one client decides: its connections, its holds, its operations under way.
 *
 * A client has one node or several, each a server with three links; what belongs to one key happens on one node, the
 * key's (hf_client_node). The driver gives it bytes and times and does what it wants; the client never reads a clock, a
 * socket or a random source. After any call that may change something the driver looks again at hf_session_wants and
 * hf_session_output of each link, and at hf_client_deadline.
 *
 * Operations live from hf_client_begin to hf_op_end; what they point to (names, owner) must live as long. */
#ifndef HF_CLIENT_H
#define HF_CLIENT_H

#include "holds.h"
#include "names.h"
#include "ring.h"
#include "session.h"

typedef enum hf_link {
    HF_LINK_CALLS,  /* the callers' commands */
    HF_LINK_EVENTS, /* grants and releases, while somebody waits */
    HF_LINK_KEEPER, /* renewals and what was left behind; unused when config.keeper is HF_LINK_CALLS */
    HF_LINKS
} hf_link;

/* Replicas of a server that are to have what makes a lock ours before it counts. */
typedef struct hf_sync {
    uint32_t replicas; /* 0: the server's word is enough */
    hf_time timeout;   /* under the session's command_timeout */
} hf_sync;

/* What several servers are to each other. */
typedef enum hf_mode {
    HF_MODE_ONE,      /* there is one server: session.server */
    HF_MODE_SENTINEL, /* there is one, which they know and session.server logs in to: sentinel.h */
    HF_MODE_QUORUM,   /* a majority decides: quorum.h */
    HF_MODE_SHARDS,   /* each has keys of its own: ring.h */
    HF_MODE_CLUSTER   /* they are some nodes of a Redis Cluster, which know the others: cluster.h */
} hf_mode;

#define HF_QUORUM_MAX 32  /* servers of a quorum, or Sentinels */
#define HF_SERVERS_MAX 64 /* of shards, or to ask for the others of a cluster */

typedef struct hf_sentinels hf_sentinels;

typedef struct hf_client_config {
    hf_session_config session;
    hf_mode mode;
    const hf_server *servers; /* of the other modes; they outlive the client */
    size_t server_count;
    const hf_shard *shards;   /* names and weights of the servers, of shards; they outlive the client */
    char master[HF_URL_HOST]; /* its name with the Sentinels */
    hf_sync sync;
    hf_time restart_guard; /* of a quorum: a server up for less has no vote; 0: every server has */
    hf_time grant_lease;   /* a granted lock is ours for so long before it is confirmed */
    hf_link keeper;        /* the link that renews */
    bool attended;         /* a hold is confirmed or renewed only after its owner's word, each time anew */
} hf_client_config;

typedef struct hf_stats {
    uint64_t acquires, reentries, releases, waits, grants, rechecks, renewals, renew_batches, late_renewals, losses,
        undone, redirects;
} hf_stats;

typedef struct hf_op hf_op;
typedef struct hf_client hf_client;
typedef struct hf_quorum hf_quorum;
typedef struct hf_ballot hf_ballot;
typedef struct hf_cluster hf_cluster;

/* A server and the links to it. It stays where it is while the client lives. */
typedef struct hf_node {
    hf_client *client;
    hf_server server;
    hf_session links[HF_LINKS];
    size_t waiting;       /* operations that need the events link */
    bool subscribed;      /* the server has confirmed our channel */
    hf_time linger_until; /* the events link stays open so long without a waiter */
    hf_time ping_at;      /* when a silent events link is asked for a sign of life */
    bool serves;          /* of a cluster: the map has it */
} hf_node;

#define HF_NODES_MAX 1024

#define HF_OWNER_MAX 255 /* bytes */

struct hf_client {
    hf_client_config config;
    char uuid[HF_UUID_SIZE + 1];
    char grants[HF_UUID_SIZE + 16]; /* the channel of our grants */
    hf_node first;
    hf_node **nodes; /* &first, while there is no other */
    size_t node_count;
    hf_node *only[1];
    hf_cluster *cluster;     /* NULL: it is none */
    hf_ring ring;            /* of shards; empty: they are none */
    hf_sentinels *sentinels; /* NULL: the first node does not move */
    hf_holds holds;
    hf_op *ops, **ops_end; /* in the order they began */
    uint64_t last_wait, last_op;
    uint64_t asked; /* how often a hold began to ask for its owner's word */
    uint64_t random;
    hf_stats stats;
    bool closed;
    hf_quorum *quorum; /* of a client in this mode; it has no links of its own */
    bool is_member;    /* of a quorum */
};

/* `entropy`: 24 bytes from the system's random source. False when out of memory; it is to be freed all the same. */
bool hf_client_init(hf_client *client, const hf_client_config *config, const unsigned char entropy[24]);

/* All operations must have ended. */
void hf_client_free(hf_client *client);

/* NULL when out of memory, or with HF_NODES_MAX nodes. */
hf_node *hf_client_add_node(hf_client *client, const hf_server *server);

/* The node where this key lives, as far as is known. */
hf_node *hf_client_node(const hf_client *client, hf_slice key);

/* Keys with the same place can be used in one program: the key's slot in a cluster, else its node. */
size_t hf_client_place(const hf_client *client, hf_slice key);

/* The links, those of a node together in the order of hf_link; their number may grow. */
size_t hf_client_link_count(const hf_client *client);
hf_session *hf_client_link(const hf_client *client, size_t index);

/* The next time at which hf_client_tick has something to do. */
hf_time hf_client_deadline(const hf_client *client);
void hf_client_tick(hf_client *client, hf_time now);

/* Its two halves, for a driver with a thread for each; hf_op_deadline belongs to the first. */
hf_time hf_client_calls_deadline(const hf_client *client);
hf_time hf_client_keeper_deadline(const hf_client *client);
void hf_client_tick_calls(hf_client *client, hf_time now);
void hf_client_tick_keeper(hf_client *client, hf_time now);

/* Marks the holds whose time is over as lost, without doing anything else. */
void hf_client_notice(hf_client *client, hf_time now);

/* Brings the end of a held hold up to date, marks it lost if it has ended. */
void hf_client_look_at(hf_client *client, hf_hold *hold, hf_time now);

/* Marks the hold lost and counts it. */
void hf_client_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason);

/* Why a hold whose time is over ended. */
hf_lost_reason hf_lost_reason_at_end(const hf_hold *hold);

/* Lets go of everything in the background: fails the operations under way with HF_CLOSED, leaves every hold.
 * The driver goes on until hf_client_is_quiet, or as long as it likes. */
void hf_client_close(hf_client *client, hf_time now);
bool hf_client_is_quiet(const hf_client *client);

/* The owner's word for a hold that asks for it: one renewal or confirmation may go out. */
void hf_client_allow(hf_client *client, hf_hold *hold, hf_time now);

/* Grows when a hold begins to ask for its owner's word. */
uint64_t hf_client_asked(const hf_client *client);

hf_stats hf_client_stats(const hf_client *client);

/* A handle with `count` of the hold's holds is gone without a release. */
void hf_client_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* ---- operations ---- */

#define HF_ALL_MAX 1024

typedef enum hf_op_kind {
    HF_OP_ACQUIRE,
    HF_OP_RELEASE,
    HF_OP_COMPLETE, /* a guard's release that leaves a record */
    HF_OP_EXTEND,
    HF_OP_CHECK,
    HF_OP_FORCE,
    HF_OP_INFO,
    HF_OP_TTL,
    HF_OP_PING,
    HF_OP_COMMAND,
    HF_OP_RAISE,       /* lifts the fencing counter to token_floor */
    HF_OP_ACQUIRE_ALL, /* one attempt at several locks, all or none */
    HF_OP_RELEASE_ALL
} hf_op_kind;

typedef enum hf_acquire_state {
    HF_ACQUIRE_BLOCKED, /* until a command of the keeper for this hold has landed */
    HF_ACQUIRE_ASKING,  /* the program is under way, with our place in the queue or without */
    HF_ACQUIRE_SUBSCRIBING,
    HF_ACQUIRE_WAITING, /* in the queue: for the grant, a nudge, the next look or the end of the wait */
    HF_ACQUIRE_LEAVING,
    HF_ACQUIRE_DONE
} hf_acquire_state;

typedef struct hf_op_spec {
    hf_op_kind kind;
    hf_layout layout;
    const hf_names *names; /* NULL: HF_OP_PING, HF_OP_COMMAND */
    hf_slice owner;
    hf_time lease;              /* acquire, extend */
    hf_time wait;               /* acquire; 0: one attempt, HF_NEVER: no end */
    uint64_t token_ttl_ms;      /* acquire; 0: no fencing */
    uint64_t token_floor;       /* acquire: the token is at least this */
    bool renewed;               /* acquire: the watchdog keeps it */
    bool shared;                /* acquire: other processes may use this owner */
    hf_hold *lost;              /* release, complete, extend, check: the caller's own hold, lost and replaced in the
                                   table by one of another handle: the operation is about it, and touches neither */
    bool lost_told;             /* …and a release has told so */
    const hf_names *const *all; /* of the _ALL kinds instead of names, no key twice */
    size_t all_count;           /* at most HF_ALL_MAX */
    hf_slice print;             /* of a guard: the request's fingerprint */
    hf_slice result;            /* complete */
    hf_time keep;               /* complete: how long the record stays; 0: free the key */
    const hf_slice *args;       /* command: one that may be sent twice, and does not touch a lock */
    size_t arg_count;
    size_t node; /* command: for this node, counted from 1; 0: for that of its key, the first argument if any */
} hf_op_spec;

struct hf_op {
    hf_op *next;
    hf_client *client;
    hf_node *node;     /* where its key lives */
    hf_ballot *ballot; /* of a quorum's operation */
    hf_op_spec spec;
    uint64_t number; /* unique for the client, growing */
    bool done;
    bool told;          /* the driver has seen that it is done; its own note */
    bool blocked;       /* waits for a command that the keeper has in flight */
    hf_failure failure; /* code HF_OK on success */
    hf_hold *hold;      /* referenced while the operation lives; NULL: none */
    hf_hold **holds;    /* of the _ALL kinds: all_count of them, referenced; NULL before they are chosen */
    hf_request request;
    hf_time begun_at;
    uint32_t owed;          /* release: what it takes along of the hold's */
    hf_time believed_until; /* extend: the hold's end before it was asked for */
    long long value;        /* force: was locked; ttl: PTTL's result */
    char *record;           /* acquire of a guard: what a run before left; NULL: nothing */
    size_t record_size;
    hf_reply *reply; /* command: belongs to the operation */
    struct {
        char owner[HF_OWNER_MAX + 1];
        size_t owner_size; /* 0: free; a longer owner is cut */
        long long holds, ttl_ms, waiters, ahead;
        uint64_t token;
    } info;
    /* acquire */
    hf_acquire_state state;
    hf_time wait_until, recheck_at;
    hf_time known_waiting_at; /* sending time of the last look that found us not granted */
    char *waiter;             /* our place in the queue */
    size_t waiter_size;
    uint64_t wait;
    uint32_t from;
    uint64_t token;
    long long server_us; /* the server's clock when it said yes; 0: not told */
    long long busy_ms;
    uint32_t joins;
    uint32_t dropped; /* holds of collected handles, to be let go of when this re-entry is over */
    bool queued;      /* the server may have us in its queue */
    bool stood;       /* a look has put or found us there: grants may be made */
    bool displaced;   /* our place was lost since: a grant that is heard may be one that was missed */
    bool nudged;      /* something was heard that the look under way may not know of */
    bool foreign;     /* listens for Redisson's releases */
    bool interrupted;
    bool events;   /* counted in client->waiting */
    hf_code ended; /* the code after leaving */
};

/* NULL when out of memory. It may be done at once. */
hf_op *hf_client_begin(hf_client *client, const hf_op_spec *spec, hf_time now);

/* When the operation itself has something to do; its commands have the deadlines of their links. */
hf_time hf_op_deadline(const hf_op *op);

/* Ends an acquire that waits, with HF_INTERRUPTED: soon, as an answer under way is given a moment. One that just got
 * the lock keeps it. */
void hf_op_interrupt(hf_op *op, hf_time now);

/* Ends an operation that is not done with HF_INTERRUPTED: what it may have left on the server is undone. */
void hf_op_give_up(hf_op *op, hf_time now);

/* Frees the operation. One that is not done is given up: what it may have left on the server is undone. */
void hf_op_end(hf_op *op, hf_time now);

#endif
