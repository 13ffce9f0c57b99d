#include "lock/holds.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/lease.h"

#define MAX_CHECKED 64 /* so that a check costs little with thousands of holds */

#define NAME(REASON, name) #name,
const char *hf_lost_reason_name(hf_lost_reason reason) {
    static const char *const names[] = {NULL, HF_LOST_LIST(NAME)};
    assert(reason < HF_LOST_REASONS);
    return names[reason];
}

hf_slice hf_hold_key(const hf_hold *hold) {
    return (hf_slice){hold->bytes, hold->key_size};
}

hf_slice hf_hold_caller(const hf_hold *hold) {
    return (hf_slice){hold->bytes + hold->key_size, hold->caller_size};
}

hf_slice hf_owner_without_copy(hf_slice owner) {
    bool ours = owner.size > HF_UUID_SIZE && owner.data[HF_UUID_SIZE] == ':';
    const char *dot = ours ? memchr(owner.data, '.', owner.size) : NULL;
    return dot ? (hf_slice){owner.data, (size_t)(dot - owner.data)} : owner;
}

hf_slice hf_hold_owner(const hf_hold *hold) {
    for (uint32_t i = 0; i < hold->member_count; i++) {
        if (hold->member_holds[i])
            return hold->shared ? hf_hold_owner(hold->member_holds[i])
                                : hf_owner_without_copy(hf_hold_owner(hold->member_holds[i]));
    }
    return (hf_slice){hold->bytes + hold->key_size + hold->caller_size, hold->owner_size};
}

/* ---- by key and caller ---- */

static uint64_t hash_of(hf_slice key, hf_slice caller) {
    uint64_t hash = hf_hash(hf_hash(HF_HASH_SEED, key), caller);
    return hash ^ hash >> 32;
}

static bool is_for(const hf_hold *hold, const hf_kind *kind, hf_slice key, hf_slice caller) {
    return hold->kind == kind && hf_slice_equal(hf_hold_key(hold), key) &&
           hf_slice_equal(hf_hold_caller(hold), caller);
}

hf_hold *hf_holds_find(const hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller) {
    const hf_number *entry = NULL;
    uint64_t hash = holds->count > 0 ? hash_of(key, caller) : 0;
    while ((entry = hf_numbers_find(&holds->keys, hash, entry))) {
        if (is_for(entry->object, kind, key, caller)) return entry->object;
    }
    return NULL;
}

hf_hold *hf_holds_find_lasting(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                               hf_time until) {
    for (size_t i = 0; i < holds->count; i++) {
        hf_hold *hold = holds->heap[i];
        bool is_long = hold->renewed ? hold->max_until >= until : hold->valid_until > until;
        bool lasts =
            hold->state == HF_HOLD_HELD && is_long && !hold->shared && !hold->idle && !hold->record;
        if (lasts && hold->kind == kind && hf_slice_equal(hf_hold_key(hold), key)) return hold;
    }
    return NULL;
}

/* ---- by number ---- */

hf_hold *hf_holds_find_wait(const hf_holds *holds, uint64_t number) {
    const hf_number *entry = NULL;
    while ((entry = hf_numbers_find(&holds->numbers, number, entry))) {
        hf_hold *hold = entry->object;
        bool lent = hold->lent && hold->lent->number == number;
        if (lent || hold->number == number || (hold->shared && hold->wait == number)) return hold;
    }
    return NULL;
}

hf_hold *hf_holds_find_clean_up(const hf_holds *holds, uint64_t number) {
    const hf_number *entry = NULL;
    while ((entry = hf_numbers_find(&holds->numbers, number, entry))) {
        hf_hold *hold = entry->object;
        if (hold->state == HF_HOLD_CLEANING_UP && hold->wait == number) return hold;
    }
    return NULL;
}

void hf_holds_alias(hf_holds *holds, hf_hold *hold, uint64_t number) {
    if (!hold->in_table) return;
    hf_numbers_remove(&holds->numbers, &hold->by_alias);
    if (number == hold->number) return;
    bool put = hf_numbers_put(&holds->numbers, &hold->by_alias, number, hold);
    assert(put); /* the table has buckets already, so this cannot fail */
    (void)put;
}

