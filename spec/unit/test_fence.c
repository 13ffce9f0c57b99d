/* Writes behind a fence: what a refusal means, and when the outcome is not known. */
#include "op/operation.h"

#include "rig.h"

RIG_BEGINS

#define SAID "EVALSHA fence 2 f v 8 k u 1 0 3 SET v 1"

static hf_op *begin_write(hf_time now) {
    static const hf_slice words[] = {{"f", 1}, {"v", 1}, {"8", 1},   {"k", 1}, {"u", 1}, {"1", 1},
                                     {"0", 1}, {"3", 1}, {"SET", 3}, {"v", 1}, {"1", 1}};
    return BEGIN(HF_OP_FENCED, now, spec.value = 2, spec.args = words,
                 spec.arg_count = sizeof words / sizeof *words);
}

#define ACCEPTED "*2\r\n:1\r\n$5\r\nS2:OK\r\n"
#define STALE "*2\r\n:0\r\n$2\r\n16\r\n"
#define OVERTAKEN "*1\r\n:-2\r\n"

TEST(a_fenced_write_returns_the_replies_of_its_commands) {
    hf_op *op = begin_write(AT(0));
    CHECK_SENT(CALLS, SAID);
    CHECK_ANSWER(op, ACCEPTED, AT(1), "ok");
    CHECK_STR(reply_in(op)->string, "S2:OK");
}

TEST(a_fenced_write_refused_after_a_resend_reports_that_it_may_have_taken_effect) {
    static const char *const refusals[] = {STALE, OVERTAKEN};
    EACH_NUMBER (i, 4) {
        bool twice = i >= 2;
        hf_op *op = begin_write(AT(0));
        CHECK_SENT(CALLS, SAID);
        if (twice) {
            cut_link(CALLS, "cut", AT(1));
            CHECK_SENT_UNTIL(CALLS, AT(1), AT(500), SAID);
        }
        CHECK_ANSWER(op, refusals[i % 2], AT(501), twice ? "unreachable" : "stale");
        CHECK_EQ_INT(strstr(message_of(op), "may have taken effect") != NULL, twice);
    }
}

TEST(a_fenced_write_to_a_resource_that_another_lock_fences_fails_with_conflict) {
    hf_op *op = begin_write(AT(0));
    CHECK_ANSWER(op, "*2\r\n:-1\r\n$5\r\nother\r\n", AT(1), "conflict");
    CHECK_MESSAGE(op, "belongs to the lock \"other\"; write under that lock");
}

TEST(a_fenced_write_with_a_malformed_reply_fails_with_a_server_error) {
    static const char *const replies[] = {":1\r\n", "*1\r\n:1\r\n", "*0\r\n", "$1\r\n1\r\n",
                                          "*2\r\n:1\r\n:1\r\n"};
    EACH_CASE (i, replies) {
        hf_op *op = begin_write(AT(0));
        CHECK_ANSWER(op, replies[i], AT(1), "server");
    }
}

TEST(a_fenced_write_succeeds_only_if_replicas_confirm_it) {
    EACH_NUMBER (confirmed, 2) {
        config_in(&rig.client)->sync = (hf_sync){.replicas = 1, .timeout = 100 * HF_MS};
        hf_op *op = begin_write(AT(0));
        CHECK_SENT(CALLS, SAID "\nWAIT 1 100");
        feed_calls(ACCEPTED, AT(1));
        CHECK_ANSWER(op, confirmed ? ":1\r\n" : ":0\r\n", AT(2), confirmed ? "ok" : "no_quorum");
    }
}

CHECK_MAIN
