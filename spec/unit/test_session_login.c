#include "session_rig.h"

/* ---- opening and the log-in ---- */

TEST(a_login_sends_the_user_the_password_the_database_and_the_name_if_they_are_given) {
    CASES(const char *user, *password, *name; uint16_t db; const char *want) = {
        {"me", "se\r\ncret", "worker", 3,
         "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$8\r\nse\r\ncret\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
         "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$6\r\nworker\r\n"},
        {"guest", "", "", 0, "*3\r\n$4\r\nAUTH\r\n$5\r\nguest\r\n$0\r\n\r\n"},
        {"u", "p", "", 0, "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n"},
        {"", "p", "", 0, "*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n"},
    };
    EACH_CASE (i, cases) {
        strcpy(config.server.user, cases[i].user);
        strcpy(config.server.password, cases[i].password);
        strcpy(config.name, cases[i].name);
        config.server.db = cases[i].db;
        session.stays_open = true;
        connect_at(AT(0));
        hf_slice output = hf_session_output(&session);
        CHECK_MEM(output.data, output.size, cases[i].want, strlen(cases[i].want));
    }
}

/* Logs in with a password and db 1, and the name "n"; answers with `replies`; what the waiting call
 * came to. */
static const char *login_outcome(const char *replies) {
    start();
    strcpy(config.server.password, "secret");
    strcpy(config.name, "n");
    config.server.db = 1;
    submit(&one, "A", 3000, AT(0));
    connect_at(AT(0));
    output_of(&session);
    receive(replies, AT(1));
    if (hf_session_wants(&session, AT(1)) == HF_WANT_CLOSE) hang_up("closed by us", AT(1));
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
    config.fetches_login = true;
    hf_session_init(&session, &config, &random_state);
}

/* The driver has fetched this password. */
static void log_in(const char *password) {
    hf_session_fetching_login(&session);
    strcpy(config.server.password, password);
    hf_session_log_in_again(&session);
}

TEST(a_session_with_a_login_function_requests_a_new_login_before_each_connection) {
    start_asking();
    submit(&one, "A", 3000, AT(0)), CHECK_WANTS(LOGIN, AT(0));
    CHECK(!hf_session_may_open(&session));
    CHECK(hf_session_next_tick(&session) <= AT(0));
    hf_session_fetching_login(&session), CHECK_WANTS(NOTHING, AT(1));
    CHECK_EQ_U64(hf_session_next_tick(&session), AT(3000)); /* the driver comes by itself */
    strcpy(config.server.password, "first");
    hf_session_log_in_again(&session), CHECK_WANTS(OPEN, AT(1));
    CHECK_OPENED_SENDS(AT(1), "AUTH first");
    CHECK_REPLY("+OK\r\n+OK\r\n", AT(1), one, "OK");
    hf_session_log_in_again(&session); /* too late */
    hang_up(NULL, AT(2)), submit(&two, "B", 3000, AT(2));
    CHECK_WANTS(LOGIN, AT(2));
    CHECK(!hf_session_is_login_refused(&session));
    log_in("second");
    CHECK_OPENED_SENDS(AT(2), "AUTH second");
}

TEST(a_fetched_login_that_the_server_refuses_once_is_fetched_again_at_once) {
    static const char *const REFUSALS[] = {"-WRONGPASS no\r\n", "-ERR invalid password\r\n",
                                           "-ERR something new\r\n", "-NOAUTH no\r\n"};
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++) {
        start_asking();
        submit(&one, "A", 3000, AT(0));
        log_in("old");
        connect_at(AT(0));
        receive(REFUSALS[i], AT(1));
        hang_up("closed by us", AT(1));
        CHECK_STR(one.outcome, "");
        CHECK_WANTS(LOGIN, AT(1));
        CHECK(hf_session_is_login_refused(&session));
        log_in("new");
        connect_at(AT(1));
        CHECK_REPLY("+OK\r\n:1\r\n", AT(2), one, "1");
        CHECK(!hf_session_is_login_refused(&session));
    }
}

