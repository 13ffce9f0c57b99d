#include "op/observe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "interfaces.h"

const double hf_bucket_bounds[HF_BUCKETS] = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60};

static hf_time bucket_end(size_t i) {
    return (hf_time)(hf_bucket_bounds[i] * (double)HF_SECOND + 0.5);
}

static void count_duration(hf_histogram *histogram, hf_time duration) {
    size_t i = 0;
    while (i < HF_BUCKETS && duration > bucket_end(i)) i++;
    histogram->counts[i]++;
    histogram->sum += duration;
}

/* ---- classes ---- */

uint16_t hf_observe_class(hf_client *client, const char *name) {
    hf_class **classes = client->observer.classes;
    uint16_t i = 0;
    while (i < HF_CLASSES_MAX && classes[i] && strcmp(classes[i]->name, name) != 0) i++;
    if (i == HF_CLASSES_MAX) return 0;
    if (!classes[i]) {
        classes[i] = calloc(1, sizeof **classes);
        if (!classes[i]) return 0;
        strncpy(classes[i]->name, name, sizeof classes[i]->name - 1);
    }
    return i;
}

void hf_observe_carry_over(hf_client *client, const hf_observer *previous) {
    for (size_t i = 0; i < HF_CLASSES_MAX && previous->classes[i]; i++)
        hf_observe_class(client, previous->classes[i]->name);
    client->observer.wants_all = previous->wants_all;
}

/* Returns the client that has the counters and events: for a member, the quorum's client. */
static hf_client *counting_client(hf_client *client) {
    return client->quorum_client ? client->quorum_client : client;
}

static hf_class *class_of(hf_client *client, uint16_t index) {
    assert(index < HF_CLASSES_MAX);
    return counting_client(client)->observer.classes[index];
}

/* ---- events ---- */

static bool is_wanted(const hf_client *client, uint64_t observer) {
    return client->observer.wants_all || observer != 0;
}

static hf_event *add_with_message(hf_client *client, hf_event_kind kind, hf_slice key,
                                  hf_slice owner, hf_slice message) {
    hf_observer *observer = &client->observer;
    size_t text_size = key.size + owner.size + message.size;
    hf_event *event = observer->count < HF_EVENTS_MAX ? calloc(1, sizeof *event + text_size) : NULL;
    if (!event) {
        observer->dropped++;
        return NULL;
    }
    char *end = event->bytes;
    event->key = hf_slice_copy(&end, key);
    event->owner = hf_slice_copy(&end, owner);
    event->message = hf_slice_copy(&end, message);
    event->kind = kind;
    event->class = "";
    if (!observer->first) observer->end = &observer->first;
    assert(!*observer->end && observer->count < HF_EVENTS_MAX);
    *observer->end = event;
    observer->end = &event->next;
    observer->count++;
    return event;
}

static hf_event *add_event(hf_client *client, hf_event_kind kind, hf_slice key, hf_slice owner) {
    return add_with_message(client, kind, key, owner, HF_NO_TEXT);
}

/* Sets the fields that events of holds and of operations have in common. */
static void fill_event(hf_event *event, const hf_class *class, uint64_t observer, const char *code,
                       hf_time duration) {
    event->observer = observer;
    event->code = code;
    event->duration = duration;
    event->has_duration = true;
    if (class) event->class = class->name;
}

static void add_hold_event(hf_client *client, hf_event_kind kind, const hf_hold *hold,
                           const char *code, hf_time duration) {
    if (!is_wanted(client, hold->observer)) return;
    hf_event *event = add_event(client, kind, hf_hold_key(hold), hf_hold_owner(hold));
    if (!event) return;
    fill_event(event, class_of(client, hold->claim->class), hold->observer, code, duration);
    event->token = hold->token;
}

/* Adds an event for the claim's hold or, if it has none, for the claim itself. */
static void add_claim_event(hf_client *client, hf_event_kind kind, const hf_claim *claim,
                            hf_time duration) {
    if (claim->hold) {
        add_hold_event(client, kind, claim->hold, NULL, duration);
        return;
    }
    hf_event *event = is_wanted(client, 0)
                          ? add_event(client, kind, hf_claim_key(claim), hf_claim_owner(claim))
                          : NULL;
    if (event) fill_event(event, class_of(client, claim->class), 0, NULL, duration);
}

/* Adds an event for an operation that has not acquired a hold. */
static void add_op_event(hf_op *op, hf_event_kind kind, const char *code, hf_slice message,
                         hf_time now) {
    const hf_op_spec *spec = &op->spec;
    if (!is_wanted(op->client, spec->observer)) return;
    const hf_names *names = hf_op_names(op);
    hf_slice key = names ? names->key : HF_NO_TEXT;
    hf_event *event = add_with_message(op->client, kind, key, spec->caller, message);
    if (event)
        fill_event(event, class_of(op->client, spec->class), spec->observer, code,
                   now - op->begun_at);
}

