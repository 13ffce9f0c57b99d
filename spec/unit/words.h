/* Reads what a client sends: commands as arrays of words. */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64

/* Cuts the first command of the bytes into words, in place. Returns their number, and in `used` the
 * command's size; 0, and changes nothing, if the command is not complete. */
static inline size_t words_take(char *bytes, size_t size, char *words[WORDS_MAX], size_t *used) {
    char *at = bytes, *end = bytes + size;
    if (size == 0 || !memchr(at, '\n', size)) return 0;
    size_t count = strtoul(at + 1, NULL, 10);
    if (at[0] != '*' || count > WORDS_MAX) abort();
    at = (char *)memchr(at, '\n', size) + 1;
    for (size_t i = 0; i < count; i++) {
        char *line = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (!line) return 0;
        size_t length = strtoul(at + 1, NULL, 10);
        if (line + 1 + length + 2 > end) return 0;
        words[i] = line + 1;
        at = line + 1 + length + 2;
    }
    for (size_t i = 0; i < count; i++) *strchr(words[i], '\r') = '\0';
    *used = (size_t)(at - bytes);
    return count;
}

#endif
