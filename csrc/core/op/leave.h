/* The renewer's second half: makes the server forget claims that are LEAVING, and decides what
 * happens to a claim when its hold ends.
 *
 *     DUE --> IN FLIGHT --> GONE
 *      ^          |
 *      +----------+
 *
 *   DUE        at `wake_at` the leave is sent: at once, or within a second after an attempt that
 *              the server refused or did not reply to
 *   IN FLIGHT  until the reply, or until no reply can come
 *   GONE       the server has replied, or must not get the command twice, or it is `valid_until`
 *
 * Invariants of a claim that is LEAVING:
 * - No caller relies on it, and it never becomes a hold again. The caller's next acquire waits
 *   until it is GONE, or sets it aside.
 * - At `valid_until` the renewer gives up: after the length of a lease, but at least 30 s. Entries
 *   of a shared owner are released only within their lease, because after it another process of
 *   the owner may hold the lock.
 * - A leave may be sent twice, unless it releases entries of a shared owner. */
#ifndef HF_LEAVE_H
#define HF_LEAVE_H

#include "interfaces.h"

/* Passes the claim to the renewer, which makes the server forget it. Its hold is over. */
void hf_renewer_clean_up(hf_client *client, hf_claim *claim, hf_time now);

/* Does the same over the same link as the command in doubt, after that command. */
void hf_renewer_clean_up_same_connection(hf_client *client, hf_claim *claim, hf_time now);

/* Passes the claim to the renewer of a closed client if the server may have something of it. Does
 * not restore the order of the heap. */
void hf_renewer_clean_up_at_close(hf_client *client, hf_claim *claim, hf_time now);

/* If the claim is LEAVING, sends its leave now, over the callers' link: a caller is waiting. */
void hf_renewer_clean_up_first(hf_client *client, hf_claim *claim, hf_time now);

/* Handles a claim that is LEAVING and needs attention now. */
void hf_renewer_serve_leaving(hf_client *client, hf_claim *claim, hf_time now);

/* Frees the caller from a claim that is LEAVING and could not be cleaned up, while the renewer
 * keeps trying. Returns false for a shared owner, whose holds are counted together. */
bool hf_renewer_set_aside(hf_client *client, hf_claim *claim, hf_time now);

/* Frees the caller from a hold whose release is under way. The claim leaves by that release; if the
 * release gets no reply, hf_renewer_clean_up makes the renewer continue it. */
void hf_renewer_set_overtaken_aside(hf_client *client, hf_hold *hold);

/* Makes the renewer pass on a lock that was granted again to a lost hold of a shared owner. Returns
 * the claim for this clean-up; NULL if there is nothing to pass on, or when out of memory. */
hf_claim *hf_renewer_clean_up_grant(hf_client *client, const hf_claim *claim, hf_time now);

/* Makes the renewer evict dead waiters of a lock that the server has freed, so that the next waiter
 * gets it. */
void hf_renewer_pass_on(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now);

/* Called when a hold is lost: marks it. If its grant was not confirmed, the mark of the grant in
 * the queue is removed at once. Otherwise the server would believe that the wait, which is over,
 * had missed its grant, and serve it again. */
void hf_renewer_on_lost(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now);

/* Called when a claim is lost: marks its hold. Removes a claim without a hold, which is kept only
 * until the record of a run is written. */
void hf_renewer_on_claim_lost(hf_client *client, hf_claim *claim, hf_lost_reason reason,
                              hf_time now);

/* Returns whether the server may still have the lost hold. */
bool hf_renewer_may_remain(const hf_hold *hold);

/* Takes the lost hold out of the table. A hold that expired here may still be on the server; then
 * the renewer cleans up its claim. */
void hf_renewer_clean_up_lost(hf_client *client, hf_hold *hold, hf_time now);

/* Ends the use of a hold by an operation that has left nothing on the server to undo. A hold that
 * the operation was still acquiring is removed. */
void hf_renewer_forget(hf_client *client, hf_hold *hold, hf_time now);

/* See hf_client_abandon. */
void hf_renewer_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* Releases what was abandoned during a re-entry that is now over. */
void hf_renewer_abandon_dropped(hf_client *client, hf_hold *hold, hf_time now);

/* Notes that a shared owner's acquire, which was sent at `asked_at`, took a hold that no caller
 * is using. The next release releases it, too. */
void hf_renewer_add_pending_release(hf_claim *claim, hf_time asked_at);

/* Makes the renewer await the reply to `ask`, an abandoned acquire of a shared owner, and release
 * what it took. Returns false if no reply can come, or when out of memory. */
bool hf_renewer_await_answer(hf_client *client, hf_hold *hold, hf_request *ask, hf_time now);

/* Takes over a request whose operation ends before its reply. The client is not quiet until the
 * reply arrives. Returns false if no reply can arrive, or when out of memory. */
bool hf_renewer_see_through(hf_client *client, hf_request *request);

#endif
