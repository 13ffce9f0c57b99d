/* Exposes the core's tables of lock kinds, operations, key names and wire formats to Lua. */
#include "binding.h"

/* kinds: name -> the traits that Lua needs from the kind's row in csrc/core/lock/kind.c.
 * `stepwise`: locks of the kind cannot be acquired atomically. */
static void push_kinds(lua_State *L) {
    lua_newtable(L);
    for (size_t i = 0; hf_kinds[i]; i++) {
        const hf_kind *kind = hf_kinds[i];
        lua_newtable(L);
        hf_set_string(L, "name", hf_slice_of(kind->name));
        hf_set_string(
            L, "channel",
            hf_slice_of(kind->channel_prefix ? kind->channel_prefix : hf_prefix.releases));
        hf_set_flag(L, "has_permits", kind->has_permits);
        hf_set_flag(L, "has_fingerprint", kind->has_fingerprint);
        hf_set_flag(L, "many_owners", kind->many_owners);
        hf_set_flag(L, "may_be_kept", kind->may_be_kept);
        hf_set_flag(L, "uses_list", kind->uses_list);
        hf_set_flag(L, "stepwise", kind->programs[HF_VERB_ACQUIRE_ALL] == 0);
        lua_setfield(L, -2, kind->name);
    }
}

/* prefixes: the prefixes of keys and channels */
static void push_prefixes(lua_State *L) {
    lua_newtable(L);
#define SET(name, text) hf_set_string(L, #name, hf_slice_of(hf_prefix.name));
    HF_PREFIXES(SET)
#undef SET
}

/* names(kind, key) -> { queue, leases }: the names of the keys that belong to a lock */
static int l_names(lua_State *L) {
    const hf_kind *kind = hf_kind_by_name(luaL_checkstring(L, 1));
    luaL_argcheck(L, kind, 1, "no such kind of lock");
    hf_slice key = hf_check_slice(L, 2);
    hf_names *names = hf_newuserdata(L, hf_names_size(kind, key));
    hf_names_fill(names, kind, key);
    lua_newtable(L);
    hf_set_string(L, "queue", names->queue);
    hf_set_string(L, "leases", names->leases);
    return 1;
}

/* key_of_queue(name) -> the key that this queue belongs to, or nil if the name is not a queue's */
static int l_key_of_queue(lua_State *L) {
    hf_slice key = hf_names_key_of_queue(hf_check_slice(L, 1));
    if (key.size == 0) return 0;
    lua_pushlstring(L, key.data, key.size);
    return 1;
}

static int push_waiter(lua_State *L, const hf_waiter *waiter) {
    lua_newtable(L);
    hf_set_string(L, "waiter", waiter->waiter);
    hf_set_string(L, "kind", hf_slice_of(waiter->kind->name));
    return 1;
}

/* read_waiter(member) -> { waiter = "<uuid>:<number>", kind, owner } of a queued waiter; nil for
 * any other string */
static int l_read_waiter(lua_State *L) {
    hf_waiter waiter;
    if (!hf_wire_read_waiter(hf_check_slice(L, 1), &waiter)) return 0;
    push_waiter(L, &waiter);
    hf_set_string(L, "owner", waiter.owner);
    return 1;
}

/* read_wait(value) -> { waiter, kind, key, since } of a published wait; nil for any other string */
static int l_read_wait(lua_State *L) {
    hf_waiter waiter;
    if (!hf_wire_read_wait(hf_check_slice(L, 1), &waiter)) return 0;
    push_waiter(L, &waiter);
    hf_set_string(L, "key", waiter.key);
    hf_set_number(L, "since", (double)waiter.since);
    return 1;
}

/* mask_credentials(message) -> the message with *** in place of all URLs' credentials */
static int l_mask_credentials(lua_State *L) {
    hf_slice message = hf_check_slice(L, 1);
    char *buffer = hf_newuserdata(L, 3 * message.size + 1);
    hf_slice hidden = hf_url_mask_credentials(buffer, 3 * message.size + 1, message);
    lua_pushlstring(L, hidden.data, hidden.size);
    return 1;
}

/* hidden: the first and the last code point of each range of unsafe characters */
static void push_hidden(lua_State *L) {
    int count = 0;
    lua_newtable(L);
    for (const hf_range *range = hf_unsafe_ranges; range->last > 0; range++) {
        lua_pushinteger(L, (lua_Integer)range->first);
        lua_rawseti(L, -2, ++count);
        lua_pushinteger(L, (lua_Integer)range->last);
        lua_rawseti(L, -2, ++count);
    }
}

/* operations: name -> the verb for "cannot <verb> <key>" */
static void push_operations(lua_State *L) {
    lua_newtable(L);
    for (int kind = 0; kind < HF_OP_KINDS; kind++) {
        if (hf_op_rows[kind].number == HF_NUMBER_UNUSED) continue;
        lua_pushstring(L, hf_op_kind_verb((hf_op_kind)kind));
        lua_setfield(L, -2, hf_op_rows[kind].name);
    }
}

/* hold_operations: the set of the operations that acquire, need or end a hold of the caller */
static void push_hold_operations(lua_State *L) {
    lua_newtable(L);
    for (hf_op_kind kind = 0; kind < HF_OP_KINDS; kind++) {
        bool needs_or_ends = hf_op_kind_needs_a_hold(kind) || hf_op_kind_releases(kind);
        if (needs_or_ends || hf_op_kind_acquires(kind)) hf_set_flag(L, hf_op_rows[kind].name, true);
    }
}

void hf_open_wire(lua_State *L) {
    static const luaL_Reg functions[] = {{"names", l_names},
                                         {"key_of_queue", l_key_of_queue},
                                         {"read_waiter", l_read_waiter},
                                         {"read_wait", l_read_wait},
                                         {"mask_credentials", l_mask_credentials},
                                         {NULL, NULL}};
    push_kinds(L);
    lua_setfield(L, -2, "kinds");
    push_operations(L);
    lua_setfield(L, -2, "operations");
    push_hold_operations(L);
    lua_setfield(L, -2, "hold_operations");
    lua_newtable(L);
    hf_set_functions(L, functions);
    push_prefixes(L);
    lua_setfield(L, -2, "prefixes");
    push_hidden(L);
    lua_setfield(L, -2, "hidden");
    hf_set_string(L, "too_large", hf_slice_of(HF_REPLY_TOO_LARGE));
    lua_setfield(L, -2, "wire");
}
