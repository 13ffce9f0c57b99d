/* The operations of one command: release, extend, check, force, info, ttl, ping, command.
 *
 * A release, an extend or a check acts on a hold of ours; without one it fails without asking the server. */
#include <stdio.h>
#include <string.h>

#include "client_internal.h"

static hf_time deadline_of(const hf_op *op) {
    return op->begun_at + op->client->config.session.command_timeout;
}

static void fail_with_reply(hf_op *op, const hf_request *request) {
    hf_op_fail(op, request->failure.code, "%s", request->failure.text);
}

static void fail_for_memory(hf_op *op, hf_time now) {
    hf_op_fail(op, HF_NO_MEMORY, "out of memory");
    if (op->hold && op->hold->in_table) hf_client_hold_is_free(op->client, op->hold, now);
}

static void fail_lost(hf_op *op, hf_lost_reason reason) {
    static const char *const words[] = {
        [HF_LOST_NOT] = "lost",
        [HF_LOST_EXPIRED] = "its lease ended before this",
        [HF_LOST_TAKEN] = "another owner has it",
        [HF_LOST_DELETED] = "its key was deleted on the server",
        [HF_LOST_UNREACHABLE] = "it could not be renewed in time",
    };
    hf_op_fail(op, HF_LOST, "%s", words[reason]);
}

/* Takes note of a hold that the server does not know any more. */
static void lose(hf_op *op, long long reply) {
    if (op->hold->state == HF_HOLD_HELD || op->hold->state == HF_HOLD_RELEASING) {
        hf_client_lose(op->client, op->hold, hf_lost_reason_of(reply));
    }
    fail_lost(op, hf_lost_reason_of(reply));
}

/* ---- release ---- */

static void drop_from_table(hf_op *op, hf_time now) {
    hf_holds *holds = &op->client->holds;
    if (HF_DEFECT(RENEWAL_AFTER) && op->hold->in_table) {
        op->hold->state = HF_HOLD_HELD;
        hf_holds_wake_at(holds, op->hold, 0);
    } else if (op->hold->state == HF_HOLD_RELEASING && op->hold->wait > 0 && !op->hold->shared) {
        hf_keeper_leave_in_order(op->client, op->hold, now); /* it has been granted to an old wait of ours */
    } else if (op->hold->in_table) {
        hf_holds_remove(holds, op->hold);
    }
    hf_client_hold_is_free(op->client, op->hold, now);
}

static void on_still_held(hf_op *op, const hf_request *request, hf_time now) {
    hf_hold *hold = op->hold;
    bool last = hold->state == HF_HOLD_RELEASING, held = hold->state == HF_HOLD_HELD;
    hold->count--;
    hold->owed -= op->owed;
    op->client->stats.releases++;
    hf_op_succeed(op);
    if (last) {
        drop_from_table(op, now);
    } else if (held && hold->count == hold->base) { /* the rest was abandoned meanwhile */
        hf_keeper_leave_in_order(op->client, hold, now);
    } else {
        if (held) hf_client_keep(op->client, hold, request->sent_at);
        hf_client_hold_is_free(op->client, hold, now);
    }
}

/* Not found by a release that was sent twice: the first one did it, its reply was lost. */
static void on_not_found(hf_op *op, const hf_request *request, long long result, hf_time now) {
    if (request->sends > 1) {
        op->client->stats.releases++;
        hf_op_succeed(op);
    } else {
        lose(op, result);
    }
    drop_from_table(op, now);
}

/* Sent, and not to be sent again. */
static bool is_spent(const hf_request *request) {
    return request->once && request->sends > 0;
}

/* The owner has let go in any case; the keeper goes on until the server knows it, or the lease has ended. */
static void let_go(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    bool spent = is_spent(&op->request), gone = !hold->in_table || hold->state == HF_HOLD_LOST;
    if (gone || hold->count > hold->base + 1) {
        hold->count--;
        if (hold->shared) hold->owed = spent ? hold->owed - op->owed : hold->owed + 1;
        hf_keeper_resume(op->client, hold, now);
        hf_client_hold_is_free(op->client, hold, now);
    } else if (spent) {
        drop_from_table(op, now);
    } else { /* behind the release that may still be under way */
        hf_keeper_leave_in_order(op->client, hold, now);
    }
}

static void on_release_failed(hf_op *op, const hf_request *request, hf_time now) {
    hf_failure failure = request->failure;
    bool spent = is_spent(request);
    let_go(op, now);
    hf_op_fail(op, failure.code, "%s; the release %s", failure.text,
               spent ? "may have been lost: it ends with its lease" : "goes on in the background");
}

