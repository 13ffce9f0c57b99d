#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/leave.h"
#include "op/operation.h"
#include "op/renew.h"
#include "quorum/internal.h"

#define FIRST_REPAIR_PAUSE (50 * HF_MS)
#define MIN_GRACE (250 * HF_MS)  /* a closed client waits at least this long for servers */
#define MAX_REPAIRS 100          /* per server at a time; a hung server delays each by a time-out */
#define TOKEN_MARGIN (2 * HF_MS) /* how far a proposed token is ahead of the clocks */

struct hf_late_reply {
    hf_late_reply *next;
    hf_round *round;
    hf_op *op;
    size_t index;
};

/* ---- creating and destroying ---- */

static hf_client *new_member(hf_client *client, const hf_server *server) {
    unsigned char entropy[24];
    hf_client_config config = client->config;
    hf_client *member = malloc(sizeof *member);
    if (!member) return NULL;
    config.mode = HF_MODE_ONE;
    config.session.server = *server;
    config.session.reads_server_info = config.session.reads_server_info || config.restart_guard > 0;
    config.session.reads_known_run = config.restart_guard > 0;
    /* A member's identity only names its channel, to which the member never subscribes, so the
     * entropy need not come from the system. */
    for (int i = 0; i < 24; i++) entropy[i] = (unsigned char)hf_jitter(&client->random, 256);
    if (!hf_client_init(member, &config, entropy)) { /* cannot fail with a single server */
        hf_client_free(member);
        free(member);
        return NULL;
    }
    member->is_member = true;
    return member;
}

static bool open_members(hf_client *client) {
    size_t count = client->config.server_count;
    snprintf(client->first.server.label, sizeof client->first.server.label,
             "a quorum of %zu servers", count);
    hf_quorum *quorum = calloc(1, sizeof *quorum);
    client->quorum = quorum;
    if (!quorum) return false;
    quorum->majority = count / 2 + 1;
    assert(count > 0 && count <= HF_QUORUM_MAX);
    quorum->members = calloc(count, sizeof(hf_client *));
    quorum->clock_leads_us = calloc(count, sizeof *quorum->clock_leads_us);
    if (!quorum->members || !quorum->clock_leads_us) return false;
    for (size_t i = 0; i < count; i++) {
        hf_client *member = new_member(client, &client->config.servers[i]);
        if (!member) return false;
        member->quorum_client = client;
        quorum->members[quorum->count++] = member;
    }
    return true;
}

static void end_late_reply(hf_late_reply **link, hf_time now) {
    hf_late_reply *late_reply = *link;
    *link = late_reply->next;
    hf_op_end(late_reply->op, now);
    hf_round_unref(late_reply->round);
    free(late_reply);
}

static void close_members(hf_client *client, hf_time now) {
    hf_quorum *quorum = client->quorum;
    while (client->holds.count > 0) hf_holds_remove(&client->holds, client->holds.heap[0]);
    while (quorum->late_replies) end_late_reply(&quorum->late_replies, now);
    quorum->closed_at = now;
    for (size_t i = 0; i < quorum->count; i++) hf_client_close(quorum->members[i], now);
}

static void free_members(hf_client *client) {
    hf_quorum *quorum = client->quorum;
    if (!quorum) return;
    while (quorum->late_replies) end_late_reply(&quorum->late_replies, 0);
    for (size_t i = 0; i < quorum->count; i++) {
        hf_client_free(quorum->members[i]);
        free(quorum->members[i]);
    }
    free(quorum->members);
    free(quorum->clock_leads_us);
    free(quorum);
    client->quorum = NULL;
}

/* ---- the end of a client ---- */

static size_t quiet_count(const hf_quorum *quorum) {
    size_t quiet = 0;
    for (size_t i = 0; i < quorum->count; i++) quiet += hf_client_is_quiet(quorum->members[i]);
    return quiet;
}

static bool is_quiet(const hf_client *client) {
    const hf_quorum *quorum = client->quorum;
    if (quorum->late_replies) return false;
    return quorum->stopped_waiting || quiet_count(quorum) == quorum->count;
}

