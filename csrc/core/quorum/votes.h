/* The votes of the members in a round, and how late ones are handled. */
#ifndef HF_VOTES_H
#define HF_VOTES_H

#include "quorum/internal.h"

#define HF_LEAST_GRACE (250 * HF_MS) /* for servers on which the outcome still depends */

/* How many members have voted yes, have not voted yet, or have voted no for each reason. */
typedef struct hf_tally {
    size_t yes, pending, skipped, busy, denied, conflict, lost, guarded, refused;
} hf_tally;

static inline hf_quorum *hf_quorum_of(const hf_op *op) {
    return op->client->quorum;
}

hf_tally hf_votes_count(const hf_round *round);

/* Returns until when votes that are asked for now are waited for: as long as a command may take,
 * but not much longer than the operation waits. */
hf_time hf_votes_last_at(const hf_op *op, hf_time now);

/* hf_votes_open begins an attempt without a vote. The others ask all members in a new attempt,
 * those that were skipped, or one. hf_votes_ask_skipped returns false if no member was skipped. */
void hf_votes_open(hf_op *op, hf_time now);
void hf_votes_ask_all(hf_op *op, hf_time now);
bool hf_votes_ask_skipped(hf_op *op, hf_time now);
void hf_votes_ask(hf_op *op, size_t index, const hf_op_spec *spec, hf_time now);

void hf_vote_yes(hf_vote *vote);
void hf_vote_no(hf_vote *vote, hf_code code, const char *why);

/* Count the votes that have come; count the missing ones as no; give them a little more time. */
void hf_votes_count_done(hf_op *op, hf_time now);
void hf_votes_time_out(const hf_op *op);
void hf_votes_hurry(hf_op *op, const hf_tally *votes, hf_time now);

/* The operation's failure, from the members' votes. */
hf_code hf_votes_code(const hf_op *op);
void hf_votes_fail(hf_op *op, hf_code code, const char *done);

/* Adds the event, once, that no majority answers the acquire, which continues to wait. */
void hf_votes_cut_off(hf_op *op, hf_code code, hf_time now);

/* Ends the members' part of an operation that is decided: what is under way there continues in the
 * background. */
void hf_votes_end(hf_op *op, hf_time now);

/* Ends an attempt without a majority: the members keep nothing of it. */
void hf_votes_roll_back(hf_op *op, hf_time now);

/* The operation is decided: ends its votes, and its use of the hold. */
void hf_votes_conclude(hf_op *op, hf_time now);

#endif
