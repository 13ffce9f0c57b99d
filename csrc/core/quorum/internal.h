/* Declarations that quorum.c (members, holds, late replies) and its operations' files share. */
#ifndef HF_QUORUM_INTERNAL_H
#define HF_QUORUM_INTERNAL_H

#include "op/holding.h"
#include "quorum/quorum.h"

typedef enum hf_round_state {
    HF_ROUND_ASKING,
    HF_ROUND_WRITING_BACK, /* there is a majority, to which the token is being written back */
    HF_ROUND_PAUSING,      /* there was no majority; another attempt will follow */
    HF_ROUND_DECIDED
} hf_round_state;

/* The vote of one member. */
typedef struct hf_vote {
    hf_op *op;        /* the member's operation; NULL if there was none or it has ended */
    bool counted;     /* the member has voted, or counts as a no */
    bool yes;         /* true for a yes, false for a no */
    bool skipped;     /* counted as a no without asking: the server has just refused a connection */
    bool rolled_back; /* the member granted the lock, but the grant did not count and was undone */
    bool is_transient;   /* counted as a no because the server temporarily refuses the command */
    bool guarded;        /* counted as a no because the server has not been known for long enough */
    hf_code code;        /* the reason for a no */
    char why[64];        /* the same reason as text, for messages */
    uint64_t token;      /* the token that came with a yes */
    uint64_t token_sent; /* the last token that the round tried to write back to this member */
    hf_op *write_back;   /* the operation that writes the token back, or NULL */
} hf_vote;

/* A quorum's operation on all members. It is freed when its last member operation has ended. */
struct hf_round {
    uint32_t refs;
    hf_round_state state;
    hf_names *names;
    hf_slice caller, fingerprint, result; /* copies of the spec's strings, stored after the votes */
    hf_slice owner;                       /* the owner of the member holds: a copy, or owner_text */
    char owner_text[HF_UUID_SIZE + 36];
    hf_hold *hold;     /* the quorum's hold, to which the round has a reference, or NULL */
    hf_time asked_at;  /* when the members were asked */
    hf_time decide_by; /* when missing votes begin to count as no */
    hf_time retry_at;  /* PAUSING: when the next attempt begins */
    uint64_t token;    /* the token to write back, and then that of the hold */
    uint32_t attempts; /* how many attempts have begun */
    size_t count;      /* the number of votes, one for each member */
    hf_vote votes[];
};

/* Implements all operations of a quorum. */
extern const hf_op_impl hf_round_impl;

/* Sets the hold's end to the time until which a majority of its member holds is valid. If there is
 * no such majority, marks the hold lost. */
void hf_quorum_refresh(hf_client *client, hf_hold *hold, hf_time now);

/* Marks the hold lost if it has had no majority for a while. Call this before a member hold is
 * added, which must not hide that gap: another owner may have held the lock then. */
void hf_quorum_check_for_gap(hf_client *client, hf_hold *hold, hf_time now);
void hf_quorum_mark_lost(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now);
void hf_quorum_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* Creates a round with copies of the spec's strings. Returns NULL when out of memory. */
hf_round *hf_round_new(const hf_op_spec *spec, size_t count);
void hf_round_unref(hf_round *round);

/* Gives the round an owner that none of this hold's member holds had before, so that a late leave
 * or release by an earlier owner does not free the new one. A shared owner is not changed. */
void hf_round_choose_owner(hf_round *round, hf_hold *hold);

/* Returns the spec for member operations. The round owns its strings. */
hf_op_spec hf_round_spec(const hf_round *round, const hf_op_spec *spec);

/* Lets the operation of member `index` continue in the background. If it acquires the lock, its
 * hold becomes a member hold of the round's hold. When out of memory, ends the operation. */
void hf_quorum_await_late_reply(hf_client *client, hf_round *round, size_t index, hf_op *op,
                                hf_time now);

/* Called when another owner holds the lock on a server without a member hold. That owner's acquire
 * may have no majority and soon roll back, so the server is soon asked again, after a pause that
 * grows with each refusal. */
void hf_quorum_on_busy(hf_client *client, hf_hold *hold, hf_time now);

/* Ends the background acquires for this hold. */
void hf_quorum_end_late_replies(hf_client *client, const hf_hold *hold, hf_time now);
bool hf_quorum_awaits_reply(const hf_quorum *quorum, const hf_hold *hold, size_t index);

/* Returns whether the member's server may have forgotten a lock, because no client has known its
 * run id for as long as restart_guard. If some client has, stores the run id for other clients. */
bool hf_quorum_is_guarded(const hf_client *client, size_t index, hf_time now);

/* Adds the member hold to the quorum's hold. Returns false when out of memory. */
bool hf_quorum_add_member_hold(hf_client *client, hf_hold *hold, size_t index,
                               hf_hold *member_hold);
bool hf_member_hold_is_held(const hf_hold *member_hold);

/* Returns how many entries of this client the member hold will have once the releases under way on
 * that server have ended. */
uint32_t hf_member_hold_entries(const hf_client *member, const hf_hold *member_hold);

/* Cleans up the member holds. In each, `remaining` entries of this client stay. */
void hf_quorum_clean_up_member_holds(hf_client *client, hf_hold *hold, uint32_t remaining,
                                     hf_time now);

/* Returns a token slightly ahead of every server's clock, which need not be written back if every
 * server accepts it. Returns 1 if no clock is known yet. */
uint64_t hf_quorum_propose(const hf_quorum *quorum, hf_time now);
void hf_quorum_learn_clock(hf_quorum *quorum, size_t index, const hf_op *op);

#endif
