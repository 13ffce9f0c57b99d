/* One command that gets one reply. If replicas are to confirm it, a WAIT follows it, whose reply is
 * counted in `confirmed`.
 *
 * A command may be sent twice unless it is marked `no_retry`: after a lost connection the session
 * sends it again until its deadline. One that is marked `asks_elsewhere` is not sent again either,
 * although that would be harmless, because its sender would rather ask another server.
 *
 * The bytes belong to the request. The caller owns the request, which does not move in memory until
 * it is done or dropped. */
#ifndef HF_REQUEST_H
#define HF_REQUEST_H

#include "base/failure.h"
#include "base/programs.h"
#include "base/reply.h"

typedef enum hf_request_state {
    HF_REQUEST_IDLE,
    HF_REQUEST_QUEUED,
    HF_REQUEST_SENT,
    HF_REQUEST_DONE
} hf_request_state;

typedef struct hf_request hf_request;
typedef struct hf_session hf_session;

/* Called when the request is done. `reply` belongs to the session, and is NULL when the request has
 * failed, for the reason in `failure`. The session does not use the request any more. */
typedef void hf_request_done(hf_request *request, const hf_reply *reply, hf_time now);

/* How a request gets to one of several nodes. Only link/cluster.c uses it, except for
 * `context_is_op`. */
typedef struct hf_routing {
    hf_session *failed_link; /* the last link that could not be opened for it, or NULL */
    uint64_t map_round;      /* with `needs_map`: the count of maps when it began to wait for one */
    uint16_t slot;           /* the hash slot of its key */
    uint8_t link;            /* the hf_link over which it goes */
    uint8_t redirects;       /* how many redirections it has followed in a row */
    bool routed;             /* it follows its slot from node to node */
    bool context_is_op;      /* its context is an hf_op */
    bool needs_map;          /* it waits for a new map */
} hf_routing;

/* Its owner sets `done`, `context` and `deadline` before it is sent, and may set
 * `persists_until`, `waits_for_connection`, `accepted`, `no_retry` and `asks_elsewhere`. The
 * session sets the rest. */
struct hf_request {
    hf_request *next;    /* the next one in the session's queue */
    hf_session *session; /* the session that has it, or had it last; NULL: none yet */
    hf_request_done *done;
    void *context;             /* for `done` */
    char *bytes;               /* the encoded command, owned by the request */
    size_t size;               /* of `bytes` */
    const hf_program *program; /* the program that it calls; NULL: a plain command */
    hf_time deadline;          /* it fails then */
    hf_time sent_at;           /* just before it was last sent; a lease counts from here */
    hf_time retry_at;          /* when it may be sent again after a transient error; 0: at once */

    /* Until when it is sent again while the server refuses it for a transient reason. 0: until
     * `deadline`, but not at all if the server refuses only writes. */
    hf_time persists_until;

    uint32_t refusals;    /* transient refusals in a row; 0: its last reply was not one */
    uint64_t reply_index; /* once sent: the number of its reply among those of the session */
    uint64_t opens;       /* once sent: the number of the session's connection */
    uint32_t sends;       /* how many times it was sent so that the server may have run it */
    hf_request_state state;

    /* It waits for a connection until its deadline. Otherwise it fails with the first one that
     * cannot be made. */
    bool waits_for_connection;

    bool accepted;       /* it is about what the server accepted before: hf_refusal_may_pass */
    bool no_retry;       /* it fails with the connection over which it was sent */
    bool asks_elsewhere; /* so does this one, whose sender then asks another server */
    bool as_eval;        /* the program's text is sent: the server does not know it yet */
    uint32_t replicas;   /* how many must confirm it: its bytes end with a WAIT; 0: none */
    uint32_t confirmed;  /* once done: how many replicas have confirmed it */
    hf_reply *reply;     /* the command's reply, while that of its WAIT is awaited */
    bool sent_back;      /* a replica refused it, so it is sent over a new connection */
    bool asking;         /* an ASKING is sent before it */
    hf_routing routing;  /* unused with a single server, except for `context_is_op` */
    hf_failure failure;  /* the code and the plain reason; the operation adds key and server */
};

/* Encodes a plain command. Returns false when out of memory. */
bool hf_request_command(hf_request *request, size_t count, const hf_slice *args);

/* Encodes a call of the program; the first `keys` of the `count` arguments are keys. Returns false
 * when out of memory. */
bool hf_request_call(hf_request *request, const hf_program *program, size_t keys, size_t count,
                     const hf_slice *args);

/* Changes an encoded call into a call of another program with the same arguments. */
void hf_request_use(hf_request *request, const hf_program *program);

/* Makes `replicas` of the server's replicas, at least one, confirm the encoded command within
 * `timeout`: a WAIT follows it over the same connection. Returns false when out of memory. */
bool hf_request_confirm(hf_request *request, uint32_t replicas, hf_time timeout);

/* Returns whether all the replicas that were asked for have confirmed a request that is done. */
bool hf_request_is_confirmed(const hf_request *request);

/* Frees the bytes; the request must not be in a session. */
void hf_request_clear(hf_request *request);

#endif
