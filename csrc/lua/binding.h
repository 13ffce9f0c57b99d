/* What the files of the binding share.
 *
 * A userdata is made empty, gets its metatable, and is then filled, so an error in between leaks
 * nothing. The functions called from Lua get arguments that lua/holdfast has checked, and
 * raise for others. They fail with nil, message, code, and raise an error when out of memory. */
#ifndef HF_BINDING_H
#define HF_BINDING_H

#include "compat.h"
#include "posix/driver.h"

#define HF_MOST_CALLERS 9007199254740992.0 /* 2^53 */

/* The types of our userdata, by address: their names. */
extern const char hf_client_type[], hf_lock_type[], hf_permit_type[], hf_op_type[],
    hf_template_type[], hf_watchdog_type[];

typedef struct hf_lua_client {
    hf_driver *driver; /* NULL only until it is filled */
    uint64_t losses_seen;
} hf_lua_client;

/* Returns the driver of the client at `index`. Raises if the client was collected. */
hf_driver *hf_check_driver(lua_State *L, int index);

/* Returns the driver of the client at index 1. Raises if that client has sockets of its own. */
hf_driver *hf_check_external(lua_State *L);

/* Pushes a field of the table at `index`. It calls no metamethod: that could end what the calling
 * function uses, or give a string that nothing keeps. */
void hf_push_field(lua_State *L, int index, const char *name);

/* Return a field of the table at `index`: a number, 0 if it is none; a whole number from 0 to
 * `most`, the nearest one if it is not; whether it is true; a string that the table keeps, NULL if
 * it is none. */
double hf_field_number(lua_State *L, int index, const char *name);
uint64_t hf_field_whole(lua_State *L, int index, const char *name, uint64_t most);
bool hf_field_boolean(lua_State *L, int index, const char *name);
const char *hf_field_text(lua_State *L, int index, const char *name, size_t *size);

/* Return the number at `index`. Raise unless it is from 0 to `most`; a whole one from `least`. */
lua_Number hf_check_within(lua_State *L, int index, lua_Number most);
lua_Integer hf_check_whole(lua_State *L, int index, lua_Integer least, lua_Integer most);

/* Returns the nearest whole number from 0 to `most`; 0 for what is no number. */
uint64_t hf_to_whole(double number, uint64_t most);

/* Pushes nil, message, code. */
int hf_push_failure(lua_State *L, const hf_failure *failure);

/* Pushes the reply as a Lua value, and frees it. */
int hf_push_reply(lua_State *L, hf_reply *reply);

/* Converts seconds to nanoseconds; a time that is too long, or infinite, is HF_NEVER. */
hf_time hf_to_time(double seconds);
double hf_to_seconds(hf_time time);

/* Runs the operation for the Lua state. A signal ends the wait of an interruptible acquire; a hook
 * that a signal handler has set, as lua does on Ctrl-C, ends the wait of any. Returns NULL when out
 * of memory. */
hf_op *hf_run_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec, bool interruptible);

/* Raises in the middle of the function that fetches the client's credentials: it cannot wait for
 * itself. */
void hf_check_not_fetching(lua_State *L, const hf_driver *driver);

/* For hf_driver.fetch: calls the function of the client with this driver (hf_keep_credentials) in
 * the Lua state that runs the operation. */
hf_fetch_credentials hf_fetch_from_lua;

/* The client on top of the stack has its credentials from the function below it, which is called
 * with the server's label and whether the last ones were refused, and returns user, password | nil,
 * why there are none, whether the function is at fault. */
void hf_keep_credentials(lua_State *L, const hf_driver *driver);

/* As hf_driver_log_in, but the driver is not entered yet. */
void hf_log_in(lua_State *L, hf_driver *driver);

/* As hf_driver_send. */
hf_op *hf_send_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec);

/* A program that clears package.loaded opens the module again. Each copy has its own metatables, so
 * that older objects keep their methods; all copies know all types. */

/* Begins a new copy. */
void hf_open_types(lua_State *L);

/* Returns the userdata at `index` if it is of that type, else NULL; the second one raises. */
void *hf_testudata(lua_State *L, int index, const char *type);
void *hf_checkudata(lua_State *L, int index, const char *type);

/* Pushes a new userdata of `size` zero bytes of that type, and returns it. Only for functions of
 * hf_set_functions. */
void *hf_new_object(lua_State *L, size_t size, const char *type);

/* Makes the copy's metatable of that type with these metamethods; leaves it on the stack. */
void hf_new_type(lua_State *L, const char *type, const luaL_Reg *metamethods);

/* Adds functions of this copy to the table on top. */
void hf_set_functions(lua_State *L, const luaL_Reg *functions);
/* Adds one of them that finds this number at its second upvalue. */
void hf_set_numbered(lua_State *L, const char *name, lua_CFunction function, int number);

/* Pushes what is at this address in the registry. */
void hf_push_registry(lua_State *L, const void *key);
/* Puts what is on top there, and pops it. */
void hf_set_registry(lua_State *L, const void *key);

/* Adds these methods to the type whose metatable is on top, for objects that only holdfast uses. */
void hf_new_methods(lua_State *L, const luaL_Reg *methods);

void hf_open_observer(lua_State *L); /* adds to the table of the client's functions on top */
void hf_open_client(lua_State *L);   /* adds to the module table on top */
void hf_open_lock(lua_State *L);
void hf_open_calls(lua_State *L); /* adds to the table of the lock's functions on top */
void hf_open_operations(lua_State *L);
void hf_open_watchdog(lua_State *L);
void hf_open_engine(lua_State *L);
void hf_open_template(lua_State *L);
void hf_open_wire(lua_State *L);

#endif
