#include "lock/holds.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/lease.h"

#define MAX_CHECKED 64 /* keeps checks cheap with thousands of holds */

#define NAME(REASON, name) #name,
const char *hf_lost_reason_name(hf_lost_reason reason) {
    static const char *const names[] = {NULL, HF_LOST_LIST(NAME)};
    assert(reason < HF_LOST_REASONS);
    return names[reason];
}

hf_slice hf_hold_key(const hf_hold *hold) {
    return hf_claim_key(hold->claim);
}

hf_slice hf_hold_caller(const hf_hold *hold) {
    return (hf_slice){hold->caller, hold->caller_size};
}

hf_slice hf_owner_strip_copy(hf_slice owner) {
    bool ours = owner.size > HF_UUID_SIZE && owner.data[HF_UUID_SIZE] == ':';
    const char *dot = ours ? memchr(owner.data, '.', owner.size) : NULL;
    return dot ? (hf_slice){owner.data, (size_t)(dot - owner.data)} : owner;
}

hf_slice hf_hold_owner(const hf_hold *hold) {
    for (uint32_t i = 0; i < hold->member_count; i++) {
        if (hold->member_holds[i])
            return hold->claim->shared ? hf_hold_owner(hold->member_holds[i])
                                       : hf_owner_strip_copy(hf_hold_owner(hold->member_holds[i]));
    }
    return hf_claim_owner(hold->claim);
}

/* ---- by key and caller ---- */

static uint64_t hash_of(hf_slice key, hf_slice caller) {
    uint64_t hash = hf_hash(hf_hash(HF_HASH_SEED, key), caller);
    return hash ^ hash >> 32;
}

static bool is_for(const hf_claim *claim, const hf_kind *kind, hf_slice key) {
    return claim->kind == kind && hf_slice_equal(hf_claim_key(claim), key);
}

hf_hold *hf_holds_find(const hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller) {
    if (holds->count == 0) return NULL;
    const hf_number_entry *entry = NULL;
    uint64_t hash = hash_of(key, caller);
    while ((entry = hf_number_table_find(&holds->keys, hash, entry))) {
        const hf_claim *claim = entry->object;
        bool is_own = claim->hold && hf_slice_equal(hf_hold_caller(claim->hold), caller);
        if (is_own && is_for(claim, kind, key)) return claim->hold;
    }
    return NULL;
}

/* Compares only the caller's hash, because its string was freed with the hold. If two callers ever
 * have the same hash, one of them waits until the other's claim is GONE. */
hf_claim *hf_holds_find_leaving(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                                hf_slice caller) {
    if (holds->count == 0) return NULL;
    const hf_number_entry *entry = NULL;
    uint64_t hash = hash_of(key, caller);
    while ((entry = hf_number_table_find(&holds->keys, hash, entry))) {
        hf_claim *claim = entry->object;
        if (hf_claim_is_leaving(claim) && is_for(claim, kind, key)) return claim;
    }
    return NULL;
}

hf_hold *hf_holds_find_lasting(const hf_holds *holds, const hf_kind *kind, hf_slice key,
                               hf_time until) {
    for (size_t i = 0; i < holds->count; i++) {
        const hf_claim *claim = holds->heap[i];
        bool is_long = claim->renewed ? claim->max_until >= until : claim->valid_until > until;
        bool is_lasting = claim->hold && hf_claim_is_held(claim) && is_long && !claim->shared;
        if (is_lasting && is_for(claim, kind, key)) return claim->hold;
    }
    return NULL;
}

/* ---- by number ---- */

hf_claim *hf_holds_find_by_number(const hf_holds *holds, uint64_t number) {
    const hf_number_entry *entry = NULL;
    while ((entry = hf_number_table_find(&holds->numbers, number, entry))) {
        hf_claim *claim = entry->object;
        if (claim->by_number.number == number || (claim->shared && claim->wait == number))
            return claim;
    }
    return NULL;
}

hf_claim *hf_holds_find_leaving_by_wait(const hf_holds *holds, uint64_t number) {
    const hf_number_entry *entry = NULL;
    while ((entry = hf_number_table_find(&holds->numbers, number, entry))) {
        hf_claim *claim = entry->object;
        if (hf_claim_is_leaving(claim) && claim->wait == number) return claim;
    }
    return NULL;
}

