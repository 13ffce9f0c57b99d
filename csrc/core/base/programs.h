/* The Lua programs that run on the server. tools/embed.lua makes them from csrc/programs. All of
 * them are constants. */
#ifndef HF_PROGRAMS_H
#define HF_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hf_program hf_program;

struct hf_program {
    const char *name;
    const char *sha1;              /* the SHA-1 of the text, 40 hex digits */
    const unsigned char *segments; /* the numbers of its segments in embedded.h, in order */
    size_t length;                 /* of the text, in bytes */

    /* The program to run instead where Redisson uses sharded channels. NULL: this one runs there,
     * too. */
    const hf_program *sharded;

    const hf_program *plain; /* the program whose `sharded` is this one, or NULL */
};

/* Returns the segment with this index, from 0, of the program's text: the text is all of them in
 * order. Returns NULL after the last one. */
const char *hf_program_segment(const hf_program *program, size_t i);

/* Returns the program that raises a fencing counter, for all kinds. */
const hf_program *hf_program_raise(void);

/* Returns the program that runs commands for a resource unless a higher token was seen there. */
const hf_program *hf_program_fence(void);

/* Returns the program that decides which run counts for a fire of a schedule. */
const hf_program *hf_program_once(void);

/* Returns the program that publishes what the caller of a hold waits for, for all kinds. */
const hf_program *hf_program_wait(void);

#endif
