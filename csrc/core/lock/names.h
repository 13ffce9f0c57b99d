/* Creates the names of the keys and channels of one lock.
 *
 * The names are Redisson's. The tag {key} keeps all of them in the key's hash slot; a key that
 * contains a brace is used unchanged. The strings follow the struct in one allocation. */
#ifndef HF_NAMES_H
#define HF_NAMES_H

#include "holdfast.h"

/* Creates the channels of one waiter of a `listed` kind, or those that announce new leaders if the
 * owner is "leader": the lock's `releases` and `listening`, followed by ":<owner>". The other names
 * are empty. Returns NULL when out of memory; otherwise the caller calls hf_names_delete. */
hf_names *hf_names_of_waiter(const hf_names *lock, hf_slice owner);

/* Puts the key of the channel `releases` in braces, even if the key has braces of its own. The
 * names were created for this kind, which has `wraps_key`. */
void hf_names_set_braced_releases(hf_names *names, const hf_kind *kind);

/* Writes the name of the key that stores the lease of a reader's first hold,
 * {key}:<owner>:rwlock_timeout:1, and returns its size in bytes. `text` must have room for the key,
 * the owner and HF_NAMES_LEASE more bytes. */
#define HF_NAMES_LEASE 32
size_t hf_names_lease(char *text, hf_slice key, hf_slice owner);

/* Writes the name of the key that stores a call's note, holdfast_call:{key}:<owner>, and returns
 * its size in bytes. The owner is <uuid>:<number>. `text` must have room for the key, the owner and
 * HF_NAMES_NOTE more bytes. */
#define HF_NAMES_NOTE 20
size_t hf_names_note(char *text, hf_slice key, hf_slice owner);

/* Returns whether another key has the same names in Redisson: this key without its first and last
 * character. "{a}" and "a" share their names. */
bool hf_names_are_shared(hf_slice key);

/* Creates a PSUBSCRIBE pattern that matches only the channel `releases`. Returns false when out of
 * memory; otherwise the caller frees pattern->data. */
bool hf_names_pattern(const hf_names *names, hf_slice *pattern);

#endif
