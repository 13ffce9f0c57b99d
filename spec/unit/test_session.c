#include "link/session.h"

#include "drive.h"

static hf_session_config config;
static hf_session session;
static uint64_t random_state;

/* What became of a request: "", then "done" or the failure's code and text. */
struct call {
    hf_request request;
    char outcome[256];
    int calls;
    struct call *then; /* submitted by `done` */
};

static void on_done(hf_request *request, const hf_reply *reply, hf_time now) {
    struct call *call = request->context;
    call->calls++;
    if (!reply) {
        snprintf(call->outcome, sizeof call->outcome, "%s: %.200s",
                 hf_code_name(request->failure.code), hf_fault_text(&request->failure));
    } else if (reply->type == HF_REPLY_INTEGER) {
        snprintf(call->outcome, sizeof call->outcome, "%lld", reply->integer);
    } else {
        snprintf(call->outcome, sizeof call->outcome, "%.200s",
                 reply->string ? reply->string : "done");
    }
    if (call->then) hf_session_submit(&session, &call->then->request, now);
}

#define MAX_CALLS 64

static struct call *begun[MAX_CALLS]; /* by the test; NULL behind the last one */

static void start(void) {
    memset(begun, 0, sizeof begun);
    random_state = 1;
    config = DRIVE_CONFIG;
    hf_session_init(&session, &config, &random_state);
}

static void start_open(void) {
    start();
    open_session(&session, AT(0));
}

static void note(struct call *call) {
    size_t i = 0;
    while (begun[i] && begun[i] != call) i++;
    if (i == MAX_CALLS - 1) abort();
    begun[i] = call;
}

static void prepare(struct call *call, const hf_program *program, const char *text) {
    hf_slice arg = hf_slice_of(text);
    note(call);
    memset(call, 0, sizeof *call);
    bool encoded = program ? hf_request_call(&call->request, program, 1, 1, &arg)
                           : hf_request_command(&call->request, 1, &arg);
    if (!encoded) abort();
    call->request.done = on_done;
    call->request.context = call;
}

