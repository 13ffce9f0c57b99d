/* The waits that have ended lately. A grant may still come for one of them. Any other grant that is
 * for no present wait is forged. Only the number, the kind and a hash of the key of each wait are
 * kept, so a forged key takes no memory. */
#ifndef HF_ENDED_H
#define HF_ENDED_H

#include "base/types.h"
#include "holdfast.h"

#define HF_ENDED_MOST 1024 /* waits; of more, the grants are left to the grant lease */

typedef struct hf_ended_wait hf_ended_wait;

typedef struct hf_ended {
    hf_ended_wait *waits; /* NULL while none has ended */
} hf_ended;

/* Notes a wait of this client that may be granted a lock of this kind. Does nothing when out of
 * memory. number: as messages name it, not 0. */
void hf_ended_note(hf_ended *ended, uint64_t number, const hf_kind *kind, hf_slice key);

/* Returns whether the wait with this number was noted, for this kind and key. */
bool hf_ended_has(const hf_ended *ended, uint64_t number, const hf_kind *kind, hf_slice key);

void hf_ended_free(hf_ended *ended);

#endif
