#include "op/crash.h"

#include "rig.h"

RIG_BEGINS

/* An acquire of "k" waits; the server names the owner, and this host knows whether its process
 * runs. */

static hf_life known_life;
static char asked[64]; /* the uuid of the last call of life() */

#define OTHER "11111111-2222-8333-8444-555555555555"
#define KEYS_OF_INFO "k redisson_lock_token:{k} holdfast_queue:{k}"
#define INFO "EVALSHA info 3 " KEYS_OF_INFO " " OWN
#define RELEASE(owner) "EVALSHA release 4 " KEYS_OF_INFO " redisson_lock__channel:{k} " owner
#define RELEASE_ONCE(owner) RELEASE(owner) " 2000 0 0 once"

static hf_life life(const char *uuid) {
    snprintf(asked, sizeof asked, "%s", uuid);
    return known_life;
}

/* An acquire of "k" whose caller acquires `count` other locks next. */
static hf_op *wait_before(size_t count, const hf_slice *keys, hf_life (*oracle)(const char *)) {
    hf_client_config config = rig_config();
    config.life = oracle;
    known_life = HF_LIFE_UNKNOWN;
    asked[0] = '\0';
    rig_begin_with(&config);
    hf_observe_all(&rig.client);
    hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(0), spec.wait = 600 * HF_SECOND, spec.args = keys,
                      spec.arg_count = count);
    enter_queue(AT(0));
    set_recheck(op, HF_NEVER); /* from here on it only asks for the owner */
    set_listen_time(op, HF_NEVER);
    return op;
}

static hf_op *wait_with(hf_life (*oracle)(const char *uuid)) {
    return wait_before(0, NULL, oracle);
}

/* Returns how many crash releases of this owner were reported since the last call. */
static int events_about(const char *owner) {
    int count = 0;
    for (hf_event *event = hf_observe_take(&rig.client), *next; event; event = next) {
        next = event->next;
        count += event->kind == HF_EVENT_CRASH_RELEASED &&
                 hf_slice_equal(event->owner, hf_slice_of(owner)) &&
                 hf_slice_equal(event->key, hf_slice_of("k"));
        free(event);
    }
    return count;
}

/* Of several holders none is the one that keeps the others out. */
TEST(a_waiter_looks_up_the_process_only_of_an_owner_that_holds_the_lock_alone) {
    hf_op *op = wait_with(life);
    for (const hf_kind *const *kind = hf_kinds; *kind; kind++) {
        spec_in(op)->lock_kind = *kind;
        bool shared = (*kind)->many_owners || (*kind)->has_permits;
        CHECK_OR(!shared || hf_crash_next_check(op) == HF_NEVER, "%s", (*kind)->name);
    }
    spec_in(op)->lock_kind = &hf_kind_lock;
    CHECK_EQ_U64(hf_crash_next_check(op), AT(50));
}

/* What the job started may have entered the lock, and keeps it. */
TEST(a_waiter_releases_an_ended_jobs_lock_only_if_its_owner_has_no_other_hold) {
    wait_with(life);
    known_life = HF_LIFE_JOB_ENDED;
    CHECK_STR(output_at(AT(50)), INFO);
    feed_owner(OTHER ":1", 0, AT(51)), CHECK_SENT(CALLS, RELEASE_ONCE(OTHER ":1"));
    feed_calls(":2\r\n", AT(52)), CHECK_EQ_INT(events_about(OTHER ":1"), 0);
    CHECK_STR(output_at(AT(1052)), INFO);
    feed_owner(OTHER ":1", 0, AT(1053)), CHECK_SENT(CALLS, RELEASE_ONCE(OTHER ":1"));
    feed_calls(":1\r\n", AT(1054)), CHECK_EQ_INT(events_about(OTHER ":1"), 1);
}