/* Returns when a closed client stops waiting for hung servers, or HF_NEVER. */
static hf_time grace_end(const hf_quorum *quorum) {
    if (quorum->quiet_at == 0 || quorum->stopped_waiting) return HF_NEVER;
    hf_time duration = quorum->quiet_at - quorum->closed_at;
    return quorum->quiet_at + hf_time_max(MIN_GRACE, 10 * duration);
}

static void check_grace_period(hf_quorum *quorum, hf_time now) {
    bool majority_is_quiet = quorum->closed_at > 0 && quiet_count(quorum) >= quorum->majority;
    if (majority_is_quiet && quorum->quiet_at == 0) quorum->quiet_at = now;
    if (now >= grace_end(quorum)) quorum->stopped_waiting = true;
}

/* ---- member holds ---- */

bool hf_member_hold_is_held(const hf_hold *member_hold) {
    return member_hold && hf_hold_is_held(member_hold);
}

bool hf_quorum_add_member_hold(hf_client *client, hf_hold *hold, size_t index,
                               hf_hold *member_hold) {
    if (!hold->member_holds) {
        hold->member_holds = calloc(client->quorum->count, sizeof(hf_hold *));
        if (!hold->member_holds) return false;
        hold->member_count = (uint8_t)client->quorum->count;
    }
    assert(index < hold->member_count && hold->member_count == client->quorum->count);
    hf_hold_ref(member_hold);
    if (hold->member_holds[index]) hf_hold_unref(hold->member_holds[index]);
    hold->member_holds[index] = member_hold;
    hold->busy_replies = 0;
    return true;
}

uint32_t hf_member_hold_entries(const hf_client *member, const hf_hold *member_hold) {
    uint32_t entries = member_hold->claim->count - member_hold->claim->share.others, released = 0;
    for (const hf_op *op = member->ops; op; op = op->next)
        released += op->hold == member_hold && !op->done && hf_op_impl_of(op)->releases;
    return entries > released ? entries - released : 0;
}

void hf_quorum_clean_up_member_holds(hf_client *client, hf_hold *hold, uint32_t remaining,
                                     hf_time now) {
    for (size_t i = 0; i < hold->member_count; i++) {
        hf_hold *member_hold = hold->member_holds[i];
        if (!member_hold || !hf_hold_in_table(member_hold)) continue;
        uint32_t entries = hf_member_hold_entries(client->quorum->members[i], member_hold);
        if (hf_hold_is_lost(member_hold) || entries > remaining)
            hf_renewer_abandon(client->quorum->members[i], member_hold, entries - remaining, now);
    }
}

/* Returns whether the server may have forgotten the hold. The link for renewals may have found a
 * restart that the link for calls has not noticed yet. */
static bool may_have_forgotten(const hf_client *client, size_t index, hf_time now) {
    const hf_session *links = client->quorum->members[index]->first.links;
    const hf_session *calls = &links[HF_LINK_CALLS], *renewer = &links[HF_LINK_RENEWER];
    bool other_run = renewer->run_id[0] && strcmp(renewer->run_id, calls->run_id) != 0;
    bool unknown = other_run && !hf_session_is_known(renewer, client->config.restart_guard, now);
    return hf_quorum_is_guarded(client, index, now) ||
           (client->config.restart_guard > 0 && unknown);
}

/* Returns the end of the hold on this server, or 0 if there is none. A server that may have
 * forgotten a shared owner's hold does not count: once another process of that owner has acquired
 * there, the server confirms renewals again, but that process may release the lock. */
static hf_time member_hold_end(const hf_client *client, const hf_hold *hold, size_t index,
                               hf_time now) {
    const hf_hold *member_hold = hold->member_holds[index];
    if (!hf_member_hold_is_held(member_hold) ||
        (hold->claim->shared && may_have_forgotten(client, index, now)))
        return 0;
    return member_hold->claim->valid_until;
}

/* Returns the time until which a majority's member holds are valid; 0 if there is no majority. */
static hf_time majority_end(const hf_client *client, const hf_hold *hold, hf_time now) {
    hf_time end = 0;
    for (size_t i = 0; i < hold->member_count; i++) {
        hf_time candidate = member_hold_end(client, hold, i, now);
        size_t count = 0;
        for (size_t j = 0; candidate > 0 && j < hold->member_count; j++)
            count += member_hold_end(client, hold, j, now) >= candidate;
        if (count >= client->quorum->majority) end = hf_time_max(end, candidate);
    }
    return end;
}