static void set_alias(hf_holds *holds, hf_claim *claim, uint64_t number) {
    if (!hf_claim_in_table(claim)) return;
    hf_number_table_remove(&holds->numbers, &claim->by_alias);
    if (number == claim->by_number.number) return;
    bool put = hf_number_table_put(&holds->numbers, &claim->by_alias, number, claim);
    assert(put); /* cannot fail, because the table already has buckets */
    (void)put;
}

void hf_holds_set_wait(hf_holds *holds, hf_claim *claim, uint64_t wait) {
    claim->wait = wait;
    if (wait > 0) set_alias(holds, claim, wait);
}

void hf_holds_mark_late_grant(hf_holds *holds, hf_claim *claim) {
    assert(hf_claim_is_leaving(claim) && !claim->leave.granted_too_late);
    claim->leave.granted_too_late = true;
    holds->late_grants++;
}

/* ---- by time ---- */

static bool is_before(const hf_claim *a, const hf_claim *b) {
    return a->wake_at < b->wake_at ||
           (a->wake_at == b->wake_at && a->by_number.number < b->by_number.number);
}

/* Asserts that the claim is in order with its neighbours in the heap. */
static void check_order(const hf_holds *holds, const hf_claim *claim) {
    size_t at = claim->heap_index, child = 2 * at + 1;
    assert(at < holds->count && holds->heap[at] == claim);
    assert(at == 0 || !is_before(claim, holds->heap[(at - 1) / 2]));
    assert(child >= holds->count || !is_before(holds->heap[child], claim));
    assert(child + 1 >= holds->count || !is_before(holds->heap[child + 1], claim));
    (void)child, (void)holds;
}

static void place(hf_holds *holds, size_t at, hf_claim *claim) {
    assert(at < holds->heap_capacity);
    holds->heap[at] = claim;
    claim->heap_index = (uint32_t)at;
}

static void sift_up(hf_holds *holds, hf_claim *claim, size_t at) {
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!is_before(claim, holds->heap[parent])) break;
        place(holds, at, holds->heap[parent]);
        at = parent;
    }
    place(holds, at, claim);
}

static void sift_down(hf_holds *holds, hf_claim *claim, size_t at) {
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= holds->count) break;
        if (child + 1 < holds->count && is_before(holds->heap[child + 1], holds->heap[child]))
            child++;
        if (!is_before(holds->heap[child], claim)) break;
        place(holds, at, holds->heap[child]);
        at = child;
    }
    place(holds, at, claim);
}

static void resift(hf_holds *holds, hf_claim *claim) {
    sift_up(holds, claim, claim->heap_index);
    sift_down(holds, claim, claim->heap_index);
}

static bool grow_heap(hf_holds *holds) {
    if (holds->count < holds->heap_capacity) return true;
    size_t capacity = holds->heap_capacity ? holds->heap_capacity * 2 : 16;
    hf_claim **heap = realloc(holds->heap, capacity * sizeof *heap);
    if (!heap) return false;
    holds->heap = heap;
    holds->heap_capacity = capacity;
    return true;
}

static void check_state(const hf_hold *hold);

static void check_claim(const hf_claim *claim) {
    hf_claim_check(claim);
    if (claim->hold) check_state(claim->hold);
}

void hf_holds_set_wake_at(hf_holds *holds, hf_claim *claim, hf_time at) {
    check_claim(claim);
    assert(!hf_claim_in_table(claim) ||
           (claim->heap_index < holds->count && holds->heap[claim->heap_index] == claim));
    claim->wake_at = at;
    if (hf_claim_in_table(claim)) resift(holds, claim);
    if (hf_claim_in_table(claim)) check_order(holds, claim);
}

void hf_holds_resort(hf_holds *holds) {
    for (size_t i = holds->count / 2; i-- > 0;) sift_down(holds, holds->heap[i], i);
}

void hf_holds_wake_all(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_time at) {
    for (size_t i = 0; i < holds->count; i++) {
        hf_claim *claim = holds->heap[i];
        if (hf_claim_is_held(claim) && is_for(claim, kind, key))
            claim->wake_at = hf_time_min(claim->wake_at, at);
    }
    hf_holds_resort(holds);
}

