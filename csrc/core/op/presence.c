#include "op/presence.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "op/holding.h"

#define PUBLISH_DELAY (250 * HF_MS)      /* a shorter wait is not published */
#define MIN_CLIENT_TTL (300 * HF_SECOND) /* longer if a hold may last longer */
#define CLIENT_INTERVAL (100 * HF_SECOND)
#define CLIENT_RETRY_DELAY (5 * HF_SECOND) /* after a server did not reply */
#define WAIT_TTL (10 * HF_SECOND)
#define WAIT_INTERVAL (3 * HF_SECOND)
#define REPLY_TIMEOUT (2 * HF_SECOND)
#define GOODBYE_TIMEOUT HF_SECOND /* how long the requests of a closing client may take */
#define MAX_WAIT_KEYS 64 /* the wait is published for at most this many of the caller's holds */

/* ---- names ---- */

static size_t write_key(char key[HF_PRESENCE_KEY], const char *prefix, const hf_client *client,
                        hf_slice name) {
    assert(name.size <= HF_OWNER_MAX);
    size_t size = (size_t)sprintf(key, "%s%s", prefix, client->config.tenant);
    memcpy(key + size, name.data, name.size);
    return size + name.size;
}

size_t hf_presence_client_key(char key[HF_PRESENCE_KEY], const hf_client *client) {
    return write_key(key, hf_prefix.client, client, hf_slice_of(client->uuid));
}

size_t hf_presence_wait_key(char key[HF_PRESENCE_KEY], const hf_client *client, hf_slice owner) {
    return write_key(key, hf_prefix.wait, client, owner);
}

/* ---- sending ---- */

static void free_request(hf_request *request, const hf_reply *reply, hf_time now) {
    (void)reply, (void)now;
    hf_request_clear(request);
    free(request);
}

static void on_published(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_client *client = request->context;
    if (!reply && !client->closed) {
        client->presence.publish_at =
            hf_time_min(client->presence.publish_at, now + CLIENT_RETRY_DELAY);
        client->presence.check_at =
            hf_time_min(client->presence.check_at, client->presence.publish_at);
    }
    free_request(request, reply, now);
}

static void on_goodbye(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_client *member = request->context;
    assert(member->presence.goodbyes > 0);
    member->presence.goodbyes--;
    free_request(request, reply, now);
}

/* Sends a command, or a call of `program` if it is not NULL, to the server of `member`. Without a
 * quorum, `member` is the client itself. The key is the program's first argument, or follows the
 * command's name. With a timeout of more than REPLY_TIMEOUT the request may wait for a connection.
 * Once the client is closed, the timeout is GOODBYE_TIMEOUT, on_goodbye replaces `done`, and the
 * request does not wait. */
static void send_to(hf_client *client, hf_client *member, const hf_program *program, size_t count,
                    const hf_slice *args, hf_time timeout, hf_request_done *done, hf_time now) {
    hf_slice key = args[program ? 0 : 1];
    hf_request *request = calloc(1, sizeof *request);
    if (!request) return;
    request->context = client->closed ? member : client;
    request->done = client->closed ? on_goodbye : done;
    request->deadline = now + (client->closed ? GOODBYE_TIMEOUT : timeout);
    request->waits_for_connection = !client->closed && timeout > REPLY_TIMEOUT;
    member->presence.goodbyes += client->closed;
    bool encoded = program ? hf_request_call(request, program, 1, count, args)
                           : hf_request_command(request, count, args);
    if (encoded) hf_client_submit(member, key, member->config.renewer, request, now);
    else request->done(request, NULL, now);
}

/* Sends the command, or the call, to every server. */
static void send_to_all(hf_client *client, const hf_program *program, size_t count,
                        const hf_slice *args, hf_time timeout, hf_request_done *done, hf_time now) {
    hf_client *member;
    for (size_t i = 0; (member = client->decider->client_at(client, i)); i++)
        send_to(client, member, program, count, args, timeout, done, now);
}

/* ---- who the client is ---- */

void hf_client_introduce(hf_client *client, const char *text) {
    snprintf(client->presence.who, sizeof client->presence.who, "%s", text);
    client->presence.check_at = HF_NEVER;
}

const char *hf_client_who(const hf_client *client) {
    return client->presence.who;
}

static bool may_publish(const hf_client *client) {
    return client->presence.who[0] != '\0' && !client->closed;
}

/* Returns when the last of the client's holds ends if none is renewed, or 0 without holds. */
static hf_time held_until(const hf_client *client) {
    hf_time last = 0;
    for (size_t i = 0; i < client->holds.count; i++) {
        const hf_claim *claim = client->holds.heap[i];
        if (hf_claim_is_held(claim)) last = hf_time_max(last, claim->valid_until);
    }
    return last;
}

static void publish_client(hf_client *client, hf_time until, hf_time now) {
    char key[HF_PRESENCE_KEY], ttl[24];
    size_t size = hf_presence_client_key(key, client);
    hf_time span = hf_time_max(MIN_CLIENT_TTL, until > now ? until - now : 0);
    hf_slice args[] = {{"SET", 3},
                       {key, size},
                       hf_slice_of(client->presence.who),
                       {"PX", 2},
                       hf_decimal(ttl, span / HF_MS)};
    client->presence.publish_at = now + CLIENT_INTERVAL;
    send_to_all(client, NULL, sizeof args / sizeof *args, args, REPLY_TIMEOUT, on_published, now);
}

/* ---- what the client's callers are waiting for ---- */

