#include "lock/ended.h"

#include <stdlib.h>

#include "lock/kind.h"

struct hf_ended_wait {
    uint64_t number, hash; /* number 0 marks an unused element */
    size_t key_size;
};

static hf_ended_wait wait_of(uint64_t number, const hf_kind *kind, hf_slice key) {
    return (hf_ended_wait){.number = number,
                           .hash = hf_hash(HF_HASH_SEED ^ (unsigned char)kind->letter, key),
                           .key_size = key.size};
}

void hf_ended_waits_add(hf_ended_waits *ended, uint64_t number, const hf_kind *kind, hf_slice key) {
    if (!ended->waits) ended->waits = calloc(HF_ENDED_MAX, sizeof *ended->waits);
    if (ended->waits) ended->waits[number % HF_ENDED_MAX] = wait_of(number, kind, key);
}

bool hf_ended_waits_have(const hf_ended_waits *ended, uint64_t number, const hf_kind *kind,
                         hf_slice key) {
    if (!ended->waits || number == 0) return false;
    const hf_ended_wait *known = &ended->waits[number % HF_ENDED_MAX];
    hf_ended_wait wanted = wait_of(number, kind, key);
    return known->number == wanted.number && known->hash == wanted.hash &&
           known->key_size == wanted.key_size;
}

void hf_ended_waits_free(hf_ended_waits *ended) {
    free(ended->waits);
    ended->waits = NULL;
}
