#include "lock/holds.h"

#include <stdlib.h>

#include "base/lease.h"
#include "drive.h"

static const hf_slice OWNER = {"owner", 5};

static hf_holds holds;

static void clear(void) {
    hf_holds_free(&holds);
    holds = (hf_holds){0};
}

CHECK_AROUND(NULL, clear)

static hf_hold *add(const char *key, const char *owner) {
    return hf_holds_add(&holds, &hf_kind_lock, hf_slice_of(key), hf_slice_of(owner),
                        hf_slice_of(owner));
}

static hf_hold *find(const char *key, const char *owner) {
    return hf_holds_find(&holds, &hf_kind_lock, hf_slice_of(key), hf_slice_of(owner));
}

TEST(a_hold_is_found_by_kind_key_and_owner) {
    hf_hold *hold = add("ab", "c");
    CHECK(hold && find("ab", "c") == hold);
    CHECK(!find("a", "bc")); /* the same bytes, cut elsewhere */
    CHECK(!find("abc", ""));
    CHECK(!find("ab", "d"));
    CHECK(!hf_holds_find(&holds, &hf_kind_mutex, hf_slice_of("ab"), hf_slice_of("c")));
    hf_hold *other = add("a", "bc");
    CHECK(other && find("a", "bc") == other && find("ab", "c") == hold);
    hf_holds_remove(&holds, claim_of(hold)), CHECK(!find("ab", "c") && find("a", "bc") == other);
}

TEST(holds_whose_timers_expire_at_the_same_time_are_processed_in_order) {
    hf_hold *made[20];
    for (int i = 0; i < 20; i++) {
        made[i] = add(printed("%d", i), "o"), CHECK(made[i]);
    }
    for (int i = 0; i < 20; i++) hf_holds_set_wake_at(&holds, claim_of(made[(i * 7) % 20]), 5);
    for (int i = 0; i < 20; i++) {
        CHECK(hold_of_claim(hf_holds_first(&holds)) == made[i]);
        hf_holds_set_wake_at(&holds, claim_of(made[i]), HF_NEVER);
    }
}

TEST(a_lost_hold_is_counted_and_has_no_timer_any_more) {
    hf_hold *hold = add("key", "owner");
    CHECK(hold);
    set_hold_state(hold, HF_HOLD_HELD);
    set_count(hold, 1);
    set_end(hold, 100);
    hf_holds_set_wake_at(&holds, claim_of(hold), 50), CHECK(hf_hold_is_valid(hold, 99));
    CHECK(!hf_hold_is_valid(hold, 100));
    hf_holds_mark_lost(&holds, hold, HF_LOST_TAKEN), CHECK(is_lost(hold));
    CHECK_EQ_INT(reason_of(hold), HF_LOST_TAKEN);
    CHECK_EQ_U64(holds.losses, 1);
    CHECK_EQ_U64(wakes_at(hold), HF_NEVER);
    CHECK(!hf_hold_is_valid(hold, 99));
    CHECK(find("key", "owner") == hold);
}

TEST(the_count_of_a_shared_owners_other_holds_is_updated_from_the_servers_replies) {
    NEW_HOLD(hold);
    set_count(&hold, 5);
    set_others(&hold, 2), CHECK_EQ_INT(hf_claim_own_holds(claim_of(&hold)), 3);
    hf_claim_set_count(claim_of(&hold), 7); /* two more holds of other processes */
    CHECK_EQ_INT(others_of(&hold), 4);
    CHECK_EQ_INT(count_of(&hold), 7);
    CHECK_EQ_INT(hf_claim_own_holds(claim_of(&hold)), 3);
    hf_claim_set_count(claim_of(&hold), 2); /* fewer than ours alone */
    CHECK_EQ_INT(others_of(&hold), 0);
    CHECK_EQ_INT(count_of(&hold), 2);
    set_pending(&hold, 1); /* the server counts it, we do not */
    hf_claim_set_count(claim_of(&hold), 5), CHECK_EQ_INT(others_of(&hold), 3);
    CHECK_EQ_INT(hf_claim_own_holds(claim_of(&hold)), 3);
}

