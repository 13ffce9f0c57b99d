#include "lock/wire.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lease.h"

/* ---- one lock ---- */

#define COUNT_END (1LL << 62)  /* counts are between -COUNT_END and COUNT_END */
#define TOKEN_END (1ULL << 53) /* tokens are less than this, because the programs use doubles */
#define TOKEN_GRAIN 8          /* as in token.lua */

typedef char number_text[24];

static bool has_fifth_key(const hf_kind *kind) {
    return kind->has_permits || kind->uses_list;
}

/* Adds the keys and first arguments of a program that acts on one lock. Returns their number. */
static size_t put_lock_args(hf_slice *args, const hf_wire_lock *lock, number_text grant) {
    const hf_names *names = lock->names;
    size_t n = 0;
    args[n++] = names->key, args[n++] = names->counter, args[n++] = names->queue,
    args[n++] = names->releases;
    if (has_fifth_key(lock->kind)) args[n++] = names->leases;
    args[n++] = lock->owner;
    args[n++] = hf_decimal(grant, hf_lease_ms(lock->grant_lease));
    return n;
}

/* Returns false when out of memory, or if the kind has no program for the verb. */
static bool encode_call(hf_request *request, const hf_kind *kind, hf_verb verb, size_t keys,
                        size_t count, const hf_slice *args) {
    const hf_program *program = hf_kind_program(kind, verb);
    return program && hf_request_call(request, program, keys, count, args);
}

/* Returns the number of keys that `put_lock_args` adds. */
static size_t key_count(const hf_wire_lock *lock) {
    return has_fifth_key(lock->kind) ? 5 : 4;
}

/* Returns whether calls may omit this lock's grant lease, because it is the programs' default. */
static bool has_default_grant_lease(const hf_wire_lock *lock) {
    return lock->kind->has_short_form && lock->grant_lease == 2 * HF_SECOND;
}

static hf_slice decimal_or_empty(number_text text, uint64_t number) {
    return number == 0 ? HF_NO_TEXT : hf_decimal(text, number);
}

/* Returns whether owner, lease and token TTL are the only arguments needed. */
static bool fits_short_form(const hf_wire_lock *lock, const hf_wire_acquire *acquire) {
    return has_default_grant_lease(lock) && acquire->holds_before == 0 && !acquire->shared &&
           acquire->waiter.size == 0 && acquire->token_floor == 0;
}

static bool acquire_in_short_form(hf_request *request, const hf_wire_lock *lock,
                                  const hf_wire_acquire *acquire) {
    const hf_names *names = lock->names;
    number_text lease, ttl;
    hf_slice args[] = {names->key,
                       names->counter,
                       names->queue,
                       names->releases,
                       lock->owner,
                       hf_decimal(lease, hf_lease_ms(acquire->lease)),
                       hf_decimal(ttl, acquire->token_ttl_ms)};
    return encode_call(request, lock->kind, HF_VERB_ACQUIRE, 4, sizeof args / sizeof *args, args);
}

/* An argument has the same position in the programs of all kinds. Empty arguments at the end are
 * omitted, except a guard's fingerprint. */
bool hf_wire_acquire_call(hf_request *request, const hf_wire_lock *lock,
                          const hf_wire_acquire *acquire) {
    if (fits_short_form(lock, acquire)) return acquire_in_short_form(request, lock, acquire);
    hf_slice args[16];
    number_text grant, from, lease, ttl, floor, permits;
    size_t n = put_lock_args(args, lock, grant);
    args[n++] = hf_decimal(from, acquire->holds_before);
    args[n++] = hf_slice_of(acquire->shared ? "1" : "0");
    args[n++] = hf_decimal(lease, hf_lease_ms(acquire->lease));
    args[n++] = hf_decimal(ttl, acquire->token_ttl_ms);
    args[n++] = acquire->waiter;
    size_t required = lock->kind->has_fingerprint ? n + 1 : n;
    args[n++] = acquire->fingerprint;
    args[n++] = decimal_or_empty(floor, acquire->token_floor);
    args[n++] = decimal_or_empty(permits, acquire->permits);
    args[n++] = acquire->writer;
    assert(n <= sizeof args / sizeof *args);
    while (n > required && args[n - 1].size == 0) n--;
    return encode_call(request, lock->kind, HF_VERB_ACQUIRE, key_count(lock), n, args);
}

