/* The core for drivers and bindings. This is the only header of csrc/core that they include.
 *
 * A client keeps locks on one or several servers. It does no I/O and has no clock: the driver owns
 * the sockets, and passes the time to each call. Times are nanoseconds of one monotonic clock.
 *
 * A client has links, each a connection to one server. The driver does for each link what
 * hf_session_wants returns, writes hf_session_output, passes what it reads to hf_session_feed, and
 * calls hf_session_closed when the socket is closed. It calls hf_client_tick when the time of
 * hf_client_deadline has come. After any call that may change something it checks the links and
 * the deadline again.
 *
 * An operation lives from hf_client_begin to hf_op_end. What its spec points to (names, texts) must
 * live as long.
 *
 * Nothing here is safe for several threads at once: a driver with threads locks a mutex. */
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

#define HF_OWNER_MAX 255 /* bytes */

/* What a program does to a lock. */
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

/* A kind of lock: a row of kind.c. */
struct hf_kind {
    const char *name; /* by which users of the core ask for the kind */
    char letter;      /* names the kind in a queue's members and in grants */

    /* The owner may acquire again what it holds; otherwise its second acquire is busy. */
    bool reentrant;

    /* Redisson publishes the releases of this kind, and receives ours. Without this, clients that
     * are not in the queue poll. */
    bool announced;

    /* An acquire sends a fingerprint of its request, which a grant does not write. */
    bool fingerprinted;

    bool counted; /* the lock is a number of permits, of which an acquire takes one or several */
    bool joint; /* several owners may hold the lock at once, and one release may grant to several */
    bool listed; /* waiters are in Redisson's list, and each has a channel of its own */

    /* Keys in braces are refused: they would share Redisson's names with the key without them. */
    bool refuses_braced_key;

    const char *suffix;  /* follows <uuid>:<number> in the owners of this kind, or NULL */
    const char *channel; /* precedes the key in the channel of releases; NULL: hf_prefix.releases */

    /* That channel has the key in braces even if the key has braces of its own. */
    bool wraps_key;

    bool may_be_kept;    /* a client may keep the lock for its callers after a release */
    bool has_short_form; /* the programs fill in arguments that a call leaves out */
    bool one_owner;      /* the lock has one owner at a time, which `info` returns */

    /* No program counts the subscribers of the channel of releases, so a client may subscribe to it
     * by its name. Otherwise it subscribes by a pattern, which is not counted. */
    bool subscribers_not_counted;

    /* Waiters also subscribe to hf_names.ours, by which the programs count ours. */
    bool counts_our_listeners;

    /* Nobody holds the lock. Each call leaves a note on the server, so that it counts once even if
     * it is sent twice. */
    bool has_call_notes;

    const char *taken;                /* completes the message of a busy acquire */
    const hf_kind *reads, *writes;    /* the other half of a read/write lock, or NULL */
    unsigned char programs[HF_VERBS]; /* only kind.c reads these */
};

/* All kinds; the last element is NULL. */
extern const hf_kind *const hf_kinds[];

/* Returns the kind of lock with this name; NULL: there is none. */
const hf_kind *hf_kind_named(const char *name);

/* What the names of keys and channels begin with. X(name, text) */
#define HF_PREFIXES(X)                                                                             \
    X(counter, "redisson_lock_token:")                                                             \
    X(queue, "holdfast_queue:")                                                                    \
    X(list, "redisson_lock_queue:") /* the queue of a listed kind */                               \
    X(timeouts, "redisson_lock_timeout:")                                                          \
    X(releases, "redisson_lock__channel:") /* of kinds without a channel of their own */           \
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

/* The keys and channels of one lock. */
struct hf_names {
    hf_slice key;
    hf_slice counter;   /* redisson_lock_token:{key} */
    hf_slice queue;     /* holdfast_queue:{key}, or holdfast_queue::key if the key has a brace;
                           of a fair lock redisson_lock_queue:{key} */
    hf_slice leases;    /* {key}:timeout, of a semaphore; of a fair lock those of its waiters,
                           redisson_lock_timeout:{key} */
    hf_slice releases;  /* redisson_lock__channel:{key}, or the kind's own channel */
    hf_slice listening; /* holdfast_listening:{key}: counts our listeners to a sharded `releases` */
    hf_slice ours;      /* redisson_sc:{key}:holdfast: counts them where the kind is tallied */
    char *block;        /* NULL: none of their own */
};

/* Make the names of a lock in one block: on any server, and on the client's servers. Return NULL
 * when out of memory; the caller frees them. */
hf_names *hf_names_new(const hf_kind *kind, hf_slice key);
hf_names *hf_client_names(const hf_client *client, const hf_kind *kind, hf_slice key);
void hf_names_delete(hf_names *names); /* NULL is fine */

