#include <stdlib.h>
#include <string.h>

#include "quorum_internal.h"

#define TOKEN_MARGIN (2 * HF_MS) /* by which a proposed token is ahead of the clocks */

struct hf_straggler {
    hf_straggler *next;
    hf_ballot *ballot;
    hf_op *op;
    size_t index;
};

/* ---- life ---- */

/* A member's identity stands nowhere on a server but in its connections' channels, which it never opens. */
static void make_entropy(uint64_t *random, unsigned char entropy[24]) {
    for (int i = 0; i < 24; i++) entropy[i] = (unsigned char)hf_jitter(random, 256);
}

static hf_client *new_member(hf_client *client, const hf_server *server) {
    unsigned char entropy[24];
    hf_client_config config = client->config;
    hf_client *member = malloc(sizeof *member);
    if (!member) return NULL;
    config.mode = HF_MODE_ONE;
    config.session.server = *server;
    config.session.asks_uptime = config.restart_guard > 0;
    make_entropy(&client->random, entropy);
    if (!hf_client_init(member, &config, entropy)) { /* cannot happen with one server */
        hf_client_free(member);
        free(member);
        return NULL;
    }
    member->is_member = true;
    return member;
}

bool hf_quorum_open(hf_client *client) {
    size_t count = client->config.server_count;
    hf_quorum *quorum = calloc(1, sizeof *quorum);
    client->quorum = quorum;
    if (!quorum) return false;
    quorum->majority = count / 2 + 1 - (HF_DEFECT(QUORUM_LESS_ONE) ? 1 : 0);
    quorum->members = calloc(count, sizeof(hf_client *));
    quorum->ahead = calloc(count, sizeof *quorum->ahead);
    if (!quorum->members || !quorum->ahead) return false;
    for (size_t i = 0; i < count; i++) {
        hf_client *member = new_member(client, &client->config.servers[i]);
        if (!member) return false;
        quorum->members[quorum->count++] = member;
    }
    return true;
}

static void end_straggler(hf_straggler **at, hf_time now) {
    hf_straggler *straggler = *at;
    *at = straggler->next;
    hf_op_end(straggler->op, now);
    hf_ballot_unref(straggler->ballot);
    free(straggler);
}

void hf_quorum_close(hf_client *client, hf_time now) {
    hf_quorum *quorum = client->quorum;
    while (client->holds.count > 0) hf_holds_remove(&client->holds, client->holds.heap[0]);
    while (quorum->stragglers) end_straggler(&quorum->stragglers, now);
    for (size_t i = 0; i < quorum->count; i++) hf_client_close(quorum->members[i], now);
}

void hf_quorum_free(hf_client *client) {
    hf_quorum *quorum = client->quorum;
    if (!quorum) return;
    while (quorum->stragglers) end_straggler(&quorum->stragglers, 0);
    for (size_t i = 0; i < quorum->count; i++) {
        hf_client_free(quorum->members[i]);
        free(quorum->members[i]);
    }
    free(quorum->members);
    free(quorum->ahead);
    free(quorum);
    client->quorum = NULL;
}

bool hf_quorum_is_quiet(const hf_quorum *quorum) {
    for (size_t i = 0; i < quorum->count; i++) {
        if (!hf_client_is_quiet(quorum->members[i])) return false;
    }
    return quorum->stragglers == NULL;
}

/* ---- parts ---- */

bool hf_part_is_held(const hf_hold *part) {
    return part && part->in_table && part->state == HF_HOLD_HELD;
}

bool hf_quorum_add_part(hf_client *client, hf_hold *hold, size_t index, hf_hold *part) {
    if (!hold->parts) {
        hold->parts = calloc(client->quorum->count, sizeof(hf_hold *));
        if (!hold->parts) return false;
        hold->part_count = (uint32_t)client->quorum->count;
    }
    hf_hold_ref(part);
    if (hold->parts[index]) hf_hold_unref(hold->parts[index]);
    hold->parts[index] = part;
    return true;
}

void hf_quorum_leave_parts(hf_client *client, hf_hold *hold, uint32_t keep, hf_time now) {
    for (size_t i = 0; i < hold->part_count; i++) {
        hf_hold *part = hold->parts[i];
        if (!part || !part->in_table) continue;
        uint32_t own = part->count - part->base;
        if (part->state == HF_HOLD_LOST || own > keep)
            hf_client_abandon(client->quorum->members[i], part, own - keep, now);
    }
}

/* The end that at least `majority` of the parts reach, 0: fewer are held. */
static hf_time majority_end(const hf_quorum *quorum, const hf_hold *hold) {
    hf_time end = 0;
    for (size_t i = 0; i < hold->part_count; i++) {
        if (!hf_part_is_held(hold->parts[i])) continue;
        hf_time candidate = hold->parts[i]->valid_until;
        size_t reach = 0;
        for (size_t j = 0; j < hold->part_count; j++)
            reach += hf_part_is_held(hold->parts[j]) && hold->parts[j]->valid_until >= candidate;
        if (reach >= quorum->majority || HF_DEFECT(FIRST_END)) end = hf_time_max(end, candidate);
    }
    return end;
}