static hf_slice own_holds_text(number_text text, uint32_t own_holds) {
    if (own_holds == HF_WIRE_ONLY_IF_HELD_ONCE) return hf_slice_of("once");
    return own_holds == HF_WIRE_NOT_SHARED ? HF_NO_TEXT : hf_decimal(text, own_holds);
}

bool hf_wire_release(hf_request *request, const hf_wire_lock *lock, uint32_t holds_left,
                     hf_time lease, uint32_t own_holds, hf_slice granted) {
    hf_slice args[11];
    number_text grant, remaining, ms, own_holds_digits;
    size_t n = put_lock_args(args, lock, grant);
    if (holds_left == 0 && own_holds == HF_WIRE_NOT_SHARED && has_default_grant_lease(lock))
        n--; /* the owner is the only argument */
    else {
        args[n++] = hf_decimal(remaining, holds_left);
        args[n++] = hf_decimal(ms, hf_lease_ms(lease));
        args[n++] = own_holds_text(own_holds_digits, own_holds);
        if (granted.size > 0) args[n++] = granted;
    }
    assert(n <= sizeof args / sizeof *args);
    return encode_call(request, lock->kind, HF_VERB_RELEASE, key_count(lock), n, args);
}

bool hf_wire_leave(hf_request *request, const hf_wire_lock *lock, uint32_t holds_left,
                   hf_slice waiter, uint32_t own_holds) {
    hf_slice args[10];
    number_text grant, remaining, own_holds_digits;
    size_t n = put_lock_args(args, lock, grant);
    args[n++] = hf_decimal(remaining, holds_left);
    args[n++] = waiter;
    args[n++] = own_holds_text(own_holds_digits, own_holds);
    assert(n <= sizeof args / sizeof *args);
    return encode_call(request, lock->kind, HF_VERB_LEAVE, key_count(lock), n, args);
}

bool hf_wire_set_permits(hf_request *request, const hf_wire_lock *lock, uint64_t value) {
    hf_slice args[8];
    number_text grant, number;
    size_t n = put_lock_args(args, lock, grant);
    args[n++] = hf_decimal(number, value);
    assert(n <= sizeof args / sizeof *args);
    return encode_call(request, lock->kind, HF_VERB_SET, key_count(lock), n, args);
}

bool hf_wire_complete(hf_request *request, const hf_wire_lock *lock, hf_time record_ttl,
                      hf_slice fingerprint, hf_slice result) {
    hf_slice args[9];
    number_text grant, ms;
    size_t n = put_lock_args(args, lock, grant);
    args[n++] = hf_decimal(ms, hf_lease_ms(record_ttl));
    args[n++] = fingerprint;
    args[n++] = result;
    assert(n <= sizeof args / sizeof *args);
    return encode_call(request, lock->kind, HF_VERB_COMPLETE, 4, n, args);
}

bool hf_wire_force(hf_request *request, const hf_wire_lock *lock, hf_slice holder) {
    hf_slice args[8];
    number_text grant;
    size_t n = put_lock_args(args, lock, grant);
    if (holder.size > 0) args[n++] = holder;
    assert(n <= sizeof args / sizeof *args);
    return encode_call(request, lock->kind, HF_VERB_FORCE, key_count(lock), n, args);
}

/* Returns the second key in commands for a hold of a read/write lock. For a reader, this is the key
 * of its first lease; for a writer, it is the lock's key again. While a cluster moves a slot, the
 * lease and the lock may be on different nodes, and a server refuses commands for which it does not
 * have all keys. `text` has room for the key, the owner and HF_NAMES_LEASE_EXTRA more bytes. */
static hf_slice lease_key(char *text, const hf_kind *kind, hf_slice key, hf_slice owner) {
    if (!kind->many_owners) return key;
    return (hf_slice){text, hf_names_lease(text, key, owner)};
}

