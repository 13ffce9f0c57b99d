/* The parts that acquires and calls on holds share, for one lock or several: they find or add the
 * caller's hold, mark its command in flight, and take the lock once the server has granted it. */
#ifndef HF_TAKING_H
#define HF_TAKING_H

#include "interfaces.h"

/* What the server's reply or message says about a hold that it has granted. */
typedef struct hf_taken_hold {
    uint32_t count; /* the server's count of the owner's holds from now on */
    hf_time since;  /* when the command that got the lock was sent, or when its grant arrived */
    hf_time end;    /* the end of the hold's validity */
    uint64_t token; /* the fencing token, or 0 */
} hf_taken_hold;

/* Returns the caller's hold of the operation's kind on this key, or NULL; first marks it LOST if it
 * is no longer valid. Adds no reference. */
hf_hold *hf_op_find_hold(const hf_op *op, hf_slice key, hf_time now);

/* Removes a lost hold from the table, so that an acquire can add a new one. The renewer may still
 * have to clean up what that hold left on the server: see hf_holds_find_leaving. */
void hf_op_drop_lost(const hf_op *op, hf_hold *hold, hf_time now);

/* Adds a hold of this lock with the spec's caller, owner and permits. Returns NULL when out of
 * memory. */
hf_hold *hf_op_add_hold(const hf_op *op, hf_slice key);

/* Called when a command for the hold is sent: marks the hold's claim as in flight. */
void hf_op_mark_command_in_flight(hf_op *op, hf_hold *hold);

/* Adds an entry to the hold, which must be ACQUIRING or HELD, and makes it HELD. The hold is valid
 * until max_until at most. */
void hf_op_take(hf_op *op, hf_hold *hold, const hf_taken_hold *taken);

/* Removes a hold that has ended, and its claim, from the table. Resumes the operations that were
 * waiting for the claim's command. */
void hf_op_drop_hold(hf_op *op, hf_hold *hold, hf_time now);

#endif