hf_claim *hf_holds_first(const hf_holds *holds) {
    assert(holds->count == 0 ||
           (hf_claim_in_table(holds->heap[0]) && holds->heap[0]->heap_index == 0));
    return holds->count > 0 ? holds->heap[0] : NULL;
}

static hf_claim *find_ended(const hf_holds *holds, size_t at, hf_time now) {
    if (at >= holds->count || holds->heap[at]->wake_at > now) return NULL;
    hf_claim *claim = holds->heap[at];
    bool has_holder = hf_claim_is_held(claim) && !hf_claim_is_idle(claim);
    if (has_holder && now >= claim->valid_until) return claim;
    claim = find_ended(holds, 2 * at + 1, now);
    return claim ? claim : find_ended(holds, 2 * at + 2, now);
}

hf_claim *hf_holds_first_expired(const hf_holds *holds, hf_time now) {
    return find_ended(holds, 0, now);
}

/* ---- adding and removing ---- */

_Static_assert(_Alignof(hf_hold) <= _Alignof(hf_claim), "a hold fits into the room of its claim");

static size_t size_of_hold(hf_slice caller) {
    return offsetof(hf_hold, caller) + caller.size;
}

/* Initialises size_of_hold bytes of memory as a hold of the claim, with one reference. */
static hf_hold *begin_hold(hf_hold *hold, hf_claim *claim, hf_slice caller) {
    assert(caller.size > 0 && caller.size <= UINT16_MAX);
    memset(hold, 0, offsetof(hf_hold, caller));
    hf_claim_ref(claim);
    hold->claim = claim;
    hold->refs = 1;
    hold->caller_size = (uint16_t)caller.size;
    memcpy(hold->caller, caller.data, caller.size);
    return claim->hold = hold;
}

/* Stores the claim under this caller. Returns false when out of memory, which can happen only for
 * the table's first claim. */
static bool put_key(hf_holds *holds, hf_claim *claim, hf_slice caller) {
    return hf_number_table_put(&holds->keys, &claim->by_key, hash_of(hf_claim_key(claim), caller),
                               claim);
}

static bool add_to_table(hf_holds *holds, hf_claim *claim) {
    if (!grow_heap(holds) ||
        !hf_number_table_put(&holds->numbers, &claim->by_number, holds->last_number + 1, claim))
        return false;
    if (claim->hold && !put_key(holds, claim, hf_hold_caller(claim->hold))) {
        hf_number_table_remove(&holds->numbers, &claim->by_number);
        return false;
    }
    holds->last_number++;
    sift_up(holds, claim, holds->count++);
    check_order(holds, claim);
    return true;
}

hf_hold *hf_holds_add(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice caller,
                      hf_slice owner) {
    assert(!hf_holds_find(holds, kind, key, caller));
    hf_claim *claim = hf_claim_new(kind, key, owner, size_of_hold(caller));
    if (!claim) return NULL;
    hf_hold *hold = begin_hold(hf_claim_extra_bytes(claim), claim, caller);
    hold->within_claim = true;
    if (add_to_table(holds, claim)) return hold;
    hf_claim_become(claim, HF_CLAIM_GONE);
    claim->hold = NULL;
    hf_hold_unref(hold);
    hf_claim_unref(claim);
    return NULL;
}

hf_claim *hf_holds_add_claim(hf_holds *holds, const hf_kind *kind, hf_slice key, hf_slice owner) {
    hf_claim *claim = hf_claim_new(kind, key, owner, 0);
    if (!claim || add_to_table(holds, claim)) return claim;
    hf_claim_become(claim, HF_CLAIM_GONE);
    hf_claim_unref(claim);
    return NULL;
}

void hf_kept_lock_set_due(hf_kept_lock *keep) {
    assert(keep->holds && !(keep->due && !keep->holds->due));
    if (keep->due) return;
    keep->due = true;
    keep->next_due = keep->holds->due;
    keep->holds->due = keep;
}

static void end_keep(hf_claim *claim) {
    hf_kept_lock *keep = claim->kept;
    if (!keep) return;
    assert(keep->claim == claim);
    claim->kept = NULL;
    keep->claim = NULL;
    hf_kept_lock_set_due(keep);
}

