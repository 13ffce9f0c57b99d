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
#define REPLY_TIMEOUT HF_SECOND
#define GRACE_PERIOD (250 * HF_MS) /* how long the other servers have to reply once most have */

/* One server, and its reply in this step: the owner of the key, or that owner's wait. */
typedef struct asked_server {
    hf_request request;
    hf_walk *walk;
    char *text; /* the reply, owned; NULL if the server sent none or found nothing */
    size_t size;
    hf_waiter wait;     /* the wait that was read from `text`, or empty */
    size_t prefix_size; /* how many bytes of `text` precede the waiter */
} asked_server;

struct hf_walk {
    hf_op *op; /* NULL if the operation has ended; the walk then ends with the last reply */
    void (*on_cycle)(hf_op *op, hf_time now);
    void (*next)(hf_walk *walk, hf_time now); /* called once all servers have replied */
    char own_wait[HF_WAIT_NAME];              /* the operation's own wait, from hf_wait_name */
    char waiter[HF_WAIT_NAME]; /* the waiter that the walk has reached; it waits for `names` */
    const hf_kind *kind;
    hf_names *names;
    size_t steps;
    char landmark[HF_WAIT_NAME]; /* the waiter at the last step whose number is a power of two */
    char youngest_waiter[HF_WAIT_NAME];  /* the youngest of the other waits */
    uint64_t youngest_since;             /* when that wait began, by the server's clock */
    char text[HF_FAILURE_TEXT_SIZE / 2]; /* the cycle so far */
    size_t replied, pending; /* how many servers have replied in this step, and how many have not */
    size_t server_count;
    asked_server servers[];
};

/* ---- asking ---- */

static void forget_text(asked_server *server) {
    free(server->text);
    server->text = NULL;
    server->prefix_size = 0;
}

static void end_walk(hf_walk *walk) {
    if (walk->op) walk->op->deadlock.walk = NULL;
    for (size_t i = 0; i < walk->server_count; i++) {
        forget_text(&walk->servers[i]);
        hf_request_clear(&walk->servers[i].request);
    }
    hf_names_delete(walk->names);
    free(walk);
}

/* Called for each server's reply, and one more time after all servers have been asked. The last
 * call continues the walk. */
static void count_down(hf_walk *walk, hf_time now) {
    if (--walk->pending > 0) return;
    if (walk->op) walk->next(walk, now);
    else end_walk(walk);
}

static void store_text(asked_server *server, hf_slice text) {
    if (text.size == 0 || !(server->text = malloc(text.size))) return;
    memcpy(server->text, text.data, text.size);
    server->size = text.size;
}

/* Called when a server has replied. Once most servers have, the others get little more time, so
 * that a hung server does not delay the decision for long. */
static void count_reply(asked_server *server, hf_time now) {
    hf_walk *walk = server->walk;
    if (2 * ++walk->replied > walk->server_count) {
        for (size_t i = 0; i < walk->server_count; i++) {
            hf_request *request = &walk->servers[i].request;
            request->deadline = hf_time_min(request->deadline, now + GRACE_PERIOD);
        }
    }
    count_down(walk, now);
}

/* Asks every server. `done` must call count_reply for each reply. The last reply calls `next`. */
static void ask_servers(hf_walk *walk,
                        bool (*encode)(hf_request *request, const hf_walk *walk, hf_slice key),
                        hf_slice key, hf_request_done *done,
                        void (*next)(hf_walk *walk, hf_time now), hf_time now) {
    hf_client *client = walk->op->client;
    walk->next = next;
    walk->replied = 0;
    walk->pending = walk->server_count + 1;
    for (size_t i = 0; i < walk->server_count; i++) {
        asked_server *server = &walk->servers[i];
        hf_request *request = &server->request;
        forget_text(server);
        request->done = done;
        request->context = server;
        request->deadline = now + REPLY_TIMEOUT;
        if (encode(request, walk, key))
            hf_client_submit(client->decider->client_at(client, i), key, HF_LINK_CALLS, request,
                             now);
        else done(request, NULL, now);
    }
    count_down(walk, now);
}

