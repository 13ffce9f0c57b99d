#include "cluster_rig.h"

RIG_BEGINS_WITH(cluster_before)

TEST(a_cluster_node_without_sharded_channels_receives_the_scripts_for_plain_channels) {
    rig.login[1] = PLAIN_LOGIN;
    hf_op *op = acquire(0, AT(0));
    rig_tick(AT(0));
    CHECK_THEN_SENT(0, ALL_OF_B, AT(1), 1, BRIEF_ASK_OF_K);
    CHECK(node_for(op) == node_at(1));
}

TEST(a_silent_node_delays_the_cluster_map_by_at_most_the_connect_timeout) {
    hf_op *op = first_acquire(AT(0));
    rig_sleep(AT(0), AT(1000)), CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_THEN_SENT(1, ALL_OF_B, AT(1001), 1, ASKED);
    CHECK_ANSWER_BY(1, op, YES, AT(1002), "ok");
}

TEST(a_client_that_needs_the_cluster_map_tries_the_next_node_at_once_if_one_refuses) {
    rig.down[0] = "refused";
    hf_op *op = acquire(0, AT(0));
    rig_tick(AT(0)), CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, ALL_OF_C, AT(1)), CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK_STR(node_at(2)->server.label, "c:3");
    CHECK_NODE_SENT(2, CALLS, ASKED);
    CHECK(!hf_op_is_done(op));
}

TEST(a_client_accepts_a_cluster_map_without_any_of_the_configured_nodes) {
    first_acquire(AT(0));
    feeds(0, CALLS,
          "*3\r\n" RANGE(0, 7628, "c", 3) RANGE(7629, 7629, "d", 4) RANGE(7630, 16383, "e", 5),
          AT(1));
    CHECK_EQ_INT(node_count(&rig.client), 5);
    for (size_t i = 2; i < 5; i++) CHECK(node_at(i)->may_have_keys);
    CHECK_NODE_SENT(3, CALLS, ASKED);
    CHECK_STR(node_at(3)->server.label, "d:4");
}

TEST(an_error_message_names_every_cluster_node_that_refuses_connections) {
    rig.down[0] = rig.down[1] = "refused";
    hf_op *op = acquire(0, AT(0));
    CHECK_TICK(op, AT(0), "unreachable");
    CHECK_MESSAGE(op, "a:1: refused, b:2: refused");
    CHECK_EQ_INT(rig.opens, 2);
    CHECK_EQ_INT(state_of(), -1);
    CHECK_EQ_U64(client_next_tick(), HF_NEVER);
}

TEST(a_denied_login_is_reported_rather_than_an_unreachable_node) {
    rig.down[1] = "refused";
    hf_op *op = acquire_by("-NOPERM no\r\n");
    CHECK_TICK(op, AT(1), "denied");
    CHECK_MESSAGE(op, "a:1: NOPERM no, b:2: refused");
}

TEST(a_command_fails_with_a_server_error_if_the_cluster_map_is_malformed) {
    static const char *const replies[] = {"*0\r\n", ":1\r\n", "*1\r\n:5\r\n",
                                          "-ERR no cluster\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        hf_op *op = first_acquire(AT(0));
        feeds(0, CALLS, replies[i], AT(1));
        CHECK_ANSWER_BY(1, op, replies[i], AT(1), "server");
    }
}

TEST(a_command_waits_while_no_node_serves_its_slot) {
    hf_op *op = first_acquire(AT(0));
    output_of(at(0, CALLS));
    feeds(0, CALLS, "*1\r\n" RANGE(8192, 16383, "b", 2), AT(1)), CHECK(!hf_op_is_done(op));
    CHECK(rig_sleep(AT(1), AT(200)) < 20);
    CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, HALVES, AT(201));
    rig_sleep(AT(201), AT(300)), CHECK_NODE_SENT(0, CALLS, ASKED);
}

TEST(a_new_cluster_client_requests_no_map) {
    CHECK_EQ_U64(client_next_tick(), HF_NEVER);
    rig_tick(AT(1000)), CHECK_EQ_INT(rig.opens, 0);
    CHECK(hf_client_node(&rig.client, hf_slice_of("k")) == node_at(0));
}

