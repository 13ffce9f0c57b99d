#include "op/kept.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/lease.h"
#include "op/acquire.h"
#include "op/events.h"
#include "op/holding.h"
#include "op/leave.h"
#include "op/operation.h"
#include "op/renew.h"
#include "op/taking.h"

#define POLLERS_TURN (25 * HF_MS) /* how long a mutex is left free for clients that poll */

struct hf_kept {
    hf_kept_lock keep;
    hf_number_entry by_key;
    const hf_kind *kind;
    hf_node *node;         /* the node whose events link it needs */
    hf_op *first, **end;   /* the callers that wait here, in order */
    uint64_t token;        /* the next caller's token; 0 for no fencing */
    uint64_t last_token;   /* the last of the tokens that came with the lock */
    uint64_t token_ttl_ms; /* the fencing counter's TTL, as requested with the tokens */
    hf_time ask_after;     /* callers that wait here do not ask the server before this time */
    uint64_t last_ahead;   /* if others want the lock: the last operation served before them */
    bool forced;           /* a caller of this client forces its release, so it is not lent */
    size_t key_size;
    char key[];
};

static hf_kept *kept_of(hf_kept_lock *keep) {
    return (hf_kept *)(void *)keep;
}

/* ---- the table ---- */

static uint64_t hash_of(const hf_kind *kind, hf_slice key) {
    return hf_hash(HF_HASH_SEED ^ (unsigned char)kind->letter, key);
}

static hf_kept *find_kept(const hf_client *client, const hf_kind *kind, hf_slice key) {
    const hf_number_entry *entry = NULL;
    uint64_t hash = client->kept.count > 0 ? hash_of(kind, key) : 0;
    while ((entry = hf_number_table_find(&client->kept, hash, entry))) {
        hf_kept *kept = entry->object;
        hf_slice kept_key = {kept->key, kept->key_size};
        if (kept->kind == kind && hf_slice_equal(kept_key, key)) return kept;
    }
    return NULL;
}

static hf_kept *add_kept(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    hf_slice key = op->spec.names->key;
    hf_kept *kept = calloc(1, sizeof *kept + key.size);
    uint64_t hash = hash_of(op->spec.lock_kind, key);
    if (!kept || !hf_number_table_put(&client->kept, &kept->by_key, hash, kept)) {
        free(kept);
        return NULL;
    }
    memcpy(kept->key, key.data, key.size);
    kept->key_size = key.size;
    kept->keep.holds = &client->holds;
    kept->kind = op->spec.lock_kind;
    kept->end = &kept->first;
    kept->node = op->node;
    hf_node_change_listeners(kept->node, true, false, now);
    return kept;
}

static void free_kept(hf_client *client, hf_kept *kept, hf_time now) {
    assert(!kept->first && !kept->keep.claim && !kept->keep.due);
    hf_number_table_remove(&client->kept, &kept->by_key);
    hf_node_change_listeners(kept->node, false, true, now);
    free(kept);
}

void hf_kept_free(hf_client *client) {
    for (size_t i = 0; i < client->kept.bucket_count; i++) {
        for (hf_number_entry *entry = client->kept.buckets[i], *next; entry; entry = next) {
            next = entry->next;
            free(entry->object);
        }
    }
    hf_number_table_free(&client->kept);
}

/* ---- the queue ---- */

static void join_queue(hf_kept *kept, hf_op *op) {
    assert(!op->acquire.kept && !*kept->end);
    hf_op_become(op, HF_ACQUIRE_QUEUED_LOCALLY);
    op->acquire.kept = kept;
    op->acquire.admitted = true;
    op->acquire.next_for_kept = NULL;
    *kept->end = op;
    kept->end = &op->acquire.next_for_kept;
}

void hf_kept_cancel(hf_op *op) {
    hf_kept *kept = op->acquire.kept;
    assert(kept && op->state == HF_ACQUIRE_QUEUED_LOCALLY);
    hf_op **link = &kept->first;
    while (*link != op) link = &(*link)->acquire.next_for_kept;
    *link = op->acquire.next_for_kept;
    if (kept->end == &op->acquire.next_for_kept) kept->end = link;
    op->acquire.kept = NULL;
    if (!kept->first && !kept->keep.claim) hf_kept_lock_set_due(&kept->keep);
}

hf_time hf_kept_wait_next_tick(const hf_op *op) {
    const hf_claim *claim = op->acquire.kept->keep.claim;
    if (!claim && op->acquire.kept->first == op) return op->acquire.kept->ask_after;
    return claim && hf_claim_is_held(claim) ? claim->valid_until : HF_NEVER;
}

