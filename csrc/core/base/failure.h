/* How an operation failed: a code for programs, a message for people.
 *
 * The message is always terminated, printable, and at most HF_FAILURE_TEXT_SIZE - 1 bytes long,
 * whatever bytes the key or the server's reply contains. */
#ifndef HF_FAILURE_H
#define HF_FAILURE_H

#include "base/types.h"

/* X(name in the enum, name in Lua) */
#define HF_CODE_LIST(X)                                                                            \
    X(OK, ok)                                                                                      \
    X(BUSY, busy)               /* another owner holds the lock, and the wait has ended */         \
    X(UNREACHABLE, unreachable) /* no usable reply in time, or a transient refusal */              \
    X(LOST, lost)               /* the lock was held, but no longer is */                          \
    X(NOT_HELD, not_held)       /* this owner does not hold the lock */                            \
    X(INTERRUPTED, interrupted) /* a signal ended an interruptible wait */                         \
    X(CONFLICT, conflict)       /* the key, its counter or its queue is not part of a lock */      \
    X(DENIED, denied)           /* wrong password, missing permission or read-only server */       \
    X(NO_QUORUM, no_quorum)                                                                        \
    X(DUPLICATE, duplicate) /* the work was already done */                                        \
    X(MISMATCH, mismatch)   /* the key was used with a different request */                        \
    X(CLOSED, closed)       /* the client was closed */                                            \
    X(SERVER, server)       /* any other error reply */                                            \
    X(DEADLOCK, deadlock)   /* the caller waits for itself, perhaps through others */              \
    X(TIMEOUT, timeout)     /* what the caller waited for did not happen in time */                \
    X(STALE, stale) /* a later holder of the lock has written, so this write was refused */        \
    X(NO_MEMORY, no_memory)

#define HF_CODE_ENTRY(NAME, name) HF_##NAME,
typedef enum hf_code { HF_CODE_LIST(HF_CODE_ENTRY) HF_CODES } hf_code;
#undef HF_CODE_ENTRY

/* Returns the code's name in Lua, for example "busy". */
const char *hf_code_name(hf_code code);

#define HF_FAILURE_TEXT_SIZE 640

typedef struct hf_failure {
    hf_code code;
    char text[HF_FAILURE_TEXT_SIZE];
} hf_failure;

/* A failure as requests and operations store it, using only as much memory as its text needs. An
 * all-zero struct means no failure. */
typedef struct hf_fault {
    hf_code code;
    char *text; /* owned, at most HF_FAILURE_TEXT_SIZE - 1 bytes; NULL if empty, or when out of
                   memory */
} hf_fault;

/* Sets the code, and replaces the text with a copy of this one. */
void hf_fault_set(hf_fault *fault, hf_code code, const char *text);

/* Returns the text, or the code's name if there was no memory for the text; "" for no failure. */
const char *hf_fault_text(const hf_fault *fault);

/* Frees the text. The code remains. */
void hf_fault_free(hf_fault *fault);

/* Sets `cannot <verb> "<key>" on <server>: <detail>`, without `"<key>"` if the key is empty, and
 * appends advice for the code. `detail` is a printf format. */
void hf_failure_set(hf_failure *failure, hf_code code, const char *verb, hf_slice key,
                    const char *server, const char *detail, ...)
    __attribute__((format(printf, 6, 7)));

/* Returns the code for an error reply, such as "NOPERM this user …". */
hf_code hf_code_of_error(const char *error);

/* Returns whether the server refused a write, perhaps of a script, because it is a replica. */
bool hf_error_is_readonly(const char *error);

typedef enum hf_refusal {
    HF_REFUSAL_FINAL,
    HF_REFUSAL_UNAVAILABLE, /* this node cannot run the command now, but another may */
    HF_REFUSAL_BUSY,        /* the server is running a long script */
    HF_REFUSAL_OF_WRITES,   /* the server accepts only reads, perhaps for a long time */
    HF_REFUSAL_OF_USER      /* a missing permission or wrong password */
} hf_refusal;

/* Classifies an error reply. Unless it is FINAL, the server has run no part of the command, except
 * that a missing permission may have stopped a program midway. */
hf_refusal hf_refusal_of(const char *error);

/* Returns whether the same command may succeed later. `accepted`: the server has already
 * accepted the hold, queue place, permit or run that the command is about. The user had the
 * permissions then, so a missing permission is assumed to be temporary; at a first attempt, it is
 * final. */
bool hf_refusal_is_transient(hf_refusal refusal, bool accepted);

/* Returns whether a call that failed with this code may succeed later. `accepted` has the same
 * meaning as in hf_refusal_is_transient. */
bool hf_code_is_transient(hf_code code, bool accepted);

#endif
