/* The renewer's second half: makes the server forget claims that are LEAVING, and decides what
 * becomes of a claim when its hold ends.
 *
 *     DUE --> IN FLIGHT --> GONE
 *      ^          |
 *      +----------+
 *
 *   DUE        at `wake_at` the leave is sent: at once, or within a second after an attempt that
 *              the server refused or did not answer
 *   IN FLIGHT  until the reply, or until no reply is to come
 *   GONE       the server has replied, or must not get the command twice, or `valid_until` has come
 *
 * What is always true of a claim that is LEAVING:
 * - No caller counts on it, and nothing makes it a hold again. The next acquire of the same caller
 *   waits until it is GONE, or sets it aside.
 * - `valid_until` is when the renewer gives up: after the lease, and after 30 s at the earliest.
 *   Entries of a shared owner are released only within their lease: after it another process of
 *   the owner may hold the lock.
 * - A leave may be sent twice, unless it releases entries of a shared owner. */
#ifndef HF_LEAVE_H
#define HF_LEAVE_H

#include "interfaces.h"

/* Gives the hold to the renewer, which cleans it up. */
void hf_renewer_clean_up(hf_client *client, hf_hold *hold, hf_time now);

/* Gives the hold to the renewer, which cleans it up after the command in doubt, over the same link.
 */
void hf_renewer_clean_up_same_connection(hf_client *client, hf_hold *hold, hf_time now);

/* If the claim is LEAVING, sends its leave now, over the callers' link: a caller is waiting. */
void hf_renewer_clean_up_first(hf_client *client, hf_claim *claim, hf_time now);

/* Handles a claim that is LEAVING and needs attention now. */
void hf_renewer_attend_leaving(hf_client *client, hf_claim *claim, hf_time now);

/* Lets the caller go without a hold that could not be cleaned up; the renewer keeps trying. Returns
 * false when out of memory, and for a shared owner, whose holds are counted together. */
bool hf_renewer_set_aside(hf_client *client, hf_hold *hold, hf_time now);

/* Makes the renewer continue with a release that got no reply, of a hold that its caller has
 * already replaced. */
void hf_renewer_clean_up_replaced(hf_client *client, const hf_claim *claim, hf_time now);

/* Makes the renewer pass on a lock that was granted again to a lost hold of a shared owner. Returns
 * the hold that does it; NULL: there is nothing to pass on, or out of memory. */
hf_hold *hf_renewer_clean_up_grant(hf_client *client, const hf_claim *claim, hf_time now);

/* Makes the renewer evict dead waiters of a lock that the server has freed, so that the next one
 * gets it. */
void hf_renewer_pass_on(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now);

/* Marks the hold lost. If its grant was not confirmed, the queue's mark of the grant is removed at
 * once: otherwise the server would take the wait, which is over, for one that missed its grant, and
 * serve it again. */
void hf_renewer_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now);

/* Marks the hold lost because its lease is over. */
void hf_renewer_lose_at_end(hf_client *client, hf_hold *hold, hf_time now);

/* Returns whether the server may still have the lost hold. */
bool hf_renewer_may_stand(const hf_hold *hold);

/* Takes the lost hold out of the table. A hold that expired here may still be on the server: the
 * renewer cleans it up, with a hold of its own for the same caller. */
void hf_renewer_clean_up_lost(hf_client *client, hf_hold *hold, hf_time now);

/* Ends an operation's use of the hold, which has left nothing on the server. */
void hf_renewer_forget(hf_client *client, hf_hold *hold, hf_time now);

/* See hf_client_abandon. */
void hf_renewer_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* Releases what was abandoned during a re-entry, which is over now. */
void hf_renewer_abandon_dropped(hf_client *client, hf_hold *hold, hf_time now);

/* Notes that an acquire of a shared owner, which began at `asked_at`, took a hold that no caller
 * has: it is released with the next release. */
void hf_renewer_add_pending_release(hf_claim *claim, hf_time asked_at);

/* Makes the renewer wait for the reply to the acquire `ask` of a shared owner, which was abandoned,
 * and release what it took. Returns false if no reply is to come, or when out of memory. */
bool hf_renewer_await_answer(hf_client *client, hf_hold *hold, hf_request *ask, hf_time now);

/* Takes over a sent request whose operation ends before its reply: the client is not quiet until
 * the reply comes. Returns false if no reply is to come, or when out of memory. */
bool hf_renewer_see_through(hf_client *client, hf_request *request);

#endif
