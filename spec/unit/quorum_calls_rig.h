/* Calls to a quorum, and the replies of its members. */
#ifndef QUORUM_CALLS_RIG_H
#define QUORUM_CALLS_RIG_H

#include "quorum_rig.h"

#define OWNER_OF_US DRIVE_UUID ":3"
#define INFO(owner, holds, token)                                                                  \
    "*6\r\n$" owner "\r\n:" holds "\r\n:1500\r\n:" token "\r\n:4\r\n:2\r\n"
#define NOBODY "*6\r\n$0\r\n\r\n:0\r\n:-2\r\n:90\r\n:0\r\n:-1\r\n"

static UNUSED hf_op *begin_guard(hf_time now) {
    return BEGIN_ROUND(HF_OP_ACQUIRE, now, spec.lock_kind = &hf_kind_guard,
                       spec.fingerprint = hf_slice_of("print"));
}

#endif
