#include "lock/kind.h"

#include <assert.h>
#include <string.h>

#include "programs/embedded.h"

static const hf_program *program(int id) {
    return &hf_program_table[id];
}

const char *hf_program_segment(const hf_program *program, size_t i) {
    return hf_segment_table[program->segments[i]];
}

#define FOR_ALL_KINDS(name, id)                                                                    \
    const hf_program *hf_program_##name(void) {                                                    \
        return program(id);                                                                        \
    }
FOR_ALL_KINDS(raise, HF_PROGRAM_RAISE)
FOR_ALL_KINDS(fence, HF_PROGRAM_FENCE)
FOR_ALL_KINDS(once, HF_PROGRAM_ONCE)
FOR_ALL_KINDS(wait, HF_PROGRAM_WAIT)

/* ---- the kinds ---- */

/* An entry of hf_kind.programs: the index of the program plus 1, because 0 means that the kind has
 * no program for the verb. */
#define HAS(id) (1 + HF_PROGRAM_##id)

/* The entries for programs whose ids begin with `prefix`: QUEUED for kinds with a queue, LEASED for
 * kinds with leases, FORCED for kinds that can be released by force. */
#define QUEUED(prefix)                                                                             \
    [HF_VERB_ACQUIRE] = 1 + prefix##ACQUIRE, [HF_VERB_RELEASE] = 1 + prefix##RELEASE,              \
    [HF_VERB_LEAVE] = 1 + prefix##LEAVE, [HF_VERB_INFO] = 1 + prefix##INFO
#define LEASED(prefix) [HF_VERB_EXTEND] = 1 + prefix##EXTEND, [HF_VERB_RENEW] = 1 + prefix##RENEW
#define FORCED(prefix) [HF_VERB_FORCE] = (1 + prefix##FORCE)

const hf_kind hf_kind_lock = {
    .name = "lock",
    .busy_text = "held by another owner",
    .letter = 'l',
    .reentrant = true,
    .publishes_releases = true,
    .may_be_kept = true,
    .has_short_form = true,
    .one_owner = true,
    .programs = {QUEUED(HF_PROGRAM_), LEASED(HF_PROGRAM_),
                 FORCED(HF_PROGRAM_), [HF_VERB_ACQUIRE_ALL] = HAS(ACQUIRE_ALL),
                 [HF_VERB_RELEASE_ALL] = HAS(RELEASE_ALL)},
};

const hf_kind hf_kind_mutex = {
    .name = "mutex",
    .busy_text = "held by another owner",
    .letter = 'm',
    .may_be_kept = true,
    .has_short_form = true,
    .one_owner = true,
    .programs = {QUEUED(HF_PROGRAM_MUTEX_), LEASED(HF_PROGRAM_MUTEX_), FORCED(HF_PROGRAM_MUTEX_)},
};

const hf_kind hf_kind_guard = {
    .name = "guard",
    .busy_text = "held by another owner",
    .letter = 'g',
    .publishes_releases = true,
    .has_fingerprint = true,
    .one_owner = true,
    .programs = {[HF_VERB_ACQUIRE] = HAS(BEGIN),
                 [HF_VERB_RELEASE] = HAS(COMPLETE), /* reads holds_left 0 as a record TTL of 0 */
                 [HF_VERB_COMPLETE] = HAS(COMPLETE),
                 [HF_VERB_LEAVE] = HAS(LEAVE),
                 [HF_VERB_INFO] = HAS(INFO),
                 LEASED(HF_PROGRAM_),
                 FORCED(HF_PROGRAM_)},
};

const hf_kind hf_kind_permit = {
    .name = "permit",
    .letter = 'p',
    .publishes_releases = true,
    .has_permits = true,
    .refuses_braced_key = true,
    .channel_prefix = "redisson_sc:",
    .busy_text = "its permits are taken",
    .programs = {QUEUED(HF_PROGRAM_PERMIT_),
                 LEASED(HF_PROGRAM_PERMIT_), [HF_VERB_SET] = HAS(PERMIT_SET)},
};