/* A reason that a server gave takes precedence over a missing reply. */
static hf_lost_reason reason_of_loss(const hf_hold *hold, hf_time now) {
    hf_lost_reason reason = hf_lost_reason_at_end(hold->claim);
    if (reason == HF_LOST_MAX_HOLD && now >= hold->claim->valid_until) return reason;
    for (size_t i = 0; i < hold->member_count; i++) {
        const hf_hold *member_hold = hold->member_holds[i];
        if (!member_hold || !hf_hold_is_lost(member_hold)) continue;
        bool replied =
            member_hold->reason == HF_LOST_TAKEN || member_hold->reason == HF_LOST_DELETED;
        if (replied || member_hold->reason == HF_LOST_UNREACHABLE) reason = member_hold->reason;
        if (replied) break;
    }
    return reason;
}

static bool lacks_a_member_hold(const hf_hold *hold) {
    for (size_t i = 0; i < hold->member_count; i++) {
        if (!hf_member_hold_is_held(hold->member_holds[i])) return true;
    }
    return false;
}

/* Marks the hold lost and cleans up its member holds, which would otherwise block other owners. */
void hf_quorum_mark_lost(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now) {
    hf_client_lose(client, hold, reason);
    hf_quorum_clean_up_member_holds(client, hold, 0, now);
}

void hf_quorum_refresh(hf_client *client, hf_hold *hold, hf_time now) {
    hf_claim *claim = hold->claim;
    if (!hf_claim_is_held(claim)) return;
    hf_time end = hf_time_min(majority_end(client, hold, now), claim->max_until);
    if (end > now) {
        claim->valid_until = end;
        hf_time next = claim->renewed && lacks_a_member_hold(hold)
                           ? hf_time_min(end, now + claim->lease / 3)
                           : end;
        hf_holds_set_wake_at(&client->holds, claim, hf_time_min(claim->wake_at, next));
    } else {
        hf_quorum_mark_lost(client, hold, reason_of_loss(hold, now), now);
    }
}

/* Iterates over the table of keys, because refreshing a hold may move it in the heap. */
static void refresh_all(hf_client *client, hf_time now) {
    const hf_number_table *keys = &client->holds.keys;
    for (size_t i = 0; i < keys->bucket_count; i++) {
        for (hf_number_entry *entry = keys->buckets[i]; entry; entry = entry->next)
            hf_quorum_refresh(client, ((hf_claim *)entry->object)->hold, now);
    }
}

static void detect_losses(hf_client *client, hf_time now) {
    hf_quorum *quorum = client->quorum;
    uint64_t losses = 0;
    for (size_t i = 0; i < quorum->count; i++) {
        hf_client_detect_losses(quorum->members[i], now);
        losses += quorum->members[i]->holds.losses;
    }
    if (losses != quorum->losses_at_check) {
        quorum->losses_at_check = losses;
        refresh_all(client, now);
    }
    for (const hf_claim *claim; (claim = hf_holds_first_expired(&client->holds, now));)
        hf_quorum_refresh(client, claim->hold, now);
}

static void approve(hf_client *client, hf_hold *hold, hf_time now) {
    for (size_t i = 0; i < hold->member_count; i++) {
        if (hold->member_holds[i])
            hf_client_approve(client->quorum->members[i], hold->member_holds[i], now);
    }
}

static void set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now) {
    hold->claim->renewed = renewed;
    for (size_t i = 0; i < hold->member_count; i++) {
        if (hold->member_holds[i])
            hf_client_set_renewed(client->quorum->members[i], hold->member_holds[i], renewed, now);
    }
    hf_quorum_refresh(client, hold, now);
}

/* Returns whether an undecided acquire is re-entering the hold. */
static bool is_being_reentered(const hf_client *client, const hf_hold *hold) {
    for (hf_op *op = client->ops; op && hf_hold_is_held(hold); op = op->next) {
        bool enters = hf_op_impl_of(op)->acquires && op->round && op->round->hold == hold;
        if (enters && !op->blocked && op->round->state != HF_ROUND_DECIDED) return true;
    }
    return false;
}

