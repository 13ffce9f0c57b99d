#include "session_rig.h"

TEST(a_refused_connection_fails_all_requests_that_do_not_wait) {
    submit(&one, "A", 3000, AT(0));
    submit_patient(&two, "B", 3000, AT(0));
    submit(&three, "C", 3000, AT(0));
    hf_session_opening(&session, AT(0));
    hang_up("x", AT(1)), CHECK_STR(one.outcome, "unreachable: x"); /* even one letter */
    CHECK_STR(three.outcome, "unreachable: x");
    CHECK_STR(two.outcome, "");
    CHECK(hf_session_has_work(&session));
    CHECK_TICK(AT(3000), two, "unreachable: x");
    CHECK_EQ_INT(one.calls + two.calls + three.calls, 3);
}

static const char CLOSED_EARLY[] =
    "unreachable: the server closed the connection during login; if it expects TLS, use rediss://; "
    "if it is a proxy, it may reject CLIENT or SELECT";
static const char CLOSED_AT_LOGIN[] = "unreachable: the server closed the connection during login; "
                                      "if it is a proxy, it may reject CLIENT or SELECT";

/* The outcome of a call to a server that closes the connection after it has sent `word`. */
static const char *outcome_of_hang_up(const char *word) {
    strcpy(config.name, "n");
    finish();
    hf_session_init(&session, &config, &random_state);
    is_begun = true;
    submit(&one, "A", 3000, AT(0));
    connect_at(AT(0));
    if (*word) receive(word, AT(1));
    hang_up(NULL, AT(1));
    finish();
    return one.outcome;
}

TEST(a_connection_closed_at_login_is_reported_as_a_possible_tls_or_proxy_problem) {
    CHECK_STR(outcome_of_hang_up(""), CLOSED_EARLY);
    CHECK_STR(outcome_of_hang_up("+"), CLOSED_AT_LOGIN);
    CHECK_STR(outcome_of_hang_up("\x15\x03\x03"),
              "unreachable: the server speaks TLS; use rediss://");
    CHECK_STR(outcome_of_hang_up("\x15\x03"), "unreachable: the server speaks TLS; use rediss://");
    CHECK_STR(outcome_of_hang_up("\x15\x04"),
              "unreachable: the reply is not in the Redis protocol");
    config.server.tls = true;
    CHECK_STR(outcome_of_hang_up(""), CLOSED_AT_LOGIN);
    config.server.tls = false;
    config.server.port = 0;
    CHECK_STR(outcome_of_hang_up(""), CLOSED_AT_LOGIN);
}

TEST(the_connect_timeout_includes_the_tls_handshake) {
    submit(&one, "A", 3000, AT(0));
    hf_session_opening(&session, AT(0));
    hf_session_handshaking(&session), CHECK_EQ_U64(hf_session_next_tick(&session), AT(1000));
    CHECK_TICK_WANTS(CLOSE, AT(1000));
    hang_up("closed by us", AT(1000));
    CHECK_STR(one.outcome, "unreachable: the TLS handshake timed out; does the server speak TLS?");
    submit(&two, "B", 9000, AT(2000));
    hf_session_opening(&session, AT(2000));
    hf_session_tick(&session, AT(3000));
    hang_up("closed by us", AT(3000));
    CHECK_STR(two.outcome, "unreachable: the connection attempt timed out");
}

TEST(the_pause_between_connections_doubles_with_jitter_up_to_a_second) {
    hf_time now = AT(0), most = 10 * HF_MS;
    session.stays_open = true;
    hf_time least_of_all = HF_NEVER, most_of_all = 0;
    for (int i = 0; i < 200; i++) {
        CHECK_WANTS(OPEN, now);
        refuse(now);
        hf_time delay = hf_session_next_tick(&session) - now;
        CHECK_OR(delay >= most / 2 && delay <= most, "try %d after %llu", i,
                 (unsigned long long)delay);
        if (most == HF_SECOND) {
            least_of_all = hf_time_min(least_of_all, delay);
            most_of_all = hf_time_max(most_of_all, delay);
        }
        CHECK_WANTS(NOTHING, now + delay - 1);
        now += delay;
        most = hf_time_min(most * 2, HF_SECOND);
    }
    CHECK(least_of_all < 550 * HF_MS);
    CHECK(most_of_all > 950 * HF_MS);
}

TEST(a_server_that_ends_each_connection_with_an_error_is_retried_with_pauses) {
    static const struct {
        const char *password, *name, *reply, *reason;
    } peers[] = {
        {"secret", "", "-WRONGPASS no\r\n", "closed by us"},
        {"", "", "-ERR max number of clients reached\r\n", "closed by the server"},
        {"", "worker", "+OK\r\n", NULL}, /* a proxy that knows no more than the log-in */
    };
    EACH_CASE (i, peers) {
        strcpy(config.server.password, peers[i].password);
        strcpy(config.name, peers[i].name);
        session.stays_open = true;
        hf_time now = AT(0);
        int opens = 0;
        for (; now < AT(10000); opens++) {
            connect_at(now);
            receive(peers[i].reply, now);
            hang_up(peers[i].reason, now), CHECK(hf_session_next_tick(&session) > now);
            now = hf_session_next_tick(&session);
        }
        CHECK_OR(opens < 40, "%d connections in ten seconds", opens);
    }
}

