/* A table of things by their numbers. Each thing has its entry in itself, so only the table's
 * buckets are allocated. Several entries may have the same number. */
#ifndef HF_NUMBERS_H
#define HF_NUMBERS_H

#include "base/types.h"

typedef struct hf_number hf_number;

struct hf_number {
    uint64_t value;
    void *of; /* the thing; NULL: it is not in a table */
    hf_number *next;
};

typedef struct hf_numbers {
    hf_number **buckets;
    size_t count, bucket_count; /* bucket_count: 0 or a power of two */
} hf_numbers;

/* Puts an entry into the table that is in none. Returns false when out of memory, which can happen
 * only while the table has never had an entry. */
bool hf_numbers_put(hf_numbers *numbers, hf_number *entry, uint64_t value, void *of);

/* Takes the entry out of its table, if it is in it. */
void hf_numbers_remove(hf_numbers *numbers, hf_number *entry);

/* Returns the first entry with this number, or the next one after `after`; NULL: there is none. */
hf_number *hf_numbers_find(const hf_numbers *numbers, uint64_t value, const hf_number *after);

void hf_numbers_free(hf_numbers *numbers);

#endif