TEST(a_hold_is_found_by_its_own_number_or_by_that_of_its_shared_owners_wait) {
    hf_hold *mine = add("a", "o"), *shared = add("b", "o");
    CHECK(mine && shared);
    hf_holds_set_wait(&holds, claim_of(mine), 7);
    hf_holds_set_wait(&holds, claim_of(shared), 8);
    set_shared(shared, true);
    CHECK(hold_of_claim(hf_holds_find_by_number(&holds, number_of(mine))) == mine);
    CHECK(!hold_of_claim(hf_holds_find_by_number(&holds, 7)));
    CHECK(hold_of_claim(hf_holds_find_by_number(&holds, number_of(shared))) == shared);
    CHECK(hold_of_claim(hf_holds_find_by_number(&holds, 8)) == shared);
    hf_holds_set_wait(&holds, claim_of(shared), 9);
    CHECK(!hold_of_claim(hf_holds_find_by_number(&holds, 8)));
    CHECK(hold_of_claim(hf_holds_find_by_number(&holds, 9)) == shared);
    hf_holds_set_wait(&holds, claim_of(shared), number_of(shared)); /* it needs no other number */
    CHECK(!hold_of_claim(hf_holds_find_by_number(&holds, 9)));
    CHECK(hold_of_claim(hf_holds_find_by_number(&holds, number_of(shared))) == shared);
    hf_holds_remove(&holds, claim_of(shared)),
        CHECK(!hold_of_claim(hf_holds_find_by_number(&holds, 2)));
}

TEST(after_a_change_of_a_key_the_next_check_of_its_holds_is_moved_earlier_but_never_later) {
    CASES(const hf_kind *kind; const char *key; hf_hold_state state; hf_time wake_at, woken_at) = {
        {&hf_kind_lock, "k", HF_HOLD_HELD, 90, 50},
        {&hf_kind_lock, "k", HF_HOLD_HELD, 20, 20},
        {&hf_kind_lock, "k", HF_HOLD_HELD, HF_NEVER, 50},
        {&hf_kind_lock, "k", HF_HOLD_RELEASING, 90, 90},
        {&hf_kind_mutex, "k", HF_HOLD_HELD, 90, 90},
        {&hf_kind_lock, "j", HF_HOLD_HELD, 90, 90},
    };
    hf_hold *all[sizeof cases / sizeof *cases];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char owner[2] = {(char)('a' + i), '\0'};
        all[i] = hf_holds_add(&holds, cases[i].kind, hf_slice_of(cases[i].key), hf_slice_of(owner),
                              OWNER);
        set_hold_state(all[i], cases[i].state);
        set_count(all[i], 1);
        hf_holds_set_wake_at(&holds, claim_of(all[i]), cases[i].wake_at);
    }
    hf_holds_wake_all(&holds, &hf_kind_lock, hf_slice_of("k"), 50);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_OR(wakes_at(all[i]) == cases[i].woken_at, "case %zu", i);
    CHECK(hold_of_claim(hf_holds_first(&holds)) == all[1]);
}

TEST(the_number_of_holds_awaiting_clean_up_falls_when_one_is_removed) {
    hf_hold *one = add("a", "o"), *other = add("b", "o");
    hf_claim *first = claim_of(one), *second = claim_of(other);
    hf_holds_begin_leaving(&holds, first);
    hf_holds_begin_leaving(&holds, second);
    hf_holds_mark_late_grant(&holds, first), CHECK_EQ_INT((int)holds.late_grants, 1);
    hf_holds_remove(&holds, second), CHECK_EQ_INT((int)holds.late_grants, 1);
    hf_holds_remove(&holds, first), CHECK_EQ_INT((int)holds.late_grants, 0);
}

TEST(another_clients_request_for_a_kept_lock_must_name_its_current_number) {
    hf_hold *hold = add("a", "o");
    hf_kept_lock keep = {.holds = &holds};
    set_claim_kept(claim_of(hold), &keep);
    hf_holds_set_wait(&holds, claim_of(hold), 77);
    hf_holds_on_wanted(&holds, 77), CHECK(!keep.wanted && !keep.due);
    hf_holds_on_wanted(&holds, number_of(hold)),
        CHECK(keep.wanted && keep.due && holds.due == &keep);
    clear(), CHECK(!keep.claim);
}

