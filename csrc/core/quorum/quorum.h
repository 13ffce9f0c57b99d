/* Several independent servers as one: a lock is held while its owner holds it on a majority of
 * them.
 *
 * Each server has a client of its own, a member, which acquires, renews and cleans up as if it were
 * alone. An operation of the quorum is a round: the same operation on every member at once, decided
 * as soon as the outcome is certain. A hold of the quorum has a member hold on each member. It is
 * valid until the end that a majority of its member holds reaches, and lost when too few of them
 * are left.
 *
 * A member operation that is under way when the round is decided becomes a late reply: it continues
 * in the background, and a late yes adds its member hold to the hold.
 *
 * A quorum has no queue: an acquire without a majority rolls back what it has and tries again after
 * a random pause. */
#ifndef HF_QUORUM_H
#define HF_QUORUM_H

#include "interfaces.h"

typedef struct hf_late_reply hf_late_reply;

struct hf_quorum {
    hf_client **members;
    size_t count, majority;
    hf_late_reply *late_replies;
    uint64_t losses_seen; /* of member holds, when our holds were last checked */
    int64_t *ahead; /* each server's clock less ours when a command was sent, in microseconds */
    bool clocks_known;
    hf_time last_round; /* how long the last acquire's majority took */
    hf_time closed_at;  /* when it was closed; 0: it is open */
    hf_time quiet_at;   /* once closed: when most members had released everything; 0: not yet */
    bool leaves_rest;   /* once closed: the other members have had enough time */
};

#endif
