#include "op/events.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"
#include "lock/kind.h"
#include "lock/wire.h"
#include "op/holding.h"
#include "op/leave.h"

#define LINGER_TIME (500 * HF_MS)
#define PING_DELAY (5 * HF_SECOND)
#define MAX_LATE_GRANTS 64 /* concurrent clean-ups of grants whose waits have ended */

static bool waits_on(const hf_node *node, const hf_op *op) {
    return op->node == node && op->impl->wait && op->wait.needs_events && !op->done;
}

/* Returns the channels on which a waiter learns of Redisson's releases or of a new leader. */
static const hf_names *channels_of(const hf_op *op) {
    return op->wait.channels ? op->wait.channels : op->spec.names;
}

static bool is_listening(const hf_op *op) {
    return op->wait.listening != HF_SUBSCRIPTION_NONE;
}

static bool is_listening_to(const hf_op *op, hf_slice channel) {
    return is_listening(op) && hf_slice_equal(channels_of(op)->releases, channel);
}

static void send_pattern(hf_node *node, const char *command, const hf_names *names) {
    hf_slice pattern;
    if (!hf_names_pattern(names, &pattern)) return;
    hf_slice args[] = {hf_slice_of(command), pattern};
    hf_session_send(&node->links[HF_LINK_EVENTS], 2, args);
    free((char *)(uintptr_t)pattern.data);
}

/* With `with_ours`, the command also names the channel of our own subscribers: see send_sharded. */
static void send_plain(hf_node *node, const char *command, const hf_names *names, bool with_ours) {
    hf_slice args[] = {hf_slice_of(command), names->releases, names->ours};
    hf_session_send(&node->links[HF_LINK_EVENTS], with_ours ? 3 : 2, args);
}

/* One command names both channels, because the programs count the subscribers of the second to
 * learn how many subscribers of the first are ours. */
static void send_sharded(hf_node *node, const char *command, const hf_names *names) {
    hf_slice args[] = {hf_slice_of(command), names->releases, names->listening};
    hf_session_send(&node->links[HF_LINK_EVENTS], 3, args);
}

/* Subscribes to the releases, or unsubscribes. Without a subscription the waiter only rechecks. */
static void listen_to_releases(hf_node *node, bool listen, const hf_op *op) {
    const hf_names *names = channels_of(op);
    bool sharded = hf_node_has_sharded_channels(node);
    if (!node->subscribed) return;
    const hf_kind *kind = op->spec.lock_kind;
    /* No program counts the subscribers of an operation's own channels. */
    if (kind->subscribes_to_channel_itself || op->wait.channels)
        send_plain(node, listen ? "SUBSCRIBE" : "UNSUBSCRIBE", names, kind->counts_our_subscribers);
    /* A tenant's user must not use patterns, because they would reveal other tenants' grants. */
    else if (!node->client->config.tenant[0] && (!listen || !node->pattern_denied))
        send_pattern(node, listen ? "PSUBSCRIBE" : "PUNSUBSCRIBE", names);
    /* In a cluster a Redisson client may use either kind of channel. */
    if (sharded) send_sharded(node, listen ? "SSUBSCRIBE" : "SUNSUBSCRIBE", names);
}

static hf_op *find_other_listener(const hf_op *op) {
    for (hf_op *other = op->client->ops; other; other = other->next) {
        if (other != op && waits_on(op->node, other) &&
            is_listening_to(other, channels_of(op)->releases))
            return other;
    }
    return NULL;
}

static void stop_listening_to_releases(hf_op *op) {
    if (is_listening(op) && !find_other_listener(op)) listen_to_releases(op->node, false, op);
    op->wait.listening = HF_SUBSCRIPTION_NONE;
}

bool hf_node_has_sharded_channels(const hf_node *node) {
    bool ready = node->links[HF_LINK_EVENTS].state == HF_SESSION_READY;
    return node->links[ready ? HF_LINK_EVENTS : HF_LINK_CALLS].sharded;
}

void hf_node_change_listeners(hf_node *node, bool listen, bool linger, hf_time now) {
    hf_session *events = &node->links[HF_LINK_EVENTS];
    assert(listen || node->events_users > 0);
    node->events_users += listen ? 1u : (size_t)-1;
    if (listen) {
        events->stays_open = true;
    } else if (node->events_users == 0) {
        linger = linger && !node->client->closed;
        node->linger_until = linger ? now + LINGER_TIME : now;
        events->stays_open = linger;
    }
}

void hf_op_set_listening(hf_op *op, bool listen, hf_time now) {
    hf_node *node = op->node;
    if (op->wait.needs_events == listen) return;
    if (!listen) stop_listening_to_releases(op);
    op->wait.needs_events = listen;
    hf_node_change_listeners(node, listen, op->done && op->failure.code == HF_OK, now);
}