TEST(an_idle_kept_lock_is_not_reported_as_ended) {
    hf_hold *idle = add("idle", "o"), *asking = add("asking", "o");
    CHECK(idle && asking);
    hf_claim *claim = claim_of(idle);
    hf_kept_lock keep = {.holds = &holds};
    set_hold_state(idle, HF_HOLD_HELD);
    set_count(idle, 1);
    set_claim_kept(claim, &keep);
    set_end(idle, 50);
    hf_holds_set_wake_at(&holds, claim, 50);
    hf_holds_set_wake_at(&holds, claim_of(asking), 60);
    CHECK(hf_holds_first_expired(&holds, 100) == claim);
    hf_holds_make_idle(&holds, claim), CHECK(!hf_holds_first_expired(&holds, 100));
    clear(); /* before `keep` ends */
}

/* ---- against a naive model: the model is an array of what should be in the table ---- */

enum { KEYS = 40, OWNERS = 5, MOST = KEYS * OWNERS };

typedef struct naive {
    hf_hold *holds[MOST];
    hf_time wake_at[MOST];
} naive;

static bool heap_is_ordered(void) {
    for (size_t i = 0; i < holds.count; i++) {
        const hf_hold *hold = hold_in_heap(&holds, i),
                      *parent = hold_in_heap(&holds, i ? (i - 1) / 2 : 0);
        if (wakes_at(parent) > wakes_at(hold)) return false;
        if (wakes_at(parent) == wakes_at(hold) && number_of(parent) > number_of(hold)) return false;
    }
    return true;
}

static hf_hold *first_of(const naive *model) {
    hf_hold *first = NULL;
    for (int i = 0; i < MOST; i++) {
        hf_hold *hold = model->holds[i];
        if (!hold) continue;
        bool before = !first || wakes_at(hold) < wakes_at(first) ||
                      (wakes_at(hold) == wakes_at(first) && number_of(hold) < number_of(first));
        if (before) first = hold;
    }
    return first;
}

static bool agrees(const naive *model) {
    size_t count = 0;
    char key[16], owner[16];
    for (int i = 0; i < MOST; i++) {
        snprintf(key, sizeof key, "k%d", i / OWNERS);
        snprintf(owner, sizeof owner, "o%d", i % OWNERS);
        if (find(key, owner) != model->holds[i]) return false;
        if (model->holds[i] && wakes_at(model->holds[i]) != model->wake_at[i]) return false;
        count += model->holds[i] != NULL;
    }
    return holds.count == count && hold_of_claim(hf_holds_first(&holds)) == first_of(model);
}

static void step(naive *model, uint64_t *random) {
    int i = (int)hf_jitter(random, MOST);
    char key[16], owner[16];
    snprintf(key, sizeof key, "k%d", i / OWNERS);
    snprintf(owner, sizeof owner, "o%d", i % OWNERS);
    hf_hold *hold = model->holds[i];
    if (!hold) {
        model->holds[i] = add(key, owner);
        model->wake_at[i] = HF_NEVER;
    } else if (hf_jitter(random, 3) == 0) {
        hf_holds_remove(&holds, claim_of(hold));
        model->holds[i] = NULL;
    } else {
        model->wake_at[i] = hf_jitter(random, 10) == 0 ? HF_NEVER : hf_jitter(random, 50);
        hf_holds_set_wake_at(&holds, claim_of(hold), model->wake_at[i]);
    }
}

TEST(the_table_of_holds_agrees_with_a_simple_model_under_random_operations) {
    uint64_t random = 2026;
    for (int round = 0; round < 20; round++) {
        naive model = {0};
        for (int i = 0; i < 1000; i++) {
            step(&model, &random), CHECK(heap_is_ordered());
            if (i % 20 == 0) CHECK(agrees(&model));
        }
        CHECK(agrees(&model));
        clear();
    }
}

