/* The events link of a node: the channel of our grants, and Redisson's announcements, while somebody waits.
 *
 * It is open while an operation needs it, and lingers a moment after one that got its lock. A server that has gone
 * without a word is noticed by a PING. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_internal.h"
#include "cluster.h"

#define LINGER (500 * HF_MS)
#define PING_AFTER (5 * HF_SECOND)

static bool waits_at(const hf_node *node, const hf_op *op) {
    return op->node == node && op->spec.kind == HF_OP_ACQUIRE && op->events && !op->done;
}

static bool same_releases(const hf_op *a, const hf_op *b) {
    return hf_slice_equal(a->spec.names->releases, b->spec.names->releases);
}

static void say_pattern(hf_node *node, const char *command, const hf_names *names) {
    hf_slice pattern;
    if (!node->subscribed || !hf_names_pattern(names, &pattern)) return;
    hf_slice args[] = {hf_slice_of(command), pattern};
    hf_session_say(&node->links[HF_LINK_EVENTS], 2, args); /* unsaid: the next look comes by the clock */
    free((char *)(uintptr_t)pattern.data);
}

static hf_op *other_foreign_listener(const hf_op *op) {
    for (hf_op *other = op->client->ops; other; other = other->next) {
        if (other != op && waits_at(op->node, other) && other->foreign && same_releases(other, op)) return other;
    }
    return NULL;
}

static void stop_listening_foreign(hf_op *op) {
    if (op->foreign && !other_foreign_listener(op)) say_pattern(op->node, "PUNSUBSCRIBE", op->spec.names);
    op->foreign = false;
}

void hf_client_listen(hf_op *op, bool listen, hf_time now) {
    hf_node *node = op->node;
    if (op->events == listen) return;
    if (!listen) stop_listening_foreign(op);
    op->events = listen;
    node->waiting += listen ? 1u : (size_t)-1;
    hf_session *events = &node->links[HF_LINK_EVENTS];
    if (listen) {
        events->wanted = true;
    } else if (node->waiting == 0) {
        bool again = op->done && op->failure.code == HF_OK && !op->client->closed;
        node->linger_until = HF_DEFECT(NO_LOGOUT) ? HF_NEVER : again ? now + LINGER : now;
        events->wanted = again;
    }
}

void hf_client_listen_foreign(hf_op *op, hf_time now) {
    if (op->foreign || hf_client_is_sharded(op->client)) return;
    bool heard = other_foreign_listener(op) != NULL;
    op->foreign = true;
    if (!heard) {
        say_pattern(op->node, "PSUBSCRIBE", op->spec.names);
    } else {
        hf_acquire_on_nudge(op, now);
    }
}

static void on_events_ready(void *context, hf_time now) {
    hf_node *node = context;
    node->ping_at = now + PING_AFTER;
    hf_slice args[] = {{"SUBSCRIBE", 9}, hf_slice_of(node->client->grants)};
    if (!hf_session_say(&node->links[HF_LINK_EVENTS], 2, args)) node->links[HF_LINK_EVENTS].closing = true;
}

static void on_events_closed(void *context, hf_time now) {
    hf_node *node = context;
    hf_session *events = &node->links[HF_LINK_EVENTS];
    node->subscribed = false;
    node->ping_at = HF_NEVER;
    if (node->client->cluster && node->waiting > 0) hf_cluster_doubt(node, HF_LINK_CALLS, now);
    if (events->reason_code != HF_DENIED) return;
    for (hf_op *op = node->client->ops, *next; op; op = next) {
        next = op->next;
        if (waits_at(node, op)) hf_acquire_on_denied(op, HF_DENIED, events->reason, now);
    }
}

