#include "cluster_rig.h"

static void known_before(void) {
    cluster_known(AT(0));
}

RIG_BEGINS_WITH(known_before)

TEST(a_moved_redirect_is_followed_at_once_and_applies_to_later_commands) {
    hf_op *op = acquire(0, AT(1000));
    CHECK_NODE_SENT(0, CALLS, ASKED);
    CHECK_THEN_SENT(0, MOVED_TO_B, AT(1001), 1, ASKED);
    CHECK(node_for(op) == node_at(1));
    CHECK_EQ_INT(request_in(op)->possible_runs, 1);
    CHECK_EQ_U64(stats().redirects, 1);
    CHECK_ANSWER_BY(1, op, YES, AT(1002), "ok");
    hf_op_end(op, AT(1002));
    release_k(AT(1002)), CHECK_NODE_SENT(1, CALLS, "EVALSHA sharded_release " K_AND_OWNER);
}

TEST(a_moved_redirect_makes_the_client_reread_the_cluster_map_but_not_too_often) {
    for (int i = 0; i < 10; i++) {
        hf_op *op = acquire(0, AT(1000));
        output_of(at(0, CALLS));
        feeds(0, CALLS, "-MOVED 7629 a:1\r\n", AT(1000));
        output_of(at(0, CALLS));
        feeds(0, CALLS, YES, AT(1000));
        hf_op_end(op, AT(1000));
        op = release_k(AT(1000));
        output_of(at(0, CALLS));
        feeds(0, CALLS, ":1\r\n", AT(1000));
        hf_op_end(op, AT(1000));
    }
    rig_tick(AT(1000)), CHECK_NODE_SENT(0, CALLS, QUERY);
    feeds(0, CALLS, HALVES, AT(1001)), CHECK_EQ_U64(client_next_tick(), HF_NEVER);
}

TEST(an_ask_redirect_is_followed_for_one_command_only) {
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    CHECK_THEN_SENT(0, ASK_B, AT(1001), 1, "ASKING\n" ASKED);
    CHECK(node_for(op) == node_at(0));
    feeds(1, CALLS, "+OK\r\n", AT(1002)), CHECK(!hf_op_is_done(op));
    feeds(1, CALLS, "-NOSCRIPT\r\n", AT(1002));
    CHECK_NODE_SENT(1, CALLS, "ASKING\nEVAL sharded_acquire " K_AND_OWNER " 30000 1000");
    CHECK_ANSWER_BY(1, op, "+OK\r\n" YES, AT(1003), "ok");
    hf_op_end(op, AT(1003));
    hf_op_spec spec = spec_of(HF_OP_CHECK);
    hf_client_begin(&rig.client, &spec, AT(1003));
    CHECK(strncmp(output_of(at(0, CALLS)), "EVALSHA sharded_extend", 22) == 0);
}

TEST(a_command_answered_with_tryagain_is_retried_until_its_deadline) {
    hf_op *op = acquire(0, AT(1000));
    int asked = 0;
    for (int ms = 1000; ms < 4100 && !hf_op_is_done(op); ms++) {
        if (strstr(output_of(at(0, CALLS)), "acquire")) {
            asked++;
            feeds(0, CALLS, "-TRYAGAIN wait\r\n", AT(ms));
        }
        rig_tick(AT(ms));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, "TRYAGAIN wait");
    CHECK(asked > 50 && asked < 300);
    CHECK_EQ_INT(state_of(), -1);
}

/* Each reply takes its time, so one is awaited when a command times out. */
TEST(a_waiting_acquire_keeps_retrying_while_its_slot_is_migrating) {
    hf_op *op = acquire(60 * HF_SECOND, AT(1000));
    for (int ms = 1000; ms < 20000; ms += 400) {
        rig_sleep(AT(ms), AT(ms + 399));
        if (strstr(output_of(at(0, CALLS)), "acquire"))
            feeds(0, CALLS, "-TRYAGAIN wait\r\n", AT(ms + 399));
    }
    CHECK_OUTCOME(op, "under way");
}

TEST(a_command_without_a_reply_is_resent_to_the_node_that_takes_over) {
    hf_op *op = acquire(0, AT(1000));
    output_of(at(0, CALLS));
    lose(0, AT(1001)), CHECK(!hf_op_is_done(op));
    rig_tick(AT(1001)), CHECK_NODE_SENT(1, CALLS, QUERY);
    feeds(1, CALLS, HALVES, AT(1002));
    CHECK(!hf_op_is_done(op)); /* its outcome is unknown: it is worth waiting for */
    CHECK(rig_sleep(AT(1002), AT(1400)) < 40);
    CHECK(strstr(output_of(at(1, CALLS)), QUERY));
    CHECK_THEN_SENT(1, ALL_OF_B, AT(1401), 1, ASKED);
    CHECK_EQ_INT(request_in(op)->possible_runs, 2);
}

