#include "session.h"

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

static void on_done(hf_request *request, const hf_reply *reply, hf_time now)
{
    struct call *call = request->context;
    call->calls++;
    if (!reply) {
        snprintf(call->outcome, sizeof call->outcome, "%s: %.200s",
                 hf_code_name(request->failure.code), request->failure.text);
    } else if (reply->type == HF_REPLY_INTEGER) {
        snprintf(call->outcome, sizeof call->outcome, "%lld", reply->integer);
    } else {
        snprintf(call->outcome, sizeof call->outcome, "%.200s",
                 reply->string ? reply->string : "done");
    }
    if (call->then) hf_session_submit(&session, &call->then->request, now);
}

static void start(void)
{
    random_state = 1;
    config = DRIVE_CONFIG;
    hf_session_init(&session, &config, &random_state);
}

static void prepare(struct call *call, const hf_program *program, const char *text)
{
    hf_slice arg = hf_slice_of(text);
    memset(call, 0, sizeof *call);
    bool encoded = program ? hf_request_call(&call->request, program, 1, 1, &arg)
                           : hf_request_command(&call->request, 1, &arg);
    if (!encoded) abort();
    call->request.done = on_done;
    call->request.context = call;
}

static void submit(struct call *call, const char *text, int deadline_ms, hf_time now)
{
    prepare(call, NULL, text);
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

static void submit_program(struct call *call, const char *text, int deadline_ms, hf_time now)
{
    prepare(call, hf_program_info(HF_LAYOUT_LOCK), text);
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

static void discard(struct call *call)
{
    hf_session_drop(&call->request);
    hf_request_clear(&call->request);
}

#define CHECK_WANTS(want, now) CHECK_EQ_INT(hf_session_wants(&session, now), HF_WANT_##want)

/* ---- opening and the log-in ---- */

TEST(a_session_without_work_wants_nothing)
{
    start();
    CHECK_WANTS(NOTHING, AT(0));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    CHECK(!hf_session_has_work(&session));
    session.wanted = true;
    CHECK_WANTS(OPEN, AT(0));
    hf_session_free(&session);
}

TEST(without_login_it_is_ready_at_once)
{
    struct call one;
    start();
    submit(&one, "A", 3000, AT(0));
    CHECK(hf_session_has_work(&session));
    CHECK_WANTS(OPEN, AT(0));
    hf_session_opening(&session, AT(0));
    CHECK_WANTS(NOTHING, AT(0));
    CHECK_STR(said(&session), "");
    hf_session_opened(&session, AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK_STR(said(&session), "A");
    hear(&session, "+OK\r\n", AT(2));
    CHECK_STR(one.outcome, "OK");
    CHECK(!hf_session_has_work(&session));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    discard(&one);
    hf_session_free(&session);
}

TEST(login_says_who_and_where)
{
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
    hear(&session, "+OK\r\n+OK\r\n", AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_LOGIN);
    CHECK_STR(said(&session), "");
    hear(&session, "+OK\r\n", AT(1));
    CHECK_EQ_INT(session.state, HF_SESSION_READY);
    CHECK_STR(said(&session), "A");
    hear(&session, ":1\r\n", AT(2));
    CHECK_STR(one.outcome, "1");
    discard(&one);
    hf_session_free(&session);
}

TEST(a_password_without_a_user)
{
    start();
    strcpy(config.server.password, "secret");
    session.wanted = true;
    open_session(&session, AT(0));
    CHECK_STR(said(&session), "AUTH secret");
    hf_session_free(&session);
}

/* Logs in with a password and db 1, and the name "n"; answers with `replies`; what the waiting call
 * came to. */
static const char *login_outcome(const char *replies)
{
    static struct call one;
    start();
    strcpy(config.server.password, "secret");
    strcpy(config.name, "n");
    config.server.db = 1;
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    said(&session);
    hear(&session, replies, AT(1));
    if (hf_session_wants(&session, AT(1)) == HF_WANT_CLOSE)
        hf_session_closed(&session, "closed by us", AT(1));
    if (session.state == HF_SESSION_READY) strcpy(one.outcome, "ready");
    discard(&one);
    hf_session_free(&session);
    return one.outcome;
}

TEST(a_refused_login)
{
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

TEST(a_refused_name_is_only_a_missing_name)
{
    CHECK_STR(login_outcome("+OK\r\n+OK\r\n-ERR unknown command 'CLIENT'\r\n"), "ready");
    CHECK_STR(login_outcome(
                  "+OK\r\n+OK\r\n-NOPERM this user has no permissions to run 'client|setname'\r\n"),
              "ready");
}

TEST(a_name_refused_for_want_of_a_password)
{
    struct call one;
    start();
    strcpy(config.name, "n");
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    CHECK_STR(said(&session), "CLIENT SETNAME n");
    hear(&session, "-NOAUTH Authentication required.\r\n", AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(one.outcome, "denied: NOAUTH Authentication required.");
    discard(&one);
    hf_session_free(&session);
}

TEST(a_login_without_an_answer)
{
    struct call one;
    start();
    strcpy(config.name, "n");
    submit(&one, "A", 60000, AT(0));
    open_session(&session, AT(0));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(3000));
    hf_session_tick(&session, AT(2999));
    CHECK_WANTS(NOTHING, AT(2999));
    hf_session_tick(&session, AT(3000));
    CHECK_WANTS(CLOSE, AT(3000));
    hf_session_closed(&session, "closed by us", AT(3000));
    CHECK_STR(one.outcome, "unreachable: no reply in time");
    discard(&one);
    hf_session_free(&session);
}

TEST(a_connection_that_is_not_made)
{
    struct call one;
    start();
    submit(&one, "A", 60000, AT(0));
    hf_session_opening(&session, AT(0));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(1000));
    hf_session_tick(&session, AT(1000));
    CHECK_WANTS(CLOSE, AT(1000));
    hf_session_closed(&session, "closed by us", AT(1000));
    CHECK_STR(one.outcome, "unreachable: no connection in time");
    discard(&one);
    hf_session_free(&session);
}

/* ---- refusals and back-off ---- */

TEST(a_refused_connection_fails_at_once_but_not_the_patient)
{
    struct call one, two, three;
    start();
    submit(&one, "A", 3000, AT(0));
    prepare(&two, NULL, "B");
    two.request.patient = true;
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
    discard(&one);
    discard(&two);
    discard(&three);
    hf_session_free(&session);
}

static const char CLOSED[] = "unreachable: the server closed the connection";
static const char CLOSED_AT_LOGIN[] =
    "unreachable: the server closed the connection at log-in; if it expects TLS, use rediss://";

/* What a call hears of a server that closes the connection, after it has said `word`. */
static const char *outcome_of_hang_up(const char *word)
{
    static struct call one;
    strcpy(config.name, "n");
    hf_session_init(&session, &config, &random_state);
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    if (*word) hear(&session, word, AT(1));
    hf_session_closed(&session, NULL, AT(1));
    discard(&one);
    hf_session_free(&session);
    return one.outcome;
}

TEST(a_server_that_hangs_up_without_a_word_may_expect_tls)
{
    start();
    CHECK_STR(outcome_of_hang_up(""), CLOSED_AT_LOGIN);
    CHECK_STR(outcome_of_hang_up("+"), CLOSED);
    CHECK_STR(outcome_of_hang_up("\x15\x03\x03"), "unreachable: the server speaks TLS; use rediss://");
    CHECK_STR(outcome_of_hang_up("\x15\x04"), "unreachable: the reply is not Redis protocol");
    config.server.tls = true;
    CHECK_STR(outcome_of_hang_up(""), CLOSED);
    config.server.tls = false;
    config.server.port = 0;
    CHECK_STR(outcome_of_hang_up(""), CLOSED);
}

TEST(the_handshake_counts_as_connecting)
{
    struct call one, two;
    start();
    submit(&one, "A", 3000, AT(0));
    hf_session_opening(&session, AT(0));
    hf_session_agreeing(&session);
    CHECK_EQ_U64(hf_session_deadline(&session), AT(1000));
    hf_session_tick(&session, AT(1000));
    CHECK_WANTS(CLOSE, AT(1000));
    hf_session_closed(&session, "closed by us", AT(1000));
    CHECK_STR(one.outcome, "unreachable: no TLS handshake in time; does the server speak TLS?");
    submit(&two, "B", 9000, AT(2000));
    hf_session_opening(&session, AT(2000));
    hf_session_tick(&session, AT(3000));
    hf_session_closed(&session, "closed by us", AT(3000));
    CHECK_STR(two.outcome, "unreachable: no connection in time");
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

TEST(back_off_doubles_with_jitter_up_to_a_second)
{
    hf_time now = AT(0), most = 10 * HF_MS;
    start();
    session.wanted = true;
    bool varies = false;
    for (int i = 0; i < 40; i++) {
        CHECK_WANTS(OPEN, now);
        hf_session_opening(&session, now);
        hf_session_closed(&session, "refused", now);
        hf_time delay = hf_session_deadline(&session) - now;
        CHECK_OR(delay >= most / 2 && delay <= most, "try %d after %llu", i,
                 (unsigned long long)delay);
        varies = varies || (delay != most / 2 && delay != most);
        CHECK_WANTS(NOTHING, now + delay - 1);
        now += delay;
        most = hf_time_min(most * 2, HF_SECOND);
    }
    CHECK(varies);
    hf_session_free(&session);
}

TEST(a_call_does_not_wait_for_the_back_off)
{
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
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

TEST(after_a_good_connection_the_next_is_made_at_once)
{
    struct call one;
    start();
    session.wanted = true;
    for (int i = 0; i < 5; i++) {
        hf_session_opening(&session, AT(0));
        hf_session_closed(&session, "refused", AT(0));
    }
    open_session(&session, AT(5000));
    submit(&one, "A", 9000, AT(5000));
    hear(&session, "+OK\r\n", AT(5000));
    hf_session_closed(&session, "reset", AT(5001));
    CHECK_WANTS(OPEN, AT(5001));
    hf_session_opening(&session, AT(5001));
    hf_session_closed(&session, "refused", AT(5001));
    CHECK(hf_session_deadline(&session) <= AT(5011));
    discard(&one);
    hf_session_free(&session);
}

/* As a proxy does whose server is gone. */
TEST(a_peer_that_accepts_and_closes_without_a_word_is_not_hammered)
{
    struct call one;
    int opens = 0;
    start();
    session.wanted = true;
    submit(&one, "A", 10000, AT(0));
    for (hf_time now = AT(0); now < AT(10000); opens++) {
        CHECK_WANTS(OPEN, now);
        open_session(&session, now);
        CHECK_STR(said(&session), "A");
        hf_session_closed(&session, "closed by the server", now);
        hf_time next = hf_session_deadline(&session);
        CHECK(next > now);
        now = next;
    }
    CHECK_OR(opens < 40, "%d connections in ten seconds", opens);
    CHECK_STR(one.outcome, "");
    hf_session_tick(&session, AT(10000));
    CHECK_STR(one.outcome, "unreachable: closed by the server");
    discard(&one);
    hf_session_free(&session);
}

TEST(a_refused_login_is_not_hammered)
{
    start();
    strcpy(config.server.password, "secret");
    session.wanted = true;
    hf_time now = AT(0);
    int opens = 0;
    for (; now < AT(10000); opens++) {
        open_session(&session, now);
        hear(&session, "-WRONGPASS no\r\n", now);
        hf_session_closed(&session, "closed by us", now);
        CHECK(hf_session_deadline(&session) > now);
        now = hf_session_deadline(&session);
    }
    CHECK_OR(opens < 40, "%d connections in ten seconds", opens);
    hf_session_free(&session);
}

TEST(a_peer_of_one_word_is_not_hammered)
{
    start();
    session.wanted = true;
    hf_time now = AT(0);
    int opens = 0;
    for (; now < AT(10000); opens++) {
        open_session(&session, now);
        hear(&session, "-ERR max number of clients reached\r\n", now);
        hf_session_closed(&session, "closed by the server", now);
        CHECK(hf_session_deadline(&session) > now);
        now = hf_session_deadline(&session);
    }
    CHECK_OR(opens < 40, "%d connections in ten seconds", opens);
    hf_session_free(&session);
}

/* ---- commands and replies ---- */

TEST(commands_go_out_together_and_replies_come_in_order)
{
    struct call calls[50];
    char text[16];
    start();
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof text, "C%d", i);
        if (i == 20) open_session(&session, AT(0));
        submit(&calls[i], text, 3000, AT(0));
    }
    const char *line = said(&session);
    for (int i = 0; i < 50; i++) {
        size_t size = (size_t)snprintf(text, sizeof text, "C%d", i);
        CHECK(strncmp(line, text, size) == 0);
        line += size + 1;
    }
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof text, ":%d\r\n", i);
        hear(&session, text, AT(1));
        snprintf(text, sizeof text, "%d", i);
        CHECK_STR(calls[i].outcome, text);
    }
    for (int i = 0; i < 50; i++)
        discard(&calls[i]);
    hf_session_free(&session);
}

TEST(a_reply_may_come_in_any_pieces)
{
    static const char bytes[] = "*2\r\n:1\r\n$2\r\nab\r\n-ERR no\r\n:3\r\n";
    for (size_t cut = 1; cut < sizeof bytes - 1; cut++) {
        struct call one, two, three;
        start();
        open_session(&session, AT(0));
        submit(&one, "A", 3000, AT(0));
        submit(&two, "B", 3000, AT(0));
        submit(&three, "C", 3000, AT(0));
        hear_bytes(&session, bytes, cut, AT(1));
        hear_bytes(&session, bytes + cut, sizeof bytes - 1 - cut, AT(1));
        CHECK_STR(one.outcome, "done");
        CHECK_STR(two.outcome, "server: ERR no");
        CHECK_STR(three.outcome, "3");
        discard(&one);
        discard(&two);
        discard(&three);
        hf_session_free(&session);
    }
}

TEST(output_is_written_in_any_pieces)
{
    struct call one;
    char got[64];
    size_t size = 0;
    start();
    open_session(&session, AT(0));
    submit(&one, "ABC", 3000, AT(0));
    while (hf_session_output(&session).size > 0) {
        got[size++] = hf_session_output(&session).data[0];
        hf_session_written(&session, 1);
    }
    CHECK_MEM(got, size, "*1\r\n$3\r\nABC\r\n", 13);
    discard(&one);
    hf_session_free(&session);
}

TEST(a_dropped_request_has_its_reply_ignored)
{
    struct call one, two, three;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    submit(&three, "C", 3000, AT(0));
    discard(&two);
    hear(&session, ":1\r\n:2\r\n:3\r\n", AT(1));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "");
    CHECK_STR(three.outcome, "3");
    CHECK_EQ_INT(session.closing, false);
    discard(&one);
    discard(&three);
    hf_session_free(&session);
}

