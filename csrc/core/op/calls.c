#include "op/calls.h"

/* Release, complete, extend and check operate on the caller's hold, and fail at once if there is
 * none. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/kept.h"
#include "op/leave.h"
#include "op/operation.h"
#include "op/renew.h"
#include "op/taking.h"

static hf_time deadline_of(const hf_op *op) {
    return op->begun_at + op->client->config.session.command_timeout;
}

static void fail_out_of_memory(hf_op *op, hf_time now) {
    hf_op_fail_out_of_memory(op);
    if (hf_hold_in_table(op->hold)) hf_renewer_forget(op->client, op->hold, now);
}

static void fail_lost(hf_op *op, hf_lost_reason reason) {
    static const char *const texts[] = {
        [HF_LOST_NONE] = "lost",
        [HF_LOST_EXPIRED] = "its lease had already ended",
        [HF_LOST_TAKEN] = "another owner holds it",
        [HF_LOST_DELETED] = "its key was deleted on the server",
        [HF_LOST_UNREACHABLE] = "it could not be renewed in time",
        [HF_LOST_MAX_HOLD] = "it was held for as long as max_hold allows",
    };
    _Static_assert(sizeof texts / sizeof *texts == HF_LOST_REASONS, "each reason needs a text");
    hf_op_fail(op, HF_LOST, "%s", texts[reason]);
}

static bool is_gone(hf_verdict verdict) {
    return verdict == HF_VERDICT_DELETED || verdict == HF_VERDICT_TAKEN;
}

/* Treats a reply that no program sends as a missing reply. */
static void set_unexpected_reply(hf_request *request) {
    hf_fault_set(&request->failure, HF_SERVER, "the script returned an unexpected reply");
}

static void on_gone(hf_op *op, hf_verdict verdict, hf_time now) {
    if (hf_hold_can_be_lost(op->hold))
        hf_renewer_on_lost(op->client, op->hold, hf_lost_reason_of(verdict), now);
    fail_lost(op, hf_lost_reason_of(verdict));
}

/* ---- the hold ---- */

static void attach_hold(hf_op *op, hf_hold *hold) {
    assert(!op->hold);
    hf_hold_ref(hold);
    op->hold = hold;
}

static void fail_not_held(hf_op *op) {
    hf_op_fail(op, HF_NOT_HELD, "this owner does not hold it");
}

/* The call concerns the lost hold, even if another handle has acquired the lock again. */
void hf_call_fail_on_lost_hold(hf_op *op) {
    assert(!hf_hold_is_held(op->spec.lost_hold));
    attach_hold(op, op->spec.lost_hold);
    if (op->spec.loss_reported) fail_not_held(op);
    else fail_lost(op, op->hold->reason);
}

static void release_lost(hf_op *op, hf_time now) {
    fail_lost(op, op->hold->reason);
    hf_renewer_clean_up_lost(op->client, op->hold, now);
}

/* Finds the caller's hold, and marks that a command for it is in flight. Returns false if the
 * operation has failed, or must wait until no other command for the hold is in flight. */
static bool begin_on_hold(hf_op *op, hf_time now) {
    if (op->spec.lost_hold) {
        hf_call_fail_on_lost_hold(op);
        return false;
    }
    hf_hold *hold = hf_op_find_hold(op, op->spec.names->key, now);
    bool is_usable = hold && (hf_hold_is_held(hold) || hf_hold_is_lost(hold));
    if (!is_usable) {
        fail_not_held(op);
        return false;
    }
    attach_hold(op, hold);
    if (hf_hold_is_lost(hold) && op->impl->releases) release_lost(op, now);
    else if (hf_hold_is_lost(hold)) fail_lost(op, hold->reason);
    if (!op->done && hold->claim->has_command_in_flight) hf_op_block(op, hold->claim);
    if (op->done || op->blocked) return false;
    hf_op_mark_command_in_flight(op, hold);
    return true;
}

/* ---- release ---- */

/* Returns whether the caller has acquired the lock again since this release began. */
static bool is_overtaken(const hf_hold *hold) {
    return hold->detached && !hf_hold_in_table(hold) && hf_claim_is_leaving(hold->claim);
}

/* Drops the hold. It has ended, no matter what the reply was. */
static void end_hold(hf_op *op, hf_verdict verdict, hf_time now) {
    hf_hold *hold = op->hold;
    if (verdict == HF_VERDICT_NEEDS_LEAVE)
        hf_renewer_grant_to_next(op->client, hold->claim->kind, hf_hold_key(hold), now);
    hf_op_drop_hold(op, op->hold, now);
}

