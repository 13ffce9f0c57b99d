#include "holds.h"

#include <stdlib.h>
#include <string.h>

static const char *const REASONS[] = {NULL, "expired", "taken", "deleted", "unreachable"};

const char *hf_lost_reason_name(hf_lost_reason reason) {
    return REASONS[reason];
}

hf_slice hf_hold_key(const hf_hold *hold) {
    return (hf_slice){hold->bytes, hold->key_size};
}

hf_slice hf_hold_owner(const hf_hold *hold) {
    return (hf_slice){hold->bytes + hold->key_size, hold->owner_size};
}

/* ---- by key and owner ---- */

static uint64_t hash_bytes(uint64_t hash, hf_slice bytes) {
    for (size_t i = 0; i < bytes.size; i++) { /* FNV-1a */
        hash = (hash ^ (unsigned char)bytes.data[i]) * 0x100000001b3ull;
    }
    return hash;
}

static uint64_t hash_of(hf_slice key, hf_slice owner) {
    return hash_bytes(hash_bytes(0xcbf29ce484222325ull, key), owner);
}

static hf_hold **bucket_of(const hf_holds *holds, uint64_t hash) {
    return &holds->buckets[(hash ^ hash >> 32) & (holds->bucket_count - 1)];
}

static bool is_for(const hf_hold *hold, hf_layout layout, hf_slice key, hf_slice owner) {
    return hold->layout == layout && hf_slice_equal(hf_hold_key(hold), key) &&
           hf_slice_equal(hf_hold_owner(hold), owner);
}

hf_hold *hf_holds_find(const hf_holds *holds, hf_layout layout, hf_slice key, hf_slice owner) {
    if (holds->bucket_count == 0) return NULL;
    uint64_t hash = hash_of(key, owner);
    hf_hold *hold = *bucket_of(holds, hash);
    while (hold && !(hold->hash == hash && is_for(hold, layout, key, owner))) hold = hold->next_in_bucket;
    return hold;
}

static bool grow_buckets(hf_holds *holds) {
    if (holds->count < holds->bucket_count) return true;
    hf_holds grown = *holds;
    grown.bucket_count = holds->bucket_count ? holds->bucket_count * 2 : 16;
    grown.buckets = calloc(grown.bucket_count, sizeof *grown.buckets);
    if (!grown.buckets) return false;
    for (size_t i = 0; i < holds->count; i++) {
        hf_hold *hold = holds->heap[i], **bucket = bucket_of(&grown, hold->hash);
        hold->next_in_bucket = *bucket;
        *bucket = hold;
    }
    free(holds->buckets);
    *holds = grown;
    return true;
}

/* ---- by time ---- */

static bool is_before(const hf_hold *a, const hf_hold *b) {
    return a->wake_at < b->wake_at || (a->wake_at == b->wake_at && a->number < b->number);
}

static void place(hf_holds *holds, size_t at, hf_hold *hold) {
    holds->heap[at] = hold;
    hold->heap_index = at;
}

static void sift_up(hf_holds *holds, hf_hold *hold, size_t at) {
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!is_before(hold, holds->heap[parent])) break;
        place(holds, at, holds->heap[parent]);
        at = parent;
    }
    place(holds, at, hold);
}

static void sift_down(hf_holds *holds, hf_hold *hold, size_t at) {
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= holds->count) break;
        if (child + 1 < holds->count && is_before(holds->heap[child + 1], holds->heap[child])) child++;
        if (!is_before(holds->heap[child], hold)) break;
        place(holds, at, holds->heap[child]);
        at = child;
    }
    place(holds, at, hold);
}

static void resift(hf_holds *holds, hf_hold *hold) {
    sift_up(holds, hold, hold->heap_index);
    sift_down(holds, hold, hold->heap_index);
}

static bool grow_heap(hf_holds *holds) {
    if (holds->count < holds->heap_capacity) return true;
    size_t capacity = holds->heap_capacity ? holds->heap_capacity * 2 : 16;
    hf_hold **heap = realloc(holds->heap, capacity * sizeof *heap);
    if (!heap) return false;
    holds->heap = heap;
    holds->heap_capacity = capacity;
    return true;
}