TEST(a_request_dropped_in_the_queue_is_never_sent)
{
    struct call one, two, three;
    start();
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    discard(&two);
    submit(&three, "C", 3000, AT(0));
    discard(&one);
    open_session(&session, AT(0));
    CHECK_STR(said(&session), "C");
    discard(&three);
    hf_session_free(&session);
}

TEST(what_a_done_submits_goes_out_after_the_rest)
{
    struct call one, two, three;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    prepare(&three, NULL, "C");
    three.request.deadline = AT(3000);
    one.then = &three;
    CHECK_STR(said(&session), "A\nB");
    hear(&session, ":1\r\n:2\r\n", AT(1));
    CHECK_STR(said(&session), "C");
    CHECK_STR(two.outcome, "2");
    hear(&session, ":3\r\n", AT(1));
    CHECK_STR(three.outcome, "3");
    discard(&one);
    discard(&two);
    discard(&three);
    hf_session_free(&session);
}

/* ---- what is not an answer ---- */

static void check_given_up(const char *bytes, const char *reason)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 60000, AT(0));
    hear(&session, bytes, AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    CHECK_STR(one.outcome, "");
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(session.reason, reason);
    CHECK_STR(one.outcome, ""); /* its outcome is unknown: it is sent again */
    CHECK_WANTS(OPEN, HF_SECOND + AT(1));
    discard(&one);
    hf_session_free(&session);
}