void hf_holds_on_wanted(hf_holds *holds, uint64_t number) {
    hf_claim *claim = hf_holds_find_by_number(holds, number);
    if (!claim || !claim->kept || claim->by_number.number != number) return;
    claim->kept->wanted = true;
    hf_kept_lock_set_due(claim->kept);
}

/* Drops the table's reference to the claim's hold. */
static void drop_hold(hf_claim *claim) {
    hf_hold *hold = claim->hold;
    claim->hold = NULL;
    if (hold) hf_hold_unref(hold);
}

/* Stores the claim under another caller. Cannot fail, because the table already has buckets. */
static void change_key(hf_holds *holds, hf_claim *claim, hf_slice caller) {
    hf_number_table_remove(&holds->keys, &claim->by_key);
    bool put = put_key(holds, claim, caller);
    assert(put);
    (void)put;
}

hf_hold *hf_holds_give(hf_holds *holds, hf_claim *claim, hf_slice caller) {
    assert(claim->state == HF_CLAIM_ACTIVE &&
           !hf_holds_find(holds, claim->kind, hf_claim_key(claim), caller));
    hf_hold *previous = claim->hold, *hold = malloc(size_of_hold(caller));
    if (!hold) return NULL;
    begin_hold(hold, claim, caller);
    change_key(holds, claim, caller);
    if (previous) hf_hold_unref(previous);
    return hold;
}

void hf_holds_make_idle(hf_holds *holds, hf_claim *claim) {
    assert(claim->state == HF_CLAIM_ACTIVE && claim->kept);
    change_key(holds, claim, (hf_slice){"", 0});
    drop_hold(claim);
}

void hf_holds_begin_leaving(hf_holds *holds, hf_claim *claim) {
    assert(hf_claim_in_table(claim) && holds->heap[claim->heap_index] == claim);
    (void)holds;
    end_keep(claim);
    hf_claim_become(claim, HF_CLAIM_LEAVING);
    drop_hold(claim);
}

void hf_holds_set_aside(hf_holds *holds, hf_claim *claim) {
    assert(hf_claim_in_table(claim) && !claim->kept);
    hf_number_table_remove(&holds->keys, &claim->by_key);
    drop_hold(claim);
}

void hf_holds_remove(hf_holds *holds, hf_claim *claim) {
    assert(hf_claim_in_table(claim) && holds->count > 0 && holds->heap[claim->heap_index] == claim);
    end_keep(claim);
    hf_number_table_remove(&holds->keys, &claim->by_key);
    hf_number_table_remove(&holds->numbers, &claim->by_number);
    hf_number_table_remove(&holds->numbers, &claim->by_alias);
    holds->late_grants -= claim->leave.granted_too_late;
    hf_claim_become(claim, HF_CLAIM_GONE);
    size_t gap = claim->heap_index;
    hf_claim *last = holds->heap[--holds->count];
    if (last != claim) {
        place(holds, gap, last);
        resift(holds, last);
    }
    drop_hold(claim);
    hf_claim_unref(claim);
}

enum { HELD = 1 << HF_HOLD_HELD, LOST = 1 << HF_HOLD_LOST, RELEASING = 1 << HF_HOLD_RELEASING };

static const int allowed_next[HF_HOLD_STATES] = {
    [HF_HOLD_ACQUIRING] = HELD,
    [HF_HOLD_HELD] = HELD | LOST | RELEASING, /* HELD for a re-entry */
    [HF_HOLD_RELEASING] = LOST,
};

/* Asserts what must be true in the hold's state. The state implies something about the claim only
 * while the hold is in the table: operations and handles may refer to a hold that has ended. */
static void check_state(const hf_hold *hold) {
    const hf_claim *claim = hold->claim;
    bool held = hf_hold_is_held(hold), known = hf_hold_in_table(hold);
    hf_claim_state expected =
        hold->state == HF_HOLD_ACQUIRING ? HF_CLAIM_REQUESTED : HF_CLAIM_ACTIVE;
    assert(!held || claim->count > 0 || hold->member_count > 0);
    assert(!held || claim->count >= claim->share.others);
    assert((hold->reason != HF_LOST_NONE) == hf_hold_is_lost(hold));
    assert(!hold->detached || hf_hold_is_lost(hold) || hf_hold_is_releasing(hold));
    assert(hold->state < HF_HOLD_STATES && hold->refs > 0);
    assert((hold->member_count == 0) == !hold->member_holds);
    assert(!known || claim->state == expected);
    (void)held, (void)known, (void)claim, (void)expected;
}