void hf_holds_note_wait(hf_holds *holds, hf_hold *hold, uint64_t wait) {
    hold->wait = wait;
    if (wait > 0) hf_holds_alias(holds, hold, wait);
}

void hf_holds_note_unclaimed(hf_holds *holds, hf_hold *hold) {
    assert(hold->in_table && hold->state == HF_HOLD_CLEANING_UP && !hold->unclaimed);
    hold->unclaimed = true;
    holds->unclaimed++;
}

/* ---- by time ---- */

static bool is_before(const hf_hold *a, const hf_hold *b) {
    return a->wake_at < b->wake_at || (a->wake_at == b->wake_at && a->number < b->number);
}

/* Asserts that the hold is in order with its neighbours in the heap. */
static void check_order(const hf_holds *holds, const hf_hold *hold) {
    size_t at = hold->heap_index, child = 2 * at + 1;
    assert(at < holds->count && holds->heap[at] == hold);
    assert(at == 0 || !is_before(hold, holds->heap[(at - 1) / 2]));
    assert(child >= holds->count || !is_before(holds->heap[child], hold));
    assert(child + 1 >= holds->count || !is_before(holds->heap[child + 1], hold));
    (void)child, (void)holds;
}

static void place(hf_holds *holds, size_t at, hf_hold *hold) {
    assert(at < holds->heap_capacity);
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
        if (child + 1 < holds->count && is_before(holds->heap[child + 1], holds->heap[child]))
            child++;
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

void hf_holds_wake_at(hf_holds *holds, hf_claim *claim, hf_time at) {
    hf_hold *hold = hf_claim_hold(claim);
    hf_hold_check(hold);
    assert(!hold->in_table ||
           (hold->heap_index < holds->count && holds->heap[hold->heap_index] == hold));
    hold->wake_at = at;
    if (hold->in_table) resift(holds, hold);
    if (hold->in_table) check_order(holds, hold);
}

void hf_holds_resort(hf_holds *holds) {
    for (size_t i = holds->count / 2; i-- > 0;) sift_down(holds, holds->heap[i], i);
}

void hf_holds_wake_all(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_time at) {
    for (size_t i = 0; i < holds->count; i++) {
        hf_hold *hold = holds->heap[i];
        bool held = hold->state == HF_HOLD_HELD && hold->kind == kind;
        if (held && hf_slice_equal(hf_hold_key(hold), key))
            hold->wake_at = hf_time_min(hold->wake_at, at);
    }
    hf_holds_resort(holds);
}

hf_hold *hf_holds_first(const hf_holds *holds) {
    assert(holds->count == 0 || (holds->heap[0]->in_table && holds->heap[0]->heap_index == 0));
    return holds->count > 0 ? holds->heap[0] : NULL;
}

static hf_hold *ended_below(const hf_holds *holds, size_t at, hf_time now) {
    if (at >= holds->count || holds->heap[at]->wake_at > now) return NULL;
    hf_hold *hold = holds->heap[at];
    bool counts = hold->state == HF_HOLD_HELD && !hold->idle;
    if (counts && now >= hold->valid_until) return hold;
    hold = ended_below(holds, 2 * at + 1, now);
    return hold ? hold : ended_below(holds, 2 * at + 2, now);
}

hf_hold *hf_holds_first_ended(const hf_holds *holds, hf_time now) {
    return ended_below(holds, 0, now);
}

/* ---- life ---- */

hf_hold *hf_holds_add(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller,
                      hf_slice owner) {
    assert(kind && key.size > 0);
    assert(caller.size == 0 || !hf_holds_find(holds, kind, key, caller));
    if (!grow_heap(holds)) return NULL;
    hf_hold *hold = malloc(sizeof *hold + key.size + caller.size + owner.size);
    if (!hold) return NULL;
    memset(hold, 0, sizeof *hold);
    memcpy(hold->bytes, key.data, key.size);
    if (caller.size > 0) memcpy(hold->bytes + key.size, caller.data, caller.size);
    memcpy(hold->bytes + key.size + caller.size, owner.data, owner.size);
    hold->key_size = (uint32_t)key.size;
    hold->caller_size = (uint32_t)caller.size;
    hold->owner_size = (uint32_t)owner.size;
    hold->shortened = hold->max_until = HF_NEVER;
    hold->kind = kind;
    hold->number = holds->last_number + 1;
    if (!hf_numbers_put(&holds->numbers, &hold->by_number, hold->number, hold) ||
        !hf_numbers_put(&holds->keys, &hold->by_key, hash_of(key, caller), hold)) {
        hf_numbers_remove(&holds->numbers, &hold->by_number);
        free(hold);
        return NULL;
    }
    holds->last_number++;
    hold->wake_at = HF_NEVER;
    hold->refs = 1;
    hold->in_table = true;
    sift_up(holds, hold, holds->count++);
    check_order(holds, hold);
    hf_hold_check(hold);
    return hold;
}

void hf_lent_note(hf_lent *lent) {
    assert(lent->holds && !(lent->due && !lent->holds->due));
    if (lent->due) return;
    lent->due = true;
    lent->next_due = lent->holds->due;
    lent->holds->due = lent;
}

static void end_lent(hf_hold *hold) {
    hf_lent *lent = hold->lent;
    if (!lent) return;
    assert(lent->hold == hold);
    hold->lent = NULL;
    lent->hold = NULL;
    hf_lent_note(lent);
}

void hf_holds_wish(hf_holds *holds, uint64_t number) {
    hf_hold *hold = hf_holds_find_wait(holds, number);
    if (!hold || !hold->lent || hold->lent->number != number) return;
    hold->lent->wished = true;
    hf_lent_note(hold->lent);
}

void hf_holds_remove(hf_holds *holds, hf_hold *hold) {
    assert(hold->in_table && holds->count > 0 && holds->heap[hold->heap_index] == hold);
    end_lent(hold);
    hf_numbers_remove(&holds->keys, &hold->by_key);
    hf_numbers_remove(&holds->numbers, &hold->by_number);
    hf_numbers_remove(&holds->numbers, &hold->by_alias);
    holds->unclaimed -= hold->unclaimed;
    hold->in_table = false;
    size_t gap = hold->heap_index;
    hf_hold *last = holds->heap[--holds->count];
    if (last != hold) {
        place(holds, gap, last);
        resift(holds, last);
    }
    hf_hold_unref(hold);
}

enum { HELD = 1 << HF_HOLD_HELD, LOST = 1 << HF_HOLD_LOST, RELEASING = 1 << HF_HOLD_RELEASING };
enum { CLEANING_UP = 1 << HF_HOLD_CLEANING_UP };

static const int legal[HF_HOLD_STATES] = {
    [HF_HOLD_ACQUIRING] = HELD | CLEANING_UP,
    [HF_HOLD_HELD] = HELD | LOST | RELEASING | CLEANING_UP, /* HELD: a re-entry */
    [HF_HOLD_LOST] = CLEANING_UP,                           /* it may still be on the server */
    [HF_HOLD_RELEASING] = LOST | CLEANING_UP,
    [HF_HOLD_CLEANING_UP] = CLEANING_UP, /* when the client is closed */
};

void hf_hold_become(hf_hold *hold, hf_hold_state state) {
    assert(state < HF_HOLD_STATES);
    assert(legal[hold->state] & 1 << state);
    (void)legal;
    hold->state = state;
    if (state != HF_HOLD_HELD) end_lent(hold);
    hf_hold_check(hold);
}

/* Asserts what must be true in the hold's state. */
static void check_state(const hf_hold *hold) {
    bool held = hold->state == HF_HOLD_HELD, cleaning_up = hold->state == HF_HOLD_CLEANING_UP;
    assert(!held || hold->count > 0 || hold->member_count > 0);
    assert(!held || hold->count >= hold->others);
    assert(hold->state != HF_HOLD_LOST || hold->reason != HF_LOST_NOT);
    assert(hold->reason == HF_LOST_NOT || hold->state == HF_HOLD_LOST || cleaning_up);
    assert(!hold->same_connection || cleaning_up);
    assert(!hold->undoes || cleaning_up || hold->kind->has_call_notes);
    assert(!hold->unawaited || (hold->state != HF_HOLD_ACQUIRING && !held));
    assert(!hold->idle || hold->state != HF_HOLD_LOST);
    (void)held, (void)cleaning_up;
}

void hf_hold_check(const hf_hold *hold) {
    hf_claim_check(&hold->claim);
    assert(hold->state < HF_HOLD_STATES);
    assert(!hold->lent || hold->lent->hold == hold);
    assert((hold->member_count == 0) == !hold->member_holds);
    check_state(hold);
    (void)hold;
}

#ifndef NDEBUG
/* Asserts what is true of a hold in the table when no event is being handled. */
static void check_at_rest(const hf_hold *hold, hf_time now) {
    bool busy = hold->state == HF_HOLD_ACQUIRING || hold->state == HF_HOLD_RELEASING;
    assert(!busy || hold->in_flight);
    assert(hold->state != HF_HOLD_HELD || hold->wake_at <= hf_time_max(hold->valid_until, now));
    assert(hold->state != HF_HOLD_CLEANING_UP || hold->in_flight || hold->wake_at < HF_NEVER);
}
#endif

void hf_holds_check(const hf_holds *holds, hf_time now) {
#ifndef NDEBUG
    for (size_t i = 0; i < holds->count && i < MAX_CHECKED; i++) {
        const hf_hold *hold = holds->heap[i];
        hf_slice caller = hf_hold_caller(hold);
        hf_hold_check(hold);
        check_order(holds, hold);
        check_at_rest(hold, now);
        assert(hold->in_table);
        assert(hf_numbers_find(&holds->numbers, hold->number, NULL));
        assert(caller.size == 0 ||
               hf_holds_find(holds, hold->kind, hf_hold_key(hold), caller) == hold);
    }
#endif
    (void)holds, (void)now;
}

void hf_hold_note_stray(hf_hold *hold) {
    hold->strays++;
}

void hf_hold_ref(hf_hold *hold) {
    assert(hold->refs > 0);
    hold->refs++;
}

void hf_hold_unref(hf_hold *hold) {
    assert(hold->refs > 0);
    if (--hold->refs > 0) return;
    assert(!hold->in_table && !hold->lent && !hold->stakes);
    for (uint32_t i = 0; i < hold->member_count; i++) {
        if (hold->member_holds[i]) hf_hold_unref(hold->member_holds[i]);
    }
    free(hold->member_holds);
    free(hold);
}

bool hf_hold_is_live(const hf_hold *hold) {
    return hold->state == HF_HOLD_ACQUIRING || hold->state == HF_HOLD_HELD;
}

bool hf_hold_is_released(const hf_hold *hold) {
    return hold->state == HF_HOLD_RELEASING && hold->unawaited;
}

bool hf_hold_can_be_lost(const hf_hold *hold) {
    return legal[hold->state] & LOST;
}

void hf_holds_lose(hf_holds *holds, hf_hold *hold, hf_lost_reason reason) {
    assert(reason != HF_LOST_NOT && (hold->in_table || hold->unawaited));
    hold->reason = reason;
    hf_hold_become(hold, HF_HOLD_LOST);
    holds->losses++;
    hf_holds_wake_at(holds, &hold->claim, HF_NEVER);
}

bool hf_hold_is_valid(const hf_hold *hold, hf_time now) {
    return hold->state == HF_HOLD_HELD && now < hold->valid_until;
}

void hf_holds_free(hf_holds *holds) {
    while (holds->count > 0) hf_holds_remove(holds, holds->heap[holds->count - 1]);
    hf_numbers_free(&holds->numbers);
    hf_numbers_free(&holds->keys);
    free(holds->heap);
}
