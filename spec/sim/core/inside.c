#include "inside.h"

#include <string.h>

#include "binding.h"
#include "fields.h"
#include "interfaces.h"

#define HF_NAMES(list) (sizeof(list) / sizeof *(list))

hf_mutant hf_mutant_on;

/* Pushes the operation's kind, and, if operations of its class may wait, its state or that it is
 * done. */
static void push_op(lua_State *L, const hf_op *op) {
    static const char *const states[] = {" begun",       " blocked", " following",  " asking",
                                         " subscribing", " waiting", " cancelling", " queued"};
#define HF_OP_NAME(NAME, name, ...) #name,
    static const char *const kinds[] = {HF_OP_LIST(HF_OP_NAME)};
    _Static_assert(HF_NAMES(states) == HF_ACQUIRE_STATES, "each state has a name");
    const char *state = hf_op_is_done(op) ? " done" : states[op_state(op)];
    lua_pushfstring(L, "op %s%s", kinds[spec_in(op)->kind], impl_of(op)->wait ? state : "");
}

static const char *const hold_states[] = {"acquiring", "held", "lost", "releasing"};
_Static_assert(HF_NAMES(hold_states) == HF_HOLD_STATES, "each state has a name");

/* Pushes the claim, with the state of its hold, if it has one. */
static void push_claim(lua_State *L, hf_claim *claim) {
    hf_hold any = {.claim = claim};
    const hf_hold *hold = hold_of_claim(claim);
    const char *without = is_leaving(claim) ? "leaving" : "standing";
    lua_pushfstring(L, "%s %s%s%s%s%s%s%s", hold ? "hold" : "claim",
                    hold ? hold_states[hold_state(hold)] : without,
                    claim_is_idle(claim) ? " idle" : "", is_granted(&any) ? " granted" : "",
                    is_in_flight(&any) ? " in_flight" : "", is_shared(&any) ? " shared" : "",
                    uses_same_connection(&any) ? " same_connection" : "",
                    is_at_risk(&any) ? " at_risk" : "");
}

/* states(client, list) -> how many: `list` becomes the texts that describe each operation and each
 * hold */
static int l_states(lua_State *L) {
    hf_driver *driver = hf_check_external(L);
    const hf_client *client = driver->client;
    int count = 0;
    luaL_checktype(L, 2, LUA_TTABLE);
    hf_driver_enter(driver);
    for (const hf_op *op = ops_of(client); op; op = next_op(op)) {
        push_op(L, op);
        lua_rawseti(L, 2, ++count);
    }
    for (size_t i = 0; i < hold_count(client); i++) {
        push_claim(L, claim_in_heap(holds_of(client), i));
        lua_rawseti(L, 2, ++count);
    }
    hf_driver_leave(driver);
    lua_pushinteger(L, count);
    return 1;
}

/* steps(legal, taken): `legal` becomes the list of the legal changes of a hold's state, as "from
 * to"; `taken` those that any client's hold has made since the last call */
static void push_steps(lua_State *L, int list, const int *steps) {
    int count = 0;
    luaL_checktype(L, list, LUA_TTABLE);
    for (int from = 0; from < HF_HOLD_STATES; from++) {
        for (int to = 0; to < HF_HOLD_STATES; to++) {
            if (!(steps[from] & 1 << to)) continue;
            lua_pushfstring(L, "%s %s", hold_states[from], hold_states[to]);
            lua_rawseti(L, list, ++count);
        }
    }
    lua_pushnil(L);
    lua_rawseti(L, list, count + 1);
}

static int l_steps(lua_State *L) {
    hf_hold_steps steps = hf_hold_steps_taken();
    push_steps(L, 1, steps.legal);
    push_steps(L, 2, steps.taken);
    return 0;
}

/* mutant(name): turns on only this mutant, or "NONE" */
static int l_mutant(lua_State *L) {
#define HF_MUTANT_NAME(name) #name,
    static const char *const names[] = {HF_MUTANT_LIST(HF_MUTANT_NAME) NULL};
    hf_mutant_on = (hf_mutant)luaL_checkoption(L, 1, NULL, names);
    return 0;
}

/* program(name, sha1, text): replaces the program with this name */
static int l_program(lua_State *L) {
    size_t length;
    const char *text = luaL_checklstring(L, 3, &length);
    lua_pushboolean(
        L, hf_program_replace(luaL_checkstring(L, 1), luaL_checkstring(L, 2), text, length));
    return 1;
}

/* What the simulated host knows about the processes of clients. */
#define MAX_LIVES 64
static struct {
    char uuid[HF_UUID_SIZE + 1];
    hf_life life;
} lives[MAX_LIVES];

static hf_life simulated_life(const char *uuid) {
    for (size_t i = 0; i < MAX_LIVES; i++) {
        if (strcmp(lives[i].uuid, uuid) == 0) return lives[i].life;
    }
    return HF_LIFE_UNKNOWN;
}

/* forget_lives(): makes the host know no process */
static int l_forget_lives(lua_State *L) {
    (void)L;
    memset(lives, 0, sizeof lives);
    return 0;
}

/* tell_life(uuid, ended, job): tells the host whether the process of that client has ended; `job`:
 * with its job */
static int l_tell_life(lua_State *L) {
    const char *uuid = luaL_checkstring(L, 1);
    size_t i = 0;
    while (i < MAX_LIVES && lives[i].uuid[0] && strcmp(lives[i].uuid, uuid) != 0) i++;
    luaL_argcheck(L, i < MAX_LIVES && strlen(uuid) == HF_UUID_SIZE, 1, "too many, or no uuid");
    strcpy(lives[i].uuid, uuid);
    hf_life ended = lua_toboolean(L, 3) ? HF_LIFE_JOB_ENDED : HF_LIFE_ENDED;
    lives[i].life = lua_toboolean(L, 2) ? ended : HF_LIFE_RUNNING;
    return 0;
}

/* see_lives(client): lets its waiters free the locks of processes that have ended */
static int l_see_lives(lua_State *L) {
    hf_check_external(L)->client->config.life = simulated_life;
    return 0;
}

void hf_open_inside(lua_State *L) {
    static const luaL_Reg functions[] = {{"states", l_states},
                                         {"steps", l_steps},
                                         {"mutant", l_mutant},
                                         {"program", l_program},
                                         {"forget_lives", l_forget_lives},
                                         {"tell_life", l_tell_life},
                                         {"see_lives", l_see_lives},
                                         {NULL, NULL}};
    hf_set_functions(L, functions);
}