static void submit(struct call *call, const char *text, int deadline_ms, hf_time now) {
    prepare(call, NULL, text);
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

static void submit_program(struct call *call, const char *text, int deadline_ms, hf_time now) {
    prepare(call, hf_kind_program(&hf_kind_lock, HF_VERB_INFO), text);
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

static void discard(struct call *call) {
    hf_session_drop(&call->request);
    hf_request_clear(&call->request);
}

/* Ends what start has begun, and all calls. */
static void finish(void) {
    for (size_t i = 0; begun[i]; i++) discard(begun[i]);
    memset(begun, 0, sizeof begun);
    hf_session_free(&session);
}

#define CHECK_WANTS(want, now) CHECK_EQ_INT(hf_session_wants(&session, now), HF_WANT_##want)

/* ---- opening and the log-in ---- */

TEST(no_connection_is_opened_without_a_call) {
    start();
    CHECK_WANTS(NOTHING, AT(0));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    CHECK(!hf_session_has_work(&session));
    session.wanted = true;
    CHECK_WANTS(OPEN, AT(0));
    finish();
}

TEST(a_connection_that_needs_no_login_is_ready_for_commands_at_once) {
    struct call one;
    start();
    submit(&one, "A", 3000, AT(0));
    CHECK(hf_session_has_work(&session));
    CHECK_WANTS(OPEN, AT(0));
    hf_session_opening(&session, AT(0));
    CHECK_WANTS(NOTHING, AT(0));
    CHECK_STR(output_of(&session), "");
    hf_session_opened(&session, AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK_STR(output_of(&session), "A");
    feed(&session, "+OK\r\n", AT(2));
    CHECK_STR(one.outcome, "OK");
    CHECK(!hf_session_has_work(&session));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    finish();
}

TEST(a_login_sends_user_password_db_and_name) {
    struct call one;
    start();
    strcpy(config.server.user, "me");
    strcpy(config.server.password, "se\r\ncret");
    strcpy(config.name, "worker");
    config.server.db = 3;
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    hf_slice output = hf_session_output(&session);
    static const char want[] =
        "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$8\r\nse\r\ncret\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
        "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$6\r\nworker\r\n";
    CHECK_MEM(output.data, output.size, want, sizeof want - 1);
    hf_session_written(&session, output.size);
    feed(&session, "+OK\r\n+OK\r\n", AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_LOGIN);
    CHECK_STR(output_of(&session), "");
    feed(&session, "+OK\r\n", AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK_STR(output_of(&session), "A");
    feed(&session, ":1\r\n", AT(2));
    CHECK_STR(one.outcome, "1");
    finish();
}

TEST(a_login_with_a_user_and_an_empty_password_still_sends_auth) {
    start();
    strcpy(config.server.user, "guest");
    session.wanted = true;
    open_session(&session, AT(0));
    hf_slice output = hf_session_output(&session);
    static const char want[] = "*3\r\n$4\r\nAUTH\r\n$5\r\nguest\r\n$0\r\n\r\n";
    CHECK_MEM(output.data, output.size, want, sizeof want - 1);
    finish();
}

TEST(a_login_with_a_password_but_no_user_sends_only_the_password) {
    start();
    strcpy(config.server.password, "secret");
    session.wanted = true;
    open_session(&session, AT(0));
    CHECK_STR(output_of(&session), "AUTH secret");
    finish();
}

/* Logs in with a password and db 1, and the name "n"; answers with `replies`; what the waiting call
 * came to. */
static const char *login_outcome(const char *replies) {
    static struct call one;
    start();
    strcpy(config.server.password, "secret");
    strcpy(config.name, "n");
    config.server.db = 1;
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    output_of(&session);
    feed(&session, replies, AT(1));
    if (hf_session_wants(&session, AT(1)) == HF_WANT_CLOSE)
        hf_session_closed(&session, "closed by us", AT(1));
    if (session.state == HF_SESSION_READY) strcpy(one.outcome, "ready");
    finish();
    return one.outcome;
}

TEST(a_refused_login_fails_the_calls_with_the_code_of_the_servers_error) {
    CHECK_STR(login_outcome("-WRONGPASS invalid username-password pair\r\n"),
              "denied: WRONGPASS invalid username-password pair");
    CHECK_STR(login_outcome("-ERR something new about passwords\r\n"),
              "denied: ERR something new about passwords");
    CHECK_STR(login_outcome("-ERR max number of clients reached\r\n"),
              "unreachable: ERR max number of clients reached");
    CHECK_STR(login_outcome("+OK\r\n-ERR DB index is out of range\r\n"),
              "server: ERR DB index is out of range");
    CHECK_STR(login_outcome("+OK\r\n-NOAUTH Authentication required.\r\n"),
              "denied: NOAUTH Authentication required.");
    CHECK_STR(login_outcome("+OK\r\n+OK\r\n-NOAUTH Authentication required.\r\n"),
              "denied: NOAUTH Authentication required.");
    CHECK_STR(login_outcome("+OK\r\n+OK\r\n-LOADING Redis is loading\r\n"),
              "unreachable: LOADING Redis is loading");
}

/* ---- a log-in that the driver fetches ---- */

static void start_asking(void) {
    start();
    hf_session_free(&session);
    config.asks_login = true;
    hf_session_init(&session, &config, &random_state);
}

/* The driver has fetched this password. */
static void log_in(const char *password) {
    hf_session_fetching_login(&session);
    strcpy(config.server.password, password);
    hf_session_log_in_again(&session);
}

TEST(a_session_with_a_login_function_requests_a_new_login_before_each_connection) {
    struct call one, two;
    start_asking();
    submit(&one, "A", 3000, AT(0));
    CHECK_WANTS(LOGIN, AT(0));
    CHECK(!hf_session_may_open(&session));
    CHECK(hf_session_deadline(&session) <= AT(0));
    hf_session_fetching_login(&session);
    CHECK_WANTS(NOTHING, AT(1));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(3000)); /* the driver comes by itself */
    strcpy(config.server.password, "first");
    hf_session_log_in_again(&session);
    CHECK_WANTS(OPEN, AT(1));
    open_session(&session, AT(1));
    CHECK_STR(output_of(&session), "AUTH first");
    feed(&session, "+OK\r\n+OK\r\n", AT(1));
    CHECK_STR(one.outcome, "OK");
    hf_session_closed(&session, NULL, AT(2));
    submit(&two, "B", 3000, AT(2));
    CHECK_WANTS(LOGIN, AT(2));
    CHECK(!hf_session_is_refused(&session));
    log_in("second");
    open_session(&session, AT(2));
    CHECK_STR(output_of(&session), "AUTH second");
    finish();
}

TEST(a_fetched_login_that_the_server_refuses_once_is_fetched_again_at_once) {
    static const char *const REFUSALS[] = {"-WRONGPASS no\r\n", "-ERR invalid password\r\n",
                                           "-ERR something new\r\n", "-NOAUTH no\r\n"};
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++) {
        struct call one;
        start_asking();
        submit(&one, "A", 3000, AT(0));
        log_in("old");
        open_session(&session, AT(0));
        feed(&session, REFUSALS[i], AT(1));
        hf_session_closed(&session, "closed by us", AT(1));
        CHECK_STR(one.outcome, "");
        CHECK_WANTS(LOGIN, AT(1));
        CHECK(hf_session_is_refused(&session));
        log_in("new");
        open_session(&session, AT(1));
        feed(&session, "+OK\r\n:1\r\n", AT(2));
        CHECK_STR(one.outcome, "1");
        CHECK(!hf_session_is_refused(&session));
        finish();
    }
}

TEST(a_fetched_login_that_the_server_refuses_twice_fails_the_calls) {
    struct call one, two;
    start_asking();
    submit(&one, "A", 3000, AT(0));
    for (int i = 0; i < 2; i++) {
        CHECK_STR(one.outcome, "");
        CHECK_WANTS(LOGIN, AT(i));
        log_in("wrong");
        open_session(&session, AT(i));
        feed(&session, "-WRONGPASS no\r\n", AT(i));
        hf_session_closed(&session, "closed by us", AT(i));
    }
    CHECK_STR(one.outcome, "denied: WRONGPASS no");
    submit(&two, "B", 3000, AT(2));
    CHECK_WANTS(LOGIN, AT(2));
    finish();
}

TEST(a_connection_whose_login_was_refused_is_not_opened_again_before_a_new_login_is_fetched) {
    start_asking();
    strcpy(config.server.password, "old");
    session.wanted = true;
    CHECK(!hf_session_needs_other_login(&session));
    for (int i = 0; i < 2; i++) {
        hf_session_log_in_again(&session);
        open_session(&session, AT(i));
        feed(&session, "-NOAUTH no\r\n", AT(i));
        output_of(&session);
        hf_session_closed(&session, "closed by us", AT(i));
    }
    CHECK_WANTS(NOTHING, AT(1));
    CHECK(hf_session_needs_other_login(&session));
    log_in("new");
    CHECK(!hf_session_needs_other_login(&session));
    CHECK_WANTS(NOTHING, AT(1)); /* the pause after a refusal stays */
    CHECK_WANTS(OPEN, AT(100));
    session.wanted = false;
    finish();
}

TEST(calls_that_do_not_wait_fail_at_once_if_the_login_function_fails) {
    struct call one, patient;
    start_asking();
    submit(&one, "A", 3000, AT(0));
    prepare(&patient, NULL, "B");
    patient.request.deadline = AT(3000);
    patient.request.waits_for_connection = true;
    hf_session_submit(&session, &patient.request, AT(0));
    hf_session_fetching_login(&session);
    hf_session_login_failed(&session, HF_UNREACHABLE, "the vault is closed", AT(1));
    CHECK_STR(one.outcome, "unreachable: the vault is closed");
    CHECK_STR(patient.outcome, "");
    CHECK_WANTS(NOTHING, AT(1));
    CHECK_WANTS(LOGIN, AT(50));
    hf_session_login_failed(&session, HF_UNREACHABLE, "late", AT(50)); /* nobody was asked */
    CHECK_STR(patient.outcome, "");
    finish();
}

TEST(a_login_is_requested_again_if_the_task_that_was_fetching_it_ended) {
    struct call one;
    start_asking();
    submit(&one, "A", 3000, AT(0));
    hf_session_fetching_login(&session);
    hf_session_closed(&session, "the task has ended", AT(1));
    CHECK_STR(one.outcome, "");
    CHECK_WANTS(LOGIN, AT(1));
    finish();
}

TEST(a_connection_whose_login_the_server_forgot_is_reopened_once) {
    struct call one, two;
    start_asking();
    submit(&one, "A", 3000, AT(0));
    log_in("old");
    open_session(&session, AT(0));
    feed(&session, "+OK\r\n", AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_STR(output_of(&session), "AUTH old\nA\nB");
    feed(&session, "-NOAUTH Authentication required.\r\n", AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_WANTS(LOGIN, AT(20));
    log_in("new");
    open_session(&session, AT(20));
    feed(&session, "+OK\r\n", AT(20));
    CHECK_STR(output_of(&session), "AUTH new\nA\nB");
    feed(&session, ":1\r\n-NOAUTH no\r\n", AT(21));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "denied: NOAUTH no"); /* it does not help */
    finish();
}

TEST(a_session_whose_url_has_a_password_does_not_call_the_login_function) {
    struct call one;
    start();
    strcpy(config.server.password, "secret");
    submit(&one, "A", 3000, AT(0));
    CHECK(!hf_session_needs_other_login(&session));
    open_session(&session, AT(0));
    feed(&session, "+OK\r\n-NOAUTH no\r\n", AT(0));
    CHECK_WANTS(CLOSE, AT(1)); /* the server may have forgotten the log-in */
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_WANTS(OPEN, AT(20));
    open_session(&session, AT(20));
    feed(&session, "+OK\r\n-NOAUTH no\r\n", AT(20));
    CHECK_STR(one.outcome, "denied: NOAUTH no");
    finish();
}

TEST(a_login_succeeds_even_if_the_server_refuses_client_setname) {
    CHECK_STR(login_outcome("+OK\r\n+OK\r\n-ERR unknown command 'CLIENT'\r\n"), "ready");
    CHECK_STR(login_outcome(
                  "+OK\r\n+OK\r\n-NOPERM this user has no permissions to run 'client|setname'\r\n"),
              "ready");
}

/* The outcome of a command sent to a server whose INFO is this. */
static const char *outcome_at(const char *info) {
    static struct call one;
    char text[128];
    start();
    config.asks_server = true;
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    snprintf(text, sizeof text, "$%zu\r\n%s\r\n", strlen(info), info);
    feed(&session, text, AT(1));
    if (hf_session_wants(&session, AT(1)) == HF_WANT_CLOSE)
        hf_session_closed(&session, "closed by us", AT(1));
    else feed(&session, "+OK\r\n", AT(1));
    finish();
    return one.outcome;
}

TEST(a_login_to_a_server_that_is_too_old_fails) {
    CHECK_STR(outcome_at("# Server\r\nredis_version:4.0.14\r\nrun_id:r\r\n"),
              "server: the server is Redis 4.0.14; holdfast needs Redis 5.0 or later");
    CHECK_STR(outcome_at("# Server\r\nredis_version:4.0.1234567890123456789012345\r\nrun_id:r\r\n"),
              "server: the server is Redis 4.0.12345678901234567890; holdfast needs Redis 5.0 or "
              "later");
    CHECK_STR(outcome_at("# Server\r\nredis_version:5.0.0\r\n"), "OK");
    CHECK_STR(outcome_at("# Server\r\nredis_version:10.0.0\r\n"), "OK");
    CHECK_STR(outcome_at("# Server\r\nold_redis_version:4.0.14\r\n"), "OK");
    CHECK_STR(outcome_at(""), "OK");
}

/* Logs in to a server that answers the question about its scripts so. */
static void check_exposed(const char *answer, bool exposed) {
    start();
    config.asks_server = config.asks_scripts = true;
    session.wanted = true;
    open_session(&session, AT(0));
    CHECK(strstr(output_of(&session), "getmetatable"));
    feed(&session, "$0\r\n\r\n", AT(1));
    feed(&session, answer, AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK_EQ_INT(session.exposed, exposed);
    hf_session_free(&session);
}

TEST(a_login_detects_a_server_whose_lua_scripts_can_change_each_others_globals) {
    check_exposed(":1\r\n", true);
    check_exposed(":0\r\n", false);
    check_exposed("$1\r\n1\r\n", false);
    check_exposed("-NOPERM this user has no permissions to run the 'eval' command\r\n", false);
    check_exposed("-MASTERDOWN Link with MASTER is down\r\n", false);
    check_exposed("-BUSY Redis is busy running a script.\r\n", false);
}

TEST(a_server_that_refuses_client_setname_with_noauth_is_reported_as_missing_a_password) {
    struct call one;
    start();
    strcpy(config.name, "n");
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    CHECK_STR(output_of(&session), "CLIENT SETNAME n");
    feed(&session, "-NOAUTH Authentication required.\r\n", AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(one.outcome, "denied: NOAUTH Authentication required.");
    finish();
}

TEST(a_login_without_a_reply_is_retried_over_a_new_connection) {
    struct call one;
    start();
    strcpy(config.name, "n");
    submit(&one, "A", 60000, AT(0));
    open_session(&session, AT(0));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(1500));
    hf_session_tick(&session, AT(1499));
    CHECK_WANTS(NOTHING, AT(1499));
    hf_session_tick(&session, AT(1500));
    CHECK_WANTS(CLOSE, AT(1500));
    hf_session_closed(&session, "closed by us", AT(1500));
    CHECK_STR(one.outcome, "");
    open_session(&session, AT(1600));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(4600));
    feed(&session, "+OK\r\n", AT(4000));
    CHECK_STR(output_of(&session), "CLIENT SETNAME n\nA");
    feed(&session, ":1\r\n", AT(4001));
    CHECK_STR(one.outcome, "1");
    finish();
}

TEST(a_call_times_out_at_its_deadline_if_no_login_gets_a_reply) {
    struct call one;
    start();
    strcpy(config.name, "n");
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    hf_session_tick(&session, AT(1500));
    hf_session_closed(&session, "closed by us", AT(1500));
    open_session(&session, AT(1600));
    hf_session_tick(&session, AT(3000));
    CHECK_STR(one.outcome, "unreachable: no reply in time");
    finish();
}

TEST(a_connection_attempt_that_the_server_does_not_accept_times_out) {
    struct call one;
    start();
    submit(&one, "A", 60000, AT(0));
    hf_session_opening(&session, AT(0));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(1000));
    hf_session_tick(&session, AT(1000));
    CHECK_WANTS(CLOSE, AT(1000));
    hf_session_closed(&session, "closed by us", AT(1000));
    CHECK_STR(one.outcome, "unreachable: the connection attempt timed out");
    finish();
}

/* ---- refusals and back-off ---- */

TEST(a_refused_connection_fails_all_requests_that_do_not_wait) {
    struct call one, two, three;
    start();
    submit(&one, "A", 3000, AT(0));
    prepare(&two, NULL, "B");
    two.request.waits_for_connection = true;
    two.request.deadline = AT(3000);
    hf_session_submit(&session, &two.request, AT(0));
    submit(&three, "C", 3000, AT(0));
    hf_session_opening(&session, AT(0));
    hf_session_closed(&session, "connection refused", AT(1));
    CHECK_STR(one.outcome, "unreachable: connection refused");
    CHECK_STR(three.outcome, "unreachable: connection refused");
    CHECK_STR(two.outcome, "");
    CHECK(hf_session_has_work(&session));
    hf_session_tick(&session, AT(3000));
    CHECK_STR(two.outcome, "unreachable: connection refused");
    CHECK_EQ_INT(one.calls + two.calls + three.calls, 3);
    finish();
}

static const char CLOSED_EARLY[] =
    "unreachable: the server closed the connection during login; if it expects TLS, use rediss://; "
    "if it is a proxy, it may reject CLIENT or SELECT";
static const char CLOSED_AT_LOGIN[] = "unreachable: the server closed the connection during login; "
                                      "if it is a proxy, it may reject CLIENT or SELECT";

/* The outcome of a call to a server that closes the connection after it has sent `word`. */
static const char *outcome_of_hang_up(const char *word) {
    static struct call one;
    strcpy(config.name, "n");
    hf_session_init(&session, &config, &random_state);
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    if (*word) feed(&session, word, AT(1));
    hf_session_closed(&session, NULL, AT(1));
    finish();
    return one.outcome;
}

TEST(a_connection_closed_at_login_is_reported_as_a_possible_tls_or_proxy_problem) {
    start();
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
    struct call one, two;
    start();
    submit(&one, "A", 3000, AT(0));
    hf_session_opening(&session, AT(0));
    hf_session_handshaking(&session);
    CHECK_EQ_U64(hf_session_deadline(&session), AT(1000));
    hf_session_tick(&session, AT(1000));
    CHECK_WANTS(CLOSE, AT(1000));
    hf_session_closed(&session, "closed by us", AT(1000));
    CHECK_STR(one.outcome, "unreachable: the TLS handshake timed out; does the server speak TLS?");
    submit(&two, "B", 9000, AT(2000));
    hf_session_opening(&session, AT(2000));
    hf_session_tick(&session, AT(3000));
    hf_session_closed(&session, "closed by us", AT(3000));
    CHECK_STR(two.outcome, "unreachable: the connection attempt timed out");
    finish();
}

TEST(the_pause_between_connections_doubles_with_jitter_up_to_a_second) {
    hf_time now = AT(0), most = 10 * HF_MS;
    start();
    session.wanted = true;
    hf_time least_of_all = HF_NEVER, most_of_all = 0;
    for (int i = 0; i < 200; i++) {
        CHECK_WANTS(OPEN, now);
        hf_session_opening(&session, now);
        hf_session_closed(&session, "refused", now);
        hf_time delay = hf_session_deadline(&session) - now;
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
    finish();
}

TEST(a_call_that_does_not_wait_opens_a_connection_at_once_despite_the_pause) {
    struct call one, two;
    start();
    submit(&one, "A", 60000, AT(0));
    for (int i = 0; i < 10; i++) {
        hf_session_opening(&session, AT(0));
        hf_session_closed(&session, "refused", AT(0));
    }
    CHECK_WANTS(NOTHING, AT(1));
    submit(&two, "B", 60000, AT(1));
    CHECK_WANTS(OPEN, AT(1));
    finish();
}

TEST(a_lost_connection_that_had_worked_is_replaced_at_once) {
    struct call one;
    start();
    session.wanted = true;
    for (int i = 0; i < 5; i++) {
        hf_session_opening(&session, AT(0));
        hf_session_closed(&session, "refused", AT(0));
    }
    open_session(&session, AT(5000));
    submit(&one, "A", 9000, AT(5000));
    feed(&session, "+OK\r\n", AT(5000));
    hf_session_closed(&session, "reset", AT(5001));
    CHECK_WANTS(OPEN, AT(5001));
    hf_session_opening(&session, AT(5001));
    hf_session_closed(&session, "refused", AT(5001));
    CHECK(hf_session_deadline(&session) <= AT(5011));
    finish();
}

/* As a proxy does whose server is down. */
TEST(a_server_that_closes_every_connection_is_retried_with_pauses) {
    struct call one;
    int opens = 0;
    start();
    session.wanted = true;
    submit(&one, "A", 10000, AT(0));
    for (hf_time now = AT(0); now < AT(10000); opens++) {
        CHECK_WANTS(OPEN, now);
        open_session(&session, now);
        CHECK_STR(output_of(&session), "A");
        hf_session_closed(&session, "closed by the server", now);
        hf_time next = hf_session_deadline(&session);
        CHECK(next > now);
        now = next;
    }
    CHECK_OR(opens < 40, "%d connections in ten seconds", opens);
    CHECK_STR(one.outcome, "");
    hf_session_tick(&session, AT(10000));
    CHECK_STR(one.outcome, "unreachable: closed by the server");
    finish();
}

TEST(a_server_that_ends_each_connection_with_an_error_is_retried_with_pauses) {
    static const struct {
        const char *password, *name, *reply, *reason;
    } peers[] = {
        {"secret", "", "-WRONGPASS no\r\n", "closed by us"},
        {"", "", "-ERR max number of clients reached\r\n", "closed by the server"},
        {"", "worker", "+OK\r\n", NULL}, /* a proxy that knows no more than the log-in */
    };
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        start();
        strcpy(config.server.password, peers[i].password);
        strcpy(config.name, peers[i].name);
        session.wanted = true;
        hf_time now = AT(0);
        int opens = 0;
        for (; now < AT(10000); opens++) {
            open_session(&session, now);
            feed(&session, peers[i].reply, now);
            hf_session_closed(&session, peers[i].reason, now);
            CHECK(hf_session_deadline(&session) > now);
            now = hf_session_deadline(&session);
        }
        CHECK_OR(opens < 40, "%d connections in ten seconds", opens);
        finish();
    }
}

/* ---- commands and replies ---- */

TEST(pipelined_commands_get_their_replies_in_order) {
    struct call calls[50];
    char text[16];
    start();
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof text, "C%d", i);
        if (i == 20) open_session(&session, AT(0));
        submit(&calls[i], text, 3000, AT(0));
    }
    const char *line = output_of(&session);
    for (int i = 0; i < 50; i++) {
        size_t size = (size_t)snprintf(text, sizeof text, "C%d", i);
        CHECK(strncmp(line, text, size) == 0);
        line += size + 1;
    }
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof text, ":%d\r\n", i);
        feed(&session, text, AT(1));
        snprintf(text, sizeof text, "%d", i);
        CHECK_STR(calls[i].outcome, text);
    }
    finish();
}

