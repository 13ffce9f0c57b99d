/* What each operation does while the server refuses it for the moment. */
#include "op/operation.h"

#include "rig.h"

RIG_BEGINS

#define NOREPLICAS "-NOREPLICAS Not enough good replicas to write.\r\n"

static const char *const OF_WRITES[] = {
    NOREPLICAS, "-MISCONF Redis is configured to save RDB snapshots\r\n",
    "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    ("-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not "
     "allowed\r\n"),
    "-READONLY You can't write against a read only replica.\r\n"};
static const char *const OTHERS[] = {"-LOADING no\r\n", "-BUSY no\r\n", "-TRYAGAIN no\r\n",
                                     "-CLUSTERDOWN no\r\n", "-MASTERDOWN no\r\n"};
enum { WRITES = sizeof OF_WRITES / sizeof *OF_WRITES, OTHER = sizeof OTHERS / sizeof *OTHERS };

/* Of what was accepted before. */
static const char *const OF_USER[] = {
    "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
    "-ERR The user executing the script can't run this command or subcommand\r\n",
    "-NOAUTH Authentication required.\r\n", "-WRONGPASS invalid username-password pair\r\n"};
enum { USER = sizeof OF_USER / sizeof *OF_USER };

/* The code of a call that ends while it is refused so. */
static const char *code_of(int i) {
    return i >= WRITES + OTHER || i == 4 ? "denied" : "unreachable";
}

static const char *refusal(int i) {
    if (i >= WRITES + OTHER) return OF_USER[i - WRITES - OTHER];
    return i < WRITES ? OF_WRITES[i] : OTHERS[i - WRITES];
}

/* What waits, and a reply that ends its wait well. */
static const struct waiter {
    hf_op_kind kind;
    const hf_kind *lock_kind;
    const char *good;
    bool reads;
} WAITERS[] = {
    {HF_OP_ACQUIRE, &hf_kind_lock, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_mutex, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_read, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_write, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_fair, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_permit, ACQUIRED, false},
    {HF_OP_ACQUIRE, &hf_kind_guard, ACQUIRED, false},
    {HF_OP_TAKE, &hf_kind_plain_semaphore, "*2\r\n:1\r\n:0\r\n", false},
    {HF_OP_AWAIT, &hf_kind_latch, "$-1\r\n", true},
};
enum { KINDS = sizeof WAITERS / sizeof *WAITERS };

static hf_op *begin_on(hf_op_kind kind, const hf_kind *lock_kind, hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(kind);
    hf_names_free(&rig.names);
    if (!hf_names_make_on(&rig.names, hf_slice_of("k"), lock_kind)) abort();
    spec.lock_kind = lock_kind;
    spec.wait = wait;
    spec.value = 1;
    spec.permits = lock_kind->has_permits;
    spec.initial_permits = lock_kind->has_permits;
    return begin_spec(&spec, now);
}

static hf_op *begin_waiter(const struct waiter *waiter, hf_time wait, hf_time now) {
    rig_begin();
    return begin_on(waiter->kind, waiter->lock_kind, wait, now);
}

/* Refuses whatever is sent until `until`. Returns how many commands there were. */
static int refuse(const char *error, hf_time now, hf_time until) {
    int commands = 0;
    for (; now < until; now += 10 * HF_MS) {
        rig_tick(now);
        for (const char *at = sent_over(CALLS); *at; commands++) {
            feed_calls(error, now);
            at = strchr(at, '\n') ? strchr(at, '\n') + 1 : "";
        }
    }
    rig_tick(until);
    return commands;
}

TEST(a_wait_that_ends_during_refusals_reports_the_last_one) {
    for (int i = 0; i < KINDS * (WRITES + OTHER); i++) {
        hf_op *op = begin_waiter(&WAITERS[i % KINDS], 8 * HF_SECOND, AT(0));
        refuse(refusal(i / KINDS), AT(0), AT(7990));
        CHECK_OR(!hf_op_is_done(op), "%d: %s", i, message_of(op));
        rig_sleep(AT(7990), AT(8000));
        CHECK_OR(strcmp(outcome(op), code_of(i / KINDS)) == 0, "%d: %s", i, outcome(op));
        char words[16] = "";
        sscanf(refusal(i / KINDS), "-%15s", words), CHECK_MESSAGE(op, words);
        hf_op_end(op, AT(8000));
        rig_sleep(AT(8000), AT(8001));
        CHECK_SILENT(); /* nothing was carried out, so nothing is undone */
    }
}

