/* Several locks of one owner in one step: all or none are acquired, all are released.
 *
 * Each lock has a hold of its own, as if it had been acquired alone; the keeper renews them in one batch. The operation
 * begins when none of them has a command in flight. */
#include <stdlib.h>

#include "client_internal.h"

static bool acquires(const hf_op *op) {
    return op->spec.kind == HF_OP_ACQUIRE_ALL;
}

static void free_hold(hf_op *op, hf_hold *hold, hf_time now) {
    hf_keeper_forget(op->client, hold, now);
}

static void undo_hold(hf_op *op, hf_hold *hold, hf_time now) {
    bool has_left = hold->state == HF_HOLD_ACQUIRING || hold->state == HF_HOLD_RELEASING;
    if (!hold->in_table || !has_left || HF_DEFECT(ALL_NO_UNDO)) {
        free_hold(op, hold, now);
        return;
    }
    hf_keeper_leave_in_order(op->client, hold, now);
}

static void for_each(hf_op *op, void (*act)(hf_op *, hf_hold *, hf_time), hf_time now) {
    for (size_t i = 0; op->holds && i < op->spec.all_count; i++) {
        if (op->holds[i]) act(op, op->holds[i], now);
    }
}

/* ---- choosing the holds ---- */

static bool wait_for(hf_op *op, hf_hold *hold) {
    hf_hold_ref(hold);
    op->hold = hold;
    op->blocked = true;
    return false;
}

static bool blocks(hf_op *op, hf_hold *hold) {
    if (hold->state == HF_HOLD_HELD || hold->state == HF_HOLD_LEAVING)
        return (hold->busy || hold->astray) && !wait_for(op, hold);
    hf_op_fail(op, HF_BUSY, "another call of this owner for one of the keys is under way");
    return true;
}

static hf_hold *find(hf_op *op, size_t i, hf_time now) {
    hf_client *client = op->client;
    hf_hold *hold = hf_holds_find(&client->holds, HF_LAYOUT_LOCK, op->spec.all[i]->key, op->spec.owner);
    if (hold && hold->state == HF_HOLD_HELD && !hf_hold_is_valid(hold, now)) {
        hf_client_lose(client, hold, hf_lost_reason_at_end(hold));
    }
    if (hold && hold->state == HF_HOLD_LOST && acquires(op)) {
        hf_holds_remove(&client->holds, hold);
        return NULL;
    }
    if (hold && hold->state == HF_HOLD_LEAVING && !acquires(op)) return NULL; /* let go of already */
    return hold;
}

/* True when every hold that exists can be used now. */
static bool all_are_idle(hf_op *op, hf_time now) {
    for (size_t i = 0; i < op->spec.all_count; i++) {
        hf_hold *hold = find(op, i, now);
        if (hold && hold->state != HF_HOLD_LOST && blocks(op, hold)) return false;
    }
    return true;
}

static bool claim(hf_op *op, size_t i, hf_time now) {
    hf_client *client = op->client;
    hf_hold *hold = find(op, i, now);
    if (!hold && acquires(op))
        hold = hf_holds_add(&client->holds, HF_LAYOUT_LOCK, op->spec.all[i]->key, op->spec.owner);
    if (!hold) return !acquires(op);
    hf_hold_ref(hold);
    op->holds[i] = hold;
    if (hold->state == HF_HOLD_LOST) return true;
    if (hold->state == HF_HOLD_LEAVING) {
        hold->state = HF_HOLD_ACQUIRING;
        hold->leftover = true;
    }
    hold->busy = true;
    hold->in_order = false;
    hf_holds_wake_at(&client->holds, hold, hold->state == HF_HOLD_HELD ? hold->valid_until : HF_NEVER);
    return true;
}

static void fail_for_memory(hf_op *op, hf_time now) {
    for_each(op, free_hold, now);
    hf_op_fail(op, HF_NO_MEMORY, "out of memory");
}

static bool claim_all(hf_op *op, hf_time now) {
    op->holds = calloc(op->spec.all_count, sizeof *op->holds);
    for (size_t i = 0; op->holds && i < op->spec.all_count; i++) {
        if (!claim(op, i, now)) {
            fail_for_memory(op, now);
            return false;
        }
    }
    if (!op->holds) fail_for_memory(op, now);
    return op->holds != NULL;
}

/* ---- the commands ---- */

static uint32_t count_of(const hf_hold *hold) {
    return hold && hold->state == HF_HOLD_HELD ? hold->count : 0;
}

typedef char number_text[24];