static void on_still_held(hf_op *op, const hf_request *request, hf_time now) {
    hf_hold *hold = op->hold;
    hf_claim *claim = hold->claim;
    bool is_last = hf_hold_is_releasing(hold);
    if (hf_hold_accepts_replies(hold)) {
        assert(claim->count > 0 && claim->share.pending_releases >= op->call.pending_releases);
        claim->count--;
        claim->share.pending_releases -= op->call.pending_releases;
    }
    op->client->stats.releases++;
    hf_op_succeed(op);
    if (is_last) hf_op_drop_hold(op, op->hold, now);
    else hf_renewer_on_entry_released(op->client, hold, request->sent_at, now);
}

/* The server did not find the hold. If the release was sent twice, the first copy released the hold
 * and its reply was lost. */
static void on_not_found(hf_op *op, const hf_request *request, hf_verdict verdict, hf_time now) {
    if (request->possible_runs > 1) {
        op->client->stats.releases++;
        hf_op_succeed(op);
    } else {
        on_gone(op, verdict, now);
    }
    hf_op_drop_hold(op, op->hold, now);
}

/* Returns whether the command was sent and must not be sent again. */
static bool must_not_resend(const hf_request *request) {
    return request->no_retry && request->possible_runs > 0;
}

/* Called when a release got no reply. To the caller, the entry is released; the renewer keeps
 * trying until the server has released it, too, or the lease has ended. */
static void clean_up(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    hf_claim *claim = hold->claim;
    bool is_final = must_not_resend(&op->request),
         gone = !hf_hold_accepts_replies(hold) || hf_hold_is_lost(hold);
    if (is_overtaken(hold)) {
        hf_renewer_clean_up(op->client, claim, now);
        hf_client_unblock(op->client, claim, now);
    } else if (hf_claim_is_leaving(claim) && !hf_hold_accepts_replies(hold)) {
        hf_client_unblock(op->client, claim, now);
    } else if (gone || claim->count > claim->share.others + 1) {
        claim->count--;
        claim->count_uncertain = true;
        if (claim->shared)
            claim->share.pending_releases =
                is_final ? claim->share.pending_releases - op->call.pending_releases
                         : claim->share.pending_releases + 1;
        bool is_over = hf_hold_is_lost(hold) && claim->count == claim->share.others;
        if (is_over && hf_hold_in_table(hold)) hf_renewer_clean_up_lost(op->client, hold, now);
        else hf_renewer_resume(op->client, claim, now);
        hf_client_unblock(op->client, claim, now);
    } else if (is_final) {
        hf_op_drop_hold(op, op->hold, now);
    } else { /* the clean-up must follow the release that may be under way */
        hf_renewer_clean_up_on_same_connection(op->client, hold->claim, now);
    }
}

static void on_release_failed(hf_op *op, const hf_request *request, hf_time now) {
    bool is_final = must_not_resend(request);
    clean_up(op, now);
    hf_op_fail(op, request->failure.code, "%s; the release %s", hf_fault_text(&request->failure),
               is_final ? "may have been lost; if so, the lock expires with its lease"
                        : "continues in the background");
}

static void on_released(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    hf_verdict verdict = reply ? hf_wire_read_verdict(reply) : HF_VERDICT_UNEXPECTED;
    if (!reply) {
        on_release_failed(op, request, now);
    } else if (verdict == HF_VERDICT_YES || verdict == HF_VERDICT_NEEDS_LEAVE) {
        op->client->stats.releases++;
        hf_op_succeed(op);
        end_hold(op, verdict, now);
    } else if (verdict == HF_VERDICT_STILL_HELD) {
        on_still_held(op, request, now);
    } else if (is_gone(verdict)) {
        on_not_found(op, request, verdict, now);
    } else {
        set_unexpected_reply(request);
        on_release_failed(op, request, now);
    }
}

