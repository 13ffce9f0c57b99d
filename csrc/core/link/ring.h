/* Finds a key's server among several independent ones. The ring is that of Jedis's ShardedJedis, so
 * Java and Lua clients choose the same server.
 *
 * A shard has 160 points for each unit of its weight. A point is the hash of "SHARD-<i>-NODE-<n>",
 * where i is the shard's index in the list, or, for a shard with a name, of "<name>*<n>" (Jedis
 * 2.10 and later); n counts from 0. The hash is MurmurHash64A (Austin Appleby, 2008) with the seed
 * 0x1234ABCD, compared as a signed number. A key belongs to the first point whose hash is not less
 * than the key's, or to the ring's first point if there is none. Hash tags have no effect. */
#ifndef HF_RING_H
#define HF_RING_H

#include "holdfast.h"

typedef struct hf_ring_point {
    int64_t hash;
    uint32_t shard;
} hf_ring_point;

/* The points are sorted by hash. Among points with equal hashes, the last shard's comes first, so
 * only that one counts. */
typedef struct hf_ring {
    hf_ring_point *points;
    size_t count;
} hf_ring;

/* Returns the hash of a key or of a point's name. */
int64_t hf_ring_hash(hf_slice bytes);

/* Initialises a ring of `count` shards (1..HF_RING_MAX_SHARDS), which must be within the limits of
 * holdfast.h. Returns false when out of memory; the ring is then empty. */
bool hf_ring_init(hf_ring *ring, const hf_shard *shards, size_t count);

void hf_ring_free(hf_ring *ring);

/* Returns the index of the key's shard in the list. The ring must not be empty. */
size_t hf_ring_find(const hf_ring *ring, hf_slice key);

#endif
