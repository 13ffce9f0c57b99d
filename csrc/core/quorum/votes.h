/* The members' votes in a round, and what happens to late votes. */
#ifndef HF_VOTES_H
#define HF_VOTES_H

#include "quorum/internal.h"

#define HF_MIN_GRACE (250 * HF_MS) /* minimum wait for votes that can change the outcome */

/* How many members voted yes, have not voted yet, or voted no for each reason. */
typedef struct hf_tally {
    size_t yes, pending, skipped, busy, denied, conflict, lost, guarded, transient;
} hf_tally;

static inline hf_quorum *hf_quorum_of(const hf_op *op) {
    return op->client->quorum;
}

hf_tally hf_votes_count(const hf_round *round);

/* Returns when to stop waiting for votes that are requested now: after command_timeout, but not
 * much later than the operation's own wait ends. */
hf_time hf_votes_deadline(const hf_op *op, hf_time now);

/* hf_votes_begin begins an attempt, but asks no member. The other functions ask all members in a
 * new attempt, the members that were skipped, or a single member. hf_votes_ask_skipped returns
 * false if it asked no member. */
void hf_votes_begin(hf_op *op, hf_time now);
void hf_votes_ask_all(hf_op *op, hf_time now);
bool hf_votes_ask_skipped(hf_op *op, hf_time now);
void hf_votes_ask(hf_op *op, size_t index, const hf_op_spec *spec, hf_time now);

void hf_vote_yes(hf_vote *vote);
void hf_vote_no(hf_vote *vote, hf_code code, const char *why);

/* Record the votes that have arrived, count the missing votes as no, and limit the time to wait for
 * the missing votes. */
void hf_votes_record_arrived(hf_op *op, hf_time now);
void hf_votes_time_out(const hf_op *op);
void hf_votes_limit_wait(hf_op *op, const hf_tally *votes, hf_time now);

/* hf_votes_code returns the failure code that the votes suggest. hf_votes_fail fails the operation;
 * `verb` follows the number of yes votes in the message, as in "2 of 5 granted". */
hf_code hf_votes_code(const hf_op *op);
void hf_votes_fail(hf_op *op, hf_code code, const char *verb);

/* Adds HF_EVENT_CUT_OFF, once: too few servers reply to the acquire, which keeps waiting. */
void hf_votes_cut_off(hf_op *op, hf_code code, hf_time now);

/* Ends the votes of a decided operation. Member operations under way continue in the background,
 * and grants that were not counted as a yes are given up. */
void hf_votes_end(hf_op *op, hf_time now);

/* Ends an attempt without a majority, and rolls it back on all members. */
void hf_votes_roll_back(hf_op *op, hf_time now);

/* Makes the round DECIDED and ends its votes. Its hold's claim is no longer in flight: releases
 * that were abandoned in the meantime are now carried out, and operations that waited for the claim
 * run. */
void hf_votes_conclude(hf_op *op, hf_time now);

#endif
