#include "holds.h"

#include <stdlib.h>

#include "check.h"
#include "memerr.h"

static const hf_slice KEY = {"key", 3}, OWNER = {"owner", 5};

static hf_hold *add(hf_holds *holds, const char *key, const char *owner)
{
    return hf_holds_add(holds, HF_LAYOUT_LOCK, hf_slice_of(key), hf_slice_of(owner));
}

static hf_hold *find(const hf_holds *holds, const char *key, const char *owner)
{
    return hf_holds_find(holds, HF_LAYOUT_LOCK, hf_slice_of(key), hf_slice_of(owner));
}

TEST(nothing_in_an_empty_table)
{
    hf_holds holds = {0};
    CHECK(!find(&holds, "key", "owner"));
    CHECK(!hf_holds_first(&holds));
    hf_holds_free(&holds);
}

TEST(a_new_hold)
{
    hf_holds holds = {0};
    hf_hold *hold = hf_holds_add(&holds, HF_LAYOUT_MUTEX, KEY, OWNER);
    CHECK(hold);
    CHECK_EQ_INT(hold->state, HF_HOLD_ACQUIRING);
    CHECK_EQ_INT(hold->layout, HF_LAYOUT_MUTEX);
    CHECK_EQ_INT(hold->refs, 1);
    CHECK_EQ_U64(hold->wake_at, HF_NEVER);
    CHECK(hold->in_table);
    CHECK(hf_slice_equal(hf_hold_key(hold), KEY));
    CHECK(hf_slice_equal(hf_hold_owner(hold), OWNER));
    CHECK(!hf_hold_is_valid(hold, 0));
    CHECK(hf_holds_first(&holds) == hold);
    hf_holds_free(&holds);
}

TEST(found_by_layout_key_and_owner)
{
    hf_holds holds = {0};
    hf_hold *hold = add(&holds, "ab", "c");
    CHECK(hold && find(&holds, "ab", "c") == hold);
    CHECK(!find(&holds, "a", "bc")); /* the same bytes, cut elsewhere */
    CHECK(!find(&holds, "abc", ""));
    CHECK(!find(&holds, "ab", "d"));
    CHECK(!hf_holds_find(&holds, HF_LAYOUT_MUTEX, hf_slice_of("ab"), hf_slice_of("c")));
    hf_hold *other = add(&holds, "a", "bc");
    CHECK(other && find(&holds, "a", "bc") == other && find(&holds, "ab", "c") == hold);
    hf_holds_remove(&holds, hold);
    CHECK(!find(&holds, "ab", "c") && find(&holds, "a", "bc") == other);
    hf_holds_free(&holds);
}

TEST(keys_are_binary)
{
    static char long_key[65536];
    hf_holds holds = {0};
    hf_slice a = {"a\0b", 3}, b = {"a\0c", 3}, c = {long_key, sizeof long_key};
    CHECK(hf_holds_add(&holds, HF_LAYOUT_LOCK, a, OWNER));
    CHECK(hf_holds_add(&holds, HF_LAYOUT_LOCK, c, OWNER));
    CHECK(hf_holds_find(&holds, HF_LAYOUT_LOCK, a, OWNER));
    CHECK(!hf_holds_find(&holds, HF_LAYOUT_LOCK, b, OWNER));
    CHECK_EQ_INT(hf_hold_key(hf_holds_find(&holds, HF_LAYOUT_LOCK, c, OWNER)).size, 65536);
    hf_holds_free(&holds);
}

TEST(a_handle_keeps_a_removed_hold)
{
    hf_holds holds = {0};
    hf_hold *hold = add(&holds, "key", "owner");
    CHECK(hold);
    hf_hold_ref(hold);
    hf_holds_remove(&holds, hold);
    CHECK(!hold->in_table);
    CHECK_EQ_INT(hold->refs, 1);
    CHECK(hf_slice_equal(hf_hold_key(hold), KEY));
    hf_holds_wake_at(&holds, hold, 5); /* no place in the heap any more */
    CHECK(!hf_holds_first(&holds));
    hf_hold *again = add(&holds, "key", "owner");
    CHECK(again && again != hold && again->number > hold->number);
    hf_hold_unref(hold);
    hf_holds_free(&holds);
}

