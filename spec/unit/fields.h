/* What tests and the simulator read and set in holds, operations and clients.
 *
 * Only this file uses the fields of hf_hold, hf_op and hf_client, so that a field can be renamed or
 * moved without a change to the tests; tools/check_private.lua finds other uses. Tests use what
 * holdfast.h offers (hf_view_of, hf_op_is_done, hf_client_stats) directly.
 *
 * A row is X(type, the function's name, the field). */
#ifndef FIELDS_H
#define FIELDS_H

#include "client.h"
#include "names_of.h"

#define UNUSED __attribute__((unused))

#define FIELD_READ(owner, type, name, field)                                                       \
    static UNUSED inline type name(const owner *of) {                                              \
        return of->field;                                                                          \
    }
#define FIELD_WRITE(owner, type, name, field)                                                      \
    static UNUSED inline void name(owner *of, type value) {                                        \
        of->field = value;                                                                         \
    }
/* The field itself, which may be changed. */
#define FIELD_PART(owner, type, name, field)                                                       \
    static UNUSED inline type *name(const owner *of) {                                             \
        return (type *)&of->field;                                                                 \
    }

#define HOLD_READS(X)                                                                              \
    X(uint64_t, number_of, claim->by_number.number)                                                \
    X(hf_time, lease_of, claim->lease)                                                             \
    X(hf_time, wakes_at, claim->wake_at)                                                           \
    X(hf_time, bound_of, claim->max_until)                                                         \
    X(uint64_t, agent_of, agent)                                                                   \
    X(uint64_t, wait_of_hold, claim->wait)                                                         \
    X(uint32_t, others_of, claim->share.others)                                                    \
    X(uint32_t, pending_of, claim->share.pending_releases)                                         \
    X(uint32_t, failures_of, claim->failures)                                                      \
    X(hf_hold **, member_holds_of, member_holds)                                                   \
    X(uint32_t, member_count_of, member_count)                                                     \
    X(bool, is_in_flight, claim->has_command_in_flight)                                            \
    X(bool, is_shared, claim->shared)                                                              \
    X(bool, uses_same_connection, claim->leave.same_connection)                                    \
    X(bool, is_uncertain, claim->count_uncertain)

#define HOLD_WRITES(X)                                                                             \
    X(hf_time, set_lease, claim->lease)                                                            \
    X(hf_time, set_end, claim->valid_until)                                                        \
    X(hf_time, set_wake, claim->wake_at)                                                           \
    X(hf_time, set_confirm_time, claim->confirm_at)                                                \
    X(hf_time, set_shortened_lease, claim->shorter_lease)                                          \
    X(uint32_t, set_settled_ms, claim->settled_ms)                                                 \
    X(hf_time, set_bound, claim->max_until)                                                        \
    X(uint64_t, set_token_ttl, claim->token_ttl_ms)                                                \
    X(uint64_t, set_wait, claim->wait)                                                             \
    X(uint32_t, set_count, claim->count)                                                           \
    X(uint32_t, set_others, claim->share.others)                                                   \
    X(uint32_t, set_pending, claim->share.pending_releases)                                        \
    X(uint32_t, set_failures, claim->failures)                                                     \
    X(hf_approval, set_approval, claim->approval)                                                  \
    X(hf_lost_reason, set_reason, reason)                                                          \
    X(bool, set_renewed, claim->renewed)                                                           \
    X(bool, set_in_flight, claim->has_command_in_flight)                                           \
    X(bool, set_shared, claim->shared)                                                             \
    X(bool, set_refused, claim->leave.refused)                                                     \
    X(bool, set_uncertain, claim->count_uncertain)

/* The claims themselves, and the holds of claims. */
static UNUSED inline hf_claim *claim_of(const hf_hold *of) {
    return of->claim;
}

static UNUSED inline hf_hold *hold_of_claim(const hf_claim *of) {
    return of ? of->hold : NULL;
}

static UNUSED inline const hf_kind *kind_of_hold(const hf_hold *of) {
    return of->claim->kind;
}

/* What tests read of a claim, which may have no hold. */
static UNUSED inline bool is_leaving(const hf_claim *of) {
    return of && of->state == HF_CLAIM_LEAVING;
}

static UNUSED inline bool is_granted(const hf_hold *of) {
    return hf_claim_is_unconfirmed(of->claim);
}

/* An unconfirmed grant is due at once, unless set_confirm_time follows. */
static UNUSED inline void set_granted(hf_hold *of, bool value) {
    of->claim->confirm_at = value ? 0 : HF_NEVER;
}

static UNUSED inline bool is_at_risk(const hf_hold *of) {
    return hf_claim_is_at_risk(of->claim);
}

static UNUSED inline void set_at_risk(hf_hold *of, bool value) {
    of->claim->failures = value;
}

static UNUSED inline bool claim_is_idle(const hf_claim *of) {
    return hf_claim_is_idle(of);
}