/* Returns the key that this queue belongs to; empty: it is no queue. */
hf_slice hf_names_key_of_queue(hf_slice name);

/* A member of a queue, and the text of a wait that its client has published. They point into what
 * was read. */
typedef struct hf_waiter {
    const hf_kind *kind;
    hf_slice waiter; /* "<client uuid>:<number>" */
    hf_slice owner;  /* member: that it will be */
    hf_slice key;    /* wait */
    uint64_t since;  /* wait: milliseconds of the server's clock */
} hf_waiter;

/* Return false for a text of another format. */
bool hf_wire_read_waiter(hf_slice text, hf_waiter *waiter);
bool hf_wire_read_wait(hf_slice text, hf_waiter *waiter);

/* ---- holds ---- */

/* A hold is one lock on one key, from the acquire until the server has forgotten it. It is in the
 * client's table, by kind, key and caller, until it is over and another one may replace it. It
 * lives until the table and every reference have released it. */

typedef enum hf_hold_state {
    HF_HOLD_ACQUIRING, /* requested; nothing is held yet */
    HF_HOLD_HELD,
    HF_HOLD_LOST,        /* for `reason`; stays until the owner releases it or acquires again */
    HF_HOLD_RELEASING,   /* the owner's release is under way */
    HF_HOLD_CLEANING_UP, /* the renewer makes the server forget it */
    HF_HOLD_STATES
} hf_hold_state;

/* X(NAME, name): in the enum, and in Lua */
#define HF_LOST_LIST(X)                                                                            \
    X(EXPIRED, expired)                                                                            \
    X(TAKEN, taken)                                                                                \
    X(DELETED, deleted)                                                                            \
    X(UNREACHABLE, unreachable)                                                                    \
    X(MAX_HOLD, max_hold) /* its lease reached spec.max_hold, and was not renewed beyond */

#define HF_LOST_ENTRY(NAME, name) HF_LOST_##NAME,
typedef enum hf_lost_reason {
    HF_LOST_NOT,
    HF_LOST_LIST(HF_LOST_ENTRY) HF_LOST_REASONS
} hf_lost_reason;
#undef HF_LOST_ENTRY

/* "expired", "taken", …; NULL for HF_LOST_NOT. */
const char *hf_lost_reason_name(hf_lost_reason reason);

hf_slice hf_hold_caller(const hf_hold *hold);
hf_slice hf_hold_owner(const hf_hold *hold); /* quorum: that of its first member holds */

/* What a driver may know of a hold. */
typedef struct hf_hold_view {
    hf_hold_state state;
    hf_lost_reason reason; /* HF_LOST_NOT: it was not lost */
    bool over;             /* lost, cleaned up, or not in the table any more */
    bool in_table;
    bool detached;       /* its release is or was detached */
    bool ending;         /* the detached release is under way; it may still find a loss */
    bool renewed;        /* by the watchdog */
    hf_time valid_until; /* held before this */
    uint32_t count;      /* the owner's holds as the server has them */
    uint64_t token;      /* 0: none */
} hf_hold_view;

hf_hold_view hf_view_of(const hf_hold *hold);

/* Returns whether the owner may believe in the hold. */
bool hf_hold_is_valid(const hf_hold *hold, hf_time now);

/* The hold was released once through a handle without an entry of it: one entry of another handle
 * is void from now on. */
void hf_hold_note_stray(hf_hold *hold);

void hf_hold_ref(hf_hold *hold);
void hf_hold_unref(hf_hold *hold);

/* Returns the hold in the client's table that the caller has on the names' key; NULL: there is
 * none. */
hf_hold *hf_client_find(const hf_client *client, const hf_kind *kind, const hf_names *names,
                        hf_slice caller);

/* Returns whether the table has a hold of the same kind, key and caller, this one or another. */
bool hf_client_has_hold_like(const hf_client *client, const hf_hold *hold);

/* ---- losses ---- */

/* A user's ledger of losses: of the holds in which it has a stake. A loss is entered once, when it
 * happens, whichever call or thread finds it. All zero at first. */
typedef struct hf_losses {
    hf_lost_reason first;                 /* of all; HF_LOST_NOT: none */
    uint32_t unreported[HF_LOST_REASONS]; /* that hf_losses_take has not returned, by reason */
} hf_losses;

typedef struct hf_stake hf_stake;
struct hf_stake {
    hf_hold *hold; /* referenced */
    hf_losses *losses;
    hf_stake *next, **link; /* of the hold's */
    bool muted;             /* a loss is not entered */
};