/* Our channel is confirmed: from here on no grant is missed, so everybody looks once. */
static void on_subscribed(hf_node *node, hf_time now) {
    node->subscribed = true;
    node->ping_at = now + PING_AFTER;
    for (hf_op *op = node->client->ops; op; op = op->next) {
        if (!waits_at(node, op)) continue;
        if (op->foreign) say_pattern(node, "PSUBSCRIBE", op->spec.names);
        hf_acquire_on_subscribed(op, now);
    }
}

static void on_pattern_subscribed(hf_node *node, hf_slice pattern, hf_time now) {
    for (hf_op *op = node->client->ops; op; op = op->next) {
        hf_slice own;
        if (!waits_at(node, op) || !op->foreign || !hf_names_pattern(op->spec.names, &own)) continue;
        bool same = hf_slice_equal(own, pattern);
        free((char *)(uintptr_t)own.data);
        if (same) hf_acquire_on_nudge(op, now);
    }
}

static void on_foreign_release(hf_node *node, hf_slice channel, hf_time now) {
    for (hf_op *op = node->client->ops; op; op = op->next) {
        if (waits_at(node, op) && op->foreign && hf_slice_equal(op->spec.names->releases, channel)) {
            hf_acquire_on_nudge(op, now);
        }
    }
}

/* A cluster's nodes pass messages on to each other: one may be heard at another node than the waiter's. */
static hf_op *waiter_of(const hf_client *client, uint64_t wait) {
    for (hf_op *op = client->ops; op; op = op->next) {
        if (waits_at(op->node, op) && op->wait == wait) return op;
    }
    return NULL;
}

static bool next_number(const char **at, uint64_t *value) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    *value = strtoull(*at, &end, 10);
    if (*end == ' ') end++;
    *at = end;
    return true;
}

/* No other process has the name of this client's coroutines. */
static bool is_own_owner(const hf_client *client, hf_slice owner) {
    return owner.size > HF_UUID_SIZE && memcmp(owner.data, client->uuid, HF_UUID_SIZE) == 0 &&
           owner.data[HF_UUID_SIZE] == ':';
}

/* A grant for a wait that has ended here: the keeper passes the lock on. Not that of a shared owner, which another
 * process may have by now: there it was passed on with the waiter's place, or ends with the grant lease. What is heard
 * at another node than the key's has been heard there. */
static void on_stray_grant(hf_node *node, hf_layout layout, hf_slice rest, uint64_t owner_size, uint64_t wait,
                           hf_time now) {
    hf_client *client = node->client;
    if (owner_size == 0 || owner_size > HF_OWNER_MAX || owner_size >= rest.size) return;
    hf_slice owner = {rest.data, (size_t)owner_size}, key = {rest.data + owner_size, rest.size - (size_t)owner_size};
    if (hf_client_node(client, key) != node) return;
    hf_hold *known = hf_holds_find(&client->holds, layout, key, owner);
    if (!known && layout == HF_LAYOUT_LOCK) known = hf_holds_find(&client->holds, HF_LAYOUT_GUARD, key, owner);
    if (known && known->state == HF_HOLD_RELEASING) known->wait = wait; /* the release may have led to it: left after */
    bool lost = known && known->state == HF_HOLD_LOST && !known->shared && !HF_DEFECT(STRAY_KEPT);
    if (known && !lost) return; /* being left, or acquired, which adopts it */
    if (!known && !is_own_owner(client, owner)) return;
    if (known) hf_holds_remove(&client->holds, known);
    hf_hold *hold = hf_holds_add(&client->holds, layout, key, owner);
    if (!hold) return;
    hold->wait = wait;
    hf_keeper_leave(client, hold, now);
}