TEST(a_fetched_login_that_the_server_refuses_twice_fails_the_calls) {
    start_asking();
    submit(&one, "A", 3000, AT(0));
    for (int i = 0; i < 2; i++) {
        CHECK_STR(one.outcome, "");
        CHECK_WANTS(LOGIN, AT(i));
        log_in("wrong");
        connect_at(AT(i));
        receive("-WRONGPASS no\r\n", AT(i));
        hang_up("closed by us", AT(i));
    }
    CHECK_STR(one.outcome, "denied: WRONGPASS no");
    submit(&two, "B", 3000, AT(2)), CHECK_WANTS(LOGIN, AT(2));
}

TEST(a_connection_whose_login_was_refused_is_not_opened_again_before_a_new_login_is_fetched) {
    start_asking();
    strcpy(config.server.password, "old");
    session.stays_open = true;
    CHECK(!hf_session_needs_other_login(&session));
    for (int i = 0; i < 2; i++) {
        hf_session_log_in_again(&session);
        connect_at(AT(i));
        receive("-NOAUTH no\r\n", AT(i));
        hang_up("closed by us", AT(i));
    }
    CHECK_WANTS(NOTHING, AT(1));
    CHECK(hf_session_needs_other_login(&session));
    log_in("new"), CHECK(!hf_session_needs_other_login(&session));
    CHECK_WANTS(NOTHING, AT(1)); /* the pause after a refusal stays */
    CHECK_WANTS(OPEN, AT(100));
    session.stays_open = false;
}

TEST(calls_that_do_not_wait_fail_at_once_if_the_login_function_fails) {
    static struct call patient;
    start_asking();
    submit(&one, "A", 3000, AT(0));
    submit_patient(&patient, "B", 3000, AT(0));
    hf_session_fetching_login(&session);
    hf_session_login_failed(&session, HF_UNREACHABLE, "the vault is closed", AT(1));
    CHECK_STR(one.outcome, "unreachable: the vault is closed");
    CHECK_STR(patient.outcome, "");
    CHECK_WANTS(NOTHING, AT(1));
    CHECK_WANTS(LOGIN, AT(50));
    hf_session_login_failed(&session, HF_UNREACHABLE, "late", AT(50)); /* nobody was asked */
    CHECK_STR(patient.outcome, "");
}

TEST(a_login_is_requested_again_if_the_task_that_was_fetching_it_ended) {
    start_asking();
    submit(&one, "A", 3000, AT(0));
    hf_session_fetching_login(&session);
    hang_up("the task has ended", AT(1)), CHECK_STR(one.outcome, ""), CHECK_WANTS(LOGIN, AT(1));
}

