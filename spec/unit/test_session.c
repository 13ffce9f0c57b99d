#include "session_rig.h"

static void check_given_up(const char *bytes, const char *reason) {
    start_calling(60000, AT(0));
    receive(bytes, AT(1)), CHECK_WANTS(CLOSE, AT(1)), CHECK_STR(one.outcome, "");
    hang_up("closed by us", AT(1)), CHECK_STR(session.reason, reason);
    CHECK_STR(one.outcome, ""); /* its outcome is unknown: it is sent again */
    CHECK_WANTS(OPEN, HF_SECOND + AT(1));
    finish();
}

TEST(a_reply_that_belongs_to_no_command_ends_the_connection_and_an_error_is_its_reason) {
    session.stays_open = true;
    connect_at(AT(0));
    receive("+OK\r\n", AT(1)), CHECK_WANTS(CLOSE, AT(1));
    CHECK_STR(session.reason, "the server sent an unexpected reply");
    hang_up("closed by us", AT(1)), connect_at(AT(1000));
    receive("-ERR Protocol error\r\n", AT(1000)), CHECK_STR(session.reason, "ERR Protocol error");
}

TEST(bytes_that_are_not_a_redis_reply_end_the_connection) {
    static const char *const garbage[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "\x16\x03\x01",
                                          "$-5\r\n", ":1x\r\n"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
        check_given_up(garbage[i], "the reply is not in the Redis protocol");
}

static void check_too_large(const char *bytes, const char *outcome) {
    static char many[HF_REPLY_MAX_BYTES + 2];
    start_calling(60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    receive(bytes, AT(1));
    if (bytes[0] == '$') feed_bytes(&session, many, sizeof many, AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    CHECK_STR(one.outcome, outcome);
    hang_up("closed by us", AT(1)), CHECK_STR(two.outcome, "");
    CHECK_WANTS(OPEN, AT(1)); /* at once: the server serves */
    CHECK_OPENED_SENDS(AT(1), "B");
    CHECK_REPLY(":2\r\n", AT(1), two, "2");
    finish();
}

TEST(a_reply_over_the_size_limit_fails_only_its_own_request) {
    static const char *const many[] = {"*4097\r\n", "*2\r\n*4096\r\n",
                                       "*1\r\n*1\r\n*1\r\n*5000\r\n"};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        check_too_large(many[i], "unreachable: the reply is larger than the elements allowed");
    check_too_large("$4194305\r\n", "unreachable: the reply is larger than 4 MiB");
    /* A number of 32 bits. */
    check_too_large("$4000000000\r\n", "unreachable: the reply is larger than 4 MiB");
}

TEST(a_published_message_over_the_size_limit_ends_the_connection) {
    session.subscriber = session.stays_open = true;
    connect_at(AT(0));
    receive("*4097\r\n", AT(1)), CHECK_WANTS(CLOSE, AT(1));
    CHECK_STR(session.reason, "the reply is larger than the elements allowed");
}

TEST(requests_sent_over_a_lost_connection_are_resent_in_order) {
    start_calling(60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    output_of(&session);
    receive(":1\r\n", AT(1));
    submit(&three, "C", 60000, AT(2)), CHECK_SENDS("C");
    hang_up("reset", AT(3)), CHECK_STR(two.outcome, ""), CHECK_SENDS("");
    CHECK_OPENED_SENDS(AT(4), "B\nC");
    CHECK_EQ_U64(two.request.sent_at, AT(4));
    CHECK_REPLY(":2\r\n:3\r\n", AT(5), two, "2");
    CHECK_STR(three.outcome, "3");
    CHECK_EQ_INT(one.calls, 1);
}

TEST(requests_in_flight_are_resent_before_those_that_were_still_queued) {
    start_calling(60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    output_of(&session);
    session.closing = true; /* the driver has yet to close it */
    submit(&three, "C", 60000, AT(1)), CHECK_SENDS("");
    reopen("reset", AT(2), AT(3)), CHECK_SENDS("A\nB\nC");
    CHECK_REPLY(":1\r\n:2\r\n:3\r\n", AT(4), three, "3");
}

TEST(a_request_times_out_at_its_deadline_whether_queued_or_sent) {
    static struct call queued, sent;
    submit(&queued, "A", 500, AT(0));
    hf_session_opening(&session, AT(0)), CHECK_EQ_U64(hf_session_next_tick(&session), AT(500));
    CHECK_TICK(AT(499), queued, "");
    CHECK_TICK(AT(500), queued, "unreachable: no reply in time");
    hf_session_opened(&session, AT(600)), CHECK_SENDS("");
    submit(&sent, "B", 1000, AT(600)), CHECK_SENDS("B");
    CHECK_TICK(AT(1000), sent, "unreachable: no reply in time");
    receive(":1\r\n", AT(1001)), CHECK_EQ_INT(sent.calls, 1), CHECK_WANTS(NOTHING, AT(1001));
}

/* The first half awaits replies, the second is queued: `done` queues another behind it. */
TEST(a_request_submitted_while_others_time_out_keeps_its_own_deadline) {
    static struct call calls[10], later[10];
    start_open();
    for (int i = 0; i < 10; i++) {
        if (i == 5) hf_session_abort(&session, AT(1));
        prepare(&later[i], NULL, "B");
        later[i].request.deadline = AT(i % 2 ? 100 : 200);
        submit(&calls[i], "A", i == 7 ? 300 : 100, AT(0));
        calls[i].then = &later[i];
    }
    hf_session_tick(&session, AT(100));
    for (int i = 0; i < 10; i++) {
        CHECK_EQ_INT(calls[i].calls, i != 7);
        CHECK_EQ_INT(later[i].calls, i % 2 && i != 7);
    }
    hf_session_tick(&session, AT(200));
    for (int i = 0; i < 10; i++) CHECK_EQ_INT(later[i].calls, i != 7);
    CHECK_EQ_INT(calls[7].calls, 0);
    CHECK(session.queue == &calls[7].request && session.queue_end == &calls[7].request.next);
    calls[7].then = NULL;
}

TEST(a_request_submitted_after_its_deadline_ends_at_once) {
    static struct call sent, late;
    start_open();
    submit(&sent, "A", 100, AT(0));
    prepare(&late, NULL, "B");
    late.request.deadline = AT(50);
    sent.then = &late;
    hf_session_abort(&session, AT(1));
    hf_session_tick(&session, AT(100)), CHECK_EQ_INT(sent.calls, 1), CHECK_EQ_INT(late.calls, 1);
}

TEST(a_request_refused_with_a_temporary_error_is_retried_until_its_deadline) {
    hf_time now = AT(0);
    int tries = 1;
    connect_at(now);
    submit(&one, "A", 500, now);
    output_of(&session);
    while (one.calls == 0) {
        receive("-LOADING Redis is loading the dataset in memory\r\n", now);
        if (one.calls > 0) break;
        hf_time next = hf_session_next_tick(&session);
        hf_time pause = (20 * HF_MS) << (tries < 5 ? tries - 1 : 4);
        bool last = next == AT(500);
        CHECK(last || (next >= now + pause / 2 && next <= now + pause * 3 / 2));
        CHECK_SENDS("");
        CHECK_TICK_SENDS(next - 1, "");
        CHECK_TICK_SENDS(next, last ? "" : "A");
        now = next;
        tries++;
    }
    CHECK(now == AT(500));
    CHECK(tries > 4 && tries < 10);
    CHECK_STR(one.outcome, "unreachable: LOADING Redis is loading the dataset in memory");
}

TEST(a_request_fails_at_once_if_the_connection_is_refused_after_a_temporary_error) {
    start_calling(3000, AT(0));
    receive("-LOADING\r\n", AT(0));
    hang_up("reset", AT(1));
    refuse(AT(1));
    CHECK_STR(one.outcome, "unreachable: refused"); /* nothing of it was carried out */
}

TEST(a_permanent_error_fails_the_request_without_a_retry) {
    start_calling(3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    submit(&three, "C", 3000, AT(0));
    CHECK_REPLY("-ERR no\r\n-NOPERM no\r\n-NOSCRIPT\r\n", AT(0), one, "server: ERR no");
    CHECK_STR(two.outcome, "denied: NOPERM no");
    CHECK_STR(three.outcome, "server: NOSCRIPT"); /* it calls no script */
    CHECK_WANTS(NOTHING, AT(0));
    hf_session_submit(&session, &one.request, AT(2)), CHECK_EQ_INT(one.request.failure.code, HF_OK);
}

TEST(a_script_that_the_server_does_not_know_is_sent_with_its_text) {
    static char want[SENT_SIZE];
    const hf_program *program = hf_kind_program(&hf_kind_lock, HF_VERB_INFO);
    start_open();
    submit_program(&one, "key", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_SENDS("EVALSHA info 1 key\nB");
    CHECK_REPLY("-NOSCRIPT No matching script. Please use EVAL.\r\n", AT(1), one, "");
    int size =
        snprintf(want, sizeof want, "*4\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$3\r\nkey\r\n",
                 program->length, text_of(program));
    hf_slice output = hf_session_output(&session);
    CHECK_MEM(output.data, output.size, want, size);
    output_of(&session), CHECK_EQ_U64(one.request.sent_at, AT(1));
    CHECK_REPLY(":2\r\n:1\r\n", AT(2), one, "1");
    CHECK_STR(two.outcome, "2");
    hf_session_submit(&session, &one.request, AT(3)); /* now it is known */
    CHECK_SENDS("EVALSHA info 1 key");
}

TEST(a_script_is_not_sent_a_third_time_if_the_server_still_does_not_know_it) {
    start_open();
    submit_program(&one, "key", 3000, AT(0));
    receive("-NOSCRIPT No matching script.\r\n", AT(1));
    CHECK_REPLY("-NOSCRIPT No matching script.\r\n", AT(1), one,
                "server: NOSCRIPT No matching script.");
}

/* Only what may have been carried out without our knowing it counts. */
TEST(a_request_counts_how_many_of_its_copies_the_server_may_have_run) {
    start_open();
    submit_program(&one, "key", 60000, AT(0)), CHECK_EQ_INT(one.request.possible_runs, 1);
    receive("-NOSCRIPT\r\n", AT(1)), CHECK_EQ_INT(one.request.possible_runs, 1);
    receive("-LOADING\r\n", AT(1)), CHECK_EQ_INT(one.request.possible_runs, 0);
    hf_session_tick(&session, AT(40)), CHECK_EQ_INT(one.request.possible_runs, 1);
    reopen("reset", AT(41), AT(60)), CHECK_EQ_INT(one.request.possible_runs, 2);
    receive(":1\r\n", AT(60)), CHECK_EQ_INT(one.request.possible_runs, 2);
}

TEST(a_request_that_takes_over_a_dropped_ones_reply_receives_it_in_order) {
    start_calling(3000, AT(0));
    submit(&two, "B", 3000, AT(0)), CHECK(inherit(&heir, &one));
    CHECK(hf_session_has_work(&session));
    CHECK_EQ_INT(one.request.state, HF_REQUEST_IDLE);
    CHECK_REPLY(":1\r\n:2\r\n", AT(1), heir, "1");
    CHECK_STR(two.outcome, "2");
    CHECK_EQ_INT(one.calls, 0);
    CHECK(!inherit(&one, &heir));
}

TEST(the_reply_to_a_request_that_awaits_none_cannot_be_taken_over) {
    submit(&one, "A", 3000, AT(0));
    CHECK(!inherit(&heir, &one)); /* not sent */
    CHECK(!session.queue);
    discard(&one);
    connect_at(AT(1));
    submit(&one, "A", 3000, AT(1));
    hang_up("reset", AT(2));
    CHECK(!inherit(&heir, &one)); /* taken back */
    discard(&one);
    submit(&one, "A", 3000, AT(3));
    connect_at(AT(3));
    hf_session_drop(&one.request);
    reopen("reset", AT(4), AT(5));
    CHECK(!inherit(&heir, &one)); /* of another connection */
}

/* ---- subscribers ---- */

TEST(closing_a_subscription_connection_that_is_no_longer_needed_is_not_a_failure) {
    EACH_NUMBER (logs_in, 2) {
        session.subscriber = true;
        if (logs_in) strcpy(config.name, "n");
        for (int i = 0; i < 5; i++) {
            session.stays_open = true;
            CHECK_WANTS(OPEN, AT(i));
            connect_at(AT(i));
            CHECK_EQ_INT(session.state, logs_in ? HF_SESSION_LOGIN : HF_SESSION_READY);
            session.stays_open = false;
            hang_up("closed", AT(i));
        }
        CHECK_EQ_INT(session.opens_since_reply, 0);
        CHECK_STR(session.reason, "");
    }
}

TEST(closing_a_client_fails_all_of_its_requests) {
    static struct call queued, sent;
    start_open();
    submit(&sent, "A", 3000, AT(0));
    receive("*1\r\n", AT(0));
    hf_session_fail_all(&session, HF_CLOSED, "the client was closed", AT(1));
    finish(), CHECK_STR(sent.outcome, "closed: the client was closed");
    start();
    submit(&queued, "B", 3000, AT(0));
    hf_session_fail_all(&session, HF_CLOSED, "the client was closed", AT(1));
    finish(), CHECK_STR(queued.outcome, "closed: the client was closed");
    hf_request_clear(&sent.request);
    hf_request_clear(&queued.request);
}

/* ---- memory ---- */

static bool whole_conversation(void *context) {
    struct call calls[20];
    bool good = true;
    (void)context;
    start();
    strcpy(config.server.password, "secret");
    strcpy(config.name, "n");
    for (int i = 0; i < 20; i++) {
        hf_slice arg = {"key", 3};
        memset(&calls[i], 0, sizeof calls[i]);
        calls[i].request =
            (hf_request){.done = on_done, .context = &calls[i], .deadline = AT(3000)};
        good = hf_request_call(&calls[i].request, hf_kind_program(&hf_kind_lock, HF_VERB_INFO), 1,
                               1, &arg) &&
               good;
        if (calls[i].request.bytes) hf_session_submit(&session, &calls[i].request, AT(0));
    }
    connect_at(AT(0));
    output_of(&session);
    if (!session.closing) hf_session_feed(&session, "+OK\r\n+OK\r\n-NOSCRIPT\r\n", 21, AT(1));
    output_of(&session);
    for (int i = 0; i < 20; i++) {
        if (!session.closing && session.first_reply < session.next_reply) {
            hf_session_feed(&session, "*1\r\n:1\r\n", 8, AT(2));
        }
    }
    if (session.closing) hang_up("closed by us", AT(3));
    hf_session_tick(&session, AT(3000));
    for (int i = 0; i < 20; i++) {
        bool answered = calls[i].calls == 1 || !calls[i].request.bytes;
        if (!answered) abort();
        good = good && strcmp(calls[i].outcome, "done") == 0;
        hf_request_clear(&calls[i].request);
    }
    finish();
    return good;
}

TEST(a_failed_allocation_fails_only_the_calls_that_needed_it) {
    CHECK(memerr_until_success(whole_conversation, NULL, 1000) > 60);
}

TEST(no_partial_command_is_sent_if_there_is_no_memory_for_a_scripts_text) {
    const hf_program *program = hf_kind_program(&hf_kind_lock, HF_VERB_ACQUIRE);
    EACH_FAILURE(nth, 1) {
        static struct call written;
        start_open();
        submit(&written, "W", 3000, AT(0));
        size_t size = hf_session_output(&session).size;
        submit(&one, "A", 3000, AT(0));
        hf_session_written(&session, size);
        prepare(&two, program, "k");
        two.request.deadline = AT(3000);
        two.request.as_eval = true;
        memerr_fail(nth);
        hf_session_submit(&session, &two.request, AT(0));
        bool failed = memerr_end();
        CHECK_SENDS(failed ? "A" : "A\nEVAL acquire 1 k");
        finish();
    }
}

TEST(a_deferred_request_reports_a_failed_allocation_and_can_be_submitted_again) {
    start_open();
    prepare(&one, NULL, "A");
    memerr_fail(1), CHECK(!hf_session_piggyback(&session, &one.request)), CHECK(memerr_failed());
    memerr_fail(0), CHECK(hf_session_piggyback(&session, &one.request));
    hf_session_flush_piggybacked(&session, AT(1)), CHECK_SENDS("A");
}

TEST(a_request_that_outlasts_refusals_is_retried_until_its_own_later_deadline) {
    start_calling(100, AT(0));
    one.request.resend_until = AT(9000);
    receive("-LOADING Redis is loading\r\n", AT(1)), CHECK_EQ_U64(one.request.deadline, AT(9000));
    CHECK(one.request.waits_for_connection);
    CHECK_EQ_INT((int)one.request.refusals, 1);
    hf_session_tick(&session, one.request.retry_at);
    receive("-ERR no\r\n", one.request.retry_at);
    CHECK_EQ_INT((int)one.request.refusals, 0); /* it has failed for another reason */
    submit(&two, "B", 300, AT(298));
    receive("-LOADING Redis is loading\r\n", AT(299)), CHECK(!two.request.waits_for_connection);
    CHECK(two.request.retry_at <= AT(300));
}

TEST(a_deferred_request_without_a_reply_times_out_measured_from_its_sending) {
    start_open();
    prepare(&one, NULL, "A"), CHECK(hf_session_piggyback(&session, &one.request));
    hf_time later = hf_time_add(AT(1), config.command_timeout);
    hf_session_flush_piggybacked(&session, later);
    CHECK_TICK_WANTS(NOTHING, later);
    hf_time soon = hf_time_add(later, 250 * HF_MS); /* the connection was quiet before */
    CHECK_EQ_U64(hf_session_next_tick(&session), soon);
}

TEST(a_deferred_request_is_not_sent_over_the_next_connection) {
    static struct call along, next;
    start_open();
    prepare(&along, NULL, "A"), CHECK(hf_session_piggyback(&session, &along.request));
    hang_up("reset", AT(1));
    submit(&next, "B", 3000, AT(1));
    CHECK_OPENED_SENDS(AT(1000), "B");
    receive("+B\r\n", AT(1001)); /* the first reply of this connection */
    CHECK_STR(next.outcome, "B");
    prepare(&three, NULL, "C"), CHECK(hf_session_piggyback(&session, &three.request));
    hf_session_flush_piggybacked(&session, AT(1001)), CHECK_SENDS("C");
    receive(":2\r\n", AT(1002)), CHECK(!session.closing);
}

TEST(a_reply_as_long_as_the_limit_is_accepted) {
    session.max_elements = 2 * HF_REPLY_MAX_ELEMENTS;
    submit(&one, "A", 3000, AT(0));
    connect_at(AT(0));
    receive(printed("*%d\r\n", HF_REPLY_MAX_ELEMENTS + 10), AT(1)), CHECK_WANTS(NOTHING, AT(1));
}

TEST(a_deferred_request_is_refused_unless_the_connection_is_open) {
    prepare(&one, NULL, "A"), CHECK(!hf_session_piggyback(&session, &one.request));
    connect_at(AT(0)), CHECK(hf_session_piggyback(&session, &one.request));
    hf_session_abort(&session, AT(1)), CHECK(!hf_session_piggyback(&session, &one.request));
    CHECK_EQ_INT(session.piggyback_count, 1);
}

CHECK_MAIN