const char *hf_event_name(hf_event_kind kind) {
    static const char *const names[] = {
        "acquired",          "busy",           "released", "lost",   "at_risk",
        "renewed_late",      "opened",         "closed",   "failed", "crash_released",
        "crash_release_off", "tenant_exposed", "cut_off",  "resumed"};
    _Static_assert(sizeof names / sizeof *names == HF_EVENT_KINDS, "each kind has a name");
    assert(kind < HF_EVENT_KINDS);
    return names[kind];
}

hf_event *hf_observe_take(hf_client *client) {
    hf_event *first = client->observer.first;
    client->observer.first = NULL;
    client->observer.count = 0;
    return first;
}

bool hf_observe_has_events(const hf_client *client) {
    return client->observer.first != NULL;
}

void hf_observe_free(hf_client *client) {
    for (hf_event *event = hf_observe_take(client), *next; event; event = next) {
        next = event->next;
        free(event);
    }
    for (size_t i = 0; i < HF_CLASSES_MAX; i++) free(client->observer.classes[i]);
}

/* ---- acquires and releases ---- */

static void on_acquired(hf_op *op, hf_hold *hold, hf_time now) {
    hf_class *class = class_of(op->client, op->spec.class);
    if (hold->held_since > 0) {
        if (class) class->reentries++;
        return;
    }
    hold->held_since = now;
    hold->claim->class = (uint8_t)op->spec.class;
    hold->observer = op->spec.observer;
    if (class) {
        class->outcomes[HF_OK]++;
        class->hand_offs += op->spec.batch_count == 0 && op->acquire.handed_over;
        count_duration(&class->waited, now - op->begun_at);
    }
    add_hold_event(op->client, HF_EVENT_ACQUIRED, hold, NULL, now - op->begun_at);
}

static void observe_hold_end(hf_client *client, hf_hold *hold, hf_event_kind kind, const char *code,
                             hf_time now) {
    hf_class *class = class_of(client, hold->claim->class);
    hf_time duration = now > hold->held_since ? now - hold->held_since : 0;
    if (hold->held_since == 0 || client->is_member) return;
    hold->held_since = 0;
    if (class) {
        count_duration(&class->held, duration);
        if (kind == HF_EVENT_RELEASED) class->releases++;
        else class->losses[hold->reason]++;
    }
    add_hold_event(client, kind, hold, code, duration);
}

void hf_observe_end(hf_client *client, hf_hold *hold, hf_time now) {
    observe_hold_end(client, hold, HF_EVENT_RELEASED, NULL, now);
}

/* A lost hold counts as held until the end of its lease. */
void hf_observe_loss(hf_client *client, hf_hold *hold) {
    observe_hold_end(client, hold, HF_EVENT_LOST, hf_lost_reason_name(hold->reason),
                     hold->claim->valid_until);
}

/* The caller of a detached release has continued without the lock, so the hold ended when the
 * release began. */
static void on_released(hf_op *op, hf_hold *hold, hf_time now) {
    bool held = hf_hold_is_held(hold);
    hf_time ended_at = op->detached ? op->begun_at : now;
    if (!held && !hf_hold_is_lost(hold)) hf_observe_end(op->client, hold, ended_at);
}

static void observe_hold(hf_op *op, hf_hold *hold, bool acquires, hf_time now) {
    if (!hold) return;
    if (acquires) on_acquired(op, hold, now);
    else on_released(op, hold, now);
}

/* Counts a successful wait without a hold: for a latch or a plain semaphore. */
static void on_polled_wait_done(hf_op *op, hf_time now) {
    hf_class *class = class_of(op->client, op->spec.class);
    if (class) {
        class->outcomes[HF_OK]++;
        count_duration(&class->waited, now - op->begun_at);
    }
    add_op_event(op, HF_EVENT_ACQUIRED, NULL, HF_NO_TEXT, now);
}

static bool is_observed_poll(const hf_op_impl *impl) {
    return impl->poll && !impl->poll->accompanies_wait;
}