TEST(a_renewal_that_waits_for_a_connection_moves_to_the_new_node_when_the_map_changes) {
    hold_k(AT(0));
    hf_client_tick(&rig.client, AT(10000)); /* the renewer's link is not made yet */
    CHECK(hf_session_has_work(at(0, RENEWER)));
    topology_of(&rig.client)->invalidate(node_at(0), CALLS, AT(10001));
    hf_client_tick(&rig.client, AT(10200));
    feeds(0, CALLS, ALL_OF_B, AT(10201)), CHECK(!hf_session_has_work(at(0, RENEWER)));
    CHECK_NODE_SENT(1, RENEWER, "EVALSHA renew 1 k me 30000");
}

TEST(a_waiter_queues_at_the_new_node_when_its_slot_moves) {
    hf_op *op = in_queue(AT(1000));
    rig_sleep(AT(1000), AT(3050)), CHECK(strstr(output_of(at(0, CALLS)), "sharded_acquire"));
    feeds(0, CALLS, MOVED_TO_B, AT(3051)), CHECK(node_for(op) == node_at(1));
    CHECK_EQ_INT(node_at(0)->events_users, 0);
    CHECK_EQ_INT(node_at(1)->events_users, 1);
    CHECK(strstr(output_of(at(1, CALLS)), MEMBER("2")));
    feeds(1, CALLS, busy(20000, 0, 0), AT(3052)), CHECK(is_subscribing(op));
    CHECK_NODE_SENT(1, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
    feeds_event(1, "subscribe", "1", AT(3053)), CHECK(strstr(output_of(at(1, CALLS)), MEMBER("2")));
    feeds(1, CALLS, busy(20000, 0, 0), AT(3054)), CHECK(is_waiting(op));
    feeds_event(1, "message", GRANT("2", "99"), AT(3055)), CHECK_OUTCOME(op, "ok");
}

TEST(a_waiter_queues_at_the_new_node_when_the_map_changes_and_at_once_if_it_is_subscribed_there) {
    EACH_NUMBER (subscribed, 2) {
        hf_op *op = in_queue(AT(1000));
        topology_of(&rig.client)->invalidate(node_at(0), CALLS, AT(1500));
        rig_tick(AT(1600));
        size_t node = strstr(output_of(at(1, CALLS)), QUERY) ? 1 : 0;
        node_at(1)->subscribed = subscribed;
        feeds(node, CALLS, ALL_OF_B, AT(1601)), CHECK(node_for(op) == node_at(1));
        CHECK_EQ_INT(is_asking(op), subscribed);
        if (!subscribed) CHECK_NODE_SENT(1, EVENTS, "SUBSCRIBE " DRIVE_GRANTS);
        if (!subscribed) feeds_event(1, "subscribe", "1", AT(1602));
        CHECK(strstr(output_of(at(1, CALLS)), MEMBER("2")));
    }
}

TEST(a_grant_to_an_ended_wait_is_undone_only_if_it_came_from_the_node_of_its_key) {
    for (size_t node = 0; node < 2; node++) {
        node_at(node)->links[EVENTS].stays_open = true;
        rig_serve(AT(1000));
    }
    hf_ended_waits_add(ended_of(&rig.client), 7, &hf_kind_lock, hf_slice_of("k"));
    feeds_event(1, "message", GRANT("7", "99"), AT(1001)), CHECK_EQ_INT(holds_left(), 0);
    feeds_event(0, "message", GRANT("7", "99"), AT(1002)), CHECK_EQ_INT(holds_left(), 1);
    CHECK(is_leaving(claim_in_heap(holds_of(&rig.client), 0)));
}

TEST(a_grant_is_renewed_by_a_command_with_a_single_key_while_its_slot_is_migrating) {
    hf_op *op = in_queue(AT(1000));
    feeds_event(0, "message", GRANT("2", "99"), AT(1100)), CHECK_ENDS(op, "ok", AT(1100));
    bool renewed = false;
    for (int ms = 1100; ms < 3000 && !renewed; ms++) {
        const char *text = output_of(at(0, RENEWER));
        if (strstr(text, "extend 2 k")) feeds(0, RENEWER, "-TRYAGAIN wait\r\n", AT(ms));
        renewed = strstr(text, "renew 1 k") != NULL;
        if (renewed) feeds(0, RENEWER, "*1\r\n:1\r\n", AT(ms));
        rig_tick(AT(ms));
    }
    CHECK(renewed);
    CHECK(hf_hold_is_valid(hold_of(), AT(25000)));
}

TEST(a_waiter_subscribes_to_plain_and_sharded_channels_and_polls_until_both_are_confirmed) {
    hf_op *op = acquire(60 * HF_SECOND, AT(1000));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1000));
    feeds_event(0, "subscribe", "1", AT(1000));
    output_of(at(0, EVENTS));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1000)), CHECK_NODE_SENT(0, EVENTS, LISTENS);
    CHECK(hf_op_next_tick(op) > AT(1000) && hf_op_next_tick(op) <= AT(1201));
    feeds(0, EVENTS, SHARDED("$10\r\nssubscribe", ":1"), AT(1000));
    CHECK(hf_op_next_tick(op) <= AT(1001)); /* it may have been announced before */
    rig_tick(AT(1001));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1001)), CHECK(hf_op_next_tick(op) > AT(1201));
    feeds(0, EVENTS, SHARDED("$8\r\nsmessage", "$1\r\n0"), AT(1100));
    CHECK(hf_op_next_tick(op) <= AT(1100));
    rig_tick(AT(1100));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1101));
    feeds(0, EVENTS, SHARDED("$12\r\nsunsubscribe", ":0"), AT(1200)); /* the slot has moved */
    rig_tick(AT(1200));
    feeds(0, CALLS, busy(20000, 0, 1), AT(1200));
    CHECK(hf_op_next_tick(op) > AT(1200) && hf_op_next_tick(op) <= AT(1401));
}