/* A path that swallows everything must be noticed even when each call's deadline is shorter than
 * the session's timeout. */
TEST(a_server_without_replies_is_detected_even_if_each_request_ends_at_an_earlier_deadline) {
    static struct call calls[40];
    start_open();
    submit(&calls[0], "A", 60000, AT(0));
    receive(":1\r\n", AT(0));
    discard(&calls[0]);
    int i = 0;
    for (; i < 40 && hf_session_wants(&session, AT(200 * i)) != HF_WANT_CLOSE; i++) {
        submit(&calls[i], "A", 200 * i + 100, AT(200 * i));
        hf_session_tick(&session, AT(200 * i + 100));
        CHECK_STR(calls[i].outcome, "unreachable: no reply in time");
        discard(&calls[i]);
        hf_session_tick(&session, AT(200 * (i + 1)));
    }
    CHECK_OR(i == 8, "given up after %d calls without a reply", i);
}

/* ---- connections that die without a word ---- */

static hf_time silent_since; /* what the session reported; HF_NEVER: nothing */

static void on_silence(void *context, hf_time since, hf_time now) {
    (void)context;
    (void)now;
    silent_since = since;
}

/* The connection has served, and was silent after that until AT(quiet_ms). */
static void start_quiet(void) {
    struct call first;
    start_open();
    silent_since = HF_NEVER;
    session.on_silence = on_silence;
    submit(&first, "first", 3000, AT(0));
    receive(":0\r\n", AT(0));
    discard(&first);
    output_of(&session);
    memset(begun, 0, sizeof begun);
}

/* An idle connection is given up after 250 ms, one that was used a moment ago after half of the
 * command timeout; both wait as much longer as the server may wait for replicas. */
TEST(a_silent_connection_is_given_up_earlier_if_it_was_idle_and_later_if_replicas_must_confirm) {
    static const struct {
        int sent_at, confirm_timeout, given_up_at;
    } cases[] = {{999, 0, 999 + 1500},
                 {20000, 0, 20000 + 250},
                 {20000, 400, 20000 + 250 + 400},
                 {20000, 2900, 23000}}; /* the command timeout is the most */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start_quiet();
        config.confirm_timeout = (hf_time)cases[i].confirm_timeout * HF_MS;
        submit(&one, "A", cases[i].sent_at + 3000, AT(cases[i].sent_at));
        CHECK_EQ_U64(hf_session_next_tick(&session), AT(cases[i].given_up_at));
    }
}

TEST(a_connection_with_a_long_round_trip_time_is_given_up_later) {
    strcpy(config.name, "n");
    session.stays_open = true;
    connect_at(AT(0));
    receive("+OK\r\n", AT(200));
    submit(&one, "A", 23000, AT(20000));
    CHECK_EQ_U64(hf_session_next_tick(&session), AT(20000 + 800));
}

TEST(a_command_that_must_not_be_resent_is_sent_over_an_idle_connection_only_after_a_ping) {
    EACH_NUMBER (dead, 2) {
        start_quiet();
        prepare(&one, NULL, "A");
        one.request.no_retry = true;
        one.request.deadline = AT(23000);
        hf_session_submit(&session, &one.request, AT(20000)), CHECK_SENDS("PING");
        CHECK(hf_session_has_work(&session));
        CHECK_TICK_SENDS(AT(20001), "");
        if (dead) {
            CHECK_TICK_WANTS(CLOSE, AT(20250));
            reopen("closed by us", AT(20250), AT(20251)), CHECK_SENDS("A");
        } else {
            CHECK_REPLY_SENDS("+PONG\r\n", AT(20002), "A");
            CHECK_TICK_WANTS(NOTHING, AT(22999)); /* the command would fail with its connection */
        }
        CHECK_REPLY(":7\r\n", AT(22999), one, "7");
    }
}

TEST(an_idle_connection_is_pinged_when_another_one_to_its_server_gets_no_replies) {
    EACH_NUMBER (replies, 2) {
        start_quiet();
        hf_session_doubt(&session, AT(400), AT(500)), CHECK_SENDS("PING");
        if (replies) receive("+PONG\r\n", AT(501));
        CHECK_EQ_INT(hf_session_has_work(&session), !replies);
        CHECK_EQ_U64(hf_session_next_tick(&session), replies ? HF_NEVER : AT(750));
        submit(&one, "A", 3600, AT(600));
        CHECK_EQ_U64(hf_session_next_tick(&session), replies ? AT(600 + 1500) : AT(750));
        if (!replies) CHECK_TICK_WANTS(CLOSE, AT(750));
    }
}

