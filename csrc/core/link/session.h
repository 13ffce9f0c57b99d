/* One connection to one server: log in, send, match replies, connect again.
 *
 * A session that follows a master must be resolved before each opening (hf_session_resolve). It
 * asks the server for its role at the log-in, and keeps a command that a replica refuses.
 *
 * The driver owns the socket: it opens one when the session wants it, writes hf_session_output,
 * passes what it reads to hf_session_feed, and calls hf_session_closed when the socket is closed.
 * Replies come in the order of the commands: replies[first_reply ..] are the requests that await a
 * reply, in order; a dropped request leaves an empty entry there.
 *
 * A subscriber session uses pub/sub: after the log-in every reply is an event for `on_event`.
 *
 * A connection may die silently: a NAT or a load balancer forgets it, a host is cut off. So
 * a session that gets no byte while it awaits a reply gives the connection up before its commands
 * have run out of time, and sends them again over a new one: after half of command_timeout, and
 * after much less if the connection is doubtful. A connection is doubtful, until the server sends
 * something, if it was quiet before, or if another connection to the server was given up. A command
 * that must not be sent twice goes over a doubtful connection only after the reply to a PING. */
#ifndef HF_SESSION_H
#define HF_SESSION_H

#include "base/buffer.h"
#include "base/request.h"
#include "holdfast.h"

#define HF_RUN_ID_SIZE 40

/* The key in which clients keep the run id of a server that they have known for restart_guard. A
 * server that restarts has another run id, so an old mark does not count. */
#define HF_KNOWN_KEY "holdfast_known"

typedef enum hf_session_state {
    HF_SESSION_CLOSED,  /* no socket */
    HF_SESSION_OPENING, /* the driver connects */
    HF_SESSION_LOGIN,   /* AUTH, SELECT, CLIENT SETNAME and others await their replies */
    HF_SESSION_READY
} hf_session_state;

/* How a session comes to the user and the password of its next log-in. */
typedef enum hf_login {
    HF_LOGIN_FIXED,  /* they are the server's own */
    HF_LOGIN_NEEDED, /* the driver must fetch them before it connects */
    HF_LOGIN_ASKED,  /* it is fetching them */
    HF_LOGIN_GIVEN   /* the server's own, for one connection */
} hf_login;

struct hf_session {
    const hf_session_config *config;
    const hf_server *server; /* the configuration's, unless it was changed */
    size_t max_elements;     /* the limit of elements of a reply */
    hf_session_state state;
    bool subscriber;     /* it uses pub/sub: see above */
    bool wanted;         /* it stays connected even without requests */
    bool closing;        /* the driver must close the socket, for `reason` */
    bool handshaking;    /* OPENING: the socket is connected, the TLS handshake is not done */
    bool received;       /* the server has sent something over this connection */
    bool doubted;        /* another connection fell silent after the server last sent something */
    bool pinged;         /* the server has sent nothing since a PING */
    bool follows_master; /* the server is a master that may move */
    bool unresolved;     /* the server's address must be resolved before the next opening */
    bool asks_again;     /* the log-in was refused for the first time: another one may do */
    hf_buffer output;    /* the bytes to write */
    hf_buffer along; /* commands that are sent before the next request; their replies are ignored */
    size_t along_count; /* how many commands `along` has */
    hf_reader reader;
    hf_request *queue, **queue_end;   /* the requests to be sent, in order */
    hf_request **replies;             /* the requests that await a reply, as a ring */
    size_t replies_capacity;          /* a power of two */
    uint64_t first_reply, next_reply; /* the numbers of the first of them and after the last one */

    /* The log-in: how many commands were sent, how many replies are still to come, and which reply
     * is which, as an index; SIZE_MAX: the command was not sent. */
    size_t login_sent, login_left;
    size_t login_auth, login_select, login_role, login_info, login_known, login_scripts, login_id,
        login_sharded;
    hf_login login;
    uint32_t refused_logins; /* how many log-ins in a row were refused */
    hf_time opened_at;       /* when the last opening, or after it the log-in, began */
    hf_time retry_at;        /* CLOSED: when it may be opened again */
    hf_time received_at;     /* when the server last sent something */
    hf_time login_took;      /* how long the last log-in took */
    hf_time believed_until;  /* until then a replica that refuses a command is believed to be one */
    uint32_t sent_back;      /* how many connections in a row were ended for such a refusal */
    char run_id[HF_RUN_ID_SIZE + 1]; /* the run id of the server's process; "": unknown */
    hf_time known_since;             /* since when this client knows the process */
    bool vouched;                    /* HF_KNOWN_KEY on the server names this run */
    bool exposed;                    /* one user's script may change those of others */

    /* In a cluster: the id that the map gives for the server; "": none, so a server with any id is
     * accepted. NULL: the server is not in a cluster. */
    const char *node_id;
    bool (*is_member)(const void *context, const char *id); /* whether the cluster has that node */
    char peer_id[HF_NODE_ID_SIZE + 1]; /* the id that the server gave at the log-in; "": none */
    bool stranger;          /* the last log-in found another server at the node's address */
    bool sharded;           /* the server of this connection has sharded channels */
    hf_time awaiting_since; /* when the first awaited command was sent */
    uint32_t failed_opens;  /* attempts to connect since the server last answered */
    uint64_t *random;       /* the client's state of random numbers */
    hf_code reason_code;    /* the code of `reason` */
    char reason[160];       /* why there is no connection; "": no reason */