TEST(equal_times_are_served_in_order)
{
    hf_holds holds = {0};
    hf_hold *made[20];
    char key[16];
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "%d", i);
        made[i] = add(&holds, key, "o");
        CHECK(made[i]);
    }
    for (int i = 0; i < 20; i++)
        hf_holds_wake_at(&holds, made[(i * 7) % 20], 5);
    for (int i = 0; i < 20; i++) {
        CHECK(hf_holds_first(&holds) == made[i]);
        hf_holds_wake_at(&holds, made[i], HF_NEVER);
    }
    hf_holds_free(&holds);
}

TEST(losing_is_news_and_ends_the_attention)
{
    hf_holds holds = {0};
    hf_hold *hold = add(&holds, "key", "owner");
    CHECK(hold);
    hold->state = HF_HOLD_HELD;
    hold->valid_until = 100;
    hf_holds_wake_at(&holds, hold, 50);
    CHECK(hf_hold_is_valid(hold, 99));
    CHECK(!hf_hold_is_valid(hold, 100));
    hf_holds_lose(&holds, hold, HF_LOST_TAKEN);
    CHECK_EQ_INT(hold->state, HF_HOLD_LOST);
    CHECK_EQ_INT(hold->reason, HF_LOST_TAKEN);
    CHECK_EQ_U64(holds.news, 1);
    CHECK_EQ_U64(hold->wake_at, HF_NEVER);
    CHECK(!hf_hold_is_valid(hold, 99));
    CHECK(find(&holds, "key", "owner") == hold);
    hf_holds_free(&holds);
}

TEST(reasons_have_names)
{
    CHECK(!hf_lost_reason_name(HF_LOST_NOT));
    CHECK_STR(hf_lost_reason_name(HF_LOST_EXPIRED), "expired");
    CHECK_STR(hf_lost_reason_name(HF_LOST_TAKEN), "taken");
    CHECK_STR(hf_lost_reason_name(HF_LOST_DELETED), "deleted");
    CHECK_STR(hf_lost_reason_name(HF_LOST_UNREACHABLE), "unreachable");
}

TEST(what_belongs_to_the_owners_other_processes)
{
    hf_hold hold = {.count = 5, .base = 2};
    CHECK_EQ_INT(hf_hold_own(&hold), 3);
    hf_hold_rebase(&hold, 7); /* two more of theirs */
    CHECK_EQ_INT(hold.base, 4);
    CHECK_EQ_INT(hold.count, 7);
    CHECK_EQ_INT(hf_hold_own(&hold), 3);
    hf_hold_rebase(&hold, 2); /* fewer than ours alone */
    CHECK_EQ_INT(hold.base, 0);
    CHECK_EQ_INT(hold.count, 2);
}

TEST(what_has_ended_is_found_behind_what_is_only_due)
{
    hf_holds holds = {0};
    CHECK(!hf_holds_first_ended(&holds, 100));
    hf_hold *due = add(&holds, "due", "o"), *ended = add(&holds, "ended", "o"),
            *later = add(&holds, "later", "o");
    CHECK(due && ended && later);
    due->state = ended->state = later->state = HF_HOLD_HELD;
    due->valid_until = 200;
    hf_holds_wake_at(&holds, due, 10);
    ended->valid_until = 50;
    hf_holds_wake_at(&holds, ended, 50);
    later->valid_until = 101;
    hf_holds_wake_at(&holds, later, 101);
    CHECK(!hf_holds_first_ended(&holds, 49));
    CHECK(hf_holds_first_ended(&holds, 50) == ended);
    hf_holds_lose(&holds, ended, HF_LOST_EXPIRED);
    CHECK(!hf_holds_first_ended(&holds, 100));
    CHECK(hf_holds_first_ended(&holds, 101) == later);
    hf_holds_free(&holds);
}

/* ---- against a naive model: the model is an array of what should be in the table ---- */

enum { KEYS = 40, OWNERS = 5, MOST = KEYS * OWNERS };

typedef struct naive {
    hf_hold *holds[MOST];
    hf_time wake_at[MOST];
} naive;