/* Returns false when out of memory; the waiter then only rechecks at regular intervals. */
static bool create_channels(hf_op *op) {
    if (op->spec.lock_kind->uses_list && !op->wait.channels)
        op->wait.channels = hf_names_of_waiter(op->spec.names, hf_hold_owner(op->hold));
    return !op->spec.lock_kind->uses_list || op->wait.channels;
}

void hf_op_listen_to_releases(hf_op *op, hf_time now) {
    assert(op->wait.needs_events && !op->done);
    if (is_listening(op) || !create_channels(op)) return;
    const hf_op *other = find_other_listener(op);
    op->wait.listening = other ? other->wait.listening : HF_SUBSCRIPTION_REQUESTED;
    if (!other) listen_to_releases(op->node, true, op);
    else op->impl->wait->on_recheck(op, 0, now);
}

void hf_op_move(hf_op *op, hf_node *node, hf_time now) {
    bool listening = op->wait.needs_events;
    if (op->node == node) return;
    hf_op_set_listening(op, false, now);
    op->node = node;
    hf_op_set_listening(op, listening, now);
    if (listening && node->subscribed) op->impl->wait->on_subscribed(op, now);
}

/* Closes the link, which is reopened if an operation is still waiting. */
static void give_up(hf_session *events, hf_code code, const char *reason) {
    events->closing = true;
    events->reason_code = code;
    snprintf(events->reason, sizeof events->reason, "%s", reason);
}

/* Ends this node's waits that the server has not accepted yet. Returns whether others continue. */
static bool deny_waits(hf_node *node, hf_code code, const char *reason, hf_time now) {
    bool others_continue = false;
    for (hf_op *op = node->client->ops, *next; op; op = next) {
        next = op->next;
        if (!waits_on(node, op)) continue;
        if (op->wait.accepted) others_continue = true;
        else op->impl->wait->on_denied(op, code, reason, now);
    }
    return others_continue;
}

/* Subscribes again. What was refused over an earlier connection may be permitted now. */
static void on_events_ready(void *context, hf_time now) {
    hf_node *node = context;
    node->ping_at = now + PING_DELAY;
    node->pattern_denied = false;
    hf_session *events = &node->links[HF_LINK_EVENTS];
    hf_slice args[] = {{"SUBSCRIBE", 9}, hf_slice_of(node->client->grants)};
    if (!hf_session_send(events, 2, args)) give_up(events, HF_NO_MEMORY, "out of memory");
}

static void on_events_closed(void *context, hf_time now) {
    hf_node *node = context;
    hf_session *events = &node->links[HF_LINK_EVENTS];
    node->subscribed = false;
    node->ping_at = HF_NEVER;
    const hf_topology *topology = node->client->topology;
    if (topology->invalidate && node->events_users > 0)
        topology->invalidate(node, HF_LINK_CALLS, now);
    if (events->reason_code == HF_DENIED) deny_waits(node, HF_DENIED, events->reason, now);
    for (hf_op *op = node->client->ops; op && events->opens_since_reply > 0; op = op->next) {
        if (waits_on(node, op))
            hf_observe_cut_off(op, hf_session_failure_code(events), events->reason, now);
    }
}

/* Called when the subscription to our channel is confirmed. No grant is missed from now on, but one
 * may have been missed before, so every waiter asks the server once. */
static void on_subscribed(hf_node *node, hf_time now) {
    node->subscribed = true;
    for (hf_op *op = node->client->ops; op; op = op->next) {
        if (!waits_on(node, op)) continue;
        if (is_listening(op)) {
            op->wait.listening = HF_SUBSCRIPTION_REQUESTED;
            listen_to_releases(node, true, op);
        }
        op->impl->wait->on_subscribed(op, now);
    }
}

static void on_pattern_subscribed(hf_node *node, hf_slice pattern, hf_time now) {
    for (hf_op *op = node->client->ops; op; op = op->next) {
        hf_slice own_pattern;
        if (!waits_on(node, op) || !is_listening(op) ||
            !hf_names_pattern(channels_of(op), &own_pattern))
            continue;
        bool is_own_pattern = hf_slice_equal(own_pattern, pattern);
        free((char *)(uintptr_t)own_pattern.data);
        if (is_own_pattern) op->impl->wait->on_recheck(op, 0, now);
    }
}

/* `confirmed` is false if the server has ended a sharded subscription because the slot has
 * moved. */
static void on_channel_subscribed(hf_node *node, hf_slice channel, bool confirmed, hf_time now) {
    for (hf_op *op = node->client->ops; op; op = op->next) {
        if (!waits_on(node, op) || !is_listening_to(op, channel)) continue;
        op->wait.listening = confirmed ? HF_SUBSCRIPTION_CONFIRMED : HF_SUBSCRIPTION_REQUESTED;
        op->impl->wait->on_recheck(op, 0, now);
    }
}