void hf_quorum_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now) {
    if (!hf_hold_in_table(hold)) return;
    if (is_being_reentered(client, hold)) {
        hold->deferred_entries += count;
        return;
    }
    uint32_t remaining =
        hf_hold_is_held(hold) && hold->claim->count > count ? hold->claim->count - count : 0;
    hf_quorum_clean_up_member_holds(client, hold, remaining, now);
    hold->claim->count = remaining;
    if (remaining > 0) return;
    hf_observe_end(client, hold, now);
    hf_quorum_end_late_replies(client, hold, now);
    hf_holds_remove(&client->holds, hold->claim);
}

/* ---- repair of holds after a restart or an outage ---- */

bool hf_quorum_is_guarded(const hf_client *client, size_t index, hf_time now) {
    assert(index < client->quorum->count);
    hf_time guard = client->config.restart_guard;
    hf_session *calls = &client->quorum->members[index]->first.links[HF_LINK_CALLS];
    if (guard == 0) return false;
    if (!hf_session_is_known(calls, guard, now)) return true;
    hf_session_store_run_id(calls, now);
    return false;
}

static void repair(hf_client *client, hf_hold *hold, size_t index, hf_time now) {
    hf_claim *claim = hold->claim;
    hf_names *names = hf_names_new(claim->kind, hf_hold_key(hold));
    if (!names) return;
    hf_op_spec spec = {.kind = HF_OP_ACQUIRE,
                       .lock_kind = claim->kind,
                       .names = names,
                       .caller = hf_hold_caller(hold),
                       .owner = hf_hold_owner(hold),
                       .fingerprint = {"", 0},
                       .result = {"", 0},
                       .lease = claim->lease,
                       .max_hold = hf_claim_max_left(claim, now),
                       .token_ttl_ms = claim->token_ttl_ms,
                       .token_floor = hold->token,
                       .renewed = true,
                       .shared = claim->shared};
    hf_round *round = hf_round_new(&spec, 0);
    hf_names_delete(names);
    if (!round) return;
    hf_hold_ref(hold);
    round->hold = hold;
    hf_round_choose_owner(round, hold);
    spec = hf_round_spec(round, &spec);
    hf_op *op = hf_client_begin(client->quorum->members[index], &spec, now);
    if (op) hf_quorum_await_late_reply(client, round, index, op, now);
    hf_round_unref(round);
}

static size_t count_repairs(const hf_quorum *quorum, size_t index) {
    size_t repairs = 0;
    for (const hf_late_reply *late_reply = quorum->late_replies; late_reply;
         late_reply = late_reply->next)
        repairs += late_reply->index == index && late_reply->round->count == 0;
    return repairs;
}

/* Delays a repair by a random time, so that not too many repairs run at once. */
static void defer_repair(hf_client *client, hf_hold *hold, hf_time now) {
    hf_claim *claim = hold->claim;
    hf_time repair_at = now + HF_MS + hf_jitter(&client->random, claim->lease / 3);
    hf_holds_set_wake_at(&client->holds, claim, hf_time_min(claim->wake_at, repair_at));
}

/* While the owner holds the lock on a majority, also acquires it on servers that forgot it or were
 * unreachable before. */
static void repair_missing(hf_client *client, hf_hold *hold, hf_time now) {
    if (!hold->claim->renewed || !hf_hold_is_held(hold)) return;
    for (size_t i = 0; i < hold->member_count; i++) {
        if (hf_member_hold_is_held(hold->member_holds[i]) ||
            hf_quorum_awaits_reply(client->quorum, hold, i))
            continue;
        if (count_repairs(client->quorum, i) < MAX_REPAIRS) repair(client, hold, i, now);
        else defer_repair(client, hold, now);
    }
}

void hf_quorum_on_busy(hf_client *client, hf_hold *hold, hf_time now) {
    if (!hf_claim_is_held(hold->claim) || !hold->claim->renewed) return;
    uint32_t doublings = hold->busy_replies < 16 ? hold->busy_replies++ : 16;
    hf_time pause = hf_time_min(FIRST_REPAIR_PAUSE << doublings, hold->claim->lease / 30);
    hf_holds_set_wake_at(&client->holds, hold->claim,
                         hf_time_min(hold->claim->wake_at, now + pause));
}

