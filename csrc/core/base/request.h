/* A command that gets one reply. If replicas must confirm it, a WAIT follows the command; the reply
 * to the WAIT sets `confirmed`.
 *
 * Commands must be safe to resend unless marked `no_retry`: after losing its connection, the
 * session resends them until their deadlines. Commands marked `fails_on_disconnect` are not resent
 * either, although that would be safe, because their senders prefer to ask another server.
 *
 * The request owns its bytes. The caller owns the request, which must not move in memory until it
 * is done or dropped. */
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

/* Called when the request is done. `reply` belongs to the session; it is NULL if the request
 * failed, for the reason in `failure`. The session no longer uses the request. The function may
 * free or resubmit the request, submit others, or close the session. */
typedef void hf_request_done(hf_request *request, const hf_reply *reply, hf_time now);

/* How a request gets to one of several nodes. Only link/cluster.c uses this, except for
 * `context_is_op`. */
typedef struct hf_routing {
    hf_session *failed_link; /* the link that last failed to open for it, or NULL */
    uint64_t map_round; /* with `needs_map`: the round of map requests in which it began to wait */
    uint16_t slot;      /* the hash slot of its key */
    uint8_t link;       /* the hf_link over which it is sent */
    uint8_t redirects;  /* how many redirections in a row it has followed */
    bool routed;        /* it follows its slot from node to node */
    bool context_is_op; /* the request's `context` is an hf_op */
    bool needs_map;     /* it is waiting for a new map */
} hf_routing;

/* The owner sets `done`, `context` and `deadline` before sending, and may set `resend_until`,
 * `waits_for_connection`, `accepted`, `no_retry` and `fails_on_disconnect`. The functions below and
 * the session set the rest. */
struct hf_request {
    hf_request *next;    /* the next request in the session's queue */
    hf_session *session; /* its current or last session, or NULL */
    hf_request_done *done;
    void *context;             /* for use by `done` */
    char *bytes;               /* the encoded command, owned by the request */
    size_t size;               /* the size of `bytes` */
    const hf_program *program; /* the program that it calls, or NULL for a plain command */
    hf_time deadline;          /* the request fails at this time */
    hf_time sent_at;           /* just before it was last sent; leases count from this time */
    hf_time retry_at;          /* when to send it again after a transient error; 0 for at once */

    /* While the server refuses it for a transient reason, it is resent until this time. 0 means
     * until `deadline`, but not at all if the server refuses only writes. */
    hf_time resend_until;

    uint32_t refusals;      /* consecutive transient refusals; 0 if the last reply was not one */
    uint64_t reply_index;   /* once sent: the number of its reply in the session */
    uint64_t connection;    /* once sent: the number of the session's connection */
    uint32_t possible_runs; /* how many times the server may have run it */
    hf_request_state state;

    /* It waits for a connection until its deadline. Otherwise, it fails as soon as an attempt to
     * connect fails. */
    bool waits_for_connection;

    bool accepted; /* its hold, place or run was accepted before: see hf_refusal_is_transient */
    bool no_retry; /* it fails if its connection ends after it was sent */
    bool
        fails_on_disconnect; /* it fails then, too: its sender asks again, or asks another server */
    bool as_eval;            /* the program's source is sent, because the server does not have it */
    uint32_t replicas;  /* how many replicas must confirm it; unless 0, its bytes end with a WAIT */
    uint32_t confirmed; /* once done: how many replicas have confirmed it */
    hf_reply *reply;    /* the command's reply, while the reply to its WAIT is awaited */
    bool needs_new_connection; /* a replica refused it, or a server that forgot the log-in */
    bool asking;               /* an ASKING is sent before it */
    hf_routing routing;        /* unused with a single server, except `context_is_op` */
    hf_fault failure; /* the code and the reason, to which operations add the key and the server */
};

/* Encodes a plain command. Returns false when out of memory. */
bool hf_request_command(hf_request *request, size_t count, const hf_slice *args);

/* Encodes a call of the program. The first `keys` of the `count` arguments are keys. Returns false
 * when out of memory. */
bool hf_request_call(hf_request *request, const hf_program *program, size_t keys, size_t count,
                     const hf_slice *args);

/* Turns an encoded call into a call of another program with the same arguments. */
void hf_request_use_program(hf_request *request, const hf_program *program);

/* Appends a WAIT to the encoded command, so that at least `replicas` (1 or more) replicas must
 * confirm it within `timeout`. Returns false when out of memory. */
bool hf_request_confirm(hf_request *request, uint32_t replicas, hf_time timeout);

/* Returns whether enough replicas have confirmed the request, which must be done. */
bool hf_request_is_confirmed(const hf_request *request);

/* Moves the command to `to`, which must own nothing. `from` keeps its failure; the caller must make
 * its session use `to` instead. */
void hf_request_move(hf_request *to, hf_request *from);

/* Frees the request's bytes and the text of its failure. The request must not be in a session. */
void hf_request_clear(hf_request *request);

#endif