bool hf_wire_extend(hf_request *request, const hf_wire_lock *lock, hf_time lease,
                    uint64_t max_ttl_to_shorten_ms, hf_slice waiter) {
    const hf_kind *kind = lock->kind;
    const hf_names *names = lock->names;
    number_text ms, longest_affected;
    char *text = kind->many_owners
                     ? malloc(names->key.size + lock->owner.size + HF_NAMES_LEASE_EXTRA)
                     : NULL;
    if (kind->many_owners && !text) return false;
    size_t n = 0;
    hf_slice args[8];
    args[n++] = kind->has_permits ? names->leases : names->key;
    args[n++] = names->queue;
    if (kind->read_half || kind->write_half)
        args[n++] = lease_key(text, kind, names->key, lock->owner);
    size_t keys = n;
    args[n++] = lock->owner;
    args[n++] = hf_decimal(ms, hf_lease_ms(lease));
    args[n++] = max_ttl_to_shorten_ms == HF_WIRE_ANY_TTL
                    ? HF_NO_TEXT
                    : hf_decimal(longest_affected, max_ttl_to_shorten_ms);
    args[n++] = waiter;
    if (lease > 0) args[n++] = names->releases;
    bool encoded = encode_call(request, kind, HF_VERB_EXTEND, keys, n, args);
    free(text);
    return encoded;
}

bool hf_wire_info(hf_request *request, const hf_kind *kind, const hf_names *names,
                  const char *asker) {
    hf_slice args[5] = {names->key, names->counter, names->queue};
    size_t keys = 3;
    if (kind->has_permits) args[keys++] = names->leases;
    args[keys] = hf_slice_of(asker);
    return encode_call(request, kind, HF_VERB_INFO, keys, keys + 1, args);
}

bool hf_wire_ttl(hf_request *request, const hf_names *names) {
    hf_slice args[] = {{"PTTL", 4}, names->key};
    return hf_request_command(request, 2, args);
}

bool hf_wire_ping(hf_request *request) {
    hf_slice args[] = {{"PING", 4}};
    return hf_request_command(request, 1, args);
}

bool hf_wire_raise_counter(hf_request *request, const hf_names *names, uint64_t token_floor,
                           uint64_t token_ttl_ms) {
    number_text floor, ttl;
    hf_slice args[] = {names->counter, hf_decimal(floor, token_floor),
                       hf_decimal(ttl, token_ttl_ms)};
    return hf_request_call(request, hf_program_raise(), 1, sizeof args / sizeof *args, args);
}

/* ---- fences and schedules ---- */

bool hf_wire_is_fence_accepted(const hf_reply *reply) {
    return hf_reply_integer_at(reply, 0, 0) == 1 && reply->size == 2 &&
           reply->elements[1]->type == HF_REPLY_STRING;
}

bool hf_wire_is_run(const hf_reply *reply) {
    if (reply->type != HF_REPLY_ARRAY || reply->size != 4) return false;
    for (size_t i = 0; i < 3; i++) {
        if (reply->elements[i]->type != HF_REPLY_INTEGER) return false;
    }
    return reply->elements[3]->type == HF_REPLY_STRING;
}

/* ---- kinds without holders ---- */

static char *make_note_name(hf_slice key, hf_slice owner, hf_slice *note) {
    char *text = malloc(key.size + owner.size + HF_NAMES_NOTE_EXTRA);
    if (text) *note = (hf_slice){text, hf_names_note(text, key, owner)};
    return text;
}

bool hf_wire_call_with_note(hf_request *request, const hf_wire_lock *lock, hf_verb verb,
                            long long amount, hf_time note_ttl, bool ends_turn) {
    const hf_names *names = lock->names;
    number_text ms, text;
    hf_slice note;
    char *note_name = make_note_name(names->key, lock->owner, &note);
    if (!note_name) return false;
    int size = snprintf(text, sizeof text, "%lld", amount);
    hf_slice args[] = {names->key,           note,
                       names->releases,      hf_decimal(ms, hf_lease_ms(note_ttl)),
                       {text, (size_t)size}, {"1", 1}};
    size_t count = sizeof args / sizeof *args;
    bool encoded = encode_call(request, lock->kind, verb, 3, ends_turn ? count : count - 1, args);
    free(note_name);
    return encoded;
}

bool hf_wire_forget_note(hf_request *request, const hf_wire_lock *lock) {
    hf_slice note;
    char *note_name = make_note_name(lock->names->key, lock->owner, &note);
    if (!note_name) return false;
    hf_slice args[] = {{"DEL", 3}, note};
    bool encoded = hf_request_command(request, 2, args);
    free(note_name);
    return encoded;
}