TEST(each_request_for_a_cluster_map_tries_every_node_again) {
    rig.down[0] = rig.down[1] = "refused";
    for (int i = 0; i < 3; i++) {
        hf_op *op = acquire(0, AT(1000 * i));
        CHECK_TICK(op, AT(1000 * i), "unreachable");
        bool in_turn = strstr(message_of(op), "(a:1: refused, b:2: refused)");
        bool in_turn_again = strstr(message_of(op), "(b:2: refused, a:1: refused)");
        CHECK_OR(in_turn || in_turn_again, "%s", message_of(op));
        CHECK_EQ_INT(rig.opens, 2 * (i + 1));
        hf_op_end(op, AT(1000 * i));
    }
}

TEST(a_client_retries_with_pauses_when_all_nodes_are_down) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    lose(0, AT(1001));
    lose(1, AT(1001));
    for (int i = 0; i < 3; i++) rig_tick(AT(1001)); /* one node after the other */
    uint64_t opens = rig.opens;
    hf_time next = map_due();
    CHECK(next >= AT(1100) && next <= AT(1251));
    rig_tick(next - 1), CHECK_EQ_U64(rig.opens, opens);
    rig_tick(next), CHECK(rig.opens > opens), CHECK(rig_sleep(next, AT(3900)) < 200);
    CHECK_OUTCOME(op, "under way");
}

/* How long the client waits after each of many refusals. */
static void check_pauses(const char *refusal, hf_time least, hf_time most) {
    hf_time now = AT(1000), shortest = HF_NEVER, longest = 0;
    cluster_known(AT(0));
    acquire(0, now);
    while (now < AT(3800)) {
        if (!strstr(output_of(at(0, CALLS)), "acquire")) abort();
        feeds(0, CALLS, refusal, now);
        hf_time pause = map_due() - now;
        shortest = hf_time_min(shortest, pause);
        longest = hf_time_max(longest, pause);
        now += pause;
        rig_tick(now);
    }
    CHECK(shortest >= least && shortest < least + 2 * HF_MS);
    CHECK(longest <= most && longest > most - 2 * HF_MS);
    rig_end(now);
}

TEST(a_command_answered_with_tryagain_or_redirected_to_no_address_is_retried_after_a_pause) {
    check_pauses("-TRYAGAIN wait\r\n", 10 * HF_MS, 30 * HF_MS);
    check_pauses("-ASK 7629 ?:2\r\n", 20 * HF_MS, 40 * HF_MS);
}

TEST(pings_are_sent_to_random_nodes_of_the_cluster) {
    cluster_known(AT(0));
    int pinged[2] = {0, 0};
    for (int i = 0; i < 40; i++) {
        hf_op *op = begin(HF_OP_PING, AT(i));
        for (size_t node = 0; node < 2; node++) {
            if (strstr(output_of(at(node, CALLS)), "PING")) {
                pinged[node]++;
                feeds(node, CALLS, "+PONG\r\n", AT(i));
            }
        }
        CHECK_ENDS(op, "ok", AT(i));
    }
    CHECK_EQ_INT(pinged[0] + pinged[1], 40);
    CHECK(pinged[0] > 5 && pinged[1] > 5);
}

TEST(every_connection_of_a_cluster_client_accepts_the_longest_possible_map) {
    for (size_t node = 0; node < 2; node++) {
        CHECK_EQ_INT(at(node, CALLS)->max_elements, HF_SLOTS_MAX_ELEMENTS);
        CHECK_EQ_INT(at(node, RENEWER)->max_elements, HF_SLOTS_MAX_ELEMENTS);
    }
}

/* The half that has lost a link asks over a link of its own. */
TEST(the_cluster_map_is_requested_over_a_connection_for_the_same_purpose_as_the_lost_one) {
    static const hf_link links[] = {CALLS, RENEWER};
    for (size_t i = 0; i < 2; i++) {
        cluster_known(AT(0));
        hold_k(AT(0));
        rig_sleep(AT(0), AT(10000)), CHECK_NODE_SENT(0, RENEWER, "EVALSHA renew 1 k me 30000");
        feeds(0, RENEWER, "*1\r\n:1\r\n", AT(10001));
        hf_session_closed(at(0, links[i]), "gone", AT(10002));
        rig_serve(AT(10002));
        rig_sleep(AT(10002), AT(10200));
        for (hf_link link = CALLS; link <= RENEWER; link = link == CALLS ? RENEWER : HF_LINKS) {
            bool asks = strcmp(output_of(at(0, link)), QUERY) == 0 ||
                        strcmp(output_of(at(1, link)), QUERY) == 0;
            CHECK_EQ_INT(asks, link == links[i]);
        }
    }
}

