#include "op/crash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "lock/wire.h"
#include "op/leave.h"
#include "op/observe.h"
#include "op/presence.h"

#define FIRST_CHECK_DELAY (50 * HF_MS) /* a shorter wait sends nothing */
/* How often the first waiter asks who owns the lock, because hand-offs are not announced to it. */
#define ASK_INTERVAL HF_SECOND
#define CHECK_INTERVAL (50 * HF_MS) /* how often to check a process, with a dozen system calls */
#define REPLY_TIMEOUT HF_SECOND
#define MAX_COUNTED_AHEAD 60 /* any more waiters ahead are not counted */

struct hf_lookout {
    hf_client *client;
    hf_op *op; /* NULL if the operation has ended and only a reply is awaited */
    hf_request request;
    bool in_flight;              /* the request is in flight */
    char owner[HF_OWNER_SIZE];   /* the lock's owner if `life` knows its process, or "" */
    char uuid[HF_UUID_SIZE + 1]; /* the uuid of the owner's client */
    uint64_t ahead; /* how many waiters are ahead of this one, at most MAX_COUNTED_AHEAD */
    hf_time ask_at; /* when to ask the server again who owns the lock */
    size_t index;   /* the lock of `names`: 0 is the operation's own, 1 that of spec.args[0], … */
    const hf_kind *kind;
    hf_names *names;
    uint16_t class;
    uint64_t observer;
};

static void free_lookout(hf_lookout *lookout) {
    hf_request_clear(&lookout->request);
    hf_names_delete(lookout->names);
    free(lookout);
}

/* The more waiters are ahead, the less often a waiter checks, so that all together send little more
 * than the first one alone. */
static void schedule_check(hf_lookout *lookout, hf_time now) {
    bool owner_known = lookout->owner[0] != '\0';
    hf_time interval = CHECK_INTERVAL * (1 + lookout->ahead);
    hf_time check_at = owner_known ? now + hf_time_min(interval, ASK_INTERVAL) : HF_NEVER;
    if (lookout->op) lookout->op->crash.next_at = hf_time_min(check_at, lookout->ask_at);
}

static hf_time ask_interval(const hf_lookout *lookout) {
    return ASK_INTERVAL * (1 + lookout->ahead);
}

/* ---- the locks ---- */

/* Returns the key at this index: 0 is the operation's own key. The operation's caller acquires the
 * locks of the other keys next. */
static hf_slice key_at(const hf_op *op, size_t index) {
    return index > 0 ? op->spec.args[index - 1] : op->spec.names->key;
}

/* Checks the next lock after `pause`: a client that does not detect crashes may already have
 * acquired the first one, and be waiting for the next one's lease to end. After the last lock, or
 * when out of memory, checks the operation's own lock again after `own_pause`. */
static void check_next(hf_lookout *lookout, hf_time pause, hf_time own_pause, hf_time now) {
    const hf_op *op = lookout->op;
    size_t next = lookout->index < op->spec.arg_count ? lookout->index + 1 : 0;
    bool moves = next != lookout->index;
    hf_names *names = moves ? hf_names_new(lookout->kind, key_at(op, next)) : NULL;
    if (names) {
        hf_names_delete(lookout->names);
        lookout->names = names;
        lookout->index = next;
    }
    lookout->owner[0] = '\0';
    lookout->ask_at = now + (names && next > 0 ? pause : own_pause);
    schedule_check(lookout, now);
}

/* ---- the owner ---- */

/* Returns whether hf_wire_owner wrote this owner, for a single process: the owner is neither shared
 * nor that of permits. */
static bool belongs_to_one_process(const char *owner) {
    static const char *const digits = "0123456789abcdef-";
    if (strspn(owner, digits) != HF_UUID_SIZE || owner[HF_UUID_SIZE] != ':') return false;
    const char *number = owner + HF_UUID_SIZE + 1;
    return number[0] != '\0' && number[strspn(number, "0123456789")] == '\0';
}

/* Stores the owner if the driver knows its process, and how many waiters are ahead. */
static void store_owner(hf_lookout *lookout, const hf_lock_info *info) {
    lookout->owner[0] = '\0';
    if (lookout->index == 0)
        lookout->ahead = info->ahead < 0 ? 0 : hf_time_min((hf_time)info->ahead, MAX_COUNTED_AHEAD);
    bool complete =
        info->owner_size < sizeof lookout->owner && strlen(info->owner) == info->owner_size;
    if (!complete || !belongs_to_one_process(info->owner)) return;
    memcpy(lookout->uuid, info->owner, HF_UUID_SIZE);
    lookout->uuid[HF_UUID_SIZE] = '\0';
    if (lookout->client->config.life(lookout->uuid) == HF_LIFE_UNKNOWN) return;
    memcpy(lookout->owner, info->owner, info->owner_size + 1);
}

/* ---- commands ---- */

