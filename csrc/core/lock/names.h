/* Makes the keys and channels of one lock.
 *
 * They have Redisson's names. The tag {key} keeps all of them in the key's slot; a key that
 * contains a brace is used unchanged. All of these texts are in one block, which the names own, or
 * behind the names if hf_names_new made them. */
#ifndef HF_NAMES_H
#define HF_NAMES_H

#include "holdfast.h"

/* Makes the names of a lock with this key. Returns false when out of memory. */
bool hf_names_make(hf_names *names, hf_slice key);

/* The same for a lock of this kind; NULL: a kind that has no names of its own. */
bool hf_names_make_on(hf_names *names, hf_slice key, const hf_kind *kind);

/* Makes the `releases` and `listening` of one waiter, which are those of the lock with ":<owner>"
 * behind them. The other names are empty. Returns false when out of memory. */
bool hf_names_of_waiter(hf_names *names, const hf_names *lock, hf_slice owner);

/* Puts the key in braces in `releases` although it has some of its own. */
void hf_names_wrap(hf_names *names, const char *channel);

void hf_names_free(hf_names *names);

/* Writes the name of the key with the lease of a reader's first hold,
 * {key}:<owner>:rwlock_timeout:1, and returns its size. `text` has room for HF_NAMES_LEASE bytes,
 * the key and the owner. */
#define HF_NAMES_LEASE 32
size_t hf_names_lease(char *text, hf_slice key, hf_slice owner);

/* Writes the name of the note of a call, holdfast_call:{key}:<owner>, and returns its size. `text`
 * has room for HF_NAMES_NOTE bytes, the key and the owner, which is <uuid>:<number>. */
#define HF_NAMES_NOTE 20
size_t hf_names_note(char *text, hf_slice key, hf_slice owner);

/* Returns whether Redisson's names are the same for the key without its first and last brace: those
 * of "{a}" are those of "a". */
bool hf_names_are_shared(hf_slice key);

/* Makes a pattern that matches only the releases channel. Returns false when out of memory; the
 * caller calls free(pattern->data). */
bool hf_names_pattern(const hf_names *names, hf_slice *pattern);

#endif
