/* The core for drivers and bindings. This is the only header of csrc/core that they include.
 *
 * A client manages locks on one or several servers. It does no I/O and has no clock: the driver
 * owns the sockets and passes the current time to each call. All times are in nanoseconds, from a
 * single monotonic clock.
 *
 * A client has links, each a connection to one server. For each link the driver does what
 * hf_session_wants returns, writes hf_session_output, passes what it reads to hf_session_feed, and
 * calls hf_session_closed when the socket is closed. It calls hf_client_tick at the time that
 * hf_client_next_tick returns. After any call that may have changed something, it checks the links
 * and that time again.
 *
 * An operation exists from hf_client_begin to hf_op_end. Everything its spec points to must remain
 * valid until then.
 *
 * Nothing here is thread-safe: a driver with several threads must protect each client with a
 * mutex. */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include "base/failure.h"
#include "base/reply.h"
#include "base/text.h"
#include "base/types.h"
#include "base/url.h"

typedef struct hf_client hf_client;
typedef struct hf_session hf_session;
typedef struct hf_op hf_op;
typedef struct hf_hold hf_hold;
typedef struct hf_kind hf_kind;
typedef struct hf_names hf_names;

/* ---- locks ---- */

#define HF_OWNER_MAX 255 /* the maximum size of an owner, in bytes */

/* What a program does to a lock on the server. */
typedef enum hf_verb {
    HF_VERB_ACQUIRE,
    HF_VERB_RELEASE,
    HF_VERB_COMPLETE,
    HF_VERB_LEAVE,
    HF_VERB_EXTEND,
    HF_VERB_RENEW,
    HF_VERB_FORCE,
    HF_VERB_INFO,
    HF_VERB_SET,
    HF_VERB_ACQUIRE_ALL,
    HF_VERB_RELEASE_ALL,
    HF_VERB_SET_COUNT,
    HF_VERB_COUNT_DOWN,
    HF_VERB_DELETE,
    HF_VERB_DRAIN,
    HF_VERBS,
    HF_VERB_NONE = HF_VERBS
} hf_verb;

/* A kind of lock; kind.c defines all of them. */
struct hf_kind {
    const char *name; /* the name that hf_kind_by_name looks up */
    char letter;      /* identifies the kind in queue members and grants */

    /* The owner may acquire the lock again while holding it. Otherwise its second acquire fails. */
    bool reentrant;

    /* Redisson publishes its releases of this kind and receives ours. Otherwise, clients that are
     * not in the queue must poll. */
    bool publishes_releases;

    /* An acquire sends a fingerprint of its request, which the server stores. A grant stores an
     * empty fingerprint, so the waiter must then send its acquire again. */
    bool has_fingerprint;

    bool has_permits; /* the lock consists of permits; an acquire takes one or more */
    bool many_owners; /* several owners may hold it at once; one release may grant it to several */
    bool uses_list;   /* waiters are in Redisson's list, each with its own channel */

    /* Keys in braces are refused, because they would share Redisson's names with the same key
     * without braces. */
    bool refuses_braced_key;

    const char *owner_suffix;   /* follows <uuid>:<number> in owners; or NULL */
    const char *channel_prefix; /* of the channel of releases; NULL for hf_prefix.releases */

    /* The channel's name has the key in braces even if the key itself contains braces. */
    bool wraps_key;

    bool may_be_kept;    /* a client may keep the lock for its callers after a release */
    bool has_short_form; /* the programs fill in omitted arguments */
    bool one_owner;      /* the lock has one owner at a time, which `info` returns */

    /* No program counts the subscribers of the channel of releases, so clients subscribe to the
     * channel itself. For other kinds they subscribe with a pattern, so that they are not
     * counted. */
    bool subscribes_to_channel_itself;

    /* Waiters also subscribe to hf_names.ours, so that the programs can count our waiters. */
    bool counts_our_subscribers;

    /* These locks have no holder. Each call leaves a note on the server, so that it counts only
     * once even if it is sent twice. */
    bool has_call_notes;

    const char *busy_text;                 /* completes the error message of a busy acquire */
    const hf_kind *read_half, *write_half; /* the other half of a read/write lock, or NULL */
    unsigned char programs[HF_VERBS];      /* only kind.c reads them */
};

/* All kinds, followed by NULL. */
extern const hf_kind *const hf_kinds[];

/* Returns the kind of lock with this name, or NULL. */
const hf_kind *hf_kind_by_name(const char *name);

/* The prefixes of keys and channels on the server. X(field of hf_prefixes, prefix) */
#define HF_PREFIXES(X)                                                                             \
    X(counter, "redisson_lock_token:")                                                             \
    X(queue, "holdfast_queue:")                                                                    \
    X(list, "redisson_lock_queue:") /* the queue of kinds with `uses_list` */                      \
    X(timeouts, "redisson_lock_timeout:")                                                          \
    X(releases, "redisson_lock__channel:") /* for kinds without `channel_prefix` */                \
    X(listening, "holdfast_listening:")                                                            \
    X(call, "holdfast_call:")                                                                      \
    X(fence, "holdfast_fence:")                                                                    \
    X(client, "holdfast_client:")                                                                  \
    X(wait, "holdfast_wait:")                                                                      \
    X(grant, "holdfast_grant:")

#define HF_PREFIX_FIELD(name, text) const char *name;
typedef struct hf_prefixes {
    HF_PREFIXES(HF_PREFIX_FIELD)
} hf_prefixes;
extern const hf_prefixes hf_prefix;

/* The keys and channels of one lock. The strings follow the struct in the same allocation. */
struct hf_names {
    hf_slice key;
    hf_slice counter; /* the fencing counter: redisson_lock_token:{key} */

    /* The queue: holdfast_queue:{key}, or holdfast_queue::key if the key contains a brace. For a
     * fair lock it is redisson_lock_queue:{key}. */
    hf_slice queue;

