#include "session_rig.h"

TEST(a_request_refused_by_a_replica_is_resent_before_those_refused_for_other_reasons) {
    session.follows_master = true;
    submit(&one, "A", 3000, AT(0));
    connect_at(AT(0));
    receive(MASTER, AT(0));
    submit(&two, "B", 3000, AT(0));
    submit(&three, "C", 3000, AT(0));
    receive("-LOADING Redis is loading\r\n-READONLY no\r\n", AT(1)), CHECK_WANTS(CLOSE, AT(1));
    hang_up("closed by us", AT(1));
    hf_session_resolve(&session);
    CHECK_OPENED_SENDS(AT(200), "ROLE");
    CHECK_REPLY_SENDS(MASTER, AT(200), "B\nC\nA");
}

TEST(a_script_whose_call_replicas_confirmed_is_called_by_its_sha1_the_next_time) {
    start_open();
    prepare(&one, hf_kind_program(&hf_kind_lock, HF_VERB_INFO), "k");
    one.request.deadline = AT(5000);
    one.request.replicas = 1;
    hf_session_submit(&session, &one.request, AT(0));
    receive("-NOSCRIPT no\r\n:0\r\n", AT(1)), CHECK(one.request.as_eval);
    CHECK_REPLY(":7\r\n:1\r\n", AT(2), one, "7");
    CHECK_EQ_INT((int)one.request.confirmed, 1);
    CHECK(!one.request.as_eval);
}

TEST(a_reply_is_delivered_only_after_the_reply_to_its_wait_command) {
    start_open();
    submit_confirmed(&one, 2, 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_SENDS("A\nWAIT 2 1000\nB");
    CHECK_REPLY(":5\r\n", AT(1), one, "");
    CHECK(hf_session_has_work(&session));
    CHECK_REPLY(":2\r\n:6\r\n", AT(2), one, "5");
    CHECK(hf_request_is_confirmed(&one.request));
    CHECK_STR(two.outcome, "6");
    CHECK(!hf_session_has_work(&session));
}

TEST(the_reply_of_a_wait_command_says_how_many_replicas_confirmed) {
    CASES(const char *reply; uint32_t confirmed; const char *why) =
        LIST({":3\r\n", 3, ""}, {":1\r\n", 1, ""}, {":0\r\n", 0, ""}, {":-1\r\n", 0, ""},
             {":4294967297\r\n", UINT32_MAX, ""}, {"+OK\r\n", 0, ""},
             {"-NOPERM no\r\n", 0, "NOPERM no"});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start_open();
        submit_confirmed(&one, 2, 3000, AT(0));
        one.request.confirmed = 7;
        receive(":5\r\n", AT(1));
        CHECK_REPLY(cases[i].reply, AT(1), one, "5");
        CHECK_EQ_U64(one.request.confirmed, cases[i].confirmed);
        CHECK_EQ_INT(hf_request_is_confirmed(&one.request), cases[i].confirmed >= 2);
        CHECK_STR(hf_fault_text(&one.request.failure), cases[i].why);
    }
}

