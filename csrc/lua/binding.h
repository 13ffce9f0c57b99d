/* What the files of the binding share.
 *
 * A userdata is created empty, gets its metatable, and is then filled, so an error in between leaks
 * nothing. The functions called from Lua expect arguments that lua/holdfast has checked, and raise
 * for others. They fail with nil, message, code, and raise an error when out of memory. */
#ifndef HF_BINDING_H
#define HF_BINDING_H

#include "compat.h"
#include "posix/driver.h"

/* The greatest number of a coroutine, 2^53: Lua's numbers are exact up to there. */
#define HF_MAX_CALLERS 9007199254740992.0

/* The types of holdfast's userdata. The address identifies the type, and the text is its name. */
extern const char hf_client_type[], hf_lock_type[], hf_permit_type[], hf_op_type[],
    hf_template_type[], hf_watchdog_type[];

typedef struct hf_lua_client {
    hf_driver *driver;    /* referenced; NULL only until the userdata is filled */
    uint64_t losses_seen; /* hf_client_losses when the client was last asked for losses */
} hf_lua_client;

/* Returns the driver of the client at `index`. Raises if the client was collected. */
hf_driver *hf_check_driver(lua_State *L, int index);

/* Returns the driver of the client at index 1. Raises unless Lua moves that client's bytes. */
hf_driver *hf_check_external(lua_State *L);

/* Pushes a field of the table at `index`. It calls no metamethod: one could free what the calling
 * function uses, or return a string that nothing keeps alive. */
void hf_push_field(lua_State *L, int index, const char *name);

/* Returns a field of the table at `index` as a number; 0 if it is not a number. */
double hf_field_number(lua_State *L, int index, const char *name);

/* Returns a number field, converted by hf_to_whole. */
uint64_t hf_field_whole(lua_State *L, int index, const char *name, uint64_t max);

/* Returns whether a field is neither nil nor false. */
bool hf_field_boolean(lua_State *L, int index, const char *name);

/* Returns a string field, which lives as long as the table has it, and sets `size` to its length in
 * bytes. Returns NULL if the field is not a string. */
const char *hf_field_text(lua_State *L, int index, const char *name, size_t *size);

/* Returns the number at `index`. Raises unless it is from 0 to `max`. */
lua_Number hf_check_within(lua_State *L, int index, lua_Number max);

/* Returns the whole number at `index`. Raises unless it is from `min` to `max`. */
lua_Integer hf_check_whole(lua_State *L, int index, lua_Integer min, lua_Integer max);

/* Returns the number rounded down to a whole one, limited to 0 to `max`; 0 for NaN. */
uint64_t hf_to_whole(double number, uint64_t max);

/* Pushes nil, message, code. Returns 3, the number of results. Raises an error for HF_NO_MEMORY. */
int hf_push_failure(lua_State *L, const hf_failure *failure);

/* Pushes the reply as a Lua value, and frees it. Returns the number of results. */
int hf_push_reply(lua_State *L, hf_reply *reply);

/* Converts seconds to a time in nanoseconds; HF_NEVER if that is too long or infinite. */
hf_time hf_to_time(double seconds);

/* Converts a time to seconds. */
double hf_to_seconds(hf_time time);

/* Runs the operation for the Lua state until it is done; the caller ends it with hf_op_end. A
 * signal ends the wait of an interruptible acquire. A hook that a signal handler has set, as lua
 * does on Ctrl-C, ends every wait. Returns NULL when out of memory. */
hf_op *hf_run_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec, bool interruptible);

/* Runs two operations that have begun until one of them is done. A signal or a hook ends only the
 * wait for the first. */
void hf_run_both(lua_State *L, hf_driver *driver, hf_op *op, const hf_op *other,
                 bool interruptible);

/* Raises an error if the call comes from the function that is fetching the client's credentials,
 * because it would wait for itself. */
void hf_check_not_fetching(lua_State *L, const hf_driver *driver);

/* For hf_driver.fetch: calls the function that hf_keep_credentials has stored, in the Lua state
 * that runs the operation. */
hf_fetch_credentials hf_fetch_from_lua;

/* Makes the client on top of the stack fetch its credentials from the function below it. The
 * function is called with the server's label and whether the last credentials were refused. It
 * returns user and password, or nil, a reason, and whether the function itself is at fault. */
void hf_keep_credentials(lua_State *L, const hf_driver *driver);

/* Enters the driver, calls hf_driver_fetch_credentials, and leaves it. */
void hf_log_in(lua_State *L, hf_driver *driver);

/* Calls hf_driver_send for the Lua state. */
hf_op *hf_send_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec);

/* A program that clears package.loaded opens the module again. Each copy has its own metatables, so
 * that older objects keep their methods; every copy knows the types of all. */

/* Begins a new copy of the module. */
void hf_open_types(lua_State *L);

/* Returns the userdata at `index`, or NULL if it is not of that type. */
void *hf_testudata(lua_State *L, int index, const char *type);

/* Returns the userdata at `index`. Raises if it is not of that type. */
void *hf_checkudata(lua_State *L, int index, const char *type);

/* Pushes a new userdata of `size` zero bytes of that type, and returns it. Only functions set by
 * hf_set_functions may call it. */
void *hf_new_object(lua_State *L, size_t size, const char *type);

/* Creates this copy's metatable of that type with these metamethods, and pushes it. */
void hf_new_type(lua_State *L, const char *type, const luaL_Reg *metamethods);

/* Adds functions of this copy to the table on top of the stack. */
void hf_set_functions(lua_State *L, const luaL_Reg *functions);

/* Adds one function of this copy, with this number as its second upvalue. */
void hf_set_numbered(lua_State *L, const char *name, lua_CFunction function, int number);

/* Pushes the registry's value for this address. */
void hf_push_registry(lua_State *L, const void *key);

/* Sets the registry's value for this address to what is on top of the stack, and pops it. */
void hf_set_registry(lua_State *L, const void *key);

/* Adds these methods to the type whose metatable is on top of the stack. Only for objects that
 * users never see. */
void hf_new_methods(lua_State *L, const luaL_Reg *methods);

/* Each adds its functions to the table on top of the stack: hf_open_observer to the client's
 * functions, hf_open_calls to the lock's functions, all others to the module. */
void hf_open_observer(lua_State *L);
void hf_open_calls(lua_State *L);
void hf_open_client(lua_State *L);
void hf_open_lock(lua_State *L);
void hf_open_operations(lua_State *L);
void hf_open_watchdog(lua_State *L);
void hf_open_engine(lua_State *L);
void hf_open_template(lua_State *L);
void hf_open_wire(lua_State *L);

#endif