/* Those of the lock that is waited for, as it was when the search began. */
TEST(a_crash_releases_event_names_the_metrics_class_and_observer_of_the_awaited_lock) {
    hf_op *op = wait_with(life);
    spec_in(op)->class = hf_observe_class(&rig.client, "");
    spec_in(op)->class = hf_observe_class(&rig.client, "orders");
    spec_in(op)->observer = 9;
    known_life = HF_LIFE_ENDED;
    output_at(AT(50));
    feed_owner(OTHER ":7", -1, AT(51));
    feed_calls(":1\r\n", AT(52));
    const hf_event *event = observer_of(&rig.client)->first;
    while (event && event->kind != HF_EVENT_CRASH_RELEASED) event = event->next;
    CHECK(event);
    CHECK_EQ_U64(event->observer, 9);
    CHECK_STR(event->class, "orders");
}

/* The owner is looked for again a second later; the release is not repeated. */
TEST(a_crash_release_is_reported_only_if_its_reply_says_that_the_lock_was_freed) {
    CASES(const char *reply; int events; bool passes_on) = {
        {":1\r\n", 1, false},     {":3\r\n", 1, true},   {":2\r\n", 0, false},
        {":-1\r\n", 0, false},    {":-2\r\n", 0, false}, {"-OOM no\r\n", 0, false},
        {"-ERR no\r\n", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wait_with(life);
        known_life = HF_LIFE_ENDED;
        CHECK_STR(output_at(AT(50)), INFO);
        feed_owner(OTHER ":7", -1, AT(51)), CHECK(strstr(output_at(AT(51)), RELEASE(OTHER ":7")));
        feed_calls(cases[i].reply, AT(52)), CHECK_EQ_INT(events_about(OTHER ":7"), cases[i].events);
        CHECK_EQ_U64(holds_left(), cases[i].passes_on ? 2 : 1);
        CHECK(!strstr(output_at(AT(1051)), "EVALSHA release"));
        CHECK(strstr(output_at(AT(1052)), "EVALSHA info"));
    }
}

/* Its process may end while the lock belongs to a shared owner. */
TEST(a_waiter_no_longer_checks_the_process_of_an_earlier_owner) {
    hf_op *op = wait_with(life);
    known_life = HF_LIFE_RUNNING;
    output_at(AT(50));
    feed_owner(OTHER ":7", -1, AT(51));
    for (int ms = 101; ms < 1051; ms += 50) CHECK_STR(output_at(AT(ms)), "");
    CHECK_STR(output_at(AT(1051)), INFO);
    feed_owner("backup", -1, AT(1052));
    known_life = HF_LIFE_ENDED;
    CHECK_EQ_U64(hf_crash_next_check(op), AT(2052));
    CHECK_STR(output_at(AT(1200)), "");
}

/* A question without a reply must not be the last one. */
TEST(a_waiters_query_for_the_owner_is_given_up_after_a_second) {
    hf_op *op = wait_with(life);
    CHECK_STR(output_at(AT(50)), INFO);
    for (int ms = 100; ms <= 1050; ms += 50) rig_tick(AT(ms));
    CHECK_EQ_U64(hf_crash_next_check(op), AT(1050 + 1000));
}

/* Shared owners, permits, owners of a quorum, and texts that only resemble an owner. */
TEST(a_waiter_never_looks_up_an_owner_that_is_not_a_single_process) {
    static const char *const owners[] =
        LIST("", "import-7", "mode", OTHER, OTHER ":", OTHER ":7*2", OTHER ":7.1", OTHER ":7:write",
             OTHER " :7", OTHER "0:7", "11111111-2222-8333-8444-55555555555:7",
             "../../../../../../../../../../../tmp:7", "11111111-2222-8333-8444-55555555555A:7",
             OTHER ":77777777777777777777777777777777777777777777777777777777");
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        wait_with(life);
        known_life = HF_LIFE_ENDED;
        output_at(AT(50));
        feed_owner(owners[i], 0, AT(51)), CHECK_STR(asked, ""), CHECK_STR(output_at(AT(1050)), "");
        CHECK_STR(output_at(AT(1051)), INFO);
    }
}

