/* What acquires and calls on holds have in common, for one lock or several: they find or add the
 * caller's hold, mark its command in flight, and take the lock once the server has given it. */
#ifndef HF_TAKING_H
#define HF_TAKING_H

#include "interfaces.h"

/* What the server has given. */
typedef struct hf_taken {
    uint32_t count; /* the server's count of the owner's holds from now on */
    hf_time since;  /* when the command that got the lock was sent, or the grant came */
    hf_time end;    /* when its validity ends */
    uint64_t token; /* the fencing token, or 0 */
} hf_taken;

/* Returns the caller's hold of the operation's kind on this key, or NULL. It is LOST if it is no
 * longer valid. Adds no reference. */
hf_hold *hf_op_find_hold(const hf_op *op, hf_slice key, hf_time now);

/* Makes room for a new hold of an acquire: the lost hold leaves the table. The renewer may still
 * have to clean up what that hold left on the server: see hf_holds_find_leaving. */
void hf_op_replace_lost(const hf_op *op, hf_hold *hold, hf_time now);

/* Adds a hold of this lock for the operation's caller, as the spec says. Returns NULL when out of
 * memory. */
hf_hold *hf_op_add_hold(const hf_op *op, hf_slice key);

/* Notes that the operation sends a command for the hold, for which none is in flight. */
void hf_op_mark_in_flight(hf_op *op, hf_hold *hold);

/* Adds an entry to the hold, which must be ACQUIRING or HELD, and makes it HELD. The hold is valid
 * until max_until at most. */
void hf_op_take(hf_op *op, hf_hold *hold, const hf_taken *taken);

/* Removes the hold, which the server has released, and its claim from the table. Operations that
 * waited for the command continue. */
void hf_op_drop_hold(hf_op *op, hf_hold *hold, hf_time now);

#endif
