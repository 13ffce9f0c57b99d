/* Several independent servers as one: a lock is held while a majority of them holds it for its owner.
 *
 * Each server has a client of its own, a member, which acquires, renews and leaves as if it were alone. An operation of
 * the quorum is a ballot: the same operation begun on every member at once and decided as soon as the outcome is
 * certain. A hold of the quorum has a part on each member; it is valid as long as a majority of its parts is, which is
 * until the end that the majority-th of them reaches, and it is lost with the part that breaks the majority.
 *
 * What is still under way when a ballot is decided becomes a straggler: it goes on in the background, and a server that
 * says yes late becomes a part of the hold.
 *
 * Nobody waits in a queue here: who finds no majority gives back what it has and tries again after a random pause. */
#ifndef HF_QUORUM_H
#define HF_QUORUM_H

#include "client.h"

typedef struct hf_straggler hf_straggler;

struct hf_quorum {
    hf_client **members;
    size_t count, majority;
    hf_straggler *stragglers;
    uint64_t losses_seen; /* of the members' holds, when ours were last looked at */
    int64_t *ahead;       /* of each member: its clock less ours when a command was sent, microseconds */
    bool clocks_known;
    hf_time last_round; /* how long the last ballot for a lock took */
};

/* False when out of memory. */
bool hf_quorum_open(hf_client *client);
void hf_quorum_close(hf_client *client, hf_time now);
void hf_quorum_free(hf_client *client);

hf_time hf_quorum_calls_deadline(const hf_quorum *quorum);
hf_time hf_quorum_keeper_deadline(const hf_quorum *quorum);
void hf_quorum_tick_calls(hf_client *client, hf_time now);
void hf_quorum_tick_keeper(hf_client *client, hf_time now);
bool hf_quorum_is_quiet(const hf_quorum *quorum);

/* Marks the hold lost when it has no majority of valid parts; else its end becomes that of the majority. */
void hf_quorum_look_at(hf_client *client, hf_hold *hold, hf_time now);
/* All that parts of holds were lost since the last look. */
void hf_quorum_notice(hf_client *client, hf_time now);
void hf_quorum_allow(hf_client *client, hf_hold *hold, hf_time now);
void hf_quorum_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* ballot.c: the operations */
void hf_ballot_begin(hf_op *op, hf_time now);
void hf_ballot_unblock(hf_op *op, hf_time now);
void hf_ballot_tick(hf_op *op, hf_time now);
hf_time hf_ballot_deadline(const hf_op *op);
void hf_ballot_interrupt(hf_op *op, hf_time now);
void hf_ballot_give_up(hf_op *op, hf_time now);
void hf_ballot_end(hf_op *op, hf_time now);

#endif