static void on_released(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (!reply) {
        on_release_failed(op, request, now);
    } else if (reply->integer == 1) {
        op->client->stats.releases++;
        hf_op_succeed(op);
        drop_from_table(op, now);
    } else if (reply->integer == 2) {
        on_still_held(op, request, now);
    } else {
        on_not_found(op, request, reply->integer, now);
    }
}

static void release(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    const hf_names *names = op->spec.names;
    char grant[24], to[24], lease[24], own[24];
    hf_slice args[] = {names->key,
                       names->counter,
                       names->queue,
                       names->releases,
                       hf_hold_owner(hold),
                       hf_decimal(grant, hf_lease_ms(op->client->config.grant_lease)),
                       hf_decimal(to, hold->count - 1),
                       hf_decimal(lease, hf_lease_ms(hold->lease)),
                       hold->shared ? hf_decimal(own, 1 + hold->owed) : HF_NO_WAITER};
    bool last = hold->count == hold->base + 1;
    op->owed = hold->shared ? hold->owed : 0;
    if (!hf_request_call(&op->request, hf_program_release(op->spec.layout), 4, sizeof args / sizeof *args, args)) {
        fail_for_memory(op, now);
        return;
    }
    op->request.once = hold->shared; /* the second time it would let go of another process's hold */
    if (last) hold->state = HF_HOLD_RELEASING;
    hf_holds_wake_at(&op->client->holds, hold, last ? HF_NEVER : hold->valid_until);
    hf_op_send(op, on_released, deadline_of(op), false, now);
}

/* A guard's hold ends with a record of the run instead. One that could not be written is not undone: the key stays
 * taken until its lease ends, because the run has happened. When it was sent twice, the program tells from the record
 * whether the first one left it; a key that was only to be freed is free. */
static void on_completed(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (!reply) {
        fail_with_reply(op, request);
    } else if (reply->integer == 1 || (request->sends > 1 && op->spec.keep == 0)) {
        op->client->stats.releases++;
        hf_op_succeed(op);
    } else {
        lose(op, reply->integer);
    }
    drop_from_table(op, now);
}

static void complete(hf_op *op, hf_time now) {
    const hf_names *names = op->spec.names;
    char grant[24], keep[24];
    hf_slice args[] = {names->key,
                       names->counter,
                       names->queue,
                       names->releases,
                       hf_hold_owner(op->hold),
                       hf_decimal(grant, hf_lease_ms(op->client->config.grant_lease)),
                       hf_decimal(keep, hf_lease_ms(op->spec.keep)),
                       op->spec.print,
                       op->spec.result};
    if (!hf_request_call(&op->request, hf_program_complete(), 4, sizeof args / sizeof *args, args)) {
        fail_for_memory(op, now);
        return;
    }
    hf_holds_wake_at(&op->client->holds, op->hold, op->hold->valid_until);
    hf_op_send(op, on_completed, deadline_of(op), false, now);
}

static void release_lost(hf_op *op, hf_time now) {
    fail_lost(op, op->hold->reason);
    hf_keeper_leave_lost(op->client, op->hold, now);
    hf_client_hold_is_free(op->client, op->hold, now);
}

/* ---- extend, check ---- */

/* Refused: the old lease goes on. Unknown: the server may count the new one or the old one, and a shorter one must not
 * arrive behind the keeper's next renewal. */
static void doubt_lease(hf_op *op) {
    hf_client *client = op->client;
    hf_hold *hold = op->hold;
    if (op->spec.kind != HF_OP_EXTEND || hold->state != HF_HOLD_HELD) return;
    if (op->request.sends == 0) {
        hold->valid_until = op->believed_until;
        return;
    }
    if (client->config.keeper != HF_LINK_CALLS) hf_session_distrust(op->request.session);
}

static void on_yes(hf_op *op, const hf_request *request, hf_time now) {
    hf_hold *hold = op->hold;
    if (op->spec.kind == HF_OP_EXTEND && hold->state == HF_HOLD_HELD) {
        hold->lease = op->spec.lease;
        hold->valid_until = hf_lease_end(request->sent_at, hold->lease);
        hold->granted = false;
    }
    if (hold->state == HF_HOLD_HELD && now >= hold->valid_until) hf_client_lose(op->client, hold, HF_LOST_EXPIRED);
    if (hold->state == HF_HOLD_HELD) hf_op_succeed(op);
    else fail_lost(op, hold->reason);
}

