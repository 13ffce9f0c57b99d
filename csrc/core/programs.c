#include "programs.h"

#include "programs_embedded.h"

#ifdef HF_DEFECTS
#include <string.h>

static hf_program replaced[HF_PROGRAMS];

bool hf_program_replace(const char *name, const char *sha1, const char *source, size_t length) {
    for (int id = 0; id < HF_PROGRAMS; id++) {
        if (strcmp(hf_program_table[id].name, name) != 0) continue;
        replaced[id] = (hf_program){hf_program_table[id].name, strdup(sha1), strdup(source), length, NULL};
        return true;
    }
    return false;
}

static const hf_program *program(int id) {
    return replaced[id].source ? &replaced[id] : &hf_program_table[id];
}
#else
#define program(id) (&hf_program_table[id])
#endif

#define HF_PROGRAM(name, ID)                                                                                           \
    const hf_program *hf_program_##name(hf_layout layout) {                                                            \
        return program(layout == HF_LAYOUT_MUTEX ? HF_PROGRAM_MUTEX_##ID : HF_PROGRAM_##ID);                           \
    }

HF_PROGRAM(release, RELEASE)
HF_PROGRAM(leave, LEAVE)
HF_PROGRAM(force, FORCE)
HF_PROGRAM(extend, EXTEND)
HF_PROGRAM(renew, RENEW)
HF_PROGRAM(info, INFO)

const hf_program *hf_program_acquire(hf_layout layout) {
    static const enum hf_program_id ids[] = {HF_PROGRAM_ACQUIRE, HF_PROGRAM_MUTEX_ACQUIRE, HF_PROGRAM_BEGIN};
    return program(ids[layout]);
}

const hf_program *hf_program_complete(void) {
    return program(HF_PROGRAM_COMPLETE);
}

const hf_program *hf_program_raise(void) {
    return &hf_program_table[HF_PROGRAM_RAISE];
}

const hf_program *hf_program_acquire_all(void) {
    return program(HF_PROGRAM_ACQUIRE_ALL);
}

const hf_program *hf_program_release_all(void) {
    return program(HF_PROGRAM_RELEASE_ALL);
}