/* ---- the majority's reply ---- */

/* Returns whether two servers sent the same reply. Each server has its own clock, so waits that
 * differ only in `since` are the same. */
static bool replies_are_alike(const asked_server *a, const asked_server *b) {
    if (!a->text || !b->text) return false;
    hf_slice left = {a->text + a->prefix_size, a->size - a->prefix_size},
             right = {b->text + b->prefix_size, b->size - b->prefix_size};
    return hf_slice_equal(left, right);
}

static size_t count_alike(const hf_walk *walk, const asked_server *server) {
    size_t count = 0;
    for (size_t i = 0; i < walk->server_count; i++)
        count += replies_are_alike(server, &walk->servers[i]);
    return count;
}

/* Returns a server whose reply a majority has sent, or NULL. */
static const asked_server *find_agreed_reply(const hf_walk *walk) {
    for (size_t i = 0; i < walk->server_count; i++) {
        if (2 * count_alike(walk, &walk->servers[i]) > walk->server_count) return &walk->servers[i];
    }
    return NULL;
}

/* Returns the lower median of the times at which the majority's servers say that this wait began.
 * All waiters of a cycle read the same times, so all choose the same waiter as the youngest. */
static uint64_t wait_start(const hf_walk *walk, const asked_server *agreed) {
    size_t middle = (count_alike(walk, agreed) + 1) / 2;
    uint64_t since = 0;
    for (size_t i = 0; i < walk->server_count; i++) {
        const asked_server *server = &walk->servers[i];
        size_t rank = 0;
        if (!replies_are_alike(server, agreed)) continue;
        for (size_t j = 0; j < walk->server_count; j++)
            rank += replies_are_alike(&walk->servers[j], agreed) &&
                    walk->servers[j].wait.since <= server->wait.since;
        if (rank >= middle && (since == 0 || server->wait.since < since))
            since = server->wait.since;
    }
    return since;
}

/* ---- the steps ---- */

static void ask_holder(hf_walk *walk, hf_time now);

/* Called when the walk has returned to this operation, which has waited since `since`. Calls
 * on_cycle if this wait is the youngest of the cycle. */
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
    end_walk(walk);
}

/* Moves the walk to the lock that this wait is for. Returns false when out of memory, or if the
 * waiter's name is too long. */
static bool move_to_wait(hf_walk *walk, const hf_waiter *wait) {
    if (wait->waiter.size >= sizeof walk->waiter) return false;
    memcpy(walk->waiter, wait->waiter.data, wait->waiter.size);
    walk->waiter[wait->waiter.size] = '\0';
    walk->kind = wait->kind;
    hf_names_delete(walk->names);
    walk->names = hf_names_new(walk->kind, wait->key);
    return walk->names != NULL;
}

/* Returns whether the walk has entered a cycle without this operation; the waiters of that cycle
 * find it themselves. Updates the landmark (Brent's algorithm). */
static bool is_cycle_of_others(hf_walk *walk) {
    if (strcmp(walk->waiter, walk->landmark) == 0) return true;
    bool power_of_two = (walk->steps & (walk->steps - 1)) == 0;
    if (power_of_two) memcpy(walk->landmark, walk->waiter, sizeof walk->waiter);
    return false;
}