static void on_extended(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (!reply) {
        fail_with_reply(op, request);
        doubt_lease(op);
    } else if (reply->integer != 1) {
        lose(op, reply->integer);
    } else if (!hf_request_is_confirmed(request)) {
        hf_op_fail_unconfirmed(op);
    } else {
        on_yes(op, request, now);
    }
    hf_keeper_resume(op->client, op->hold, now);
    hf_client_hold_is_free(op->client, op->hold, now);
}

static void extend(hf_op *op, hf_time now) {
    const hf_names *names = op->spec.names;
    char lease[24];
    uint64_t ms = op->spec.kind == HF_OP_EXTEND ? hf_lease_ms(op->spec.lease) : 0;
    hf_slice args[] = {names->key, names->queue, hf_hold_owner(op->hold), hf_decimal(lease, ms),
                       hf_slice_of(op->hold->shared ? "0" : "")};
    bool encoded =
        hf_request_call(&op->request, hf_program_extend(op->spec.layout), 2, sizeof args / sizeof *args, args);
    if (encoded && ms > 0) encoded = hf_client_sync(op->client, &op->request);
    if (!encoded) {
        fail_for_memory(op, now);
        return;
    }
    op->believed_until = op->hold->valid_until;
    if (ms > 0) { /* a shorter lease runs from now on, whenever its reply comes */
        op->hold->valid_until = hf_time_min(op->hold->valid_until, hf_lease_end(now, op->spec.lease));
    }
    hf_holds_wake_at(&op->client->holds, op->hold, op->hold->valid_until);
    hf_op_send(op, on_extended, deadline_of(op), false, now);
}

/* ---- on a hold ---- */

static void refer_to(hf_op *op, hf_hold *hold) {
    hf_hold_ref(hold);
    op->hold = hold;
}

static void fail_not_held(hf_op *op) {
    hf_op_fail(op, HF_NOT_HELD, "this owner does not hold it");
}

/* Another handle of this owner may have acquired anew: that is not what the caller means. */
void hf_call_begin_on_lost(hf_op *op) {
    refer_to(op, op->spec.lost);
    if (op->spec.lost_told) fail_not_held(op);
    else fail_lost(op, op->hold->reason);
}

static void begin_on_hold(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    hf_hold *hold = hf_holds_find(&client->holds, op->spec.layout, op->spec.names->key, op->spec.owner);
    if (hold) hf_client_look_at(client, hold, now);
    bool ours = hold && (hold->state == HF_HOLD_HELD || hold->state == HF_HOLD_LOST);
    if (!ours) {
        fail_not_held(op);
        return;
    }
    refer_to(op, hold);
    if (hold->state == HF_HOLD_LOST) {
        if (op->spec.kind == HF_OP_RELEASE || op->spec.kind == HF_OP_COMPLETE) release_lost(op, now);
        else fail_lost(op, hold->reason);
    } else if (hold->busy) {
        op->blocked = true;
    } else {
        hold->busy = true;
        if (op->spec.kind == HF_OP_RELEASE) release(op, now);
        else if (op->spec.kind == HF_OP_COMPLETE) complete(op, now);
        else extend(op, now);
    }
}

void hf_call_unblock(hf_op *op, hf_time now) {
    if (op->hold->state == HF_HOLD_LOST && !op->hold->in_table) {
        fail_lost(op, op->hold->reason);
        return;
    }
    hf_hold_unref(op->hold);
    op->hold = NULL;
    begin_on_hold(op, now);
}

/* ---- without a hold ---- */

static void on_forced(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    hf_client *client = op->client;
    (void)now;
    if (!reply) {
        fail_with_reply(op, request);
        return;
    }
    op->value = reply->integer;
    hf_op_succeed(op);
    hf_hold *hold = hf_holds_find(&client->holds, op->spec.layout, op->spec.names->key, op->spec.owner);
    if (hold && hold->state == HF_HOLD_HELD) hf_client_lose(client, hold, HF_LOST_DELETED);
}

static bool encode_force(hf_op *op) {
    const hf_names *names = op->spec.names;
    char grant[24];
    hf_slice args[] = {names->key,      names->counter, names->queue,
                       names->releases, op->spec.owner, hf_decimal(grant, hf_lease_ms(op->client->config.grant_lease))};
    op->request.once = true; /* the second time it would take it from the next owner */
    return hf_request_call(&op->request, hf_program_force(op->spec.layout), 4, sizeof args / sizeof *args, args);
}

