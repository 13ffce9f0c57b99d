#include "names.h"

#include <stdlib.h>
#include <string.h>

static char *put(char *at, hf_slice part) {
    memcpy(at, part.data, part.size);
    return at + part.size;
}

static char *put_name(char *at, const char *prefix, hf_slice key, bool tagged, hf_slice *name) {
    char *start = at;
    at = put(at, hf_slice_of(prefix));
    if (!tagged) *at++ = '{';
    at = put(at, key);
    if (!tagged) *at++ = '}';
    *name = (hf_slice){start, (size_t)(at - start)};
    return at;
}

bool hf_names_make(hf_names *names, hf_slice key) {
    bool tagged = memchr(key.data, '{', key.size) != NULL;
    char *at = malloc(4 * key.size + 128);
    names->block = at;
    if (!at) return false;
    names->key = (hf_slice){at, key.size};
    at = put(at, key);
    at = put_name(at, "redisson_lock_token:", key, tagged, &names->counter);
    at = put_name(at, "holdfast_queue:", key, tagged, &names->queue);
    put_name(at, "redisson_lock__channel:", key, tagged, &names->releases);
    return true;
}

void hf_names_free(hf_names *names) {
    free(names->block);
    *names = (hf_names){0};
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
