/* The wire format of locks: the keys, arguments and replies of each program, queue members, and the
 * messages between clients. Only wire.c depends on it, except that some operations read simple
 * replies themselves. docs/reference/protocol.md specifies the format.
 *
 * A function that encodes a command returns false when out of memory. Times are in nanoseconds
 * here, and in milliseconds on the wire. */
#ifndef HF_WIRE_H
#define HF_WIRE_H

#include "base/request.h"
#include "lock/kind.h"
#include "lock/names.h"

#define HF_NO_TEXT ((hf_slice){"", 0})

/* ---- one lock ---- */

/* The keys and arguments shared by all programs that act on one lock. */
typedef struct hf_wire_lock {
    const hf_kind *kind;
    const hf_names *names;
    hf_slice owner;
    hf_time grant_lease; /* the lease of the next owner, if the lock is granted to one */
} hf_wire_lock;

typedef struct hf_wire_acquire {
    uint32_t holds_before; /* the owner's count of holds before this acquire */
    bool shared;           /* other processes may use the owner */
    hf_time lease;
    uint64_t token_ttl_ms; /* as in hf_op_spec */
    hf_slice waiter;       /* the queue member; empty if the acquire does not wait */
    hf_slice fingerprint;  /* the fingerprint of a guard's request; otherwise empty */
    uint64_t token_floor;  /* the smallest acceptable token, or 0 */
    uint64_t permits;      /* the total of a semaphore that does not exist yet, or 0 */
    hf_slice writer;       /* read lock: the owner of the same caller's write lock, or empty */
} hf_wire_acquire;

bool hf_wire_acquire_call(hf_request *request, const hf_wire_lock *lock,
                          const hf_wire_acquire *acquire);

#define HF_WIRE_NOT_SHARED UINT32_MAX /* for `own_holds`: only this process uses the owner */
#define HF_WIRE_ONLY_IF_HELD_ONCE                                                                  \
    (UINT32_MAX - 1) /* for `own_holds`: free the lock only if it is held once */

/* Encode a release, and the clean-up of a wait. `holds_left` is how many of the owner's holds
 * remain; for a shared owner, `own_holds` is used instead: how many to release. `granted` is the
 * queue member of an unconfirmed grant of a read/write lock or of permits, or empty. */
bool hf_wire_release(hf_request *request, const hf_wire_lock *lock, uint32_t holds_left,
                     hf_time lease, uint32_t own_holds, hf_slice granted);
bool hf_wire_leave(hf_request *request, const hf_wire_lock *lock, uint32_t holds_left,
                   hf_slice waiter, uint32_t own_holds);

/* Encodes the command that sets a semaphore's number of permits. */
bool hf_wire_set_permits(hf_request *request, const hf_wire_lock *lock, uint64_t value);

/* Encodes a guard's release, which leaves the result as a record for `record_ttl`. If that is 0,
 * there is no record. */
bool hf_wire_complete(hf_request *request, const hf_wire_lock *lock, hf_time record_ttl,
                      hf_slice fingerprint, hf_slice result);

/* Encodes a forced release of the lock if `holder` holds it, or if `holder` is empty. */
bool hf_wire_force(hf_request *request, const hf_wire_lock *lock, hf_slice holder);

/* Encodes the command that sets the lease, but does not shorten a TTL of more than
 * `max_ttl_to_shorten_ms`, which may be HF_WIRE_ANY_TTL. With a lease of 0 it only checks the
 * owner. `waiter` is the queue member that was granted the lock, or empty. */
#define HF_WIRE_ANY_TTL UINT64_MAX
bool hf_wire_extend(hf_request *request, const hf_wire_lock *lock, hf_time lease,
                    uint64_t max_ttl_to_shorten_ms, hf_slice waiter);

/* Encode the commands that read a lock, read its TTL, ping the server, and raise a fencing counter.
 * `asker` is the client's uuid, or the waiter that asks, "<uuid>:<number>". */
bool hf_wire_info(hf_request *request, const hf_kind *kind, const hf_names *names,
                  const char *asker);
bool hf_wire_ttl(hf_request *request, const hf_names *names);
bool hf_wire_ping(hf_request *request);
bool hf_wire_raise_counter(hf_request *request, const hf_names *names, uint64_t token_floor,
                           uint64_t token_ttl_ms);

/* ---- fences and schedules ---- */

/* Returns whether this reply of a fence's program says that the commands have run. The second
 * element of the reply is then a string that contains their replies. */
bool hf_wire_is_fence_accepted(const hf_reply *reply);

/* Returns whether this is a reply of the program that records runs: three numbers and a record. */
bool hf_wire_is_run(const hf_reply *reply);

/* ---- kinds without holders ---- */

