/* One command that gets one reply, or one with a WAIT behind it, whose reply is counted in
 * `confirmed`.
 *
 * A command may be sent twice unless it is marked `no_retry`: after a lost connection the session
 * sends it again until its deadline. One that asks elsewhere may be, but its sender would rather
 * ask another server. The bytes belong to the request. The caller owns the request,
 * which does not move in memory until it is done or dropped. */
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

/* Called when the request is done. `reply` is NULL when it failed, for the reason in `failure`. The
 * session does not use the request any more. */
typedef void hf_request_done(hf_request *request, const hf_reply *reply, hf_time now);

/* How a request gets to one of several nodes. Only link/cluster.c uses it. */
typedef struct hf_routing {
    hf_session *down;  /* the link that could not be made for it; NULL: none */
    uint64_t round;    /* waits for a map since then */
    uint16_t slot;     /* of its key */
    uint8_t link;      /* the hf_link it goes over */
    uint8_t redirects; /* in a row */
    bool routed;       /* goes where its slot is */
    bool of_op;        /* its context is the operation */
    bool needs_map;    /* waits for a new one */
} hf_routing;

struct hf_request {
    hf_request *next;    /* in the session's queue */
    hf_session *session; /* the present or last one; NULL: none yet */
    hf_request_done *done;
    void *context;
    char *bytes;
    size_t size;
    const hf_program *program; /* NULL: a plain command */
    hf_time deadline;
    hf_time sent_at;        /* just before the last sending; a lease counts from here */
    hf_time retry_at;       /* after a passing error; 0: at once */
    hf_time persists_until; /* until when it is sent again while the server refuses it in passing;
                               0: until `deadline`, and not at all if it only refuses writes */
    uint32_t refusals;      /* in a row, that pass; 0: its last answer was none */
    uint64_t reply_index;   /* place among the replies awaited over that connection of the session,
                               once sent */
    uint64_t opens;         /* … the number of that connection */
    uint32_t sends;         /* that the server may have carried out */
    hf_request_state state;
    bool waits_for_connection; /* waits for a connection until its deadline instead of failing with
                                  the first refusal */
    bool accepted;             /* about what the server accepted before: hf_refusal_may_pass */
    bool no_retry;             /* fails with the connection it was sent over */
    bool asks_elsewhere;       /* likewise, as its sender then asks another server */
    bool as_eval;              /* send the program's text: the server does not know it yet */
    uint32_t replicas;         /* that are to confirm it: its bytes end with a WAIT; 0: none */
    uint32_t confirmed;        /* how many have, when it is done */
    hf_reply *reply;           /* the command's, while that of its WAIT is awaited */
    bool sent_back;     /* a replica refused it: it has gone, or goes, over a new connection */
    bool asking;        /* goes behind an ASKING */
    hf_routing routing; /* unused with a single server */
    hf_failure failure; /* code and bare reason; the operation adds key and server */
};

/* Encodes a plain command. Returns false when out of memory. */
bool hf_request_command(hf_request *request, size_t count, const hf_slice *args);

/* Encodes a call of the program; the first `keys` of the `count` arguments are keys. Returns false
 * when out of memory. */
bool hf_request_call(hf_request *request, const hf_program *program, size_t keys, size_t count,
                     const hf_slice *args);

/* Changes an encoded call into one of another program. */
void hf_request_use(hf_request *request, const hf_program *program);

/* Makes `replicas` of the server's replicas confirm the encoded command within `timeout`: a WAIT
 * follows it over the same connection. Returns false when out of memory. */
bool hf_request_confirm(hf_request *request, uint32_t replicas, hf_time timeout);

/* Returns whether all the replicas that were asked for have confirmed a request that is done. */
bool hf_request_is_confirmed(const hf_request *request);

/* Frees the bytes; the request must not be in a session. */
void hf_request_clear(hf_request *request);

#endif