TEST(a_waiters_first_attempt_fails_at_once_if_an_acl_right_is_missing) {
    for (int i = 0; i < KINDS * USER; i++) {
        hf_op *op = begin_waiter(&WAITERS[i % KINDS], 60 * HF_SECOND, AT(0));
        sent_over(CALLS);
        feed_calls(OF_USER[i / KINDS], AT(1));
        CHECK_OR(strcmp(outcome(op), "denied") == 0, "%d: %s", i, outcome(op));
    }
}

/* The channel of our grants: the user may have lost that right, too, or has never had it. */
TEST(a_refused_subscription_ends_a_new_wait_but_not_one_already_queued) {
    static const char denied[] = "-NOPERM this user has no permissions to access a channel\r\n";
    hf_session *events = link_of(EVENTS);
    rig_begin();
    hf_op *old = wait_in_queue(60 * HF_SECOND, AT(0));
    hf_session_closed(events, "cut", AT(10));
    hf_op *new = BEGIN(HF_OP_ACQUIRE, AT(10), spec.caller = spec.owner = hf_slice_of("she"),
                       spec.wait = 60 * HF_SECOND);
    feed_calls(busy(20000, 0, 0), AT(11));
    rig_tick(AT(20));
    feed(events, denied, AT(21));
    rig_serve(AT(21)), CHECK_OUTCOME(new, "denied");
    for (hf_time now = AT(30); now < AT(10000); now += 100 * HF_MS) {
        rig_tick(now);
        if (*output_of(events)) feed(events, denied, now);
    }
    CHECK_OUTCOME(old, "under way");
}

#define PASSWORD "p"

static void log_in(const char *reply, hf_time now) {
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session *session = link_of((hf_link)link);
        if (session->state == HF_SESSION_LOGIN) feed(session, reply, now);
    }
    rig_serve(now);
}

static void cut_all(hf_time now) {
    rig_cut("cut", now);
}

static void refuse_log_ins(hf_time now, hf_time until) {
    for (; now < until; now += 10 * HF_MS) {
        rig_tick(now);
        log_in("-WRONGPASS invalid username-password pair or user is disabled.\r\n", now);
    }
}

static void begin_with_password(void) {
    RIG_BEGIN(strcpy(config.session.server.password, PASSWORD));
}

TEST(a_release_waits_for_a_login_and_is_then_retried_in_the_background) {
    for (int passes = 0; passes <= 1; passes++) {
        begin_with_password();
        hf_op *op = begin_acquire(0, AT(0));
        log_in("+OK\r\n", AT(0));
        end_with(op, ACQUIRED, AT(0));
        cut_all(AT(1));
        op = begin(HF_OP_RELEASE, AT(1));
        refuse_log_ins(AT(1), AT(passes ? 2000 : 3100));
        CHECK_OUTCOME(op, passes ? "under way" : "denied");
        const char *sent = "";
        for (hf_time now = AT(passes ? 2000 : 3100); !*sent && now < AT(9000); now += 10 * HF_MS) {
            rig_tick(now);
            sent_over(CALLS);
            log_in("+OK\r\n", now);
            sent = sent_over(CALLS);
        }
        CHECK(strstr(sent, passes ? "EVALSHA release " : "EVALSHA leave "));
        CHECK_ANSWER(op, ":1\r\n", AT(9000), passes ? "ok" : "denied");
        CHECK(is_quiet());
    }
}

/* One address may lead to another server after a failover. */
TEST(a_waiter_opens_new_connections_to_a_server_that_remains_a_replica) {
    begin_acquire(60 * HF_SECOND, AT(0));
    uint64_t before = rig.opens;
    refuse(OF_WRITES[4], AT(0), AT(20000));
    CHECK_OR(rig.opens - before > 15 && rig.opens - before < 40, "%d", (int)(rig.opens - before));
}

TEST(a_signal_ends_a_wait_even_if_its_command_is_refused_afterwards) {
    for (int i = 0; i < KINDS; i++) {
        hf_op *op = begin_waiter(&WAITERS[i], HF_NEVER, AT(0));
        refuse(NOREPLICAS, AT(0), AT(5000));
        hf_time now = AT(5000);
        while (!*sent_over(CALLS) && now < AT(10000)) rig_tick(now += HF_MS);
        hf_op_interrupt(op, now);
        feed_calls(NOREPLICAS, now + HF_MS);
        refuse(NOREPLICAS, now + 2 * HF_MS, now + 110 * HF_MS);
        CHECK_OR(strcmp(outcome(op), "interrupted") == 0, "%d: %s", i, outcome(op));
    }
}