TEST(timers_of_holds_that_were_set_without_sorting_are_sorted_before_use) {
    uint64_t random = 5;
    for (int i = 0; i < 1000; i++) CHECK(add(printed("%d", i), "o"));
    for (size_t i = 0; i < holds.count; i++)
        set_wake(hold_in_heap(&holds, i), hf_jitter(&random, 100));
    hf_holds_resort(&holds), CHECK(heap_is_ordered());
}

TEST(a_hold_takes_at_most_512_bytes) {
    size_t others = sizeof(void *) * 2 * 2; /* heap and buckets, at most half full */
    CHECK(sizeof(hf_hold) + sizeof(hf_claim) + others + HF_UUID_SIZE + 2 + 64 <= 512);
}

static bool add_many(void *context) {
    char key[16];
    bool added = true;
    (void)context;
    for (int i = 0; added && i < 40; i++) {
        size_t before = holds.count;
        snprintf(key, sizeof key, "%d", i);
        added = add(key, "o") != NULL;
        if (!added && (holds.count != before || find(key, "o"))) abort();
        for (int j = 0; j < i; j++) {
            snprintf(key, sizeof key, "%d", j);
            if (!find(key, "o")) abort();
        }
        if (!heap_is_ordered()) abort();
    }
    clear();
    return added;
}

TEST(a_failed_allocation_leaves_the_table_of_holds_intact) {
    CHECK(memerr_until_success(add_many, NULL, 100) >= 40);
}

TEST(a_hold_that_has_ended_is_found_anywhere_in_the_timer_heap) {
    enum { HOLDS = 31 };
    for (int ended = 0; ended < HOLDS; ended++) {
        hf_hold *each[HOLDS];
        for (int i = 0; i < HOLDS; i++) {
            each[i] = add(printed("k%d", i), "o"), CHECK(each[i]);
            set_hold_state(each[i], HF_HOLD_HELD);
            set_count(each[i], 1);
            set_end(each[i], i == ended ? 100 : 200);
            hf_holds_set_wake_at(&holds, claim_of(each[i]), (hf_time)i + 1);
        }
        CHECK(hold_of_claim(hf_holds_first_expired(&holds, 100)) == each[ended]);
        CHECK(!hf_holds_first_expired(&holds, 99));
        hf_holds_mark_lost(&holds, each[ended], HF_LOST_EXPIRED);
        CHECK(!hf_holds_first_expired(&holds, 199) && hf_holds_first_expired(&holds, 200));
        clear(), CHECK(!hf_holds_first_expired(&holds, 200));
    }
}

TEST(max_hold_shortens_a_lease_but_never_below_the_shortest_possible_one) {
    CASES(hf_time max_until, now, left, lease, end) = {
        {HF_NEVER, 40 * HF_SECOND, 0, 30 * HF_SECOND, 0},
        {100 * HF_SECOND, 40 * HF_SECOND, 60 * HF_SECOND, 30 * HF_SECOND, 0},
        {100 * HF_SECOND, 80 * HF_SECOND, 20 * HF_SECOND, 20 * HF_SECOND, 0},
        {100 * HF_SECOND, 100 * HF_SECOND - 1, 1, 1, 0},
        {100 * HF_SECOND, 100 * HF_SECOND, HF_LEASE_MIN, HF_LEASE_MIN, 100 * HF_SECOND},
        {100 * HF_SECOND, 200 * HF_SECOND, HF_LEASE_MIN, HF_LEASE_MIN, 100 * HF_SECOND},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        NEW_HOLD(hold);
        set_bound(&hold, cases[i].max_until);
        set_lease(&hold, 30 * HF_SECOND);
        hf_time now = cases[i].now, end = hf_claim_lease_end(claim_of(&hold), lease_of(&hold), now);
        CHECK_OR(hf_claim_max_left(claim_of(&hold), now) == cases[i].left, "case %zu", i);
        hf_time lease = hf_claim_capped_lease(claim_of(&hold), lease_of(&hold), now);
        CHECK_OR(lease == cases[i].lease, "case %zu", i);
        hf_time want = cases[i].end ? cases[i].end : hf_lease_end(now, lease);
        CHECK_OR(end == want, "case %zu", i);
        set_end(&hold, end);
        CHECK_OR(hf_claim_has_last_lease(claim_of(&hold)) == (lease < 30 * HF_SECOND), "case %zu",
                 i);
    }
}