/* Encodes a call of the verb's program. The lock's owner identifies the call. The server keeps a
 * note of the call for `note_ttl`; until then, a call that runs again counts only once. `ends_turn`
 * is true only for an acquire: a client of Redisson's has released a permit during Redisson's turn,
 * so the turn ends. */
bool hf_wire_call_with_note(hf_request *request, const hf_wire_lock *lock, hf_verb verb,
                            long long amount, hf_time note_ttl, bool ends_turn);

#define HF_WIRE_NOTE_TTL (3600 * HF_SECOND) /* for a call whose reply was lost */

/* Encodes the command that deletes the note of a call that will not be sent again. */
bool hf_wire_forget_note(hf_request *request, const hf_wire_lock *lock);

/* Encodes the command that reads the number at the key. */
bool hf_wire_get_count(hf_request *request, const hf_names *names);

/* Reads the reply to hf_wire_get_count into `*count`, or 0 if the key does not exist. Returns false
 * if the value is not an integer by the programs' rules: csrc/programs/base/read_integer.lua. */
bool hf_wire_read_count(const hf_reply *reply, long long *count);

/* ---- several locks ---- */

#define HF_RENEWALS_MAX 100 /* the maximum number of locks in one renewal */

/* Encodes a renewal of `count` locks of one kind, at most HF_RENEWALS_MAX. */
bool hf_wire_renew(hf_request *request, const hf_kind *kind, size_t count, const hf_slice *keys,
                   const hf_slice *owners, const hf_time *leases);

/* Encodes a renewal for a kind with `has_permits`, which stores its leases in separate keys. */
bool hf_wire_renew_permits(hf_request *request, const hf_kind *kind, size_t count,
                           const hf_slice *keys, const hf_slice *owners, const hf_time *leases);

typedef struct hf_wire_batch_lock {
    const hf_names *names;
    hf_slice owner;
    uint32_t holds; /* acquire: the owner's count before; release: its count afterwards */
    hf_time lease;  /* release: the lease of the holds that remain */
} hf_wire_batch_lock;

/* Encode an acquire and a release of `count` locks of one kind, which must have these programs. */
bool hf_wire_acquire_all(hf_request *request, const hf_kind *kind, size_t count,
                         const hf_wire_batch_lock *locks, hf_time grant_lease, hf_time lease,
                         uint64_t token_ttl_ms);
bool hf_wire_release_all(hf_request *request, const hf_kind *kind, size_t count,
                         const hf_wire_batch_lock *locks, hf_time grant_lease);

/* ---- replies ---- */

/* What a program's reply means. */
typedef enum hf_verdict {
    HF_VERDICT_YES,          /* acquired, extended, renewed, freed or released */
    HF_VERDICT_BUSY,         /* another owner holds the lock; leave: nothing was released */
    HF_VERDICT_STILL_HELD,   /* release: more holds are left; acquire: another process holds it */
    HF_VERDICT_NEEDS_LEAVE,  /* freed, but a leave must evict dead waiters or report the record to
                                others */
    HF_VERDICT_ALREADY_DONE, /* an earlier run left its record */
    HF_VERDICT_MISMATCH,     /* the key has a different fingerprint */
    HF_VERDICT_DELETED,      /* the hold is lost: the key does not exist */
    HF_VERDICT_TAKEN,        /* the hold is lost: another owner holds the lock */
    HF_VERDICT_NO_TTL,       /* the key has no TTL, so it is not a lock */
    HF_VERDICT_NEWER_FORMAT, /* the first waiter has a newer format */
    HF_VERDICT_TOO_MANY,     /* more permits were requested than the semaphore's total */
    HF_VERDICT_OTHER_KIND,   /* a lock of another kind has the key */
    HF_VERDICT_UNEXPECTED    /* no program sends this reply */
} hf_verdict;

typedef struct hf_acquire_reply {
    hf_verdict verdict;
    long long number;     /* YES: the token; STILL_HELD: the owner's count; TOO_MANY: the total */
    long long others;     /* YES: the server's earlier count minus hf_wire_acquire.holds_before */
    long long server_us;  /* YES: the server's clock in microseconds; 0 if not given */
    long long last_token; /* YES: the end of the token range reserved for an owner that keeps the
                             lock, otherwise 0 */
    long long ttl_ms;     /* BUSY: what is left of the holder's lease; negative if it has no end */
    long long ahead;      /* BUSY: how many waiters are ahead of this one */
    bool holder_is_foreign;      /* BUSY: the holder will not hand the lock over */
    bool keeper_is_unreachable;  /* BUSY: the client that keeps the lock cannot be asked for it */
    long long passed_over_in_ms; /* BUSY: when the first waiter is passed over; -1 if unknown */
    hf_slice place;              /* BUSY: this waiter's place, a part of the reply; or empty */
    hf_slice record;             /* ALREADY_DONE: the record, a part of the reply */
    const char *found;           /* OTHER_KIND: what the key contains, for messages; a constant */
} hf_acquire_reply;

