#include "op/deadlock.h"
#include "base/url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "lock/wire.h"
#include "op/holding.h"
#include "op/presence.h"

#define MAX_STEPS 64
#define TIMEOUT HF_SECOND
#define GRACE (250 * HF_MS) /* for the remaining servers once most have replied */

/* One server's reply in a step: the owner of the key, or that owner's wait. */
typedef struct answer {
    hf_request request;
    hf_walk *walk;
    char *text; /* the reply, owned; NULL if the server sent none or found nothing */
    size_t size;
    hf_waiter wait; /* `text` read as a wait, or empty */
    size_t head;    /* how many bytes of `text` precede the waiter */
} answer;

struct hf_walk {
    hf_op *op; /* NULL if the operation has ended; then the walk ends with the replies under way */
    void (*on_cycle)(hf_op *op, hf_time now);
    void (*next)(hf_walk *walk, hf_time now); /* called once all servers have replied */
    char own_wait[HF_WAIT_NAME];              /* the operation's own wait, from hf_wait_name */
    char waiter[HF_WAIT_NAME]; /* the wait that the walk has reached, which is for `names` */
    const hf_kind *kind;
    hf_names *names;
    size_t steps;
    char landmark[HF_WAIT_NAME]; /* the waiter that was reached at the last step whose number is a
                                    power of two */
    uint64_t youngest_since; /* when the youngest of the other waits began, by the server's clock */
    char youngest_waiter[HF_WAIT_NAME]; /* that wait */
    char text[HF_FAILURE_TEXT / 2];     /* the cycle so far */
    size_t replied, pending; /* how many servers have replied in this step, and how many have not */
    size_t count;
    answer answers[]; /* one for each server */
};

/* ---- asking ---- */

static void forget_text(answer *from) {
    free(from->text);
    from->text = NULL;
    from->head = 0;
}

static void end(hf_walk *walk) {
    if (walk->op) walk->op->deadlock.walk = NULL;
    for (size_t i = 0; i < walk->count; i++) {
        forget_text(&walk->answers[i]);
        hf_request_clear(&walk->answers[i].request);
    }
    hf_names_delete(walk->names);
    free(walk);
}

/* Called for each server's reply, and once all are asked. The last call continues the walk. */
static void count_down(hf_walk *walk, hf_time now) {
    if (--walk->pending > 0) return;
    if (walk->op) walk->next(walk, now);
    else end(walk);
}

static void store_text(answer *from, hf_slice text) {
    if (text.size == 0 || !(from->text = malloc(text.size))) return;
    memcpy(from->text, text.data, text.size);
    from->size = text.size;
}

/* Handles one server's reply. Once most have replied, the others get little more time, so that a
 * server that hangs does not delay the decision for long. */
static void finish(answer *from, hf_time now) {
    hf_walk *walk = from->walk;
    if (2 * ++walk->replied > walk->count) {
        for (size_t i = 0; i < walk->count; i++) {
            hf_request *request = &walk->answers[i].request;
            request->deadline = hf_time_min(request->deadline, now + GRACE);
        }
    }
    count_down(walk, now);
}

/* Asks every server. `done` calls finish with each reply. After the last one, calls `next`. */
static void ask(hf_walk *walk,
                bool (*encode)(hf_request *request, const hf_walk *walk, hf_slice key),
                hf_slice key, hf_request_done *done, void (*next)(hf_walk *walk, hf_time now),
                hf_time now) {
    hf_client *client = walk->op->client;
    walk->next = next;
    walk->replied = 0;
    walk->pending = walk->count + 1;
    for (size_t i = 0; i < walk->count; i++) {
        answer *from = &walk->answers[i];
        hf_request *request = &from->request;
        forget_text(from);
        request->done = done;
        request->context = from;
        request->deadline = now + TIMEOUT;
        if (encode(request, walk, key))
            hf_client_submit(client->decider->client_at(client, i), key, HF_LINK_CALLS, request,
                             now);
        else done(request, NULL, now);
    }
    count_down(walk, now);
}

/* ---- the reply of a majority ---- */

/* Returns whether two replies are equal. Each server has its own clock, so waits that differ only
 * in `since` are equal. */