static void begin_release(hf_op *op, hf_time now) {
    if (!begin_on_hold(op, now)) return;
    assert(hf_hold_is_held(op->hold) && op->hold->claim->has_command_in_flight);
    assert(op->hold->claim->count > op->hold->claim->share.others);
    hf_hold *hold = op->hold;
    if (hold->claim->count == 1 && hf_kept_take_back(op->client, hold, now)) {
        op->client->stats.releases++;
        hf_op_succeed(op);
        hf_op_drop_hold(op, op->hold, now);
        return;
    }
    hf_wire_lock lock = hf_op_wire_lock(op, hf_claim_owner(hold->claim));
    char waiter[HF_WAITER_SIZE];
    uint32_t own_holds =
        hold->claim->shared ? 1 + hold->claim->share.pending_releases : HF_WIRE_NOT_SHARED;
    bool has_mark = hf_claim_is_unconfirmed(hold->claim) &&
                    (hold->claim->kind->read_half || hold->claim->kind->write_half ||
                     hold->claim->kind->has_permits);
    size_t size = has_mark ? hf_client_write_waiter(waiter, op->client, hold->claim,
                                                    hold->claim->wait, hold->claim->token_ttl_ms)
                           : 0;
    bool is_last = hold->claim->count == hold->claim->share.others + 1;
    op->call.pending_releases = hold->claim->share.pending_releases;
    hf_time lease = hf_claim_capped_lease(hold->claim, hold->claim->lease, now);
    if (!hf_wire_release(&op->request, &lock, hold->claim->count - 1, lease, own_holds,
                         (hf_slice){waiter, size})) {
        fail_out_of_memory(op, now);
        return;
    }
    /* A second release, or one after the lease, would release a hold of another process. */
    op->request.no_retry = hold->claim->shared;
    hf_time deadline = hold->claim->shared ? hf_time_min(deadline_of(op), hold->claim->valid_until)
                                           : deadline_of(op);
    op->request.accepted = true;
    if (is_last) hf_hold_become(hold, HF_HOLD_RELEASING);
    hf_op_send(op, on_released, deadline, false, now);
}

/* Makes the renewer write the record after the operation has ended. Until the record is written,
 * the lock remains held and is renewed, because no other run may begin. Returns false if the
 * renewer cannot. */
static bool write_later(hf_op *op, hf_time now) {
    bool held = hf_hold_is_held(op->hold);
    return held && hf_renewer_record(op->client, op->hold, &op->request, now);
}

static void fail_to_complete(hf_op *op, const hf_request *request, hf_time now) {
    hf_code code = request->failure.code;
    bool may_retry = code == HF_UNREACHABLE || code == HF_DENIED;
    bool continues = may_retry && write_later(op, now);
    hf_op_fail(op, code, "%s%s", hf_fault_text(&request->failure),
               continues ? "; the record is being written in the background" : "");
}

/* A guard's hold ends with a record of the run. If the record cannot be written, the key remains
 * taken until its lease ends, because the run has taken place. If the command was sent twice and
 * there is a record to write, the program can tell from the record whether the first copy wrote it.
 * If there is none to write, the first copy has freed the key. */
static void on_completed(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    hf_verdict verdict = reply ? hf_wire_read_verdict(reply) : HF_VERDICT_UNEXPECTED;
    bool completed = verdict == HF_VERDICT_YES || verdict == HF_VERDICT_NEEDS_LEAVE;
    if (!reply) {
        fail_to_complete(op, request, now);
    } else if (completed || (request->possible_runs > 1 && op->spec.keep == 0)) {
        op->client->stats.releases++;
        hf_op_succeed(op);
    } else if (is_gone(verdict)) {
        on_gone(op, verdict, now);
    } else {
        set_unexpected_reply(request);
        hf_op_fail_with_request(op, request);
    }
    end_hold(op, verdict, now);
}

/* No renewal is sent while the operation is under way, so the operation must leave time for one. */
static hf_time record_deadline(const hf_op *op, hf_time now) {
    const hf_hold *hold = op->hold;
    hf_time left = hf_claim_time_left(hold->claim, now);
    return hold->claim->renewed ? hf_time_min(deadline_of(op), now + left / 2) : deadline_of(op);
}

static void begin_complete(hf_op *op, hf_time now) {
    if (!begin_on_hold(op, now)) return;
    assert(hf_hold_is_held(op->hold) && op->hold->claim->has_command_in_flight);
    hf_wire_lock lock = hf_op_wire_lock(op, hf_claim_owner(op->hold->claim));
    if (!hf_wire_complete(&op->request, &lock, op->spec.keep, op->spec.fingerprint,
                          op->spec.result)) {
        fail_out_of_memory(op, now);
        return;
    }
    hf_time deadline = record_deadline(op, now);
    op->request.accepted = true;
    op->request.resend_until = deadline;
    hf_op_send(op, on_completed, deadline, false, now);
}