/* ---- late replies ---- */

void hf_quorum_await_late_reply(hf_client *client, hf_round *round, size_t index, hf_op *op,
                                hf_time now) {
    assert(op->client == client->quorum->members[index]);
    hf_late_reply *late_reply = malloc(sizeof *late_reply);
    if (!late_reply) {
        hf_op_end(op, now);
        return;
    }
    round->refs++;
    *late_reply = (hf_late_reply){client->quorum->late_replies, round, op, index};
    client->quorum->late_replies = late_reply;
}

bool hf_quorum_awaits_reply(const hf_quorum *quorum, const hf_hold *hold, size_t index) {
    for (const hf_late_reply *late_reply = quorum->late_replies; late_reply;
         late_reply = late_reply->next) {
        if (late_reply->round->hold == hold && late_reply->index == index) return true;
    }
    return false;
}

void hf_quorum_end_late_replies(hf_client *client, const hf_hold *hold, hf_time now) {
    hf_late_reply **link = &client->quorum->late_replies;
    while (*link) {
        bool is_pending_acquire = hf_op_impl_of((*link)->op)->acquires && !(*link)->op->done;
        if (!is_pending_acquire || (*link)->round->hold != hold) {
            link = &(*link)->next;
            continue;
        }
        hf_client *member = client->quorum->members[(*link)->index];
        end_late_reply(link, now);
        hf_renewer_tick(member, now); /* begins to release the hold that was just abandoned */
    }
}

void hf_quorum_check_for_gap(hf_client *client, hf_hold *hold, hf_time now) {
    if (hold->claim->valid_until <= now) hf_quorum_refresh(client, hold, now);
}

/* Handles a late yes. Adds its member hold, unless the quorum's hold has ended or the server's yes
 * does not count. */
static void settle_late_yes(hf_client *client, hf_late_reply *late_reply, hf_time now) {
    hf_hold *hold = late_reply->round->hold, *member_hold = late_reply->op->hold;
    hf_client *member = client->quorum->members[late_reply->index];
    if (hold) hf_quorum_check_for_gap(client, hold, now);
    bool wanted = hold && hf_claim_is_held(hold->claim) &&
                  !hf_member_hold_is_held(hold->member_holds[late_reply->index]);
    bool yes_counts = wanted && !hf_quorum_is_guarded(client, late_reply->index, now);
    if (yes_counts && hf_quorum_add_member_hold(client, hold, late_reply->index, member_hold))
        hf_quorum_refresh(client, hold, now);
    else hf_renewer_abandon(member, member_hold, 1, now);
}

static void settle_late_reply(hf_client *client, hf_late_reply *late_reply, hf_time now) {
    const hf_op *op = late_reply->op;
    hf_hold *hold = late_reply->round->hold;
    if (!hf_op_impl_of(op)->acquires) return;
    if (op->failure.code == HF_OK) settle_late_yes(client, late_reply, now);
    else if (op->failure.code == HF_BUSY && hold) hf_quorum_on_busy(client, hold, now);
}

static void settle_late_replies(hf_client *client, hf_time now) {
    hf_late_reply **link = &client->quorum->late_replies;
    while (*link) {
        hf_late_reply *late_reply = *link;
        if (!late_reply->op->done) {
            link = &late_reply->next;
            continue;
        }
        settle_late_reply(client, late_reply, now);
        end_late_reply(link, now);
    }
}

static bool has_unsettled_reply(const hf_quorum *quorum) {
    for (const hf_late_reply *late_reply = quorum->late_replies; late_reply;
         late_reply = late_reply->next) {
        if (late_reply->op->done) return true;
    }
    return false;
}

/* ---- proposed tokens ---- */

uint64_t hf_quorum_propose(const hf_quorum *quorum, hf_time now) {
    if (!quorum->clocks_known) return 1;
    int64_t max_lead = quorum->clock_leads_us[0];
    for (size_t i = 1; i < quorum->count; i++)
        max_lead = quorum->clock_leads_us[i] > max_lead ? quorum->clock_leads_us[i] : max_lead;
    int64_t proposal =
        (int64_t)((now + TOKEN_MARGIN + quorum->last_round_duration) / 1000) + max_lead;
    return proposal > 0 ? (uint64_t)proposal : 0;
}