TEST(garbage_ends_the_connection)
{
    static const char *const garbage[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                          "*1000000000\r\n",
                                          "*4097\r\n",
                                          "*2\r\n*4096\r\n",
                                          "\x16\x03\x01",
                                          "$-5\r\n",
                                          ":1x\r\n",
                                          "*1\r\n*1\r\n*1\r\n*5000\r\n"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        check_given_up(garbage[i], "the reply is not Redis protocol");
    }
}

TEST(an_endless_reply_ends_the_connection)
{
    static char bytes[1 << 20];
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 60000, AT(0));
    hear(&session, "$999999999999\r\n", AT(1));
    for (int i = 0; i < 5 && !session.closing; i++)
        hear_bytes(&session, bytes, sizeof bytes, AT(2));
    CHECK_WANTS(CLOSE, AT(2));
    discard(&one);
    hf_session_free(&session);
}

TEST(a_reply_to_no_command_ends_the_connection)
{
    start();
    session.wanted = true;
    open_session(&session, AT(0));
    hear(&session, "+OK\r\n", AT(1));
    CHECK_WANTS(CLOSE, AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(session.reason, "a reply to no command");
    open_session(&session, AT(1000));
    hear(&session, "-ERR Protocol error: unbalanced quotes in request\r\n", AT(1000));
    hf_session_closed(&session, "closed by us", AT(1000));
    CHECK_STR(session.reason, "ERR Protocol error: unbalanced quotes in request");
    hf_session_free(&session);
}

TEST(nothing_is_read_after_the_end)
{
    struct call one, two;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    hear(&session, ":1\r\nx\r\n:2\r\n", AT(1));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "");
    hear(&session, ":2\r\n", AT(1));
    CHECK_STR(two.outcome, "");
    hf_session_closed(&session, "closed by us", AT(1));
    hear(&session, ":2\r\n", AT(1));
    CHECK_STR(two.outcome, "");
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

/* ---- lost connections ---- */

TEST(what_was_sent_is_sent_again_in_order)
{
    struct call one, two, three;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    said(&session);
    hear(&session, ":1\r\n", AT(1));
    submit(&three, "C", 60000, AT(2));
    CHECK_STR(said(&session), "C");
    hf_session_closed(&session, "reset", AT(3));
    CHECK_STR(two.outcome, "");
    CHECK_STR(said(&session), "");
    open_session(&session, AT(4));
    CHECK_STR(said(&session), "B\nC");
    CHECK_EQ_U64(two.request.sent_at, AT(4));
    hear(&session, ":2\r\n:3\r\n", AT(5));
    CHECK_STR(two.outcome, "2");
    CHECK_STR(three.outcome, "3");
    CHECK_EQ_INT(one.calls, 1);
    discard(&one);
    discard(&two);
    discard(&three);
    hf_session_free(&session);
}

TEST(of_unknown_outcome_it_is_not_failed_by_a_refusal)
{
    struct call one, two;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    hf_session_closed(&session, "reset", AT(1));
    submit(&two, "B", 3000, AT(1));
    hf_session_opening(&session, AT(1));
    hf_session_closed(&session, "refused", AT(1));
    CHECK_STR(one.outcome, "");
    CHECK_STR(two.outcome, "unreachable: refused");
    hf_session_tick(&session, AT(3000));
    CHECK_STR(one.outcome, "unreachable: refused");
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

TEST(a_password_that_became_wrong_is_told_at_once)
{
    struct call one;
    start();
    strcpy(config.server.password, "secret");
    submit(&one, "A", 3000, AT(0));
    open_session(&session, AT(0));
    hear(&session, "+OK\r\n", AT(0));
    hf_session_closed(&session, "reset", AT(1));
    open_session(&session, AT(20));
    hear(&session, "-WRONGPASS no\r\n", AT(20));
    hf_session_closed(&session, "closed by us", AT(20));
    CHECK_STR(one.outcome, "denied: WRONGPASS no");
    CHECK(one.request.sends > 0); /* and yet it may have been carried out */
    discard(&one);
    hf_session_free(&session);
}

TEST(half_a_command_is_not_finished_on_the_next_connection)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "ABCDEF", 3000, AT(0));
    hf_session_written(&session, 7);
    hf_session_closed(&session, "reset", AT(1));
    CHECK_EQ_INT(hf_session_output(&session).size, 0);
    open_session(&session, AT(20));
    CHECK_STR(said(&session), "ABCDEF");
    discard(&one);
    hf_session_free(&session);
}