static bool alike(const answer *a, const answer *b) {
    if (!a->text || !b->text) return false;
    hf_slice left = {a->text + a->head, a->size - a->head},
             right = {b->text + b->head, b->size - b->head};
    return hf_slice_equal(left, right);
}

static size_t count_alike(const hf_walk *walk, const answer *one) {
    size_t count = 0;
    for (size_t i = 0; i < walk->count; i++) count += alike(one, &walk->answers[i]);
    return count;
}

/* Returns the reply that a majority has sent, or NULL. */
static const answer *majority_answer(const hf_walk *walk) {
    for (size_t i = 0; i < walk->count; i++) {
        if (2 * count_alike(walk, &walk->answers[i]) > walk->count) return &walk->answers[i];
    }
    return NULL;
}

/* Returns the median of the times that the servers report for this wait, the lower one of two. All
 * waiters of a cycle get the same times, so all choose the same waiter as the youngest. */
static uint64_t since_of(const hf_walk *walk, const answer *wait) {
    size_t middle = (count_alike(walk, wait) + 1) / 2;
    uint64_t since = 0;
    for (size_t i = 0; i < walk->count; i++) {
        const answer *one = &walk->answers[i];
        size_t up_to = 0;
        if (!alike(one, wait)) continue;
        for (size_t j = 0; j < walk->count; j++)
            up_to +=
                alike(&walk->answers[j], wait) && walk->answers[j].wait.since <= one->wait.since;
        if (up_to >= middle && (since == 0 || one->wait.since < since)) since = one->wait.since;
    }
    return since;
}

/* ---- the steps ---- */

static void ask_holder(hf_walk *walk, hf_time now);

/* Called when the walk is back at this operation, which has been waiting since `since`. Ends this
 * wait if it is the youngest of the cycle. */
static void decide(hf_walk *walk, uint64_t since, hf_time now) {
    hf_op *op = walk->op;
    assert(op && op->deadlock.walk == walk);
    bool youngest =
        since > walk->youngest_since ||
        (since == walk->youngest_since && strcmp(walk->own_wait, walk->youngest_waiter) > 0);
    if (youngest) {
        free(op->deadlock.cycle);
        op->deadlock.cycle = strdup(walk->text);
        if (op->deadlock.cycle) walk->on_cycle(op, now);
    }
    end(walk);
}

/* Continues with the lock that this wait is for. Returns false when out of memory, or if the
 * waiter's name is too long. */
static bool follow(hf_walk *walk, const hf_waiter *wait) {
    if (wait->waiter.size >= sizeof walk->waiter) return false;
    memcpy(walk->waiter, wait->waiter.data, wait->waiter.size);
    walk->waiter[wait->waiter.size] = '\0';
    walk->kind = wait->kind;
    hf_names_delete(walk->names);
    walk->names = hf_names_new(walk->kind, wait->key);
    return walk->names != NULL;
}

/* Returns whether the walk is known to repeat without reaching this operation. The cycle is then
 * one of other waiters, which find it themselves. Notes each landmark. */
static bool is_cycle_of_others(hf_walk *walk) {
    if (strcmp(walk->waiter, walk->landmark) == 0) return true;
    bool power_of_two = (walk->steps & (walk->steps - 1)) == 0;
    if (power_of_two) memcpy(walk->landmark, walk->waiter, sizeof walk->waiter);
    return false;
}

static void on_waits(hf_walk *walk, hf_time now) {
    const answer *wait = majority_answer(walk);
    if (!wait || !follow(walk, &wait->wait) || ++walk->steps > MAX_STEPS) {
        end(walk);
        return;
    }
    uint64_t since = since_of(walk, wait);
    if (strcmp(walk->waiter, walk->own_wait) == 0) {
        decide(walk, since, now);
        return;
    }
    if (is_cycle_of_others(walk)) {
        end(walk);
        return;
    }
    bool younger =
        since > walk->youngest_since ||
        (since == walk->youngest_since && strcmp(walk->waiter, walk->youngest_waiter) > 0);
    if (younger) {
        walk->youngest_since = since;
        memcpy(walk->youngest_waiter, walk->waiter, sizeof walk->waiter);
    }
    ask_holder(walk, now);
}