/* ---- extend, check ---- */

/* Handles an extend that got no reply. If the extend was not sent, the old lease remains valid.
 * Otherwise the server may run it at any time, even after renewals that were sent later, so each
 * renewal counts for at most the lease that the extend requested. */
static void limit_lease(hf_op *op) {
    hf_hold *hold = op->hold;
    hf_claim *claim = hold->claim;
    if (!hf_hold_is_held(hold)) return;
    bool extends = op->impl->sets_lease;
    if (extends && op->request.possible_runs == 0)
        claim->valid_until = op->call.previous_valid_until;
    else if (extends) hf_claim_limit_lease(claim, op->spec.lease, HF_NEVER);
    else if (op->call.also_renews && hf_claim_is_unconfirmed(claim))
        hf_claim_limit_lease(claim, claim->lease, op->client->config.grant_lease);
}

/* An extend that was sent twice may run a second time. */
static void on_yes(hf_op *op, const hf_request *request, hf_time now) {
    hf_hold *hold = op->hold;
    hf_claim *claim = hold->claim;
    bool held = hf_hold_is_held(hold);
    if (held && request->possible_runs > 1) limit_lease(op);
    if (op->impl->sets_lease && held) {
        claim->lease = op->spec.lease;
        claim->valid_until = hf_claim_lease_end(claim, hf_claim_lease(claim), request->sent_at);
        claim->confirm_at = HF_NEVER;
    } else if (op->call.also_renews && held && hf_request_is_confirmed(request)) {
        hf_renewer_on_renewed(op->client, hold->claim, request->sent_at, now);
    }
    if (hf_hold_is_held(hold) && now >= claim->valid_until)
        hf_renewer_on_lost(op->client, hold,
                           hf_claim_has_last_lease(claim) ? HF_LOST_MAX_HOLD : HF_LOST_EXPIRED,
                           now);
    if (hf_hold_is_held(hold)) hf_op_succeed(op);
    else fail_lost(op, hold->reason);
}

static void on_extended(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_op *op = request->context;
    hf_verdict verdict = reply ? hf_wire_read_verdict(reply) : HF_VERDICT_UNEXPECTED;
    if (is_gone(verdict)) {
        on_gone(op, verdict, now);
    } else if (verdict != HF_VERDICT_YES) {
        if (reply) set_unexpected_reply(request);
        hf_op_fail_with_request(op, request);
        limit_lease(op);
    } else if (!hf_request_is_confirmed(request) && !op->call.also_renews) {
        hf_op_fail_unconfirmed(op);
    } else {
        on_yes(op, request, now);
    }
    hf_renewer_resume(op->client, op->hold->claim, now);
    hf_client_unblock(op->client, op->hold->claim, now);
}

static bool encode_extend(hf_op *op, hf_time lease) {
    const hf_claim *claim = op->hold->claim;
    hf_wire_lock lock = hf_op_wire_lock(op, hf_claim_owner(claim));
    char waiter[HF_WAITER_SIZE];
    size_t size =
        hf_claim_is_unconfirmed(claim)
            ? hf_client_write_waiter(waiter, op->client, claim, claim->wait, claim->token_ttl_ms)
            : 0;
    uint64_t max_ttl_to_shorten_ms = claim->shared ? 0 : HF_WIRE_ANY_TTL;
    bool encoded =
        hf_wire_extend(&op->request, &lock, lease, max_ttl_to_shorten_ms, (hf_slice){waiter, size});
    return encoded && (lease == 0 || hf_client_sync(op->client, &op->request));
}

static bool needs_renewal_now(const hf_hold *hold, hf_time now) {
    hf_claim *claim = hold->claim;
    bool is_final_lease = !claim->renewed || hf_claim_has_last_lease(claim);
    return hf_claim_is_unconfirmed(claim) ||
           (!is_final_lease &&
            now >= hf_lease_renew_at_from_end(claim->valid_until, hf_claim_lease(claim)));
}

/* A check also confirms a hold that was acquired by a grant, and renews a hold whose renewal is
 * due, because a caller that checks continually leaves the renewer no time for this. */