bool hf_wire_get_count(hf_request *request, const hf_names *names) {
    hf_slice args[] = {{"GET", 3}, names->key};
    return hf_request_command(request, 2, args);
}

bool hf_wire_read_count(const hf_reply *reply, long long *count) {
    number_text text;
    *count = 0;
    if (reply->type == HF_REPLY_NIL) return true;
    if (reply->type != HF_REPLY_STRING) return false;
    long long value = strtoll(reply->string, NULL, 10);
    int size = snprintf(text, sizeof text, "%lld", value);
    hf_slice found = {reply->string, reply->size};
    if (!hf_slice_equal(found, (hf_slice){text, (size_t)size})) return false;
    if (value <= -COUNT_END || value >= COUNT_END) return false;
    *count = value;
    return true;
}

/* ---- several locks ---- */

bool hf_wire_renew_permits(hf_request *request, const hf_kind *kind, size_t count,
                           const hf_slice *keys, const hf_slice *owners, const hf_time *leases) {
    hf_names *names[HF_RENEWALS_MAX];
    hf_slice lease_keys[HF_RENEWALS_MAX];
    size_t created = 0;
    assert(count > 0 && count <= HF_RENEWALS_MAX);
    for (; created < count && (names[created] = hf_names_new(kind, keys[created])); created++)
        lease_keys[created] = names[created]->leases;
    bool encoded =
        created == count && hf_wire_renew(request, kind, count, lease_keys, owners, leases);
    while (created > 0) hf_names_delete(names[--created]);
    return encoded;
}

static bool renew_pairs(hf_request *request, const hf_kind *kind, size_t count,
                        const hf_slice *keys, const hf_slice *owners, const hf_time *leases) {
    size_t room = 0;
    for (size_t i = 0; i < count; i++) room += keys[i].size + owners[i].size + HF_NAMES_LEASE_EXTRA;
    hf_slice *args = calloc(4 * count, sizeof *args);
    number_text *numbers = calloc(count, sizeof *numbers);
    char *texts = malloc(room), *at = texts;
    bool encoded = false;
    for (size_t i = 0; args && numbers && texts && i < count; i++) {
        args[2 * i] = keys[i];
        args[2 * i + 1] = lease_key(at, kind, keys[i], owners[i]);
        if (args[2 * i + 1].data == at) at += args[2 * i + 1].size;
        args[2 * count + 2 * i] = owners[i];
        args[2 * count + 2 * i + 1] = hf_decimal(numbers[i], hf_lease_ms(leases[i]));
    }
    if (args && numbers && texts)
        encoded = encode_call(request, kind, HF_VERB_RENEW, 2 * count, 4 * count, args);
    assert(!texts || (size_t)(at - texts) <= room);
    free(args);
    free(numbers);
    free(texts);
    return encoded;
}

bool hf_wire_renew(hf_request *request, const hf_kind *kind, size_t count, const hf_slice *keys,
                   const hf_slice *owners, const hf_time *leases) {
    if (kind->read_half || kind->write_half)
        return renew_pairs(request, kind, count, keys, owners, leases);
    hf_slice args[3 * HF_RENEWALS_MAX];
    number_text numbers[HF_RENEWALS_MAX];
    assert(count <= HF_RENEWALS_MAX);
    for (size_t i = 0; i < count; i++) {
        args[i] = keys[i];
        args[count + 2 * i] = owners[i];
        args[count + 2 * i + 1] = hf_decimal(numbers[i], hf_lease_ms(leases[i]));
    }
    return encode_call(request, kind, HF_VERB_RENEW, count, 3 * count, args);
}

/* The arguments of the programs acquire_all and release_all are the keys of all locks, the
 * arguments in `extra`, and for each lock its owner, its count of holds and, if `with_leases`, its
 * lease. */
