#include "link/ring.h"

#include <stdlib.h>

#include "check.h"
#include "memerr.h"

/* The numbers here are Jedis 3.10's own; spec/shards_spec.lua compares many more. */

TEST(shard_hashes_equal_those_of_jedis) {
    CASES(const char *key; int64_t hash) = {
        {"", 8371356515094919947},
        {"a", 7990182172224381693},
        {"ab", -4327967927557705532},
        {"abcdefg", -4310195171707304818},
        {"abcdefgh", 2328573686879900726},
        {"abcdefghi", -2111598944829186864},
        {"SHARD-0-NODE-0", -4813603235750630532},
        {"SHARD-2-NODE-159", -7981432071028871785},
        {"Z\xc3\xbcrich", 8605332096383056557},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_EQ_INT(hf_ring_hash(hf_slice_of(cases[i].key)), cases[i].hash);
    char all[256];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    CHECK_EQ_INT(hf_ring_hash((hf_slice){all, sizeof all}), -2026053998124153874);
}

/* The shards of the keys order:0 … order:11, a letter each. */
static const char *shards_of(const hf_shard *shards, size_t count) {
    static char found[13];
    hf_ring ring;
    if (!hf_ring_init(&ring, shards, count)) return NULL;
    for (int i = 0; i < 12; i++)
        found[i] = (char)('0' + hf_ring_find(&ring, hf_slice_of(printed("order:%d", i))));
    hf_ring_free(&ring);
    return found;
}

TEST(keys_are_on_the_same_shard_as_in_jedis) {
    CHECK_STR(shards_of((hf_shard[]){{NULL, 1}}, 1), "000000000000");
    CHECK_STR(shards_of((hf_shard[]){{NULL, 1}, {NULL, 1}, {NULL, 1}}, 3), "002000021202");
    CHECK_STR(shards_of((hf_shard[]){{NULL, 1}, {NULL, 2}, {NULL, 5}}, 3), "221002211202");
    CHECK_STR(shards_of((hf_shard[]){{"a", 1}, {"b", 1}, {"c", 1}}, 3), "011220222220");
    CHECK_STR(shards_of((hf_shard[]){{"a", 3}, {NULL, 1}, {"b", 2}}, 3), "022102201200");
}

TEST(the_points_of_a_shard_ring_are_sorted_as_signed_numbers) {
    hf_ring ring;
    CHECK(hf_ring_init(&ring, (hf_shard[]){{NULL, 1}, {NULL, 3}}, 2));
    CHECK_EQ_INT(ring.count, 640);
    CHECK(ring.points[0].hash < 0 && ring.points[639].hash > 0);
    for (size_t i = 1; i < ring.count; i++) CHECK(ring.points[i - 1].hash < ring.points[i].hash);
    hf_ring_free(&ring), CHECK(!ring.points && ring.count == 0);
}

TEST(a_key_belongs_to_the_shard_whose_ring_point_is_at_or_after_its_hash) {
    hf_ring_point points[] = {{INT64_MIN, 0}, {hf_ring_hash(hf_slice_of("ab")), 1}, {INT64_MAX, 2}};
    hf_ring ring = {points, 3};
    CHECK_EQ_INT(hf_ring_find(&ring, hf_slice_of("ab")), 1);
    points[1].hash--;
    CHECK_EQ_INT(hf_ring_find(&ring, hf_slice_of("ab")), 2);
    ring.count = 2;
    CHECK_EQ_INT(hf_ring_find(&ring, hf_slice_of("ab")), 0);
}

TEST(the_last_of_several_shards_with_the_same_name_gets_all_their_keys) {
    CHECK_STR(shards_of((hf_shard[]){{"same", 1}, {"same", 1}}, 2), "111111111111");
    CHECK_STR(shards_of((hf_shard[]){{"same", 2}, {"same", 2}, {"same", 2}}, 3), "222222222222");
}

TEST(a_shard_ring_refuses_more_shards_or_longer_names_than_its_limits) {
    static hf_shard shards[HF_RING_MAX_SHARDS];
    static char name[HF_RING_MAX_NAME + 1], other[HF_RING_MAX_NAME + 1];
    memset(name, 'n', HF_RING_MAX_NAME);
    memset(other, 'n', HF_RING_MAX_NAME);
    other[0] = 'o';
    for (size_t i = 0; i < HF_RING_MAX_SHARDS; i++) shards[i].weight = HF_RING_MAX_WEIGHT;
    shards[0].name = name;
    shards[1].name = other;
    hf_ring ring;
    CHECK(hf_ring_init(&ring, shards, HF_RING_MAX_SHARDS));
    CHECK_EQ_INT(ring.count, 160 * HF_RING_MAX_WEIGHT * HF_RING_MAX_SHARDS);
    bool seen[HF_RING_MAX_SHARDS] = {false};
    for (int i = 0; i < 10000; i++) {
        char key[24];
        snprintf(key, sizeof key, "%d", i);
        seen[hf_ring_find(&ring, hf_slice_of(key))] = true;
    }
    hf_ring_free(&ring);
    for (size_t i = 0; i < HF_RING_MAX_SHARDS; i++) CHECK_OR(seen[i], "no key for shard %zu", i);
}

static bool make(void *context) {
    hf_ring ring;
    (void)context;
    bool made = hf_ring_init(&ring, (hf_shard[]){{NULL, 1}, {"b", 1}}, 2);
    if (!made && (ring.points || ring.count)) abort();
    hf_ring_free(&ring);
    return made;
}

TEST(creating_a_shard_ring_reports_a_failed_allocation) {
    CHECK_EQ_INT(memerr_until_success(make, NULL, 10), 1);
}

CHECK_MAIN
