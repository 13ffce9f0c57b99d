#include "base/lease.h"
#include "op/operation.h"

#include "rig.h"

RIG_BEGINS

/* No lease of a hold with max_hold lasts longer, by the holder's own clock. */

#define RENEW "EVALSHA renew 1 k me "
#define RENEWED "*1\r\n:1\r\n"

static hf_op *begin_bounded(hf_time max_hold, hf_time wait, hf_time now) {
    return BEGIN(HF_OP_ACQUIRE, now, spec.max_hold = max_hold, spec.wait = wait);
}

/* Held since AT(0). */
static hf_hold *hold_for(hf_time max_hold) {
    rig_begin();
    end_with(begin_bounded(max_hold, 0, AT(0)), ACQUIRED, AT(1));
    sent_over(CALLS);
    return hold_of();
}

/* Lets time pass; the server renews whatever is asked for. Returns how many renewals there were. */
static int pass(int from_ms, int to_ms) {
    int renewals = 0;
    for (int ms = from_ms; ms < to_ms; ms += 10) {
        rig_sleep(AT(ms), AT(ms + 10));
        if (!strstr(sent_over(RENEWER), RENEW)) continue;
        feed(link_of(RENEWER), RENEWED, AT(ms + 10));
        renewals++;
    }
    return renewals;
}

#define CHECK_MAX_HOLD(hold)                                                                       \
    (CHECK(is_lost(hold)), CHECK_STR(hf_lost_reason_name(reason_of(hold)), "max_hold"))

TEST(the_last_renewal_sends_a_lease_that_ends_at_max_hold) {
    hf_hold *hold = hold_for(65 * HF_SECOND);
    static const struct {
        int at;
        const char *lease;
    } renewals[] = {{10000, "30000"}, {20000, "30000"}, {30000, "30000"}, {40000, "25000"}};
    int from = 1;
    for (size_t i = 0; i < sizeof renewals / sizeof *renewals; i++) {
        CHECK_SENT_UNTIL(RENEWER, AT(from), AT(renewals[i].at),
                         printed(RENEW "%s", renewals[i].lease));
        feed(link_of(RENEWER), RENEWED, AT(renewals[i].at + 1));
        from = renewals[i].at + 1;
    }
    CHECK_EQ_U64(ends_at(hold), AT(65000 - 252));
    CHECK_EQ_U64(renewer_next_tick(), ends_at(hold));
    CHECK_SENT_UNTIL(RENEWER, AT(from), ends_at(hold) - 1, "");
    CHECK(is_held(hold));
    rig_sleep(ends_at(hold) - 1, ends_at(hold)), CHECK_MAX_HOLD(hold);
    CHECK_EQ_U64(stats().losses, 1);
}

TEST(a_re_entry_does_not_extend_max_hold) {
    hf_hold *hold = hold_for(40 * HF_SECOND);
    pass(1, 25001);
    hf_op *op = begin_bounded(40 * HF_SECOND, 0, AT(25001));
    CHECK_SENT(CALLS, "EVALSHA acquire " KEYS_OF_K "1 0 14999 1000 ");
    CHECK_ENDS_WITH(op, "*2\r\n:1\r\n:0\r\n", AT(25002), "ok");
    CHECK_EQ_U64(bound_of(hold), AT(40000));
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(25001), HF_MS * 14999));
    CHECK_EQ_INT(pass(25002, 40000), 0);
    CHECK_MAX_HOLD(hold);
}

/* A partial release sets the lease anew, too. */
TEST(releasing_one_of_several_holds_does_not_extend_max_hold) {
    hf_hold *hold = hold_for(20 * HF_SECOND);
    set_count(hold, 2);
    hf_op *op = begin(HF_OP_RELEASE, AT(4000));
    CHECK_SENT(CALLS, "EVALSHA release " KEYS_OF_K "1 16000 ");
    end_with(op, "*2\r\n:3\r\n:1\r\n", AT(4001)), CHECK(ends_at(hold) <= AT(20000));
    pass(4001, 20000), CHECK_MAX_HOLD(hold);
}

TEST(an_extend_beyond_max_hold_is_shortened_to_end_at_max_hold) {
    hf_hold *hold = hold_for(20 * HF_SECOND);
    hf_op *op = BEGIN(HF_OP_EXTEND, AT(5000), spec.lease = 60 * HF_SECOND);
    CHECK_SENT(CALLS,
               "EVALSHA extend 2 k holdfast_queue:{k} me 15000   redisson_lock__channel:{k}");
    CHECK_ENDS_WITH(op, ":1\r\n", AT(5001), "ok");
    CHECK_EQ_U64(ends_at(hold), hf_lease_end(AT(5000), 15 * HF_SECOND));
    CHECK_EQ_INT(pass(5001, 20000), 0);
    CHECK_MAX_HOLD(hold);
}

CHECK_MAIN
