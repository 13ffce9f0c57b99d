/* One connection to one server: logs in, sends commands, matches replies to them, and reconnects.
 * The driver owns the socket.
 *
 * The address of a session that follows a master must be resolved before each opening
 * (hf_session_resolve). At log-in the session checks that the server is a master. If the server
 * later refuses a command as a replica, the command is sent again over the next connection.
 *
 * Replies arrive in the order of the commands. The requests that await replies are in
 * replies[first_reply ..], in order; a dropped request leaves NULL there. A subscriber session uses
 * pub/sub: after the log-in every reply is an event for `on_event`.
 *
 * A connection may die silently because a NAT or a load balancer forgets it, or because a host is
 * cut off. If nothing arrives while a reply is awaited, the session therefore gives up the
 * connection before its commands time out, and sends them again over a new one. It waits for half
 * of command_timeout, or for much less if the connection is doubtful. Until the server sends
 * something, a connection is doubtful if it was idle before, if another connection to the server
 * was given up, or if the client is closing. A command that must not be sent twice is sent over a
 * doubtful connection only after the reply to a PING. */
#ifndef HF_SESSION_H
#define HF_SESSION_H

#include "base/buffer.h"
#include "base/request.h"
#include "holdfast.h"

#define HF_RUN_ID_SIZE 40

/* The key under which clients store the run id of a server that they have known for restart_guard.
 * A restarted server has a different run id, so the old one does not count. */
#define HF_KNOWN_KEY "holdfast_known"

typedef enum hf_session_state {
    HF_SESSION_CLOSED,
    HF_SESSION_OPENING, /* the driver is connecting */
    HF_SESSION_LOGIN,   /* AUTH, SELECT, CLIENT SETNAME and others await their replies */
    HF_SESSION_READY
} hf_session_state;

/* Where the user and password of the next log-in come from. */
typedef enum hf_login {
    HF_LOGIN_FIXED,    /* the server's configuration */
    HF_LOGIN_NEEDED,   /* the driver must fetch them before it connects */
    HF_LOGIN_FETCHING, /* the driver is fetching them */
    HF_LOGIN_SET       /* the driver has set them, for one connection */
} hf_login;

struct hf_session {
    const hf_session_config *config;
    const hf_server *server; /* the server of the node or, by default, of the configuration */
    size_t max_elements;     /* how many elements a reply may have */
    hf_session_state state;
    bool subscriber;      /* the connection is for pub/sub: see above */
    bool stays_open;      /* it is opened and kept open even without requests */
    bool closing;         /* the driver must close the socket, for `reason` */
    bool login_timed_out; /* closing: the log-in timed out, and may succeed over a new connection */
    bool handshaking;     /* OPENING: the socket is connected, but the TLS handshake is not done */
    bool has_received;    /* the server has sent something over this connection */
    bool marked_doubtful; /* hf_session_doubt or _prepare_close was called, and nothing has arrived
                             since */
    bool ping_pending;    /* a PING was sent, and nothing has arrived since */
    bool follows_master;  /* the server is a master that may move */
    bool unresolved;      /* the server's address must be resolved before the next opening */
    bool retries_login;   /* the log-in was refused once, and is retried with new credentials */
    hf_buffer output;
    hf_buffer piggyback; /* commands to send before the next request; their replies are ignored */
    size_t piggyback_count; /* the number of commands in `piggyback` */
    hf_reader reader;
    hf_request *queue, **queue_end; /* the requests to send, in order */
    hf_request **replies;           /* the requests that await a reply, as a ring buffer */
    size_t replies_capacity;        /* a power of two */
    uint64_t first_reply;           /* the number of the first awaited reply */
    uint64_t next_reply;            /* the number of the next reply to be awaited */