/* What a server said weighs more than a silence. */
static hf_lost_reason reason_of_loss(const hf_hold *hold) {
    hf_lost_reason reason = hf_lost_reason_at_end(hold);
    for (size_t i = 0; i < hold->part_count; i++) {
        const hf_hold *part = hold->parts[i];
        if (!part || part->state != HF_HOLD_LOST) continue;
        bool said = part->reason == HF_LOST_TAKEN || part->reason == HF_LOST_DELETED;
        if (said || part->reason == HF_LOST_UNREACHABLE) reason = part->reason;
        if (said) break;
    }
    return reason;
}

static bool lacks_a_part(const hf_hold *hold) {
    for (size_t i = 0; i < hold->part_count; i++) {
        if (!hf_part_is_held(hold->parts[i])) return true;
    }
    return false;
}

void hf_quorum_look_at(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->state != HF_HOLD_HELD) return;
    hf_time end = majority_end(client->quorum, hold);
    if (end > now) {
        hold->valid_until = end;
        hf_time next = hold->renewed && lacks_a_part(hold) ? hf_time_min(end, now + hold->lease / 3) : end;
        hf_holds_wake_at(&client->holds, hold, hf_time_min(hold->wake_at, next));
    } else {
        hf_client_lose(client, hold, reason_of_loss(hold));
    }
}

void hf_quorum_notice(hf_client *client, hf_time now) {
    hf_quorum *quorum = client->quorum;
    uint64_t losses = 0;
    for (size_t i = 0; i < quorum->count; i++) {
        hf_client_notice(quorum->members[i], now);
        losses += quorum->members[i]->holds.news;
    }
    if (losses != quorum->losses_seen) {
        quorum->losses_seen = losses;
        for (size_t i = client->holds.count; i-- > 0;) hf_quorum_look_at(client, client->holds.heap[i], now);
    }
    for (hf_hold *hold; (hold = hf_holds_first_ended(&client->holds, now));) hf_quorum_look_at(client, hold, now);
}

void hf_quorum_allow(hf_client *client, hf_hold *hold, hf_time now) {
    for (size_t i = 0; i < hold->part_count; i++) {
        if (hold->parts[i]) hf_client_allow(client->quorum->members[i], hold->parts[i], now);
    }
}

void hf_quorum_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now) {
    if (!hold->in_table) return;
    uint32_t keep = hold->state == HF_HOLD_HELD && hold->count > count ? hold->count - count : 0;
    hf_quorum_leave_parts(client, hold, keep, now);
    hold->count = keep;
    if (keep > 0) return;
    hf_quorum_end_stragglers(client, hold, now);
    hf_holds_remove(&client->holds, hold);
}

/* ---- servers that came back ---- */

bool hf_quorum_is_guarded(const hf_client *client, size_t index, hf_time now) {
    const hf_session *calls = &client->quorum->members[index]->first.links[HF_LINK_CALLS];
    return client->config.restart_guard > 0 && now < hf_time_add(calls->server_since, client->config.restart_guard);
}

static void plant(hf_client *client, hf_hold *hold, size_t index, hf_time now) {
    hf_names names;
    if (!hf_names_make(&names, hf_hold_key(hold))) return;
    hf_op_spec spec = {.kind = HF_OP_ACQUIRE,
                       .layout = hold->layout,
                       .names = &names,
                       .owner = hf_hold_owner(hold),
                       .print = {"", 0},
                       .result = {"", 0},
                       .lease = hold->lease,
                       .token_ttl_ms = hold->token_ttl_ms,
                       .token_floor = hold->token,
                       .renewed = true,
                       .shared = hold->shared};
    hf_ballot *ballot = hf_ballot_new(&spec, 0);
    hf_names_free(&names);
    if (!ballot) return;
    hf_hold_ref(hold);
    ballot->hold = hold;
    spec = hf_ballot_spec(ballot, &spec);
    hf_op *op = hf_client_begin(client->quorum->members[index], &spec, now);
    if (op) hf_quorum_leave_behind(client, ballot, index, op, now);
    hf_ballot_unref(ballot);
}

/* While a majority holds it, the others may as well: also one that forgot it, or could not be reached before. */
static void plant_missing(hf_client *client, hf_hold *hold, hf_time now) {
    if (!hold->renewed || hold->state != HF_HOLD_HELD) return;
    for (size_t i = 0; i < hold->part_count; i++) {
        if (hf_part_is_held(hold->parts[i]) || hf_quorum_has_straggler(client->quorum, hold, i)) continue;
        plant(client, hold, i, now);
    }
}

/* ---- stragglers ---- */

bool hf_quorum_leave_behind(hf_client *client, hf_ballot *ballot, size_t index, hf_op *op, hf_time now) {
    hf_straggler *straggler = malloc(sizeof *straggler);
    if (!straggler) {
        hf_op_end(op, now);
        return false;
    }
    ballot->refs++;
    *straggler = (hf_straggler){client->quorum->stragglers, ballot, op, index};
    client->quorum->stragglers = straggler;
    return true;
}