TEST(a_reply_is_parsed_correctly_however_it_is_split) {
    static const char bytes[] = "*2\r\n:1\r\n$2\r\nab\r\n-ERR no\r\n:3\r\n";
    for (size_t cut = 1; cut < sizeof bytes - 1; cut++) {
        struct call one, two, three;
        start_open();
        submit(&one, "A", 3000, AT(0));
        submit(&two, "B", 3000, AT(0));
        submit(&three, "C", 3000, AT(0));
        feed_bytes(&session, bytes, cut, AT(1));
        feed_bytes(&session, bytes + cut, sizeof bytes - 1 - cut, AT(1));
        CHECK_STR(one.outcome, "done");
        CHECK_STR(two.outcome, "server: ERR no");
        CHECK_STR(three.outcome, "3");
        finish();
    }
}

TEST(output_is_sent_correctly_however_the_socket_splits_it) {
    struct call one;
    char got[64];
    size_t size = 0;
    start_open();
    submit(&one, "ABC", 3000, AT(0));
    while (hf_session_output(&session).size > 0) {
        got[size++] = hf_session_output(&session).data[0];
        hf_session_written(&session, 1);
    }
    CHECK_MEM(got, size, "*1\r\n$3\r\nABC\r\n", 13);
    finish();
}

TEST(the_reply_to_a_request_that_was_dropped_is_discarded) {
    struct call one, two, three;
    start_open();
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    submit(&three, "C", 3000, AT(0));
    discard(&two);
    feed(&session, ":1\r\n:2\r\n:3\r\n", AT(1));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "");
    CHECK_STR(three.outcome, "3");
    CHECK_EQ_INT(session.closing, false);
    finish();
}

TEST(a_request_that_was_dropped_while_it_was_queued_is_never_sent) {
    struct call one, two, three;
    start();
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    discard(&two);
    submit(&three, "C", 3000, AT(0));
    discard(&one);
    open_session(&session, AT(0));
    CHECK_STR(output_of(&session), "C");
    finish();
}

TEST(a_request_submitted_by_a_callback_is_sent_after_those_already_queued) {
    struct call one, two, three;
    start_open();
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    prepare(&three, NULL, "C");
    three.request.deadline = AT(3000);
    one.then = &three;
    CHECK_STR(output_of(&session), "A\nB");
    feed(&session, ":1\r\n:2\r\n", AT(1));
    CHECK_STR(output_of(&session), "C");
    CHECK_STR(two.outcome, "2");
    feed(&session, ":3\r\n", AT(1));
    CHECK_STR(three.outcome, "3");
    finish();
}

/* ---- what is not an answer ---- */