static UNUSED inline bool claim_is_renewed(const hf_claim *of) {
    return of->renewed;
}

static UNUSED inline hf_time claim_bound(const hf_claim *of) {
    return of->max_until;
}

static UNUSED inline void set_claim_end(hf_claim *of, hf_time value) {
    of->valid_until = value;
}

static UNUSED inline void set_claim_lease(hf_claim *of, hf_time value) {
    of->lease = value;
}

/* Makes the claim belong to a kept lock, or to none. */
static UNUSED inline void set_claim_kept(hf_claim *of, hf_kept_lock *keep) {
    of->kept = keep;
    if (keep) keep->claim = of;
}

static UNUSED inline hf_time claim_wakes_at(const hf_claim *of) {
    return of->wake_at;
}

static UNUSED inline bool claim_is_in_flight(const hf_claim *of) {
    return of->has_command_in_flight;
}

static UNUSED inline hf_time claim_ends_at(const hf_claim *of) {
    return of->valid_until;
}

static UNUSED inline uint64_t claim_wait(const hf_claim *of) {
    return of->wait;
}

static UNUSED inline uint32_t claim_failures(const hf_claim *of) {
    return of->failures;
}

/* Puts the hold and its claim into states that fit. */
static UNUSED inline void set_hold_state(hf_hold *of, hf_hold_state value) {
    of->state = value;
    of->claim->state = value == HF_HOLD_ACQUIRING ? HF_CLAIM_REQUESTED : HF_CLAIM_ACTIVE;
}