/* With a hundred waiters ahead, the questions cost the server next to nothing. */
TEST(waiters_further_back_in_the_queue_query_the_owner_less_often) {
    hf_op *op = wait_with(life);
    known_life = HF_LIFE_RUNNING;
    output_at(AT(50));
    feed_owner(OTHER ":7", 3, AT(51)), CHECK_EQ_U64(hf_crash_next_check(op), AT(251));
    output_at(AT(251)), CHECK_EQ_U64(hf_crash_next_check(op), AT(451));
    rig_end(AT(452));
    op = wait_with(life);
    output_at(AT(50));
    feed_owner(OTHER ":7", 100000, AT(51)), CHECK_EQ_U64(hf_crash_next_check(op), AT(61051));
    known_life = HF_LIFE_RUNNING;
    CHECK_STR(output_at(AT(61051)), INFO);
    feed_owner(OTHER ":7", 100000, AT(61052)), CHECK_EQ_U64(hf_crash_next_check(op), AT(62052));
}

TEST(a_waiters_check_of_the_holders_process_that_ran_out_of_memory_is_retried_in_a_second) {
    for (unsigned long nth = 1; nth <= 3; nth++) {
        wait_with(life);
        known_life = HF_LIFE_ENDED;
        memerr_fail(nth);
        output_at(AT(50));
        memerr_fail(0);
        output_at(AT(51)), CHECK_STR(output_at(AT(1100)), INFO);
        rig_end(AT(1101));
    }
}

/* ---- with locks that its caller acquires next ---- */

#define KEYS_OF(k) k " redisson_lock_token:{" k "} holdfast_queue:{" k "}"
#define INFO_OF_KEY(k) "EVALSHA info 3 " KEYS_OF(k) " " OWN
#define RELEASE_OF(k, owner)                                                                       \
    "EVALSHA release 4 " KEYS_OF(k) " redisson_lock__channel:{" k "} " owner

static const hf_slice next_keys[] = {{"m", 1}, {"n", 1}};

TEST(a_waiter_of_a_multi_lock_releases_a_dead_owners_other_locks_in_the_same_moment) {
    wait_before(2, next_keys, life);
    known_life = HF_LIFE_ENDED;
    CHECK_STR(output_at(AT(50)), INFO);
    feed_owner(OTHER ":7", 0, AT(51)), CHECK_SENT(CALLS, RELEASE(OTHER ":7"));
    feed_calls(":1\r\n", AT(52)), CHECK_STR(output_at(AT(52)), INFO_OF_KEY("m"));
    feed_owner(OTHER ":8", -1, AT(53)), CHECK_SENT(CALLS, RELEASE_OF("m", OTHER ":8"));
    feed_calls(":1\r\n", AT(54)), CHECK_STR(output_at(AT(54)), INFO_OF_KEY("n"));
    feed_owner(OTHER ":9", -1, AT(55)), CHECK_SENT(CALLS, RELEASE_OF("n", OTHER ":9"));
    feed_calls(":1\r\n", AT(56)), CHECK_STR(output_at(AT(1055)), "");
    CHECK_STR(output_at(AT(1056)), INFO);
    rig_end(AT(1057));
}

/* A client that knows no crashes has the first lock, and waits for the second one. */
TEST(a_waiter_of_a_multi_lock_releases_its_next_locks_even_while_another_client_has_the_first) {
    wait_before(2, next_keys, life), CHECK_STR(output_at(AT(50)), INFO);
    feed_owner("java", 1, AT(51)), CHECK_STR(output_at(AT(100)), "");
    CHECK_STR(output_at(AT(101)), INFO_OF_KEY("m"));
    known_life = HF_LIFE_RUNNING;
    feed_owner(OTHER ":8", -1, AT(102)), CHECK_STR(asked, OTHER), CHECK_STR(output_at(AT(151)), "");
    CHECK_STR(output_at(AT(152)), INFO_OF_KEY("n"));
    known_life = HF_LIFE_ENDED;
    feed_owner(OTHER ":9", -1, AT(153)), CHECK_SENT(CALLS, RELEASE_OF("n", OTHER ":9"));
    feed_calls(":1\r\n", AT(154)), CHECK_STR(output_at(AT(1153)), "");
    CHECK_STR(output_at(AT(1154)), INFO);
    rig_end(AT(1155));
}

CHECK_MAIN