TEST(half_a_reply_is_not_finished_on_the_next_connection)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    hear(&session, "*2\r\n$3\r\nab", AT(1));
    hf_session_closed(&session, "reset", AT(1));
    open_session(&session, AT(20));
    hear(&session, ":7\r\n", AT(20));
    CHECK_STR(one.outcome, "7");
    discard(&one);
    hf_session_free(&session);
}

/* ---- silence ---- */

TEST(a_silent_server_is_given_up)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 60000, AT(100));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(3100));
    hf_session_tick(&session, AT(3099));
    CHECK_WANTS(NOTHING, AT(3099));
    hf_session_tick(&session, AT(3100));
    CHECK_WANTS(CLOSE, AT(3100));
    CHECK_STR(one.outcome, "");
    hf_session_closed(&session, "closed by us", AT(3100));
    CHECK_STR(session.reason, "no reply in time");
    CHECK_WANTS(OPEN, AT(3200));
    discard(&one);
    hf_session_free(&session);
}

TEST(a_server_that_speaks_is_not_silent)
{
    struct call one, two;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 60000, AT(0));
    submit(&two, "B", 60000, AT(0));
    hear(&session, ":1\r\n", AT(2000));
    hf_session_tick(&session, AT(3000));
    CHECK_WANTS(NOTHING, AT(3000));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(5000));
    hear(&session, ":2\r\n", AT(4000));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

