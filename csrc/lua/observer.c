/* Exposes per-class counters and events to Lua. */
#include <errno.h>
#include <stdlib.h>

#include "lock.h"

/* class(client, name) -> the class's number; 0, the client's default class, if there is no room */
static int l_class(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    const char *name = luaL_checkstring(L, 2);
    hf_driver_enter(driver);
    uint16_t class = hf_observe_class(driver->client, name);
    hf_driver_leave(driver);
    lua_pushinteger(L, class);
    return 1;
}

/* Pushes { sum = seconds, count = …, [1] = … }. Each bucket counts the values up to its upper
 * bound; `count` counts all values. */
static void push_histogram(lua_State *L, const hf_histogram *histogram) {
    uint64_t count = 0;
    lua_createtable(L, HF_BUCKETS, 2);
    for (int i = 0; i < HF_BUCKETS; i++) {
        count += histogram->counts[i];
        hf_pushuint64(L, count);
        lua_rawseti(L, -2, i + 1);
    }
    hf_set_count(L, "count", count + histogram->counts[HF_BUCKETS]);
    hf_set_number(L, "sum", hf_to_seconds(histogram->sum));
}

static void push_class(lua_State *L, const hf_class *class) {
    lua_newtable(L);
    hf_set_string(L, "class", hf_slice_of(class->name));
#define SET_COUNTER(name) hf_set_count(L, #name, class->name);
    HF_CLASS_COUNTERS(SET_COUNTER)
    lua_newtable(L);
    for (int code = HF_OK; code < HF_CODES; code++)
        hf_set_count(L, code == HF_OK ? "acquired" : hf_code_name((hf_code)code),
                     class->outcomes[code]);
    lua_setfield(L, -2, "outcomes");
    lua_newtable(L);
    for (int reason = HF_LOST_NONE + 1; reason < HF_LOST_REASONS; reason++)
        hf_set_count(L, hf_lost_reason_name((hf_lost_reason)reason), class->losses[reason]);
    lua_setfield(L, -2, "lost");
    push_histogram(L, &class->waited);
    lua_setfield(L, -2, "waited");
    push_histogram(L, &class->held);
    lua_setfield(L, -2, "held");
    push_histogram(L, &class->round_trips);
    lua_setfield(L, -2, "round_trips");
}

/* classes(client) -> a list of { class, outcomes, lost, waited, held, … } */
static int l_classes(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_class copies[HF_CLASSES_MAX];
    int count = 0;
    hf_driver_enter(driver);
    for (size_t i = 0; i < HF_CLASSES_MAX; i++) {
        const hf_class *class = hf_observe_class_at(driver->client, i);
        if (class) copies[count++] = *class;
    }
    hf_driver_leave(driver);
    lua_newtable(L);
    for (int i = 0; i < count; i++) {
        push_class(L, &copies[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* watch(client): records all events from now on, and reports whether crash release is off */
static int l_watch(lua_State *L) {
    hf_driver *driver = hf_check_driver(L, 1);
    hf_driver_enter(driver);
    hf_observe_all(driver->client);
    bool unsupported = driver->record_error == ENOSYS || driver->record_error == ENOENT;
    if (driver->record_error != 0)
        hf_observe_crash_release_off(driver->client, unsupported ? "unsupported" : "denied");
    driver->record_error = 0;
    hf_driver_leave(driver);
    return 0;
}

static void push_event(lua_State *L, const hf_event *event) {
    lua_newtable(L);
    bool names_server = event->kind == HF_EVENT_OPENED || event->kind == HF_EVENT_CLOSED ||
                        event->kind == HF_EVENT_TENANT_EXPOSED;
    hf_set_string(L, "event", hf_slice_of(hf_event_name(event->kind)));
    hf_set_string(L, names_server ? "server" : "key", event->key);
    if (event->owner.size > 0) hf_set_string(L, "owner", event->owner);
    lua_pushstring(L, event->code); /* NULL becomes nil */
    lua_setfield(L, -2, "code");
    hf_set_string(L, "class", hf_slice_of(event->class));
    if (event->token > 0) hf_set_count(L, "token", event->token);
    if (event->message.size > 0) hf_set_string(L, "message", event->message);
    if (event->has_duration) hf_set_number(L, "seconds", hf_to_seconds(event->duration));
    hf_set_number(L, "observer", (double)event->observer);
}

static int l_push_events(lua_State *L) {
    int count = 0;
    lua_newtable(L);
    for (const hf_event *event = lua_touserdata(L, 1); event; event = event->next) {
        push_event(L, event);
        lua_rawseti(L, -2, ++count);
    }
    return 1;
}

/* events(client) -> the list of events since the last call, or nil if there are none */
static int l_events(lua_State *L) {
    hf_lua_client *client = hf_checkudata(L, 1, hf_client_type);
    hf_driver *driver = client->driver;
    if (!driver) return 0;
    hf_driver_enter(driver);
    hf_client_detect_losses(driver->client, hf_driver_now(driver));
    hf_event *first = hf_observe_take(driver->client);
    hf_driver_leave(driver);
    if (!first) return 0;
    lua_pushcfunction(L, l_push_events);
    lua_pushlightuserdata(L, first);
    int status = lua_pcall(L, 1, 1, 0);
    for (hf_event *next; first; first = next) {
        next = first->next;
        free(first);
    }
    return status == 0 ? 1 : lua_error(L);
}

/* buckets() -> the upper bounds of a histogram's buckets, in seconds */
static int l_buckets(lua_State *L) {
    lua_newtable(L);
    for (int i = 0; i < HF_BUCKETS; i++) {
        lua_pushnumber(L, hf_bucket_bounds[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

const luaL_Reg hf_client_observer[] = {{"class", l_class},     {"classes", l_classes},
                                       {"watch", l_watch},     {"events", l_events},
                                       {"buckets", l_buckets}, {NULL, NULL}};