    /* For a semaphore, the leases of its permits: {key}:timeout. For a fair lock, the timeouts of
     * its waiters: redisson_lock_timeout:{key}. */
    hf_slice leases;

    hf_slice releases;  /* the channel of releases */
    hf_slice listening; /* holdfast_listening:{key}: used to count our SSUBSCRIBEs to `releases` */
    hf_slice ours; /* <releases>:holdfast: used to count our SUBSCRIBEs to `releases`; or empty */
};

/* Creates the names of a lock of this kind; a NULL kind means the default names. Returns NULL when
 * out of memory. The caller frees them with hf_names_delete. */
hf_names *hf_names_new(const hf_kind *kind, hf_slice key);

/* Fills memory of the caller's with the names; hf_names_size returns how many bytes they need. */
void hf_names_fill(hf_names *names, const hf_kind *kind, hf_slice key);
size_t hf_names_size(const hf_kind *kind, hf_slice key);

/* Creates the names that this client uses on its servers, where a few kinds have other names. */
hf_names *hf_client_names(const hf_client *client, const hf_kind *kind, hf_slice key);
void hf_names_delete(hf_names *names); /* NULL is allowed */

/* Returns the key of the lock whose queue has this name, as a slice of the name, or an empty slice
 * if this is not the name of a queue. */
hf_slice hf_names_key_of_queue(hf_slice name);

/* A waiter, read from a queue member or from a wait that its client has published. The slices point
 * into the text that was read. */
typedef struct hf_waiter {
    const hf_kind *kind;
    hf_slice waiter; /* "<client uuid>:<number>" */
    hf_slice owner;  /* member: the owner that will hold the lock if it is granted */
    hf_slice key;    /* published wait: the key for which it waits */
    uint64_t since;  /* published wait: when it began, in ms, by the server's clock */
} hf_waiter;

/* Read a queue member, or a published wait, into `waiter`. Return false if `text` is not one. */
bool hf_wire_read_waiter(hf_slice text, hf_waiter *waiter);
bool hf_wire_read_wait(hf_slice text, hf_waiter *waiter);

/* ---- holds ---- */

/* A hold is one caller's lock on one key, from the acquire until the caller has given the lock up.
 * It is found in the client's table by kind, key and caller. Once it has ended, it is no longer in
 * the table and remains in its last state. It is freed when its last reference is dropped. */

typedef enum hf_hold_state {
    HF_HOLD_ACQUIRING, /* the lock is requested, but not held yet */
    HF_HOLD_HELD,
    HF_HOLD_LOST,      /* lost for `reason`, until the owner releases or acquires again */
    HF_HOLD_RELEASING, /* the owner's release is under way */
    HF_HOLD_STATES
} hf_hold_state;

/* The reasons for a loss. X(name in the enum, name in Lua) */
#define HF_LOST_LIST(X)                                                                            \
    X(EXPIRED, expired)                                                                            \
    X(TAKEN, taken)                                                                                \
    X(DELETED, deleted)                                                                            \
    X(UNREACHABLE, unreachable)                                                                    \
    X(MAX_HOLD, max_hold) /* the hold reached spec.max_hold, so it was not renewed */

#define HF_LOST_ENTRY(NAME, name) HF_LOST_##NAME,
typedef enum hf_lost_reason {
    HF_LOST_NONE,
    HF_LOST_LIST(HF_LOST_ENTRY) HF_LOST_REASONS
} hf_lost_reason;
#undef HF_LOST_ENTRY

/* Returns the reason's name in Lua ("expired", "taken", …); NULL for HF_LOST_NONE. */
const char *hf_lost_reason_name(hf_lost_reason reason);

/* Returns the caller of the hold. The slice points into the hold. */
hf_slice hf_hold_caller(const hf_hold *hold);

/* Returns the owner under which the hold is stored on the server. The slice points into the hold;
 * for a quorum, into its first member hold. */
hf_slice hf_hold_owner(const hf_hold *hold);

/* A hold as drivers see it. */
typedef struct hf_hold_view {
    hf_hold_state state;
    hf_lost_reason reason; /* HF_LOST_NONE if it is not lost */
    bool held;             /* it is in the table, and HELD */
    bool over;             /* it is lost, or has left the table */
    bool in_table;         /* hf_client_find can find it */
    bool detached;         /* its release is or was detached */
    bool ending;           /* a detached release is under way, and may still discover a loss */
    bool renewed;          /* the watchdog renews it */
    hf_time valid_until;   /* it is held only before this time */
    uint32_t count;        /* the server's count of its owner's holds */
    uint64_t token;        /* the fencing token, or 0 */
} hf_hold_view;

/* Returns the current state of the hold. */
hf_hold_view hf_view_of(const hf_hold *hold);

/* Returns whether the owner may rely on the hold at `now`. */
bool hf_hold_is_valid(const hf_hold *hold, hf_time now);

/* Records that a handle without an entry has released the hold once. In return, hf_client_abandon
 * will ignore one entry of another handle. */
void hf_hold_add_stray(hf_hold *hold);

/* Add and drop a reference. Dropping the last one frees the hold. */
void hf_hold_ref(hf_hold *hold);
void hf_hold_unref(hf_hold *hold);

/* Returns the caller's hold of this lock in the client's table, or NULL. Adds no reference. */
hf_hold *hf_client_find(const hf_client *client, const hf_kind *kind, const hf_names *names,
                        hf_slice caller);

/* Returns whether the table has a hold with the same kind, key and caller: this one or another. */
bool hf_client_has_hold_like(const hf_client *client, const hf_hold *hold);

/* ---- losses ---- */

/* A handle's ledger: the losses of the holds in which the handle has a stake. Each loss is entered
 * once, when it happens, whichever call or thread discovers it. An all-zero struct is a valid empty
 * ledger. */
