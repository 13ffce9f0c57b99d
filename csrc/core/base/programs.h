/* The Lua programs that run on the server. tools/embed.lua generates these constants from
 * csrc/programs. */
#ifndef HF_PROGRAMS_H
#define HF_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hf_program hf_program;

struct hf_program {
    const char *name;
    const char *sha1;              /* the SHA-1 of the program's source, as 40 hex digits */
    const unsigned char *segments; /* the indexes of its segments in embedded.h, in order */
    size_t length;                 /* the size of the source in bytes */

    /* The program to run instead on servers where Redisson uses sharded channels, or NULL to run
     * this one there, too. */
    const hf_program *sharded;

    const hf_program *unsharded; /* the program whose `sharded` is this one, or NULL */
};

/* Returns segment `i` of the program, counted from 0, or NULL after the last one. Joined in order,
 * the segments are the source. */
const char *hf_program_segment(const hf_program *program, size_t i);

/* The programs that serve all kinds of locks. */
const hf_program *hf_program_raise(void); /* raises a fencing counter */
const hf_program *hf_program_fence(void); /* runs commands unless a higher token came before */
const hf_program *hf_program_once(void);  /* decides which run counts for a scheduled time */
const hf_program *hf_program_wait(void);  /* publishes what a hold's caller is waiting for */

#endif
