/* A hash table that finds objects by number. Each object embeds its entry, so only the buckets are
 * allocated. Several entries may have the same number. */
#ifndef HF_NUMBERS_H
#define HF_NUMBERS_H

#include "base/types.h"

typedef struct hf_number_entry hf_number_entry;

struct hf_number_entry {
    uint64_t number;
    void *object; /* the object; NULL if the entry is not in a table */
    hf_number_entry *next;
};

typedef struct hf_number_table {
    hf_number_entry **buckets;
    size_t count, bucket_count; /* bucket_count is 0 or a power of two */
} hf_number_table;

/* Adds an entry that is not yet in a table. Returns false when out of memory, which can happen only
 * for a table's first entry. */
bool hf_number_table_put(hf_number_table *numbers, hf_number_entry *entry, uint64_t number,
                         void *object);

/* Removes the entry from its table, if it is in one. */
void hf_number_table_remove(hf_number_table *numbers, hf_number_entry *entry);

/* Returns the first entry with this number or, if `after` is not NULL, the next such entry after
 * it. Returns NULL if there is none. */
hf_number_entry *hf_number_table_find(const hf_number_table *numbers, uint64_t number,
                                      const hf_number_entry *after);

void hf_number_table_free(hf_number_table *numbers);

#endif