typedef struct hf_losses {
    hf_lost_reason first;                 /* HF_LOST_NONE before the first loss */
    uint32_t unreported[HF_LOST_REASONS]; /* the number of unreported losses, by reason */
} hf_losses;

typedef struct hf_stake hf_stake;
struct hf_stake {
    hf_hold *hold;          /* referenced */
    hf_losses *losses;      /* the ledger, owned by the handle; must outlive the stake */
    hf_stake *next, **link; /* links in the hold's list of stakes */
    bool muted;             /* losses are not entered in the ledger */
};

/* Begin and end a stake in the hold. If the hold is already lost, its loss is entered at once. */
void hf_stake_begin(hf_stake *stake, hf_client *client, hf_hold *hold, hf_losses *losses);
void hf_stake_end(hf_stake *stake);

/* Moves the stake to another address. `from` must not be used afterwards. */
void hf_stake_move(hf_stake *to, const hf_stake *from);

/* Return the reason for an unreported loss, or HF_LOST_NONE. `take` also marks it as reported. */
hf_lost_reason hf_losses_peek(const hf_losses *losses);
hf_lost_reason hf_losses_take(hf_losses *losses);

/* ---- configuration ---- */

typedef enum hf_link {
    HF_LINK_CALLS,   /* the callers' commands */
    HF_LINK_EVENTS,  /* grants and releases, while an operation is waiting */
    HF_LINK_RENEWER, /* renewals and clean-up; unused if config.renewer is HF_LINK_CALLS */
    HF_LINKS
} hf_link;

typedef struct hf_session_config {
    hf_server server;
    char name[128];          /* for CLIENT SETNAME; "" for none */
    hf_time connect_timeout; /* for the socket and the TLS handshake */

    /* At log-in, the session requests the server's run id and version, and closes the connection if
     * the version is too old. */
    bool reads_server_info;

    /* At log-in, it also reads whether another client has known this server process for as long as
     * restart_guard. */
    bool reads_known_run;

    bool fetches_login; /* the driver fetches user and password to connect: see HF_WANT_LOGIN */

    /* At log-in, it also tests whether one user's scripts can tamper with other users' scripts. */
    bool tests_script_isolation;

    /* How long a reply may take. If the server sends nothing for half this time, the session drops
     * the connection and resends the commands over a new one. */
    hf_time command_timeout;

    hf_time confirm_timeout; /* how long replicas may take to confirm a write; 0 if none has to */
} hf_session_config;

/* How many replicas must confirm a write before the lock counts as acquired. */
typedef struct hf_sync {
    uint32_t replicas; /* 0 if the server's own reply is enough */
    hf_time timeout;   /* how long they may take; less than the session's command_timeout */
} hf_sync;

/* How the servers of a client relate to each other. */
typedef enum hf_mode {
    HF_MODE_ONE,      /* one server: session.server */
    HF_MODE_SENTINEL, /* one server, located by Sentinels; session.server has the log-in */
    HF_MODE_QUORUM,   /* independent servers, a majority of which decides */
    HF_MODE_SHARDS,   /* independent servers, each with its own keys */
    HF_MODE_CLUSTER,  /* a Redis Cluster, some of whose nodes are configured */
    HF_MODES
} hf_mode;

#define HF_QUORUM_MAX 32  /* servers of a quorum, or Sentinels */
#define HF_SERVERS_MAX 64 /* shards, or configured nodes of a cluster */
#define HF_NODES_MAX 1024 /* nodes of a client; further nodes of a cluster are ignored */

/* A server in the ring of shards. */
typedef struct hf_shard {
    const char *name; /* its name in the ring, or NULL */
    unsigned weight;  /* 1..HF_RING_MAX_WEIGHT */
} hf_shard;

#define HF_RING_MAX_SHARDS 64
#define HF_RING_MAX_WEIGHT 100
#define HF_RING_MAX_NAME 255 /* bytes */

#define HF_TENANT_SIZE 128 /* bytes of a tenant's prefix, with the NUL */

/* What this host knows about a client's process: docs/explanation/crash.md. */
typedef enum hf_life {
    HF_LIFE_UNKNOWN,   /* nothing, perhaps because the process is on another host */
    HF_LIFE_RUNNING,   /* the process or its job is running, as far as this host can tell */
    HF_LIFE_UNSURE,    /* the process has ended, but its job may still be running */
    HF_LIFE_ENDED,     /* the process has certainly ended, with all its threads */
    HF_LIFE_JOB_ENDED, /* its job has ended, too; processes that the job started may still share its
                          locks */
} hf_life;

/* The client copies the struct; what it points to must outlive the client. */
typedef struct hf_client_config {
    hf_session_config session;
    hf_mode mode;
    const hf_server *servers; /* the servers or Sentinels; unused with HF_MODE_ONE */
    size_t server_count;
    const hf_shard *shards;   /* HF_MODE_SHARDS: the name and the weight of each server */
    char master[HF_URL_HOST]; /* HF_MODE_SENTINEL: the master's name in the Sentinels */
    hf_sync sync;

    /* HF_MODE_QUORUM: a server that has been up for less than this time has no vote, because it may
     * have forgotten locks. 0 gives every server a vote. */
    hf_time restart_guard;

    hf_time grant_lease; /* the lease of a granted lock until the new holder confirms it */
    hf_link renewer;     /* the link for renewals: HF_LINK_RENEWER or HF_LINK_CALLS */
    bool needs_approval; /* the owner must approve each confirmation and renewal */

    /* The prefix of this user's keys if the server's users do not trust each other; otherwise "".
     */
    char tenant[HF_TENANT_SIZE];

    /* Returns what this host knows about the process of the client with this uuid. Must not block.
     * If NULL, waiters do not free the locks of dead processes. */
    hf_life (*life)(const char *uuid);
} hf_client_config;

/* ---- clients ---- */