/* The ledger outlives the stake. A hold that is lost already is entered at once. */
void hf_stake_begin(hf_stake *stake, hf_client *client, hf_hold *hold, hf_losses *losses);
void hf_stake_end(hf_stake *stake);

/* The stake is at `to` from now on. */
void hf_stake_move(hf_stake *to, const hf_stake *from);

/* Returns the reason of a loss that hf_losses_take has not returned yet; HF_LOST_NOT: there is
 * none.
 */
hf_lost_reason hf_losses_next(const hf_losses *losses);
hf_lost_reason hf_losses_take(hf_losses *losses);

/* ---- configuration ---- */

typedef enum hf_link {
    HF_LINK_CALLS,   /* the callers' commands */
    HF_LINK_EVENTS,  /* grants and releases, while an operation waits */
    HF_LINK_RENEWER, /* renewals and cleaning up; unused when config.renewer is HF_LINK_CALLS */
    HF_LINKS
} hf_link;

typedef struct hf_session_config {
    hf_server server;
    char name[128]; /* for CLIENT SETNAME, "": none */
    hf_time connect_timeout;
    bool asks_server; /* at the log-in, for its run id and its version, which must not be too old */
    bool asks_known;  /* and whether another client has known this run long enough */
    bool asks_login;  /* the driver tells user and password before each connection: HF_WANT_LOGIN */
    bool asks_scripts;       /* whether one user's script may change those of others */
    hf_time command_timeout; /* for a reply; after half of it without a byte of the server, commands
                                are sent again over a new connection */
    hf_time confirm_timeout; /* for replicas to confirm a write; 0: none are asked */
} hf_session_config;

/* How many replicas must have the write before a lock counts. */
typedef struct hf_sync {
    uint32_t replicas; /* 0: the server's reply is enough */
    hf_time timeout;   /* less than the session's command_timeout */
} hf_sync;

/* How several servers belong together. */
typedef enum hf_mode {
    HF_MODE_ONE,      /* one server: session.server */
    HF_MODE_SENTINEL, /* one server, which the Sentinels know; session.server has the log-in */
    HF_MODE_QUORUM,   /* a majority decides */
    HF_MODE_SHARDS,   /* each has its own keys */
    HF_MODE_CLUSTER,  /* some nodes of a Redis Cluster, which know the others */
    HF_MODES
} hf_mode;

#define HF_QUORUM_MAX 32  /* servers of a quorum, or Sentinels */
#define HF_SERVERS_MAX 64 /* of shards, or given for a cluster */

typedef struct hf_shard {
    const char *name; /* NULL: none */
    unsigned weight;  /* 1..HF_RING_MAX_WEIGHT */
} hf_shard;

#define HF_RING_MAX_SHARDS 64
#define HF_RING_MAX_WEIGHT 100
#define HF_RING_MAX_NAME 255 /* bytes */

#define HF_TENANT_SIZE 128

/* What this host knows about the process of a client: docs/crash.md. */
typedef enum hf_life {
    HF_LIFE_UNKNOWN,   /* nothing: it may be on another host */
    HF_LIFE_GOES_ON,   /* it is not proved that it has ended */
    HF_LIFE_UNSURE,    /* it has ended, and nobody can tell now whether its job has */
    HF_LIFE_ENDED,     /* it is proved that none of its threads runs any more */
    HF_LIFE_JOB_ENDED, /* likewise, and its job has ended. Others may have entered its locks */
} hf_life;

typedef struct hf_client_config {
    hf_session_config session;
    hf_mode mode;
    const hf_server *servers; /* of the other modes; they outlive the client */
    size_t server_count;
    const hf_shard *shards; /* SHARDS: names and weights of the servers; they outlive the client */
    char master[HF_URL_HOST]; /* the name by which the Sentinels know it */
    hf_sync sync;
    hf_time restart_guard;       /* QUORUM: a server up for less has no vote; 0: every server has */
    hf_time grant_lease;         /* the lease of a granted lock before it is confirmed */
    hf_link renewer;             /* the link that renews */
    bool needs_approval;         /* each confirmation or renewal needs an approval of the owner */
    char tenant[HF_TENANT_SIZE]; /* of a server whose users do not trust each other: what the keys
                                    of this user begin with; "": there is one trust domain */
    hf_life (*life)(const char *uuid); /* of the process of the client with this uuid; must not
                                          block. NULL: waiters free no locks of dead processes */
} hf_client_config;

/* ---- clients ---- */

/* Makes a client. `entropy`: 24 bytes from the system's random source. Returns NULL when out of
 * memory. All operations must have ended before hf_client_delete. */
hf_client *hf_client_new(const hf_client_config *config, const unsigned char entropy[24]);
void hf_client_delete(hf_client *client); /* NULL is fine */

