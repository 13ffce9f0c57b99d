/* One connection to one server: log in, send, match replies, connect again.
 *
 * A session that follows a master is not opened before somebody has said, each time anew, where the master is
 * (hf_session_locate), asks the server for its role when it logs in, and keeps what a server that is none refuses.
 *
 * The driver owns the socket: it opens one when the session wants it, writes what hf_session_output gives, feeds what
 * it reads, and tells when the socket is gone. Replies come in the order of the commands: replies[first_slot ..] are
 * the requests whose replies are awaited, in order; a dropped request leaves an empty place there.
 *
 * A subscriber session speaks pub/sub: after the log-in every reply is an event for `on_event`. */
#ifndef HF_SESSION_H
#define HF_SESSION_H

#include "buffer.h"
#include "request.h"
#include "url.h"

typedef enum hf_session_state {
    HF_SESSION_CLOSED,  /* no socket */
    HF_SESSION_OPENING, /* the driver connects */
    HF_SESSION_LOGIN,   /* AUTH, SELECT, CLIENT SETNAME await their replies */
    HF_SESSION_READY
} hf_session_state;

typedef enum hf_want { HF_WANT_NOTHING, HF_WANT_OPEN, HF_WANT_CLOSE } hf_want;

typedef struct hf_session_config {
    hf_server server;
    char name[128]; /* for CLIENT SETNAME, "": none */
    hf_time connect_timeout;
    bool asks_uptime;        /* at the log-in: server_since */
    hf_time command_timeout; /* a server silent for so long is given up */
} hf_session_config;

struct hf_session {
    const hf_session_config *config;
    const hf_server *server; /* that of the configuration, unless set to another */
    size_t max_elements;     /* of a reply */
    hf_session_state state;
    bool subscriber;
    bool wanted;         /* be connected even without requests */
    bool closing;        /* the driver is to close the socket; `reason` says why */
    bool agreeing;       /* while opening: the socket is connected, TLS is not there yet */
    bool heard;          /* the server has said something over this connection */
    bool follows_master; /* its server is a master that may move */
    bool unlocated;      /* the server's address is to be confirmed before the next opening */
    hf_buffer output;
    hf_reader reader;
    hf_request *queue, **queue_end; /* to be sent, in order */
    hf_request **replies;
    size_t replies_capacity; /* a power of two */
    uint64_t first_slot, next_slot;
    size_t login_said, login_left;                           /* commands of the log-in; replies still to come */
    size_t login_auth, login_select, login_role, login_info; /* their places among them, SIZE_MAX: not said */
    hf_time opened_at, retry_at, heard_at;
    hf_time server_since;   /* the server runs since then or longer, if that is asked for */
    hf_time awaiting_since; /* when the first of the replies awaited was asked for */
    uint32_t vain_opens;    /* attempts since the server last served us */
    uint64_t *random;
    hf_code reason_code;
    char reason[160];
    void (*on_ready)(void *context, hf_time now);
    void (*on_event)(void *context, const hf_reply *event, hf_time now);
    void (*on_closed)(void *context, hf_time now);
    /* For an error reply, or with NULL for each request when no connection could be made: true takes the request over,
     * which is then no more the session's. It must not fail it. NULL: nobody does. */
    bool (*on_refusal)(void *context, hf_request *request, const char *error, hf_time now);
    void *context;
    uint64_t opens; /* connections made, for statistics */
};

void hf_session_init(hf_session *session, const hf_session_config *config, uint64_t *random);
void hf_session_free(hf_session *session);

/* Takes the request; `done` is called from a later feed, closed or tick, or from here when memory is out. */
void hf_session_submit(hf_session *session, hf_request *request, hf_time now);

/* The same for a request that another session had before: it may have been carried out there. */
void hf_session_adopt(hf_session *session, hf_request *request, hf_time now);

/* Fails a request that is in no session. */
void hf_request_fail(hf_request *request, hf_code code, const char *reason, hf_time now);

/* A connection that requests wait for is tried now, however often it failed. */
void hf_session_hasten(hf_session *session, hf_time now);

/* The session that has the request, if any, forgets it without calling `done`; a reply that still comes is ignored. */
void hf_session_drop(hf_request *request);

/* Drops the request. If its reply is still to come, the heir gets that and the bytes, and is to set its own `done`;
 * false: none is to come. */
bool hf_session_inherit(hf_request *heir, hf_request *request);

/* Appends bytes of a subscriber's command; only while ready. False when out of memory. */
bool hf_session_say(hf_session *session, size_t count, const hf_slice *args);

/* What the driver should do with its socket now. */
hf_want hf_session_wants(const hf_session *session, hf_time now);

/* The driver has begun to connect; has a socket over which TLS is to be agreed; is connected; has lost or closed the
 * socket (reason: a short text; NULL: the server closed it). */
void hf_session_opening(hf_session *session, hf_time now);
void hf_session_agreeing(hf_session *session);
void hf_session_opened(hf_session *session, hf_time now);
void hf_session_closed(hf_session *session, const char *reason, hf_time now);

/* Of a closed session without requests: its server is another one from now on. */
void hf_session_forget(hf_session *session);

/* An open connection over which no reply came in time is given up. */
void hf_session_distrust(hf_session *session);

/* Of a session that follows a master. It must not be open to be located; one that is to move closes what is open; a
 * refusal says that nobody knows where the master is, which ends what cannot wait. */
void hf_session_locate(hf_session *session);
void hf_session_move(hf_session *session, hf_time now);
void hf_session_refuse(hf_session *session, hf_code code, const char *reason, hf_time now);

/* When it needs to be located, HF_NEVER: not before something changes. */
hf_time hf_session_locate_at(const hf_session *session);

/* Fails every request; after it the session may be freed. */
void hf_session_fail_all(hf_session *session, hf_code code, const char *reason, hf_time now);

/* True while a request waits to be sent or for its reply. */
bool hf_session_has_work(const hf_session *session);

hf_slice hf_session_output(const hf_session *session);
void hf_session_written(hf_session *session, size_t size);
void hf_session_feed(hf_session *session, const char *bytes, size_t size, hf_time now);

/* The next time at which hf_session_tick has something to do, or the wants may change. */
hf_time hf_session_deadline(const hf_session *session);
void hf_session_tick(hf_session *session, hf_time now);

#endif