/* Creates a client. `entropy` is 24 bytes from the system's random source. Returns NULL when out of
 * memory. */
hf_client *hf_client_new(const hf_client_config *config, const unsigned char entropy[24]);

/* Frees the client, all of whose operations must have ended. NULL is allowed. */
void hf_client_delete(hf_client *client);

/* For the child of a fork: recreates the client in place, with a new uuid and without holds or
 * operations. Keeps the configuration, the classes and the setting of hf_observe_all; a closed
 * client remains closed. The old memory is not freed, because the fork may have copied it in the
 * middle of a change. Returns false, and leaves the client closed, when out of memory or if
 * `entropy` is NULL. */
bool hf_client_start_over(hf_client *client, const unsigned char entropy[24]);

/* Return the client's uuid (HF_UUID_SIZE characters and a NUL), the string passed to
 * hf_client_introduce or "", and config.tenant. */
const char *hf_client_uuid(const hf_client *client);
const char *hf_client_who(const hf_client *client);
const char *hf_client_tenant(const hf_client *client);

/* Returns the label of the client's server, or of its first server, for messages. The string
 * changes when the Sentinels report another master: copy it before hf_driver_leave. */
const char *hf_client_label(const hf_client *client);

/* Makes the client publish this string, "host pid[ name]", while it holds or waits for a lock.
 * Copies at most HF_WHO_SIZE - 1 bytes of it. */
#define HF_WHO_SIZE 320
void hf_client_introduce(hf_client *client, const char *text);

/* Returns the key's group: its hash slot in a cluster, otherwise the index of its node. One program
 * can use several keys only if they are in one group. */
size_t hf_client_group(const hf_client *client, hf_slice key);

/* With shards, returns the 1-based number of the node that has all names of the lock on this key;
 * commands about its other names, such as its queue, must be sent to that node. Otherwise returns
 * 0, because the name itself then determines the right node. */
size_t hf_client_node_of_lock(const hf_client *client, hf_slice key);

/* Returns whether each key is on every server, and a majority of the servers decides. An operation
 * may then be done before all its replies have arrived, so the driver must keep serving the links
 * afterwards. */
bool hf_client_uses_every_server(const hf_client *client);

/* Returns when hf_client_tick next has something to do. */
hf_time hf_client_next_tick(const hf_client *client);
void hf_client_tick(hf_client *client, hf_time now);

/* The two halves of hf_client_next_tick and hf_client_tick, for a driver that runs each half in its
 * own thread. The first half serves the operations, so there the driver must check hf_op_next_tick,
 * too. */
hf_time hf_client_calls_next_tick(const hf_client *client);
hf_time hf_client_renewer_next_tick(const hf_client *client);
void hf_client_tick_calls(hf_client *client, hf_time now);
void hf_client_tick_renewer(hf_client *client, hf_time now);

/* Returns a counter that increases whenever a loss happens or is entered into a ledger. */
uint64_t hf_client_loss_count(const hf_client *client);

/* Marks held locks whose validity has ended as lost. */
void hf_client_detect_losses(hf_client *client, hf_time now);

/* Updates the end of a held lock's validity, and marks the lock lost if that time has passed. */
void hf_client_refresh(hf_client *client, hf_hold *hold, hf_time now);

/* Gives the hold the owner's approval for one renewal or confirmation, if it needs that. */
void hf_client_approve(hf_client *client, hf_hold *hold, hf_time now);

/* Returns a number that grows whenever a hold begins to need its owner's approval. */
uint64_t hf_client_approval_requests(const hf_client *client);

/* Sets whether the watchdog renews the hold from now on. */
void hf_client_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now);

/* Gives up `count` entries of the hold, because their handle was garbage-collected without
 * releasing them. */
void hf_client_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* Closes the client: fails the operations under way with HF_CLOSED, and cleans up every hold in the
 * background. The driver should serve the client until hf_client_is_quiet returns true, but may
 * stop earlier. */
void hf_client_close(hf_client *client, hf_time now);

/* Returns whether a closed client has nothing left to undo on the server. */
bool hf_client_is_quiet(const hf_client *client);

/* The client's counters. X(field, which is also the name that users see) */
#define HF_COUNTERS(X)                                                                             \
    X(acquires)                                                                                    \
    X(reentries)                                                                                   \
    X(releases)                                                                                    \
    X(waits)                                                                                       \
    X(grants)                                                                                      \
    X(rechecks)                                                                                    \
    X(renewals)                                                                                    \
    X(renew_batches)                                                                               \
    X(late_renewals)                                                                               \
    X(losses)                                                                                      \
    X(undone)                                                                                      \
    X(redirects)

#define HF_COUNTER_FIELD(name) uint64_t name;
typedef struct hf_stats {
    HF_COUNTERS(HF_COUNTER_FIELD)
    uint64_t failures[HF_CODES]; /* acquires that failed, by code */
} hf_stats;

/* Returns the client's counters; for a quorum they include those of its members. */
hf_stats hf_client_stats(const hf_client *client);

/* Totals over all links since the client was created. */
typedef struct hf_traffic {
    uint64_t connections;

    /* Connections after a link's first one. Links for events are not included, because they are
     * closed when nothing is waiting. */
    uint64_t reconnects;

    uint64_t replies;
} hf_traffic;

hf_traffic hf_client_traffic(const hf_client *client);

/* What the client is busy with. */
typedef struct hf_load {
    size_t operations;
    size_t holds;
    size_t held;    /* holds that are neither lost nor being cleaned up */
    size_t renewed; /* holds that are HELD and renewed by the client */
    bool has_work;  /* something must still be published, or undone on the server */
} hf_load;

hf_load hf_client_load(const hf_client *client);

/* Returns whether the client is keeping a lock for its callers. The driver must then serve the
 * links for events even without an operation under way. */
bool hf_client_has_kept_locks(const hf_client *client);