static const hf_server THREE[] = {{.host = "a", .port = 1, .label = "a:1"},
                                  {.host = "b", .port = 2, .label = "b:2"},
                                  {.host = "c", .port = 3, .label = "c:3"}};

TEST(the_cluster_map_is_first_requested_from_a_node_with_an_open_connection) {
    RIG_BEGIN(config.mode = HF_MODE_CLUSTER, config.servers = THREE, config.server_count = 3);
    acquire(0, AT(0));
    rig_tick(AT(0));
    CHECK_THEN_SENT(0, ALL_OF_C, AT(1), 2, ASKED);
    hf_session_closed(at(0, CALLS), "idle", AT(2));
    feeds(2, CALLS, "-CLUSTERDOWN down\r\n", AT(3));
    rig_sleep(AT(3), AT(200)), CHECK(strstr(output_of(at(2, CALLS)), QUERY));
    CHECK_EQ_INT(at(1, CALLS)->state, HF_SESSION_CLOSED);
}

/* The connection for calls is given up, and the next one is not answered. */
static void be_cut_off(size_t node, hf_time now) {
    hf_client_tick(&rig.client, now);
    hf_session_closed(at(node, CALLS), "silent", now);
    hf_session_opening(at(node, CALLS), now);
}

TEST(the_cluster_map_is_requested_from_another_node_when_a_master_is_cut_off) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(20000));
    be_cut_off(0, AT(20250));
    rig_sleep(AT(20251), AT(20260)), CHECK_NODE_SENT(1, CALLS, QUERY);
    CHECK_THEN_SENT(1, ALL_OF_B, AT(20270), 1, ASKED);
    CHECK_ANSWER_BY(1, op, YES, AT(20271), "ok");
}

TEST(the_cluster_map_is_first_requested_from_nodes_that_have_not_failed) {
    RIG_BEGIN(config.mode = HF_MODE_CLUSTER, config.servers = THREE, config.server_count = 3);
    begin(HF_OP_TTL, AT(0));
    rig_tick(AT(0));
    feeds(0, CALLS, ALL_OF_B, AT(1));
    feeds(1, CALLS, ":-2\r\n", AT(2));
    hf_session_closed(at(0, CALLS), "idle", AT(2));
    begin(HF_OP_TTL, AT(20000));
    be_cut_off(1, AT(20250));
    rig_sleep(AT(20251), AT(20400)), CHECK_NODE_SENT(2, CALLS, QUERY);
}

TEST(the_cluster_map_is_requested_from_a_discovered_node_if_the_configured_ones_are_gone) {
    hf_op *op = first_acquire(AT(0));
    feeds(0, CALLS, ALL_OF_C, AT(1));
    output_of(at(2, CALLS));
    CHECK_ANSWER_BY(2, op, YES, AT(2), "ok");
    hf_op_end(op, AT(2));
    rig.down[0] = rig.down[1] = "gone";
    hf_session_closed(at(0, CALLS), "gone", AT(300));
    op = release_k(AT(300));
    output_of(at(2, CALLS));
    feeds(2, CALLS, "-MOVED 7629 c:3\r\n", AT(301));
    output_of(at(2, CALLS));
    rig_sleep(AT(301), AT(460)), CHECK_NODE_SENT(2, CALLS, QUERY);
}