/* For the child of a fork: recreates the client in its place, with another uuid and without holds
 * and operations. It keeps the configuration, the classes and the wanted events, and stays closed
 * if it was. The old memory is not freed, because the fork may have copied it in the middle of a
 * change. Returns false, and the client is closed, when out of memory or if `entropy` is NULL. */
bool hf_client_start_over(hf_client *client, const unsigned char entropy[24]);

/* Returns the client's uuid: HF_UUID_SIZE characters and a NUL. */
const char *hf_client_uuid(const hf_client *client);

/* Returns the text of hf_client_introduce; "": none. */
const char *hf_client_who(const hf_client *client);

/* Returns the tenant of its configuration. */
const char *hf_client_tenant(const hf_client *client);

/* Returns how messages name its server, or the first one of several. It changes as the Sentinels
 * name another master: copy it before hf_driver_leave. */
const char *hf_client_label(const hf_client *client);

/* From now on the client publishes this text, "host pid[ name]", while it holds or waits. It keeps
 * the first HF_WHO_SIZE - 1 bytes. */
#define HF_WHO_SIZE 320
void hf_client_introduce(hf_client *client, const char *text);

/* Returns the key's group: its slot in a cluster, else its node. Keys of one group can be used in
 * one program. */
size_t hf_client_group(const hf_client *client, hf_slice key);

/* Returns the node, counted from 1, that has all names of the lock on this key, if a command about
 * one of them would not get there by that name; 0: it would. */
size_t hf_client_node_beside(const hf_client *client, hf_slice key);

/* Returns whether each key is on every server, and a majority decides. */
bool hf_client_is_everywhere(const hf_client *client);

/* Returns whether an operation may be done before all its replies have come: the links have to be
 * served behind it. */
bool hf_client_decides_early(const hf_client *client);

/* Returns the next time at which hf_client_tick has something to do. */
hf_time hf_client_deadline(const hf_client *client);
void hf_client_tick(hf_client *client, hf_time now);

/* The two halves of these, for a driver with a thread for each; hf_op_deadline belongs to the
 * first. */
hf_time hf_client_calls_deadline(const hf_client *client);
hf_time hf_client_renewer_deadline(const hf_client *client);
void hf_client_tick_calls(hf_client *client, hf_time now);
void hf_client_tick_renewer(hf_client *client, hf_time now);

/* Returns a number that grows when a loss is entered into a ledger. */
uint64_t hf_client_losses(const hf_client *client);

/* Marks holds whose time is over as lost, and does nothing else. */
void hf_client_notice(hf_client *client, hf_time now);

/* Updates the end of a hold that is held; marks it lost if it has ended. */
void hf_client_refresh(hf_client *client, hf_hold *hold, hf_time now);

/* Gives the owner's approval for a hold that needs it: one renewal or confirmation may be sent. */
void hf_client_approve(hf_client *client, hf_hold *hold, hf_time now);

/* Returns a number that grows when a hold begins to need its owner's approval. */
uint64_t hf_client_approvals_asked(const hf_client *client);

/* From now on the watchdog renews the hold, or does so no longer. */
void hf_client_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now);

/* A handle with `count` entries of the hold is gone without a release. */
void hf_client_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* Closes the client: fails the operations under way with HF_CLOSED, and cleans up every hold in the
 * background. The driver goes on until hf_client_is_quiet, or stops earlier. */
void hf_client_close(hf_client *client, hf_time now);
bool hf_client_is_quiet(const hf_client *client);

/* The counters, by the names that users see. X(name) */
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

hf_stats hf_client_stats(const hf_client *client);

/* Over all links. A link for events is closed while nobody waits, so opening it again is no
 * reconnect. */
typedef struct hf_traffic {
    uint64_t connections, reconnects, replies;
} hf_traffic;

hf_traffic hf_client_traffic(const hf_client *client);

typedef struct hf_load {
    size_t operations; /* that have not ended */
    size_t holds;
    size_t held;    /* holds that are somebody's, or may become so */
    size_t renewed; /* holds that are held and that the client renews */
    bool to_do;     /* something is still to be undone on the server or published */
} hf_load;

hf_load hf_client_load(const hf_client *client);

/* Returns whether the client keeps a lock for its callers: its events links must be served also
 * while no operation is under way. */
bool hf_client_keeps(const hf_client *client);

/* ---- links ---- */

/* The links: those of a node are together, in the order of hf_link. Their number may grow. */
size_t hf_client_link_count(const hf_client *client);
hf_session *hf_client_link(const hf_client *client, size_t index);

/* Each node has HF_LINKS links. In a cluster only the nodes of its map serve. */
size_t hf_client_node_count(const hf_client *client);
bool hf_client_node_serves(const hf_client *client, size_t index);