static void send(hf_lookout *lookout, bool encoded, hf_request_done *done, hf_time now) {
    hf_request *request = &lookout->request;
    lookout->in_flight = true;
    lookout->op->crash.next_at = HF_NEVER;
    request->done = done;
    request->context = lookout;
    request->deadline = now + REPLY_TIMEOUT;
    if (encoded)
        hf_client_submit(lookout->client, lookout->names->key, HF_LINK_CALLS, request, now);
    else done(request, NULL, now);
}

static void on_released(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_lookout *lookout = request->context;
    hf_client *client = lookout->client;
    hf_verdict verdict = reply ? hf_wire_read_verdict(reply) : HF_VERDICT_UNEXPECTED;
    bool freed = verdict == HF_VERDICT_YES || verdict == HF_VERDICT_NEEDS_LEAVE;
    if (freed)
        hf_observe_crash(client, lookout->class, lookout->observer, lookout->names->key,
                         hf_slice_of(lookout->owner));
    if (verdict == HF_VERDICT_NEEDS_LEAVE && !client->closed)
        hf_renewer_grant_to_next(client, lookout->kind, lookout->names->key, now);
    lookout->in_flight = false;
    if (lookout->op) check_next(lookout, 0, ASK_INTERVAL, now);
    else free_lookout(lookout);
}

/* Sends the owner's release. The processes of a job may have entered its lock as the same owner,
 * each with its own hold, so an ended job's lock is freed only if it is held once. */
static void release(hf_lookout *lookout, hf_life life, hf_time now) {
    hf_wire_lock lock = {lookout->kind, lookout->names, hf_slice_of(lookout->owner),
                         lookout->client->config.grant_lease};
    uint32_t own_holds = life == HF_LIFE_JOB_ENDED ? HF_WIRE_ONLY_IF_HELD_ONCE : HF_WIRE_NOT_SHARED;
    bool encoded = hf_wire_release(&lookout->request, &lock, 0, 0, own_holds, HF_NO_TEXT);
    send(lookout, encoded, on_released, now);
}

static void check(hf_lookout *lookout, hf_time now) {
    hf_life life = lookout->client->config.life(lookout->uuid);
    bool ended = life == HF_LIFE_ENDED || life == HF_LIFE_JOB_ENDED;
    if (ended) release(lookout, life, now);
    else if (lookout->index == 0) schedule_check(lookout, now);
    else check_next(lookout, CHECK_INTERVAL, ask_interval(lookout), now);
}

static void on_info(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_lookout *lookout = request->context;
    hf_lock_info info = {.owner_size = 0};
    lookout->in_flight = false;
    if (!lookout->op) {
        free_lookout(lookout);
        return;
    }
    if (reply) hf_wire_read_info(reply, &info);
    store_owner(lookout, &info);
    lookout->ask_at = now + ask_interval(lookout);
    if (lookout->owner[0]) check(lookout, now);
    else check_next(lookout, CHECK_INTERVAL, ask_interval(lookout), now);
}

static void ask(hf_lookout *lookout, hf_time now) {
    char waiter[HF_WAIT_NAME];
    hf_wait_name(waiter, lookout->op);
    bool encoded = hf_wire_info(&lookout->request, lookout->kind, lookout->names, waiter);
    send(lookout, encoded, on_info, now);
}

/* ---- beginning and end ---- */

static hf_lookout *new_lookout(hf_op *op) {
    hf_lookout *lookout = calloc(1, sizeof *lookout);
    if (!lookout) return NULL;
    lookout->client = op->client;
    lookout->op = op;
    lookout->kind = op->hold->claim->kind;
    lookout->class = op->spec.class;
    lookout->observer = op->spec.observer;
    lookout->names = hf_names_new(lookout->kind, op->spec.names->key);
    if (lookout->names) return lookout;
    free_lookout(lookout);
    return NULL;
}

hf_time hf_crash_next_check(const hf_op *op) {
    if (!op->client->config.life || !op->spec.lock_kind->one_owner) return HF_NEVER;
    return op->crash.next_at > 0 ? op->crash.next_at : hf_time_add(op->begun_at, FIRST_CHECK_DELAY);
}

void hf_crash_tick(hf_op *op, hf_time now) {
    if (op->done || now < hf_crash_next_check(op)) return;
    if (!op->crash.lookout) op->crash.lookout = new_lookout(op);
    hf_lookout *lookout = op->crash.lookout;
    op->crash.next_at = now + ASK_INTERVAL;
    if (!lookout) return;
    assert(!lookout->in_flight);
    if (lookout->owner[0] && now < lookout->ask_at) check(lookout, now);
    else ask(lookout, now);
}

void hf_crash_end(hf_op *op) {
    hf_lookout *lookout = op->crash.lookout;
    op->crash.lookout = NULL;
    if (!lookout) return;
    lookout->op = NULL;
    if (!lookout->in_flight) free_lookout(lookout);
}
