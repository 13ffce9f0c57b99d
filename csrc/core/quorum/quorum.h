/* Several independent servers act as one: an owner holds a lock while it holds the lock on a
 * majority of them.
 *
 * Each server has its own client, called a member, which acquires, renews and cleans up
 * independently. The quorum carries out an operation as a round: it begins the operation on every
 * member at once, and decides when no further reply can change the outcome. A quorum's hold
 * consists of member holds, at most one on each member. It is valid while a majority of the servers
 * has a valid member hold, and lost when too few are left.
 *
 * A member operation that is still under way when the round is decided becomes a late reply: it
 * continues in the background, and a late yes adds its member hold to the quorum's hold.
 *
 * A quorum has no queue: an acquire without a majority rolls back, and tries again after a random
 * pause. */
#ifndef HF_QUORUM_H
#define HF_QUORUM_H

#include "interfaces.h"

typedef struct hf_late_reply hf_late_reply;

struct hf_quorum {
    hf_client **members;
    size_t count, majority;
    hf_late_reply *late_replies;
    uint64_t losses_at_check; /* member holds lost up to the last check of the quorum's holds */
    int64_t *clock_leads_us;  /* each server's clock minus the client's when last read */
    bool clocks_known;
    hf_time last_round_duration; /* how long the last acquire took to reach a majority */
    hf_time closed_at;           /* when the quorum was closed, or 0 */
    hf_time quiet_at;            /* when a majority of the closed members became quiet, or 0 */

    /* The quorum is closed, and no longer waits for members that are not quiet. */
    bool stopped_waiting;
};

#endif
