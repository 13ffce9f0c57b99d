/* How an operation failed: a code for programs, a text for people.
 *
 * The text is always terminated, at most HF_FAILURE_TEXT - 1 bytes, and printable, whatever bytes
 * the key or the server's reply has. */
#ifndef HF_FAILURE_H
#define HF_FAILURE_H

#include "base/types.h"

/* X(NAME, name): in the enum, and in Lua */
#define HF_CODE_LIST(X)                                                                            \
    X(OK, ok)                                                                                      \
    X(BUSY, busy)               /* another owner has the lock, the wait is over */                 \
    X(UNREACHABLE, unreachable) /* no usable answer in time, or a refusal that passes */           \
    X(LOST, lost)               /* it was held and is gone */                                      \
    X(NOT_HELD, not_held)       /* this owner does not hold it */                                  \
    X(INTERRUPTED, interrupted) /* a signal ended an interruptible wait */                         \
    X(CONFLICT, conflict)       /* the key, its counter or its queue is not a lock's */            \
    X(DENIED, denied)           /* password, ACL or a read-only server */                          \
    X(NO_QUORUM, no_quorum)                                                                        \
    X(DUPLICATE, duplicate) /* it was done already */                                              \
    X(MISMATCH, mismatch)   /* the same key with another request */                                \
    X(CLOSED, closed)       /* the client was closed */                                            \
    X(SERVER, server)       /* any other error reply */                                            \
    X(DEADLOCK, deadlock)   /* it waited for itself, directly or through others */                 \
    X(TIMEOUT, timeout)     /* what was waited for has not happened */                             \
    X(STALE, stale) /* a later holder of the lock has written; this write was not carried out */   \
    X(NO_MEMORY, no_memory)

#define HF_CODE_ENTRY(NAME, name) HF_##NAME,
typedef enum hf_code { HF_CODE_LIST(HF_CODE_ENTRY) HF_CODES } hf_code;
#undef HF_CODE_ENTRY

/* Returns the code's name in Lua, for example "busy". */
const char *hf_code_name(hf_code code);

#define HF_FAILURE_TEXT 640

typedef struct hf_failure {
    hf_code code;
    char text[HF_FAILURE_TEXT];
} hf_failure;

/* Sets `cannot <verb> "<key>" on <server>: <detail>`, and appends advice for the code. `detail` is
 * a format of printf.
 */
void hf_failure_set(hf_failure *failure, hf_code code, const char *verb, hf_slice key,
                    const char *server, const char *detail, ...)
    __attribute__((format(printf, 6, 7)));

/* Returns the code for an error reply ("NOPERM this user …"). */
hf_code hf_code_of_error(const char *error);

/* Returns whether the server refused to write because it is a replica, also inside a script. */
bool hf_error_is_readonly(const char *error);

typedef enum hf_refusal {
    HF_REFUSAL_FINAL,
    HF_REFUSAL_AWAY,      /* the server serves nobody now; in a cluster another node may */
    HF_REFUSAL_BUSY,      /* it runs a long script */
    HF_REFUSAL_OF_WRITES, /* it serves reads only, maybe for long */
    HF_REFUSAL_OF_USER    /* the password or a right is missing */
} hf_refusal;

/* Returns how the server refused a command by this error reply; it has executed nothing of it. */
hf_refusal hf_refusal_of(const char *error);

/* Returns whether the same command may succeed later. `accepted`: it is about something that the
 * server accepted before (a hold, a place in a queue, a permit, a run), so its user had the rights:
 * the rights are being changed. At a first attempt a missing right is final. */
bool hf_refusal_may_pass(hf_refusal refusal, bool accepted);

/* Returns whether a call that failed with this code may succeed later. `accepted` as above. */
bool hf_code_may_pass(hf_code code, bool accepted);

#endif