static bool heap_is_ordered(const hf_holds *holds)
{
    for (size_t i = 0; i < holds->count; i++) {
        const hf_hold *hold = holds->heap[i], *parent = holds->heap[i ? (i - 1) / 2 : 0];
        if (hold->heap_index != i || parent->wake_at > hold->wake_at) return false;
        if (parent->wake_at == hold->wake_at && parent->number > hold->number) return false;
    }
    return true;
}

static hf_hold *first_of(const naive *model)
{
    hf_hold *first = NULL;
    for (int i = 0; i < MOST; i++) {
        hf_hold *hold = model->holds[i];
        if (!hold) continue;
        bool before = !first || hold->wake_at < first->wake_at ||
                      (hold->wake_at == first->wake_at && hold->number < first->number);
        if (before) first = hold;
    }
    return first;
}

static bool agrees(const hf_holds *holds, const naive *model)
{
    size_t count = 0;
    char key[16], owner[16];
    for (int i = 0; i < MOST; i++) {
        snprintf(key, sizeof key, "k%d", i / OWNERS);
        snprintf(owner, sizeof owner, "o%d", i % OWNERS);
        if (find(holds, key, owner) != model->holds[i]) return false;
        if (model->holds[i] && model->holds[i]->wake_at != model->wake_at[i]) return false;
        count += model->holds[i] != NULL;
    }
    return holds->count == count && hf_holds_first(holds) == first_of(model);
}

static void step(hf_holds *holds, naive *model, uint64_t *random)
{
    int i = (int)hf_jitter(random, MOST);
    char key[16], owner[16];
    snprintf(key, sizeof key, "k%d", i / OWNERS);
    snprintf(owner, sizeof owner, "o%d", i % OWNERS);
    hf_hold *hold = model->holds[i];
    if (!hold) {
        model->holds[i] = add(holds, key, owner);
        model->wake_at[i] = HF_NEVER;
    } else if (hf_jitter(random, 3) == 0) {
        hf_holds_remove(holds, hold);
        model->holds[i] = NULL;
    } else {
        model->wake_at[i] = hf_jitter(random, 10) == 0 ? HF_NEVER : hf_jitter(random, 50);
        hf_holds_wake_at(holds, hold, model->wake_at[i]);
    }
}

TEST(random_use_agrees_with_a_naive_model)
{
    uint64_t random = 2026;
    for (int round = 0; round < 20; round++) {
        hf_holds holds = {0};
        naive model = {0};
        for (int i = 0; i < 1000; i++) {
            step(&holds, &model, &random);
            CHECK(heap_is_ordered(&holds));
            if (i % 20 == 0) CHECK(agrees(&holds, &model));
        }
        CHECK(agrees(&holds, &model));
        hf_holds_free(&holds);
    }
}

TEST(times_set_without_the_heap_are_sorted_later)
{
    uint64_t random = 5;
    hf_holds holds = {0};
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        CHECK(add(&holds, key, "o"));
    }
    for (size_t i = 0; i < holds.count; i++)
        holds.heap[i]->wake_at = hf_jitter(&random, 100);
    hf_holds_resort(&holds);
    CHECK(heap_is_ordered(&holds));
    hf_holds_free(&holds);
}

TEST(a_hold_fits_in_512_bytes)
{
    size_t others = sizeof(void *) * 2 * 2; /* heap and buckets, at most half full */
    CHECK(sizeof(hf_hold) + others + HF_UUID_SIZE + 2 + 64 <= 512);
}

static bool add_many(void *context)
{
    hf_holds holds = {0};
    char key[16];
    bool added = true;
    (void)context;
    for (int i = 0; added && i < 40; i++) {
        size_t before = holds.count;
        snprintf(key, sizeof key, "%d", i);
        added = add(&holds, key, "o") != NULL;
        if (!added && (holds.count != before || find(&holds, key, "o"))) abort();
        for (int j = 0; j < i; j++) {
            snprintf(key, sizeof key, "%d", j);
            if (!find(&holds, key, "o")) abort();
        }
        if (!heap_is_ordered(&holds)) abort();
    }
    hf_holds_free(&holds);
    return added;
}

TEST(out_of_memory_leaves_the_table_whole)
{
    CHECK(memerr_until_success(add_many, NULL, 100) >= 40);
}

CHECK_MAIN
