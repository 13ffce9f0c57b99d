/* One client for each test of the program, which ends after the test. */
#ifndef RIG_H
#define RIG_H

#include "drive.h"

static struct rig rig;

#define CALLS HF_LINK_CALLS
#define EVENTS HF_LINK_EVENTS
#define RENEWER HF_LINK_RENEWER

static UNUSED void rig_after(void) {
    rig_end(&rig, rig.now);
}

/* Each test begins with what this function does. */
#define RIG_BEGINS_WITH(before) CHECK_AROUND(before, rig_after)

/* Each test begins with a client of the usual configuration. */
#define RIG_BEGINS                                                                                 \
    static void rig_before(void) {                                                                 \
        rig_begin(&rig);                                                                           \
    }                                                                                              \
    RIG_BEGINS_WITH(rig_before)

#endif