/* The renewer waits for its answer, which is a redirect: the acquire itself has ended by then. */
TEST(an_abandoned_acquire_that_is_redirected_is_undone_on_the_new_node) {
    static const char *const redirects[] = {MOVED_TO_B, ASK_B, "-CLUSTERDOWN no\r\n",
                                            "-TRYAGAIN wait\r\n"};
    EACH_CASE (i, redirects) {
        hf_op *op = BEGIN(HF_OP_ACQUIRE, AT(10), spec.wait = 100 * HF_MS,
                          spec.caller = hf_slice_of("svc"), spec.shared = true);
        CHECK(strstr(output_of(at(0, CALLS)), "sharded_acquire"));
        rig_sleep(AT(10), AT(300)), CHECK_ENDS(op, "unreachable", AT(300));
        feeds(0, CALLS, redirects[i], AT(310));
        if (redirects[i][1] == 'M') {
            CHECK(strstr(output_of(at(1, CALLS)), "sharded_acquire"));
            feeds(1, CALLS, YES, AT(320));
            rig_tick(AT(320));
            CHECK(strstr(output_of(at(1, CALLS)), QUERY "\nEVALSHA sharded_leave 4 k "));
            feeds(1, CALLS, ALL_OF_B ":1\r\n", AT(330)), CHECK_EQ_INT(holds_left(), 0);
        }
        rig_sleep(AT(330), AT(20000));
    }
}

TEST(a_removed_node_is_not_forgotten_while_its_connection_is_open) {
    call_at_gone_node(1, AT(1000)), CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK(!node_at(2)->may_have_keys);
    CHECK_EQ_INT(at(2, CALLS)->state, HF_SESSION_READY);
    call_at_gone_node(2, AT(3000)), CHECK_EQ_INT(node_count(&rig.client), 4);
    CHECK_STR(node_at(2)->server.host, "n1");
    CHECK_STR(node_at(3)->server.host, "n2");
}

TEST(a_node_stored_in_a_removed_ones_memory_inherits_none_of_its_state) {
    call_at_gone_node(1, AT(1000)), CHECK_EQ_INT(node_count(&rig.client), 3);
    hf_session_closed(at(2, CALLS), "gone", AT(2000));
    for (int i = 0; i < 5; i++) {
        hf_session_opening(at(2, CALLS), AT(2000 + i));
        hf_session_closed(at(2, CALLS), "refused", AT(2000 + i));
    }
    move_to(2, AT(3000)), CHECK_EQ_INT(node_count(&rig.client), 3);
    CHECK_STR(node_at(2)->server.host, "n2");
    CHECK_EQ_INT(at(2, CALLS)->opens_since_reply, 1);
}

