/* A hash table that finds objects by number. Each object embeds its entry, so only the buckets are
 * allocated. Several entries may have the same number. */
#ifndef HF_NUMBERS_H
#define HF_NUMBERS_H

#include "base/types.h"

typedef struct hf_number hf_number;

struct hf_number {
    uint64_t value;
    void *object; /* the object; NULL if the entry is not in a table */
    hf_number *next;
};

typedef struct hf_numbers {
    hf_number **buckets;
    size_t count, bucket_count; /* bucket_count is 0 or a power of two */
} hf_numbers;

/* Adds an entry that is not yet in a table. Returns false when out of memory, which can happen only
 * for a table's first entry. */
bool hf_numbers_put(hf_numbers *numbers, hf_number *entry, uint64_t value, void *object);

/* Removes the entry from its table, if it is in one. */
void hf_numbers_remove(hf_numbers *numbers, hf_number *entry);

/* Returns the first entry with this number or, if `after` is not NULL, the next such entry after
 * it. Returns NULL if there is none. */
hf_number *hf_numbers_find(const hf_numbers *numbers, uint64_t value, const hf_number *after);

void hf_numbers_free(hf_numbers *numbers);

#endif
