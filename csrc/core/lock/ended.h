/* Remembers waits that ended recently. A grant may still arrive for one of them. Any other grant
 * that is not for a current wait is treated as forged. Only the number, the kind and a hash of the
 * key of each wait are stored, so forged keys use no memory. */
#ifndef HF_ENDED_H
#define HF_ENDED_H

#include "base/types.h"
#include "holdfast.h"

#define HF_ENDED_MAX 1024 /* waits; grants for older ones expire with the grant lease */

typedef struct hf_ended_wait hf_ended_wait;

typedef struct hf_ended {
    hf_ended_wait *waits; /* NULL until a wait has ended */
} hf_ended;

/* Notes a wait of this client that may still be granted a lock of this kind. `number` is the number
 * by which messages name the wait, not 0. Does nothing when out of memory. */
void hf_ended_note(hf_ended *ended, uint64_t number, const hf_kind *kind, hf_slice key);

/* Returns whether a wait with this number, kind and key was noted. */
bool hf_ended_has(const hf_ended *ended, uint64_t number, const hf_kind *kind, hf_slice key);

void hf_ended_free(hf_ended *ended);

#endif