/* Called when a plain subscription is confirmed: to our grants, or to the channel of a latch or of
 * a fair lock's waiter. The latter does not matter if there is also a sharded subscription. */
static void on_plain_subscribed(hf_node *node, hf_slice channel, hf_time now) {
    if (hf_slice_equal(channel, hf_slice_of(node->client->grants))) on_subscribed(node, now);
    else if (!hf_node_has_sharded_channels(node)) on_channel_subscribed(node, channel, true, now);
}

static void on_release_message(hf_node *node, hf_slice channel, hf_slice message, hf_time now) {
    for (hf_op *op = node->client->ops; op; op = op->next) {
        if (!waits_on(node, op) || !is_listening_to(op, channel)) continue;
        const hf_wait_functions *wait = op->impl->wait;
        if (wait->on_release_message) wait->on_release_message(op, message, now);
        else wait->on_recheck(op, 0, now);
    }
}

/* Returns the waiting operation with this number, or NULL. It may be waiting on a different node
 * from the one that sent the message, because cluster nodes forward messages to each other. */
static hf_op *waiter_of(const hf_client *client, uint64_t wait) {
    const hf_number_entry *entry = NULL;
    while ((entry = hf_number_table_find(&client->waits, wait, entry))) {
        hf_op *op = entry->object;
        if (waits_on(op->node, op)) return op;
    }
    return NULL;
}

static hf_claim *add_claim_to_clean_up(hf_client *client, const hf_message *grant, hf_time now) {
    hf_slice key = grant->key;
    uint64_t wait = grant->number;
    char owner[HF_OWNER_SIZE];
    size_t size = grant->keeps ? hf_wire_keeping_owner(owner, client->uuid, wait)
                               : hf_wire_owner(owner, grant->kind, client->uuid, wait);
    hf_claim *claim = hf_client_add_claim(client, grant->kind, key, (hf_slice){owner, size});
    if (!claim) return NULL;
    hf_holds_set_wait(&client->holds, claim, wait);
    hf_renewer_clean_up(client, claim, now);
    return claim;
}

static bool is_for(const hf_message *grant, const hf_kind *kind, hf_slice key) {
    return grant->kind == kind && hf_slice_equal(grant->key, key);
}

/* Returns whether this client has waited for the granted lock. Any user who may publish can forge a
 * grant, so a grant for which nobody here has waited is ignored. `lost` is the claim of a lost hold
 * with the grant's number, or NULL. */
static bool was_waited_for(const hf_client *client, const hf_message *grant, const hf_claim *lost) {
    const hf_number_entry *entry = NULL;
    if (!hf_kind_release_grants(grant->kind)) return false;
    if (lost && is_for(grant, lost->kind, hf_claim_key(lost))) return true;
    while ((entry = hf_number_table_find(&client->waits, grant->number, entry))) {
        const hf_op *op = entry->object;
        if (is_for(grant, op->spec.lock_kind, op->spec.names->key)) return true;
    }
    return hf_ended_waits_have(&client->ended, grant->number, grant->kind, grant->key);
}

/* Handles a grant for a wait that has ended here: makes the renewer pass the lock on. If the wait
 * has a claim whose hold is not lost, that claim covers the grant. If a shared owner's claim is
 * gone, there is nothing to clean up: its leave command has passed the lock on, or the grant
 * expires with its lease. Grants beyond MAX_LATE_GRANTS expire, too. In a cluster a grant may
 * arrive on several nodes, and only the key's node handles it. */
static void on_late_grant(hf_node *node, const hf_message *grant, hf_time now) {
    hf_client *client = node->client;
    hf_holds *holds = &client->holds;
    uint64_t wait = grant->number;
    if (holds->late_grants >= MAX_LATE_GRANTS) return;
    const hf_claim *known = hf_holds_find_by_number(holds, wait);
    bool lost = known && known->hold && hf_hold_is_lost(known->hold);
    if ((known && !lost) || hf_holds_find_leaving_by_wait(holds, wait)) return;
    if (!was_waited_for(client, grant, known)) return;
    if (hf_client_node(client, grant->key) != node) return;
    hf_claim *claim = lost && known->shared ? hf_renewer_clean_up_grant(client, known, now)
                                            : add_claim_to_clean_up(client, grant, now);
    if (claim) hf_holds_mark_late_grant(holds, claim);
}