/* `args` has room for 6 slices a lock and 4 more, `numbers` for 2 texts a lock and 3 more. */
static size_t fill(hf_op *op, hf_slice *args, number_text *numbers) {
    size_t n = 0;
    for (size_t i = 0; i < op->spec.all_count; i++) {
        const hf_names *names = op->spec.all[i];
        args[n++] = names->key, args[n++] = names->counter, args[n++] = names->queue, args[n++] = names->releases;
    }
    args[n++] = op->spec.owner;
    args[n++] = hf_decimal(*numbers++, hf_lease_ms(op->client->config.grant_lease));
    if (acquires(op)) {
        args[n++] = hf_decimal(*numbers++, hf_lease_ms(op->spec.lease));
        args[n++] = hf_decimal(*numbers++, op->spec.token_ttl_ms);
    }
    for (size_t i = 0; i < op->spec.all_count; i++) {
        uint32_t held = count_of(op->holds[i]);
        args[n++] = hf_decimal(*numbers++, acquires(op) || held == 0 ? held : held - 1);
        if (!acquires(op)) args[n++] = hf_decimal(*numbers++, op->holds[i] ? hf_lease_ms(op->holds[i]->lease) : 0);
    }
    return n;
}

static bool encode(hf_op *op) {
    size_t count = op->spec.all_count;
    hf_slice *args = calloc(6 * count + 4, sizeof *args);
    number_text *numbers = calloc(2 * count + 3, sizeof *numbers);
    bool encoded = false;
    if (args && numbers) {
        const hf_program *program = acquires(op) ? hf_program_acquire_all() : hf_program_release_all();
        encoded = hf_request_call(&op->request, program, 4 * count, fill(op, args, numbers), args);
        if (encoded && acquires(op)) encoded = hf_client_sync(op->client, &op->request);
    }
    free(args);
    free(numbers);
    return encoded;
}

/* The failure is about lock i, counted from 1. */
static void name_key(hf_op *op, long long i) {
    if (i >= 1 && (size_t)i <= op->spec.all_count) op->spec.names = op->spec.all[i - 1];
}

/* ---- acquiring ---- */

static void take(hf_op *op, hf_hold *hold, uint64_t token, hf_time end, hf_time now) {
    bool first = hold->state == HF_HOLD_ACQUIRING;
    hold->count = first ? 1 : hold->count + 1;
    hold->base = first ? 0 : hold->base;
    hold->renewed = op->spec.renewed || (!first && hold->renewed);
    hold->lease = first ? op->spec.lease : hf_time_max(hold->lease, op->spec.lease);
    hold->valid_until = first ? end : hf_time_max(hold->valid_until, end);
    hold->token_ttl_ms = op->spec.token_ttl_ms;
    if (first) hold->token = token;
    hold->state = HF_HOLD_HELD;
    hold->reason = HF_LOST_NOT;
    hold->leftover = hold->granted = hold->at_risk = false;
    hold->failures = 0;
    hf_keeper_resume(op->client, hold, now);
    op->client->stats.acquires++;
}

/* False: one that was to be entered again has been lost, and told so, in the meantime. */
static bool all_are_usable(const hf_op *op) {
    for (size_t i = 0; i < op->spec.all_count; i++) {
        hf_hold_state state = op->holds[i]->state;
        if (state != HF_HOLD_ACQUIRING && state != HF_HOLD_HELD) return false;
    }
    return true;
}

static void take_all(hf_op *op, const hf_reply *reply, hf_time now) {
    hf_time end = hf_lease_end(HF_DEFECT(ALL_FROM_REPLY) ? now : op->request.sent_at, op->spec.lease);
    bool usable = all_are_usable(op);
    if (now >= end || !usable) {
        for_each(op, undo_hold, now);
        hf_op_fail(op, HF_LOST, usable ? "the server answered after the lease had ended" : "one was lost meanwhile");
        return;
    }
    for (size_t i = 0; i < op->spec.all_count; i++) {
        take(op, op->holds[i], (uint64_t)hf_reply_integer_at(reply, i + 1, 0), end, now);
    }
    hf_op_succeed(op);
    for_each(op, free_hold, now);
}

/* As name_key. */
static void on_gone(hf_op *op, long long i, long long status, hf_time now) {
    bool known = i >= 1 && (size_t)i <= op->spec.all_count;
    hf_hold *hold = known ? op->holds[i - 1] : NULL;
    if (hold && hold->state == HF_HOLD_HELD) hf_client_lose(op->client, hold, hf_lost_reason_of(status));
    for_each(op, free_hold, now);
    name_key(op, i);
    hf_op_fail(op, HF_LOST, "this owner's hold is gone (%s)", hf_lost_reason_name(hf_lost_reason_of(status)));
}

