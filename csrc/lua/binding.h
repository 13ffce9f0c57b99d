/* Between the files of the binding.
 *
 * Userdata are made empty, given their metatable, then filled: an error in between leaks nothing. The functions here
 * take arguments that lua/holdfast has checked; they fail with nil, message, code. Failing to allocate raises. */
#ifndef HF_BINDING_H
#define HF_BINDING_H

#include "../posix/driver.h"
#include "compat.h"

#define HF_CLIENT_TYPE "holdfast.client"
#define HF_LOCK_TYPE "holdfast.lock"
#define HF_OP_TYPE "holdfast.operation"
#define HF_OP_ALL_TYPE "holdfast.operation_of_all"
#define HF_TEMPLATE_TYPE "holdfast.one_by_one"
#define HF_WATCHDOG_TYPE "holdfast.watchdog"

typedef struct hf_lua_client {
    hf_driver *driver; /* NULL only until it is filled */
    uint64_t news_seen;
} hf_lua_client;

/* Raises for a client that was collected. */
hf_driver *hf_check_driver(lua_State *L, int index);

/* nil, message, code. */
int hf_push_failure(lua_State *L, const hf_failure *failure);

/* Seconds to nanoseconds; infinity and whatever is too long is HF_NEVER. */
hf_time hf_to_time(double seconds);
double hf_to_seconds(hf_time time);

/* Runs the operation for the Lua state: a signal ends the wait of an interruptible acquire, and a hook that a signal
 * handler has set (as lua's own does on Ctrl-C) that of any. NULL: out of memory. */
hf_op *hf_run_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec, bool interruptible);

/* A new userdata of `size` zero bytes with the metatable `type`. */
void *hf_new_object(lua_State *L, size_t size, const char *type);

/* Makes the metatable `type` with these metamethods; leaves it on the stack. */
void hf_new_type(lua_State *L, const char *type, const luaL_Reg *metamethods);

void hf_open_client(lua_State *L); /* adds to the module table on top */
void hf_open_lock(lua_State *L);
void hf_open_watchdog(lua_State *L);
void hf_open_engine(lua_State *L);
void hf_open_template(lua_State *L);

#endif