    /* The log-in: how many commands were sent, how many replies are still to come, and the index of
     * each command's reply, or SIZE_MAX if the command was not sent. */
    size_t login_sent, login_left;
    size_t login_auth, login_select, login_role, login_info, login_known, login_scripts, login_id,
        login_sharded;
    hf_login login;
    uint32_t refused_logins; /* how many consecutive log-ins were refused */
    hf_time opened_at; /* when the last attempt to connect began or, once connected, when its log-in
                          began */
    hf_time retry_at;  /* CLOSED: when it may be opened again */
    hf_time received_at;          /* when the server last sent something */
    hf_time login_duration;       /* how long the last log-in took */
    hf_time no_reconnect_until;   /* until then, NOAUTH does not cause a reconnect; READONLY does,
                                     but only if the session follows a master */
    uint32_t refused_connections; /* how many consecutive connections ended after such a refusal,
                                     but at most REPLICA_DOUBLINGS */
    char run_id[HF_RUN_ID_SIZE + 1]; /* the run id of the server process, or "" */
    hf_time known_since;             /* when this session first logged in to that process */
    bool run_id_stored;              /* HF_KNOWN_KEY on the server has this run id */
    bool lacks_script_isolation;     /* one user's scripts can change those of other users */

    /* In a cluster: the id that the map gives for the server. If the map gives none, it is "", and
     * a server with any id is accepted. NULL if the server is not in a cluster. */
    const char *node_id;
    bool (*is_member)(const void *context, const char *id); /* whether the cluster has that node */
    char peer_id[HF_NODE_ID_SIZE + 1]; /* the id that the server reported at log-in, or "" */
    bool found_other_server; /* the last log-in found another server at the node's address */
    bool sharded;            /* the server of this connection supports sharded channels */
    hf_time awaiting_since;  /* the time since which at least one reply has been awaited */
    uint32_t
        opens_since_reply; /* how many connections were tried since a command last got a reply */
    uint64_t *random;      /* the state of the client's random numbers */
    hf_code reason_code;
    char reason[160];                   /* why there is no connection, or "" */
    bool reason_is_for_new_connections; /* `reason` applies only to requests with
                                           needs_new_connection */

    void (*on_ready)(void *context, hf_time now); /* called after the log-in; may be NULL */

    /* Called when the session has become READY (`open` is true), and when a READY connection has
     * ended. May be NULL. */
    void (*on_change)(void *context, const hf_session *session, bool open);

    /* Called when the request is done with a reply that is not an error. May be NULL. */
    void (*on_reply)(void *context, const hf_request *request, hf_time now);

    /* Called when the request cannot be served now, for `reason`, and will be sent again. May be
     * NULL. */
    void (*on_delay)(void *context, const hf_request *request, hf_code code, const char *reason,
                     hf_time now);

    /* Called for each event that a subscriber receives. */
    void (*on_event)(void *context, const hf_reply *event, hf_time now);

    /* Called when the connection has ended, or could not be opened. May be NULL. */
    void (*on_closed)(void *context, hf_time now);

    /* Called when a connection was given up because the server had been silent since `since`. May
     * be NULL. */
    void (*on_silence)(void *context, hf_time since, hf_time now);

    /* Called for an error reply, and for each queued request when an attempt to connect has failed;
     * `error` is then NULL, or the log-in's transient refusal. Returns true to take the request
     * over from the session; the callback itself must not fail the request. May be NULL. */
    bool (*on_refusal)(void *context, hf_request *request, const char *error, hf_time now);
    void *context;        /* the argument of the callbacks */
    uint64_t opens;       /* how many connections were opened */
    uint64_t reply_count; /* how many replies have arrived, not counting log-ins and events */
};

/* Initialises a closed session. `config` and `random` must outlive it. */
void hf_session_init(hf_session *session, const hf_session_config *config, uint64_t *random);

/* Frees the session's memory. It must have no requests. */
void hf_session_free(hf_session *session);

/* Sends the request now, or as soon as there is a connection. Its `done` is called later, by a
 * function that feeds, closes, ticks or fails the session, or immediately when out of memory. */
void hf_session_submit(hf_session *session, hf_request *request, hf_time now);

/* Like hf_session_submit, for a request taken from another session, whose server may already have
 * run it. */
void hf_session_adopt(hf_session *session, hf_request *request, hf_time now);