static bool call_all(hf_request *request, const hf_kind *kind, hf_verb verb, size_t count,
                     const hf_wire_batch_lock *locks, size_t extra_count, const hf_slice *extra,
                     bool with_leases) {
    number_text *numbers = calloc(2 * count, sizeof *numbers);
    hf_slice *args = calloc(7 * count + extra_count, sizeof *args);
    bool encoded = false;
    if (args && numbers) {
        size_t n = 0;
        for (size_t i = 0; i < count; i++) {
            const hf_names *names = locks[i].names;
            args[n++] = names->key, args[n++] = names->counter, args[n++] = names->queue,
            args[n++] = names->releases;
        }
        for (size_t i = 0; i < extra_count; i++) args[n++] = extra[i];
        for (size_t i = 0; i < count; i++) {
            args[n++] = locks[i].owner;
            args[n++] = hf_decimal(numbers[2 * i], locks[i].holds);
            if (with_leases)
                args[n++] = hf_decimal(numbers[2 * i + 1], hf_lease_ms(locks[i].lease));
        }
        encoded = encode_call(request, kind, verb, 4 * count, n, args);
    }
    free(args);
    free(numbers);
    return encoded;
}

bool hf_wire_acquire_all(hf_request *request, const hf_kind *kind, size_t count,
                         const hf_wire_batch_lock *locks, hf_time grant_lease, hf_time lease,
                         uint64_t token_ttl_ms) {
    number_text grant, ms, ttl;
    hf_slice extra[] = {HF_NO_TEXT, hf_decimal(grant, hf_lease_ms(grant_lease)),
                        hf_decimal(ms, hf_lease_ms(lease)), hf_decimal(ttl, token_ttl_ms)};
    return call_all(request, kind, HF_VERB_ACQUIRE_ALL, count, locks, 4, extra, false);
}

bool hf_wire_release_all(hf_request *request, const hf_kind *kind, size_t count,
                         const hf_wire_batch_lock *locks, hf_time grant_lease) {
    number_text grant;
    hf_slice extra[] = {HF_NO_TEXT, hf_decimal(grant, hf_lease_ms(grant_lease))};
    return call_all(request, kind, HF_VERB_RELEASE_ALL, count, locks, 2, extra, true);
}

/* ---- replies ---- */

static hf_verdict verdict_of(long long status) {
    switch (status) {
    case 0: return HF_VERDICT_BUSY;
    case 1: return HF_VERDICT_YES;
    case 2: return HF_VERDICT_STILL_HELD;
    case 3: return HF_VERDICT_NEEDS_LEAVE;
    case -1: return HF_VERDICT_DELETED;
    case -2: return HF_VERDICT_TAKEN;
    default: return HF_VERDICT_UNEXPECTED;
    }
}

static hf_verdict acquire_verdict(long long status) {
    switch (status) {
    case 3: return HF_VERDICT_ALREADY_DONE;
    case 4: return HF_VERDICT_MISMATCH;
    case -3: return HF_VERDICT_NO_TTL;
    case -4: return HF_VERDICT_NEWER_FORMAT;
    case -5: return HF_VERDICT_TOO_MANY;
    case -6: return HF_VERDICT_OTHER_KIND;
    default: return verdict_of(status);
    }
}

/* Returns a number of the reply, limited to ±2^53, so that sums of a few numbers do not overflow.
 * No program sends a number outside that range. */
static long long number_at(const hf_reply *reply, size_t i, long long fallback) {
    const long long limit = 1LL << 53;
    long long number = hf_reply_integer_at(reply, i, fallback);
    if (number > limit) return limit;
    return number < -limit ? -limit : number;
}

/* Returns whether the number is in the range of tokens, or is 0, which means no token. */
static bool is_token(long long number) {
    return number >= 0 && (uint64_t)number < TOKEN_END;
}

/* Returns the token in element `i`, or 0 if there is none. */
static uint64_t token_at(const hf_reply *reply, size_t i) {
    long long token = hf_reply_integer_at(reply, i, 0);
    return is_token(token) ? (uint64_t)token : 0;
}

/* Returns what the key contains, for messages, from element `i` of the reply to an acquire. */
static const char *other_kind_at(const hf_reply *reply, size_t i) {
    hf_slice kind = hf_reply_string_at(reply, i);
    if (hf_slice_equal(kind, hf_slice_of("lock"))) return "a lock";
    if (hf_slice_equal(kind, hf_slice_of("guard"))) return "a guard (idempotent)";
    if (hf_slice_equal(kind, hf_slice_of("read_write"))) return "a read/write lock";
    return "another kind of lock";
}

/* Reads the short form of { 1, token, 0 }, which is the token alone: a clock's time rounded up to
 * TOKEN_GRAIN, or 0 without fencing. Rejects any other number as UNEXPECTED: it may be the reply to
 * a different command. */