/* ---- links ---- */

/* Return the number of links, and one of them. The links of a node are adjacent, in the order of
 * hf_link. Links may be added at any time. */
size_t hf_client_link_count(const hf_client *client);
hf_session *hf_client_link(const hf_client *client, size_t index);

/* Return the number of nodes, each with HF_LINKS links, and whether a node may have keys. A
 * Sentinel never has keys; in a cluster, only nodes of the current map do. */
size_t hf_client_node_count(const hf_client *client);
bool hf_client_node_may_have_keys(const hf_client *client, size_t index);

/* Returns the link's server, which the client owns. */
const hf_server *hf_session_server(const hf_session *session);

/* Returns the link for calls about the key. A quorum has one link per server, numbered from 0 by
 * `index`; any other client has only index 0. Returns NULL beyond the last link. */
const hf_session *hf_client_link_of_key(const hf_client *client, hf_slice key, size_t index);

/* Returns the run id of the server process, or "" if the link is not logged in or the server sends
 * no run id. */
const char *hf_session_run_id(const hf_session *session);

/* What the driver must do with a link's socket. */
typedef enum hf_want {
    HF_WANT_NOTHING,
    HF_WANT_LOGIN, /* call hf_session_fetching_login, then fetch user and password */
    HF_WANT_OPEN,  /* call hf_session_opening, then connect */
    HF_WANT_CLOSE  /* close the socket, then call hf_session_closed */
} hf_want;

hf_want hf_session_wants(const hf_session *session, hf_time now);

/* ---- user and password that the driver fetches (fetches_login) ---- */

/* The driver calls hf_session_fetching_login when it begins to fetch them, and hf_session_log_in,
 * hf_session_log_in_again or hf_session_login_failed when it is done. If it gives up, it calls
 * hf_session_cancel_fetching or hf_session_closed, and the session wants a log-in again. */
void hf_session_fetching_login(hf_session *session);
void hf_session_cancel_fetching(hf_session *session);

/* Returns whether the server refused the last user and password. */
bool hf_session_is_login_refused(const hf_session *session);

/* Returns whether the server has refused the last user and password, and the driver has not fetched
 * new ones since. The driver may fetch them before the next connection is due. */
bool hf_session_needs_other_login(const hf_session *session);

/* Sets the user and password of this link's next connection; an empty user means the default user.
 * Copies both strings, each shorter than HF_URL_SECRET bytes. After hf_session_log_in_again other
 * connections to the same server use them, too; in a cluster, connections to any node. */
void hf_session_log_in(hf_session *session, const char *user, const char *password);

/* Makes the next connection use the last user and password. */
void hf_session_log_in_again(hf_session *session);

/* Called when the driver could not fetch user and password. Commands that do not wait for a
 * connection fail with this code and reason, as after a failed attempt to connect. */
void hf_session_login_failed(hf_session *session, hf_code code, const char *reason, hf_time now);

/* ---- a link's socket ---- */

/* Returns whether the driver must close the socket even if the link is still needed. */
bool hf_session_must_close(const hf_session *session);

/* Return whether hf_session_opening may be called, and whether hf_session_handshaking and
 * hf_session_opened may be. */
bool hf_session_may_open(const hf_session *session);
bool hf_session_is_opening(const hf_session *session);

/* Called just before the driver connects. */
void hf_session_opening(hf_session *session, hf_time now);

/* Called when the socket is connected and the TLS handshake begins. */
void hf_session_handshaking(hf_session *session);

/* Called when the connection is open. */
void hf_session_opened(hf_session *session, hf_time now);

/* Called when the socket is closed. `reason` is a short string, which is copied, or NULL if the
 * server closed the connection. */
void hf_session_closed(hf_session *session, const char *reason, hf_time now);

/* Returns the bytes to write. The session owns them, and the next call may move them. */
hf_slice hf_session_output(const hf_session *session);

/* Called when the first `size` bytes of the output have been written. */
void hf_session_written(hf_session *session, size_t size);

/* Passes received bytes to the session. Returns whether they complete a reply or end the
 * connection. If not, the driver has nothing to check. */
bool hf_session_feed(hf_session *session, const char *bytes, size_t size, hf_time now);

/* Returns whether a request is waiting to be sent or is awaiting its reply. */
bool hf_session_has_work(const hf_session *session);

/* Returns whether a command that was added to the output is still awaiting its reply. */
bool hf_session_awaits_reply(const hf_session *session);

/* Returns whether the session is logged in. */
bool hf_session_is_ready(const hf_session *session);

/* Returns when the server last sent something. */
hf_time hf_session_received_at(const hf_session *session);

/* ---- operations ---- */

#define HF_BATCH_MAX 1024 /* the maximum number of locks in one operation */

/* What the numeric argument of a Lua method means. */
typedef enum hf_number_meaning {
    HF_NUMBER_UNUSED, /* the method does not exist for a single lock */
    HF_NUMBER_NONE,   /* the method takes no number */
    HF_NUMBER_WAIT,   /* spec.wait; spec.value is the handle's number of permits */
    HF_NUMBER_LEASE,  /* spec.lease */
    HF_NUMBER_KEEP,   /* spec.keep */
    HF_NUMBER_AMOUNT, /* spec.value */
    HF_NUMBER_CHANGE, /* spec.value, read as a signed number */
    HF_NUMBER_NODE    /* spec.node */
} hf_number_meaning;

/* What a Lua method returns when it succeeds. */
typedef enum hf_call_returns {
    HF_RETURNS_TRUE,
    HF_RETURNS_LOCK,           /* the lock or the permits */
    HF_RETURNS_BOOLEAN,        /* whether the result's value is positive */
    HF_RETURNS_VALUE,          /* the result's value */
    HF_RETURNS_VALUE_OR_FALSE, /* the result's value, or false if it is negative */
    HF_RETURNS_TTL,  /* the result's value, which is a reply to PTTL, converted to seconds */
    HF_RETURNS_INFO, /* the result's info as a Lua table */
    HF_RETURNS_REPLY /* the result's reply as a Lua value */
} hf_call_returns;

