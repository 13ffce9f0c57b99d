/* Remembers waits that ended recently. A grant may still arrive for one of them. Any other grant
 * that is not for a current wait is treated as forged. Waits are stored without their keys, so
 * forged keys use no memory. */
#ifndef HF_ENDED_H
#define HF_ENDED_H

#include "base/types.h"
#include "holdfast.h"

/* How many waits are remembered. Grants for older ones are ignored, and expire with their lease. */
#define HF_ENDED_MAX 1024

typedef struct hf_ended_wait hf_ended_wait;

typedef struct hf_ended_waits {
    hf_ended_wait *waits; /* NULL until a wait has ended */
} hf_ended_waits;

/* Remembers a wait that has ended, for which a grant of a lock of this kind may still arrive.
 * Messages name the wait by `number`, which is never 0. Does nothing when out of memory. */
void hf_ended_waits_add(hf_ended_waits *ended, uint64_t number, const hf_kind *kind, hf_slice key);

/* Returns whether a recent wait had this number, kind and key. */
bool hf_ended_waits_have(const hf_ended_waits *ended, uint64_t number, const hf_kind *kind,
                         hf_slice key);

void hf_ended_waits_free(hf_ended_waits *ended);

#endif
