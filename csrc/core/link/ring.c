#include "link/ring.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define POINTS_PER_WEIGHT 160
#define SEED 0x1234ABCDu
#define MULTIPLIER 0xc6a4a7935bd1e995u
#define SHIFT 47

/* Reads up to eight bytes, the least significant first. */
static uint64_t read_little_endian(const char *bytes, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) value |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    return value;
}

int64_t hf_ring_hash(hf_slice bytes) {
    uint64_t hash = SEED ^ (bytes.size * MULTIPLIER);
    for (; bytes.size >= 8; bytes.data += 8, bytes.size -= 8) {
        uint64_t word = read_little_endian(bytes.data, 8) * MULTIPLIER;
        word = (word ^ word >> SHIFT) * MULTIPLIER;
        hash = (hash ^ word) * MULTIPLIER;
    }
    if (bytes.size > 0) hash = (hash ^ read_little_endian(bytes.data, bytes.size)) * MULTIPLIER;
    hash = (hash ^ hash >> SHIFT) * MULTIPLIER;
    return (int64_t)(hash ^ hash >> SHIFT);
}

static int compare_points(const void *left, const void *right) {
    const hf_ring_point *a = left, *b = right;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return (a->shard < b->shard) - (a->shard > b->shard);
}

static void add_points(hf_ring *ring, const hf_shard *shard, size_t index) {
    char name[HF_RING_MAX_NAME + 32];
    for (unsigned n = 0; n < POINTS_PER_WEIGHT * shard->weight; n++) {
        int size = shard->name ? snprintf(name, sizeof name, "%s*%u", shard->name, n)
                               : snprintf(name, sizeof name, "SHARD-%zu-NODE-%u", index, n);
        int64_t hash = hf_ring_hash((hf_slice){name, (size_t)size});
        assert(index < HF_RING_MAX_SHARDS);
        ring->points[ring->count++] = (hf_ring_point){hash, (uint32_t)index};
    }
}

bool hf_ring_init(hf_ring *ring, const hf_shard *shards, size_t count) {
    size_t points = 0;
    for (size_t i = 0; i < count; i++) points += (size_t)POINTS_PER_WEIGHT * shards[i].weight;
    *ring = (hf_ring){.points = calloc(points ? points : 1, sizeof *ring->points)};
    if (!ring->points) return false;
    for (size_t i = 0; i < count; i++) add_points(ring, &shards[i], i);
    qsort(ring->points, ring->count, sizeof *ring->points, compare_points);
    return true;
}

void hf_ring_free(hf_ring *ring) {
    free(ring->points);
    *ring = (hf_ring){0};
}

size_t hf_ring_find(const hf_ring *ring, hf_slice key) {
    assert(ring->count > 0);
    int64_t hash = hf_ring_hash(key);
    size_t low = 0, high = ring->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ring->points[middle].hash < hash) low = middle + 1;
        else high = middle;
    }
    return ring->points[low < ring->count ? low : 0].shard;
}