/* Fails a request that is not in a session. */
void hf_request_fail(hf_request *request, hf_code code, const char *reason, hf_time now);

/* Lets the driver connect at once if requests are queued, no matter how often it has failed. */
void hf_session_retry_now(hf_session *session, hf_time now);

/* Removes the request from its session, if it has one, without calling `done`. A late reply is
 * ignored. */
void hf_session_drop(hf_request *request);

/* Drops the request. If its reply is still due, `heir` receives the reply and takes over the
 * request's bytes; the caller then sets the heir's `done`. Returns false if no reply is due. */
bool hf_session_inherit(hf_request *heir, hf_request *request);

/* Sends a subscriber's command; the session must be READY. Returns false when out of memory. */
bool hf_session_send(hf_session *session, size_t count, const hf_slice *args);

/* Sends the command along with the next request, and ignores its reply. Returns false if the
 * session is not READY, or when out of memory. A lost connection loses the command, too. */
bool hf_session_piggyback(hf_session *session, const hf_request *request);

/* Sends the commands from hf_session_piggyback now, without waiting for the next request. When out
 * of memory, keeps them for later. */
void hf_session_flush_piggybacked(hf_session *session, hf_time now);

/* Forgets failures to connect, so that the next attempt may be made at once. Only for a session
 * that is CLOSED. */
void hf_session_forget_failures(hf_session *session);

/* Checks the server against a changed node_id. Closes the connection if the server is not in the
 * cluster; a closed session may reconnect at once. */
void hf_session_check_id(hf_session *session);

/* Gives up a READY connection over which no reply arrived in time. */
void hf_session_abort(hf_session *session, hf_time now);

/* Called when another connection to the server was given up because the server had been silent
 * since `since`. If something has arrived over this connection since then, it works; otherwise the
 * server must soon reply to a PING. */
void hf_session_doubt(hf_session *session, hf_time since, hf_time now);

/* Called when the client is being closed. So that closing is quick, makes the connection doubtful
 * without a PING, or lets a closed connection reopen at once if it is needed. */
void hf_session_prepare_close(hf_session *session);

/* Sends a PING over a READY connection, which is given up if the server remains silent. Returns
 * false when out of memory. */
bool hf_session_ping(hf_session *session, hf_time now);

/* Returns the time by which the server must reply over a doubtful connection, or 0 if the
 * connection is not doubtful or awaits no reply. */
hf_time hf_session_doubtful_until(const hf_session *session);

/* The next four functions are only for a session that follows a master. */

/* Called when the address of a closed session is known, so that the session may be opened. */
void hf_session_resolve(hf_session *session);

/* Closes the connection, because the address has changed. */
void hf_session_move(hf_session *session, hf_time now);

/* Fails the requests that must not wait for a connection, because the address is unknown. */
void hf_session_fail_pending(hf_session *session, hf_code code, const char *reason, hf_time now);

/* Returns when the address must be resolved, or HF_NEVER if it need not be. */
hf_time hf_session_resolve_at(const hf_session *session);

/* Fails every request, so that the session may be freed. */
void hf_session_fail_all(hf_session *session, hf_code code, const char *reason, hf_time now);

/* Returns why there is no connection: HF_DENIED if the server refused the log-in, otherwise
 * HF_UNREACHABLE. */
hf_code hf_session_failure_code(const hf_session *session);

/* Returns whether the server process is known to have run for at least `guard`. Either this session
 * has known its run id for that long, by the client's clock, or another client has, and has stored
 * the run id on the server. The server's clock does not count. */
bool hf_session_is_known(const hf_session *session, hf_time guard, hf_time now);

/* Stores the run id on the server for other clients. Call this only while the server is known. */
void hf_session_store_run_id(hf_session *session, hf_time now);

/* Returns when hf_session_tick next has something to do, or the result of hf_session_wants may
 * change. */
hf_time hf_session_next_tick(const hf_session *session);

/* Gives up a silent connection, fails requests whose deadlines have passed, and sends requests
 * whose retries are due. */
void hf_session_tick(hf_session *session, hf_time now);

#endif