void hf_observe_op(hf_op *op, hf_time now) {
    bool polls = is_observed_poll(hf_op_impl_of(op));
    bool acquires = hf_op_impl_of(op)->acquires || polls;
    bool releases = hf_op_impl_of(op)->releases;
    if (op->client->is_member || (!acquires && !releases)) return;
    if (acquires && op->failure.code != HF_OK) {
        hf_class *class = class_of(op->client, op->spec.class);
        if (class) class->outcomes[op->failure.code]++;
        hf_event_kind kind = op->failure.code == HF_BUSY ? HF_EVENT_BUSY : HF_EVENT_FAILED;
        add_op_event(op, kind, hf_code_name(op->failure.code), HF_NO_TEXT, now);
    } else if (polls) {
        on_polled_wait_done(op, now);
    } else if (op->spec.batch_count > 0) {
        for (size_t i = 0; i < op->spec.batch_count && op->batch.holds; i++)
            observe_hold(op, op->batch.holds[i], acquires, now);
    } else {
        observe_hold(op, op->hold, acquires, now);
    }
}

/* ---- waits ---- */

void hf_observe_cut_off(hf_op *op, hf_code code, const char *reason, hf_time now) {
    const hf_op_impl *impl = hf_op_impl_of(op);
    bool waits = (impl->acquires || is_observed_poll(impl)) && op->spec.wait > 0 && !op->done;
    if (!waits || op->wait.cut_off || op->client->is_member) return;
    op->wait.cut_off = true;
    hf_failure failure = {0};
    const hf_names *names = hf_op_names(op);
    hf_failure_set(&failure, code, impl->verb, names ? names->key : HF_NO_TEXT,
                   op->node->server.label, "%s", reason);
    add_op_event(op, HF_EVENT_CUT_OFF, hf_code_name(code), hf_slice_of(failure.text), now);
}

void hf_observe_resumed(hf_op *op, hf_time now) {
    if (!op->wait.cut_off) return;
    op->wait.cut_off = false;
    add_op_event(op, HF_EVENT_RESUMED, NULL, HF_NO_TEXT, now);
}

void hf_observe_delay(void *node, const hf_request *request, hf_code code, const char *reason,
                      hf_time now) {
    (void)node;
    if (request->routing.context_is_op) hf_observe_cut_off(request->context, code, reason, now);
}

void hf_observe_risk(hf_client *client, const hf_claim *claim, hf_time now) {
    hf_class *class = class_of(client, claim->class);
    if (class) class->risks++;
    if (client->is_member) return;
    add_claim_event(client, HF_EVENT_AT_RISK, claim, hf_claim_time_left(claim, now));
}

void hf_observe_renewal(hf_client *client, const hf_claim *claim, bool late) {
    hf_class *class = class_of(client, claim->class);
    if (class) {
        class->renewals++;
        class->renewed_late += late;
    }
    if (late && !client->is_member) add_claim_event(client, HF_EVENT_RENEWED_LATE, claim, 0);
}

void hf_observe_link(void *context, const hf_session *session, bool open) {
    hf_node *node = context;
    hf_client *client = counting_client(node->client);
    if (!client->observer.wants_all) return;
    hf_event *event = add_event(client, open ? HF_EVENT_OPENED : HF_EVENT_CLOSED,
                                hf_slice_of(session->server->label), HF_NO_TEXT);
    if (event && !open)
        event->code = hf_code_name(client->closed ? HF_CLOSED : session->reason_code);
    if (open && session->lacks_script_isolation && session == &node->links[HF_LINK_CALLS])
        add_event(client, HF_EVENT_TENANT_EXPOSED, hf_slice_of(session->server->label), HF_NO_TEXT);
}

void hf_observe_crash(hf_client *client, uint16_t class, uint64_t observer, hf_slice key,
                      hf_slice owner) {
    if (!is_wanted(client, observer)) return;
    hf_event *event = add_event(client, HF_EVENT_CRASH_RELEASED, key, owner);
    if (!event) return;
    event->observer = observer;
    if (class_of(client, class)) event->class = class_of(client, class)->name;
}

void hf_observe_crash_release_off(hf_client *client, const char *code) {
    hf_event *event = add_event(client, HF_EVENT_CRASH_RELEASE_OFF, HF_NO_TEXT, HF_NO_TEXT);
    if (event) event->code = code;
}

static uint16_t class_of_request(const hf_request *request) {
    if (!request->routing.context_is_op) return 0;
    const hf_op *op = request->context;
    bool uses_hold = op->hold && !hf_op_impl_of(op)->acquires;
    return uses_hold ? op->hold->claim->class : op->spec.class;
}

void hf_observe_reply(void *context, const hf_request *request, hf_time now) {
    const hf_node *node = context;
    hf_class *class = class_of(node->client, class_of_request(request));
    if (class) count_duration(&class->round_trips, now - request->sent_at);
    if (request->routing.context_is_op) hf_observe_resumed(request->context, now);
}