static void begin_extend(hf_op *op, hf_time now) {
    if (!begin_on_hold(op, now)) return;
    assert(hf_hold_is_held(op->hold) && op->hold->claim->has_command_in_flight);
    hf_time lease =
        op->impl->sets_lease ? hf_claim_capped_lease(op->hold->claim, op->spec.lease, now) : 0;
    op->call.also_renews = lease == 0 && needs_renewal_now(op->hold, now);
    bool encoded =
        op->call.also_renews
            ? hf_renewer_encode_confirmation(op->client, op->hold->claim, &op->request, now)
            : encode_extend(op, lease);
    if (!encoded) {
        fail_out_of_memory(op, now);
        return;
    }
    op->call.previous_valid_until = op->hold->claim->valid_until;
    if (lease > 0) { /* a shorter lease counts from now, no matter when the reply arrives */
        op->hold->claim->valid_until = hf_time_min(op->hold->claim->valid_until,
                                                   hf_claim_lease_end(op->hold->claim, lease, now));
    }
    hf_holds_set_wake_at(&op->client->holds, op->hold->claim, op->hold->claim->valid_until);
    hf_op_send(op, on_extended, deadline_of(op), false, now);
}

/* ---- waiting for the hold ---- */

static void unblock(hf_op *op, hf_time now) {
    assert(op->hold && !op->blocked);
    if (hf_hold_is_lost(op->hold) && !hf_hold_in_table(op->hold)) {
        fail_lost(op, op->hold->reason);
        return;
    }
    hf_hold_unref(op->hold);
    op->hold = NULL;
    op->impl->begin(op, now);
}

/* Lets a command that was sent continue without the operation, because the server may still ask for
 * the program's source. Returns false if there is no such command. */
static bool continue_alone(hf_op *op) {
    bool continues = !op->blocked && hf_renewer_take_over_request(op->client, &op->request);
    if (!continues) hf_session_drop(&op->request);
    return continues;
}

/* An abandoned release continues in the background, but a shared owner's release is not resent. */
static void abandon_release(hf_op *op, hf_time now) {
    if (op->hold->claim->shared) continue_alone(op);
    else hf_session_drop(&op->request);
    if (op->blocked) hf_renewer_abandon(op->client, op->hold, 1, now);
    else clean_up(op, now);
}

/* If the record was not sent before, the key remains taken until its lease ends. */
static void abandon_complete(hf_op *op, hf_time now) {
    if (!op->blocked && !write_later(op, now)) continue_alone(op);
    if (!op->blocked) hf_op_drop_hold(op, op->hold, now);
    else if (hf_hold_in_table(op->hold)) hf_holds_remove(&op->client->holds, op->hold->claim);
}

static void abandon_extend(hf_op *op, hf_time now) {
    hf_session_drop(&op->request);
    if (op->blocked) return;
    limit_lease(op);
    hf_renewer_resume(op->client, op->hold->claim, now);
    hf_client_unblock(op->client, op->hold->claim, now);
}

/* ---- without a hold ---- */

static void on_forced(hf_op *op, const hf_reply *reply, hf_time now) {
    hf_client *client = op->client;
    hf_verdict verdict = hf_wire_read_verdict(reply);
    op->result.value = verdict == HF_VERDICT_YES || verdict == HF_VERDICT_NEEDS_LEAVE;
    hf_op_succeed(op);
    if (verdict == HF_VERDICT_NEEDS_LEAVE)
        hf_renewer_grant_to_next(client, op->spec.lock_kind, op->spec.names->key, now);
    hf_hold *hold =
        hf_holds_find(&client->holds, op->spec.lock_kind, op->spec.names->key, op->spec.caller);
    bool may_hold = op->spec.result.size > 0 && op->result.value == 0;
    if (hold && hf_hold_is_held(hold) && !may_hold)
        hf_renewer_on_lost(client, hold, HF_LOST_DELETED, now);
    /* Other callers may have acquired the lock since: ask the server about their holds. */
    hf_holds_wake_all(&client->holds, op->spec.lock_kind, op->spec.names->key, now);
}

static bool encode_force(hf_op *op) {
    const hf_names *names = op->spec.names;
    const hf_hold *hold =
        hf_holds_find(&op->client->holds, op->spec.lock_kind, names->key, op->spec.caller);
    hf_wire_lock lock = hf_op_wire_lock(op, hold ? hf_claim_owner(hold->claim) : op->spec.caller);
    op->request.no_retry = true; /* a second copy would take the lock from the next owner */
    return hf_wire_force(&op->request, &lock, op->spec.result);
}