static void on_wait(hf_request *request, const hf_reply *reply, hf_time now) {
    answer *from = request->context;
    if (reply && reply->string) store_text(from, (hf_slice){reply->string, reply->size});
    if (from->text && hf_wire_read_wait((hf_slice){from->text, from->size}, &from->wait))
        from->head = (size_t)(from->wait.waiter.data - from->text);
    else forget_text(from);
    finish(from, now);
}

static bool encode_wait(hf_request *request, const hf_walk *walk, hf_slice key) {
    hf_slice args[] = {{"GET", 3}, key};
    (void)walk;
    return hf_request_command(request, 2, args);
}

static void describe(hf_walk *walk, hf_slice owner) {
    size_t used = strlen(walk->text), room = sizeof walk->text - used;
    char shown[64];
    hf_slice key = hf_url_hide_logins(shown, sizeof shown, walk->names->key);
    snprintf(walk->text + used, room, "%s\"%.*s\", held by %.*s",
             used > 0 ? ", which waits for " : "", (int)key.size, key.data, (int)owner.size,
             owner.data);
}

static void on_holders(hf_walk *walk, hf_time now) {
    const answer *holder = majority_answer(walk);
    char key[HF_PRESENCE_KEY];
    if (!holder || holder->size > HF_OWNER_MAX) {
        end(walk);
        return;
    }
    hf_slice owner = {holder->text, holder->size};
    describe(walk, owner);
    size_t size = hf_presence_wait_key(key, walk->op->client, owner);
    ask(walk, encode_wait, (hf_slice){key, size}, on_wait, on_waits, now);
}

/* Stores the owner, unless the waiter is no longer queued or no grant could reach it, and it
 * therefore does not wait. A quorum has no queue, so this check is only for a single server. */
static void on_holder(hf_request *request, const hf_reply *reply, hf_time now) {
    answer *from = request->context;
    const hf_walk *walk = from->walk;
    hf_lock_info info = {.owner_size = 0};
    if (reply) hf_wire_read_info(reply, &info);
    bool waits = walk->steps == 0 || walk->count > 1 || info.ahead >= 0;
    if (waits) store_text(from, hf_owner_without_copy((hf_slice){info.owner, info.owner_size}));
    finish(from, now);
}

static bool encode_holder(hf_request *request, const hf_walk *walk, hf_slice key) {
    (void)key;
    if (strlen(walk->waiter) <= HF_UUID_SIZE) return false;
    return hf_wire_info(request, walk->kind, walk->names, walk->waiter);
}

static void ask_holder(hf_walk *walk, hf_time now) {
    ask(walk, encode_holder, walk->names->key, on_holder, on_holders, now);
}

static hf_walk *new_walk(hf_op *op) {
    hf_client *client = op->client;
    size_t count = 0;
    while (client->decider->client_at(client, count)) count++;
    hf_walk *walk = calloc(1, sizeof *walk + count * sizeof *walk->answers);
    if (!walk) return NULL;
    walk->op = op;
    walk->count = count;
    for (size_t i = 0; i < count; i++) walk->answers[i].walk = walk;
    return walk;
}

hf_time hf_deadlock_at(const hf_op *op) {
    hf_time check = op->spec.deadlock_check;
    if (check == 0 || op->deadlock.walk) return HF_NEVER;
    return hf_time_add(op->begun_at, hf_time_max(check, 2 * op->deadlock.waited_at_check));
}

void hf_deadlock_tick(hf_op *op, void (*on_cycle)(hf_op *op, hf_time now), hf_time now) {
    if (op->done || now < hf_deadlock_at(op)) return;
    op->deadlock.waited_at_check = now - op->begun_at;
    hf_walk *walk = new_walk(op);
    if (!walk) return;
    walk->on_cycle = on_cycle;
    assert(!op->deadlock.walk && op->hold);
    op->deadlock.walk = walk;
    walk->kind = op->hold->claim->kind;
    hf_wait_name(walk->own_wait, op);
    memcpy(walk->waiter, walk->own_wait, sizeof walk->own_wait);
    walk->names = hf_names_new(walk->kind, op->spec.names->key);
    if (walk->names) ask_holder(walk, now);
    else end(walk);
}

void hf_deadlock_end(hf_op *op) {
    if (op->deadlock.walk)
        op->deadlock.walk->op = NULL; /* it ends with the replies that are under way */
    op->deadlock.walk = NULL;
}