const hf_server *hf_session_server(const hf_session *session);

/* Returns the link over which calls about the key go; of a quorum that of the server `index`. NULL:
 * there are no more. */
const hf_session *hf_client_link_of_key(const hf_client *client, hf_slice key, size_t index);

/* Returns the run id of the server's process; "" while it is not connected, or does not send one.
 */
const char *hf_session_run_id(const hf_session *session);

/* Returns what the driver must do with the socket now. */
typedef enum hf_want {
    HF_WANT_NOTHING,
    HF_WANT_LOGIN, /* fetch user and password: hf_session_asking */
    HF_WANT_OPEN,
    HF_WANT_CLOSE
} hf_want;
hf_want hf_session_wants(const hf_session *session, hf_time now);

/* ---- user and password that the driver fetches (asks_login) ---- */

/* The driver begins to fetch them. It ends that with hf_session_log_in, hf_session_log_in_again or
 * hf_session_login_failed. If it gives up, with forget_asking or hf_session_closed, the session
 * asks again. */
void hf_session_asking(hf_session *session);
void hf_session_forget_asking(hf_session *session);

/* Returns whether the server has refused the last ones. */
bool hf_session_is_refused(const hf_session *session);

/* Returns whether other ones are needed before the next connection, although its time may not have
 * come: the server has refused the last ones, and there are no new ones yet. */
bool hf_session_needs_other_login(const hf_session *session);

/* The next connection of this link logs in with these texts, each of less than HF_URL_SECRET bytes,
 * which are copied. So do connections that are made with hf_session_log_in_again to the same
 * server, and in a cluster to any node. An empty user is none. */
void hf_session_log_in(hf_session *session, const char *user, const char *password);

/* The next connection logs in as the last one did. */
void hf_session_log_in_again(hf_session *session);

/* There are none: what cannot wait for a connection fails with this code and reason, as after a
 * connection that could not be made. */
void hf_session_login_failed(hf_session *session, hf_code code, const char *reason, hf_time now);

/* ---- what a link's socket does ---- */

/* Returns whether it must close the socket even if the link is still needed. */
bool hf_session_must_close(const hf_session *session);

/* Return whether `opening` may be called; `handshaking` and `opened`; `closed`. */
bool hf_session_may_open(const hf_session *session);
bool hf_session_is_opening(const hf_session *session);
bool hf_session_has_socket(const hf_session *session);

/* The driver calls these when it begins to connect; when the socket is connected and the TLS
 * handshake begins; when the connection is open; when the socket is closed (reason: a short text;
 * NULL: the server closed it). */
void hf_session_opening(hf_session *session, hf_time now);
void hf_session_handshaking(hf_session *session);
void hf_session_opened(hf_session *session, hf_time now);
void hf_session_closed(hf_session *session, const char *reason, hf_time now);

/* The bytes to write; `written` removes the first `size` of them. */
hf_slice hf_session_output(const hf_session *session);
void hf_session_written(hf_session *session, size_t size);

/* Takes bytes that were read. Returns whether they end a reply or the connection; else nothing has
 * changed for the driver. */
bool hf_session_feed(hf_session *session, const char *bytes, size_t size, hf_time now);

/* Returns whether a request waits to be sent or for its reply. */
bool hf_session_has_work(const hf_session *session);

/* Returns whether the reply to a command that was passed to the driver is still to come. */
bool hf_session_awaits_reply(const hf_session *session);

/* Returns whether it is logged in. */
bool hf_session_is_ready(const hf_session *session);

/* Returns when the server last sent something. */
hf_time hf_session_received_at(const hf_session *session);

/* ---- operations ---- */

#define HF_BATCH_MAX 1024

/* What the number of a call from Lua is. */
typedef enum hf_call_number {
    HF_NUMBER_UNUSED, /* there is no such call of one lock */
    HF_NUMBER_NONE,
    HF_NUMBER_WAIT,   /* spec.wait; of permits the handle has spec.value */
    HF_NUMBER_LEASE,  /* spec.lease */
    HF_NUMBER_KEEP,   /* spec.keep */
    HF_NUMBER_AMOUNT, /* spec.value */
    HF_NUMBER_CHANGE, /* spec.value, read as a signed number */
    HF_NUMBER_NODE    /* spec.node */
} hf_call_number;

/* What a call returns to Lua that succeeds. */
typedef enum hf_call_returns {
    HF_RETURNS_TRUE,
    HF_RETURNS_LOCK,
    HF_RETURNS_WHETHER, /* the result's value is positive */
    HF_RETURNS_VALUE,
    HF_RETURNS_LEFT, /* the value; false: it is negative */
    HF_RETURNS_TTL,
    HF_RETURNS_INFO,
    HF_RETURNS_REPLY
} hf_call_returns;

