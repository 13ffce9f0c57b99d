/* The Redis-side programs, embedded from csrc/programs at build time. */
#ifndef HF_PROGRAMS_H
#define HF_PROGRAMS_H

#include <stddef.h>

typedef struct hf_program {
    const char *name;
    const char *sha1; /* 40 hex digits of the source */
    const char *source;
    size_t length;
} hf_program;

const hf_program *hf_program_acquire(void);
const hf_program *hf_program_release(void);
const hf_program *hf_program_leave(void);
const hf_program *hf_program_force(void);
const hf_program *hf_program_extend(void);
const hf_program *hf_program_renew(void);
const hf_program *hf_program_info(void);

#endif