void hf_kept_wait_tick(hf_op *op, hf_time now) {
    const hf_claim *claim = op->acquire.kept->keep.claim;
    if (claim && claim->hold) hf_client_refresh(op->client, claim->hold, now);
    else if (!claim) hf_kept_lock_set_due(&op->acquire.kept->keep);
}

/* ---- lending ---- */

static bool has_token(const hf_kept *kept, const hf_op *op) {
    if (op->spec.token_ttl_ms == 0) return true;
    return kept->token > 0 && kept->token <= kept->last_token &&
           op->spec.token_ttl_ms <= kept->token_ttl_ms;
}

/* Returns whether enough of the lease is left to confirm the hold in time. */
static bool lasts_long_enough(const hf_claim *claim, const hf_op *op, hf_time now) {
    hf_time lease = hf_time_min(op->client->config.grant_lease, op->spec.lease);
    return now + lease / 4 < claim->valid_until;
}

/* Returns whether the lease on the server is at most as long as the next caller's lease, or as the
 * grant lease. */
static bool is_short_enough(const hf_claim *claim, const hf_op *op) {
    return claim->lease <= hf_time_max(op->client->config.grant_lease, op->spec.lease);
}

static bool may_still_keep(const hf_kept *kept, hf_time now) {
    return now < kept->keep.keep_until;
}

static bool may_lend(const hf_kept *kept, const hf_op *op, hf_time now) {
    const hf_claim *claim = kept->keep.claim;
    bool has_precedence = !kept->keep.wanted || op->number <= kept->last_ahead;
    return has_precedence && !kept->forced && may_still_keep(kept, now) &&
           lasts_long_enough(claim, op, now) && is_short_enough(claim, op) && has_token(kept, op);
}

/* Resets what the claim stored for its last caller, except the number of the wait: that remains
 * until the grant is confirmed. */
static void forget_caller(hf_claim *claim) {
    if (!hf_claim_is_unconfirmed(claim)) claim->wait = 0;
    claim->confirm_at = HF_NEVER;
    claim->refused_in_batch = false;
    claim->approval = HF_APPROVAL_NONE;
    claim->max_until = HF_NEVER;
}

static void lend(hf_kept *kept, hf_op *op, hf_time now) {
    hf_client *client = op->client;
    hf_claim *claim = kept->keep.claim;
    bool idle = hf_claim_is_idle(claim);
    hf_hold *hold = hf_holds_give(&client->holds, claim, op->spec.caller);
    assert(!op->hold);
    if (!hold) {
        hf_op_fail_out_of_memory(op);
        return;
    }
    if (!idle) forget_caller(claim);
    hf_time end = hf_time_min(claim->valid_until, hf_lease_end(now, op->spec.lease));
    hf_taken_hold taken = {1, now, end, op->spec.token_ttl_ms > 0 ? kept->token : 0};
    if (taken.token > 0) kept->token++;
    hold->agent = op->spec.agent;
    hf_op_take(op, hold, &taken);
    claim->token_ttl_ms = kept->token_ttl_ms;
    /* the confirmation requests the full lease */
    claim->confirm_at = hf_acquire_confirm_at(op, claim->valid_until, now);
    hf_hold_ref(hold);
    op->hold = hold;
    hf_renewer_resume(client, claim, now);
    hf_op_succeed(op);
}

/* Returns the claim of a kept lock that is being given back to the server, or NULL. */
static hf_claim *find_leaving(const hf_client *client, const hf_kind *kind, hf_slice key) {
    return hf_holds_find_leaving(&client->holds, kind, key, (hf_slice){"", 0});
}

/* Makes the lock idle. Returns false if that is impossible, because an earlier claim is still being
 * given back to a server that may not reply. */
static bool set_idle(hf_client *client, hf_claim *claim, hf_time now) {
    hf_time grant_lease = client->config.grant_lease;
    if (find_leaving(client, claim->kind, hf_claim_key(claim))) return false;
    hf_holds_make_idle(&client->holds, claim);
    forget_caller(claim);
    if (claim->valid_until <= now + grant_lease)
        claim->lease = hf_time_min(claim->lease, grant_lease);
    claim->renewed = true;
    hf_renewer_resume_idle(client, claim, now);
    return true;
}

static void release_idle(hf_client *client, hf_claim *idle, hf_time now) {
    assert(hf_claim_is_idle(idle));
    hf_renewer_clean_up(client, idle, now);
    hf_renewer_expedite_clean_up(client, idle, now);
}

/* ---- beginning ---- */

static bool may_keep(const hf_op *op) {
    const hf_op_spec *spec = &op->spec;
    return spec->lock_kind->may_be_kept && !spec->shared && spec->token_floor == 0;
}

