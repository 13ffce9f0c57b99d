/* Which characters are not shown as they are, in messages, lists and the status page. */
#ifndef HF_TEXT_H
#define HF_TEXT_H

#include "base/types.h"

typedef struct hf_range {
    uint32_t first, last;
} hf_range;

/* Ends with { 0, 0 }. In order. */
extern const hf_range hf_hidden[];

/* Returns whether the character with this number drives a terminal, ends a line, turns its
 * direction, or cannot be seen or told from an ordinary space. */
bool hf_is_hidden(uint32_t code);

#endif