void hf_quorum_learn_clock(hf_quorum *quorum, size_t index, const hf_op *op) {
    if (op->acquire.server_us <= 0) return;
    assert(index < quorum->count);
    int64_t lead = (int64_t)op->acquire.server_us - (int64_t)(op->request.sent_at / 1000);
    if (!quorum->clocks_known) {
        for (size_t i = 0; i < quorum->count; i++) quorum->clock_leads_us[i] = lead;
    }
    quorum->clocks_known = true;
    quorum->clock_leads_us[index] = lead;
}

/* ---- time ---- */

static hf_time calls_next_tick(const hf_client *client) {
    const hf_quorum *quorum = client->quorum;
    hf_time earliest = has_unsettled_reply(quorum) ? 0 : HF_NEVER;
    for (size_t i = 0; i < quorum->count; i++) {
        const hf_client *member = quorum->members[i];
        earliest = hf_time_min(earliest, hf_client_calls_next_tick(member));
        for (const hf_op *op = member->ops; op; op = op->next)
            earliest = hf_time_min(earliest, hf_op_next_tick(op));
    }
    return earliest;
}

static hf_time renewer_next_tick(const hf_client *client) {
    const hf_quorum *quorum = client->quorum;
    const hf_claim *first = hf_holds_first(&client->holds);
    hf_time earliest = first ? first->wake_at : HF_NEVER;
    for (size_t i = 0; i < quorum->count; i++)
        earliest = hf_time_min(earliest, hf_client_renewer_next_tick(quorum->members[i]));
    return hf_time_min(earliest, grace_end(quorum));
}

static void tick_calls(hf_client *client, hf_time now) {
    for (size_t i = 0; i < client->quorum->count; i++)
        hf_client_tick_calls(client->quorum->members[i], now);
    settle_late_replies(client, now);
}

static void tick_due_holds(hf_client *client, hf_time now) {
    for (hf_claim *claim; (claim = hf_holds_first(&client->holds)) && claim->wake_at <= now;) {
        hf_holds_set_wake_at(&client->holds, claim, HF_NEVER);
        hf_quorum_refresh(client, claim->hold, now);
        repair_missing(client, claim->hold, now);
    }
}

static void tick_renewer(hf_client *client, hf_time now) {
    for (size_t i = 0; i < client->quorum->count; i++)
        hf_client_tick_renewer(client->quorum->members[i], now);
    settle_late_replies(client, now);
    detect_losses(client, now);
    tick_due_holds(client, now);
    check_grace_period(client->quorum, now);
}

/* ---- the decider ---- */

static size_t link_count(const hf_client *client) {
    return client->quorum->count * HF_LINKS;
}

static hf_session *link_at(const hf_client *client, size_t index) {
    assert(index / HF_LINKS < client->quorum->count);
    return &client->quorum->members[index / HF_LINKS]->first.links[index % HF_LINKS];
}

static void add_stats(const hf_client *client, hf_stats *stats) {
    for (size_t i = 0; i < client->quorum->count; i++) {
        const hf_stats *member = &client->quorum->members[i]->stats;
        stats->renewals += member->renewals;
        stats->renew_batches += member->renew_batches;
        stats->late_renewals += member->late_renewals;
        stats->undone += member->undone;
    }
}

static hf_client *client_at(hf_client *client, size_t index) {
    return index < client->quorum->count ? client->quorum->members[index] : NULL;
}

const hf_decider hf_majority_decider = {
    .op_impl = &hf_round_impl,
    .keys_on_every_server = true,
    .open = open_members,
    .close = close_members,
    .free = free_members,
    .link_count = link_count,
    .link = link_at,
    .calls_next_tick = calls_next_tick,
    .renewer_next_tick = renewer_next_tick,
    .tick_calls = tick_calls,
    .tick_renewer = tick_renewer,
    .is_quiet = is_quiet,
    .refresh = hf_quorum_refresh,
    .detect_losses = detect_losses,
    .approve = approve,
    .set_renewed = set_renewed,
    .abandon = hf_quorum_abandon,
    .add_stats = add_stats,
    .client_at = client_at,
};
