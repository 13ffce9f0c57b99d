/* What each acquire and each call on a hold does with its caller's holds, whether it is about one
 * lock or several: it finds or adds the hold, marks its command in flight, and takes the lock once
 * the server has given it. */
#ifndef HF_TAKING_H
#define HF_TAKING_H

#include "interfaces.h"

/* What the server has given. */
typedef struct hf_taken {
    uint32_t count; /* the server's count of the owner's holds from now on */
    hf_time since;  /* when the command that got the lock was sent, or the grant came */
    hf_time end;    /* until when it is valid */
    uint64_t token; /* the fencing token, or 0 */
} hf_taken;

/* Returns the caller's hold of the operation's kind on this key, or NULL. It is LOST if it is no
 * longer valid. Adds no reference. */
hf_hold *hf_op_find_hold(const hf_op *op, hf_slice key, hf_time now);

/* Does the same for an acquire: a lost hold leaves the table. The renewer may still have to clean
 * up what that hold left on the server; then the hold that does so is returned. */
hf_hold *hf_op_find_hold_to_enter(const hf_op *op, hf_slice key, hf_time now);

/* Adds a hold of this lock for the operation's caller, as the spec says. Returns NULL when out of
 * memory. */
hf_hold *hf_op_add_hold(const hf_op *op, hf_slice key);

/* Notes that the operation sends a command for the hold, for which none is in flight. */
void hf_op_mark_in_flight(hf_op *op, hf_hold *hold);

/* Adds an entry to the hold, which must be ACQUIRING or HELD, and makes it HELD. The lease counts
 * for no longer than the hold's max_until. */
void hf_op_take(hf_op *op, hf_hold *hold, const hf_taken *taken);

#endif