/* All operations: the name in the enum, and that in C and in Lua; the verb of its program on kinds
 * that have one, or NONE; hf_call_number; hf_call_returns. */
#define HF_OP_LIST(X)                                                                              \
    X(ACQUIRE, acquire, ACQUIRE, WAIT, LOCK)                                                       \
    X(RELEASE, release, RELEASE, NONE, TRUE)                                                       \
    X(COMPLETE, complete, COMPLETE, KEEP, TRUE) /* a guard's release that leaves a record */       \
    X(EXTEND, extend, EXTEND, LEASE, TRUE)                                                         \
    X(CHECK, check, EXTEND, NONE, TRUE)                                                            \
    X(FORCE, force_release, FORCE, NONE, WHETHER) /* whether it was locked */                      \
    X(INFO, info, INFO, NONE, INFO)                                                                \
    X(TTL, ttl, NONE, NONE, TTL)                                                                   \
    X(PING, ping, NONE, NONE, TRUE)                                                                \
    X(COMMAND, command, NONE, NODE, REPLY)                                                         \
    X(WRITE_BACK, raise, NONE, UNUSED, TRUE) /* raises the fencing counter to token_floor */       \
    X(SET, set, SET, AMOUNT, TRUE)           /* sets a semaphore's number of permits */            \
    X(PAUSE, pause, NONE, WAIT, TRUE)                                                              \
    X(SET_COUNT, set_count, SET_COUNT, AMOUNT, WHETHER) /* begins a latch's, unless it counts */   \
    X(COUNT_DOWN, count_down, COUNT_DOWN, AMOUNT, LEFT)                                            \
    X(COUNT, count, NONE, NONE, VALUE)       /* reads what is left of it */                        \
    X(AWAIT, await, NONE, WAIT, TRUE)        /* waits for its end */                               \
    X(DELETE, delete, DELETE, NONE, WHETHER) /* ends it */                                         \
    X(TAKE, take, ACQUIRE, WAIT, TRUE)       /* takes permits of a plain semaphore */              \
    X(GIVE, give, RELEASE, CHANGE, VALUE)    /* adds permits; how many are free */                 \
    X(DRAIN, drain, DRAIN, NONE, VALUE)      /* takes all that are free; how many */               \
    X(FENCED, fenced, NONE, AMOUNT, REPLY)   /* runs commands if no later holder has written */    \
    X(ONCE, once, NONE, AMOUNT, REPLY)       /* asks or records which run counts for a fire */     \
    X(ACQUIRE_ALL, acquire_all, ACQUIRE_ALL, UNUSED, TRUE) /* all or none, in one attempt */       \
    X(RELEASE_ALL, release_all, RELEASE_ALL, UNUSED, TRUE)

#define HF_OP_ENTRY(NAME, ...) HF_OP_##NAME,
typedef enum hf_op_kind { HF_OP_LIST(HF_OP_ENTRY) HF_OP_KINDS } hf_op_kind;
#undef HF_OP_ENTRY

/* An operation's row in HF_OP_LIST. */
typedef struct hf_op_row {
    const char *name;
    hf_verb verb; /* HF_VERB_NONE: it needs no program of the kind */
    hf_call_number number;
    hf_call_returns returns;
} hf_op_row;

/* By hf_op_kind. */
extern const hf_op_row hf_op_rows[HF_OP_KINDS];

const char *hf_op_kind_verb(hf_op_kind kind); /* for messages: "cannot <verb> <key>" */
bool hf_op_kind_acquires(hf_op_kind kind);
bool hf_op_kind_releases(hf_op_kind kind);     /* it ends a hold of the caller */
bool hf_op_kind_lingers(hf_op_kind kind);      /* it may go on in the background */
bool hf_op_kind_needs_a_hold(hf_op_kind kind); /* it fails if the caller has none */
/* Whether locks of that kind have the operation: the server has a program for it, and a call in
 * doubt can be settled. */
bool hf_op_kind_suits(hf_op_kind kind, const hf_kind *lock_kind);

#define HF_NO_TOKEN_TTL 9007199254740991u /* exact in the programs, which count in doubles */

