#include "lock/names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lock/kind.h"

#define TEXT(name, text) .name = (text),
const hf_prefixes hf_prefix = {HF_PREFIXES(TEXT)};
#undef TEXT

static char *put(char *at, hf_slice part) {
    memcpy(at, part.data, part.size);
    return at + part.size;
}

/* Follows Redisson: a key with a brace is used unchanged; any other key is put in braces. */
static char *put_name(char *at, const char *prefix, hf_slice key, bool has_brace, hf_slice *name) {
    char *start = at;
    at = put(at, hf_slice_of(prefix));
    if (!has_brace) *at++ = '{';
    at = put(at, key);
    if (!has_brace) *at++ = '}';
    *name = (hf_slice){start, (size_t)(at - start)};
    return at;
}

bool hf_names_collide_with_unbraced(hf_slice key) {
    return key.size > 2 && key.data[0] == '{' && key.data[key.size - 1] == '}' &&
           !memchr(key.data + 1, '{', key.size - 1);
}

static const char *queue_prefix(const hf_kind *kind, bool has_brace) {
    if (kind && kind->uses_list) return hf_prefix.list;
    return has_brace ? "holdfast_queue::" : hf_prefix.queue;
}

static char *put_leases(char *at, const hf_kind *kind, hf_slice key, bool has_brace,
                        hf_slice *name) {
    if (kind && kind->uses_list) return put_name(at, hf_prefix.timeouts, key, has_brace, name);
    char *start = at;
    at = put(put_name(at, "", key, has_brace, name), hf_slice_of(":timeout"));
    name->size = (size_t)(at - start);
    return at;
}

static char *put_ours(char *at, hf_slice releases, hf_slice *name) {
    char *start = at;
    at = put(put(at, releases), hf_slice_of(":holdfast"));
    *name = (hf_slice){start, (size_t)(at - start)};
    return at;
}

/* Includes what hf_names_brace_release_channel adds. Most kinds have six names, with at most 112
 * bytes besides the key. */
size_t hf_names_size(const hf_kind *kind, hf_slice key) {
    bool has_extra_names =
        kind && (kind->uses_list || kind->counts_our_subscribers || kind->wraps_key);
    return sizeof(hf_names) + (has_extra_names ? 8 * key.size + 240 : 6 * key.size + 112);
}

void hf_names_fill(hf_names *names, const hf_kind *kind, hf_slice key) {
    bool has_brace = memchr(key.data, '{', key.size) != NULL;
    char *at = (char *)(names + 1);
    *names = (hf_names){.key = {at, key.size}};
    at = put(at, key);
    at = put_name(at, hf_prefix.counter, key, has_brace, &names->counter);
    at = put_name(at, queue_prefix(kind, has_brace), key, has_brace, &names->queue);
    at = put_leases(at, kind, key, has_brace, &names->leases);
    const char *channel = kind && kind->channel_prefix ? kind->channel_prefix : hf_prefix.releases;
    at = put_name(at, channel, key, has_brace, &names->releases);
    if (kind && kind->counts_our_subscribers) at = put_ours(at, names->releases, &names->ours);
    put_name(at, hf_prefix.listening, key, has_brace, &names->listening);
    assert((size_t)(names->listening.data + names->listening.size - names->key.data) <=
           hf_names_size(kind, key) - sizeof *names);
}

static char *put_with_owner(char *at, hf_slice name, hf_slice owner, hf_slice *with_owner) {
    char *start = at;
    at = put(put(put(at, name), (hf_slice){":", 1}), owner);
    *with_owner = (hf_slice){start, (size_t)(at - start)};
    return at;
}

hf_names *hf_names_of_waiter(const hf_names *lock, hf_slice owner) {
    size_t size = lock->releases.size + lock->listening.size + 2 * owner.size + 2;
    hf_names *names = malloc(sizeof *names + size);
    if (!names) return NULL;
    *names = (hf_names){0};
    char *at = put_with_owner((char *)(names + 1), lock->releases, owner, &names->releases);
    put_with_owner(at, lock->listening, owner, &names->listening);
    return names;
}

void hf_names_brace_release_channel(hf_names *names, const hf_kind *kind) {
    assert(kind->wraps_key);
    char *end = (char *)(uintptr_t)(names->listening.data + names->listening.size);
    put_name(end, kind->channel_prefix, names->key, false, &names->releases);
    assert((size_t)(names->releases.data + names->releases.size - names->key.data) <=
           hf_names_size(kind, names->key) - sizeof *names);
}

hf_names *hf_names_new(const hf_kind *kind, hf_slice key) {
    hf_names *names = malloc(hf_names_size(kind, key));
    if (names) hf_names_fill(names, kind, key);
    return names;
}

void hf_names_delete(hf_names *names) {
    free(names);
}

#define NO_KEY ((hf_slice){"", 0})

hf_slice hf_names_key_of_queue(hf_slice name) {
    hf_slice list = hf_slice_of(hf_prefix.list), queue = hf_slice_of(hf_prefix.queue);
    bool is_list = name.size > list.size && memcmp(name.data, list.data, list.size) == 0;
    size_t size = is_list ? list.size : queue.size;
    if (!is_list && (name.size <= size || memcmp(name.data, queue.data, size) != 0)) return NO_KEY;
    hf_slice key = {name.data + size, name.size - size};
    if (key.data[0] == '{' && key.data[key.size - 1] == '}')
        return (hf_slice){key.data + 1, key.size - 2};
    if (!memchr(key.data, '{', key.size)) return NO_KEY;
    if (is_list) return key;
    return key.data[0] == ':' ? (hf_slice){key.data + 1, key.size - 1} : NO_KEY;
}

/* Writes "<prefix>{key}:<owner>", and returns its end. */
static char *put_key_and_owner(char *at, const char *prefix, hf_slice key, hf_slice owner) {
    hf_slice name;
    at = put_name(at, prefix, key, memchr(key.data, '{', key.size) != NULL, &name);
    return put(put(at, (hf_slice){":", 1}), owner);
}

size_t hf_names_lease(char *text, hf_slice key, hf_slice owner) {
    char *at = put_key_and_owner(text, "", key, owner);
    return (size_t)(put(at, hf_slice_of(":rwlock_timeout:1")) - text);
}

size_t hf_names_note(char *text, hf_slice key, hf_slice owner) {
    return (size_t)(put_key_and_owner(text, hf_prefix.call, key, owner) - text);
}

bool hf_names_pattern(const hf_names *names, hf_slice *pattern) {
    char *out = malloc(2 * names->releases.size);
    if (!out) return false;
    size_t size = 0;
    for (size_t i = 0; i < names->releases.size; i++) {
        char c = names->releases.data[i];
        if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\') out[size++] = '\\';
        out[size++] = c;
    }
    *pattern = (hf_slice){out, size};
    return true;
}
