/* The Redis-side programs, embedded from csrc/programs at build time. */
#ifndef HF_PROGRAMS_H
#define HF_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hf_program hf_program;

struct hf_program {
    const char *name;
    const char *sha1; /* 40 hex digits of the source */
    const char *source;
    size_t length;
    const hf_program *sharded; /* the same where Redisson uses sharded channels; NULL: it is no other */
};

/* How a lock stands on the server: the reentrant hash; the string of SET NX PX; a hash that becomes the record of what
 * was done once. */
typedef enum hf_layout { HF_LAYOUT_LOCK, HF_LAYOUT_MUTEX, HF_LAYOUT_GUARD } hf_layout;

const hf_program *hf_program_acquire(hf_layout layout);
const hf_program *hf_program_release(hf_layout layout);
const hf_program *hf_program_leave(hf_layout layout);
const hf_program *hf_program_force(hf_layout layout);
const hf_program *hf_program_extend(hf_layout layout);
const hf_program *hf_program_renew(hf_layout layout);
const hf_program *hf_program_info(hf_layout layout);
const hf_program *hf_program_complete(void); /* a guard's */
const hf_program *hf_program_raise(void);
const hf_program *hf_program_acquire_all(void);
const hf_program *hf_program_release_all(void);

#ifdef HF_DEFECTS
/* Another text for the program of that name, for the life of the process. False: no program has it. */
bool hf_program_replace(const char *name, const char *sha1, const char *source, size_t length);
#endif

#endif
