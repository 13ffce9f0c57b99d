/*
 * What a driver sees of the core: this program includes holdfast.h alone.
 */
#include "holdfast.h"

#include <stdlib.h>

#include "check.h"
#include "memerr.h"

#define AT(ms) (1000 * HF_SECOND + HF_MS * (hf_time)(ms))
#define ACQUIRED "*2\r\n:1\r\n:77\r\n"
#define NOT_HELD ":-1\r\n"

static const unsigned char ENTROPY[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                          1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const unsigned char OTHER[24] = {99, 98, 97, 96};
static const hf_slice ME = {"me", 2}, YOU = {"you", 3};

static hf_client *client;
static hf_names *names;

static hf_client_config config_of(hf_mode mode, const hf_server *servers, size_t count) {
    return (hf_client_config){.session = {.server = {.host = "h", .port = 1, .label = "h:1"},
                                          .connect_timeout = HF_SECOND,
                                          .command_timeout = 3 * HF_SECOND},
                              .mode = mode,
                              .servers = servers,
                              .server_count = count,
                              .grant_lease = 2 * HF_SECOND,
                              .renewer = HF_LINK_RENEWER};
}

static void finish(void) {
    if (names) hf_names_delete(names);
    if (client) hf_client_delete(client);
    names = NULL;
    client = NULL;
}

static void start(void) {
    hf_client_config config = config_of(HF_MODE_ONE, NULL, 0);
    finish();
    client = hf_client_new(&config, ENTROPY);
    names = hf_client_names(client, hf_kind_by_name("lock"), (hf_slice){"k", 1});
    if (!client || !names) abort();
}

CHECK_AROUND(start, finish)

static hf_session *calls(void) {
    return hf_client_link(client, HF_LINK_CALLS);
}

static hf_op_spec spec_of(hf_op_kind kind, hf_slice caller) {
    return (hf_op_spec){.kind = kind,
                        .lock_kind = hf_kind_by_name("lock"),
                        .names = names,
                        .caller = caller,
                        .lease = 30 * HF_SECOND,
                        .token_ttl_ms = 1000,
                        .renewed = true};
}

/* Does what the link wants of a driver; what it writes is gone. */
static void serve(hf_session *session, hf_time now) {
    if (hf_session_wants(session, now) == HF_WANT_CLOSE)
        hf_session_closed(session, "not needed", now);
    if (hf_session_wants(session, now) == HF_WANT_OPEN) {
        hf_session_opening(session, now);
        hf_session_opened(session, now);
    }
    hf_session_written(session, hf_session_output(session).size);
}

static hf_op *begin(hf_op_kind kind, hf_slice caller, hf_time now) {
    hf_op_spec spec = spec_of(kind, caller);
    hf_op *op = hf_client_begin(client, &spec, now);
    if (op) serve(calls(), now);
    return op;
}

static void feed(const char *text, hf_time now) {
    hf_session_feed(calls(), text, strlen(text), now);
}

/* An acquire that is done, and is not ended yet. */
static hf_op *acquire(hf_slice caller, hf_time now) {
    hf_op *op = begin(HF_OP_ACQUIRE, caller, now);
    feed(ACQUIRED, now);
    return op;
}

TEST(each_handle_of_a_lost_hold_learns_of_the_loss_once) {
    hf_losses one = {0}, two = {0}, late = {0};
    hf_stake stakes[4] = {0};
    hf_op *op = acquire(ME, AT(0));
    hf_hold *hold = hf_op_hold(op, 0);
    for (size_t i = 0; i < 3; i++) hf_stake_begin(&stakes[i], client, hold, i < 2 ? &one : &two);
    stakes[1].muted = true;
    hf_stake_move(&stakes[3], &stakes[2]);
    hf_op_end(op, AT(0)), CHECK_EQ_INT(hf_losses_peek(&one), HF_LOST_NONE);
    hf_client_detect_losses(client, hf_view_of(hold).valid_until);
    CHECK_EQ_INT(hf_losses_peek(&one), HF_LOST_EXPIRED);
    CHECK_EQ_INT(hf_losses_take(&one), HF_LOST_EXPIRED);
    CHECK_EQ_INT(hf_losses_take(&one), HF_LOST_NONE);
    CHECK_EQ_INT(one.first, HF_LOST_EXPIRED);
    CHECK_EQ_INT(hf_losses_take(&two), HF_LOST_EXPIRED);
    uint64_t losses = hf_client_loss_count(client);
    hf_stake_begin(&stakes[2], client, hold, &late);
    CHECK_EQ_INT(hf_losses_take(&late), HF_LOST_EXPIRED);
    CHECK_EQ_U64(hf_client_loss_count(client), losses + 1);
    for (size_t i = 0; i < 4; i++) hf_stake_end(&stakes[i]);
    hf_op_end(begin(HF_OP_RELEASE, ME, AT(40000)), AT(40000));
}

TEST(a_locks_key_can_be_derived_from_the_name_of_its_queue) {
    static const char *const cases[][2] = {{"holdfast_queue:{k}", "k"},
                                           {"holdfast_queue::a{b}c", "a{b}c"},
                                           {"holdfast_queue:k", ""},
                                           {"holdfast_queue:a{b}", ""},
                                           {"holdfast_queue:", ""},
                                           {"redisson_lock_queue:{k}", "k"},
                                           {"redisson_lock_queue:a{b}c", "a{b}c"},
                                           {"redisson_lock_queue:k", ""},
                                           {"holdfast_wait:{k}", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_slice key = hf_names_key_of_queue(hf_slice_of(cases[i][0]));
        CHECK_MEM(key.data, key.size, cases[i][1], strlen(cases[i][1]));
    }
}

TEST(a_holds_state_shows_an_async_release_until_its_reply) {
    hf_op_end(acquire(ME, AT(0)), AT(0));
    hf_op *op = begin(HF_OP_RELEASE, ME, AT(1));
    hf_hold *hold = hf_op_hold(op, 0);
    hf_hold_ref(hold), CHECK(!hf_client_has_detached(client));
    CHECK(hf_op_detach(op));
    CHECK(hf_op_is_detached(op));
    CHECK(hf_client_has_detached(client));
    CHECK(hf_view_of(hold).detached && hf_view_of(hold).ending);
    feed(NOT_HELD, AT(2)), CHECK(hf_view_of(hold).detached && !hf_view_of(hold).ending);
    CHECK(hf_view_of(hold).reason != HF_LOST_NONE);
    hf_client_end_detached(client, AT(2)), CHECK(!hf_client_has_detached(client));
    hf_hold_unref(hold);
}

TEST(a_clients_statistics_count_operations_in_flight_and_holds) {
    hf_op *first = acquire(ME, AT(0));
    hf_op *second = begin(HF_OP_ACQUIRE, YOU, AT(0));
    hf_load load = hf_client_load(client);
    CHECK_EQ_INT(load.operations, 1); /* the first has ended */
    CHECK_EQ_INT(load.holds, 2);
    CHECK_EQ_INT(load.held, 2);
    CHECK_EQ_INT(load.renewed, 1);
    CHECK(!load.has_work);
    hf_op_end(second, AT(0));
    hf_client_abandon(client, hf_op_hold(first, 0), 1, AT(0));
    hf_op_end(first, AT(0));
    load = hf_client_load(client), CHECK_EQ_INT(load.operations, 0);
    CHECK_EQ_INT(load.held + load.renewed, 0);
    CHECK(load.has_work);
}

TEST(a_client_has_one_server_object_for_each_configured_server) {
    static const hf_server servers[] = {{.host = "a", .port = 1, .label = "a:1"},
                                        {.host = "b", .port = 2, .label = "b:2"}};
    static const hf_mode modes[] = {HF_MODE_QUORUM, HF_MODE_CLUSTER};
    for (size_t i = 0; i < 2; i++) {
        hf_client_config config = config_of(modes[i], servers, 2);
        hf_client *made = hf_client_new(&config, ENTROPY);
        CHECK_EQ_INT(hf_client_node_count(made), 2);
        CHECK_EQ_INT(hf_client_link_count(made), 2 * HF_LINKS);
        const hf_session *link = hf_client_link(made, HF_LINKS);
        CHECK_STR(hf_session_server(link)->label, "b:2");
        /* a cluster has to name those that serve */
        CHECK_EQ_INT(hf_client_node_may_have_keys(made, 1), modes[i] == HF_MODE_QUORUM);
        hf_client_delete(made);
    }
}

TEST(each_topology_says_whether_calls_use_every_server) {
    CASES(hf_mode mode; bool everywhere; size_t beside) =
        LIST({HF_MODE_ONE, false, 0}, {HF_MODE_QUORUM, true, 0}, {HF_MODE_SHARDS, false, 1},
             {HF_MODE_CLUSTER, false, 0});
    static const hf_server servers[] = {{.host = "h", .port = 1, .label = "h:1"}};
    static const hf_shard shards[] = {{NULL, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_client_config config = config_of(cases[i].mode, servers, 1);
        config.shards = shards;
        hf_client *made = hf_client_new(&config, ENTROPY);
        CHECK_EQ_INT(hf_client_uses_every_server(made), cases[i].everywhere);
        CHECK_EQ_INT(hf_client_node_of_lock(made, ME), cases[i].beside);
        CHECK_STR(hf_session_run_id(hf_client_link_of_key(made, ME, 0)), "");
        CHECK(!hf_client_link_of_key(made, ME, 1));
        hf_client_delete(made);
    }
}

TEST(a_forked_childs_client_has_a_new_uuid_and_no_holds) {
    static const hf_class *left[2]; /* not freed, and so not lost either */
    char uuid[HF_UUID_SIZE + 1];
    strcpy(uuid, hf_client_uuid(client)), CHECK_EQ_INT(hf_observe_class(client, ""), 0);
    CHECK_EQ_INT(hf_observe_class(client, "orders"), 1);
    for (size_t i = 0; i < 2; i++) left[i] = hf_observe_class_at(client, i);
    CHECK(hf_client_start_over(client, OTHER));
    CHECK(strcmp(hf_client_uuid(client), uuid) != 0);
    CHECK_EQ_INT(hf_client_load(client).holds, 0);
    CHECK(hf_observe_class_at(client, 1) != left[1]);
    CHECK_STR(hf_observe_class_at(client, 1)->name, "orders");
    CHECK(!hf_observe_class_at(client, 2));
    CHECK_STR(hf_client_label(client), "h:1");
    hf_op *op = acquire(ME, AT(0));
    CHECK_EQ_INT(hf_op_code(op), HF_OK);
    hf_op_end(op, AT(0));
}

TEST(a_forked_childs_client_that_cannot_generate_a_uuid_is_closed) {
    CHECK(!hf_client_start_over(client, NULL));
    hf_op *op = begin(HF_OP_PING, ME, AT(0));
    CHECK_EQ_INT(hf_op_code(op), HF_CLOSED);
    hf_op_end(op, AT(0));
}

static bool make_and_delete(void *context) {
    static const hf_server servers[3] = {{.host = "a", .port = 1, .label = "a:1"},
                                         {.host = "b", .port = 2, .label = "b:2"},
                                         {.host = "c", .port = 3, .label = "c:3"}};
    const hf_mode *mode = context;
    hf_client_config config = config_of(*mode, servers, 3);
    hf_client *made = hf_client_new(&config, ENTROPY);
    hf_client_delete(made);
    return made != NULL;
}

TEST(creating_a_client_fails_cleanly_at_each_failed_allocation) {
    static hf_mode modes[] = {HF_MODE_ONE, HF_MODE_QUORUM, HF_MODE_CLUSTER};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        CHECK(memerr_until_success(make_and_delete, &modes[i], 100) > 0);
}

TEST(a_connections_state_can_be_read_from_its_login_to_a_reply) {
    CHECK(!hf_session_is_ready(calls()));
    hf_op *op = begin(HF_OP_PING, ME, AT(0));
    CHECK(hf_session_is_ready(calls()));
    CHECK(hf_session_awaits_reply(calls()));
    CHECK(hf_session_has_work(calls()));
    CHECK(!hf_session_must_close(calls()));
    feed("+PO", AT(7)), CHECK_EQ_U64(hf_session_received_at(calls()), AT(7));
    feed("NG\r\n", AT(8)), CHECK(!hf_session_awaits_reply(calls()));
    feed("+OK\r\n", AT(9)); /* to no command */
    CHECK(hf_session_must_close(calls()));
    hf_op_end(op, AT(9));
}

TEST(the_end_of_a_call_is_reported_once) {
    hf_op *first = begin(HF_OP_PING, ME, AT(0)), *second = begin(HF_OP_PING, ME, AT(0));
    CHECK(!hf_client_has_next_done(client));
    CHECK(!hf_client_next_done(client, NULL));
    feed("+PONG\r\n", AT(1)), CHECK(hf_op_is_done(first) && !hf_op_is_done(second));
    CHECK(hf_client_has_next_done(client));
    CHECK(hf_client_next_done(client, NULL) == first);
    CHECK(!hf_client_next_done(client, first));
    feed("+PONG\r\n", AT(2)), CHECK(hf_client_next_done(client, NULL) == second);
    CHECK(!hf_client_has_next_done(client));
    CHECK_EQ_U64(hf_op_begun_at(second), AT(0));
    hf_op_end(first, AT(2));
    hf_op_end(second, AT(2));
}

TEST(the_end_of_a_detached_call_is_not_reported) {
    hf_op_end(acquire(ME, AT(0)), AT(1));
    hf_op *op = begin(HF_OP_RELEASE, ME, AT(1));
    CHECK(hf_op_detach(op));
    feed(":1\r\n", AT(2)), CHECK(hf_op_is_done(op) && !hf_client_has_next_done(client));
    hf_client_tick(client, AT(2));
}

TEST(an_operation_has_its_own_ticket_unless_the_caller_gives_it_that_of_an_ended_operation) {
    hf_op_spec spec = spec_of(HF_OP_PING, ME);
    hf_op *first = begin(HF_OP_PING, ME, AT(0)), *second = begin(HF_OP_PING, ME, AT(0));
    uint64_t ticket = spec.ticket = hf_op_ticket(first);
    CHECK(hf_op_ticket(second) != ticket);
    hf_op_end(first, AT(0));
    hf_op *third = hf_client_begin(client, &spec, AT(0));
    CHECK_EQ_U64(hf_op_ticket(third), ticket);
    hf_op_end(second, AT(0));
    hf_op_end(third, AT(0));
}

TEST(the_record_of_an_earlier_idempotent_run_remains_valid_after_its_call_has_ended) {
    hf_result result, again;
    hf_names *guarded = hf_client_names(client, hf_kind_by_name("guard"), (hf_slice){"k", 1});
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE, ME);
    spec.lock_kind = hf_kind_by_name("guard");
    spec.names = guarded;
    hf_op *op = hf_client_begin(client, &spec, AT(0));
    serve(calls(), AT(0));
    feed("*2\r\n:3\r\n$3\r\nold\r\n", AT(1));
    hf_op_take_result(op, &result);
    hf_op_take_result(op, &again), CHECK(!again.record);
    hf_op_end(op, AT(1)), CHECK_EQ_INT(result.failure.code, HF_DUPLICATE);
    CHECK_MEM(result.record, result.record_size, "old", 3);
    free(result.record);
    finish();
    hf_names_delete(guarded);
}

TEST(a_queued_acquire_is_not_reported_as_awaiting_a_reply) {
    hf_op_spec spec;
    spec = spec_of(HF_OP_ACQUIRE, ME);
    spec.wait = HF_SECOND;
    hf_op *op = hf_client_begin(client, &spec, AT(0));
    serve(calls(), AT(0)), CHECK(hf_op_awaits_reply(op) && !hf_op_is_blocked(op));
    feed("*5\r\n:0\r\n:20000\r\n:0\r\n:0\r\n$1\r\n5\r\n", AT(1)), CHECK(!hf_op_awaits_reply(op));
    hf_op_end(op, AT(2));
}

CHECK_MAIN