/* A path that swallows everything must be noticed even when no call is as patient as the session.
 */
TEST(a_silent_server_is_given_up_although_its_callers_gave_up_first)
{
    struct call calls[40];
    start();
    open_session(&session, AT(0));
    submit(&calls[0], "A", 60000, AT(0));
    hear(&session, ":1\r\n", AT(0));
    discard(&calls[0]);
    int i = 0;
    for (; i < 40 && hf_session_wants(&session, AT(200 * i)) != HF_WANT_CLOSE; i++) {
        submit(&calls[i], "A", 200 * i + 100, AT(200 * i));
        hf_session_tick(&session, AT(200 * i + 100));
        CHECK_STR(calls[i].outcome, "unreachable: no reply in time");
        discard(&calls[i]);
        hf_session_tick(&session, AT(200 * (i + 1)));
    }
    CHECK_OR(i == 15, "given up after %d calls in vain", i);
    hf_session_free(&session);
}

TEST(a_dropped_request_is_still_an_answer_awaited)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 60000, AT(0));
    discard(&one);
    CHECK(!hf_session_has_work(&session));
    CHECK_EQ_U64(hf_session_deadline(&session), AT(3000));
    hear(&session, ":1\r\n", AT(10));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    hf_session_free(&session);
}

/* ---- deadlines ---- */