/* All operations. X(name in the enum, name in C and Lua, verb of the program that the lock's kind
 * must have or NONE, hf_number_meaning, hf_call_returns) */
#define HF_OP_LIST(X)                                                                              \
    X(ACQUIRE, acquire, ACQUIRE, WAIT, LOCK)                                                       \
    X(RELEASE, release, RELEASE, NONE, TRUE)                                                       \
    X(COMPLETE, complete, COMPLETE, KEEP, TRUE) /* releases a guard and leaves a record */         \
    X(EXTEND, extend, EXTEND, LEASE, TRUE)                                                         \
    X(CHECK, check, EXTEND, NONE, TRUE)                                                            \
    X(FORCE, force_release, FORCE, NONE, BOOLEAN) /* returns whether the key was locked */         \
    X(INFO, info, INFO, NONE, INFO)                                                                \
    X(TTL, ttl, NONE, NONE, TTL)                                                                   \
    X(PING, ping, NONE, NONE, TRUE)                                                                \
    X(COMMAND, command, NONE, NODE, REPLY)                                                         \
    X(RAISE, raise, NONE, UNUSED, TRUE) /* raises the counter to token_floor */                    \
    X(SET, set, SET, AMOUNT, TRUE)      /* sets a semaphore's number of permits */                 \
    X(PAUSE, pause, NONE, WAIT, TRUE)                                                              \
    X(SET_COUNT, set_count, SET_COUNT, AMOUNT, BOOLEAN) /* sets a latch's count if it is 0 */      \
    X(COUNT_DOWN, count_down, COUNT_DOWN, AMOUNT, VALUE_OR_FALSE)                                  \
    X(WATCH, watch, INFO, WAIT, INFO)          /* waits until the holder changes */                \
    X(COUNT, count, NONE, NONE, VALUE)         /* reads a latch's count */                         \
    X(AWAIT, await, NONE, WAIT, TRUE)          /* waits until a latch's count is 0 */              \
    X(DELETE, delete, DELETE, AMOUNT, BOOLEAN) /* opens a latch with this count; 0: with any */    \
    X(TAKE, take, ACQUIRE, WAIT, TRUE)         /* takes permits of a plain semaphore */            \
    X(GIVE, give, RELEASE, CHANGE, VALUE)      /* adds permits; returns how many are free */       \
    X(DRAIN, drain, DRAIN, NONE, VALUE)        /* takes all free permits; returns how many */      \
    X(FENCED, fenced, NONE, AMOUNT, REPLY)     /* runs commands if no later holder has written */  \
    X(ONCE, once, NONE, AMOUNT, REPLY)         /* decides which run counts for a scheduled time */ \
    X(ACQUIRE_ALL, acquire_all, ACQUIRE_ALL, UNUSED, TRUE) /* all or none, in one attempt */       \
    X(RELEASE_ALL, release_all, RELEASE_ALL, UNUSED, TRUE)

#define HF_OP_ENTRY(NAME, ...) HF_OP_##NAME,
typedef enum hf_op_kind { HF_OP_LIST(HF_OP_ENTRY) HF_OP_KINDS } hf_op_kind;
#undef HF_OP_ENTRY

typedef struct hf_op_row {
    const char *name;
    hf_verb verb; /* the program that the kind must have, or HF_VERB_NONE */
    hf_number_meaning number;
    hf_call_returns returns;
} hf_op_row;

/* The rows, indexed by hf_op_kind. */
extern const hf_op_row hf_op_rows[HF_OP_KINDS];

/* Returns the word that completes "cannot <verb> <key>" in messages. */
const char *hf_op_kind_verb(hf_op_kind kind);

/* Return whether the operation acquires a lock, and whether it ends a hold of the caller. */
bool hf_op_kind_acquires(hf_op_kind kind);
bool hf_op_kind_releases(hf_op_kind kind);

/* Returns whether the operation may leave something that the client settles in the background
 * afterwards. */
bool hf_op_kind_may_need_clean_up(hf_op_kind kind);

/* Returns whether the operation fails if the caller has no hold. */
bool hf_op_kind_needs_a_hold(hf_op_kind kind);

/* Returns whether locks of this kind support the operation: the server has a program for it, and
 * the client can resolve a call whose outcome is unknown. */
bool hf_op_kind_supports(hf_op_kind kind, const hf_kind *lock_kind);

#define HF_NO_TOKEN_TTL 9007199254740991u /* 2^53 - 1: exact in the programs' doubles */

/* Describes an operation. The comment of a field names the operations that read the field; other
 * operations ignore it. */
