/* The runs of a schedule: what the server's reply means, and when the outcome is not known. */
#include "op/operation.h"

#include "rig.h"

RIG_BEGINS

#define SAID "EVALSHA once 1 r a 7 running 8 30 120 0 w"

static hf_op *begin_once(hf_time now) {
    static const hf_slice words[] = {{"r", 1},  {"a", 1},   {"7", 1}, {"running", 7}, {"8", 1},
                                     {"30", 2}, {"120", 3}, {"0", 1}, {"w", 1}};
    return BEGIN(HF_OP_ONCE, now, spec.value = 1, spec.args = words,
                 spec.arg_count = sizeof words / sizeof *words);
}

#define RECORDED "*4\r\n:1\r\n:7\r\n:9\r\n$4\r\ntext\r\n"

TEST(a_call_about_a_scheduled_job_with_a_malformed_reply_fails_with_a_server_error) {
    static const char *const replies[] = LIST(
        ":1\r\n", "*1\r\n:1\r\n", "*4\r\n:1\r\n:7\r\n:9\r\n:1\r\n",
        "*4\r\n$1\r\n1\r\n:7\r\n:9\r\n$1\r\nt\r\n", "*4\r\n:1\r\n$1\r\n7\r\n:9\r\n$1\r\nt\r\n",
        "*4\r\n:1\r\n:7\r\n$1\r\n9\r\n$1\r\nt\r\n", "*5\r\n:1\r\n:7\r\n:9\r\n$1\r\nt\r\n:1\r\n");
    EACH_CASE (i, replies) {
        hf_op *op = begin_once(AT(0));
        CHECK_ANSWER(op, replies[i], AT(1), "server");
    }
}

TEST(recording_a_scheduled_jobs_run_succeeds_only_if_replicas_confirm_it) {
    EACH_NUMBER (confirmed, 2) {
        config_in(&rig.client)->sync = (hf_sync){.replicas = 1, .timeout = 100 * HF_MS};
        hf_op *op = begin_once(AT(0));
        CHECK_SENT(CALLS, SAID "\nWAIT 1 100");
        feed_calls(RECORDED, AT(1));
        CHECK_ANSWER(op, confirmed ? ":1\r\n" : ":0\r\n", AT(2), confirmed ? "ok" : "no_quorum");
    }
}

CHECK_MAIN