static void check_given_up(const char *bytes, const char *reason) {
    struct call one;
    start_open();
    submit(&one, "A", 60000, AT(0));
    feed(&session, bytes, AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    CHECK_STR(one.outcome, "");
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(session.reason, reason);
    CHECK_STR(one.outcome, ""); /* its outcome is unknown: it is sent again */
    CHECK_WANTS(OPEN, HF_SECOND + AT(1));
    finish();
}

TEST(bytes_that_are_not_a_redis_reply_end_the_connection) {
    static const char *const garbage[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "\x16\x03\x01",
                                          "$-5\r\n", ":1x\r\n"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        check_given_up(garbage[i], "the reply is not in the Redis protocol");
    }
}

static void check_too_large(const char *bytes, const char *outcome) {
    static char many[HF_REPLY_MAX_BYTES + 2];
    struct call one, two;
    start_open();
    submit(&one, "A", 60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    feed(&session, bytes, AT(1));
    if (bytes[0] == '$') feed_bytes(&session, many, sizeof many, AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    CHECK_STR(one.outcome, outcome);
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(two.outcome, "");
    CHECK_WANTS(OPEN, AT(1)); /* at once: the server serves */
    open_session(&session, AT(1));
    CHECK_STR(output_of(&session), "B");
    feed(&session, ":2\r\n", AT(1));
    CHECK_STR(two.outcome, "2");
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
    start();
    session.subscriber = session.wanted = true;
    open_session(&session, AT(0));
    feed(&session, "*4097\r\n", AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    CHECK_STR(session.reason, "the reply is larger than the elements allowed");
    finish();
}

TEST(a_reply_that_never_ends_closes_the_connection_at_the_size_limit) {
    static char bytes[1 << 20];
    struct call one;
    start_open();
    submit(&one, "A", 60000, AT(0));
    feed(&session, "$999999999999\r\n", AT(1));
    for (int i = 0; i < 5 && !session.closing; i++)
        feed_bytes(&session, bytes, sizeof bytes, AT(2));
    CHECK_WANTS(CLOSE, AT(2));
    finish();
}

TEST(a_reply_that_belongs_to_no_command_ends_the_connection) {
    start();
    session.wanted = true;
    open_session(&session, AT(0));
    feed(&session, "+OK\r\n", AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    CHECK_EQ_INT(session.reason_code, HF_UNREACHABLE);
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(session.reason, "the server sent an unexpected reply");
    open_session(&session, AT(1000));
    feed(&session, "-ERR Protocol error: unbalanced quotes in request\r\n", AT(1000));
    hf_session_closed(&session, "closed by us", AT(1000));
    CHECK_STR(session.reason, "ERR Protocol error: unbalanced quotes in request");
    finish();
}

TEST(nothing_is_read_after_a_protocol_error) {
    struct call one, two;
    start_open();
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    feed(&session, ":1\r\nx\r\n:2\r\n", AT(1));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "");
    feed(&session, ":2\r\n", AT(1));
    CHECK_STR(two.outcome, "");
    hf_session_closed(&session, "closed by us", AT(1));
    feed(&session, ":2\r\n", AT(1));
    CHECK_STR(two.outcome, "");
    finish();
}

/* ---- lost connections ---- */

TEST(requests_sent_over_a_lost_connection_are_resent_in_order) {
    struct call one, two, three;
    start_open();
    submit(&one, "A", 60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    output_of(&session);
    feed(&session, ":1\r\n", AT(1));
    submit(&three, "C", 60000, AT(2));
    CHECK_STR(output_of(&session), "C");
    hf_session_closed(&session, "reset", AT(3));
    CHECK_STR(two.outcome, "");
    CHECK_STR(output_of(&session), "");
    open_session(&session, AT(4));
    CHECK_STR(output_of(&session), "B\nC");
    CHECK_EQ_U64(two.request.sent_at, AT(4));
    feed(&session, ":2\r\n:3\r\n", AT(5));
    CHECK_STR(two.outcome, "2");
    CHECK_STR(three.outcome, "3");
    CHECK_EQ_INT(one.calls, 1);
    finish();
}

TEST(requests_in_flight_are_resent_before_those_that_were_still_queued) {
    struct call one, two, three;
    start_open();
    submit(&one, "A", 60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    output_of(&session);
    session.closing = true; /* the driver has yet to close it */
    submit(&three, "C", 60000, AT(1));
    CHECK_STR(output_of(&session), "");
    hf_session_closed(&session, "reset", AT(2));
    open_session(&session, AT(3));
    CHECK_STR(output_of(&session), "A\nB\nC");
    feed(&session, ":1\r\n:2\r\n:3\r\n", AT(4));
    CHECK_STR(three.outcome, "3");
    finish();
}

TEST(a_request_that_may_have_run_is_not_failed_by_a_refused_connection) {
    struct call one, two;
    start_open();
    submit(&one, "A", 3000, AT(0));
    hf_session_closed(&session, "reset", AT(1));
    submit(&two, "B", 3000, AT(1));
    hf_session_opening(&session, AT(1));
    hf_session_closed(&session, "refused", AT(1));
    CHECK_STR(one.outcome, "");
    CHECK_STR(two.outcome, "unreachable: refused");
    hf_session_tick(&session, AT(3000));
    CHECK_STR(one.outcome, "unreachable: refused");
    finish();
}

TEST(calls_fail_at_once_if_a_password_that_had_worked_is_refused_at_a_reconnect) {
    struct call one;
    start();
    strcpy(config.server.password, "secret");
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    feed(&session, "+OK\r\n", AT(0));
    hf_session_closed(&session, "reset", AT(1));
    open_session(&session, AT(20));
    feed(&session, "-WRONGPASS no\r\n", AT(20));
    hf_session_closed(&session, "closed by us", AT(20));
    CHECK_STR(one.outcome, "denied: WRONGPASS no");
    CHECK(one.request.sends > 0); /* and yet it may have been carried out */
    finish();
}

TEST(a_partly_sent_command_is_sent_again_in_full_over_the_next_connection) {
    struct call one;
    start_open();
    submit(&one, "ABCDEF", 3000, AT(0));
    hf_session_written(&session, 7);
    hf_session_closed(&session, "reset", AT(1));
    CHECK_EQ_INT(hf_session_output(&session).size, 0);
    open_session(&session, AT(20));
    CHECK_STR(output_of(&session), "ABCDEF");
    finish();
}

TEST(a_partly_received_reply_is_discarded_with_its_connection) {
    struct call one;
    start_open();
    submit(&one, "A", 3000, AT(0));
    feed(&session, "*2\r\n$3\r\nab", AT(1));
    hf_session_closed(&session, "reset", AT(1));
    open_session(&session, AT(20));
    feed(&session, ":7\r\n", AT(20));
    CHECK_STR(one.outcome, "7");
    finish();
}

/* ---- silence ---- */

TEST(the_connection_to_a_server_that_does_not_reply_is_closed) {
    struct call one;
    start_open();
    submit(&one, "A", 60000, AT(100));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(1600));
    hf_session_tick(&session, AT(1599));
    CHECK_WANTS(NOTHING, AT(1599));
    hf_session_tick(&session, AT(1600));
    CHECK_WANTS(CLOSE, AT(1600));
    CHECK_STR(one.outcome, "");
    hf_session_closed(&session, "closed by us", AT(1600));
    CHECK_STR(session.reason, "no reply in time");
    CHECK_WANTS(OPEN, AT(1700));
    finish();
}

TEST(a_connection_that_receives_any_reply_does_not_count_as_silent) {
    struct call one, two;
    start_open();
    submit(&one, "A", 60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    feed(&session, ":1\r\n", AT(900));
    hf_session_tick(&session, AT(2000));
    CHECK_WANTS(NOTHING, AT(2000));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(2400));
    feed(&session, ":2\r\n", AT(2300));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    finish();
}

/* A path that swallows everything must be noticed even when each call's deadline is shorter than
 * the session's timeout. */
TEST(a_server_without_replies_is_detected_even_if_each_request_ends_at_an_earlier_deadline) {
    struct call calls[40];
    start_open();
    submit(&calls[0], "A", 60000, AT(0));
    feed(&session, ":1\r\n", AT(0));
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
    finish();
}

TEST(a_server_that_does_not_reply_even_to_a_dropped_request_counts_as_silent) {
    struct call one;
    start_open();
    submit(&one, "A", 60000, AT(0));
    discard(&one);
    CHECK(!hf_session_has_work(&session));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(1500));
    feed(&session, ":1\r\n", AT(10));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    finish();
}

/* ---- connections that die without a word ---- */

static hf_time silent_since; /* what the session reported; HF_NEVER: nothing */

static void on_silence(void *context, hf_time since, hf_time now) {
    (void)context, (void)now;
    silent_since = since;
}

/* The connection has served, and was silent after that until AT(quiet_ms). */
static void start_quiet(void) {
    struct call first;
    start_open();
    silent_since = HF_NEVER;
    session.on_silence = on_silence;
    submit(&first, "first", 3000, AT(0));
    feed(&session, ":0\r\n", AT(0));
    discard(&first);
    output_of(&session);
    memset(begun, 0, sizeof begun);
}

TEST(a_call_over_an_idle_connection_that_is_dead_is_resent_within_its_timeout) {
    struct call one;
    start_quiet();
    submit(&one, "A", 23000, AT(20000));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(20250));
    hf_session_tick(&session, AT(20249));
    CHECK_WANTS(NOTHING, AT(20249));
    hf_session_tick(&session, AT(20250));
    CHECK_WANTS(CLOSE, AT(20250));
    CHECK_EQ_U64(silent_since, AT(20000));
    hf_session_closed(&session, "closed by us", AT(20250));
    CHECK_WANTS(OPEN, AT(20251));
    open_session(&session, AT(20251));
    CHECK_STR(output_of(&session), "A");
    feed(&session, ":7\r\n", AT(20252));
    CHECK_STR(one.outcome, "7");
    finish();
}

TEST(a_recently_used_connection_is_given_up_after_half_of_the_command_timeout_without_a_reply) {
    struct call one;
    start_quiet();
    submit(&one, "A", 3999, AT(999));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(999 + 1500));
    finish();
}

TEST(an_idle_connection_on_which_any_byte_arrives_is_not_given_up) {
    struct call one;
    start_quiet();
    submit(&one, "A", 23000, AT(20000));
    feed(&session, ":", AT(20100));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(20100 + 1500));
    finish();
}

TEST(a_connection_with_a_long_round_trip_time_is_given_up_later) {
    struct call one;
    start();
    strcpy(config.name, "n");
    session.wanted = true;
    open_session(&session, AT(0));
    feed(&session, "+OK\r\n", AT(200));
    submit(&one, "A", 23000, AT(20000));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(20000 + 800));
    finish();
}

TEST(a_connection_is_given_up_later_while_its_server_waits_for_replicas) {
    struct call one;
    start_quiet();
    config.confirm_timeout = 400 * HF_MS;
    submit(&one, "A", 23000, AT(20000));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(20000 + 250 + 400));
    finish();
}

TEST(a_connection_without_a_reply_is_given_up_by_the_command_timeout_at_the_latest) {
    struct call one;
    start_quiet();
    config.confirm_timeout = 2900 * HF_MS;
    submit(&one, "A", 23000, AT(20000));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(23000));
    finish();
}

TEST(a_command_that_must_not_be_resent_is_sent_over_an_idle_connection_only_after_a_ping) {
    struct call one;
    start_quiet();
    prepare(&one, NULL, "A");
    one.request.no_retry = true;
    one.request.deadline = AT(23000);
    hf_session_submit(&session, &one.request, AT(20000));
    CHECK_STR(output_of(&session), "PING");
    CHECK(hf_session_has_work(&session));
    hf_session_tick(&session, AT(20001));
    CHECK_STR(output_of(&session), "");
    feed(&session, "+PONG\r\n", AT(20002));
    CHECK_STR(output_of(&session), "A");
    hf_session_tick(&session, AT(22999)); /* the command would fail with its connection */
    CHECK_WANTS(NOTHING, AT(22999));
    feed(&session, ":7\r\n", AT(22999));
    CHECK_STR(one.outcome, "7");
    finish();
}

TEST(a_command_that_must_not_be_resent_uses_a_new_connection_if_the_idle_one_is_dead) {
    struct call one;
    start_quiet();
    prepare(&one, NULL, "A");
    one.request.no_retry = true;
    one.request.deadline = AT(23000);
    hf_session_submit(&session, &one.request, AT(20000));
    hf_session_tick(&session, AT(20250));
    CHECK_WANTS(CLOSE, AT(20250));
    hf_session_closed(&session, "closed by us", AT(20250));
    open_session(&session, AT(20251));
    CHECK_STR(output_of(&session), "A");
    feed(&session, ":7\r\n", AT(20252));
    CHECK_STR(one.outcome, "7");
    finish();
}

TEST(an_idle_connection_is_pinged_when_another_one_to_its_server_gets_no_replies) {
    struct call one;
    start_quiet();
    hf_session_doubt(&session, AT(400), AT(500));
    CHECK_STR(output_of(&session), "PING");
    CHECK(hf_session_has_work(&session));
    submit(&one, "A", 3600, AT(600));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(750));
    hf_session_tick(&session, AT(750));
    CHECK_WANTS(CLOSE, AT(750));
    finish();
}

TEST(an_idle_connection_that_replies_to_its_ping_is_used_again) {
    struct call one;
    start_quiet();
    hf_session_doubt(&session, AT(400), AT(500));
    feed(&session, "+PONG\r\n", AT(501));
    CHECK(!hf_session_has_work(&session));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    submit(&one, "A", 3600, AT(600));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(600 + 1500));
    finish();
}

TEST(a_connection_that_got_a_reply_after_another_one_got_none_is_not_pinged) {
    struct call one;
    start_quiet();
    submit(&one, "A", 3000, AT(300));
    feed(&session, ":1\r\n", AT(401));
    hf_session_doubt(&session, AT(400), AT(500));
    CHECK_STR(output_of(&session), "A");
    CHECK(!hf_session_has_work(&session));
    finish();
}

TEST(a_connection_that_awaits_a_reply_is_given_up_when_another_to_its_server_gets_none) {
    struct call one;
    start_quiet();
    submit(&one, "A", 3100, AT(100));
    output_of(&session);
    hf_session_doubt(&session, AT(90), AT(400));
    CHECK_STR(output_of(&session), "");
    hf_session_tick(&session, AT(400));
    CHECK_WANTS(CLOSE, AT(400));
    finish();
}

TEST(a_connection_attempt_that_the_server_does_not_accept_is_reported) {
    struct call one;
    start();
    silent_since = HF_NEVER;
    session.on_silence = on_silence;
    submit(&one, "A", 3000, AT(0));
    hf_session_opening(&session, AT(5));
    hf_session_tick(&session, AT(1005));
    CHECK_EQ_U64(silent_since, AT(5));
    finish();
}

/* ---- deadlines ---- */

TEST(a_request_times_out_at_its_deadline_whether_queued_or_sent) {
    struct call queued, sent;
    start();
    submit(&queued, "A", 500, AT(0));
    hf_session_opening(&session, AT(0));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(500));
    hf_session_tick(&session, AT(499));
    CHECK_STR(queued.outcome, "");
    hf_session_tick(&session, AT(500));
    CHECK_STR(queued.outcome, "unreachable: no reply in time");
    hf_session_opened(&session, AT(600));
    CHECK_STR(output_of(&session), "");
    submit(&sent, "B", 1000, AT(600));
    CHECK_STR(output_of(&session), "B");
    hf_session_tick(&session, AT(1000));
    CHECK_STR(sent.outcome, "unreachable: no reply in time");
    feed(&session, ":1\r\n", AT(1001));
    CHECK_EQ_INT(sent.calls, 1);
    CHECK_WANTS(NOTHING, AT(1001));
    finish();
}

