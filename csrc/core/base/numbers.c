#include "base/numbers.h"

#include <assert.h>
#include <stdlib.h>

/* Consecutive numbers are common, so the low bits are well distributed. */
static hf_number_entry **bucket_of(const hf_number_table *numbers, uint64_t number) {
    assert(numbers->bucket_count > 0);
    return &numbers->buckets[number & (numbers->bucket_count - 1)];
}

static void grow(hf_number_table *numbers) {
    if (numbers->count < numbers->bucket_count) return;
    hf_number_table grown = {.bucket_count =
                                 numbers->bucket_count ? numbers->bucket_count * 2 : 16};
    grown.buckets = calloc(grown.bucket_count, sizeof(hf_number_entry *));
    if (!grown.buckets) return; /* a table that has buckets still works, with longer chains */
    for (size_t i = 0; i < numbers->bucket_count; i++) {
        for (hf_number_entry *entry = numbers->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            hf_number_entry **bucket = bucket_of(&grown, entry->number);
            entry->next = *bucket;
            *bucket = entry;
        }
    }
    free(numbers->buckets);
    numbers->buckets = grown.buckets;
    numbers->bucket_count = grown.bucket_count;
}

bool hf_number_table_put(hf_number_table *numbers, hf_number_entry *entry, uint64_t number,
                         void *object) {
    assert(object && !entry->object);
    grow(numbers);
    if (numbers->bucket_count == 0) return false;
    hf_number_entry **bucket = bucket_of(numbers, number);
    *entry = (hf_number_entry){.number = number, .object = object, .next = *bucket};
    *bucket = entry;
    numbers->count++;
    return true;
}

void hf_number_table_remove(hf_number_table *numbers, hf_number_entry *entry) {
    if (!entry->object) return;
    hf_number_entry **link = bucket_of(numbers, entry->number);
    while (*link != entry) {
        assert(*link);
        link = &(*link)->next;
    }
    *link = entry->next;
    entry->object = NULL;
    numbers->count--;
}

hf_number_entry *hf_number_table_find(const hf_number_table *numbers, uint64_t number,
                                      const hf_number_entry *after) {
    if (numbers->count == 0) return NULL;
    hf_number_entry *entry = after ? after->next : *bucket_of(numbers, number);
    while (entry && entry->number != number) entry = entry->next;
    return entry;
}

void hf_number_table_free(hf_number_table *numbers) {
    free(numbers->buckets);
    *numbers = (hf_number_table){0};
}