static void on_acquired(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    long long status = hf_reply_integer_at(reply, 0, 99), i = hf_reply_integer_at(reply, 1, 0);
    if (!reply) {
        for_each(op, request->sends > 0 ? undo_hold : free_hold, now);
        hf_op_fail(op, request->failure.code, "%s", request->failure.text);
    } else if (status == 1 && !hf_request_is_confirmed(request)) {
        for_each(op, undo_hold, now);
        hf_op_fail_unconfirmed(op);
    } else if (status == 1) {
        take_all(op, reply, now);
    } else if (status == 0) {
        for_each(op, free_hold, now);
        name_key(op, i);
        hf_op_fail(op, HF_BUSY, "held by another owner");
    } else if (status == -1 || status == -2) {
        on_gone(op, i, status, now);
    } else {
        for_each(op, undo_hold, now);
        hf_op_fail(op, HF_SERVER, "a reply that this program never gives");
    }
}

/* ---- releasing ---- */

static void drop_from_table(hf_op *op, hf_hold *hold, hf_time now) {
    if (hold->in_table) hf_holds_remove(&op->client->holds, hold);
    hf_client_hold_is_free(op->client, hold, now);
}

/* False: the server no longer had it. One that the first sending may have freed is no loss. */
static bool let_go(hf_op *op, hf_hold *hold, long long result, hf_time now) {
    bool freed_before = op->request.sends > 1 && hold->count <= 1;
    if (hold->state == HF_HOLD_LOST || (result < 0 && !freed_before)) {
        if (hold->state != HF_HOLD_LOST) hf_client_lose(op->client, hold, hf_lost_reason_of(result));
        drop_from_table(op, hold, now);
        return false;
    }
    op->client->stats.releases++;
    hold->count--;
    if (hold->count > hold->base) {
        hf_client_keep(op->client, hold, op->request.sent_at);
        hf_client_hold_is_free(op->client, hold, now);
    } else {
        drop_from_table(op, hold, now);
    }
    return true;
}

static void release_behind(hf_op *op, hf_hold *hold, hf_time now) {
    if (hold->state == HF_HOLD_LOST) {
        drop_from_table(op, hold, now);
        return;
    }
    bool held = hold->in_table && hold->state == HF_HOLD_HELD && !HF_DEFECT(ALL_BEHIND);
    if (held) hold->count--;
    if (held && hold->count <= hold->base) hf_keeper_leave_in_order(op->client, hold, now);
    else free_hold(op, hold, now);
}

static void on_released(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (!reply) {
        for_each(op, release_behind, now);
        hf_op_fail(op, request->failure.code, "%s; the release goes on in the background", request->failure.text);
        return;
    }
    size_t lost = 0;
    for (size_t i = 0; i < op->spec.all_count; i++) {
        if (!op->holds[i] || !let_go(op, op->holds[i], hf_reply_integer_at(reply, i, -1), now)) lost++;
    }
    if (lost == 0) hf_op_succeed(op);
    else hf_op_fail(op, HF_LOST, "%zu of %zu keys were not held any more", lost, op->spec.all_count);
}

/* ---- beginning and ending ---- */

static void forget_blocker(hf_op *op) {
    if (op->hold) hf_hold_unref(op->hold);
    op->hold = NULL;
}

static bool has_any(const hf_op *op) {
    for (size_t i = 0; i < op->spec.all_count; i++) {
        if (op->holds[i]) return true;
    }
    return false;
}

void hf_several_begin(hf_op *op, hf_time now) {
    forget_blocker(op);
    if (!all_are_idle(op, now) || !claim_all(op, now)) return;
    if (!has_any(op)) {
        hf_op_fail(op, HF_NOT_HELD, "this owner holds none of the keys");
        return;
    }
    if (!encode(op)) {
        fail_for_memory(op, now);
        return;
    }
    hf_time deadline = op->begun_at + op->client->config.session.command_timeout;
    hf_op_send(op, acquires(op) ? on_acquired : on_released, deadline, false, now);
}

static void abandon_all(hf_op *op, hf_time now) {
    for (size_t i = 0; i < op->spec.all_count; i++) {
        hf_hold *hold = find(op, i, now);
        if (hold) hf_client_abandon(op->client, hold, 1, now);
    }
}

void hf_several_give_up(hf_op *op, hf_time now) {
    hf_session_drop(&op->request);
    if (op->blocked && !acquires(op)) abandon_all(op, now);
    else for_each(op, acquires(op) ? undo_hold : release_behind, now);
}

void hf_several_end(hf_op *op) {
    for (size_t i = 0; op->holds && i < op->spec.all_count; i++) {
        if (op->holds[i]) hf_hold_unref(op->holds[i]);
    }
    free(op->holds);
}
