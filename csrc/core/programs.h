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

/* How a lock stands on the server: the reentrant hash, or the string of SET NX PX. */
typedef enum hf_layout { HF_LAYOUT_LOCK, HF_LAYOUT_MUTEX } hf_layout;

const hf_program *hf_program_acquire(hf_layout layout);
const hf_program *hf_program_release(hf_layout layout);
const hf_program *hf_program_leave(hf_layout layout);
const hf_program *hf_program_force(hf_layout layout);
const hf_program *hf_program_extend(hf_layout layout);
const hf_program *hf_program_renew(hf_layout layout);
const hf_program *hf_program_info(hf_layout layout);

#endif