bool hf_quorum_has_straggler(const hf_quorum *quorum, const hf_hold *hold, size_t index) {
    for (const hf_straggler *straggler = quorum->stragglers; straggler; straggler = straggler->next) {
        if (straggler->ballot->hold == hold && straggler->index == index) return true;
    }
    return false;
}

void hf_quorum_end_stragglers(hf_client *client, const hf_hold *hold, hf_time now) {
    hf_straggler **at = &client->quorum->stragglers;
    while (*at) {
        bool acquires = (*at)->op->spec.kind == HF_OP_ACQUIRE && !(*at)->op->done;
        if (!acquires || (*at)->ballot->hold != hold) {
            at = &(*at)->next;
            continue;
        }
        hf_client *member = client->quorum->members[(*at)->index];
        end_straggler(at, now);
        hf_keeper_tick(member, now); /* what leaves goes out with what is sent next */
    }
}

/* A late yes: a part of the hold, unless that is over or the server's yes is worth nothing. */
static void settle_late_yes(hf_client *client, hf_straggler *straggler, hf_time now) {
    hf_hold *hold = straggler->ballot->hold, *part = straggler->op->hold;
    hf_client *member = client->quorum->members[straggler->index];
    bool wanted =
        hold && hold->in_table && hold->state == HF_HOLD_HELD && !hf_part_is_held(hold->parts[straggler->index]);
    bool counts = wanted && !hf_quorum_is_guarded(client, straggler->index, now);
    if (counts && hf_quorum_add_part(client, hold, straggler->index, part)) hf_quorum_look_at(client, hold, now);
    else if (!HF_DEFECT(LATE_YES_KEPT)) hf_client_abandon(member, part, 1, now);
}

static void settle_stragglers(hf_client *client, hf_time now) {
    hf_straggler **at = &client->quorum->stragglers;
    while (*at) {
        hf_straggler *straggler = *at;
        if (!straggler->op->done) {
            at = &straggler->next;
            continue;
        }
        bool yes = straggler->op->spec.kind == HF_OP_ACQUIRE && straggler->op->failure.code == HF_OK;
        if (yes) settle_late_yes(client, straggler, now);
        end_straggler(at, now);
    }
}

static bool has_settled_straggler(const hf_quorum *quorum) {
    for (const hf_straggler *straggler = quorum->stragglers; straggler; straggler = straggler->next) {
        if (straggler->op->done) return true;
    }
    return false;
}

/* ---- tokens: one that every server takes as it is needs no writing back ---- */

uint64_t hf_quorum_propose(const hf_quorum *quorum, hf_time now) {
    if (!quorum->clocks_known) return 1;
    int64_t most = quorum->ahead[0];
    for (size_t i = 1; i < quorum->count; i++) most = quorum->ahead[i] > most ? quorum->ahead[i] : most;
    int64_t proposal = (int64_t)((now + TOKEN_MARGIN + quorum->last_round) / 1000) + most;
    return proposal > 0 ? (uint64_t)proposal : 0;
}

void hf_quorum_learn_clock(hf_quorum *quorum, size_t index, const hf_op *op) {
    if (op->server_us <= 0) return;
    int64_t ahead = (int64_t)op->server_us - (int64_t)(op->request.sent_at / 1000);
    if (!quorum->clocks_known) {
        for (size_t i = 0; i < quorum->count; i++) quorum->ahead[i] = ahead;
    }
    quorum->clocks_known = true;
    quorum->ahead[index] = ahead;
}

/* ---- time ---- */

hf_time hf_quorum_calls_deadline(const hf_quorum *quorum) {
    hf_time soonest = has_settled_straggler(quorum) ? 0 : HF_NEVER;
    for (size_t i = 0; i < quorum->count; i++) {
        const hf_client *member = quorum->members[i];
        soonest = hf_time_min(soonest, hf_client_calls_deadline(member));
        for (const hf_op *op = member->ops; op; op = op->next) soonest = hf_time_min(soonest, hf_op_deadline(op));
    }
    return soonest;
}

hf_time hf_quorum_keeper_deadline(const hf_quorum *quorum) {
    hf_time soonest = HF_NEVER;
    for (size_t i = 0; i < quorum->count; i++)
        soonest = hf_time_min(soonest, hf_client_keeper_deadline(quorum->members[i]));
    return soonest;
}

void hf_quorum_tick_calls(hf_client *client, hf_time now) {
    for (size_t i = 0; i < client->quorum->count; i++) hf_client_tick_calls(client->quorum->members[i], now);
    settle_stragglers(client, now);
}

static void look_at_due(hf_client *client, hf_time now) {
    for (hf_hold *hold; (hold = hf_holds_first(&client->holds)) && hold->wake_at <= now;) {
        hf_holds_wake_at(&client->holds, hold, HF_NEVER);
        hf_quorum_look_at(client, hold, now);
        plant_missing(client, hold, now);
    }
}

void hf_quorum_tick_keeper(hf_client *client, hf_time now) {
    for (size_t i = 0; i < client->quorum->count; i++) hf_client_tick_keeper(client->quorum->members[i], now);
    settle_stragglers(client, now);
    hf_quorum_notice(client, now);
    look_at_due(client, now);
}