void hf_holds_wake_at(hf_holds *holds, hf_hold *hold, hf_time at) {
    hold->wake_at = at;
    if (hold->in_table) resift(holds, hold);
}

void hf_holds_resort(hf_holds *holds) {
    for (size_t i = holds->count / 2; i-- > 0;) sift_down(holds, holds->heap[i], i);
}

hf_hold *hf_holds_first(const hf_holds *holds) {
    return holds->count > 0 ? holds->heap[0] : NULL;
}

static hf_hold *ended_below(const hf_holds *holds, size_t at, hf_time now) {
    if (at >= holds->count || holds->heap[at]->wake_at > now) return NULL;
    hf_hold *hold = holds->heap[at];
    if (hold->state == HF_HOLD_HELD && now >= hold->valid_until) return hold;
    hold = ended_below(holds, 2 * at + 1, now);
    return hold ? hold : ended_below(holds, 2 * at + 2, now);
}

hf_hold *hf_holds_first_ended(const hf_holds *holds, hf_time now) {
    return ended_below(holds, 0, now);
}

/* ---- life ---- */

hf_hold *hf_holds_add(hf_holds *holds, hf_layout layout, hf_slice key, hf_slice owner) {
    if (!grow_heap(holds) || !grow_buckets(holds)) return NULL;
    hf_hold *hold = calloc(1, sizeof *hold + key.size + owner.size);
    if (!hold) return NULL;
    memcpy(hold->bytes, key.data, key.size);
    memcpy(hold->bytes + key.size, owner.data, owner.size);
    hold->key_size = (uint32_t)key.size;
    hold->owner_size = (uint32_t)owner.size;
    hold->hash = hash_of(key, owner);
    hold->layout = layout;
    hold->number = ++holds->last_number;
    hold->wake_at = HF_NEVER;
    hold->refs = 1;
    hold->in_table = true;
    hf_hold **bucket = bucket_of(holds, hold->hash);
    hold->next_in_bucket = *bucket;
    *bucket = hold;
    sift_up(holds, hold, holds->count++);
    return hold;
}

void hf_holds_remove(hf_holds *holds, hf_hold *hold) {
    hf_hold **at = bucket_of(holds, hold->hash);
    while (*at != hold) at = &(*at)->next_in_bucket;
    *at = hold->next_in_bucket;
    hold->in_table = false;
    size_t gap = hold->heap_index;
    hf_hold *last = holds->heap[--holds->count];
    if (last != hold) {
        place(holds, gap, last);
        resift(holds, last);
    }
    hf_hold_unref(hold);
}

void hf_hold_ref(hf_hold *hold) {
    hold->refs++;
}

void hf_hold_unref(hf_hold *hold) {
    if (--hold->refs > 0) return;
    for (uint32_t i = 0; i < hold->part_count; i++) {
        if (hold->parts[i]) hf_hold_unref(hold->parts[i]);
    }
    free(hold->parts);
    free(hold);
}

void hf_holds_lose(hf_holds *holds, hf_hold *hold, hf_lost_reason reason) {
    hold->state = HF_HOLD_LOST;
    hold->reason = reason;
    holds->news++;
    hf_holds_wake_at(holds, hold, HF_NEVER);
}

uint32_t hf_hold_own(const hf_hold *hold) {
    return hold->count - hold->base + hold->owed;
}

void hf_hold_rebase(hf_hold *hold, uint32_t count) {
    uint32_t own = hold->count - hold->base;
    hold->base = count > own ? count - own : 0;
    hold->count = count;
}

bool hf_hold_is_valid(const hf_hold *hold, hf_time now) {
    return hold->state == HF_HOLD_HELD && (now < hold->valid_until || HF_DEFECT(NO_VALIDITY));
}

void hf_holds_free(hf_holds *holds) {
    while (holds->count > 0) hf_holds_remove(holds, holds->heap[holds->count - 1]);
    free(holds->buckets);
    free(holds->heap);
    *holds = (hf_holds){0};
}