static void on_info(hf_op *op, const hf_reply *reply, hf_time now) {
    (void)now;
    op->result.info = calloc(1, sizeof *op->result.info);
    if (!op->result.info) {
        hf_op_fail_out_of_memory(op);
        return;
    }
    hf_wire_read_info(reply, op->result.info);
    hf_op_succeed(op);
}

static void on_value(hf_op *op, const hf_reply *reply, hf_time now) {
    (void)now;
    op->result.value = reply->integer;
    hf_op_succeed(op);
}

static void on_command(hf_op *op, const hf_reply *reply, hf_time now) {
    (void)now;
    op->result.reply = hf_reply_copy(reply);
    if (op->result.reply) hf_op_succeed(op);
    else hf_op_fail_out_of_memory(op);
}

static void begin_plain(hf_op *op, bool encoded, hf_time now) {
    hf_op_run(op, encoded, hf_op_on_reply, now);
}

static void begin_force(hf_op *op, hf_time now) {
    hf_kept_before_force(op->client, op->spec.lock_kind, op->spec.names->key, now);
    begin_plain(op, encode_force(op), now);
}

static void begin_info(hf_op *op, hf_time now) {
    const hf_op_spec *spec = &op->spec;
    begin_plain(op, hf_wire_info(&op->request, spec->lock_kind, spec->names, op->client->uuid),
                now);
}

static void begin_ttl(hf_op *op, hf_time now) {
    begin_plain(op, hf_wire_ttl(&op->request, op->spec.names), now);
}

static void begin_raise_token(hf_op *op, hf_time now) {
    const hf_op_spec *spec = &op->spec;
    begin_plain(
        op, hf_wire_raise_counter(&op->request, spec->names, spec->token_floor, spec->token_ttl_ms),
        now);
}

static void on_permits_set(hf_op *op, const hf_reply *reply, hf_time now) {
    if (hf_wire_read_verdict(reply) == HF_VERDICT_NEEDS_LEAVE)
        hf_renewer_grant_to_next(op->client, op->spec.lock_kind, op->spec.names->key, now);
    on_value(op, reply, now);
}

static void begin_set_permits(hf_op *op, hf_time now) {
    hf_wire_lock lock = hf_op_wire_lock(op, HF_NO_TEXT);
    begin_plain(op, hf_wire_set_permits(&op->request, &lock, op->spec.value), now);
}

static void begin_ping(hf_op *op, hf_time now) {
    begin_plain(op, hf_wire_ping(&op->request), now);
}

static void begin_command(hf_op *op, hf_time now) {
    begin_plain(op, hf_request_command(&op->request, op->spec.arg_count, op->spec.args), now);
}

/* ---- the implementations ---- */

#define ON_HOLD(name, text, begin_fn, abandon_fn, ...)                                             \
    const hf_op_impl hf_##name##_impl = {.verb = (text),                                           \
                                         .needs_hold = true,                                       \
                                         .begin = (begin_fn),                                      \
                                         .unblock = unblock,                                       \
                                         .abandon = (abandon_fn),                                  \
                                         __VA_ARGS__}
#define PLAIN(name, text, begin_fn, reply_fn, ...)                                                 \
    const hf_op_impl hf_##name##_impl = {                                                          \
        .verb = (text), .begin = (begin_fn), .on_reply = (reply_fn), __VA_ARGS__}

ON_HOLD(release, "release", begin_release, abandon_release, .releases = true);
ON_HOLD(complete, "complete", begin_complete, abandon_complete, .releases = true,
        .leaves_record = true);
ON_HOLD(extend, "extend", begin_extend, abandon_extend, .sets_lease = true);
ON_HOLD(check, "check", begin_extend, abandon_extend, .sets_lease = false);
PLAIN(force_release, "force-release", begin_force, on_forced, .effect_remains = true);
PLAIN(info, "read", begin_info, on_info, .effect_remains = false);
PLAIN(ttl, "read the TTL of", begin_ttl, on_value, .effect_remains = false);
PLAIN(ping, "ping", begin_ping, on_value, .effect_remains = false);
PLAIN(command, "run a command", begin_command, on_command,
      .quorum_refusal = "a command needs a single server, not a quorum");
PLAIN(raise, "raise the token of", begin_raise_token, on_value, .effect_remains = false);
PLAIN(set, "set the permits of", begin_set_permits, on_permits_set, .effect_remains = true);
