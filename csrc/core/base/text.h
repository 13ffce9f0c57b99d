/* Characters that messages, lists and the status page must not show as they are. */
#ifndef HF_TEXT_H
#define HF_TEXT_H

#include "base/types.h"

/* The first and last code point of a range. */
typedef struct hf_range {
    uint32_t first, last;
} hf_range;

/* The ranges of unsafe characters in ascending order, followed by { 0, 0 }. */
extern const hf_range hf_unsafe_ranges[];

/* Returns whether the character with this code point controls a terminal, ends a line, changes the
 * text direction, is invisible, or looks like an ordinary space. */
bool hf_is_unsafe(uint32_t code);

#endif
