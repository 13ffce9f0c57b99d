#include "lock/wire.h"
#include "op/leave.h"
#include "rig.h"

#define KEYS_OF_RW "4 k redisson_lock_token:{k} holdfast_queue:{k} redisson_rwlock:{k} "
#define READER DRIVE_UUID ":"
#define ASK(owner, from, rest)                                                                     \
    "EVALSHA rw_acquire " KEYS_OF_RW owner " 2000 " from " 0 30000 1000 " rest

/* The names as of a read/write lock. */
static void rw_begin(void) {
    rig_begin();
    hf_names_free(&rig.names);
    while (!hf_names_make_on(&rig.names, hf_slice_of("k"), &hf_kind_read)) continue;
}

RIG_BEGINS_WITH(rw_begin)

static hf_op *begin_rw(hf_op_kind kind, const hf_kind *lock_kind, const char *caller, hf_time wait,
                       hf_time now) {
    hf_op *op = BEGIN(kind, now, spec.lock_kind = lock_kind, spec.owner = (hf_slice){"", 0},
                      spec.caller = hf_slice_of(caller), spec.wait = wait);
    return op;
}

static hf_op *acquire(const hf_kind *kind, const char *caller, hf_time wait, hf_time now) {
    return begin_rw(HF_OP_ACQUIRE, kind, caller, wait, now);
}

static void take(const hf_kind *kind, const char *caller, hf_time now) {
    hf_op *op = acquire(kind, caller, 0, now);
    CHECK_ENDS_WITH(op, ACQUIRED, now, "ok");
    sent_over(CALLS);
}

TEST(the_read_and_the_write_half_of_a_lock_have_owners_of_their_own) {
    hf_op *read = acquire(&hf_kind_read, "me", 0, AT(0));
    CHECK_SENT(CALLS, ASK(READER "1", "0", ""));
    CHECK_ANSWER(read, ACQUIRED, AT(1), "ok");
    hf_op *write = acquire(&hf_kind_write, "you", 0, AT(2));
    CHECK_SENT(CALLS, ASK(READER "2:write", "0", ""));
    CHECK_ANSWER(write, busy(100, 0, 0), AT(3), "busy");
}

/* Two callers are in the queue at place 5; each is subscribed. */
static void wait_both(hf_op *ops[2]) {
    static const char *const callers[] = {"me", "you"};
    for (int i = 0; i < 2; i++) {
        ops[i] = acquire(&hf_kind_read, callers[i], 10 * HF_SECOND, AT(10 * i));
        feed_calls(busy(20000, i, 0), AT(10 * i + 1));
        if (i == 0) feed_subscribed(AT(2));
        feed_calls(busy(20000, i, 0), AT(10 * i + 3));
        sent_over(CALLS);
    }
}

/* A waiter that has ended here is passed on under the owner that the server gave it. */
TEST(a_write_grant_to_a_wait_that_has_ended_is_undone_under_the_writers_name) {
    hf_op *ops[2];
    wait_both(ops);
    hf_ended_waits_add(ended_of(&rig.client), 9, &hf_kind_write, hf_slice_of("k"));
    feed_message("1 grant w 9 " PLACE " 77 2000 k", AT(100));
    CHECK_SENT_AT(RENEWER, AT(101),
                  "EVALSHA rw_leave " KEYS_OF_RW READER "9:write 2000 0 1w" DRIVE_UUID ":9:0 ");
}

TEST(a_blocking_wait_for_a_read_write_lock_that_the_same_client_holds_is_a_deadlock) {
    CASES(const hf_kind *held, *asked; int ahead, foreign; bool waits) = {
        {&hf_kind_read, &hf_kind_write, 0, 0, true},  {&hf_kind_write, &hf_kind_read, 0, 0, true},
        {&hf_kind_write, &hf_kind_write, 0, 0, true}, {&hf_kind_read, &hf_kind_read, 0, 0, false},
        {&hf_kind_read, &hf_kind_read, 1, 0, true},   /* a writer is ahead */
        {&hf_kind_read, &hf_kind_read, 1, 1, false}}; /* a turn of Redisson's waiters */
    EACH_CASE (i, cases) {
        take(cases[i].held, "other", AT(0));
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(1), spec.lock_kind = cases[i].asked,
                          spec.wait = HF_SECOND, spec.blocks_callers = true);
        feed_calls(busy(20000, cases[i].ahead, cases[i].foreign), AT(2));
        CHECK_STR(outcome(op), cases[i].waits ? "deadlock" : "under way");
        op = BEGIN(HF_OP_ACQUIRE, AT(2), spec.lock_kind = cases[i].asked, spec.wait = HF_SECOND,
                   spec.caller = hf_slice_of("third")); /* in a loop, other callers run */
        CHECK_ANSWER(op, busy(20000, cases[i].ahead, cases[i].foreign), AT(2), "under way");
    }
}

/* The release of the write lock was abandoned while it waited for a renewal. */
TEST(a_read_acquire_waits_for_the_clean_up_of_its_owners_abandoned_write_lock) {
    take(&hf_kind_write, "me", AT(0));
    CHECK_SENT_AT(RENEWER, AT(10000), "EVALSHA rw_renew 2 k k " READER "1:write 30000");
    hf_op_abandon(begin_rw(HF_OP_RELEASE, &hf_kind_write, "me", 0, AT(10001)), AT(10002));
    hf_op *op = acquire(&hf_kind_read, "me", 0, AT(10002));
    feed_calls(busy(20000, 0, 0), AT(10003)), CHECK(is_awaiting_release(op));
    sent_over(CALLS);
    feed(link_of(RENEWER), "*1\r\n:1\r\n", AT(10004)), CHECK(is_awaiting_release(op));
    rig_serve(AT(10004));
    const char *next = sent_over(CALLS);
    CHECK_OR(strncmp(next, "EVALSHA rw_leave ", 17) == 0 && !strchr(next, '\n'), "%s", next);
    CHECK_ANSWER_SENDS(":1\r\n", AT(10005), CALLS, ASK(READER "2", "0", ""));
    CHECK_ANSWER(op, ACQUIRED, AT(10006), "ok");
}

static bool renews(void *context) {
    hf_request request = {0};
    hf_slice keys[] = {hf_slice_of("k"), hf_slice_of("a{b}")},
             owners[] = {hf_slice_of("x"), hf_slice_of("y")};
    hf_time leases[] = {HF_SECOND, HF_SECOND};
    bool ok = hf_wire_renew(&request, context, 2, keys, owners, leases);
    hf_request_clear(&request);
    return ok;
}

TEST(read_write_locks_survive_each_failed_allocation) {
    CHECK(memerr_until_success(renews, (void *)(uintptr_t)&hf_kind_read, 20) >= 3);
    CHECK(memerr_until_success(renews, (void *)(uintptr_t)&hf_kind_write, 20) >= 3);
}

/* The server's queue has a mark for a grant that is not confirmed. */
TEST(a_read_write_grant_is_confirmed_even_if_it_was_re_entered) {
    hf_op *op = acquire(&hf_kind_read, "me", 10 * HF_SECOND, AT(0));
    subscribe_with(busy(20000, 0, 0), AT(1), AT(2), AT(3));
    CHECK_GRANTS(op, "1 grant r 1 " PLACE " 77 2000 k", AT(10), "ok");
    take(&hf_kind_read, "me", AT(11));
    CHECK_SENT_PART_UNTIL(RENEWER, AT(11), AT(5000), "1r" DRIVE_UUID ":1:1000");
}

CHECK_MAIN