static hf_acquire_reply read_token(long long token, bool fenced) {
    bool valid = is_token(token) && token % TOKEN_GRAIN == 0 && (token > 0) == fenced;
    if (!valid) return (hf_acquire_reply){.verdict = HF_VERDICT_UNEXPECTED, .ahead = -1};
    return (hf_acquire_reply){.verdict = HF_VERDICT_YES, .number = token, .ahead = -1};
}

hf_acquire_reply hf_wire_read_acquire(const hf_reply *reply, bool fenced) {
    if (reply->type == HF_REPLY_INTEGER) return read_token(reply->integer, fenced);
    hf_acquire_reply answer = {.verdict = acquire_verdict(number_at(reply, 0, 99)), .ahead = -1};
    switch (answer.verdict) {
    case HF_VERDICT_YES:
        answer.others = number_at(reply, 2, 0);
        answer.server_us = number_at(reply, 3, 0);
        answer.number = number_at(reply, 1, 0);
        answer.last_token = number_at(reply, 4, 0);
        if (!is_token(answer.number) || !is_token(answer.last_token))
            answer.verdict = HF_VERDICT_UNEXPECTED;
        break;
    case HF_VERDICT_TOO_MANY:
    case HF_VERDICT_STILL_HELD: answer.number = number_at(reply, 1, 0); break;
    case HF_VERDICT_BUSY:
        answer.ttl_ms = number_at(reply, 1, 0);
        answer.ahead = number_at(reply, 2, 0);
        answer.holder_is_foreign = number_at(reply, 3, 0) == 1;
        answer.keeper_is_unreachable = number_at(reply, 3, 0) == 2;
        answer.place = hf_reply_string_at(reply, 4);
        answer.passed_over_in_ms = hf_reply_integer_at(reply, 5, -1);
        break;
    case HF_VERDICT_ALREADY_DONE: answer.record = hf_reply_string_at(reply, 1); break;
    case HF_VERDICT_OTHER_KIND: answer.found = other_kind_at(reply, 1); break;
    default: break;
    }
    return answer;
}

hf_verdict hf_wire_read_acquire_all(const hf_reply *reply, long long *i, const char **found) {
    hf_verdict verdict = acquire_verdict(number_at(reply, 0, 99));
    *i = number_at(reply, 1, 0);
    *found = other_kind_at(reply, 2);
    for (size_t j = 1; verdict == HF_VERDICT_YES && j < reply->size; j++)
        if (!is_token(number_at(reply, j, 0))) return HF_VERDICT_UNEXPECTED;
    return verdict;
}

uint64_t hf_wire_token_at(const hf_reply *reply, size_t i) {
    return token_at(reply, i + 1);
}

hf_verdict hf_wire_read_verdict(const hf_reply *reply) {
    return verdict_of(reply->integer);
}

/* The reply to a batch of one may be a single integer. */
hf_verdict hf_wire_read_verdict_at(const hf_reply *reply, size_t i) {
    return reply->type == HF_REPLY_INTEGER ? hf_wire_read_verdict(reply)
                                           : verdict_of(number_at(reply, i, 99));
}

void hf_wire_read_info(const hf_reply *reply, hf_lock_info *info) {
    hf_slice owner = hf_reply_string_at(reply, 0);
    size_t size = owner.size < sizeof info->owner ? owner.size : sizeof info->owner - 1;
    memcpy(info->owner, owner.data, size);
    info->owner_size = size;
    info->holds = number_at(reply, 1, 0);
    info->ttl_ms = number_at(reply, 2, -2);
    info->token = token_at(reply, 3);
    info->waiters = number_at(reply, 4, 0);
    info->ahead = number_at(reply, 5, -1);
    info->readers = number_at(reply, 6, -1);
    info->free = number_at(reply, 7, 0);
    info->clock_us = number_at(reply, 8, 0);
    info->waited_us = number_at(reply, 9, -1);
}

/* ---- owners, members and messages ---- */

