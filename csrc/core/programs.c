#include "programs.h"

#include "programs_embedded.h"

#define HF_PROGRAM(name, ID)                                                                                           \
    const hf_program *hf_program_##name(hf_layout layout) {                                                            \
        return &hf_program_table[layout == HF_LAYOUT_LOCK ? HF_PROGRAM_##ID : HF_PROGRAM_MUTEX_##ID];                  \
    }

HF_PROGRAM(acquire, ACQUIRE)
HF_PROGRAM(release, RELEASE)
HF_PROGRAM(leave, LEAVE)
HF_PROGRAM(force, FORCE)
HF_PROGRAM(extend, EXTEND)
HF_PROGRAM(renew, RENEW)
HF_PROGRAM(info, INFO)