/* Returns how many callers of this client are waiting. The first of them learns from the server how
 * many other clients are waiting. */
static long long count_waiters(const hf_kept *kept) {
    long long waiters = kept->keep.claim && hf_claim_is_requested(kept->keep.claim);
    for (const hf_op *op = kept->first; op; op = op->acquire.next_for_kept) waiters++;
    return waiters;
}

/* Queues the operation, or fails it if it must not wait. */
static void join_or_fail(hf_kept *kept, hf_op *op) {
    long long waiters = op->spec.limits_waiters ? count_waiters(kept) : 0;
    if (op->spec.wait == 0)
        hf_op_fail(op, HF_BUSY, "another caller of this client holds it or is waiting for it");
    else if (hf_acquire_waits_for_itself(op)) hf_acquire_fail_as_deadlock(op);
    else if (op->spec.limits_waiters && waiters >= (long long)op->spec.max_waiters)
        hf_acquire_fail_at_max_waiters(op, waiters);
    else join_queue(kept, op);
}

/* Lends the idle lock, or gives it back to the server and makes the operation wait for that. */
static void begin_on_idle_lock(hf_kept *kept, hf_op *op, hf_time now) {
    hf_claim *idle = kept->keep.claim;
    if (idle->has_command_in_flight) {
        hf_acquire_block(op, idle, now);
    } else if (may_keep(op) && may_lend(kept, op, now)) {
        lend(kept, op, now);
    } else {
        hf_acquire_block(op, idle, now);
        release_idle(op->client, idle, now);
    }
}

/* Returns the claim of a kept lock that is being given back, with no failure yet, or NULL. An
 * acquire sent over another connection could overtake the command that gives the lock back, and
 * would find the lock taken. */
static hf_claim *find_leaving_unfailed(hf_client *client, const hf_kind *kind, hf_slice key) {
    hf_claim *claim = find_leaving(client, kind, key);
    return claim && claim->failures == 0 ? claim : NULL;
}

static bool is_idle(const hf_kept *kept) {
    return kept->keep.claim && hf_claim_is_idle(kept->keep.claim);
}

/* Gives the idle lock of this kind back to the server. Returns its claim, or NULL. */
static hf_claim *give_back(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now) {
    if (!client->kept.buckets) return NULL; /* the client has never kept a lock */
    hf_kept *kept = find_kept(client, kind, key);
    if (!kept || !is_idle(kept)) return find_leaving_unfailed(client, kind, key);
    hf_claim *idle = kept->keep.claim;
    if (!idle->has_command_in_flight) release_idle(client, idle, now);
    return idle;
}

hf_claim *hf_kept_give_back(hf_client *client, const hf_kind *except, hf_slice key, hf_time now) {
    hf_claim *claim = NULL;
    for (const hf_kind *const *kind = hf_kinds; *kind && !claim; kind++) {
        if ((*kind)->may_be_kept && *kind != except) claim = give_back(client, *kind, key, now);
    }
    return claim;
}

/* Makes the operation wait for the claim's command. Returns false if `claim` is NULL. */
static bool block_on(hf_op *op, hf_claim *claim, hf_time now) {
    if (claim) hf_acquire_block(op, claim, now);
    return claim != NULL;
}

/* Returns whether the caller already has a hold, from another call, or a claim that is leaving. */
static bool has_hold(const hf_op *op) {
    const hf_holds *holds = &op->client->holds;
    const hf_kind *kind = op->spec.lock_kind;
    hf_slice key = op->spec.names->key, caller = op->spec.caller;
    return hf_holds_find(holds, kind, key, caller) ||
           hf_holds_find_leaving(holds, kind, key, caller);
}

bool hf_kept_begin(hf_op *op, hf_time now) {
    const hf_op_spec *spec = &op->spec;
    hf_client *client = op->client;
    hf_slice key = spec->names->key;
    if (spec->keep == 0 && !client->kept.buckets) return false;
    if (has_hold(op)) return false;
    if (block_on(op, hf_kept_give_back(client, spec->lock_kind, key, now), now)) return true;
    hf_kept *kept = find_kept(client, spec->lock_kind, key);
    hf_hold *lent = kept && kept->keep.claim ? kept->keep.claim->hold : NULL;
    if (lent) hf_client_refresh(client, lent, now);
    if (kept && is_idle(kept)) {
        begin_on_idle_lock(kept, op, now);
        return true;
    }
    if (block_on(op, find_leaving_unfailed(client, spec->lock_kind, key), now)) return true;
    if (spec->keep == 0 || !may_keep(op)) return false;
    if (!kept) kept = add_kept(op, now);
    if (!kept) return false;
    if (kept->keep.claim || kept->first) {
        join_or_fail(kept, op);
        return true;
    }
    op->acquire.kept = kept;
    return false;
}

