/* Renews and confirms holds, and cleans up on the server.
 *
 * A hold with a command in flight is `in_flight`: no second command is sent, so a renewal never
 * arrives after the release. A batch has a reference to each of its holds until its reply comes.
 * No lease that is asked for ends after the hold's max_until; when it cannot be made longer, the
 * hold is not renewed any more. */
#ifndef HF_RENEWER_H
#define HF_RENEWER_H

#include "interfaces.h"

/* Serves the holds that need attention now. */
void hf_renewer_tick(hf_client *client, hf_time now);

/* Makes the renewer continue with a hold as if the last command for it, which did not renew it, had
 * not been sent. */
void hf_renewer_resume(hf_client *client, hf_hold *hold, hf_time now);

/* Sets when a kept lock that no caller has is due next: its lease on the server becomes short, and
 * is renewed until the client does not keep the lock any more. */
void hf_renewer_resume_idle(hf_client *client, hf_hold *hold, hf_time now);

/* Ends an operation's use of the hold, which has left nothing on the server. */
void hf_renewer_forget(hf_client *client, hf_hold *hold, hf_time now);

/* Gives the hold to the renewer, which cleans it up after the command in doubt, over the same link.
 */
void hf_renewer_clean_up_same_connection(hf_client *client, hf_hold *hold, hf_time now);

/* Notes that an acquire of a shared owner, which began at `asked_at`, took a hold that no caller
 * has: it is released with the next release. */
void hf_renewer_add_pending_release(hf_hold *hold, hf_time asked_at);

/* Makes the renewer wait for the reply to the acquire `ask` of a shared owner, which was abandoned,
 * and release what it took. Returns false if no reply is to come, or when out of memory. */
bool hf_renewer_await_answer(hf_client *client, hf_hold *hold, hf_request *ask, hf_time now);

/* Makes the renewer send the request, which writes the record of the run under this hold, until it
 * is written or the lock is lost, and renew the lock in the meantime. The client is not quiet
 * before that. Returns false when out of memory. */
bool hf_renewer_record(hf_client *client, const hf_hold *hold, hf_request *request, hf_time now);

/* Takes over a sent request whose operation ends before its reply: the client is not quiet until
 * the reply comes. Returns false if no reply is to come, or when out of memory. */
bool hf_renewer_see_through(hf_client *client, hf_request *request);

/* Returns whether the server may still have the lost hold. */
bool hf_renewer_may_stand(const hf_hold *hold);

/* Marks the hold lost. If its grant was not confirmed, the queue's mark of the grant is removed at
 * once: otherwise the server would take the wait, which is over, for one that missed its grant, and
 * serve it again. */
void hf_renewer_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now);

/* Marks the hold lost because its lease is over. */
void hf_renewer_lose_at_end(hf_client *client, hf_hold *hold, hf_time now);

/* Takes the lost hold out of the table. A hold that expired here may still be on the server: the
 * renewer cleans it up, with a hold of its own for the same caller. */
void hf_renewer_clean_up_lost(hf_client *client, hf_hold *hold, hf_time now);

/* Makes the renewer continue with a release that got no reply, of a hold that its caller has
 * already replaced. */
void hf_renewer_clean_up_replaced(hf_client *client, const hf_hold *hold, hf_time now);

/* Makes the renewer pass on a lock that was granted again to a lost hold of a shared owner. Returns
 * the hold that does it; NULL: there is nothing to pass on, or out of memory. */
hf_hold *hf_renewer_clean_up_grant(hf_client *client, const hf_hold *hold, hf_time now);

/* Encodes the command that renews one hold, and confirms it if it came by a grant. Returns false
 * when out of memory. */
bool hf_renewer_encode_confirmation(const hf_client *client, const hf_hold *hold,
                                    hf_request *request, hf_time now);

/* Lets the caller go without a hold that could not be cleaned up; the renewer keeps trying. Returns
 * false when out of memory, and for a shared owner, whose holds are counted together. */
bool hf_renewer_set_aside(hf_client *client, hf_hold *hold, hf_time now);

/* Makes the renewer evict dead waiters of a lock that the server has freed, so that the next one
 * gets it. */
void hf_renewer_pass_on(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now);

/* Notes that the server has renewed the hold, by a command that was sent at `sent_at`. */
void hf_renewer_on_renewed(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* Sends the clean-up of the hold now, over the callers' link: a caller is waiting for it. */
void hf_renewer_clean_up_first(hf_client *client, hf_hold *hold, hf_time now);

/* Gives the hold to the renewer, which cleans it up. */
void hf_renewer_clean_up(hf_client *client, hf_hold *hold, hf_time now);

/* Notes that one entry of the hold was released, by a command that was sent at `sent_at`.
 * hold->count has the entries that are left, which may have been abandoned in the meantime. */
void hf_renewer_on_entry_released(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* See hf_client_approve, hf_client_set_renewed and hf_client_abandon. */
void hf_renewer_approve(hf_client *client, hf_hold *hold, hf_time now);
void hf_renewer_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now);
void hf_renewer_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* Releases what was abandoned during a re-entry, which is over now. */
void hf_renewer_abandon_dropped(hf_client *client, hf_hold *hold, hf_time now);

#endif