/* "grant <wait> <token> <ms> <layout> <owner size> <owner><key>", "turn <wait> <ms>" or "look <wait>" */
static void on_message(hf_node *node, hf_slice text, hf_time now) {
    uint64_t wait, number, ms, mutex, owner_size;
    const char *at = text.data;
    if (strncmp(at, "grant ", 6) == 0) {
        at += 6;
        if (!next_number(&at, &wait) || !next_number(&at, &number) || !next_number(&at, &ms)) return;
        if (!next_number(&at, &mutex) || !next_number(&at, &owner_size)) return;
        hf_op *op = waiter_of(node->client, wait);
        hf_slice rest = {at, text.size - (size_t)(at - text.data)};
        if (op) hf_acquire_on_grant(op, number, hf_time_min(ms, HF_NEVER / HF_MS) * HF_MS, now);
        else on_stray_grant(node, mutex ? HF_LAYOUT_MUTEX : HF_LAYOUT_LOCK, rest, owner_size, wait, now);
    } else if (strncmp(at, "turn ", 5) == 0) {
        at += 5;
        if (!next_number(&at, &wait) || !next_number(&at, &number)) return;
        hf_op *op = waiter_of(node->client, wait);
        if (op) hf_acquire_on_turn(op, hf_time_min(number * HF_MS, HF_SECOND), now);
    } else if (strncmp(at, "look ", 5) == 0) {
        at += 5;
        hf_op *op = next_number(&at, &wait) ? waiter_of(node->client, wait) : NULL;
        if (op) hf_acquire_on_nudge(op, now);
    }
}

static void on_refused(hf_node *node, const char *error, hf_time now) {
    if (node->subscribed) return; /* a pattern: releases of others are then noticed by the clock */
    for (hf_op *op = node->client->ops, *next; op; op = next) {
        next = op->next;
        if (waits_at(node, op)) hf_acquire_on_denied(op, hf_code_of_error(error), error, now);
    }
}

static void on_event(void *context, const hf_reply *event, hf_time now) {
    hf_node *node = context;
    node->ping_at = now + PING_AFTER;
    if (event->type == HF_REPLY_ERROR) {
        on_refused(node, event->string, now);
        return;
    }
    hf_slice kind = hf_reply_string_at(event, 0);
    if (hf_slice_equal(kind, hf_slice_of("message"))) on_message(node, hf_reply_string_at(event, 2), now);
    else if (hf_slice_equal(kind, hf_slice_of("pmessage"))) on_foreign_release(node, hf_reply_string_at(event, 2), now);
    else if (hf_slice_equal(kind, hf_slice_of("subscribe"))) on_subscribed(node, now);
    else if (hf_slice_equal(kind, hf_slice_of("psubscribe")))
        on_pattern_subscribed(node, hf_reply_string_at(event, 1), now);
}

/* A server that has gone without a word leaves the link open for ever: it is asked, and given up when it stays silent.
 */
void hf_events_tick(hf_node *node, hf_time now) {
    hf_session *events = &node->links[HF_LINK_EVENTS];
    hf_time timeout = events->config->command_timeout;
    if (node->waiting == 0 && now >= node->linger_until) events->wanted = false;
    if (now < node->ping_at) return;
    if (now >= events->heard_at + PING_AFTER + timeout) {
        events->closing = true;
        snprintf(events->reason, sizeof events->reason, "no sign of life");
        events->reason_code = HF_UNREACHABLE;
        node->ping_at = HF_NEVER;
        return;
    }
    hf_slice ping[] = {{"PING", 4}};
    hf_session_say(events, 1, ping);
    node->ping_at = now + timeout;
}

hf_time hf_events_deadline(const hf_node *node) {
    const hf_session *events = &node->links[HF_LINK_EVENTS];
    hf_time soonest = hf_session_deadline(events);
    if (events->state == HF_SESSION_CLOSED) return soonest;
    if (node->waiting == 0) soonest = hf_time_min(soonest, node->linger_until);
    return hf_time_min(soonest, node->ping_at);
}

void hf_events_open(hf_node *node) {
    hf_session *events = &node->links[HF_LINK_EVENTS];
    events->subscriber = true;
    events->on_ready = on_events_ready;
    events->on_closed = on_events_closed;
    events->on_event = on_event;
}