TEST(a_connection_whose_login_the_server_forgot_is_reopened_once) {
    start_asking();
    submit(&one, "A", 3000, AT(0));
    log_in("old");
    connect_at(AT(0));
    receive("+OK\r\n", AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_SENDS("AUTH old\nA\nB");
    receive("-NOAUTH Authentication required.\r\n", AT(1)), CHECK_WANTS(CLOSE, AT(1));
    hang_up("closed by us", AT(1)), CHECK_WANTS(LOGIN, AT(20));
    log_in("new");
    connect_at(AT(20));
    CHECK_REPLY_SENDS("+OK\r\n", AT(20), "AUTH new\nA\nB");
    CHECK_REPLY(":1\r\n-NOAUTH no\r\n", AT(21), one, "1");
    CHECK_STR(two.outcome, "denied: NOAUTH no"); /* it does not help */
}

TEST(a_session_whose_url_has_a_password_does_not_call_the_login_function) {
    strcpy(config.server.password, "secret");
    submit(&one, "A", 3000, AT(0)), CHECK(!hf_session_needs_other_login(&session));
    connect_at(AT(0));
    receive("+OK\r\n-NOAUTH no\r\n", AT(0));
    CHECK_WANTS(CLOSE, AT(1)); /* the server may have forgotten the log-in */
    hang_up("closed by us", AT(1)), CHECK_WANTS(OPEN, AT(20));
    connect_at(AT(20));
    CHECK_REPLY("+OK\r\n-NOAUTH no\r\n", AT(20), one, "denied: NOAUTH no");
}

TEST(a_login_succeeds_even_if_the_server_refuses_client_setname) {
    CHECK_STR(login_outcome("+OK\r\n+OK\r\n-ERR unknown command 'CLIENT'\r\n"), "ready");
    CHECK_STR(login_outcome(
                  "+OK\r\n+OK\r\n-NOPERM this user has no permissions to run 'client|setname'\r\n"),
              "ready");
}

/* The outcome of a command sent to a server whose INFO is this. */
static const char *outcome_at(const char *info) {
    start();
    config.reads_server_info = true;
    submit(&one, "A", 3000, AT(0));
    connect_at(AT(0));
    receive(printed("$%zu\r\n%s\r\n", strlen(info), info), AT(1));
    if (hf_session_wants(&session, AT(1)) == HF_WANT_CLOSE) hang_up("closed by us", AT(1));
    else receive("+OK\r\n", AT(1));
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
    config.reads_server_info = config.tests_script_isolation = true;
    session.stays_open = true;
    connect_at(AT(0)), CHECK(strstr(output_of(&session), "getmetatable"));
    receive("$0\r\n\r\n", AT(1));
    receive(answer, AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK_EQ_INT(session.lacks_script_isolation, exposed);
}

TEST(a_login_detects_a_server_whose_lua_scripts_can_change_each_others_globals) {
    check_exposed(":1\r\n", true);
    check_exposed(":0\r\n", false);
    check_exposed("$1\r\n1\r\n", false);
    check_exposed("-NOPERM this user has no permissions to run the 'eval' command\r\n", false);
    check_exposed("-MASTERDOWN Link with MASTER is down\r\n", false);
    check_exposed("-BUSY Redis is busy running a script.\r\n", false);
}

TEST(a_login_that_lacks_any_reply_is_retried_over_a_new_connection) {
    static const char *const received[] = {"", "+O", "+OK\r\n", "+OK\r\n+O"};
    EACH_CASE (i, received) {
        strcpy(config.name, "n");
        config.server.db = 5;
        submit(&one, "A", 60000, AT(0));
        connect_at(AT(0));
        receive(received[i], AT(1));
        CHECK_EQ_U64(hf_session_next_tick(&session), AT(1500));
        CHECK_TICK_WANTS(NOTHING, AT(1499));
        CHECK_TICK_WANTS(CLOSE, AT(1500));
        hang_up("closed by us", AT(1500)), CHECK_STR(one.outcome, "");
        connect_at(AT(1600)), CHECK_EQ_U64(hf_session_next_tick(&session), AT(4600));
        CHECK_REPLY_SENDS("+OK\r\n+OK\r\n", AT(4000), "SELECT 5\nCLIENT SETNAME n\nA");
        CHECK_REPLY(":1\r\n", AT(4001), one, "1");
    }
}

/* ---- which run of the server it is ---- */

/* Logs in to a server whose INFO is this, and which has no mark. */
static void log_in_to(const char *info) {
    start();
    config.reads_server_info = config.reads_known_run = true;
    session.stays_open = true;
    connect_at(AT(0));
    output_of(&session);
    receive(printed("$%zu\r\n%s\r\n$-1\r\n", strlen(info), info), AT(1));
}

#define RUN_OF_40 "0123456789012345678901234567890123456789"

TEST(a_server_restart_is_recognized_by_the_changed_run_id) {
    CASES(const char *info, *run_id) = {
        {"# Server\r\nrun_id:abc\r\n", "abc"},
        {"# Server\r\nrun_id:" RUN_OF_40 "\r\n", RUN_OF_40},
        {"# Server\r\nrun_id:" RUN_OF_40 "x\r\n", ""}, /* longer than any */
        {"# Server\r\n", ""},
        {"# Server\r\nmy_run_id:abc\r\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        log_in_to(cases[i].info), CHECK_EQ_INT(session.state, HF_SESSION_READY);
        CHECK_STR(session.run_id, cases[i].run_id);
        CHECK_EQ_U64(session.known_since, AT(1));
    }
}

TEST(a_servers_run_id_is_stored_on_it_only_once_and_only_over_an_open_connection) {
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hf_session_store_run_id(&session, AT(2)), CHECK_SENDS("SET holdfast_known abc");
    hf_session_store_run_id(&session, AT(2)); /* once */
    CHECK_SENDS("");
    receive("+OK\r\n", AT(3));
    log_in_to("# Server\r\n");
    hf_session_store_run_id(&session, AT(2)), CHECK_SENDS("");
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hang_up("gone", AT(2));
    hf_session_store_run_id(&session, AT(3)), CHECK(!session.run_id_stored);
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hf_session_abort(&session, AT(1));
    hf_session_store_run_id(&session, AT(3)), CHECK(!session.run_id_stored);
}

TEST(a_request_that_stores_a_servers_run_id_times_out_measured_from_its_sending) {
    log_in_to("# Server\r\nrun_id:abc\r\n"), CHECK_EQ_U64(hf_session_next_tick(&session), HF_NEVER);
    hf_session_store_run_id(&session, AT(50000)), CHECK_EQ_U64(session.awaiting_since, AT(50000));
    receive("+OK\r\n", AT(50001));
    submit(&one, "A", 70000, AT(60000));
    session.run_id_stored = false;
    hf_session_store_run_id(&session, AT(60500)); /* behind another command */
    CHECK_EQ_U64(session.awaiting_since, AT(60000));
    receive(":1\r\n+OK\r\n", AT(60501));
}

TEST(a_connection_is_closed_if_there_is_no_memory_for_its_login) {
    EACH_FAILURE(nth, 1) {
        start();
        strcpy(config.server.user, "u");
        strcpy(config.server.password, "secret");
        strcpy(config.name, "worker");
        config.server.db = 3;
        session.stays_open = true;
        hf_session_opening(&session, AT(0));
        memerr_fail(nth);
        hf_session_opened(&session, AT(0));
        bool failed = memerr_end();
        CHECK_EQ_INT(hf_session_wants(&session, AT(0)), failed ? HF_WANT_CLOSE : HF_WANT_NOTHING);
    }
}

TEST(the_run_id_stored_on_a_server_is_stored_again_if_it_has_vanished) {
    log_in_to("# Server\r\nrun_id:a\r\n");
    hf_session_store_run_id(&session, AT(2)), CHECK_SENDS("SET holdfast_known a");
    reopen("gone", AT(1000), AT(2000));
    output_of(&session);
    receive("$20\r\n# Server\r\nrun_id:a\r\n\r\n$-1\r\n", AT(2001));
    hf_session_store_run_id(&session, AT(2002)), CHECK_SENDS("SET holdfast_known a");
}

TEST(a_restarted_server_does_not_count_as_known_before_its_stored_run_id_is_read) {
    log_in_to("# Server\r\nrun_id:abc\r\n");
    hf_session_store_run_id(&session, AT(2)),
        CHECK(hf_session_is_known(&session, HF_SECOND, AT(2)));
    reopen("restart", AT(3), AT(3));
    receive("$12\r\n\nrun_id:xyz\r\r\n", AT(4)), CHECK_STR(session.run_id, "xyz");
    CHECK(!hf_session_is_known(&session, HF_SECOND, AT(4)));
    receive("$3\r\nxyz\r\n", AT(5)), CHECK(hf_session_is_known(&session, HF_SECOND, AT(5)));
}

TEST(a_server_is_recognized_after_a_reconnect_by_its_whole_run_id) {
    CASES(const char *before, *run_id, *stored; bool is_same, run_id_stored) =
        LIST({"a", "a", "", true, false}, {"a", "a", "a", true, true},
             {"abcdef", "ab", "", false, false});
    EACH_CASE (i, cases) {
        log_in_to(printed("# Server\r\nrun_id:%s\r\n", cases[i].before));
        CHECK_EQ_U64(session.known_since, AT(1));
        reopen("gone", AT(1000), AT(2000));
        const char *info = printed("# Server\r\nrun_id:%s\r\n", cases[i].run_id);
        receive(printed("$%zu\r\n%s\r\n", strlen(info), info), AT(2001));
        receive(cases[i].stored[0] ? printed("$1\r\n%s\r\n", cases[i].stored) : "$-1\r\n",
                AT(2001));
        CHECK_EQ_INT(session.state, HF_SESSION_READY);
        CHECK_STR(session.run_id, cases[i].run_id);
        CHECK_EQ_U64(session.known_since, cases[i].is_same ? AT(1) : AT(2001));
        CHECK_EQ_INT(session.run_id_stored, cases[i].run_id_stored);
    }
}

CHECK_MAIN