TEST(an_error_message_with_too_many_unreachable_nodes_to_name_ends_with_an_ellipsis) {
    enum { ROOM = 239, WORDS = 2 * sizeof ": refused" - 2 + 2 };
    static hf_server pair[2];
    for (int size = ROOM - 1; size <= ROOM + 2; size++) {
        hf_client_config config = rig_config();
        char want[2 * ROOM];
        memset(pair, 0, sizeof pair);
        for (int i = 0; i < 2; i++) {
            int length = i == 0 ? 100 : size - 100 - WORDS;
            pair[i].port = (uint16_t)(i + 1);
            pair[i].host[0] = (char)('a' + i);
            memset(pair[i].label, 'a' + i, (size_t)length);
        }
        config.mode = HF_MODE_CLUSTER;
        config.servers = pair;
        config.server_count = 2;
        rig_begin_with(&config);
        rig.refusing = true;
        hf_op *op = acquire(0, AT(0));
        CHECK_TICK(op, AT(0), "unreachable");
        int written =
            snprintf(want, sizeof want, "%s: refused, %s: refused", pair[0].label, pair[1].label);
        CHECK_EQ_INT(written, size);
        if (size > ROOM) strcpy(want + ROOM - 3, "...");
        strcat(want, ")"), CHECK_MESSAGE(op, want);
    }
}

/* Until the next map, it must not make room for another one. */
TEST(a_node_known_only_from_a_redirect_is_used_until_the_next_map) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    feeds(0, CALLS, "-MOVED 7629 c:3\r\n", AT(1001)), CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK(node_for(op) == node_at(2) && node_at(2)->may_have_keys);
    CHECK(hf_client_node(&rig.client, hf_slice_of("k")) == node_at(2));
}

TEST(a_request_for_the_cluster_map_that_ran_out_of_memory_is_repeated_later) {
    EACH_FAILURE(nth, 1) {
        CHECK(cluster_begin());
        hf_op *op = acquire(0, AT(0));
        memerr_fail(nth);
        hf_client_tick_calls(&rig.client, AT(0));
        memerr_end();
        CHECK(map_due() > AT(0));
        rig_serve(AT(0));
        rig_sleep(AT(0), AT(900));
        bool asks =
            strstr(output_of(at(0, CALLS)), QUERY) || strstr(output_of(at(1, CALLS)), QUERY);
        CHECK_OR(asks || hf_op_is_done(op), "allocation %lu", nth);
    }
}

/* An operation that was moved to a node that is down, and waits to be sent elsewhere. */
TEST(a_removed_node_is_not_forgotten_while_an_operation_waits_for_it) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    begin(HF_OP_INFO, AT(1000));
    feeds(0, CALLS, "-MOVED 7629 n1:1\r\n", AT(1001)), CHECK_EQ_INT(node_count(&rig.client), 3);
    node_at(2)->may_have_keys = false; /* as after the next map */
    rig.down[2] = "refused";
    hf_session_closed(at(2, CALLS), "gone", AT(1002));
    rig_serve(AT(1020)), CHECK(node_for(op) == node_at(2) && !at(2, CALLS)->queue);
    feeds(0, CALLS, "-MOVED 7629 n2:1\r\n", AT(1021)), CHECK_EQ_INT(node_count(&rig.client), 4);
    CHECK_STR(node_at(2)->server.host, "n1");
}

TEST(a_removed_node_is_not_forgotten_while_a_subscription_is_open_on_it) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000));
    rig.down[2] = "refused";
    hf_session_closed(at(2, CALLS), "gone", AT(2000));
    hf_node_change_listeners(node_at(2), true, false, AT(2000));
    move_to(2, AT(3000)), CHECK_EQ_INT(node_count(&rig.client), 4);
    CHECK_STR(node_at(2)->server.host, "n1");
    hf_node_change_listeners(node_at(2), false, false, AT(3001));
}

/* The map has no part in ASK, so the loss of that node asks for none. */
TEST(a_command_is_retried_if_the_node_named_by_an_ask_redirect_is_unreachable) {
    cluster_known(AT(0));
    hf_op *op = acquire(0, AT(1000));
    rig.down[2] = "refused";
    feeds(0, CALLS, "-ASK 7629 c:3\r\n", AT(1001)), CHECK(!node_at(2)->may_have_keys);
    CHECK_OUTCOME(op, "under way");
    rig_sleep(AT(1001), AT(1002)), CHECK(strstr(output_of(at(0, CALLS)), QUERY));
    feeds(0, CALLS, HALVES, AT(1003));
    CHECK_SLEEP(op, AT(1003), AT(1004), "under way");
    CHECK_NODE_SENT(0, CALLS, ASKED);
}