size_t hf_wire_owner(char text[HF_OWNER_SIZE], const hf_kind *kind, const char *uuid,
                     uint64_t number) {
    char decimal[24];
    hf_slice digits = hf_decimal(decimal, number),
             suffix = hf_slice_of(kind->owner_suffix ? kind->owner_suffix : "");
    size_t size = HF_UUID_SIZE + 1 + digits.size;
    assert(size + suffix.size < HF_OWNER_SIZE);
    memcpy(text, uuid, HF_UUID_SIZE);
    text[HF_UUID_SIZE] = ':';
    memcpy(text + HF_UUID_SIZE + 1, digits.data, digits.size);
    memcpy(text + size, suffix.data, suffix.size);
    text[size + suffix.size] = '\0';
    return size + suffix.size;
}

size_t hf_wire_keeping_owner(char text[HF_OWNER_SIZE], const char *uuid, uint64_t number) {
    return (size_t)snprintf(text, HF_OWNER_SIZE, "%s:0%llu", uuid, (unsigned long long)number);
}

bool hf_wire_owner_has_permits(const hf_kind *kind, hf_slice owner) {
    return kind->has_permits && memchr(owner.data, '*', owner.size);
}

bool hf_wire_owner_keeps(hf_slice owner) {
    return owner.size > HF_UUID_SIZE + 1 && owner.data[HF_UUID_SIZE] == ':' &&
           owner.data[HF_UUID_SIZE + 1] == '0';
}

size_t hf_wire_permits_owner(char *text, const char *uuid, uint64_t number, uint32_t permits) {
    char count[16] = "";
    if (permits > 1) snprintf(count, sizeof count, "*%u", (unsigned)permits);
    return (size_t)snprintf(text, HF_PERMITS_OWNER_SIZE, "%s:%llu%s", uuid,
                            (unsigned long long)number, count);
}

size_t hf_wire_waiter(char *text, const hf_kind *kind, const char *uuid, uint64_t number,
                      uint64_t token_ttl_ms, bool keeps, hf_slice shared_owner) {
    int size =
        snprintf(text, HF_WAITER_SIZE, "1%c%s:%s%llu:%llu", kind->letter, uuid, keeps ? "0" : "",
                 (unsigned long long)number, (unsigned long long)token_ttl_ms);
    assert(size > 0 && (size_t)size + 1 + shared_owner.size <= HF_WAITER_SIZE);
    if (shared_owner.size == 0) return (size_t)size;
    text[size++] = ' ';
    memcpy(text + size, shared_owner.data, shared_owner.size);
    return (size_t)size + shared_owner.size;
}

static hf_slice next_word(hf_slice *rest) {
    const char *end = memchr(rest->data, ' ', rest->size);
    hf_slice word = {rest->data, end ? (size_t)(end - rest->data) : rest->size};
    size_t used = word.size + (end ? 1 : 0);
    *rest = (hf_slice){rest->data + used, rest->size - used};
    return word;
}

/* Reads a number, limited to UINT64_MAX. Returns false if the next word is not a number. */
static bool next_number(hf_slice *rest, uint64_t *value) {
    hf_slice word = next_word(rest);
    *value = 0;
    for (size_t i = 0; i < word.size; i++) {
        unsigned digit = (unsigned char)word.data[i] - '0';
        if (digit > 9) return false;
        *value = *value > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *value * 10 + digit;
    }
    return word.size > 0;
}

/* Reads the letter of a kind. Returns NULL if the next word is not one. */
static const hf_kind *next_kind(hf_slice *rest) {
    hf_slice letter = next_word(rest);
    return letter.size == 1 ? hf_kind_by_letter(letter.data[0]) : NULL;
}

static bool is_number(hf_slice text) {
    uint64_t value;
    return next_number(&text, &value);
}

/* Reads "1<kind><waiter>:<token ttl ms>[ <shared owner>]". */
bool hf_wire_read_waiter(hf_slice text, hf_waiter *waiter) {
    hf_slice word = next_word(&text);
    const char *end = word.data + word.size, *number, *ttl;
    if (word.size < 2 || word.data[0] != '1') return false;
    number = memchr(word.data, ':', word.size);
    ttl = number ? memchr(number + 1, ':', (size_t)(end - number) - 1) : NULL;
    *waiter = (hf_waiter){.kind = hf_kind_by_letter(word.data[1])};
    if (!waiter->kind || !ttl) return false;
    waiter->waiter = (hf_slice){word.data + 2, (size_t)(ttl - word.data) - 2};
    waiter->owner = text.size > 0 ? text : waiter->waiter;
    return is_number((hf_slice){number + 1, (size_t)(ttl - number) - 1}) &&
           is_number((hf_slice){ttl + 1, (size_t)(end - ttl) - 1});
}