static void on_info(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    (void)now;
    if (!reply) {
        fail_with_reply(op, request);
        return;
    }
    hf_slice owner = hf_reply_string_at(reply, 0);
    size_t size = owner.size < sizeof op->info.owner ? owner.size : sizeof op->info.owner - 1;
    memcpy(op->info.owner, owner.data, size);
    op->info.owner_size = size;
    op->info.holds = hf_reply_integer_at(reply, 1, 0);
    op->info.ttl_ms = hf_reply_integer_at(reply, 2, -2);
    op->info.token = (uint64_t)hf_reply_integer_at(reply, 3, 0);
    op->info.waiters = hf_reply_integer_at(reply, 4, 0);
    op->info.ahead = hf_reply_integer_at(reply, 5, -1);
    hf_op_succeed(op);
}

static bool encode_info(hf_op *op) {
    const hf_names *names = op->spec.names;
    hf_slice args[] = {names->key, names->counter, names->queue, hf_slice_of(op->client->uuid)};
    return hf_request_call(&op->request, hf_program_info(op->spec.layout), 3, sizeof args / sizeof *args, args);
}

static void on_value(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    (void)now;
    if (!reply) {
        fail_with_reply(op, request);
        return;
    }
    op->value = reply->integer;
    hf_op_succeed(op);
}

static bool encode_ttl(hf_op *op) {
    hf_slice args[] = {{"PTTL", 4}, op->spec.names->key};
    return hf_request_command(&op->request, 2, args);
}

static bool encode_raise(hf_op *op) {
    char floor[24], ttl[24];
    hf_slice args[] = {op->spec.names->counter, hf_decimal(floor, op->spec.token_floor),
                       hf_decimal(ttl, op->spec.token_ttl_ms)};
    return hf_request_call(&op->request, hf_program_raise(), 1, sizeof args / sizeof *args, args);
}

static bool encode_ping(hf_op *op) {
    hf_slice args[] = {{"PING", 4}};
    return hf_request_command(&op->request, 1, args);
}

static void on_command(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    if (!reply) {
        fail_with_reply(op, request);
        return;
    }
    op->reply = hf_reply_copy(reply);
    if (op->reply) hf_op_succeed(op);
    else fail_for_memory(op, now);
}

static bool encode_command(hf_op *op) {
    return hf_request_command(&op->request, op->spec.arg_count, op->spec.args);
}

static void begin_plain(hf_op *op, bool encoded, hf_request_done *done, hf_time now) {
    if (encoded) hf_op_send(op, done, deadline_of(op), false, now);
    else fail_for_memory(op, now);
}

void hf_call_begin(hf_op *op, hf_time now) {
    switch (op->spec.kind) {
    case HF_OP_FORCE: begin_plain(op, encode_force(op), on_forced, now); break;
    case HF_OP_INFO: begin_plain(op, encode_info(op), on_info, now); break;
    case HF_OP_TTL: begin_plain(op, encode_ttl(op), on_value, now); break;
    case HF_OP_RAISE: begin_plain(op, encode_raise(op), on_value, now); break;
    case HF_OP_PING: begin_plain(op, encode_ping(op), on_value, now); break;
    case HF_OP_COMMAND: begin_plain(op, encode_command(op), on_command, now); break;
    default: (op->spec.lost ? hf_call_begin_on_lost(op) : begin_on_hold(op, now));
    }
}

static void give_up_blocked(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    if (op->spec.kind == HF_OP_RELEASE) hf_client_abandon(op->client, hold, 1, now);
    if (op->spec.kind == HF_OP_COMPLETE && hold->in_table) hf_holds_remove(&op->client->holds, hold);
}

/* A release given up goes on in the background, a record given up leaves the key taken until its lease ends; anything
 * else leaves the hold as it is. */
void hf_call_give_up(hf_op *op, hf_time now) {
    hf_session_drop(&op->request);
    if (!op->hold) return;
    if (op->blocked) {
        give_up_blocked(op, now);
    } else if (op->spec.kind == HF_OP_RELEASE) {
        let_go(op, now);
    } else if (op->spec.kind == HF_OP_COMPLETE) {
        drop_from_table(op, now);
    } else {
        doubt_lease(op);
        hf_keeper_resume(op->client, op->hold, now);
        hf_client_hold_is_free(op->client, op->hold, now);
    }
}
