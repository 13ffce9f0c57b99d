/* The bytes of one fuzzing run, taken from the front; what is asked for past their end is 0. */
#ifndef INPUT_H
#define INPUT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const char *at, *end;
} input;

static inline unsigned char take_byte(input *in) {
    return in->at < in->end ? (unsigned char)*in->at++ : 0;
}

/* 0 .. below - 1; the digit '0' stands for 0, so that inputs can be written by hand. */
static inline unsigned pick(input *in, unsigned below) {
    return (unsigned char)(take_byte(in) - '0') % below;
}

/* What stands before the next `mark`, which is dropped, or before the end. */
static inline hf_slice take_until(input *in, char mark) {
    size_t left = (size_t)(in->end - in->at);
    const char *stop = left ? memchr(in->at, mark, left) : NULL;
    hf_slice taken = {in->at, stop ? (size_t)(stop - in->at) : left};
    in->at = stop ? stop + 1 : in->end;
    return taken;
}

void *__real_malloc(size_t size); /* not one of the allocations that are made to fail */

/* A copy of exactly this size, so that the address sanitizer sees a read past its end. */
static inline char *copy_of(hf_slice bytes) {
    char *copy = __real_malloc(bytes.size);
    if (!copy) abort();
    if (bytes.size > 0) memcpy(copy, bytes.data, bytes.size);
    return copy;
}

/* What must hold in every run. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static inline bool is_printable(const char *text) {
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x20 || byte == 0x7f) return false;
    }
    return true;
}

#endif