/* Reads "<since> <waiter> <kind> <key>". */
bool hf_wire_read_wait(hf_slice text, hf_waiter *waiter) {
    *waiter = (hf_waiter){.kind = NULL};
    if (!next_number(&text, &waiter->since)) return false;
    waiter->waiter = next_word(&text);
    waiter->kind = next_kind(&text);
    waiter->key = text;
    return waiter->kind && waiter->waiter.size > 0 && text.size > 0;
}

/* Reads "<token>[-<last token>]". Drops invalid tokens, so that the waiter asks the server
 * instead. */
static bool next_tokens(hf_slice *rest, hf_message *grant) {
    hf_slice word = next_word(rest);
    const char *dash = memchr(word.data, '-', word.size);
    hf_slice first = {word.data, dash ? (size_t)(dash - word.data) : word.size};
    hf_slice last = {dash ? dash + 1 : "", dash ? word.size - first.size - 1 : 0};
    if (!next_number(&first, &grant->token) || (dash && !next_number(&last, &grant->last_token)))
        return false;
    if (grant->token >= TOKEN_END || grant->last_token >= TOKEN_END)
        grant->token = grant->last_token = 0;
    return true;
}

/* Reads "<kind> <number> <place> <token>[-<last token>] <ms> <key>". */
static hf_message read_grant(hf_slice rest) {
    hf_message grant = {.type = HF_MESSAGE_GRANT}, none = {.type = HF_MESSAGE_NONE};
    uint64_t ms;
    if (!(grant.kind = next_kind(&rest))) return none;
    grant.keeps = rest.size > 0 && rest.data[0] == '0';
    if (!next_number(&rest, &grant.number)) return none;
    grant.place = next_word(&rest);
    if (!next_tokens(&rest, &grant) || !next_number(&rest, &ms)) return none;
    grant.lease = hf_time_of_ms(ms);
    grant.key = rest;
    return grant;
}

bool hf_wire_next_grant(hf_message *grant) {
    if (grant->more == 0 || !next_number(&grant->other_waiters, &grant->number)) return false;
    grant->more--;
    grant->place = next_word(&grant->other_waiters);
    return true;
}

/* Reads "<kind> <token> <ms> <count> <number> <place> … <key>". */
static hf_message read_grants(hf_slice rest) {
    hf_message grant = {.type = HF_MESSAGE_GRANT}, none = {.type = HF_MESSAGE_NONE};
    uint64_t ms, number;
    if (!(grant.kind = next_kind(&rest))) return none;
    if (!next_tokens(&rest, &grant) || !next_number(&rest, &ms)) return none;
    if (!next_number(&rest, &grant.more)) return none;
    grant.lease = hf_time_of_ms(ms);
    grant.other_waiters = rest;
    for (uint64_t i = 0; i < grant.more; i++) {
        if (!next_number(&rest, &number)) return none;
        next_word(&rest);
    }
    grant.key = rest;
    return hf_wire_next_grant(&grant) ? grant : none;
}

/* Reads "1 grant …", "1 grants …", "1 turn <number> <ms>", "1 recheck <number>[ <ms>]" or "1 wish
 * <number>". */
hf_message hf_wire_read_message(hf_slice text) {
    hf_message message = {.type = HF_MESSAGE_NONE};
    uint64_t ms;
    hf_slice format = next_word(&text), word = next_word(&text);
    if (!hf_slice_equal(format, hf_slice_of("1"))) return message;
    if (hf_slice_equal(word, hf_slice_of("grant"))) return read_grant(text);
    if (hf_slice_equal(word, hf_slice_of("grants"))) return read_grants(text);
    if (!next_number(&text, &message.number)) return message;
    message.delay = next_number(&text, &ms) ? hf_time_of_ms(ms) : 0;
    if (hf_slice_equal(word, hf_slice_of("turn"))) message.type = HF_MESSAGE_WINDOW;
    else if (hf_slice_equal(word, hf_slice_of("recheck"))) message.type = HF_MESSAGE_RECHECK;
    else if (hf_slice_equal(word, hf_slice_of("wish"))) message.type = HF_MESSAGE_WANTED;
    return message;
}
