/* Declarations shared by the binding's files.
 *
 * A userdata is created empty, gets its metatable, and is then filled, so an error in between leaks
 * nothing. The functions called from Lua expect arguments checked by lua/holdfast, and raise an
 * error for others. They return nil, message, code on failure, and raise when out of memory. */
#ifndef HF_BINDING_H
#define HF_BINDING_H

#include "compat.h"
#include "posix/driver.h"

/* The highest number of a coroutine, 2^53: up to there, Lua's numbers are exact. */
#define HF_MAX_COROUTINE_NUMBER 9007199254740992.0

/* The types of holdfast's userdata: the address identifies the type, and the string is its name. */
extern const char hf_client_type[], hf_lock_type[], hf_permit_type[], hf_op_type[],
    hf_template_type[], hf_watchdog_type[];

typedef struct hf_lua_client {
    hf_driver *driver;    /* referenced; NULL only until the userdata is filled */
    uint64_t losses_seen; /* hf_client_loss_count at the last call of has_losses */
} hf_lua_client;

/* Returns the driver of the client at `index`. Raises if the client was garbage-collected. */
hf_driver *hf_check_driver(lua_State *L, int index);

/* Returns the driver of the external client at index 1. Raises for any other client. */
hf_driver *hf_check_external(lua_State *L);

/* Pushes a field of the table at `index`. Calls no metamethod, which could free values that the
 * calling function uses, or return a string to which nothing else refers. */
void hf_push_field(lua_State *L, int index, const char *name);

/* Returns a field of the table at `index` as a number, or 0 if it is not a number. */
double hf_field_number(lua_State *L, int index, const char *name);

/* Returns a number field as an integer: see hf_to_integer. */
uint64_t hf_field_integer(lua_State *L, int index, const char *name, uint64_t max);

/* Returns whether a field is neither nil nor false. */
bool hf_field_boolean(lua_State *L, int index, const char *name);

/* Returns a string field, which is valid while the table contains it, and sets `size` to its length
 * in bytes. Returns NULL if the field is not a string. */
const char *hf_field_string(lua_State *L, int index, const char *name, size_t *size);

/* Each sets a field of the table on top of the stack. A count is exact at least up to 2^53. */
void hf_set_string(lua_State *L, const char *name, hf_slice value);
void hf_set_flag(lua_State *L, const char *name, bool value);
void hf_set_number(lua_State *L, const char *name, double value);
void hf_set_count(lua_State *L, const char *name, uint64_t value);

/* Returns the string at `index`, valid while it is on the stack. Raises if there is none. */
hf_slice hf_check_slice(lua_State *L, int index);

/* Returns the number at `index`. Raises unless it is between 0 and `max`. */
lua_Number hf_check_within(lua_State *L, int index, lua_Number max);

/* Returns the integer at `index`. Raises unless it is between `min` and `max`. */
lua_Integer hf_check_integer(lua_State *L, int index, lua_Integer min, lua_Integer max);

/* Rounds the number down to an integer and clamps it to the range 0 to `max`. Returns 0 for NaN. */
uint64_t hf_to_integer(double number, uint64_t max);

/* Pushes nil, message, code. Returns 3, the number of results. Raises an error for HF_NO_MEMORY. */
int hf_push_error(lua_State *L, hf_code code, const char *message);

/* Pushes the reply as a Lua value, and frees it. Returns the number of results. */
int hf_push_reply(lua_State *L, hf_reply *reply);

/* Converts seconds to nanoseconds. Returns HF_NEVER if the time is infinite or does not fit. */
hf_time hf_to_time(double seconds);

/* Converts a time to seconds. */
double hf_to_seconds(hf_time time);

/* Runs the operation until it is done; the caller ends it with hf_op_end. A signal ends the wait of
 * an interruptible acquire. If a signal handler sets a debug hook, as that of the lua program does
 * on Ctrl-C, every wait ends. Returns NULL when out of memory. */
hf_op *hf_run_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec, bool interruptible);

/* Runs two operations, which have begun, until one is done. A signal or a hook ends only the first
 * one's wait. */
void hf_run_both(lua_State *L, hf_driver *driver, hf_op *op, const hf_op *other,
                 bool interruptible);

/* Raises an error if the call comes from the function that is fetching the client's credentials,
 * because it would wait for itself. */
void hf_check_not_fetching(lua_State *L, const hf_driver *driver);

/* An hf_driver.fetch that calls the function stored by hf_set_credentials_function in the Lua state
 * that runs the operation. */
hf_fetch_credentials hf_fetch_from_lua;

/* Stores the function that fetches a client's credentials. Expects the client on top of the stack,
 * and the function just below it. The function is called with the server's label and whether the
 * last credentials were refused. It returns user and password, or nil, a reason, and whether the
 * function itself is at fault. */
void hf_set_credentials_function(lua_State *L, const hf_driver *driver);

/* Calls hf_driver_fetch_credentials between enter and leave. */
void hf_log_in(lua_State *L, hf_driver *driver);

/* Calls hf_driver_send for the Lua state. */
hf_op *hf_send_op(lua_State *L, hf_driver *driver, const hf_op_spec *spec);

/* A program that clears package.loaded opens the module again. Each copy has its own metatables, so
 * that older objects keep their methods, but recognises the objects of all copies. */

/* Creates the table of metatables for a new copy of the module. */
void hf_open_types(lua_State *L);

/* Returns the userdata at `index`, or NULL if it is not of that type. */
void *hf_testudata(lua_State *L, int index, const char *type);

/* Returns the userdata at `index`. Raises if it is not of that type. */
void *hf_checkudata(lua_State *L, int index, const char *type);

/* Pushes a new zero-filled userdata of that type, and returns it. Only functions registered by
 * hf_set_functions may call it. */
void *hf_new_object(lua_State *L, size_t size, const char *type);

/* Creates this copy's metatable for that type with these metamethods, and pushes it. */
void hf_new_type(lua_State *L, const char *type, const luaL_Reg *metamethods);

/* Adds functions of this copy to the table on top of the stack. */
void hf_set_functions(lua_State *L, const luaL_Reg *functions);

/* Adds one function of this copy, with this number as its second upvalue. */
void hf_set_numbered(lua_State *L, const char *name, lua_CFunction function, int number);

/* Pushes the registry's value for this address. */
void hf_push_registry(lua_State *L, const void *key);

/* Sets the registry's value for this address to the value on top of the stack, and pops it. */
void hf_set_registry(lua_State *L, const void *key);

/* Pushes the registry's table for this address, which is created as a weak table of this mode, "k"
 * or "v". */
void hf_push_weak_table(lua_State *L, const void *key, const char *mode);

/* Adds methods to the type whose metatable is on top of the stack. Only for objects that users
 * never see. */
void hf_new_methods(lua_State *L, const luaL_Reg *methods);

/* observer.c: functions to be added to the client's functions */
extern const luaL_Reg hf_client_observer[];

/* Each of these adds one file's functions to the module's table on top of the stack. */
void hf_open_client(lua_State *L);
void hf_open_lock(lua_State *L);
void hf_open_calls(lua_State *L); /* after the lock */
void hf_open_operations(lua_State *L);
void hf_open_watchdog(lua_State *L);
void hf_open_engine(lua_State *L);
void hf_open_template(lua_State *L);
void hf_open_wire(lua_State *L);

#endif
