/* One operation of the core for Lua, on one lock or atomically on several locks of one client.
 *
 * With the blocking driver, it begins and ends within one call, on the C stack. With an external
 * driver or an event loop, and to run two operations at once, it is a userdata: Lua begins it,
 * drives the client until it is done, and finishes it. If Lua never finishes it, the garbage
 * collector abandons it. */
#ifndef HF_LUA_OP_H
#define HF_LUA_OP_H

#include "lock.h"

typedef struct hf_lua_op {
    hf_op_kind kind;
    uint64_t ticket;        /* its number in Lua, kept when the operation is reused; at first 0 */
    hf_op *op;              /* NULL if it has not begun, or is finished */
    uint32_t generation;    /* the driver's generation when the operation began */
    bool finished;          /* its result was returned, or it was abandoned */
    size_t count;           /* the number of locks that take part */
    size_t lost;            /* the number of other given locks, whose holds had been lost before */
    hf_lua_lock *first;     /* the first of all given locks */
    hf_lua_lock **locks;    /* the locks that take part */
    const hf_names **names; /* their names; NULL for an operation on one lock */
    caller_buffer caller;   /* the spec's caller points here */
} hf_lua_op;

/* Raises an error if the client does not support the call: an external client, or one of an event
 * loop, allows only begin and finish; any other client only calls that block. */
void hf_lua_op_check_driver(lua_State *L, const hf_driver *driver, bool blocks);

/* Pushes a new operation with room for `count` locks, and returns it. */
hf_lua_op *hf_lua_op_new(lua_State *L, size_t count);

/* Pushes the operation at `index` for another use, and returns it. Raises unless it is a finished
 * operation on one lock. */
hf_lua_op *hf_lua_op_reuse(lua_State *L, int index);

/* Keeps the value at `index` alive until the operation on top of the stack is finished. `slot`: 1
 * to 3; 1 is for the lock, or the list of locks. */
void hf_lua_op_anchor(lua_State *L, int slot, int index);

/* Locks the mutex for a call about the locks in `locks`. Returns false in the child of a fork if
 * the operation began before the fork: it belongs to the parent, and its memory is not used
 * again. */
bool hf_lua_op_enter(const hf_lua_op *self);

/* Sets the fields of the spec that depend on the locks and on the calling coroutine's number. Call
 * it between enter and leave. */
void hf_lua_op_fill_spec(hf_op_spec *spec, hf_lua_op *self, lua_Number coroutine);

/* Runs the operation, leaves the driver, and pushes the results of the call. The lock is at stack
 * index 1. */
int hf_lua_op_run(lua_State *L, hf_lua_op *self, hf_op_spec *spec);

/* Begins the operation, which is on top of the stack, leaves the driver, and pushes the operation's
 * number, 0 if no lock takes part, and whether it is done. Returns 3. */
int hf_lua_op_begin(lua_State *L, hf_lua_op *self, const hf_op_spec *spec);

#endif