void hf_hold_become(hf_hold *hold, hf_hold_state state) {
    assert(state < HF_HOLD_STATES);
    assert(allowed_next[hold->state] & 1 << state);
    (void)allowed_next;
    hold->state = state;
    if (state == HF_HOLD_HELD && hf_claim_is_requested(hold->claim))
        hf_claim_become(hold->claim, HF_CLAIM_ACTIVE);
    if (state != HF_HOLD_HELD && hf_hold_in_table(hold)) end_keep(hold->claim);
    check_state(hold);
}

#ifndef NDEBUG
/* Asserts what must be true of a claim in the table when no event is being handled. */
static void check_at_rest(const hf_claim *claim, hf_time now) {
    const hf_hold *hold = claim->hold;
    bool busy = hold && (hf_hold_is_acquiring(hold) || hf_hold_is_releasing(hold));
    assert(!hold == (hf_claim_is_leaving(claim) || claim->record || hf_claim_is_idle(claim)));
    assert(!claim->kept || claim->kept->claim == claim);
    assert(!busy || claim->has_command_in_flight);
    assert(!hf_claim_is_held(claim) || claim->wake_at <= hf_time_max(claim->valid_until, now));
    assert(!hf_claim_is_leaving(claim) || claim->has_command_in_flight ||
           claim->wake_at < HF_NEVER);
}
#endif

void hf_holds_check(const hf_holds *holds, hf_time now) {
#ifndef NDEBUG
    for (size_t i = 0; i < holds->count && i < MAX_CHECKED; i++) {
        const hf_claim *claim = holds->heap[i];
        check_claim(claim);
        check_order(holds, claim);
        check_at_rest(claim, now);
        assert(hf_claim_in_table(claim));
        assert(hf_number_table_find(&holds->numbers, claim->by_number.number, NULL));
        assert(!claim->hold || hf_holds_find(holds, claim->kind, hf_claim_key(claim),
                                             hf_hold_caller(claim->hold)) == claim->hold);
    }
#endif
    (void)holds, (void)now;
}

void hf_hold_add_stray(hf_hold *hold) {
    hold->strays++;
}

void hf_hold_ref(hf_hold *hold) {
    assert(hold->refs > 0);
    hold->refs++;
}

void hf_hold_unref(hf_hold *hold) {
    assert(hold->refs > 0);
    if (--hold->refs > 0) return;
    assert(!hf_hold_in_table(hold) && !hold->stakes);
    for (uint32_t i = 0; i < hold->member_count; i++) {
        if (hold->member_holds[i]) hf_hold_unref(hold->member_holds[i]);
    }
    free(hold->member_holds);
    hf_claim *claim = hold->claim;
    if (!hold->within_claim) free(hold);
    hf_claim_unref(claim);
}

bool hf_hold_has_detached_release(const hf_hold *hold) {
    return hf_hold_is_releasing(hold) && hold->detached;
}

bool hf_hold_can_be_lost(const hf_hold *hold) {
    return allowed_next[hold->state] & LOST && (hf_hold_in_table(hold) || hold->detached);
}

void hf_holds_mark_lost(hf_holds *holds, hf_hold *hold, hf_lost_reason reason) {
    assert(reason != HF_LOST_NONE && hf_hold_can_be_lost(hold));
    hold->reason = reason;
    hf_hold_become(hold, HF_HOLD_LOST);
    holds->losses++;
    hf_holds_set_wake_at(holds, hold->claim, HF_NEVER);
}

bool hf_hold_is_valid(const hf_hold *hold, hf_time now) {
    return hf_hold_is_held(hold) && now < hold->claim->valid_until;
}

void hf_holds_free(hf_holds *holds) {
    while (holds->count > 0) hf_holds_remove(holds, holds->heap[holds->count - 1]);
    hf_number_table_free(&holds->numbers);
    hf_number_table_free(&holds->keys);
    free(holds->heap);
}