TEST(the_replicas_confirmation_of_a_failed_command_is_ignored) {
    start_open();
    submit_confirmed(&one, 1, 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_REPLY("-ERR no\r\n:1\r\n:6\r\n", AT(1), one, "server: ERR no");
    CHECK_EQ_INT(one.calls, 1);
    CHECK_EQ_INT(one.request.confirmed, 0);
    CHECK_STR(two.outcome, "6");
}

TEST(a_request_refused_by_a_replica_is_resent_in_order_together_with_its_wait_command) {
    session.follows_master = true;
    connect_at(AT(0));
    receive(MASTER, AT(0));
    submit_confirmed(&one, 1, 3000, AT(0));
    submit_confirmed(&two, 1, 3000, AT(0));
    submit(&three, "B", 3000, AT(0));
    output_of(&session);
    CHECK_REPLY(":5\r\n:1\r\n-READONLY no\r\n:0\r\n:6\r\n", AT(1), one, "5");
    CHECK_STR(two.outcome, "");
    CHECK_EQ_INT(two.request.possible_runs, 0);
    hang_up("closed by us", AT(1));
    hf_session_resolve(&session);
    connect_at(AT(200));
    output_of(&session);
    CHECK_REPLY_SENDS(MASTER, AT(200), "A\nWAIT 1 1000\nB");
    CHECK_REPLY(":7\r\n:1\r\n:8\r\n", AT(201), two, "7");
    CHECK_EQ_U64(two.request.confirmed, 1);
    CHECK_STR(three.outcome, "8");
}

/* A request that is sent again until `until_ms` while the server refuses it. */
static void submit_persisting(struct call *call, const char *text, int deadline_ms, int until_ms,
                              hf_time now) {
    prepare(call, NULL, text);
    call->request.deadline = AT(deadline_ms);
    call->request.resend_until = AT(until_ms);
    hf_session_submit(&session, &call->request, now);
}

TEST(requests_sent_after_one_that_a_replica_refused_are_retried_for_as_long_as_that_one) {
    EACH_NUMBER (follows, 2) {
        session.follows_master = follows;
        connect_at(AT(0));
        if (follows) receive(MASTER, AT(0));
        submit_persisting(&one, "A", 1000, 3000, AT(0));
        submit_persisting(&two, "B", 1000, 3000, AT(0));
        receive("-READONLY no\r\n", AT(900));
        hang_up("closed by us", AT(900));
        CHECK_TICK(AT(1000), two, "");
        if (follows) hf_session_resolve(&session);
        connect_at(AT(1500));
        if (follows) receive(MASTER, AT(1500));
        CHECK_REPLY(":1\r\n:2\r\n", AT(1501), two, "2");
    }
}

TEST(a_request_refused_by_a_replica_can_be_dropped_before_it_is_resent) {
    session.follows_master = true;
    connect_at(AT(0));
    receive(MASTER, AT(0));
    submit_confirmed(&one, 1, 3000, AT(0));
    receive("-READONLY no\r\n", AT(1));
    hf_session_drop(&one.request);
    hang_up("closed by us", AT(1)), CHECK(!hf_session_has_work(&session));
}

TEST(a_command_is_resent_with_wait_if_its_connection_is_lost_after_its_reply_alone) {
    start_open();
    submit_confirmed(&one, 1, 3000, AT(0));
    receive(":5\r\n", AT(1));
    hang_up("reset", AT(1));
    submit(&two, "B", 3000, AT(1));
    CHECK_OPENED_SENDS(AT(2), "A\nWAIT 1 1000\nB");
    CHECK_REPLY(":7\r\n:1\r\n:8\r\n", AT(3), one, "7");
    CHECK_STR(two.outcome, "8");
}

TEST(a_request_can_take_over_one_whose_reply_arrived_but_not_the_replicas_confirmation) {
    for (int replies = 0; replies <= 1; replies++) {
        static struct call before;
        start_open();
        submit(&before, "B", 3000, AT(0));
        submit_confirmed(&one, 1, 3000, AT(0));
        receive(":4\r\n", AT(0));
        submit(&two, "B", 3000, AT(0));
        if (replies == 1) receive(":5\r\n", AT(1));
        CHECK(inherit(&heir, &one));
        CHECK_REPLY(replies == 1 ? ":1\r\n" : ":5\r\n:1\r\n", AT(2), heir, "5");
        CHECK(hf_request_is_confirmed(&heir.request));
        CHECK_EQ_INT(one.calls, 0);
        CHECK_REPLY(":8\r\n", AT(2), two, "8");
    }
}

TEST(a_request_times_out_if_its_wait_command_gets_no_reply) {
    start_open();
    submit_confirmed(&one, 1, 100, AT(0));
    submit(&two, "B", 3000, AT(0));
    receive(":5\r\n", AT(1));
    CHECK_TICK(AT(100), one, "unreachable: no reply in time");
    receive(":1\r\n:8\r\n", AT(101)), CHECK_EQ_INT(one.calls, 1), CHECK_STR(two.outcome, "8");
}

TEST(a_request_that_was_never_sent_does_not_fail_with_a_replicas_reply_to_another_request) {
    start_open();
    submit(&one, "A", 400, AT(0));
    receive("-READONLY no\r\n", AT(1));
    hang_up("closed by us", AT(1));
    submit(&two, "B", 400, AT(1));
    hf_session_opening(&session, AT(2));
    hf_session_tick(&session, AT(400)), CHECK_STR(one.outcome, "denied: READONLY no");
    CHECK_STR(two.outcome, "unreachable: no reply in time");
}

CHECK_MAIN