/* Reads the reply to an acquire, which asked for a fencing token if `fenced`. A token that no
 * program issues makes the reply UNEXPECTED. The answer points into the reply. */
hf_acquire_reply hf_wire_read_acquire(const hf_reply *reply, bool fenced);

/* Reads the reply to an acquire of several locks. If the verdict is not YES, sets `*i` to the
 * 1-based index of the lock that caused it, or to 0. Sets `*found` as in hf_acquire_reply. */
hf_verdict hf_wire_read_acquire_all(const hf_reply *reply, long long *i, const char **found);

/* Returns the token of lock `i`, counted from 0. The reply must be a YES. */
uint64_t hf_wire_token_at(const hf_reply *reply, size_t i);

/* Read the reply to release, leave, complete, force and extend, or element `i` of the reply to
 * renew and release_all. */
hf_verdict hf_wire_read_verdict(const hf_reply *reply);
hf_verdict hf_wire_read_verdict_at(const hf_reply *reply, size_t i);

/* Reads the reply to hf_wire_info. Missing elements are read as if the lock were free. */
void hf_wire_read_info(const hf_reply *reply, hf_lock_info *info);

/* ---- owners, members and messages ---- */

/* Writes "<client uuid>:<number>" and the kind's suffix, and returns the size in bytes. */
#define HF_OWNER_SIZE (HF_UUID_SIZE + 32)
size_t hf_wire_owner(char text[HF_OWNER_SIZE], const hf_kind *kind, const char *uuid,
                     uint64_t number);

/* Writes the owner that keeps a lock, "<client uuid>:0<number>", and returns the size in bytes. */
size_t hf_wire_keeping_owner(char text[HF_OWNER_SIZE], const char *uuid, uint64_t number);

/* Return whether this owner, which must not be shared, has several permits, and whether it keeps a
 * lock. */
bool hf_wire_owner_has_permits(const hf_kind *kind, hf_slice owner);
bool hf_wire_owner_keeps(hf_slice owner);

/* Writes the owner of permits, "<client uuid>:<number>", followed by "*<permits>" if there are
 * several, and returns the size in bytes. `text` must have room for HF_PERMITS_OWNER_SIZE bytes. */
#define HF_PERMITS_OWNER_SIZE (HF_UUID_SIZE + 48)
size_t hf_wire_permits_owner(char *text, const char *uuid, uint64_t number, uint32_t permits);

/* Writes "1<kind><client uuid>:<number>:<token ttl ms>[ <shared owner>]" and returns the size in
 * bytes. `text` must have room for HF_WAITER_SIZE bytes. `keeps`: the number belongs to an owner
 * that keeps the lock. `shared_owner` is empty if the owner is not shared. */
#define HF_WAITER_SIZE (HF_UUID_SIZE + 64 + HF_OWNER_MAX)
size_t hf_wire_waiter(char *text, const hf_kind *kind, const char *uuid, uint64_t number,
                      uint64_t token_ttl_ms, bool keeps, hf_slice shared_owner);

typedef enum hf_message_type {
    HF_MESSAGE_NONE,    /* the format is wrong, or unknown to this version */
    HF_MESSAGE_GRANT,   /* the lock is granted to the waiter */
    HF_MESSAGE_WINDOW,  /* a release leaves the lock to Redisson's waiters for `delay` */
    HF_MESSAGE_RECHECK, /* the waiter must ask again after `delay` */
    HF_MESSAGE_WANTED   /* others want a lock that this client keeps */
} hf_message_type;

typedef struct hf_message {
    hf_message_type type;
    uint64_t number; /* the waiter's number; WANTED: the owner's number */
    bool keeps;      /* GRANT: the owner keeps the lock */
    hf_time delay;   /* WINDOW, RECHECK: how long to wait */

    /* The other fields are set only for a GRANT. */
    const hf_kind *kind;
    hf_slice place, key; /* the waiter's queue place, and the lock's key */
    uint64_t token;      /* the fencing token, or 0 */
    uint64_t last_token; /* the end of the range reserved for an owner that keeps the lock, or 0 */
    hf_time lease;       /* the granted lease */
    uint64_t more;       /* how many other waiters are granted the lock by this message */
    hf_slice other_waiters; /* the numbers and places of those waiters */
} hf_message;

/* Reads a message. The result points into `text`. */
hf_message hf_wire_read_message(hf_slice text);

/* Advances the grant to the next waiter. Returns false if there is no other waiter. */
bool hf_wire_next_grant(hf_message *grant);

#endif
