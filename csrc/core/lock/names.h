/* Creates the names of the keys and channels of one lock.
 *
 * The names follow Redisson's scheme; those that Redisson does not have begin with holdfast_. The
 * tag {key} keeps all of them in the key's hash slot; a key that contains a brace is used
 * unchanged. The strings follow the struct in one allocation. */
#ifndef HF_NAMES_H
#define HF_NAMES_H

#include "holdfast.h"

/* Creates the names of one waiter's own channels: the lock's `releases` and `listening`, followed
 * by ":<owner>". The kind must have `uses_list`, unless `owner` is "leader": those channels
 * announce new leaders. The other names are empty. Returns NULL when out of memory. Free the names
 * with hf_names_delete. */
hf_names *hf_names_of_waiter(const hf_names *lock, hf_slice owner);

/* Braces the key in the name of the channel `releases`, even if the key itself contains braces. The
 * names must have been created for this kind, and the kind must have `wraps_key`. */
void hf_names_brace_release_channel(hf_names *names, const hf_kind *kind);

/* Writes the name of the key that stores the lease of a reader's first hold,
 * {key}:<owner>:rwlock_timeout:1, and returns its size in bytes. `text` must have room for the key,
 * the owner and HF_NAMES_LEASE_EXTRA more bytes. */
#define HF_NAMES_LEASE_EXTRA 32
size_t hf_names_lease(char *text, hf_slice key, hf_slice owner);

/* Writes the name of the key that stores a call's note, holdfast_call:{key}:<owner>, and returns
 * its size in bytes. The owner is <uuid>:<number>. `text` must have room for the key, the owner and
 * HF_NAMES_NOTE_EXTRA more bytes. */
#define HF_NAMES_NOTE_EXTRA 20
size_t hf_names_note(char *text, hf_slice key, hf_slice owner);

/* Returns whether Redisson uses the same names for the key without its braces, as for "{a}". */
bool hf_names_collide_with_unbraced(hf_slice key);

/* Creates a PSUBSCRIBE pattern that matches only the channel `releases`. The caller frees
 * pattern->data. Returns false when out of memory. */
bool hf_names_pattern(const hf_names *names, hf_slice *pattern);

#endif