typedef struct hf_op_spec {
    hf_op_kind kind;
    const hf_kind *lock_kind; /* NULL: neither names nor batch are given */
    const hf_names *names;    /* NULL: HF_OP_PING, HF_OP_COMMAND */
    hf_slice caller;          /* a coroutine, or the text of a shared owner */
    hf_slice owner;           /* acquire: of the new hold; empty: a new one. Not with `shared` */
    hf_time lease;            /* acquire, extend */
    hf_time max_hold; /* acquire: a new hold ends that long after the command or the grant that
                         gave it, whatever renews it; 0: no bound */
    hf_time wait;     /* acquire, pause, await; for acquire 0: one attempt, HF_NEVER: no limit */
    hf_time within;   /* info, command: fails after this time; 0: after command_timeout */
    hf_time deadlock_check;    /* acquire: checks for a deadlock after this time; 0: never */
    uint64_t observer;         /* that gets the events; 0: no listener of its own */
    uint16_t class;            /* from hf_observe_class */
    uint64_t agent;            /* acquire: the calling coroutine, also for a shared owner */
    uint64_t token_ttl_ms;     /* acquire; 0: no fencing, HF_NO_TOKEN_TTL: the counter has no TTL */
    uint64_t token_floor;      /* acquire: the token is at least this */
    uint32_t permits;          /* acquire, semaphore: how many, at least 1 */
    uint64_t permits_at_first; /* acquire, semaphore: total if it does not exist; 0: not given */
    bool renewed;              /* acquire: the watchdog renews it */
    bool sheds;                /* acquire: fails at once behind more than `max_waiters` waiters */
    uint32_t max_waiters;      /* …: 1 or more; for 0 give no `wait` */
    bool blocking;             /* acquire: while it waits, no other caller of this client can run */
    bool shared; /* acquire: the caller's text is the owner, which other processes may use */
    hf_hold
        *lost; /* release, complete, extend, check: the caller's lost hold, which a hold of another
                  handle has replaced in the table; the operation is about it and changes neither */
    bool loss_notified;           /* and a release has reported the loss */
    const hf_names *const *batch; /* the _ALL kinds: instead of names, no key twice; lock_kind is
                                     one that can be acquired in one step */
    size_t batch_count;           /* at most HF_BATCH_MAX */
    hf_slice fingerprint;         /* guard: the request's fingerprint */
    hf_slice result;              /* complete */
    hf_time keep;                 /* complete: how long the record stays; 0: free the key. acquire:
                                     how long the client keeps the lock for its callers */
    uint64_t
        value; /* set, set_count, count_down, take, give; fenced, once: how many args are keys */
    const hf_slice *args; /* command: it may be sent twice, and does not change a lock. fenced,
                             once: the keys and arguments of its program */
    size_t arg_count;
    size_t node; /* command: its node, from 1; 0: that of its key, the first argument if any */
} hf_op_spec;

/* What HF_OP_INFO has read. */
typedef struct hf_lock_info {
    char owner[HF_OWNER_MAX + 1]; /* the beginning if it is longer */
    size_t owner_size;            /* 0: free */
    long long holds, ttl_ms, waiters, ahead;
    long long free;    /* permits of a semaphore */
    long long readers; /* of a read/write lock; -1: it is another kind */
    uint64_t token;
} hf_lock_info;

/* The result of an operation. */
typedef struct hf_result {
    hf_failure failure; /* code HF_OK on success, without a text */
    long long value;    /* force: was locked; ttl: PTTL's result; of a latch or a plain semaphore
                           the program's */
    hf_lock_info info;  /* set by a successful info alone */
    hf_reply *reply;    /* command, fenced, once; the caller frees it; NULL: none */
    char *record;       /* acquire of a guard: the record of an earlier run, which the caller frees;
                           NULL: none */
    size_t record_size;
} hf_result;

/* Begins an operation, which may be done at once. Returns NULL when out of memory. */
hf_op *hf_client_begin(hf_client *client, const hf_op_spec *spec, hf_time now);

/* Returns a number that no other operation of the client has. */
uint64_t hf_op_number(const hf_op *op);

hf_time hf_op_begun_at(const hf_op *op);
hf_time hf_op_wait_end(const hf_op *op);
bool hf_op_is_done(const hf_op *op);

/* Returns whether it waits for a command that the renewer has in flight. */
bool hf_op_is_blocked(const hf_op *op);

/* Returns false for an operation that does not wait for a reply, but for a message, for another
 * operation, or until a time. */
bool hf_op_awaits_reply(const hf_op *op);

/* Returns the code of its failure; HF_OK also while it is not done. */
hf_code hf_op_code(const hf_op *op);

/* Moves the result out of an operation that is done or detached. */
void hf_op_take_result(hf_op *op, hf_result *result);

/* The holds that it is about: for the _ALL kinds one for each of the spec's locks, in their order.
 * They live until hf_op_end; an element may be NULL. */
size_t hf_op_hold_count(const hf_op *op);
hf_hold *hf_op_hold(const hf_op *op, size_t index);

/* Returns the next operation that is done and was not returned before. `after`: the one that the
 * last call has returned; NULL: begin with the first one. NULL: there is no other. */