/* A message may contain grants to several waiters for one key. */
static void on_grants(hf_node *node, hf_message *grant, hf_time now) {
    do {
        hf_op *op = waiter_of(node->client, grant->number);
        if (!op) on_late_grant(node, grant, now);
        else if (is_for(grant, op->spec.lock_kind, op->spec.names->key))
            op->impl->wait->on_grant(op, grant, now);
    } while (hf_wire_next_grant(grant));
}

static void on_message(hf_node *node, hf_slice text, hf_time now) {
    hf_message message = hf_wire_read_message(text);
    hf_op *op = message.type == HF_MESSAGE_NONE ? NULL : waiter_of(node->client, message.number);
    switch (message.type) {
    case HF_MESSAGE_WANTED: hf_holds_on_wanted(&node->client->holds, message.number); break;
    case HF_MESSAGE_GRANT: on_grants(node, &message, now); break;
    case HF_MESSAGE_WINDOW:
        if (op) op->impl->wait->on_window(op, hf_time_min(message.delay, HF_SECOND), now);
        break;
    case HF_MESSAGE_RECHECK:
        if (op) op->impl->wait->on_recheck(op, message.delay, now);
        break;
    default: break;
    }
}

static void on_plain_message(hf_node *node, const hf_reply *event, hf_time now) {
    hf_slice channel = hf_reply_string_at(event, 1);
    if (hf_slice_equal(channel, hf_slice_of(node->client->grants)))
        on_message(node, hf_reply_string_at(event, 2), now);
    else on_release_message(node, channel, hf_reply_string_at(event, 2), now);
}

static void on_refused(hf_node *node, const char *error, hf_time now) {
    if (node->subscribed) {
        /* The server has refused a channel other than our own, usually a pattern. Rechecks find the
         * releases that it would have announced. */
        bool denied = hf_code_of_error(error) == HF_DENIED;
        node->pattern_denied =
            node->pattern_denied || (denied && !hf_node_has_sharded_channels(node));
        return;
    }
    hf_code code = hf_code_of_error(error);
    bool transient = code == HF_UNREACHABLE || hf_refusal_is_transient(hf_refusal_of(error), false);
    if (transient || deny_waits(node, code, error, now))
        give_up(&node->links[HF_LINK_EVENTS], HF_UNREACHABLE, error);
}

static void on_event(void *context, const hf_reply *event, hf_time now) {
    hf_node *node = context;
    node->ping_at = now + PING_DELAY;
    if (event->type == HF_REPLY_ERROR) {
        on_refused(node, event->string, now);
        return;
    }
    hf_slice kind = hf_reply_string_at(event, 0);
    if (hf_slice_equal(kind, hf_slice_of("message"))) on_plain_message(node, event, now);
    else if (hf_slice_equal(kind, hf_slice_of("pmessage")))
        on_release_message(node, hf_reply_string_at(event, 2), hf_reply_string_at(event, 3), now);
    else if (hf_slice_equal(kind, hf_slice_of("smessage")))
        on_release_message(node, hf_reply_string_at(event, 1), hf_reply_string_at(event, 2), now);
    else if (hf_slice_equal(kind, hf_slice_of("subscribe")))
        on_plain_subscribed(node, hf_reply_string_at(event, 1), now);
    else if (hf_slice_equal(kind, hf_slice_of("ssubscribe")))
        on_channel_subscribed(node, hf_reply_string_at(event, 1), true, now);
    else if (hf_slice_equal(kind, hf_slice_of("sunsubscribe")))
        on_channel_subscribed(node, hf_reply_string_at(event, 1), false, now);
    else if (hf_slice_equal(kind, hf_slice_of("psubscribe")))
        on_pattern_subscribed(node, hf_reply_string_at(event, 1), now);
}

/* A server that vanished without closing the connection would leave the link open forever. The PING
 * makes the session give up a link that remains silent. */
void hf_events_tick(hf_node *node, hf_time now) {
    hf_session *events = &node->links[HF_LINK_EVENTS];
    if (node->events_users == 0 && now >= node->linger_until) events->stays_open = false;
    if (now < node->ping_at) return;
    bool open = events->state == HF_SESSION_READY && !events->closing;
    node->ping_at = open && !hf_session_ping(events, now) ? now + PING_DELAY : HF_NEVER;
}

hf_time hf_events_next_tick(const hf_node *node) {
    const hf_session *events = &node->links[HF_LINK_EVENTS];
    hf_time earliest = hf_session_next_tick(events);
    if (events->state == HF_SESSION_CLOSED) return earliest;
    if (node->events_users == 0) earliest = hf_time_min(earliest, node->linger_until);
    return hf_time_min(earliest, node->ping_at);
}

void hf_events_prepare(hf_node *node) {
    hf_session *events = &node->links[HF_LINK_EVENTS];
    events->subscriber = true;
    events->on_ready = on_events_ready;
    events->on_closed = on_events_closed;
    events->on_event = on_event;
}