TEST(a_request_ends_at_its_deadline_wherever_it_is)
{
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
    CHECK_STR(said(&session), "");
    submit(&sent, "B", 1000, AT(600));
    CHECK_STR(said(&session), "B");
    hf_session_tick(&session, AT(1000));
    CHECK_STR(sent.outcome, "unreachable: no reply in time");
    hear(&session, ":1\r\n", AT(1001));
    CHECK_EQ_INT(sent.calls, 1);
    CHECK_WANTS(NOTHING, AT(1001));
    discard(&queued);
    discard(&sent);
    hf_session_free(&session);
}

TEST(the_end_of_all_requests_at_once)
{
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
    hf_session_free(&session);
}

/* ---- passing errors ---- */

TEST(a_passing_error_is_tried_again_until_the_deadline)
{
    struct call one;
    hf_time now = AT(0);
    int tries = 1;
    start();
    open_session(&session, now);
    submit(&one, "A", 500, now);
    said(&session);
    while (one.calls == 0) {
        hear(&session, "-LOADING Redis is loading the dataset in memory\r\n", now);
        if (one.calls > 0) break;
        hf_time next = hf_session_deadline(&session);
        CHECK(next >= now + 10 * HF_MS && next <= now + 30 * HF_MS);
        CHECK_STR(said(&session), "");
        hf_session_tick(&session, next - 1);
        CHECK_STR(said(&session), "");
        hf_session_tick(&session, next);
        CHECK_STR(said(&session), "A");
        now = next;
        tries++;
    }
    CHECK(now < AT(500));
    CHECK(tries > 15 && tries < 50);
    CHECK_STR(one.outcome, "unreachable: LOADING Redis is loading the dataset in memory");
    discard(&one);
    hf_session_free(&session);
}

TEST(a_passing_error_passes)
{
    struct call one, two;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    said(&session);
    hear(&session, "-BUSY Redis is busy running a script.\r\n", AT(0));
    submit(&two, "B", 3000, AT(1)); /* nobody waits behind it */
    CHECK_STR(said(&session), "B");
    hf_session_tick(&session, AT(30));
    CHECK_STR(said(&session), "A");
    hear(&session, ":2\r\n:1\r\n", AT(31));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "2");
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

TEST(after_a_passing_error_a_lost_connection_is_no_busy_loop)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    prepare(&one, NULL, "A");
    one.request.patient = true;
    one.request.deadline = AT(60000);
    hf_session_submit(&session, &one.request, AT(0));
    hear(&session, "-LOADING\r\n", AT(0));
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
    CHECK_STR(said(&session), "A");
    discard(&one);
    hf_session_free(&session);
}

TEST(after_a_passing_error_a_refusal_is_told_at_once)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    hear(&session, "-LOADING\r\n", AT(0));
    hf_session_closed(&session, "reset", AT(1));
    hf_session_opening(&session, AT(1));
    hf_session_closed(&session, "refused", AT(1));
    CHECK_STR(one.outcome, "unreachable: refused"); /* nothing of it was carried out */
    discard(&one);
    hf_session_free(&session);
}