/* ---- memory ---- */

/* A map, a redirect to a node that is new, ASK, a wait that moves. False: something failed, as it
 * should. */
static bool live(void *context) {
    (void)context;
    bool lived = cluster_begin();
    hf_op *op = lived ? acquire(HF_SECOND, AT(0)) : NULL;
    if (op) {
        rig_tick(AT(0));
        feeds(0, CALLS, HALVES, AT(1));
        rig_tick(AT(300));
        feeds(0, CALLS, "-MOVED 7629 c:3\r\n", AT(301));
        if (node_count(&rig.client) == 3) {
            feeds(2, CALLS, ASK_B, AT(302));
            feeds(1, CALLS, "+OK\r\n", AT(303));
            feeds(1, CALLS, busy(20000, 0, 0), AT(303));
            feeds_event(2, "subscribe", "1", AT(304));
            feeds(2, CALLS, YES, AT(305));
        }
        rig_sleep(AT(305), AT(5000));
        if (!hf_op_is_done(op)) abort();
        lived = hf_op_code(op) == HF_OK;
    }
    lived = lived && op;
    if (ops_of(&rig.client)) hf_op_end(ops_of(&rig.client), AT(5000));
    rig_end(AT(5000));
    return lived;
}

/* The map that the cluster gives has no node for the slot of the key. */
static void check_unserved(const char *map, const char *why) {
    CHECK(cluster_begin());
    hf_op *op = acquire(0, AT(0));
    rig_tick(AT(0));
    feeds(0, CALLS, printed("%s", map), AT(1));
    for (int ms = 100; ms < 5000 && !hf_op_is_done(op); ms += 100) {
        rig_sleep(AT(ms - 100), AT(ms));
        answer_query(0, CALLS, map, AT(ms));
        answer_query(1, CALLS, map, AT(ms));
    }
    CHECK_OUTCOME(op, "unreachable");
    CHECK_MESSAGE(op, why);
    rig_end(AT(5000));
}

TEST(a_command_fails_with_a_message_if_no_node_serves_its_slot) {
    check_unserved("*1\r\n" RANGE(8192, 16383, "b", 2),
                   "no node of the cluster serves the key's slot");
}

TEST(a_command_fails_with_a_message_if_the_map_gives_its_node_no_address) {
    check_unserved("*2\r\n" RANGE(0, 8191, "?", 1) RANGE(8192, 16383, "b", 2),
                   "set cluster-announce-hostname on each node");
}

/* "3560" is in slot 0, "39296" in slot 16383. */
TEST(keys_in_the_first_and_in_the_last_slot_are_sent_to_their_nodes) {
    CASES(const char *key; unsigned slot; size_t node) = {{"3560", 0, 1}, {"39296", 16383, 0}};
    CHECK(cluster_begin());
    acquire_by("*2\r\n" RANGE(0, 8191, "b", 2) RANGE(8192, 16383, "a", 1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_slice key = hf_slice_of(cases[i].key);
        CHECK_EQ_INT(hf_slot_of(key), cases[i].slot);
        CHECK(hf_client_node(&rig.client, key) == node_at(cases[i].node));
        CHECK_EQ_INT(hf_client_group(&rig.client, key), cases[i].slot);
    }
}

TEST(a_cluster_client_survives_each_failed_allocation_without_a_leak) {
    CHECK(memerr_until_success(live, NULL, 1000) > 10);
}

TEST(a_command_that_must_not_be_resent_does_not_move_to_another_node) {
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    spec.caller = hf_slice_of("svc");
    spec.shared = true;
    hf_op *op = hf_client_begin(&rig.client, &spec, AT(1000));
    CHECK_ANSWER_BY(0, op, YES, AT(1000), "ok");
    hf_op_end(op, AT(1000));
    spec.kind = HF_OP_RELEASE;
    op = hf_client_begin(&rig.client, &spec, AT(1001)), CHECK(request_in(op)->no_retry);
    lose(0, AT(1002));
    rig_tick(AT(1002));
    for (int ms = 1002; ms < 4100; ms += 50) {
        rig_sleep(AT(ms), AT(ms + 50));
        const char *text = output_of(at(1, CALLS));
        CHECK(!strstr(text, "release"));
        if (strstr(text, QUERY)) feeds(1, CALLS, ALL_OF_B, AT(ms + 50));
    }
    CHECK_OUTCOME(op, "unreachable");
}

CHECK_MAIN