TEST(a_holds_lease_is_limited_only_by_a_shorter_one) {
    NEW_HOLD(hold);
    set_lease(&hold, 10);
    set_shortened_lease(&hold, HF_NEVER);
    hf_claim_limit_lease(claim_of(&hold), 5, 5), CHECK_EQ_U64(hf_claim_lease(claim_of(&hold)), 10);
    hf_claim_limit_lease(claim_of(&hold), 6, 5), CHECK_EQ_U64(hf_claim_lease(claim_of(&hold)), 10);
    hf_claim_limit_lease(claim_of(&hold), 4, 5), CHECK_EQ_U64(hf_claim_lease(claim_of(&hold)), 4);
    hf_claim_limit_lease(claim_of(&hold), 3, HF_NEVER);
    CHECK_EQ_U64(hf_claim_lease(claim_of(&hold)), 3);
    hf_claim_limit_lease(claim_of(&hold), 4, HF_NEVER);
    CHECK_EQ_U64(hf_claim_lease(claim_of(&hold)), 3);
}

TEST(a_client_publishes_its_name_for_holds_that_are_renewed_or_long_and_not_shared) {
    static const struct {
        hf_hold_state state;
        bool renewed, shared;
        hf_time valid_until;
        const hf_kind *kind;
        const char *key;
        bool lasts;
        hf_time max_until; /* 0: none */
    } cases[] = {
        {HF_HOLD_HELD, true, false, 10, &hf_kind_lock, "k", true, 0},
        {HF_HOLD_HELD, false, false, 51, &hf_kind_lock, "k", true, 0},
        {HF_HOLD_HELD, false, false, 50, &hf_kind_lock, "k", false, 0},
        {HF_HOLD_RELEASING, true, false, 90, &hf_kind_lock, "k", false, 0},
        {HF_HOLD_HELD, true, true, 90, &hf_kind_lock, "k", false, 0},
        {HF_HOLD_HELD, true, false, 90, &hf_kind_mutex, "k", false, 0},
        {HF_HOLD_HELD, true, false, 90, &hf_kind_lock, "j", false, 0},
        {HF_HOLD_HELD, true, false, 10, &hf_kind_lock, "k", true, 50},
        {HF_HOLD_HELD, true, false, 10, &hf_kind_lock, "k", false, 49},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        add("other", "me");
        hf_hold *hold =
            hf_holds_add(&holds, cases[i].kind, hf_slice_of(cases[i].key), OWNER, OWNER);
        if (!hold) abort();
        set_hold_state(hold, cases[i].state);
        set_renewed(hold, cases[i].renewed);
        set_shared(hold, cases[i].shared);
        set_end(hold, cases[i].valid_until);
        if (cases[i].max_until > 0) set_bound(hold, cases[i].max_until);
        const hf_hold *found = hf_holds_find_lasting(&holds, &hf_kind_lock, hf_slice_of("k"), 50);
        CHECK_OR(found == (cases[i].lasts ? hold : NULL), "case %zu", i);
        clear();
    }
}

TEST(after_a_shared_owners_release_only_its_other_processes_holds_are_counted) {
    NEW_HOLD(hold);
    set_count(&hold, 5);
    set_others(&hold, 2);
    set_pending(&hold, 3), CHECK_EQ_INT(hf_claim_own_holds(claim_of(&hold)), 6);
    hf_claim_drop_own_holds(claim_of(&hold)), CHECK_EQ_INT(hf_claim_own_holds(claim_of(&hold)), 0);
    CHECK_EQ_INT(count_of(&hold), 2);
    CHECK_EQ_INT(pending_of(&hold), 0);
}

CHECK_MAIN