hf_op *hf_client_next_done(hf_client *client, const hf_op *after);

/* Returns whether hf_client_next_done has one to return. */
bool hf_client_has_done(const hf_client *client);

/* Returns when the operation itself has something to do; its commands have the deadlines of their
 * links. */
hf_time hf_op_deadline(const hf_op *op);

/* Ends the wait of an acquire with HF_INTERRUPTED, after a moment for a reply under way. An acquire
 * that just got the lock keeps it. */
void hf_op_interrupt(hf_op *op, hf_time now);

/* Ends an operation that is not done with HF_INTERRUPTED, and undoes what it may have left on the
 * server. */
void hf_op_abandon(hf_op *op, hf_time now);

/* From now on no caller waits for this release, and the client ends it. Returns false if it is done
 * or not sent yet, for several locks, or when out of memory. */
bool hf_op_detach(hf_op *op);
bool hf_op_is_detached(const hf_op *op);

/* Returns whether there is a detached operation. */
bool hf_client_has_detached(const hf_client *client);

/* Ends the detached operations that are done. */
void hf_client_end_detached(hf_client *client, hf_time now);

/* Frees the operation. If it is not done, undoes what it may have left on the server. */
void hf_op_end(hf_op *op, hf_time now);

/* ---- counters and events ---- */

/* A class is a name that the user gives to locks of one use; it has counters of its own. */

#define HF_CLASSES_MAX 64
#define HF_CLASS_NAME 64

#define HF_BUCKETS 16
extern const double hf_bucket_ends[HF_BUCKETS]; /* seconds */

typedef struct hf_histogram {
    uint64_t counts[HF_BUCKETS + 1]; /* not cumulative; the last one: longer than all ends */
    hf_time sum;
} hf_histogram;

/* X(name) */
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
    uint64_t outcomes[HF_CODES];      /* of acquires; HF_OK: acquired */
    uint64_t losses[HF_LOST_REASONS]; /* by reason */
    HF_CLASS_COUNTERS(HF_CLASS_FIELD)
    hf_histogram waited; /* by acquires that got the lock */
    hf_histogram held;   /* from the acquire to the release or the loss */
    hf_histogram round_trips;
} hf_class;

/* Returns the index of the class with this name, which it makes if there is none. Returns 0, the
 * class without a name, if there is no room. */
uint16_t hf_observe_class(hf_client *client, const char *name);

/* Returns the class with this index, below HF_CLASSES_MAX; NULL: there is none. The first one is
 * the client's own. */
const hf_class *hf_observe_class_at(const hf_client *client, size_t index);

/* From now on there are events of all that happens, not only of locks with an observer. */
void hf_observe_all(hf_client *client);

/* Adds the event that nothing will prove the end of this client's process. `code` must stay valid
 * for ever. */
void hf_observe_unrecorded(hf_client *client, const char *code);

typedef enum hf_event_kind {
    HF_EVENT_ACQUIRED,
    HF_EVENT_BUSY, /* an acquire failed because another owner has the lock */
    HF_EVENT_RELEASED,
    HF_EVENT_LOST,
    HF_EVENT_AT_RISK,
    HF_EVENT_RENEWED_LATE,
    HF_EVENT_OPENED,
    HF_EVENT_CLOSED,
    HF_EVENT_FAILED,            /* an acquire failed for another reason: `code` */
    HF_EVENT_CRASH_RELEASED,    /* a waiter freed a hold of `owner`, whose process has crashed */
    HF_EVENT_CRASH_RELEASE_OFF, /* nothing will prove the end of this process: `code` */
    HF_EVENT_TENANT_EXPOSED,    /* other users of this server can act with this client's rights */
    HF_EVENT_CUT_OFF, /* a wait goes on although the server is away or refuses it: `code` */
    HF_EVENT_RESUMED, /* ...and has an answer again */
    HF_EVENT_KINDS
} hf_event_kind;

const char *hf_event_name(hf_event_kind kind);

typedef struct hf_event hf_event;

struct hf_event {
    hf_event *next;
    hf_event_kind kind;
    const char *code;  /* the code of a failure, or the reason of a loss; NULL: none */
    const char *class; /* lives as long as the client */
    hf_time seconds;   /* waited or held, or left of the lease */
    bool timed;
    uint64_t token, observer;
    hf_slice key, owner; /* in `bytes`; for a connection, `key` is its server */
    hf_slice message;    /* CUT_OFF: as that of a failure; else empty */
    char bytes[];
};

/* Returns the list of events and empties it; the caller frees each event. */
hf_event *hf_observe_take(hf_client *client);

/* Whether events wait for hf_observe_take. */
bool hf_observe_has_events(const hf_client *client);

#endif
