/* The programs that run on the server. tools/embed.lua makes them of csrc/programs. */
#ifndef HF_PROGRAMS_H
#define HF_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hf_program hf_program;

struct hf_program {
    const char *name;
    const char *sha1;              /* 40 hex digits of its text */
    const unsigned char *segments; /* the numbers of its segments in embedded.h, in order */
    size_t length;                 /* of the text */
    const hf_program
        *sharded; /* the same where Redisson uses sharded channels; NULL: it is no other */
    const hf_program *plain; /* the one that this is the sharded form of; NULL: none */
};

/* Returns the i-th segment of the program's text, from 0; NULL behind the last one. */
const char *hf_program_segment(const hf_program *program, size_t i);

/* Returns the program that raises a fencing counter, for all kinds. */
const hf_program *hf_program_raise(void);
const hf_program *hf_program_fence(void);
/* Returns the program that decides which run counts for a fire of a schedule. */
const hf_program *hf_program_once(void);
/* Returns the program that publishes what the caller of a hold waits for, for all kinds. */
const hf_program *hf_program_wait(void);

#endif