static void follow_wait(hf_walk *walk, hf_time now) {
    const asked_server *agreed = find_agreed_reply(walk);
    if (!agreed || !move_to_wait(walk, &agreed->wait) || ++walk->steps > MAX_STEPS) {
        end_walk(walk);
        return;
    }
    uint64_t since = wait_start(walk, agreed);
    if (strcmp(walk->waiter, walk->own_wait) == 0) {
        decide(walk, since, now);
        return;
    }
    if (is_cycle_of_others(walk)) {
        end_walk(walk);
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
    asked_server *server = request->context;
    if (reply && reply->string) store_text(server, (hf_slice){reply->string, reply->size});
    if (server->text && hf_wire_read_wait((hf_slice){server->text, server->size}, &server->wait))
        server->prefix_size = (size_t)(server->wait.waiter.data - server->text);
    else forget_text(server);
    count_reply(server, now);
}

static bool encode_wait(hf_request *request, const hf_walk *walk, hf_slice key) {
    hf_slice args[] = {{"GET", 3}, key};
    (void)walk;
    return hf_request_command(request, 2, args);
}

static void add_description(hf_walk *walk, hf_slice owner) {
    size_t used = strlen(walk->text), room = sizeof walk->text - used;
    char shown[64];
    hf_slice key = hf_url_mask_credentials(shown, sizeof shown, walk->names->key);
    snprintf(walk->text + used, room, "%s\"%.*s\", held by %.*s",
             used > 0 ? ", which waits for " : "", (int)key.size, key.data, (int)owner.size,
             owner.data);
}

static void follow_holder(hf_walk *walk, hf_time now) {
    const asked_server *agreed = find_agreed_reply(walk);
    char key[HF_PRESENCE_KEY];
    if (!agreed || agreed->size > HF_OWNER_MAX) {
        end_walk(walk);
        return;
    }
    hf_slice owner = {agreed->text, agreed->size};
    add_description(walk, owner);
    size_t size = hf_presence_wait_key(key, walk->op->client, owner);
    ask_servers(walk, encode_wait, (hf_slice){key, size}, on_wait, follow_wait, now);
}

/* Stores the owner, unless the waiter is no longer waiting: it has left the queue, or no grant
 * could reach it. A quorum has no queue, so this is checked only with a single server. */
static void on_holder(hf_request *request, const hf_reply *reply, hf_time now) {
    asked_server *server = request->context;
    const hf_walk *walk = server->walk;
    hf_lock_info info = {.owner_size = 0};
    if (reply) hf_wire_read_info(reply, &info);
    bool is_waiting = walk->steps == 0 || walk->server_count > 1 || info.ahead >= 0;
    if (is_waiting)
        store_text(server, hf_owner_strip_copy((hf_slice){info.owner, info.owner_size}));
    count_reply(server, now);
}

static bool encode_holder(hf_request *request, const hf_walk *walk, hf_slice key) {
    (void)key;
    if (strlen(walk->waiter) <= HF_UUID_SIZE) return false;
    return hf_wire_info(request, walk->kind, walk->names, walk->waiter);
}

static void ask_holder(hf_walk *walk, hf_time now) {
    ask_servers(walk, encode_holder, walk->names->key, on_holder, follow_holder, now);
}

static hf_walk *new_walk(hf_op *op) {
    hf_client *client = op->client;
    size_t count = 0;
    while (client->decider->client_at(client, count)) count++;
    hf_walk *walk = calloc(1, sizeof *walk + count * sizeof *walk->servers);
    if (!walk) return NULL;
    walk->op = op;
    walk->server_count = count;
    for (size_t i = 0; i < count; i++) walk->servers[i].walk = walk;
    return walk;
}

hf_time hf_deadlock_next_check(const hf_op *op) {
    hf_time check = op->spec.deadlock_check;
    if (check == 0 || op->deadlock.walk) return HF_NEVER;
    return hf_time_add(op->begun_at, hf_time_max(check, 2 * op->deadlock.waited_at_check));
}

void hf_deadlock_tick(hf_op *op, void (*on_cycle)(hf_op *op, hf_time now), hf_time now) {
    if (op->done || now < hf_deadlock_next_check(op)) return;
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
    else end_walk(walk);
}

void hf_deadlock_end(hf_op *op) {
    if (op->deadlock.walk)
        op->deadlock.walk->op = NULL; /* the walk ends with the last reply under way */
    op->deadlock.walk = NULL;
}