TEST(a_connection_is_closed_if_there_is_no_memory_for_its_replies) {
    session.stays_open = true;
    hf_session_opening(&session, AT(0));
    memerr_fail(1);
    hf_session_opened(&session, AT(0));
    memerr_fail(0), CHECK_WANTS(CLOSE, AT(0));
    receive("-ERR max number of clients reached\r\n", AT(1));
    hang_up("closed by us", AT(1)), CHECK_STR(session.reason, "out of memory");
}

TEST(the_reason_of_a_lost_connection_is_kept_until_the_server_replies_again) {
    submit(&one, "A", 30000, AT(0));
    connect_at(AT(0));
    receive(":1\r\n", AT(1));
    hang_up("reset", AT(2)), CHECK_STR(session.reason, "reset");
    submit(&two, "B", 30000, AT(3));
    connect_at(AT(3)); /* the first attempt after a good connection */
    CHECK_STR(session.reason, "");
    hang_up("reset", AT(4));
    hf_session_opening(&session, AT(5000));
    reopen("refused", AT(5000), AT(10000)), CHECK_STR(session.reason, "refused");
    receive(":1\r\n", AT(10001)), CHECK_STR(session.reason, "");
}

TEST(the_reason_for_a_closed_connection_depends_only_on_bytes_received_over_that_connection) {
    strcpy(config.name, "n");
    submit(&one, "A", 30000, AT(0));
    connect_at(AT(0));
    receive("+", AT(1));
    hang_up(NULL, AT(1)), CHECK_STR(session.reason, CLOSED_AT_LOGIN + strlen("unreachable: "));
    connect_at(AT(2000));
    hang_up(NULL, AT(2001)), CHECK_STR(session.reason, CLOSED_EARLY + strlen("unreachable: "));
}

TEST(a_session_that_moves_to_a_new_address_connects_there_without_a_pause) {
    session.stays_open = true;
    for (int i = 0; i < 8; i++) refuse(AT(7142 * i));
    CHECK_WANTS(NOTHING, AT(50000));
    hf_session_move(&session, AT(50000)), CHECK_EQ_INT(session.opens_since_reply, 0);
    CHECK_WANTS(OPEN, AT(50000));
    refuse(AT(50000)), CHECK(hf_session_next_tick(&session) < AT(50100));
}

TEST(only_a_request_that_does_not_wait_shortens_the_pause_between_connections) {
    static struct call patient, hasty;
    session.stays_open = true;
    refuse(AT(0));
    session.retry_at = AT(500);
    hf_session_retry_now(&session, AT(1));
    CHECK_EQ_U64(session.retry_at, AT(500)); /* nothing waits */
    submit_patient(&patient, "A", 5000, AT(1)), CHECK_EQ_U64(session.retry_at, AT(500));
    submit(&hasty, "B", 5000, AT(2)), CHECK_EQ_U64(session.retry_at, AT(2));
    session.retry_at = AT(500);
    hf_session_retry_now(&session, AT(3)), CHECK_EQ_U64(session.retry_at, AT(3));
}

TEST(two_connections_closed_at_their_first_command_are_reported_as_a_possible_proxy_problem) {
    EACH_NUMBER (subscriber, 2) {
        session.subscriber = subscriber;
        session.stays_open = true;
        for (int i = 0; i < 2; i++) {
            connect_at(AT(5000 * i));
            receive("+", AT(5000 * i));
            hang_up(NULL, AT(5000 * i));
            if (i == 0) CHECK_STR(session.reason, "the server closed the connection"); /* as any */
        }
        CHECK_STR(session.reason,
                  subscriber
                      ? "the connection was closed on SUBSCRIBE; is a proxy rejecting that command?"
                      : "the connection was closed on the first command; is a proxy "
                        "rejecting EVALSHA?");
    }
}

static bool takes_all(void *context, hf_request *request, const char *error, hf_time now) {
    (void)error;
    (void)now;
    *(int *)context += 1;
    request->state = HF_REQUEST_IDLE;
    return true;
}

TEST(a_request_that_must_not_be_resent_moves_to_another_server_only_if_it_was_never_sent) {
    EACH_NUMBER (sends, 2) {
        int taken = 0;
        session.on_refusal = takes_all;
        session.context = &taken;
        submit(&one, "A", 3000, AT(0));
        one.request.no_retry = true;
        one.request.possible_runs = (uint32_t)sends;
        refuse(AT(0)), CHECK_EQ_INT(taken, !sends);
        CHECK_STR(one.outcome, sends ? "unreachable: refused" : "");
    }
}

CHECK_MAIN