const hf_kind hf_kind_read = {
    .name = "read",
    .busy_text = "held by another owner",
    .letter = 'r',
    .reentrant = true,
    .publishes_releases = true,
    .many_owners = true,
    .channel_prefix = "redisson_rwlock:",
    .write_half = &hf_kind_write,
    .programs = {QUEUED(HF_PROGRAM_RW_), LEASED(HF_PROGRAM_RW_), FORCED(HF_PROGRAM_RW_)},
};

const hf_kind hf_kind_write = {
    .name = "write",
    .busy_text = "held by another owner",
    .letter = 'w',
    .reentrant = true,
    .publishes_releases = true,
    .owner_suffix = ":write",
    .channel_prefix = "redisson_rwlock:",
    .read_half = &hf_kind_read,
    .programs = {QUEUED(HF_PROGRAM_RW_), LEASED(HF_PROGRAM_RW_), FORCED(HF_PROGRAM_RW_)},
};

const hf_kind hf_kind_fair = {
    .name = "fair",
    .busy_text = "held by another owner or reserved for other waiters",
    .letter = 'f',
    .reentrant = true,
    .publishes_releases = true,
    .subscribes_to_channel_itself = true,
    .uses_list = true,
    .refuses_braced_key = true,
    .one_owner = true,
    .programs = {QUEUED(HF_PROGRAM_FAIR_), FORCED(HF_PROGRAM_FAIR_),
                 [HF_VERB_EXTEND] = HAS(FAIR_EXTEND), [HF_VERB_RENEW] = HAS(RENEW)},
};

const hf_kind hf_kind_latch = {
    .name = "latch",
    .letter = 'c',
    .publishes_releases = true,
    .channel_prefix = "redisson_countdownlatch__channel__",
    .wraps_key = true,
    .subscribes_to_channel_itself = true,
    .has_call_notes = true,
    .programs = {[HF_VERB_SET_COUNT] = HAS(LATCH_SET),
                 [HF_VERB_COUNT_DOWN] = HAS(LATCH_DOWN),
                 [HF_VERB_DELETE] = HAS(LATCH_DELETE)},
};

const hf_kind hf_kind_plain_semaphore = {
    .name = "plain_semaphore",
    .letter = 's',
    .publishes_releases = true,
    .channel_prefix = "redisson_sc:",
    .subscribes_to_channel_itself = true,
    .counts_our_subscribers = true,
    .has_call_notes = true,
    .programs = {[HF_VERB_ACQUIRE] = HAS(SEMAPHORE_ACQUIRE),
                 [HF_VERB_RELEASE] = HAS(SEMAPHORE_RELEASE),
                 [HF_VERB_LEAVE] = HAS(SEMAPHORE_LEAVE),
                 [HF_VERB_SET_COUNT] = HAS(SEMAPHORE_SET),
                 [HF_VERB_DRAIN] = HAS(SEMAPHORE_DRAIN),
                 [HF_VERB_DELETE] = HAS(SEMAPHORE_DELETE)},
};

const hf_kind *const hf_kinds[] = {&hf_kind_lock,
                                   &hf_kind_mutex,
                                   &hf_kind_guard,
                                   &hf_kind_read,
                                   &hf_kind_write,
                                   &hf_kind_permit,
                                   &hf_kind_latch,
                                   &hf_kind_fair,
                                   &hf_kind_plain_semaphore,
                                   NULL};

const hf_kind *hf_kind_by_name(const char *name) {
    for (size_t i = 0; hf_kinds[i]; i++) {
        if (strcmp(hf_kinds[i]->name, name) == 0) return hf_kinds[i];
    }
    return NULL;
}

const hf_kind *hf_kind_by_letter(char letter) {
    for (size_t i = 0; hf_kinds[i]; i++) {
        if (hf_kinds[i]->letter == letter) return hf_kinds[i];
    }
    return NULL;
}

bool hf_kind_release_grants(const hf_kind *kind) {
    return !kind->has_call_notes && !kind->uses_list;
}

const hf_program *hf_kind_program(const hf_kind *kind, hf_verb verb) {
    assert(verb < HF_VERBS);
    return kind->programs[verb] > 0 ? program(kind->programs[verb] - 1) : NULL;
}