TEST(all_requests_of_a_connection_can_time_out_at_once) {
    struct call calls[20];
    start();
    for (int i = 0; i < 20; i++) {
        if (i == 10) open_session(&session, AT(0));
        submit(&calls[i], "A", 100, AT(0));
    }
    hf_session_tick(&session, AT(100));
    for (int i = 0; i < 20; i++) {
        CHECK_EQ_INT(calls[i].calls, 1);
        discard(&calls[i]);
    }
    finish();
}

/* The first half awaits replies, the second is queued: `done` queues another behind it. */
TEST(a_request_submitted_while_others_time_out_keeps_its_own_deadline) {
    struct call calls[10], later[10];
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
    finish();
}

TEST(a_request_submitted_after_its_deadline_ends_at_once) {
    struct call sent, late;
    start_open();
    submit(&sent, "A", 100, AT(0));
    prepare(&late, NULL, "B");
    late.request.deadline = AT(50);
    sent.then = &late;
    hf_session_abort(&session, AT(1));
    hf_session_tick(&session, AT(100));
    CHECK_EQ_INT(sent.calls, 1);
    CHECK_EQ_INT(late.calls, 1);
    finish();
}

/* ---- passing errors ---- */

TEST(a_request_refused_with_a_temporary_error_is_retried_until_its_deadline) {
    struct call one;
    hf_time now = AT(0);
    int tries = 1;
    start();
    open_session(&session, now);
    submit(&one, "A", 500, now);
    output_of(&session);
    while (one.calls == 0) {
        feed(&session, "-LOADING Redis is loading the dataset in memory\r\n", now);
        if (one.calls > 0) break;
        hf_time next = hf_session_deadline(&session);
        hf_time pause = (20 * HF_MS) << (tries < 5 ? tries - 1 : 4);
        bool last = next == AT(500);
        CHECK(last || (next >= now + pause / 2 && next <= now + pause * 3 / 2));
        CHECK_STR(output_of(&session), "");
        hf_session_tick(&session, next - 1);
        CHECK_STR(output_of(&session), "");
        hf_session_tick(&session, next);
        CHECK_STR(output_of(&session), last ? "" : "A");
        now = next;
        tries++;
    }
    CHECK(now == AT(500));
    CHECK(tries > 4 && tries < 10);
    CHECK_STR(one.outcome, "unreachable: LOADING Redis is loading the dataset in memory");
    finish();
}

TEST(a_request_that_failed_with_a_temporary_error_succeeds_when_it_is_retried) {
    struct call one, two;
    start_open();
    submit(&one, "A", 3000, AT(0));
    output_of(&session);
    feed(&session, "-BUSY Redis is busy running a script.\r\n", AT(0));
    submit(&two, "B", 3000, AT(1)); /* later requests do not wait behind it */
    CHECK_STR(output_of(&session), "B");
    hf_session_tick(&session, AT(30));
    CHECK_STR(output_of(&session), "A");
    feed(&session, ":2\r\n:1\r\n", AT(31));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "2");
    finish();
}

TEST(a_connection_lost_after_a_temporary_error_causes_no_busy_loop) {
    struct call one;
    start_open();
    prepare(&one, NULL, "A");
    one.request.waits_for_connection = true;
    one.request.deadline = AT(60000);
    hf_session_submit(&session, &one.request, AT(0));
    feed(&session, "-LOADING\r\n", AT(0));
    hf_session_closed(&session, "reset", AT(1));
    hf_time now = AT(1);
    for (int i = 0; i < 10; i++) { /* refused again and again */
        CHECK_WANTS(OPEN, now);
        hf_session_opening(&session, now);
        hf_session_closed(&session, "refused", now);
        hf_session_tick(&session, now);
        CHECK(hf_session_deadline(&session) > now);
        now = hf_session_deadline(&session);
    }
    hf_session_opening(&session, now + 30 * HF_MS);
    hf_session_tick(&session, now + 30 * HF_MS);
    CHECK(hf_session_deadline(&session) > now + 30 * HF_MS);
    hf_session_opened(&session, now + 40 * HF_MS);
    CHECK_STR(output_of(&session), "A");
    finish();
}

TEST(a_request_fails_at_once_if_the_connection_is_refused_after_a_temporary_error) {
    struct call one;
    start_open();
    submit(&one, "A", 3000, AT(0));
    feed(&session, "-LOADING\r\n", AT(0));
    hf_session_closed(&session, "reset", AT(1));
    hf_session_opening(&session, AT(1));
    hf_session_closed(&session, "refused", AT(1));
    CHECK_STR(one.outcome, "unreachable: refused"); /* nothing of it was carried out */
    finish();
}

TEST(a_permanent_error_fails_the_request_without_a_retry) {
    struct call one, two;
    start_open();
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    feed(&session, "-ERR no\r\n-NOPERM no\r\n", AT(0));
    CHECK_STR(one.outcome, "server: ERR no");
    CHECK_STR(two.outcome, "denied: NOPERM no");
    CHECK_WANTS(NOTHING, AT(0));
    finish();
}

/* ---- programs ---- */

TEST(a_script_that_the_server_does_not_know_is_sent_with_its_text) {
    static char want[SENT_SIZE];
    const hf_program *program = hf_kind_program(&hf_kind_lock, HF_VERB_INFO);
    struct call one, two;
    start_open();
    submit_program(&one, "key", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_STR(output_of(&session), "EVALSHA info 1 key\nB");
    feed(&session, "-NOSCRIPT No matching script. Please use EVAL.\r\n", AT(1));
    CHECK_STR(one.outcome, "");
    int size =
        snprintf(want, sizeof want, "*4\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$3\r\nkey\r\n",
                 program->length, text_of(program));
    hf_slice output = hf_session_output(&session);
    CHECK_MEM(output.data, output.size, want, size);
    output_of(&session);
    CHECK_EQ_U64(one.request.sent_at, AT(1));
    feed(&session, ":2\r\n:1\r\n", AT(2));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "2");
    hf_session_submit(&session, &one.request, AT(3)); /* now it is known */
    CHECK_STR(output_of(&session), "EVALSHA info 1 key");
    finish();
}

TEST(a_script_is_not_sent_a_third_time_if_the_server_still_does_not_know_it) {
    struct call one;
    start_open();
    submit_program(&one, "key", 3000, AT(0));
    feed(&session, "-NOSCRIPT No matching script.\r\n", AT(1));
    feed(&session, "-NOSCRIPT No matching script.\r\n", AT(1));
    CHECK_STR(one.outcome, "server: NOSCRIPT No matching script.");
    finish();
}

TEST(a_noscript_reply_to_a_command_without_a_script_fails_the_request) {
    struct call one;
    start_open();
    submit(&one, "A", 3000, AT(0));
    feed(&session, "-NOSCRIPT\r\n", AT(1));
    CHECK_STR(one.outcome, "server: NOSCRIPT");
    finish();
}

TEST(a_script_is_sent_with_its_text_again_after_a_server_restart) {
    struct call one;
    start_open();
    submit_program(&one, "key", 60000, AT(0));
    feed(&session, "-NOSCRIPT\r\n", AT(1));
    hf_session_closed(&session, "reset", AT(2));
    open_session(&session, AT(20));
    CHECK_STR(output_of(&session), "EVAL info 1 key");
    feed(&session, "-LOADING\r\n", AT(20));
    hf_session_tick(&session, AT(60));
    CHECK_STR(output_of(&session), "EVAL info 1 key");
    feed(&session, ":1\r\n", AT(61));
    CHECK_STR(one.outcome, "1");
    finish();
}

/* Only what may have been carried out without our knowing it counts. */
TEST(a_request_counts_how_many_of_its_copies_the_server_may_have_run) {
    struct call one;
    start_open();
    submit_program(&one, "key", 60000, AT(0));
    CHECK_EQ_INT(one.request.sends, 1);
    feed(&session, "-NOSCRIPT\r\n", AT(1));
    CHECK_EQ_INT(one.request.sends, 1);
    feed(&session, "-LOADING\r\n", AT(1));
    CHECK_EQ_INT(one.request.sends, 0);
    hf_session_tick(&session, AT(40));
    CHECK_EQ_INT(one.request.sends, 1);
    hf_session_closed(&session, "reset", AT(41));
    open_session(&session, AT(60));
    CHECK_EQ_INT(one.request.sends, 2);
    feed(&session, ":1\r\n", AT(60));
    CHECK_EQ_INT(one.request.sends, 2);
    finish();
}

/* ---- a reply that another request inherits ---- */

static bool inherit(struct call *heir, struct call *from) {
    note(heir);
    memset(heir, 0, sizeof *heir);
    if (!hf_session_inherit(&heir->request, &from->request)) return false;
    heir->request.done = on_done;
    heir->request.context = heir;
    return true;
}

TEST(a_request_that_takes_over_a_dropped_ones_reply_receives_it_in_order) {
    struct call one, two, heir;
    start_open();
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK(inherit(&heir, &one));
    CHECK(hf_session_has_work(&session));
    CHECK_EQ_INT(one.request.state, HF_REQUEST_IDLE);
    feed(&session, ":1\r\n:2\r\n", AT(1));
    CHECK_STR(heir.outcome, "1");
    CHECK_STR(two.outcome, "2");
    CHECK_EQ_INT(one.calls, 0);
    CHECK(!inherit(&one, &heir));
    finish();
}

TEST(a_request_can_take_over_the_late_reply_to_one_that_has_timed_out) {
    struct call one, heir;
    start_open();
    submit(&one, "A", 100, AT(0));
    hf_session_tick(&session, AT(100));
    CHECK_EQ_INT(one.calls, 1);
    CHECK(inherit(&heir, &one));
    heir.request.deadline = AT(3000);
    feed(&session, ":1\r\n", AT(200));
    CHECK_STR(heir.outcome, "1");
    finish();
}

TEST(a_request_that_takes_over_a_noscript_reply_sends_the_scripts_text) {
    struct call one, heir;
    start_open();
    submit_program(&one, "k", 3000, AT(0));
    CHECK_STR(output_of(&session), "EVALSHA info 1 k");
    CHECK(inherit(&heir, &one));
    feed(&session, "-NOSCRIPT No matching script\r\n", AT(1));
    CHECK_STR(output_of(&session), "EVAL info 1 k");
    feed(&session, ":1\r\n", AT(2));
    CHECK_STR(heir.outcome, "1");
    finish();
}

TEST(the_reply_to_a_request_that_awaits_none_cannot_be_taken_over) {
    struct call one, heir;
    start();
    submit(&one, "A", 3000, AT(0));
    CHECK(!inherit(&heir, &one)); /* not sent */
    CHECK(!session.queue);
    discard(&one);
    open_session(&session, AT(1));
    submit(&one, "A", 3000, AT(1));
    hf_session_closed(&session, "reset", AT(2));
    CHECK(!inherit(&heir, &one)); /* taken back */
    discard(&one);
    submit(&one, "A", 3000, AT(3));
    open_session(&session, AT(3));
    hf_session_drop(&one.request);
    hf_session_closed(&session, "reset", AT(4));
    open_session(&session, AT(5));
    CHECK(!inherit(&heir, &one)); /* of another connection */
    finish();
}