TEST(an_error_that_lasts_is_told)
{
    struct call one, two;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    hear(&session, "-OOM command not allowed\r\n-NOPERM no\r\n", AT(0));
    CHECK_STR(one.outcome, "server: OOM command not allowed");
    CHECK_STR(two.outcome, "denied: NOPERM no");
    CHECK_WANTS(NOTHING, AT(0));
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

/* ---- programs ---- */

TEST(an_unknown_program_goes_out_with_its_text)
{
    static char want[SAID_SIZE];
    const hf_program *program = hf_program_info(HF_LAYOUT_LOCK);
    struct call one, two;
    start();
    open_session(&session, AT(0));
    submit_program(&one, "key", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK_STR(said(&session), "EVALSHA info 1 key\nB");
    hear(&session, "-NOSCRIPT No matching script. Please use EVAL.\r\n", AT(1));
    CHECK_STR(one.outcome, "");
    int size =
        snprintf(want, sizeof want, "*4\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$3\r\nkey\r\n",
                 program->length, program->source);
    hf_slice output = hf_session_output(&session);
    CHECK_MEM(output.data, output.size, want, size);
    said(&session);
    CHECK_EQ_U64(one.request.sent_at, AT(1));
    hear(&session, ":2\r\n:1\r\n", AT(2));
    CHECK_STR(one.outcome, "1");
    CHECK_STR(two.outcome, "2");
    hf_session_submit(&session, &one.request, AT(3)); /* now it is known */
    CHECK_STR(said(&session), "EVALSHA info 1 key");
    discard(&one);
    discard(&two);
    hf_session_free(&session);
}

TEST(an_unknown_program_is_not_sent_for_ever)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit_program(&one, "key", 3000, AT(0));
    hear(&session, "-NOSCRIPT No matching script.\r\n", AT(1));
    hear(&session, "-NOSCRIPT No matching script.\r\n", AT(1));
    CHECK_STR(one.outcome, "server: NOSCRIPT No matching script.");
    discard(&one);
    hf_session_free(&session);
}

TEST(noscript_to_a_plain_command_is_an_error)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    hear(&session, "-NOSCRIPT\r\n", AT(1));
    CHECK_STR(one.outcome, "server: NOSCRIPT");
    discard(&one);
    hf_session_free(&session);
}

TEST(after_a_restart_the_text_goes_out_again)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit_program(&one, "key", 60000, AT(0));
    hear(&session, "-NOSCRIPT\r\n", AT(1));
    hf_session_closed(&session, "reset", AT(2));
    open_session(&session, AT(20));
    CHECK_STR(said(&session), "EVAL info 1 key");
    hear(&session, "-LOADING\r\n", AT(20));
    hf_session_tick(&session, AT(60));
    CHECK_STR(said(&session), "EVAL info 1 key");
    hear(&session, ":1\r\n", AT(61));
    CHECK_STR(one.outcome, "1");
    discard(&one);
    hf_session_free(&session);
}

/* Only what may have been carried out without our knowing it counts. */
TEST(sends_counts_what_may_have_been_carried_out)
{
    struct call one;
    start();
    open_session(&session, AT(0));
    submit_program(&one, "key", 60000, AT(0));
    CHECK_EQ_INT(one.request.sends, 1);
    hear(&session, "-NOSCRIPT\r\n", AT(1));
    CHECK_EQ_INT(one.request.sends, 1);
    hear(&session, "-LOADING\r\n", AT(1));
    CHECK_EQ_INT(one.request.sends, 0);
    hf_session_tick(&session, AT(40));
    CHECK_EQ_INT(one.request.sends, 1);
    hf_session_closed(&session, "reset", AT(41));
    open_session(&session, AT(60));
    CHECK_EQ_INT(one.request.sends, 2);
    hear(&session, ":1\r\n", AT(60));
    CHECK_EQ_INT(one.request.sends, 2);
    discard(&one);
    hf_session_free(&session);
}

/* ---- a reply that somebody else waits for ---- */

static bool inherit(struct call *heir, struct call *from)
{
    memset(heir, 0, sizeof *heir);
    if (!hf_session_inherit(&heir->request, &from->request)) return false;
    heir->request.done = on_done;
    heir->request.context = heir;
    return true;
}

TEST(an_heir_gets_the_reply_in_its_order)
{
    struct call one, two, heir;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 3000, AT(0));
    submit(&two, "B", 3000, AT(0));
    CHECK(inherit(&heir, &one));
    CHECK(hf_session_has_work(&session));
    CHECK_EQ_INT(one.request.state, HF_REQUEST_IDLE);
    hear(&session, ":1\r\n:2\r\n", AT(1));
    CHECK_STR(heir.outcome, "1");
    CHECK_STR(two.outcome, "2");
    CHECK_EQ_INT(one.calls, 0);
    CHECK(!inherit(&one, &heir));
    discard(&heir);
    discard(&two);
    hf_session_free(&session);
}

TEST(an_heir_gets_the_reply_to_what_has_expired)
{
    struct call one, heir;
    start();
    open_session(&session, AT(0));
    submit(&one, "A", 100, AT(0));
    hf_session_tick(&session, AT(100));
    CHECK_EQ_INT(one.calls, 1);
    CHECK(inherit(&heir, &one));
    heir.request.deadline = AT(3000);
    hear(&session, ":1\r\n", AT(200));
    CHECK_STR(heir.outcome, "1");
    discard(&heir);
    hf_session_free(&session);
}

