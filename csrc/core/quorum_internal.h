/* Between quorum.c (members, holds, stragglers) and ballot.c (operations). */
#ifndef HF_QUORUM_INTERNAL_H
#define HF_QUORUM_INTERNAL_H

#include "client_internal.h"
#include "quorum.h"

typedef enum hf_ballot_state {
    HF_BALLOT_ASKING,
    HF_BALLOT_RAISING, /* there is a majority; the token is being written back to it */
    HF_BALLOT_PAUSING, /* no majority; another round will follow */
    HF_BALLOT_DECIDED
} hf_ballot_state;

typedef struct hf_vote {
    hf_op *op; /* NULL: not asked, or not any more */
    bool counted, yes;
    bool spared;  /* a no of a server that refused a moment ago and was not asked again */
    bool left;    /* the yes of an acquire that was worth nothing, and is given back already */
    hf_code code; /* of a no */
    char why[64];
    uint64_t token;
    hf_op *raise; /* writes the token back; NULL: not needed or done */
} hf_vote;

/* What the operations on the members point to; it lives as long as the last of them. */
struct hf_ballot {
    uint32_t refs;
    hf_ballot_state state;
    hf_names names;
    hf_slice owner, print, result; /* copies behind the votes */
    hf_hold *hold;                 /* that it is about, referenced; NULL: none */
    hf_time asked_at, decide_by, retry_at;
    uint64_t token;
    uint32_t rounds;
    size_t count;
    hf_vote votes[];
};

/* Refers to the spec's names by copies; NULL when out of memory. */
hf_ballot *hf_ballot_new(const hf_op_spec *spec, size_t count);
void hf_ballot_unref(hf_ballot *ballot);

/* The spec for member operations: its texts are the ballot's. */
hf_op_spec hf_ballot_spec(const hf_ballot *ballot, const hf_op_spec *spec);

/* The operation of member `index` goes on in the background; what it acquires becomes a part of the ballot's hold.
 * False when out of memory: it was ended instead. */
bool hf_quorum_leave_behind(hf_client *client, hf_ballot *ballot, size_t index, hf_op *op, hf_time now);

/* Ends the acquires for this hold that go on in the background. */
void hf_quorum_end_stragglers(hf_client *client, const hf_hold *hold, hf_time now);
bool hf_quorum_has_straggler(const hf_quorum *quorum, const hf_hold *hold, size_t index);

/* The member's server has run for so short a time that it may have forgotten a lock. */
bool hf_quorum_is_guarded(const hf_client *client, size_t index, hf_time now);

/* The member's hold becomes a part of ours. False when out of memory. */
bool hf_quorum_add_part(hf_client *client, hf_hold *hold, size_t index, hf_hold *part);
bool hf_part_is_held(const hf_hold *part);

/* Lets go of the hold's parts beyond `keep` holds of this client each. */
void hf_quorum_leave_parts(hf_client *client, hf_hold *hold, uint32_t keep, hf_time now);

/* A token that is a little ahead of every server's clock, 1: not known yet. */
uint64_t hf_quorum_propose(const hf_quorum *quorum, hf_time now);
void hf_quorum_learn_clock(hf_quorum *quorum, size_t index, const hf_op *op);

#endif