    void (*on_ready)(void *context, hf_time now); /* the session is logged in; or NULL */

    /* The session was logged in, or its connection has ended; or NULL. */
    void (*on_change)(void *context, const hf_session *session, bool open);

    /* A reply to the request has come; or NULL. */
    void (*on_answer)(void *context, const hf_request *request, hf_time now);

    /* The request is not served now, for this reason, and will be sent again; or NULL. */
    void (*on_delay)(void *context, const hf_request *request, hf_code code, const char *reason,
                     hf_time now);

    /* A subscriber has received this. */
    void (*on_event)(void *context, const hf_reply *event, hf_time now);

    /* The connection has ended; or NULL. */
    void (*on_closed)(void *context, hf_time now);

    /* A connection was given up on which the server had been silent since `since`; or NULL. */
    void (*on_silence)(void *context, hf_time since, hf_time now);

    /* Called for an error reply, or with NULL for each request when no connection could be made.
     * Returns true to take the request over from the session; it must not fail the request. Or
     * NULL. */
    bool (*on_refusal)(void *context, hf_request *request, const char *error, hf_time now);
    void *context;         /* for the callbacks */
    uint64_t opens;        /* how many connections were made */
    uint64_t replies_seen; /* how many replies have come */
};

/* Makes a closed session. `config` and `random` must outlive it. */
void hf_session_init(hf_session *session, const hf_session_config *config, uint64_t *random);
/* Frees the session's memory. It must have no requests. */
void hf_session_free(hf_session *session);

/* Sends the request, now or when there is a connection. Calls `done` from a later feed, closed or
 * tick, or from here when out of memory. */
void hf_session_submit(hf_session *session, hf_request *request, hf_time now);

/* Does the same for a request that another session had before, over which it may have been run. */
void hf_session_adopt(hf_session *session, hf_request *request, hf_time now);

/* Fails a request that is in no session. */
void hf_request_fail(hf_request *request, hf_code code, const char *reason, hf_time now);

/* Tries to connect now if requests are waiting for a connection, however often that failed. */
void hf_session_retry_now(hf_session *session, hf_time now);

/* Takes the request from its session, if it has one, without calling `done`; a reply that still
 * comes is ignored. */
void hf_session_drop(hf_request *request);

/* Drops the request. If its reply is still to come, `heir` gets the reply and the bytes; the caller
 * sets the heir's `done`. Returns false if no reply is to come. */
bool hf_session_inherit(hf_request *heir, hf_request *request);

/* Appends a subscriber's command; only while READY. Returns false when out of memory. */
bool hf_session_send(hf_session *session, size_t count, const hf_slice *args);

/* Sends the command along with the next request, and ignores its reply. Returns false if the
 * session is not READY, or when out of memory. It is dropped with the connection. */
bool hf_session_send_along(hf_session *session, const hf_request *request);

/* Puts the commands that are sent along into the output, although there is no next request. They
 * remain where they are when out of memory. */
void hf_session_flush_along(hf_session *session, hf_time now);

/* Forgets the server: from now on another one is that of this closed session without requests. */
void hf_session_forget(hf_session *session);

/* Closes a connection to a server with another id than node_id, which has changed. */
void hf_session_identify(hf_session *session);

/* Gives up an open connection over which no reply came in time. */
void hf_session_abort(hf_session *session, hf_time now);

/* Notes that another connection to the server was given up, on which it had been silent since
 * `since`. If something has come over this connection since then, it works; otherwise the server
 * has to answer a PING soon. */
void hf_session_doubt(hf_session *session, hf_time since, hf_time now);

/* Makes the connection doubtful without a PING, for a client that is closed: it must not delay the
 * end for long. */
void hf_session_hurry(hf_session *session);

/* Sends a PING over a READY connection, which is given up if the server stays silent. Returns false
 * when out of memory. */
bool hf_session_ping(hf_session *session, hf_time now);

/* Returns until when a doubtful connection may take for its reply; 0: it is not doubtful, or
 * awaits none. */
hf_time hf_session_doubtful_until(const hf_session *session);

/* The next three are for a session that follows a master. */

/* Notes that the address is known; the session must be closed. */
void hf_session_resolve(hf_session *session);

/* Closes the connection, because the address has changed. */
void hf_session_move(hf_session *session, hf_time now);

/* Fails the requests that may not wait for a connection, because the address is not known. */
void hf_session_fail_pending(hf_session *session, hf_code code, const char *reason, hf_time now);

/* Returns when the session needs to be resolved; HF_NEVER: not before something changes. */
hf_time hf_session_resolve_at(const hf_session *session);

/* Fails every request. After that the session may be freed. */
void hf_session_fail_all(hf_session *session, hf_code code, const char *reason, hf_time now);

/* Returns the code of the reason for which there is no connection: HF_DENIED if the server refused
 * the log-in, else HF_UNREACHABLE. */
hf_code hf_session_refuses(const hf_session *session);

/* Returns whether the server process has run for at least `guard`: this client has known its run id
 * for this time by its own clock, or another client has, and left its mark on the server. The
 * server's clock does not count. */
bool hf_session_is_known(const hf_session *session, hf_time guard, hf_time now);

/* Leaves the mark for other clients; call it only while the server is known. */
void hf_session_vouch(hf_session *session, hf_time now);

/* Returns the next time at which hf_session_tick has something to do, or hf_session_wants may
 * change. */
hf_time hf_session_deadline(const hf_session *session);
void hf_session_tick(hf_session *session, hf_time now);

#endif
