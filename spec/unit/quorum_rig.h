/*
 * A quorum of five servers, driven as drive.h drives a client.
 */
#ifndef QUORUM_RIG_H
#define QUORUM_RIG_H

#include "base/lease.h"
#include "quorum/internal.h"
#include "rig.h"

#define COUNT 5
#define MAJORITY 3

static hf_server servers[COUNT];
static int server_count = COUNT; /* how many servers the quorum has */

/* ---- five servers ---- */

static UNUSED hf_client *member(int i) {
    return quorum_of(&rig.client)->members[i];
}

static UNUSED hf_session *link_at(int i, hf_link link) {
    return &first_node(member(i))->links[link];
}

/* Ticks twice, as what the links do may end a round. */
static UNUSED void tick(hf_time now) {
    rig_tick(now);
    hf_client_tick(&rig.client, now);
}

/* Lets time pass until `until`, waking only when the client asks for it. */
static UNUSED void pass(hf_time now, hf_time until) {
    int wakes = 0;
    tick(now);
    for (hf_time at; (at = client_next_tick()) <= until && wakes < 100000; wakes++) {
        now = hf_time_max(now, at);
        tick(now);
    }
    tick(until);
    if (wakes == 100000) check_fail(__FILE__, __LINE__, "does not come to rest");
}

static UNUSED void start_with(hf_time restart_guard) {
    hf_client_config config = rig_config();
    for (int i = 0; i < COUNT; i++) {
        servers[i] = (hf_server){.host = "h", .port = (uint16_t)(i + 1)};
        snprintf(servers[i].label, sizeof servers[i].label, "s%d", i + 1);
    }
    config.mode = HF_MODE_QUORUM, config.servers = servers;
    config.server_count = (size_t)server_count, config.restart_guard = restart_guard;
    rig_begin_with(&config);
}

static void start(void) {
    start_with(0);
}

RIG_BEGINS_WITH(start)

static UNUSED hf_op *begin_round(const hf_op_spec *spec, hf_time now) {
    hf_op *op = begin_spec(spec, now);
    tick(now);
    return op;
}

/* The same for an operation that differs from the usual one by these assignments to `spec`. */
#define BEGIN_ROUND(kind, now, ...)                                                                \
    ({                                                                                             \
        hf_op_spec spec = spec_of(kind);                                                           \
        __VA_ARGS__;                                                                               \
        begin_round(&spec, now);                                                                   \
    })

static UNUSED hf_op *begin_quorum(hf_op_kind kind, hf_time wait, hf_time now) {
    return BEGIN_ROUND(kind, now, spec.wait = wait);
}

/* Feeds one or more replies of this server, over the callers' link. */
static UNUSED void answer(int i, const char *text, hf_time now) {
    feed(link_at(i, CALLS), text, now);
    tick(now);
}

/* Feeds the same replies from each server from `first` up to, but not including, `end`. */
static UNUSED void answers(int first, int end, const char *text, hf_time now) {
    for (int i = first; i < end; i++) answer(i, text, now);
}

/* The operation's outcome after these replies. */
#define CHECK_ANSWERS(op, first, end, text, now, want)                                             \
    (answers(first, end, text, now), CHECK_OUTCOME(op, want))

/* The operation has this outcome after these replies, and ends. */
#define CHECK_ANSWERS_END(op, first, end, text, now, want)                                         \
    (CHECK_ANSWERS(op, first, end, text, now, want), hf_op_end(op, now))

/* The operation's outcome after the time until `now`. */
#define CHECK_PASS(op, from, now, want) (pass(from, now), CHECK_OUTCOME(op, want))

static UNUSED const char *yes(unsigned long long token) {
    static char text[64];
    snprintf(text, sizeof text, "*4\r\n:1\r\n:%llu\r\n:0\r\n:0\r\n", token);
    return text;
}

/* The same, by a server whose clock shows this. */
static UNUSED const char *yes_at(hf_time clock) {
    return printed("*4\r\n:1\r\n:77\r\n:0\r\n:%llu\r\n", (unsigned long long)(clock / 1000));
}

/* The first servers grant the lock with these tokens, in turn. */
#define GRANT_TOKENS(now, ...) grant_tokens(now, (const unsigned long long[]){__VA_ARGS__, 0})

static UNUSED void grant_tokens(hf_time now, const unsigned long long *tokens) {
    for (int i = 0; tokens[i]; i++) answer(i, yes(tokens[i]), now);
}

static UNUSED const char *output_by(int i) {
    return output_of(link_at(i, CALLS));
}

static UNUSED size_t parts_held(void) {
    size_t held = 0;
    const hf_hold *hold = hold_of();
    for (size_t i = 0; hold && i < member_count_of(hold); i++)
        held += member_holds_of(hold)[i] && is_in_table(member_holds_of(hold)[i]) &&
                is_held(member_holds_of(hold)[i]);
    return held;
}

/* Acquires the lock with a yes from the first `count` servers; the others have not replied. */
static UNUSED void hold_by(int count, hf_time now) {
    hf_op *op = begin_quorum(HF_OP_ACQUIRE, 0, now);
    answers(0, count, yes(77), now);
    hf_op_end(op, now), rig_hush();
}

/* Returns the state of this member's hold of the key, CLEANING_UP if only its claim is there, or
 * -1. */
static UNUSED int part_state(int i) {
    const hf_holds *holds = holds_of(member(i));
    hf_slice key = hf_slice_of("k"), me = hf_slice_of("me");
    const hf_hold *part = hf_holds_find(holds, &hf_kind_lock, key, me);
    if (part) return hold_state(part);
    return hf_holds_find_leaving(holds, &hf_kind_lock, key, me) ? CLEANING_UP : -1;
}

#endif