/* Only waiters move with a map: what was sent gets its redirect. */
TEST(a_command_in_flight_is_not_resent_when_the_map_changes) {
    cluster_known(AT(0));
    hf_op *acquires = acquire(60 * HF_SECOND, AT(1000)), *reads = begin(HF_OP_INFO, AT(1000));
    invalidate(0, AT(1001)), CHECK(strstr(output_of(at(0, CALLS)), QUERY));
    feeds(0, CALLS, busy(20000, 0, 0), AT(1002)), CHECK(is_subscribing(acquires));
    feeds_event(0, "subscribe", "1", AT(1003)), CHECK(is_asking(acquires));
    feeds(0, CALLS, "*0\r\n" ALL_OF_B, AT(1004)), CHECK(hf_op_is_done(reads));
    CHECK(node_for(acquires) == node_at(0));
}

TEST(a_command_that_paused_after_too_many_redirects_may_follow_as_many_again) {
    static const char *const others[] = {ASK_B, "-ASK 7629 a:1\r\n"};
    cluster_known(AT(0));
    acquire(0, AT(1000));
    for (int round = 0; round < 3; round++) {
        hf_time now = AT(1000 + 50 * round);
        int refused = 0;
        rig_tick(now);
        for (size_t node = 0; strstr(output_of(at(node, CALLS)), "sharded_acquire");
             node = 1 - node) {
            if (refused++ > 0) feeds(node, CALLS, "+OK\r\n", now); /* to ASKING */
            feeds(node, CALLS, others[node], now);
        }
        CHECK_EQ_INT(refused, 6);
    }
}

TEST(only_nodes_in_the_latest_map_receive_commands) {
    cluster_known(AT(0));
    CHECK(hf_client_node_may_have_keys(&rig.client, 0) &&
          hf_client_node_may_have_keys(&rig.client, 1));
    invalidate(0, AT(1000));
    feeds(0, CALLS, ALL_OF_B, AT(1001));
    CHECK(!hf_client_node_may_have_keys(&rig.client, 0) &&
          hf_client_node_may_have_keys(&rig.client, 1));
}

/* So that clients which learn of a move together do not ask together. */
TEST(the_cluster_map_is_requested_at_most_ten_times_a_second) {
    hf_time shortest = HF_NEVER, longest = 0, asked_at = AT(0);
    cluster_known(AT(0));
    for (int i = 0; i < 100; i++) {
        topology_of(&rig.client)->invalidate(node_at(0), CALLS, asked_at + HF_MS);
        hf_time next = map_due();
        shortest = hf_time_min(shortest, next - asked_at);
        longest = hf_time_max(longest, next - asked_at);
        rig_tick(next), CHECK_NODE_SENT(0, CALLS, QUERY);
        feeds(0, CALLS, HALVES, next);
        asked_at = next;
    }
    CHECK(shortest >= 100 * HF_MS && shortest < 105 * HF_MS);
    CHECK(longest <= 150 * HF_MS && longest > 145 * HF_MS);
}

TEST(losing_the_connection_to_a_node_without_slots_causes_no_request_for_a_new_map) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000)), CHECK(!node_at(2)->may_have_keys);
    hf_session_closed(at(2, CALLS), "gone", AT(2000)), CHECK_EQ_U64(map_due(), HF_NEVER);
}

TEST(the_cluster_map_is_not_requested_from_a_node_that_left_the_cluster) {
    cluster_known(AT(0));
    call_at_gone_node(1, AT(1000)), CHECK(!node_at(2)->may_have_keys);
    hf_op *op = acquire(0, AT(2000));
    output_of(at(0, CALLS));
    rig.refusing = true;
    for (size_t node = 0; node < 3; node++) hf_session_closed(at(node, CALLS), "gone", AT(2001));
    rig_sleep(AT(2001), AT(5001)), CHECK_OUTCOME(op, "unreachable");
    CHECK_OR(strstr(message_of(op), "a:1: ") && strstr(message_of(op), "b:2: ") &&
                 !strstr(message_of(op), "n1:1"),
             "%s", message_of(op));
}

CHECK_MAIN
