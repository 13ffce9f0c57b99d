#include "lock/kind.h"
#include "lock/names.h"

#include <stddef.h>
#include <stdlib.h>

#include "check.h"
#include "memerr.h"
#include "names_of.h"

#define CHECK_SLICE(got, want)                                                                     \
    CHECK_OR(hf_slice_equal(got, want), "%s is \"%.*s\"", #got, (int)(got).size, (got).data)

static hf_names names;

static void clear(void) {
    hf_names_free(&names);
}

CHECK_AROUND(NULL, clear)

#define NAME(field) offsetof(hf_names, field)

/* As in Redisson; a key with a brace is not put in braces, but in the queue's name. */
TEST(each_kind_of_lock_has_keys_and_channels_with_the_documented_names) {
    CASES(const hf_kind *kind; const char *key; size_t field; const char *want) = {
        {&hf_kind_lock, "order:42", NAME(key), "order:42"},
        {&hf_kind_lock, "order:42", NAME(counter), "redisson_lock_token:{order:42}"},
        {&hf_kind_lock, "order:42", NAME(queue), "holdfast_queue:{order:42}"},
        {&hf_kind_lock, "order:42", NAME(releases), "redisson_lock__channel:{order:42}"},
        {&hf_kind_lock, "a{b}c", NAME(counter), "redisson_lock_token:a{b}c"},
        {&hf_kind_lock, "a{b}c", NAME(queue), "holdfast_queue::a{b}c"},
        {&hf_kind_lock, "a{b}c", NAME(releases), "redisson_lock__channel:a{b}c"},
        {&hf_kind_lock, "a}b", NAME(queue), "holdfast_queue:{a}b}"},
        {&hf_kind_permit, "pool", NAME(leases), "{pool}:timeout"},
        {&hf_kind_permit, "pool", NAME(releases), "redisson_sc:{pool}"},
        {&hf_kind_permit, "pool", NAME(queue), "holdfast_queue:{pool}"},
        {&hf_kind_permit, "a{b}", NAME(leases), "a{b}:timeout"},
        {&hf_kind_permit, "a{b}", NAME(releases), "redisson_sc:a{b}"},
        {&hf_kind_plain_semaphore, "pool", NAME(releases), "redisson_sc:{pool}"},
        {&hf_kind_plain_semaphore, "pool", NAME(ours), "redisson_sc:{pool}:holdfast"},
        {&hf_kind_plain_semaphore, "a{b}", NAME(ours), "redisson_sc:a{b}:holdfast"},
        {&hf_kind_fair, "k", NAME(queue), "redisson_lock_queue:{k}"},
        {&hf_kind_fair, "k", NAME(leases), "redisson_lock_timeout:{k}"},
        {&hf_kind_fair, "k", NAME(releases), "redisson_lock__channel:{k}"},
        {&hf_kind_fair, "a{b}", NAME(queue), "redisson_lock_queue:a{b}"},
        {&hf_kind_fair, "a{b}", NAME(leases), "redisson_lock_timeout:a{b}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(hf_names_make_on(&names, hf_slice_of(cases[i].key), cases[i].kind));
        const hf_slice *name = (const hf_slice *)(const void *)((char *)&names + cases[i].field);
        CHECK_SLICE(*name, hf_slice_of(cases[i].want));
        clear();
    }
}

TEST(each_waiter_for_a_fair_lock_has_a_channel_of_its_own) {
    CHECK(hf_names_make_on(&names, hf_slice_of("k"), &hf_kind_fair));
    hf_names *own = hf_names_of_waiter(&names, hf_slice_of("me:1"));
    CHECK(own != NULL);
    CHECK_SLICE(own->releases, hf_slice_of("redisson_lock__channel:{k}:me:1"));
    CHECK_SLICE(own->listening, hf_slice_of("holdfast_listening:{k}:me:1"));
    hf_names_delete(own);
}

TEST(a_latchs_names_always_contain_the_key_in_braces) {
    char note[HF_NAMES_NOTE_EXTRA + 64];
    CHECK(hf_names_make_on(&names, hf_slice_of("job"), &hf_kind_latch));
    hf_names_brace_release_channel(&names, &hf_kind_latch);
    CHECK_SLICE(names.releases, hf_slice_of("redisson_countdownlatch__channel__{job}"));
    hf_names_free(&names), CHECK(hf_names_make_on(&names, hf_slice_of("a{b}"), &hf_kind_latch));
    CHECK_SLICE(names.releases, hf_slice_of("redisson_countdownlatch__channel__a{b}"));
    hf_names_brace_release_channel(&names, &hf_kind_latch);
    CHECK_SLICE(names.releases, hf_slice_of("redisson_countdownlatch__channel__{a{b}}"));
    CHECK_SLICE(names.listening, hf_slice_of("holdfast_listening:a{b}"));
    size_t size = hf_names_note(note, names.key, hf_slice_of("uuid:7"));
    CHECK_SLICE(((hf_slice){note, size}), hf_slice_of("holdfast_call:a{b}:uuid:7"));
    size = hf_names_note(note, hf_slice_of("k"), hf_slice_of("uuid:18446744073709551615"));
    CHECK_SLICE(((hf_slice){note, size}),
                hf_slice_of("holdfast_call:{k}:uuid:18446744073709551615"));
}

#define KEYS(keys) (sizeof(keys) / sizeof *(keys))

/* What is counted or queued under a name belongs to one key of a kind. */
static void check_names_of(const hf_kind *kind, const char *const *keys, size_t count) {
    hf_names each[16];
    for (size_t i = 0; i < count; i++) {
        CHECK(hf_names_make_on(&each[i], hf_slice_of(keys[i]), kind));
        for (size_t j = 0; j < i; j++) {
            if (kind->refuses_braced_key && hf_names_collide_with_unbraced(each[i].key)) continue;
            if (kind->refuses_braced_key && hf_names_collide_with_unbraced(each[j].key)) continue;
            CHECK_OR(!hf_slice_equal(each[i].queue, each[j].queue),
                     "%s: queue of \"%s\" and \"%s\"", kind->name, keys[i], keys[j]);
            if (!kind->has_permits && !kind->uses_list) continue;
            CHECK_OR(!hf_slice_equal(each[i].leases, each[j].leases),
                     "%s: leases of \"%s\" and \"%s\"", kind->name, keys[i], keys[j]);
        }
    }
    for (size_t i = 0; i < count; i++) hf_names_free(&each[i]);
}

TEST(no_two_locks_have_the_same_queue_key) {
    static const char *const keys[] = {"x",    "{x}", ":x",    ":{x}",   "x}",  "{x",    "{{x}}",
                                       "{{x}", "}{x", "x}{y}", "{x}{y}", "a}c", "{a}c}", ""};
    for (size_t i = 0; hf_kinds[i]; i++) check_names_of(hf_kinds[i], keys, KEYS(keys));
}

TEST(only_the_documented_keys_in_braces_share_internal_names_with_another_key) {
    static const char *const shared[] = {"{x}", "{a}c}", "{}}"};
    static const char *const own[] = {"x", "", "{}", "{x", "x}", "{{x}", "{x}y", "y{x}", "{x}{y}"};
    for (size_t i = 0; i < KEYS(shared); i++)
        CHECK_OR(hf_names_collide_with_unbraced(hf_slice_of(shared[i])), "%s", shared[i]);
    for (size_t i = 0; i < KEYS(own); i++)
        CHECK_OR(!hf_names_collide_with_unbraced(hf_slice_of(own[i])), "%s", own[i]);
}

TEST(a_channel_pattern_matches_only_its_own_channel) {
    hf_slice pattern;
    CHECK(hf_names_make(&names, hf_slice_of("a*b?c[d]e\\f-^")));
    CHECK(hf_names_pattern(&names, &pattern));
    CHECK_SLICE(pattern, hf_slice_of("redisson_lock__channel:{a\\*b\\?c\\[d\\]e\\\\f-^}"));
    free((char *)(uintptr_t)pattern.data);
    hf_names_free(&names), CHECK(hf_names_make(&names, hf_slice_of("**********")));
    CHECK(hf_names_pattern(&names, &pattern));
    CHECK_EQ_INT(pattern.size, names.releases.size + 10);
    free((char *)(uintptr_t)pattern.data);
}

CHECK_MAIN
