#include "op/deadlock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "lock/wire.h"
#include "op/holding.h"
#include "op/presence.h"

#define MOST_STEPS 64
#define TIMEOUT HF_SECOND

struct hf_walk {
    hf_request request;
    hf_op *op; /* NULL: it has ended */
    void (*on_circle)(hf_op *op, const char *circle, hf_time now);
    char own[HF_WAIT_NAME];
    char waiter[HF_WAIT_NAME]; /* the wait for `key`, as hf_wait_name writes it */
    const hf_kind *kind;
    hf_names names;
    size_t steps;
    unsigned long long youngest; /* since when the last one of the others waits */
    char youngest_waiter[HF_WAIT_NAME];
    char text[HF_FAILURE_TEXT / 2]; /* the circle so far */
};

static void ask_holder(hf_walk *walk, hf_time now);

static void submit(hf_walk *walk, hf_slice key, hf_request_done *done, hf_time now) {
    walk->request.done = done;
    walk->request.context = walk;
    walk->request.deadline = now + TIMEOUT;
    hf_client_submit(walk->op->client, key, HF_LINK_CALLS, &walk->request, now);
}

static void end(hf_walk *walk) {
    if (walk->op) walk->op->deadlock.walk = NULL;
    hf_request_clear(&walk->request);
    hf_names_free(&walk->names);
    free(walk);
}

/* The circle is closed by this operation, which waits since then. */
static void decide(hf_walk *walk, unsigned long long since, hf_time now) {
    hf_op *op = walk->op;
    assert(op && op->deadlock.walk == walk);
    bool youngest = since > walk->youngest ||
                    (since == walk->youngest && strcmp(walk->own, walk->youngest_waiter) > 0);
    if (youngest) walk->on_circle(op, walk->text, now);
    end(walk);
}

/* "<since> <uuid>:<number> <kind> <key>" */
static bool read_wait(hf_walk *walk, hf_slice wait, unsigned long long *since) {
    char head[128], letter;
    char *rest;
    int size = 0;
    snprintf(head, sizeof head, "%.*s", (int)wait.size, wait.data);
    *since = strtoull(head, &rest, 10);
    if (sscanf(rest, " %63s %c%n", walk->waiter, &letter, &size) != 2 || rest[size] != ' ')
        return false;
    size += (int)(rest - head);
    walk->kind = hf_kind_of_letter(letter);
    if (!walk->kind || (size_t)++size >= wait.size) return false;
    hf_names_free(&walk->names);
    hf_slice key = {wait.data + size, wait.size - (size_t)size};
    return hf_names_make_on(&walk->names, key, walk->kind);
}

static void on_wait(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_walk *walk = request->context;
    unsigned long long since = 0;
    hf_slice wait = {"", 0};
    if (reply && reply->string) wait = (hf_slice){reply->string, reply->size};
    if (!walk->op || wait.size == 0 || !read_wait(walk, wait, &since) ||
        ++walk->steps > MOST_STEPS) {
        end(walk);
        return;
    }
    if (strcmp(walk->waiter, walk->own) == 0) {
        decide(walk, since, now);
        return;
    }
    bool younger = since > walk->youngest ||
                   (since == walk->youngest && strcmp(walk->waiter, walk->youngest_waiter) > 0);
    if (younger) {
        walk->youngest = since;
        memcpy(walk->youngest_waiter, walk->waiter, sizeof walk->waiter);
    }
    ask_holder(walk, now);
}

static void ask_wait(hf_walk *walk, hf_slice owner, hf_time now) {
    char key[HF_OWNER_MAX + 32];
    int size = snprintf(key, sizeof key, "holdfast_wait:%.*s", (int)owner.size, owner.data);
    hf_slice args[] = {{"GET", 3}, {key, (size_t)size}};
    if (owner.size <= HF_OWNER_MAX && hf_request_command(&walk->request, 2, args))
        submit(walk, args[1], on_wait, now);
    else end(walk);
}

static void describe(hf_walk *walk, hf_slice owner) {
    size_t used = strlen(walk->text), room = sizeof walk->text - used;
    hf_slice key = walk->names.key;
    snprintf(walk->text + used, room, "%s\"%.*s\", held by %.*s",
             used > 0 ? ", which waits for " : "", (int)(key.size < 64 ? key.size : 64), key.data,
             (int)owner.size, owner.data);
}

/* A waiter that is not in the queue any more waits for nothing. */
static void on_holder(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_walk *walk = request->context;
    hf_lock_info info = {.owner_size = 0};
    if (reply) hf_wire_read_info(reply, &info);
    hf_slice owner = {info.owner, info.owner_size};
    if (!walk->op || owner.size == 0 || (walk->steps > 0 && info.ahead < 0)) {
        end(walk);
        return;
    }
    describe(walk, owner);
    ask_wait(walk, owner, now);
}

static void ask_holder(hf_walk *walk, hf_time now) {
    char uuid[HF_UUID_SIZE + 1] = "";
    bool named = strlen(walk->waiter) > HF_UUID_SIZE;
    if (named) memcpy(uuid, walk->waiter, HF_UUID_SIZE);
    bool encoded = named && hf_wire_info(&walk->request, walk->kind, &walk->names, uuid);
    if (encoded) submit(walk, walk->names.key, on_holder, now);
    else end(walk);
}

hf_time hf_deadlock_at(const hf_op *op) {
    hf_time check = op->spec.deadlock_check;
    if (check == 0 || op->deadlock.walk) return HF_NEVER;
    return hf_time_add(op->begun_at, hf_time_max(check, 2 * op->deadlock.walked_after));
}

void hf_deadlock_tick(hf_op *op, void (*on_circle)(hf_op *op, const char *circle, hf_time now),
                      hf_time now) {
    if (op->done || now < hf_deadlock_at(op)) return;
    op->deadlock.walked_after = now - op->begun_at;
    hf_walk *walk = calloc(1, sizeof *walk);
    if (!walk) return;
    walk->op = op;
    walk->on_circle = on_circle;
    assert(!op->deadlock.walk && op->hold);
    op->deadlock.walk = walk;
    walk->kind = op->hold->kind;
    hf_wait_name(walk->own, op);
    memcpy(walk->waiter, walk->own, sizeof walk->own);
    if (hf_names_make_on(&walk->names, op->spec.names->key, walk->kind)) ask_holder(walk, now);
    else end(walk);
}

void hf_deadlock_end(hf_op *op) {
    if (op->deadlock.walk)
        op->deadlock.walk->op = NULL; /* it ends with the reply that is under way */
    op->deadlock.walk = NULL;
}
