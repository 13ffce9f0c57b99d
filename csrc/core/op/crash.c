#include "op/crash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "lock/wire.h"
#include "op/leave.h"
#include "op/observe.h"
#include "op/presence.h"

#define FIRST_CHECK (50 * HF_MS) /* a shorter wait sends nothing */
/* How often the first waiter asks for the owner, because hand-offs are not announced to it. */
#define ASK_INTERVAL HF_SECOND
#define CHECK_INTERVAL (50 * HF_MS) /* how often to check a process: a dozen system calls */
#define TIMEOUT HF_SECOND           /* for a reply */
#define MAX_AHEAD 60                /* more waiters ahead than this make no difference */

struct hf_lookout {
    hf_client *client;
    hf_op *op; /* NULL if the operation has ended before the reply in flight */
    hf_request request;
    bool asking;                 /* the request is in flight */
    char owner[HF_OWNER_SIZE];   /* the lock's owner if `life` knows its process, or "" */
    char uuid[HF_UUID_SIZE + 1]; /* the uuid of the owner's client */
    hf_time ahead;               /* how many waiters are ahead of this one; not a time */
    hf_time ask_at;              /* when to ask the server for the owner again */
    size_t place; /* which lock `names` is of: 0: the operation's own; else spec.args[place - 1] */
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

/* The more waiters are ahead, the less often a waiter checks, so that all of them together send
 * little more than the first one alone. */
static void schedule_check(hf_lookout *lookout, hf_time now) {
    hf_time share = 1 + lookout->ahead;
    bool known = lookout->owner[0] != '\0';
    hf_time check_at = known ? now + hf_time_min(CHECK_INTERVAL * share, ASK_INTERVAL) : HF_NEVER;
    if (lookout->op) lookout->op->crash.next_at = hf_time_min(check_at, lookout->ask_at);
}

static hf_time ask_pause(const hf_lookout *lookout) {
    return ASK_INTERVAL * (1 + lookout->ahead);
}

/* ---- the locks ---- */

/* Returns the key at this place: 0 is the operation's own; its caller acquires the others next. */
static hf_slice key_at(const hf_op *op, size_t place) {
    return place > 0 ? op->spec.args[place - 1] : op->spec.names->key;
}

/* Turns to the next lock, after `pause`: a client that does not detect crashes may already have
 * acquired the first one, and wait until the next one's lease ends. After the last lock, or when
 * out of memory, asks for the owner of the operation's own lock again after `own_pause`. */
static void look_at_next(hf_lookout *lookout, hf_time pause, hf_time own_pause, hf_time now) {
    const hf_op *op = lookout->op;
    size_t next = lookout->place < op->spec.arg_count ? lookout->place + 1 : 0;
    bool moves = next != lookout->place;
    hf_names *names = moves ? hf_names_new(lookout->kind, key_at(op, next)) : NULL;
    if (names) {
        hf_names_delete(lookout->names);
        lookout->names = names;
        lookout->place = next;
    }
    lookout->owner[0] = '\0';
    lookout->ask_at = now + (names && next > 0 ? pause : own_pause);
    schedule_check(lookout, now);
}

/* ---- the owner ---- */

/* Returns whether hf_wire_owner wrote this owner for a single process: it is not shared, and does
 * not own permits. */
static bool is_of_one_process(const char *owner) {
    static const char *const digits = "0123456789abcdef-";
    if (strspn(owner, digits) != HF_UUID_SIZE || owner[HF_UUID_SIZE] != ':') return false;
    const char *number = owner + HF_UUID_SIZE + 1;
    return number[0] != '\0' && number[strspn(number, "0123456789")] == '\0';
}

static void note_owner(hf_lookout *lookout, const hf_lock_info *info) {
    lookout->owner[0] = '\0';
    if (lookout->place == 0)
        lookout->ahead = info->ahead < 0 ? 0 : hf_time_min((hf_time)info->ahead, MAX_AHEAD);
    bool whole =
        info->owner_size < sizeof lookout->owner && strlen(info->owner) == info->owner_size;
    if (!whole || !is_of_one_process(info->owner)) return;
    memcpy(lookout->uuid, info->owner, HF_UUID_SIZE);
    lookout->uuid[HF_UUID_SIZE] = '\0';
    if (lookout->client->config.life(lookout->uuid) == HF_LIFE_UNKNOWN) return;
    memcpy(lookout->owner, info->owner, info->owner_size + 1);
}

/* ---- commands ---- */

static void send(hf_lookout *lookout, bool encoded, hf_request_done *done, hf_time now) {
    hf_request *request = &lookout->request;
    lookout->asking = true;
    lookout->op->crash.next_at = HF_NEVER;
    request->done = done;
    request->context = lookout;
    request->deadline = now + TIMEOUT;
    if (encoded)
        hf_client_submit(lookout->client, lookout->names->key, HF_LINK_CALLS, request, now);
    else done(request, NULL, now);
}

static void on_released(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_lookout *lookout = request->context;
    hf_client *client = lookout->client;
    hf_verdict verdict = reply ? hf_wire_read(reply) : HF_VERDICT_NONSENSE;
    bool freed = verdict == HF_VERDICT_YES || verdict == HF_VERDICT_MORE;
    if (freed)
        hf_observe_crash(client, lookout->class, lookout->observer, lookout->names->key,
                         hf_slice_of(lookout->owner));
    if (verdict == HF_VERDICT_MORE && !client->closed)
        hf_renewer_pass_on(client, lookout->kind, lookout->names->key, now);
    lookout->asking = false;
    if (lookout->op) look_at_next(lookout, 0, ASK_INTERVAL, now);
    else free_lookout(lookout);
}

/* The processes of a job may have entered its lock as the same owner, each with its own hold
 * (docs/explanation/crash.md). If the job has ended, the lock is therefore freed only if it is held
 * once. */
static void release(hf_lookout *lookout, hf_life life, hf_time now) {
    hf_wire_lock lock = {lookout->kind, lookout->names, hf_slice_of(lookout->owner),
                         lookout->client->config.grant_lease};
    uint32_t own_holds = life == HF_LIFE_JOB_ENDED ? HF_WIRE_HELD_ONCE : HF_WIRE_NOT_SHARED;
    bool encoded = hf_wire_release(&lookout->request, &lock, 0, 0, own_holds, HF_NO_TEXT);
    send(lookout, encoded, on_released, now);
}

static void check(hf_lookout *lookout, hf_time now) {
    hf_life life = lookout->client->config.life(lookout->uuid);
    bool ended = life == HF_LIFE_ENDED || life == HF_LIFE_JOB_ENDED;
    if (ended) release(lookout, life, now);
    else if (lookout->place == 0) schedule_check(lookout, now);
    else look_at_next(lookout, CHECK_INTERVAL, ask_pause(lookout), now);
}

static void on_info(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_lookout *lookout = request->context;
    hf_lock_info info = {.owner_size = 0};
    lookout->asking = false;
    if (!lookout->op) {
        free_lookout(lookout);
        return;
    }
    if (reply) hf_wire_read_info(reply, &info);
    note_owner(lookout, &info);
    lookout->ask_at = now + ask_pause(lookout);
    if (lookout->owner[0]) check(lookout, now);
    else look_at_next(lookout, CHECK_INTERVAL, ask_pause(lookout), now);
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

hf_time hf_crash_at(const hf_op *op) {
    if (!op->client->config.life || !op->spec.lock_kind->one_owner) return HF_NEVER;
    return op->crash.next_at > 0 ? op->crash.next_at : hf_time_add(op->begun_at, FIRST_CHECK);
}

void hf_crash_tick(hf_op *op, hf_time now) {
    if (op->done || now < hf_crash_at(op)) return;
    if (!op->crash.lookout) op->crash.lookout = new_lookout(op);
    hf_lookout *lookout = op->crash.lookout;
    op->crash.next_at = now + ASK_INTERVAL;
    if (!lookout) return;
    assert(!lookout->asking);
    if (lookout->owner[0] && now < lookout->ask_at) check(lookout, now);
    else ask(lookout, now);
}

void hf_crash_end(hf_op *op) {
    hf_lookout *lookout = op->crash.lookout;
    op->crash.lookout = NULL;
    if (!lookout) return;
    lookout->op = NULL;
    if (!lookout->asking) free_lookout(lookout);
}