typedef struct hf_op_spec {
    hf_op_kind kind;
    uint64_t ticket; /* a ticket to reuse, from an operation that has ended; 0 for a new one */
    const hf_kind *lock_kind; /* the kind of `names` or `batch`, or NULL */
    const hf_names *names;    /* the lock; NULL for several locks, HF_OP_PING, HF_OP_COMMAND */
    hf_slice caller; /* a string that identifies the calling coroutine, or the owner if `shared` */

    /* acquire: the owner of a new hold; if empty, the client creates one. Unused with `shared`. */
    hf_slice owner;

    hf_time lease; /* acquire, extend */

    /* acquire: how long a new hold may last, counted from the command or grant that acquired it,
     * even if it is renewed; 0 for no limit. */
    hf_time max_hold;

    /* acquire, take, pause, await, watch: how long to wait; HF_NEVER for no limit. With 0 an
     * acquire makes one attempt. */
    hf_time wait;

    /* info, command: the time limit, if it is shorter than command_timeout; otherwise 0. */
    hf_time time_limit;

    hf_time deadlock_check; /* acquire: how long to wait before a deadlock check; 0 for none */
    uint64_t observer;      /* the number of the listener for this operation's events, or 0 */
    uint16_t class;         /* an index from hf_observe_class */
    uint64_t agent; /* acquire: the number of the calling coroutine, even for a shared owner */

    /* acquire, raise: the TTL of the fencing counter, in milliseconds; 0 for no fencing,
     * HF_NO_TOKEN_TTL for a counter without a TTL. */
    uint64_t token_ttl_ms;

    uint64_t token_floor; /* acquire, raise: the smallest acceptable token, or 0 */
    uint32_t permits;     /* acquire of a semaphore: how many permits, at least 1 */

    /* acquire of a semaphore: its total if it does not exist yet; 0 if not given. */
    uint64_t initial_permits;

    bool renewed;         /* acquire: the watchdog renews the hold */
    bool limits_waiters;  /* acquire: fails at once if `max_waiters` or more are waiting already */
    uint32_t max_waiters; /* at least 1; to allow no waiters, set `wait` to 0 instead */
    bool blocks_callers;  /* acquire: no other caller of this client can run while it waits */
    bool shared;          /* acquire: `caller` is also the owner, which other processes may use */

    /* release, complete, extend, check: the caller's lost hold, if a hold of another handle has
     * replaced it in the table. The operation reports the loss and changes neither hold. */
    hf_hold *lost_hold;
    bool loss_reported; /* with `lost_hold`: an earlier release has reported the loss */

    /* acquire_all, release_all: the locks, instead of `names`; no key may occur twice. The kind
     * must support the operation. */
    const hf_names *const *batch;
    size_t batch_count; /* 1 to HF_BATCH_MAX */

    hf_slice fingerprint; /* acquire of a guard: the fingerprint of the request */
    hf_slice result;      /* complete: the result of the run; watch: the known holder; force: the
                             only owner whose lock may be freed, or empty for any */

    /* complete: how long the record remains; 0 leaves no record, and frees the key. acquire: how
     * long the client keeps the lock for its callers after a release; 0 if it does not. */
    hf_time keep;

    /* set, set_count, count_down, take, give: the number. fenced, once: how many of `args` are
     * keys; they come first. */
    uint64_t value;

    /* command: a command and its arguments, which changes no lock and is safe to resend. fenced,
     * once: the keys and arguments of the program. acquire: the keys of locks of the same kind that
     * the caller acquires next; while this acquire is waiting, it also frees those whose owner has
     * crashed. */
    const hf_slice *args;
    size_t arg_count;

    /* command: the 1-based number of the node to ask; 0 for the first argument's node, or any. */
    size_t node;
} hf_op_spec;

/* The state of a lock, as read by HF_OP_INFO and HF_OP_WATCH. */
typedef struct hf_lock_info {
    char owner[HF_OWNER_MAX + 1]; /* the owner, truncated if it does not fit */
    size_t owner_size;            /* the size of `owner` in bytes; 0 if the lock is free */
    long long holds;              /* how many holds the owner has */
    long long ttl_ms;    /* the TTL in milliseconds; negative values as in replies to PTTL */
    long long waiters;   /* the number of waiters in the queue */
    long long ahead;     /* how many are ahead of the asking waiter; -1 if it is not queued */
    long long free;      /* the free permits of a semaphore */
    long long readers;   /* the readers of a read/write lock; -1 for other kinds */
    uint64_t token;      /* the last fencing token, or 0 */
    long long clock_us;  /* the server's clock when this was read; 0 if unknown */
    long long waited_us; /* how long the first waiter has waited; -1 if unknown or nobody waits */
} hf_lock_info;

typedef struct hf_result {
    hf_failure failure; /* on success: code HF_OK and an empty text */

    /* force: whether the lock was held; ttl: the reply to PTTL; latch or plain semaphore: the
     * program's reply. */
    long long value;

    hf_lock_info info; /* set only by a successful info or watch */
    hf_reply *reply;   /* command, fenced, once: the reply, freed by the caller; or NULL */
    /* acquire of a guard: the record of an earlier run, freed by the caller; or NULL. */
    char *record;
    size_t record_size; /* the size of `record` in bytes */
} hf_result;

/* Begins an operation, which may already be done when this returns. The caller ends it with
 * hf_op_end. Copies the spec, but not what the spec points to. Returns NULL when out of memory. */
hf_op *hf_client_begin(hf_client *client, const hf_op_spec *spec, hf_time now);

/* Returns the number by which the caller knows the operation: spec.ticket if given, otherwise one
 * that no earlier operation of the client has had. */
uint64_t hf_op_ticket(const hf_op *op);

/* Return when the operation began, when its wait ends, and whether it is done. */
hf_time hf_op_begun_at(const hf_op *op);
hf_time hf_op_wait_end(const hf_op *op);
bool hf_op_is_done(const hf_op *op);

/* Returns whether the operation is waiting for another command for its hold to finish. */
bool hf_op_is_blocked(const hf_op *op);

/* Returns whether the operation may be waiting for a reply, rather than a message, another
 * operation or a time. */
bool hf_op_awaits_reply(const hf_op *op);

/* Returns the code of the operation's failure, or HF_OK while it is not done. */
hf_code hf_op_code(const hf_op *op);

/* Moves the result of an operation that is done or detached into `result`. */
void hf_op_take_result(hf_op *op, hf_result *result);

/* Return the number of the operation's holds, and one of them. The _ALL kinds have one per
 * lock, in the order of the spec; each may be NULL. The operation owns a reference to each
 * until hf_op_end. */
size_t hf_op_hold_count(const hf_op *op);
hf_hold *hf_op_hold(const hf_op *op, size_t index);

/* Returns the next operation that is done, is not detached and was not returned before, or NULL.
 * `after` is what the previous call returned, or NULL to start with the first operation. */