hf_hold *hf_kept_add_hold(hf_op *op) {
    hf_kept *kept = op->acquire.kept;
    hf_client *client = op->client;
    char owner[HF_OWNER_SIZE];
    uint64_t number = client->holds.last_number + 1;
    hf_slice text = {owner, hf_wire_keeping_owner(owner, client->uuid, number)};
    hf_hold *hold =
        hf_client_add_hold(client, kept->kind, op->spec.names->key, op->spec.caller, text);
    kept->keep.wanted = kept->forced = false;
    kept->last_ahead = 0;
    if (!hold) {
        hf_kept_lock_set_due(&kept->keep);
        return NULL;
    }
    assert(!kept->keep.claim && hold->claim->by_number.number == number);
    hold->agent = op->spec.agent;
    hold->claim->kept = &kept->keep;
    kept->keep.claim = hold->claim;
    return hold;
}

/* Makes sure that once other clients want the lock, only callers that came earlier are served
 * before them. */
static void set_precedence(hf_client *client, hf_kept *kept) {
    if (kept->keep.wanted && kept->last_ahead == 0) kept->last_ahead = client->last_op;
}

void hf_kept_on_acquired(hf_op *op, uint64_t last_token, hf_time now) {
    hf_hold *hold = op->hold;
    assert(hold->claim->kept && hf_hold_is_held(hold));
    hf_kept *kept = kept_of(hold->claim->kept);
    kept->keep.keep_until = hf_time_add(now, op->spec.keep);
    kept->token = hold->token > 0 ? hold->token + 1 : 0;
    kept->last_token = last_token;
    kept->token_ttl_ms = op->spec.token_ttl_ms;
    set_precedence(op->client, kept);
}

/* ---- when a hold is released ---- */

/* Returns whether the lock is valid and no command for it is in doubt. The server could run such a
 * command while the next caller has the lock. */
static bool is_safe_to_keep(const hf_client *client, const hf_hold *hold, hf_time now) {
    return hf_hold_is_held(hold) && now < hold->claim->valid_until &&
           hold->claim->shorter_lease == HF_NEVER && !hf_claim_is_at_risk(hold->claim) &&
           !hold->claim->count_uncertain && !client->closed;
}

bool hf_kept_take_back(hf_client *client, hf_hold *hold, hf_time now) {
    if (!hold->claim->kept) return false;
    hf_kept *kept = kept_of(hold->claim->kept);
    hf_op *next = kept->first;
    set_precedence(client, kept);
    if (!may_still_keep(kept, now) && !kept->kind->publishes_releases)
        kept->ask_after = now + POLLERS_TURN;
    if (!is_safe_to_keep(client, hold, now) || kept->forced || !may_still_keep(kept, now))
        return false;
    if (next) {
        if (has_hold(next) || !may_lend(kept, next, now)) return false;
        hf_kept_cancel(next);
        lend(kept, next, now);
    } else if (kept->keep.wanted || !set_idle(client, hold->claim, now)) {
        return false;
    }
    if (hf_hold_in_table(hold)) return false; /* no memory to lend it */
    hf_hold_become(hold, HF_HOLD_RELEASING);
    return true;
}

void hf_kept_before_force(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now) {
    hf_kept *kept = find_kept(client, kind, key);
    if (kept) kept->forced = true;
    if (kept && is_idle(kept)) kept->keep.keep_until = now;
    give_back(client, kind, key, now);
}

/* Gives an idle lock back if others want it. Makes waiting callers ask if nobody has the lock. */
static void serve(hf_client *client, hf_kept *kept, hf_time now) {
    set_precedence(client, kept);
    if (is_idle(kept) && kept->keep.wanted) release_idle(client, kept->keep.claim, now);
    while (!kept->keep.claim && kept->first && now >= kept->ask_after) {
        hf_op *op = kept->first;
        hf_kept_cancel(op);
        op->acquire.kept = kept;
        hf_acquire_ask(op, now);
    }
}

void hf_kept_tick(hf_client *client, hf_time now) {
    while (client->holds.due) {
        hf_kept *kept = kept_of(client->holds.due);
        assert(kept->keep.due && kept->keep.holds == &client->holds);
        client->holds.due = kept->keep.next_due;
        kept->keep.due = false;
        serve(client, kept, now);
        if (!kept->keep.claim && !kept->first && !kept->keep.due) free_kept(client, kept, now);
    }
}
