#include "programs.h"

#include "programs_embedded.h"

#define HF_PROGRAM(name, ID)                                                                                           \
    const hf_program *hf_program_##name(hf_layout layout) {                                                            \
        return &hf_program_table[layout == HF_LAYOUT_MUTEX ? HF_PROGRAM_MUTEX_##ID : HF_PROGRAM_##ID];                 \
    }

HF_PROGRAM(release, RELEASE)
HF_PROGRAM(leave, LEAVE)
HF_PROGRAM(force, FORCE)
HF_PROGRAM(extend, EXTEND)
HF_PROGRAM(renew, RENEW)
HF_PROGRAM(info, INFO)

const hf_program *hf_program_acquire(hf_layout layout) {
    static const enum hf_program_id ids[] = {HF_PROGRAM_ACQUIRE, HF_PROGRAM_MUTEX_ACQUIRE, HF_PROGRAM_BEGIN};
    return &hf_program_table[ids[layout]];
}

const hf_program *hf_program_complete(void) {
    return &hf_program_table[HF_PROGRAM_COMPLETE];
}

const hf_program *hf_program_raise(void) {
    return &hf_program_table[HF_PROGRAM_RAISE];
}

const hf_program *hf_program_acquire_all(void) {
    return &hf_program_table[HF_PROGRAM_ACQUIRE_ALL];
}

const hf_program *hf_program_release_all(void) {
    return &hf_program_table[HF_PROGRAM_RELEASE_ALL];
}
