/* The renewer's second half. It makes the server forget LEAVING claims, and decides what happens to
 * a claim when its hold ends.
 *
 *     SCHEDULED --> IN FLIGHT --> GONE
 *         ^             |
 *         +-------------+
 *
 *   SCHEDULED  until `wake_at`, when the leave command is sent: at once, or within a second of an
 *              attempt that the server refused or did not reply to
 *   IN FLIGHT  until the reply arrives, or can no longer arrive
 *   GONE       after the reply, after a command that must not be resent, or at `valid_until`
 *
 * Invariants of a LEAVING claim:
 * - No caller relies on it, and it never gets a hold again. The caller's next acquire waits until
 *   it is GONE, or sets it aside.
 * - At `valid_until` the renewer gives up: after one lease or 30 s, whichever is longer. Entries of
 *   a shared owner are released only within their lease, because another process of the owner may
 *   hold the lock afterwards.
 * - A leave may be sent twice, unless it releases entries of a shared owner. */
#ifndef HF_LEAVE_H
#define HF_LEAVE_H

#include "interfaces.h"

/* Makes the renewer clean up the claim, so that the server forgets it. Ends the claim's hold. */
void hf_renewer_clean_up(hf_client *client, hf_claim *claim, hf_time now);

/* Does the same over the callers' link, so that the server runs the command in doubt first. */
void hf_renewer_clean_up_on_same_connection(hf_client *client, hf_claim *claim, hf_time now);

/* Makes the renewer of a closed client clean up the claim if the server may still have it. The
 * caller must then call hf_holds_resort. */
void hf_renewer_clean_up_at_close(hf_client *client, hf_claim *claim, hf_time now);

/* If the claim is LEAVING, sends its leave command now over the callers' link, for a caller that is
 * waiting. */
void hf_renewer_expedite_clean_up(hf_client *client, hf_claim *claim, hf_time now);

/* Handles a LEAVING claim that is due. */
void hf_renewer_serve_leaving(hf_client *client, hf_claim *claim, hf_time now);

/* Lets the caller acquire again although its LEAVING claim could not be cleaned up; the renewer
 * keeps trying. Returns false for a shared owner, because its holds are counted together. */
bool hf_renewer_set_aside(hf_client *client, hf_claim *claim, hf_time now);

/* Lets the caller acquire again although the release of this hold is under way. That release
 * counts as the claim's leave command. If it gets no reply, call hf_renewer_clean_up to send a
 * leave. */
void hf_renewer_set_aside_release(hf_client *client, hf_hold *hold);

/* Makes the renewer pass on a lock that was granted again to a shared owner's lost hold. Returns
 * the claim for this clean-up, or NULL if there is nothing to pass on or when out of memory. */
hf_claim *hf_renewer_clean_up_grant(hf_client *client, const hf_claim *claim, hf_time now);

/* Makes the renewer evict the dead waiters of a freed lock, so that the next live one gets it. */
void hf_renewer_grant_to_next(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now);

/* Marks a hold as lost. If its grant was not confirmed, also removes the grant's mark from the
 * queue. With the mark, the server would assume that the wait had missed its grant, and grant it
 * the lock again. */
void hf_renewer_on_lost(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now);

/* Marks the hold of a lost claim as lost in the same way. A claim without a hold, which exists only
 * until a run's record has been written, is removed instead. */
void hf_renewer_on_claim_lost(hf_client *client, hf_claim *claim, hf_lost_reason reason,
                              hf_time now);

/* Returns whether the server may still have the lost hold. */
bool hf_hold_may_be_on_server(const hf_hold *hold);

/* Removes the lost hold from the table. If the server may still have it, the renewer cleans up its
 * claim. */
void hf_renewer_clean_up_lost(hf_client *client, hf_hold *hold, hf_time now);

/* Called when an operation stops using a hold and has left nothing to undo on the server. Removes a
 * hold that the operation was still acquiring. */
void hf_renewer_forget(hf_client *client, hf_hold *hold, hf_time now);

/* Implements hf_client_abandon. */
void hf_renewer_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* Abandons the entries whose abandonment had to wait for a re-entry, which has now ended. */
void hf_renewer_abandon_deferred(hf_client *client, hf_hold *hold, hf_time now);

/* Records that a shared owner's acquire, sent at `sent_at`, took a hold that no caller is using.
 * The next release includes that hold. */
void hf_renewer_add_pending_release(hf_claim *claim, hf_time sent_at);

/* Makes the renewer await the reply to a shared owner's abandoned acquire, and release what that
 * acquire took. Returns false if no reply can arrive, or when out of memory. */
bool hf_renewer_await_reply(hf_client *client, hf_hold *hold, hf_request *request, hf_time now);

/* Takes over a request whose operation ends before its reply. The client is not quiet until the
 * reply arrives. Returns false if no reply can arrive, or when out of memory. */
bool hf_renewer_take_over_request(hf_client *client, hf_request *request);

#endif