static bool is_waiting(const hf_op *op) {
    return hf_op_impl_of(op)->acquires && !op->done && op->spec.wait > 0 &&
           op->presence.publish_at != 0;
}

/* Returns whether the operation is an acquire that has not begun to wait, so it may soon hold a
 * lock. */
static bool may_hold_soon(const hf_op *op) {
    return hf_op_impl_of(op)->acquires && !op->done && op->presence.publish_at == 0;
}

/* Returns whether the operation's caller has this hold, which may be NULL, on another lock. */
static bool is_held_by_caller(const hf_op *op, const hf_hold *hold) {
    return hold && hold != op->hold && hf_hold_is_held(hold) && hold->agent == op->spec.agent;
}

static void publish_wait(hf_op *op, const hf_hold *hold, const char *text, size_t size,
                         hf_time now) {
    char key[HF_PRESENCE_KEY], waited[24], ttl[24];
    hf_slice name = {key, hf_presence_wait_key(key, op->client, hf_hold_owner(hold))};
    hf_slice del[] = {{"DEL", 3}, name};
    hf_slice args[] = {name,
                       {text, size},
                       hf_decimal(waited, (now - op->begun_at) / HF_MS),
                       hf_decimal(ttl, WAIT_TTL / HF_MS)};
    if (text)
        send_to_all(op->client, hf_program_wait(), sizeof args / sizeof *args, args, REPLY_TIMEOUT,
                    free_request, now);
    else send_to_all(op->client, NULL, 2, del, WAIT_TTL, free_request, now);
}

size_t hf_wait_name(char name[HF_WAIT_NAME], const hf_op *op) {
    const hf_hold *hold = op->hold;
    uint64_t hold_number = hold ? hold->claim->by_number.number : 0;
    uint64_t number = op->wait.number > 0 ? op->wait.number : hold_number;
    bool keeps = hold && hold->claim->kept;
    return (size_t)snprintf(name, HF_WAIT_NAME, "%s:%s%llu", op->client->uuid, keeps ? "0" : "",
                            (unsigned long long)number);
}

/* For each lock that the caller holds, publishes what the caller is waiting for; if `publishing` is
 * false, deletes these keys. Returns false if the caller holds nothing, or when out of memory. */
static bool publish_waits(hf_op *op, bool publishing, hf_time now) {
    const hf_holds *holds = &op->client->holds;
    hf_slice key = op->spec.names->key;
    size_t published = 0, size = 0;
    char *text = NULL;
    for (size_t i = 0; i < holds->count && published < MAX_WAIT_KEYS; i++) {
        if (!is_held_by_caller(op, holds->heap[i]->hold)) continue;
        if (publishing && !text) {
            text = malloc(HF_WAIT_NAME + 4 + key.size);
            if (!text) return false;
            size = hf_wait_name(text, op);
            size += (size_t)sprintf(text + size, " %c ", op->hold->claim->kind->letter);
            memcpy(text + size, key.data, key.size);
            size += key.size;
        }
        publish_wait(op, holds->heap[i]->hold, text, size, now);
        published++;
    }
    free(text);
    return published > 0;
}

void hf_presence_on_wait(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    if (!may_publish(client) || op->presence.publish_at != 0) return;
    op->presence.publish_at = hf_time_max(op->begun_at + PUBLISH_DELAY, now);
    client->presence.check_at = hf_time_min(client->presence.check_at, op->presence.publish_at);
}

void hf_presence_on_wait_end(hf_op *op, hf_time now) {
    if (!op->presence.published) return;
    op->presence.published = false;
    publish_waits(op, false, now);
}

/* ---- closing ---- */

void hf_presence_close(hf_client *client, hf_time now) {
    char key[HF_PRESENCE_KEY];
    for (hf_op *op = client->ops; op; op = op->next) hf_presence_on_wait_end(op, now);
    if (client->presence.publish_at == 0) return;
    hf_slice args[] = {{"DEL", 3}, {key, hf_presence_client_key(key, client)}};
    send_to_all(client, NULL, 2, args, REPLY_TIMEOUT, free_request, now);
    client->presence.publish_at = 0;
}

/* ---- when to publish ---- */

void hf_presence_on_begin(hf_client *client, hf_time now) {
    hf_presence *presence = &client->presence;
    if (presence->check_at != HF_NEVER || !may_publish(client)) return;
    presence->check_at = hf_time_max(now + PUBLISH_DELAY, presence->publish_at);
}

hf_time hf_presence_next_tick(const hf_client *client) {
    return may_publish(client) ? client->presence.check_at : HF_NEVER;
}

void hf_presence_tick(hf_client *client, hf_time now) {
    hf_presence *presence = &client->presence;
    if (now < hf_presence_next_tick(client)) return;
    hf_time until = held_until(client), next = HF_NEVER;
    bool waiting = false;
    for (hf_op *op = client->ops; op; op = op->next) {
        if (may_hold_soon(op)) next = hf_time_min(next, now + PUBLISH_DELAY);
        if (!is_waiting(op)) continue;
        waiting = true;
        if (now >= op->presence.publish_at) {
            bool published = publish_waits(op, true, now);
            op->presence.published = op->presence.published || published;
            op->presence.publish_at = published ? now + WAIT_INTERVAL : HF_NEVER;
        }
        next = hf_time_min(next, op->presence.publish_at);
    }
    if (until > 0 || waiting) {
        if (now >= presence->publish_at) publish_client(client, until, now);
        next = hf_time_min(next, presence->publish_at);
    }
    presence->check_at = next;
}