TEST(an_heir_sends_a_program_that_the_server_did_not_know)
{
    struct call one, heir;
    start();
    open_session(&session, AT(0));
    submit_program(&one, "k", 3000, AT(0));
    CHECK_STR(said(&session), "EVALSHA info 1 k");
    CHECK(inherit(&heir, &one));
    hear(&session, "-NOSCRIPT No matching script\r\n", AT(1));
    CHECK_STR(said(&session), "EVAL info 1 k");
    hear(&session, ":1\r\n", AT(2));
    CHECK_STR(heir.outcome, "1");
    discard(&heir);
    hf_session_free(&session);
}

TEST(nobody_inherits_a_reply_that_does_not_come)
{
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
    discard(&one);
    hf_session_free(&session);
}

/* ---- subscribers ---- */

static char heard[256];

static void on_heard(void *context, const hf_reply *event, hf_time now)
{
    (void)context, (void)now;
    hf_slice kind = hf_reply_string_at(event, 0);
    size_t used = strlen(heard);
    snprintf(heard + used, sizeof heard - used, "%.*s ", (int)kind.size, kind.data);
}

TEST(a_subscriber_hears_events)
{
    static const hf_slice subscribe[] = {{"SUBSCRIBE", 9}, {"c", 1}};
    start();
    session.subscriber = session.wanted = true;
    session.on_event = on_heard;
    heard[0] = '\0';
    strcpy(config.name, "n");
    open_session(&session, AT(0));
    hear(&session, "+OK\r\n", AT(0));
    CHECK_STR(heard, "");
    CHECK(hf_session_say(&session, 2, subscribe));
    CHECK_STR(said(&session), "CLIENT SETNAME n\nSUBSCRIBE c");
    hear(&session, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmess", AT(1));
    hear(&session, "age\r\n$1\r\nc\r\n$1\r\nx\r\n", AT(2));
    CHECK_STR(heard, "subscribe message ");
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    session.wanted = false;
    CHECK_WANTS(CLOSE, AT(3));
    hf_session_closed(&session, "not needed any more", AT(3));
    CHECK_WANTS(NOTHING, AT(3));
    CHECK_EQ_U64(hf_session_deadline(&session), HF_NEVER);
    hf_session_free(&session);
}

/* ---- the end ---- */

TEST(all_requests_are_failed_at_the_end)
{
    struct call queued, sent;
    start();
    open_session(&session, AT(0));
    submit(&sent, "A", 3000, AT(0));
    hear(&session, "*1\r\n", AT(0));
    hf_session_fail_all(&session, HF_CLOSED, "the client was closed", AT(1));
    hf_session_free(&session);
    CHECK_STR(sent.outcome, "closed: the client was closed");
    start();
    submit(&queued, "B", 3000, AT(0));
    hf_session_fail_all(&session, HF_CLOSED, "the client was closed", AT(1));
    hf_session_free(&session);
    CHECK_STR(queued.outcome, "closed: the client was closed");
    hf_request_clear(&sent.request);
    hf_request_clear(&queued.request);
}

/* ---- memory ---- */

TEST(without_memory_for_a_reader_nothing_is_read)
{
    start();
    session.wanted = true;
    hf_session_opening(&session, AT(0));
    memerr_fail(1);
    hf_session_opened(&session, AT(0));
    memerr_fail(0);
    CHECK_WANTS(CLOSE, AT(0));
    hear(&session, "-ERR max number of clients reached\r\n", AT(1));
    hf_session_closed(&session, "closed by us", AT(1));
    CHECK_STR(session.reason, "out of memory");
    hf_session_free(&session);
}

static bool whole_conversation(void *context)
{
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
        good =
            hf_request_call(&calls[i].request, hf_program_info(HF_LAYOUT_LOCK), 1, 1, &arg) && good;
        if (calls[i].request.bytes) hf_session_submit(&session, &calls[i].request, AT(0));
    }
    open_session(&session, AT(0));
    said(&session);
    if (!session.closing) hf_session_feed(&session, "+OK\r\n+OK\r\n-NOSCRIPT\r\n", 21, AT(1));
    said(&session);
    for (int i = 0; i < 20; i++) {
        if (!session.closing && session.first_slot < session.next_slot) {
            hf_session_feed(&session, "*1\r\n:1\r\n", 8, AT(2));
        }
    }
    if (session.closing) hf_session_closed(&session, "closed by us", AT(3));
    hf_session_tick(&session, AT(3000));
    for (int i = 0; i < 20; i++) {
        bool told = calls[i].calls == 1 || !calls[i].request.bytes;
        if (!told) abort();
        good = good && strcmp(calls[i].outcome, "done") == 0;
        hf_request_clear(&calls[i].request);
    }
    hf_session_free(&session);
    return good;
}

TEST(out_of_memory_fails_calls_and_nothing_else)
{
    CHECK(memerr_until_success(whole_conversation, NULL, 1000) > 60);
}

CHECK_MAIN