TEST(a_refused_release_of_a_permit_is_retried_in_the_background) {
    for (int i = 0; i < WRITES + OTHER + USER; i++) {
        rig_begin();
        hf_op *op = begin_on(HF_OP_GIVE, &hf_kind_plain_semaphore, 0, AT(0));
        refuse(refusal(i), AT(0), AT(3500)), CHECK_OUTCOME(op, code_of(i));
        CHECK_MESSAGE(op, "continues in the background");
        hf_op_end(op, AT(3500));
        int tries = refuse(refusal(i), AT(3500), AT(60000));
        CHECK_OR(tries > 30 && tries < 200, "%d", tries);
        CHECK(!is_quiet());
        CHECK_SENT_PART_UNTIL(CALLS, AT(60000), AT(61100), "EVALSHA semaphore_release ");
        feed_calls(":1\r\n:1\r\n", AT(61100)), CHECK(is_quiet());
    }
}

/* The owner may be another process's too, so what the release left is in the way. */
TEST(a_shared_owners_acquire_waits_until_its_refused_release_is_done) {
    set_shared(hold_lock(AT(0)), true);
    hf_op *release = begin(HF_OP_RELEASE, AT(1));
    refuse(NOREPLICAS, AT(1), AT(20)), CHECK_ENDS(release, "unreachable", AT(20));
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(30), spec.shared = true, spec.wait = 20 * HF_SECOND);
    int tries = refuse(NOREPLICAS, AT(30), AT(10000));
    CHECK_OUTCOME(op, "under way");
    CHECK_OR(tries < 40, "%d", tries);
    rig_sleep(AT(10000), AT(11100));
    feed_calls(":1\r\n", AT(11100));
    rig_tick(AT(11100));
    CHECK_ANSWER(op, ACQUIRED, AT(11101), "ok");
}

/* Refuses calls, and answers the renewer in this way. */
static void refuse_all(const char *error, const char *renewals, hf_time now, hf_time until) {
    for (; now < until; now += 10 * HF_MS) {
        refuse(error, now, now + 1);
        if (*sent_over(RENEWER)) feed(link_of(RENEWER), renewals, now);
    }
}

static hf_op *complete(hf_time now) {
    rig_begin();
    end_with(begin_on(HF_OP_ACQUIRE, &hf_kind_guard, 0, now), ACQUIRED, now);
    sent_over(CALLS);
    return BEGIN(HF_OP_COMPLETE, now, spec.lock_kind = &hf_kind_guard,
                 spec.result = hf_slice_of("done"), spec.keep = 5 * HF_SECOND);
}

/* Renewals are refused as well. */
TEST(an_idempotent_runs_record_is_not_written_after_its_lease) {
    hf_op_end(complete(AT(0)), AT(0)); /* its command is under way */
    refuse_all(NOREPLICAS, NOREPLICAS, AT(0), AT(29800)), CHECK(is_quiet());
    CHECK_EQ_INT(holds_left(), 0);
    rig_sleep(AT(29800), AT(60000)), CHECK_SILENT();
}

/* Where only the record is refused, as by a server without memory. */
TEST(an_idempotent_runs_refused_record_is_retried_while_the_run_is_renewed) {
    for (int i = 0; i < WRITES + OTHER + USER; i++) {
        hf_op *op = complete(AT(0));
        refuse(refusal(i), AT(0), AT(3000)), CHECK_ENDS(op, code_of(i), AT(3000));
        refuse_all(refusal(i), "*1\r\n:1\r\n", AT(3000), AT(100000)), CHECK(!is_quiet());
        CHECK_SENT_PART_UNTIL(CALLS, AT(100000), AT(101000), "EVALSHA complete ");
        feed_calls(":1\r\n", AT(101000)), CHECK(is_quiet()), CHECK_EQ_INT(holds_left(), 0);
    }
}

TEST(an_idempotent_runs_record_is_written_after_an_outage) {
    hf_op *op = complete(AT(0));
    sent_over(CALLS);
    cut_link(CALLS, "cut", AT(1));
    rig.refusing = true;
    rig_sleep(AT(1), AT(10000)), CHECK_ENDS(op, "unreachable", AT(10000));
    rig.refusing = false;
    CHECK_SENT_PART_UNTIL(CALLS, AT(10000), AT(12000), "EVALSHA complete ");
    feed_calls(":1\r\n", AT(12000)), CHECK(is_quiet());
}

/* A client that is closed does not free the lock of a run that has no record yet. */
TEST(a_closed_client_still_writes_an_idempotent_runs_refused_record) {
    hf_op *op = complete(AT(0));
    refuse(NOREPLICAS, AT(0), AT(3000));
    hf_op_end(op, AT(3000));
    close_rig(AT(3000));
    refuse(NOREPLICAS, AT(3000), AT(5000)), CHECK(!is_quiet());
    CHECK_SENT_PART_UNTIL(CALLS, AT(5000), AT(6000), "EVALSHA complete ");
    CHECK_SENT(RENEWER, "");
    feed_calls(":1\r\n", AT(6000)), CHECK(is_quiet());
}

CHECK_MAIN