/* Declares a hold with a claim, neither of which is in a table. */
#define NEW_HOLD(name)                                                                             \
    hf_claim name##_claim = {.confirm_at = HF_NEVER};                                              \
    hf_hold name = {.claim = &name##_claim}

/* Return the claim at this place of the heap, and its hold. */
static UNUSED inline hf_claim *claim_in_heap(const hf_holds *of, size_t place) {
    return of->heap[place];
}

static UNUSED inline hf_hold *hold_in_heap(const hf_holds *of, size_t place) {
    return hold_of_claim(of->heap[place]);
}

/* The fields of a hold's view in holdfast.h: X(type, the function's name, the field). */
#define VIEW_READS(X)                                                                              \
    X(hf_lost_reason, reason_of, reason)                                                           \
    X(bool, is_in_table, in_table)                                                                 \
    X(bool, is_detached, detached)                                                                 \
    X(bool, is_renewed, renewed)                                                                   \
    X(hf_time, ends_at, valid_until)                                                               \
    X(uint32_t, count_of, count)                                                                   \
    X(uint64_t, token_of, token)

#define FIELD_VIEW_READ(type, name, field)                                                         \
    static UNUSED inline type name(const hf_hold *hold) {                                          \
        return hf_view_of(hold).field;                                                             \
    }
VIEW_READS(FIELD_VIEW_READ)

/* What tests call the state of a hold whose claim is LEAVING. */
enum { CLEANING_UP = HF_HOLD_STATES };

static UNUSED inline int hold_state(const hf_hold *hold) {
    bool left = hf_view_of(hold).over && is_leaving(claim_of(hold));
    return left ? CLEANING_UP : (int)hf_view_of(hold).state;
}

#define FIELD_HOLD_READ(type, name, field) FIELD_READ(hf_hold, type, name, field)
HOLD_READS(FIELD_HOLD_READ)
#define FIELD_HOLD_WRITE(type, name, field) FIELD_WRITE(hf_hold, type, name, field)
HOLD_WRITES(FIELD_HOLD_WRITE)

#define OP_READS(X)                                                                                \
    X(hf_claim *, awaited_claim_in, awaited_claim)                                                 \
    X(hf_hold *, hold_in, hold)                                                                    \
    X(hf_acquire_state, op_state, state)                                                           \
    X(hf_op *, next_op, next)                                                                      \
    X(hf_node *, node_for, node)                                                                   \
    X(hf_round *, round_of, round)                                                                 \
    X(const hf_op_impl *, impl_of, impl)                                                           \
    X(bool, is_turn_of_pollers, acquire.is_pollers_turn)                                           \
    X(const char *, waiter_of, acquire.waiter)                                                     \
    X(bool, is_searching, deadlock.walk)                                                           \
    X(long long, value_of, result.value)                                                           \
    X(hf_lock_info *, info_of, result.info)                                                        \
    X(const char *, record_of, result.record)                                                      \
    X(size_t, record_size_of, result.record_size)                                                  \
    X(hf_reply *, reply_in, result.reply)                                                          \
    X(hf_time, rechecks_at, wait.recheck_at)                                                       \
    X(uint64_t, wait_number_of, wait.number)                                                       \
    X(hf_subscription_state, listening_of, wait.listening)                                         \
    X(bool, needs_events, wait.needs_events)

#define OP_WRITES(X)                                                                               \
    X(hf_acquire_state, set_op_state, state)                                                       \
    X(hf_time, set_listen_time, acquire.listen_at)                                                 \
    X(hf_time, set_wait_end, wait.until)                                                           \
    X(hf_time, set_recheck, wait.recheck_at)                                                       \
    X(hf_subscription_state, set_listening, wait.listening)                                        \
    X(bool, set_needs_events, wait.needs_events)

#define OP_PARTS(X)                                                                                \
    X(hf_request, request_in, request)                                                             \
    X(hf_op_spec, spec_in, spec)

#define FIELD_OP_READ(type, name, field) FIELD_READ(hf_op, type, name, field)
OP_READS(FIELD_OP_READ)
#define FIELD_OP_WRITE(type, name, field) FIELD_WRITE(hf_op, type, name, field)
OP_WRITES(FIELD_OP_WRITE)
#define FIELD_OP_PART(type, name, field) FIELD_PART(hf_op, type, name, field)
OP_PARTS(FIELD_OP_PART)

#define CLIENT_READS(X)                                                                            \
    X(size_t, hold_count, holds.count)                                                             \
    X(size_t, kept_count, kept.count)                                                              \
    X(size_t, node_count, node_count)                                                              \
    X(hf_node **, nodes_of, nodes)                                                                 \
    X(hf_op *, ops_of, ops)                                                                        \
    X(const char *, introduction_of, presence.who)                                                 \
    X(bool, is_closed, closed)                                                                     \
    X(const hf_topology *, topology_of, topology)                                                  \
    X(hf_quorum *, quorum_of, quorum)                                                              \
    X(size_t, detached_count, detached)                                                            \
    X(uint64_t, random_of, random)                                                                 \
    X(size_t, unanswered_count, unanswered)

#define CLIENT_WRITES(X)                                                                           \
    X(const hf_topology *, set_topology, topology)                                                 \
    X(uint64_t, set_random, random)                                                                \
    X(bool, set_member, is_member)

#define CLIENT_PARTS(X)                                                                            \
    X(hf_client_config, config_in, config)                                                         \
    X(hf_node, first_node, first)                                                                  \
    X(hf_holds, holds_of, holds)                                                                   \
    X(hf_observer, observer_of, observer)                                                          \
    X(hf_presence, presence_of, presence)                                                          \
    X(hf_stats, counters_of, stats)                                                                \
    X(hf_ended_waits, ended_of, ended)                                                             \
    X(hf_ring, ring_of, ring)

#define FIELD_CLIENT_READ(type, name, field) FIELD_READ(hf_client, type, name, field)
CLIENT_READS(FIELD_CLIENT_READ)
#define FIELD_CLIENT_WRITE(type, name, field) FIELD_WRITE(hf_client, type, name, field)
CLIENT_WRITES(FIELD_CLIENT_WRITE)
#define FIELD_CLIENT_PART(type, name, field) FIELD_PART(hf_client, type, name, field)
CLIENT_PARTS(FIELD_CLIENT_PART)

static UNUSED inline bool is_acquiring(const hf_hold *hold) {
    return hf_view_of(hold).state == HF_HOLD_ACQUIRING;
}

static UNUSED inline bool is_held(const hf_hold *hold) {
    return hf_view_of(hold).held;
}

static UNUSED inline bool is_lost(const hf_hold *hold) {
    return hf_view_of(hold).state == HF_HOLD_LOST;
}

static UNUSED inline bool is_releasing(const hf_hold *hold) {
    return hf_view_of(hold).state == HF_HOLD_RELEASING;
}

static UNUSED inline bool is_cleaned_up(const hf_hold *hold) {
    return hold_state(hold) == CLEANING_UP;
}

static UNUSED inline const char *message_of(const hf_op *op) {
    return hf_fault_text(&op->failure);
}

static UNUSED inline bool is_blocked_acquire(const hf_op *op) {
    return op_state(op) == HF_ACQUIRE_BLOCKED;
}

static UNUSED inline bool is_awaiting_release(const hf_op *op) {
    return op_state(op) == HF_ACQUIRE_AWAITING_RELEASE;
}

static UNUSED inline bool is_asking(const hf_op *op) {
    return op_state(op) == HF_ACQUIRE_ASKING;
}

static UNUSED inline bool is_subscribing(const hf_op *op) {
    return op_state(op) == HF_ACQUIRE_SUBSCRIBING;
}

static UNUSED inline bool is_waiting(const hf_op *op) {
    return op_state(op) == HF_ACQUIRE_WAITING;
}

static UNUSED inline bool is_cancelling(const hf_op *op) {
    return op_state(op) == HF_ACQUIRE_CANCELLING;
}

static UNUSED inline bool is_queued_here(const hf_op *op) {
    return op_state(op) == HF_ACQUIRE_QUEUED_LOCALLY;
}

#endif