/* ---- subscribers ---- */

static char received[256];

static void on_received(void *context, const hf_reply *event, hf_time now) {
    (void)context, (void)now;
    hf_slice kind = hf_reply_string_at(event, 0);
    size_t used = strlen(received);
    snprintf(received + used, sizeof received - used, "%.*s ", (int)kind.size, kind.data);
}

TEST(closing_a_subscription_connection_that_is_no_longer_needed_is_not_a_failure) {
    start();
    session.subscriber = true;
    for (int i = 0; i < 5; i++) {
        session.wanted = true;
        CHECK_WANTS(OPEN, AT(i));
        open_session(&session, AT(i));
        session.wanted = false;
        hf_session_closed(&session, "closed", AT(i));
    }
    CHECK_EQ_INT(session.failed_opens, 0);
    CHECK_STR(session.reason, "");
    finish();
}

TEST(a_subscription_receives_its_published_messages) {
    static const hf_slice subscribe[] = {{"SUBSCRIBE", 9}, {"c", 1}};
    start();
    session.subscriber = session.wanted = true;
    session.on_event = on_received;
    received[0] = '\0';
    strcpy(config.name, "n");
    open_session(&session, AT(0));
    feed(&session, "+OK\r\n", AT(0));
    CHECK_STR(received, "");
    CHECK(hf_session_send(&session, 2, subscribe));
    CHECK_STR(output_of(&session), "CLIENT SETNAME n\nSUBSCRIBE c");
    feed(&session, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmess", AT(1));
    feed(&session, "age\r\n$1\r\nc\r\n$1\r\nx\r\n", AT(2));
    CHECK_STR(received, "subscribe message ");
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    session.wanted = false;
    CHECK_WANTS(CLOSE, AT(3));
    hf_session_closed(&session, "not needed any more", AT(3));
    CHECK_WANTS(NOTHING, AT(3));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    finish();
}

/* ---- the end ---- */

TEST(closing_a_client_fails_all_of_its_requests) {
    struct call queued, sent;
    start_open();
    submit(&sent, "A", 3000, AT(0));
    feed(&session, "*1\r\n", AT(0));
    hf_session_fail_all(&session, HF_CLOSED, "the client was closed", AT(1));
    finish();
    CHECK_STR(sent.outcome, "closed: the client was closed");
    start();
    submit(&queued, "B", 3000, AT(0));
    hf_session_fail_all(&session, HF_CLOSED, "the client was closed", AT(1));
    finish();
    CHECK_STR(queued.outcome, "closed: the client was closed");
    hf_request_clear(&sent.request);
    hf_request_clear(&queued.request);
}

/* ---- memory ---- */

TEST(a_connection_is_closed_if_there_is_no_memory_for_its_replies) {
    start();
    session.wanted = true;
    hf_session_opening(&session, AT(0));
    memerr_fail(1);
    hf_session_opened(&session, AT(0));
    memerr_fail(0);
    CHECK_WANTS(CLOSE, AT(0));
    feed(&session, "-ERR max number of clients reached\r\n", AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(session.reason, "out of memory");
    finish();
}

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
    open_session(&session, AT(0));
    output_of(&session);
    if (!session.closing) hf_session_feed(&session, "+OK\r\n+OK\r\n-NOSCRIPT\r\n", 21, AT(1));
    output_of(&session);
    for (int i = 0; i < 20; i++) {
        if (!session.closing && session.first_reply < session.next_reply) {
            hf_session_feed(&session, "*1\r\n:1\r\n", 8, AT(2));
        }
    }
    if (session.closing) hf_session_closed(&session, "closed by us", AT(3));
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

/* ---- which run of the server it is ---- */

/* Logs in to a server whose INFO is this, and which has no mark. */
static void log_in_to(const char *info) {
    char text[400];
    start();
    config.asks_server = config.asks_known = true;
    session.wanted = true;
    open_session(&session, AT(0));
    output_of(&session);
    snprintf(text, sizeof text, "$%zu\r\n%s\r\n$-1\r\n", strlen(info), info);
    feed(&session, text, AT(1));
}

#define RUN_OF_40 "0123456789012345678901234567890123456789"

TEST(a_server_restart_is_recognized_by_the_changed_run_id) {
    static const struct {
        const char *info, *run_id;
    } cases[] = {
        {"# Server\r\nrun_id:abc\r\n", "abc"},
        {"# Server\r\nrun_id:" RUN_OF_40 "\r\n", RUN_OF_40},
        {"# Server\r\nrun_id:" RUN_OF_40 "x\r\n", ""}, /* longer than any */
        {"# Server\r\n", ""},
        {"# Server\r\nmy_run_id:abc\r\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        log_in_to(cases[i].info);
        CHECK_EQ_INT(session.state, HF_SESSION_READY);
        CHECK_STR(session.run_id, cases[i].run_id);
        CHECK_EQ_U64(session.known_since, AT(1));
        hf_session_free(&session);
    }
}

TEST(a_servers_run_id_is_stored_on_it_only_once_and_only_over_an_open_connection) {
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hf_session_vouch(&session, AT(2));
    CHECK_STR(output_of(&session), "SET holdfast_known abc");
    hf_session_vouch(&session, AT(2)); /* once */
    CHECK_STR(output_of(&session), "");
    feed(&session, "+OK\r\n", AT(3));
    hf_session_free(&session);
    log_in_to("# Server\r\n");
    hf_session_vouch(&session, AT(2));
    CHECK_STR(output_of(&session), "");
    hf_session_free(&session);
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hf_session_closed(&session, "gone", AT(2));
    hf_session_vouch(&session, AT(3));
    CHECK(!session.vouched);
    hf_session_free(&session);
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hf_session_abort(&session, AT(1));
    hf_session_vouch(&session, AT(3));
    CHECK(!session.vouched);
    hf_session_free(&session);
}

#define MASTER "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"

TEST(a_request_refused_by_a_replica_is_resent_before_those_refused_for_other_reasons) {
    struct call one, two, three;
    start();
    session.follows_master = true;
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    feed(&session, MASTER, AT(0));
    submit(&two, "B", 3000, AT(0));
    submit(&three, "C", 3000, AT(0));
    output_of(&session);
    feed(&session, "-LOADING Redis is loading\r\n-READONLY no\r\n", AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    hf_session_resolve(&session);
    open_session(&session, AT(200));
    CHECK_STR(output_of(&session), "ROLE");
    feed(&session, MASTER, AT(200));
    CHECK_STR(output_of(&session), "B\nC\nA");
    discard(&one);
    discard(&two);
    discard(&three);
    hf_session_free(&session);
}

TEST(a_resubmitted_request_does_not_report_its_earlier_failure) {
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    feed(&session, "-ERR no\r\n", AT(1));
    CHECK_EQ_INT(one.request.failure.code, HF_SERVER);
    hf_session_submit(&session, &one.request, AT(2));
    CHECK_EQ_INT(one.request.failure.code, HF_OK);
    discard(&one);
    hf_session_free(&session);
}

TEST(a_reply_that_was_already_received_cannot_be_taken_over_by_another_request) {
    struct call one;
    hf_request heir = {0};
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    feed(&session, ":1\r\n", AT(1));
    CHECK_STR(one.outcome, "1");
    CHECK(!hf_session_inherit(&heir, &one.request));
    discard(&one);
    hf_session_free(&session);
}

TEST(the_reason_of_a_lost_connection_is_kept_until_the_server_replies_again) {
    struct call one, two;
    start();
    submit(&one, "A", 30000, AT(0));
    open_session(&session, AT(0));
    feed(&session, ":1\r\n", AT(1));
    hf_session_closed(&session, "reset", AT(2));
    CHECK_STR(session.reason, "reset");
    submit(&two, "B", 30000, AT(3));
    open_session(&session, AT(3)); /* the first attempt after a good connection */
    CHECK_STR(session.reason, "");
    hf_session_closed(&session, "reset", AT(4));
    hf_session_opening(&session, AT(5000));
    hf_session_closed(&session, "refused", AT(5000));
    open_session(&session, AT(10000));
    CHECK_STR(session.reason, "refused");
    feed(&session, ":1\r\n", AT(10001));
    CHECK_STR(session.reason, "");
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

TEST(a_login_sends_a_one_letter_user_name) {
    start();
    strcpy(config.server.user, "u");
    strcpy(config.server.password, "secret");
    session.wanted = true;
    open_session(&session, AT(0));
    CHECK_STR(output_of(&session), "AUTH u secret");
    finish();
}

TEST(a_request_that_stores_a_servers_run_id_times_out_measured_from_its_sending) {
    log_in_to("# Server\r\nrun_id:abc\r\n");
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    hf_session_vouch(&session, AT(50000));
    CHECK_EQ_U64(session.awaiting_since, AT(50000));
    feed(&session, "+OK\r\n", AT(50001));
    struct call one;
    submit(&one, "A", 70000, AT(60000));
    session.vouched = false;
    hf_session_vouch(&session, AT(60500)); /* behind another command */
    CHECK_EQ_U64(session.awaiting_since, AT(60000));
    feed(&session, ":1\r\n+OK\r\n", AT(60501));
    finish();
}

TEST(a_connection_that_moves_to_a_new_address_is_closed_as_unreachable) {
    start_open();
    hf_session_move(&session, AT(1));
    CHECK_EQ_INT(session.reason_code, HF_UNREACHABLE);
    CHECK_EQ_INT(hf_session_wants(&session, AT(1)), HF_WANT_CLOSE);
    finish();
}

TEST(a_connection_is_closed_if_there_is_no_memory_for_its_login) {
    bool failed = true;
    for (unsigned long nth = 1; failed && nth < 50; nth++) {
        start();
        strcpy(config.server.user, "u");
        strcpy(config.server.password, "secret");
        strcpy(config.name, "worker");
        config.server.db = 3;
        session.wanted = true;
        hf_session_opening(&session, AT(0));
        memerr_fail(nth);
        hf_session_opened(&session, AT(0));
        failed = memerr_failed();
        memerr_fail(0);
        CHECK_EQ_INT(hf_session_wants(&session, AT(0)), failed ? HF_WANT_CLOSE : HF_WANT_NOTHING);
        finish();
    }
    CHECK(!failed);
}

TEST(no_partial_command_is_sent_if_there_is_no_memory_for_a_scripts_text) {
    const hf_program *program = hf_kind_program(&hf_kind_lock, HF_VERB_ACQUIRE);
    bool failed = true;
    for (unsigned long nth = 1; failed && nth < 20; nth++) {
        struct call written, one, two;
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
        failed = memerr_failed();
        memerr_fail(0);
        CHECK_STR(output_of(&session), failed ? "A" : "A\nEVAL acquire 1 k");
        finish();
    }
    CHECK(!failed);
}

TEST(a_run_id_stored_on_a_server_is_ignored_if_the_server_reports_none) {
    start();
    config.asks_server = config.asks_known = true;
    session.wanted = true;
    open_session(&session, AT(0));
    output_of(&session);
    feed(&session, "$10\r\n# Server\r\n\r\n$0\r\n\r\n", AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK(!session.vouched);
    hf_session_free(&session);
}

TEST(a_server_with_a_one_letter_run_id_is_recognized_after_a_reconnect) {
    log_in_to("# Server\r\nrun_id:a\r\n");
    CHECK_EQ_U64(session.known_since, AT(1));
    hf_session_closed(&session, "gone", AT(1000));
    open_session(&session, AT(2000));
    output_of(&session);
    feed(&session, "$20\r\n# Server\r\nrun_id:a\r\n\r\n$-1\r\n", AT(2001));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK_EQ_U64(session.known_since, AT(1));
    hf_session_free(&session);
}

/* A proxy refuses again and again; one hang-up may have any reason. */
TEST(a_single_connection_closed_after_subscribe_is_not_reported_as_a_proxy_problem) {
    struct call one;
    start();
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    feed(&session, "+", AT(1));
    hf_session_closed(&session, NULL, AT(1));
    CHECK_STR(session.reason, "the server closed the connection");
    finish();
}

TEST(the_reason_of_a_closed_connection_depends_only_on_bytes_received_over_that_one) {
    struct call one;
    start();
    strcpy(config.name, "n");
    submit(&one, "A", 30000, AT(0));
    open_session(&session, AT(0));
    feed(&session, "+", AT(1));
    hf_session_closed(&session, NULL, AT(1));
    CHECK_STR(session.reason, CLOSED_AT_LOGIN + strlen("unreachable: "));
    open_session(&session, AT(2000));
    hf_session_closed(&session, NULL, AT(2001));
    CHECK_STR(session.reason, CLOSED_EARLY + strlen("unreachable: "));
    finish();
}

TEST(a_session_that_moves_to_a_new_address_connects_there_without_a_pause) {
    start();
    session.wanted = true;
    for (int i = 0; i < 8; i++) {
        hf_session_opening(&session, AT(7142 * i));
        hf_session_closed(&session, "refused", AT(7142 * i));
    }
    CHECK_WANTS(NOTHING, AT(50000));
    hf_session_move(&session, AT(50000));
    CHECK_EQ_INT(session.failed_opens, 0);
    CHECK_WANTS(OPEN, AT(50000));
    hf_session_opening(&session, AT(50000));
    hf_session_closed(&session, "refused", AT(50000));
    CHECK(hf_session_deadline(&session) < AT(50100));
    finish();
}

TEST(a_deferred_request_reports_a_failed_allocation_and_can_be_submitted_again) {
    struct call one;
    start_open();
    prepare(&one, NULL, "A");
    memerr_fail(1);
    CHECK(!hf_session_send_along(&session, &one.request));
    CHECK(memerr_failed());
    memerr_fail(0);
    CHECK(hf_session_send_along(&session, &one.request));
    hf_session_flush_along(&session, AT(1));
    CHECK_STR(output_of(&session), "A");
    finish();
}

TEST(only_a_request_that_does_not_wait_shortens_the_pause_between_connections) {
    struct call patient, hasty;
    start();
    session.wanted = true;
    hf_session_opening(&session, AT(0));
    hf_session_closed(&session, "refused", AT(0));
    session.retry_at = AT(500);
    hf_session_retry_now(&session, AT(1));
    CHECK_EQ_U64(session.retry_at, AT(500)); /* nothing waits */
    prepare(&patient, NULL, "A");
    patient.request.deadline = AT(5000);
    patient.request.waits_for_connection = true;
    hf_session_submit(&session, &patient.request, AT(1));
    CHECK_EQ_U64(session.retry_at, AT(500));
    submit(&hasty, "B", 5000, AT(2));
    CHECK_EQ_U64(session.retry_at, AT(2));
    session.retry_at = AT(500);
    hf_session_retry_now(&session, AT(3));
    CHECK_EQ_U64(session.retry_at, AT(3));
    finish();
}

TEST(a_request_that_outlasts_refusals_is_retried_until_its_own_later_deadline) {
    struct call one, two;
    start_open();
    submit(&one, "A", 100, AT(0));
    one.request.persists_until = AT(9000);
    feed(&session, "-LOADING Redis is loading\r\n", AT(1));
    CHECK_EQ_U64(one.request.deadline, AT(9000));
    CHECK(one.request.waits_for_connection);
    CHECK_EQ_INT((int)one.request.refusals, 1);
    hf_session_tick(&session, one.request.retry_at);
    feed(&session, "-ERR no\r\n", one.request.retry_at);
    CHECK_EQ_INT((int)one.request.refusals, 0); /* it has failed for another reason */
    submit(&two, "B", 300, AT(298));
    feed(&session, "-LOADING Redis is loading\r\n", AT(299));
    CHECK(!two.request.waits_for_connection);
    CHECK(two.request.retry_at <= AT(300));
    finish();
}

TEST(a_script_whose_call_replicas_confirmed_is_called_by_its_sha1_the_next_time) {
    struct call one;
    start_open();
    prepare(&one, hf_kind_program(&hf_kind_lock, HF_VERB_INFO), "k");
    one.request.deadline = AT(5000);
    one.request.replicas = 1;
    hf_session_submit(&session, &one.request, AT(0));
    feed(&session, "-NOSCRIPT no\r\n:0\r\n", AT(1));
    CHECK(one.request.as_eval);
    feed(&session, ":7\r\n:1\r\n", AT(2));
    CHECK_STR(one.outcome, "7");
    CHECK_EQ_INT((int)one.request.confirmed, 1);
    CHECK(!one.request.as_eval);
    finish();
}

TEST(a_deferred_request_is_dropped_if_its_connection_is_lost_before_it_was_sent) {
    struct call one, two, three;
    start_open();
    prepare(&one, NULL, "A");
    CHECK(hf_session_send_along(&session, &one.request));
    hf_session_closed(&session, "gone", AT(1));
    submit(&two, "B", 5000, AT(1));
    hf_time now = session.retry_at;
    open_session(&session, now);
    CHECK_STR(output_of(&session), "B");
    prepare(&three, NULL, "C");
    CHECK(hf_session_send_along(&session, &three.request));
    hf_session_flush_along(&session, now);
    CHECK_STR(output_of(&session), "C");
    feed(&session, ":1\r\n:2\r\n", now);
    CHECK_STR(two.outcome, "1");
    CHECK(!session.closing);
    finish();
}

TEST(a_deferred_request_without_a_reply_times_out_measured_from_its_sending) {
    struct call one;
    start_open();
    prepare(&one, NULL, "A");
    CHECK(hf_session_send_along(&session, &one.request));
    hf_time later = hf_time_add(AT(1), config.command_timeout);
    hf_session_flush_along(&session, later);
    hf_session_tick(&session, later);
    CHECK_WANTS(NOTHING, later);
    hf_time soon = hf_time_add(later, 250 * HF_MS); /* the connection was quiet before */
    CHECK_EQ_U64(hf_session_deadline(&session), soon);
    finish();
}

TEST(a_deferred_request_is_not_sent_over_the_next_connection) {
    struct call along, next;
    start_open();
    prepare(&along, NULL, "A");
    CHECK(hf_session_send_along(&session, &along.request));
    hf_session_closed(&session, "reset", AT(1));
    submit(&next, "B", 3000, AT(1));
    open_session(&session, AT(1000));
    CHECK_STR(output_of(&session), "B");
    feed(&session, "+B\r\n", AT(1001)); /* the first reply of this connection */
    CHECK_STR(next.outcome, "B");
    finish();
}

TEST(a_reply_as_long_as_the_limit_is_accepted) {
    struct call one;
    char head[32];
    start();
    session.max_elements = 2 * HF_REPLY_MAX_ELEMENTS;
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    snprintf(head, sizeof head, "*%d\r\n", HF_REPLY_MAX_ELEMENTS + 10);
    feed(&session, head, AT(1));
    CHECK_WANTS(NOTHING, AT(1));
    finish();
}

TEST(the_run_id_stored_on_a_server_is_stored_again_if_it_has_vanished) {
    log_in_to("# Server\r\nrun_id:a\r\n");
    hf_session_vouch(&session, AT(2));
    CHECK_STR(output_of(&session), "SET holdfast_known a");
    hf_session_closed(&session, "gone", AT(1000));
    open_session(&session, AT(2000));
    output_of(&session);
    feed(&session, "$20\r\n# Server\r\nrun_id:a\r\n\r\n$-1\r\n", AT(2001));
    hf_session_vouch(&session, AT(2002));
    CHECK_STR(output_of(&session), "SET holdfast_known a");
    hf_session_free(&session);
}

/* ---- commands that replicas confirm ---- */

static void submit_confirmed(struct call *call, uint32_t replicas, int deadline_ms, hf_time now) {
    prepare(call, NULL, "A");
    if (!hf_request_confirm(&call->request, replicas, HF_SECOND)) abort();
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

TEST(a_reply_is_delivered_only_after_the_reply_to_its_wait_command) {
    struct call one, two;
    start_open();
    submit_confirmed(&one, 2, 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_STR(output_of(&session), "A\nWAIT 2 1000\nB");
    feed(&session, ":5\r\n", AT(1));
    CHECK_STR(one.outcome, "");
    CHECK(hf_session_has_work(&session));
    feed(&session, ":2\r\n:6\r\n", AT(2));
    CHECK_STR(one.outcome, "5");
    CHECK(hf_request_is_confirmed(&one.request));
    CHECK_STR(two.outcome, "6");
    CHECK(!hf_session_has_work(&session));
    finish();
}

TEST(the_reply_of_a_wait_command_says_how_many_replicas_confirmed) {
    static const struct {
        const char *reply;
        uint32_t confirmed;
        const char *why;
    } cases[] = {{":3\r\n", 3, ""},
                 {":1\r\n", 1, ""},
                 {":0\r\n", 0, ""},
                 {":-1\r\n", 0, ""},
                 {":4294967297\r\n", UINT32_MAX, ""},
                 {"+OK\r\n", 0, ""},
                 {"-NOPERM no\r\n", 0, "NOPERM no"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct call one;
        start_open();
        submit_confirmed(&one, 2, 3000, AT(0));
        one.request.confirmed = 7;
        feed(&session, ":5\r\n", AT(1));
        feed(&session, cases[i].reply, AT(1));
        CHECK_STR(one.outcome, "5");
        CHECK_EQ_U64(one.request.confirmed, cases[i].confirmed);
        CHECK_EQ_INT(hf_request_is_confirmed(&one.request), cases[i].confirmed >= 2);
        CHECK_STR(hf_fault_text(&one.request.failure), cases[i].why);
        finish();
    }
}

TEST(the_replicas_confirmation_of_a_failed_command_is_ignored) {
    struct call one, two;
    start_open();
    submit_confirmed(&one, 1, 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    feed(&session, "-ERR no\r\n:1\r\n:6\r\n", AT(1));
    CHECK_STR(one.outcome, "server: ERR no");
    CHECK_EQ_INT(one.calls, 1);
    CHECK_EQ_INT(one.request.confirmed, 0);
    CHECK_STR(two.outcome, "6");
    finish();
}

TEST(a_request_refused_by_a_replica_is_resent_in_order_together_with_its_wait_command) {
    struct call one, two, three;
    start();
    session.follows_master = true;
    open_session(&session, AT(0));
    feed(&session, MASTER, AT(0));
    submit_confirmed(&one, 1, 3000, AT(0));
    submit_confirmed(&two, 1, 3000, AT(0));
    submit(&three, "B", 3000, AT(0));
    output_of(&session);
    feed(&session, ":5\r\n:1\r\n-READONLY no\r\n:0\r\n:6\r\n", AT(1));
    CHECK_STR(one.outcome, "5");
    CHECK_STR(two.outcome, "");
    CHECK_EQ_INT(two.request.sends, 0);
    hf_session_closed(&session, "closed by us", AT(1));
    hf_session_resolve(&session);
    open_session(&session, AT(200));
    output_of(&session);
    feed(&session, MASTER, AT(200));
    CHECK_STR(output_of(&session), "A\nWAIT 1 1000\nB");
    feed(&session, ":7\r\n:1\r\n:8\r\n", AT(201));
    CHECK_STR(two.outcome, "7");
    CHECK_EQ_U64(two.request.confirmed, 1);
    CHECK_STR(three.outcome, "8");
    finish();
}

TEST(a_request_that_was_never_sent_does_not_fail_with_what_a_replica_replied_to_another) {
    struct call one, two;
    start_open();
    submit(&one, "A", 400, AT(0));
    feed(&session, "-READONLY no\r\n", AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    submit(&two, "B", 400, AT(1));
    hf_session_opening(&session, AT(2));
    hf_session_tick(&session, AT(400));
    CHECK_STR(one.outcome, "denied: READONLY no");
    CHECK_STR(two.outcome, "unreachable: no reply in time");
    finish();
}

TEST(a_request_refused_by_a_replica_can_be_dropped_before_it_is_resent) {
    struct call one;
    start();
    session.follows_master = true;
    open_session(&session, AT(0));
    feed(&session, MASTER, AT(0));
    submit_confirmed(&one, 1, 3000, AT(0));
    feed(&session, "-READONLY no\r\n", AT(1));
    hf_session_drop(&one.request);
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK(!hf_session_has_work(&session));
    finish();
}

TEST(a_command_is_resent_with_wait_if_its_connection_is_lost_after_its_reply_alone) {
    struct call one, two;
    start_open();
    submit_confirmed(&one, 1, 3000, AT(0));
    feed(&session, ":5\r\n", AT(1));
    hf_session_closed(&session, "reset", AT(1));
    submit(&two, "B", 3000, AT(1));
    output_of(&session);
    open_session(&session, AT(2));
    CHECK_STR(output_of(&session), "A\nWAIT 1 1000\nB");
    feed(&session, ":7\r\n:1\r\n:8\r\n", AT(3));
    CHECK_STR(one.outcome, "7");
    CHECK_STR(two.outcome, "8");
    finish();
}

TEST(a_request_can_be_dropped_between_its_reply_and_the_replicas_confirmation) {
    for (int replies = 0; replies <= 1; replies++) {
        struct call one, two;
        start_open();
        submit_confirmed(&one, 1, 3000, AT(0));
        submit(&two, "B", 3000, AT(0));
        if (replies == 1) feed(&session, ":5\r\n", AT(1));
        hf_session_drop(&one.request);
        feed(&session, replies == 1 ? ":1\r\n" : ":5\r\n:1\r\n", AT(1));
        CHECK_STR(two.outcome, "");
        feed(&session, ":8\r\n", AT(1));
        CHECK_STR(one.outcome, "");
        CHECK_STR(two.outcome, "8");
        finish();
    }
}

TEST(a_request_can_take_over_one_whose_reply_came_but_not_the_replicas_confirmation) {
    for (int replies = 0; replies <= 1; replies++) {
        struct call before, one, two, heir;
        start_open();
        submit(&before, "B", 3000, AT(0));
        submit_confirmed(&one, 1, 3000, AT(0));
        feed(&session, ":4\r\n", AT(0));
        submit(&two, "B", 3000, AT(0));
        if (replies == 1) feed(&session, ":5\r\n", AT(1));
        CHECK(inherit(&heir, &one));
        feed(&session, replies == 1 ? ":1\r\n" : ":5\r\n:1\r\n", AT(2));
        CHECK_STR(heir.outcome, "5");
        CHECK(hf_request_is_confirmed(&heir.request));
        CHECK_EQ_INT(one.calls, 0);
        feed(&session, ":8\r\n", AT(2));
        CHECK_STR(two.outcome, "8");
        finish();
    }
}

TEST(a_request_times_out_if_its_wait_command_gets_no_reply) {
    struct call one, two;
    start_open();
    submit_confirmed(&one, 1, 100, AT(0));
    submit(&two, "B", 3000, AT(0));
    feed(&session, ":5\r\n", AT(1));
    hf_session_tick(&session, AT(100));
    CHECK_STR(one.outcome, "unreachable: no reply in time");
    feed(&session, ":1\r\n:8\r\n", AT(101));
    CHECK_EQ_INT(one.calls, 1);
    CHECK_STR(two.outcome, "8");
    finish();
}

TEST(two_connections_closed_at_their_first_command_are_reported_as_a_possible_proxy_problem) {
    for (int subscriber = 0; subscriber <= 1; subscriber++) {
        start();
        session.subscriber = subscriber;
        session.wanted = true;
        for (int i = 0; i < 2; i++) {
            open_session(&session, AT(5000 * i));
            feed(&session, "+", AT(5000 * i));
            hf_session_closed(&session, NULL, AT(5000 * i));
        }
        CHECK_STR(session.reason,
                  subscriber
                      ? "the connection was closed on SUBSCRIBE; is a proxy rejecting that command?"
                      : "the connection was closed on the first command; is a proxy "
                        "rejecting EVALSHA?");
        finish();
    }
}

TEST(a_restarted_server_does_not_count_as_known_before_its_stored_run_id_is_read) {
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hf_session_vouch(&session, AT(2));
    CHECK(hf_session_is_known(&session, HF_SECOND, AT(2)));
    hf_session_closed(&session, "restart", AT(3));
    open_session(&session, AT(3));
    feed(&session, "$12\r\n\nrun_id:xyz\r\r\n", AT(4));
    CHECK_STR(session.run_id, "xyz");
    CHECK(!hf_session_is_known(&session, HF_SECOND, AT(4)));
    feed(&session, "$3\r\nxyz\r\n", AT(5));
    CHECK(hf_session_is_known(&session, HF_SECOND, AT(5)));
    hf_session_free(&session);
}

TEST(a_login_sends_a_one_letter_password) {
    start();
    strcpy(config.server.password, "p");
    session.wanted = true;
    open_session(&session, AT(0));
    CHECK_STR(output_of(&session), "AUTH p");
    finish();
}

TEST(closing_a_subscription_connection_that_is_no_longer_needed_at_login_is_not_a_failure) {
    start();
    strcpy(config.name, "n");
    session.subscriber = session.wanted = true;
    open_session(&session, AT(0));
    CHECK_EQ_INT(session.state, HF_SESSION_LOGIN);
    session.wanted = false;
    hf_session_closed(&session, "closed", AT(1));
    CHECK_EQ_INT(session.failed_opens, 0);
    CHECK_STR(session.reason, "");
    finish();
}

TEST(a_request_that_ends_before_its_retry_reports_the_temporary_error) {
    struct call one;
    start_open();
    submit(&one, "A", 5, AT(0));
    output_of(&session);
    feed(&session, "-LOADING\r\n", AT(0));
    hf_session_tick(&session, AT(5) - 1);
    CHECK_STR(one.outcome, "");
    hf_session_tick(&session, AT(5));
    CHECK_STR(one.outcome, "unreachable: LOADING");
    CHECK_STR(output_of(&session), "");
    finish();
}

static bool takes_all(void *context, hf_request *request, const char *error, hf_time now) {
    (void)error, (void)now;
    *(int *)context += 1;
    request->state = HF_REQUEST_IDLE;
    return true;
}

TEST(a_request_that_must_not_be_resent_moves_to_another_server_only_if_it_was_never_sent) {
    for (int sends = 0; sends <= 1; sends++) {
        struct call one;
        int taken = 0;
        start();
        session.on_refusal = takes_all;
        session.context = &taken;
        submit(&one, "A", 3000, AT(0));
        one.request.no_retry = true;
        one.request.sends = (uint32_t)sends;
        hf_session_opening(&session, AT(0));
        hf_session_closed(&session, "refused", AT(0));
        CHECK_EQ_INT(taken, !sends);
        CHECK_STR(one.outcome, sends ? "unreachable: refused" : "");
        finish();
    }
}

TEST(a_run_id_of_one_letter_is_stored_on_its_server) {
    log_in_to("# Server\r\nrun_id:a\r\n");
    hf_session_closed(&session, "gone", AT(1000));
    open_session(&session, AT(2000));
    output_of(&session);
    feed(&session, "$20\r\n# Server\r\nrun_id:a\r\n\r\n$1\r\na\r\n", AT(2001));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK(session.vouched);
    hf_session_free(&session);
}

TEST(a_run_id_that_is_a_prefix_of_the_known_one_counts_as_a_different_server_run) {
    log_in_to("# Server\r\nrun_id:abcdef\r\n");
    hf_session_closed(&session, "gone", AT(1000));
    open_session(&session, AT(2000));
    feed(&session, "$21\r\n# Server\r\nrun_id:ab\r\n\r\n$-1\r\n", AT(2001));
    CHECK_STR(session.run_id, "ab");
    CHECK_EQ_U64(session.known_since, AT(2001));
    hf_session_free(&session);
}

TEST(a_closed_connection_is_reported_with_its_reason_even_if_that_is_one_letter) {
    struct call one;
    start();
    submit(&one, "A", 3000, AT(0));
    one.request.waits_for_connection = true;
    hf_session_opening(&session, AT(0));
    hf_session_closed(&session, "x", AT(0));
    hf_session_tick(&session, AT(3000));
    CHECK_STR(one.outcome, "unreachable: x");
    finish();
}

TEST(a_deferred_request_is_refused_unless_the_connection_is_open) {
    struct call one;
    start();
    prepare(&one, NULL, "A");
    CHECK(!hf_session_send_along(&session, &one.request));
    open_session(&session, AT(0));
    CHECK(hf_session_send_along(&session, &one.request));
    hf_session_abort(&session, AT(1));
    CHECK(!hf_session_send_along(&session, &one.request));
    CHECK_EQ_INT(session.piggyback_count, 1);
    finish();
}

CHECK_MAIN