hf_op *hf_client_next_done(hf_client *client, const hf_op *after);

/* Returns whether hf_client_next_done has an operation to return. */
bool hf_client_has_next_done(const hf_client *client);

/* Returns when hf_client_tick has something to do for this operation. The deadlines of its commands
 * are not included; they belong to the links. */
hf_time hf_op_next_tick(const hf_op *op);

/* Ends the operation's wait with HF_INTERRUPTED, after allowing a moment for a reply under way. An
 * acquire that has just obtained the lock keeps it. */
void hf_op_interrupt(hf_op *op, hf_time now);

/* Fails an operation that is not done with HF_INTERRUPTED, and undoes what it may have left on the
 * server. */
void hf_op_abandon(hf_op *op, hf_time now);

/* Detaches a release: no caller awaits it any longer, and the client ends it. Returns false if
 * the release is done, has not been sent or is of several locks, or when out of memory; the caller
 * must then end the operation. */
bool hf_op_detach(hf_op *op);
bool hf_op_is_detached(const hf_op *op);

/* Returns whether the client has a detached operation. */
bool hf_client_has_detached(const hf_client *client);

/* Ends all detached operations that are done. */
void hf_client_end_detached(hf_client *client, hf_time now);

/* Frees the operation. If it is not done, also undoes what it may have left on the server. */
void hf_op_end(hf_op *op, hf_time now);

/* ---- counters and events ---- */

/* A class groups locks that serve the same purpose. It has a user-defined name and its own
 * counters. */

#define HF_CLASSES_MAX 64 /* the maximum number of classes of a client */
#define HF_CLASS_NAME 64  /* the maximum size of a class's name in bytes, with the NUL */

/* The upper bounds of a histogram's buckets, in seconds, in ascending order. */
#define HF_BUCKETS 16
extern const double hf_bucket_bounds[HF_BUCKETS];

/* A distribution of durations. */
typedef struct hf_histogram {
    uint64_t counts[HF_BUCKETS + 1]; /* per bucket, not cumulative; the last bucket is unbounded */
    hf_time sum;
} hf_histogram;

/* The counters of a class. X(name) */
#define HF_CLASS_COUNTERS(X)                                                                       \
    X(reentries)                                                                                   \
    X(releases)                                                                                    \
    X(hand_offs)                                                                                   \
    X(renewals)                                                                                    \
    X(renewed_late)                                                                                \
    X(risks)

#define HF_CLASS_FIELD(name) uint64_t name;
typedef struct hf_class {
    char name[HF_CLASS_NAME];
    uint64_t outcomes[HF_CODES]; /* acquires by code; HF_OK counts those that got the lock */
    uint64_t losses[HF_LOST_REASONS];
    HF_CLASS_COUNTERS(HF_CLASS_FIELD)
    hf_histogram waited;      /* how long successful acquires took */
    hf_histogram held;        /* how long locks were held, until the release or the loss */
    hf_histogram round_trips; /* from sending a command to its reply */
} hf_class;

/* Returns the index of the class with this name, which is created if needed. Returns 0, the class
 * without a name, if it cannot be created. */
uint16_t hf_observe_class(hf_client *client, const char *name);

/* Returns the class with this index, which must be below HF_CLASSES_MAX, or NULL. Index 0 is the
 * client's own class. */
const hf_class *hf_observe_class_at(const hf_client *client, size_t index);

/* Requests events of all locks, not only of those with an observer. */
void hf_observe_all(hf_client *client);

/* Adds the event HF_EVENT_CRASH_RELEASE_OFF: no other process can prove that this one has ended.
 * `code` says why, and must be a constant. */
void hf_observe_crash_release_off(hf_client *client, const char *code);

typedef enum hf_event_kind {
    HF_EVENT_ACQUIRED,
    HF_EVENT_BUSY, /* an acquire failed because another owner has the lock */
    HF_EVENT_RELEASED,
    HF_EVENT_LOST,
    HF_EVENT_AT_RISK,
    HF_EVENT_RENEWED_LATE,
    HF_EVENT_OPENED,
    HF_EVENT_CLOSED,
    HF_EVENT_FAILED,            /* an acquire failed with `code`, for a reason other than busy */
    HF_EVENT_CRASH_RELEASED,    /* a waiter freed the hold of `owner`, whose process has crashed */
    HF_EVENT_CRASH_RELEASE_OFF, /* see hf_observe_crash_release_off */
    HF_EVENT_TENANT_EXPOSED, /* other users of this server can act with this client's permissions */
    HF_EVENT_CUT_OFF,        /* a wait continues without its server; `code` says why */
    HF_EVENT_RESUMED,        /* the server answers again after CUT_OFF */
    HF_EVENT_KINDS
} hf_event_kind;

/* Returns the kind's name in Lua, such as "acquired". */
const char *hf_event_name(hf_event_kind kind);

typedef struct hf_event hf_event;

struct hf_event {
    hf_event *next;
    hf_event_kind kind;
    const char *code;  /* the failure's code or the loss's reason, a constant; or NULL */
    const char *class; /* the name of the class, owned by the client; may be "" */
    hf_time duration;  /* with `has_duration`: time waited, time held, or time left on the lease */
    bool has_duration; /* `duration` is set */
    uint64_t token;    /* the fencing token, or 0 */
    uint64_t observer; /* the lock's listener, or 0 */
    hf_slice key, owner; /* stored in `bytes`; for a connection, `key` is its server */
    hf_slice message;    /* CUT_OFF: the message of the failure, stored in `bytes`; else empty */
    char bytes[];
};

/* Returns the list of events, oldest first, and empties the client's list. The caller frees each
 * event. */
hf_event *hf_observe_take(hf_client *client);

/* Returns whether hf_observe_take has an event to return. */
bool hf_observe_has_events(const hf_client *client);

#endif
