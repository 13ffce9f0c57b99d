/* Renews and confirms holds, and cleans up on the server.
 *
 * A hold with a command in flight is `in_flight`: no second command is sent, so a renewal never
 * arrives after the release. A batch has a reference to each of its holds until its reply comes.
 * No lease that is asked for ends after the hold's max_until; when it cannot be made longer, the
 * hold is not renewed any more. */
#ifndef HF_RENEWER_H
#define HF_RENEWER_H

#include "interfaces.h"

void hf_renewer_tick(hf_client *client, hf_time now);

/* A command for the hold did not renew it: the renewer goes on as if it had not been sent. */
void hf_renewer_resume(hf_client *client, hf_hold *hold, hf_time now);

/* Sets when a kept lock that no caller has is due next: its lease at the server becomes short, and
 * is renewed until the lock is kept no longer. */
void hf_renewer_resume_idle(hf_client *client, hf_hold *hold, hf_time now);

/* The operation that used the hold has left nothing on the server. */
void hf_renewer_forget(hf_client *client, hf_hold *hold, hf_time now);

/* The hold goes to the renewer, which cleans it up over the callers' link, after the command in
 * doubt. */
void hf_renewer_clean_up_same_connection(hf_client *client, hf_hold *hold, hf_time now);

/* An acquire of a shared owner that began at `asked_at` took a hold that no caller has: it is
 * released with the next release. */
void hf_renewer_add_pending_release(hf_hold *hold, hf_time asked_at);

/* The acquire `ask` of a shared owner was abandoned: the renewer waits for its reply, and releases
 * what it took. Returns false if no reply is to come, or when out of memory. */
bool hf_renewer_await_answer(hf_client *client, hf_hold *hold, hf_request *ask, hf_time now);

/* Goes on with the request, which writes the record of the run under this hold, until it is written
 * or the lock is lost, and renews the lock in the meantime; the client is not quiet before that.
 * Returns false when out of memory. */
bool hf_renewer_record(hf_client *client, const hf_hold *hold, hf_request *request, hf_time now);

/* The operation of this sent request ends before its reply; the client is not quiet until the reply
 * comes. Returns false if no reply is to come, or when out of memory. */
bool hf_renewer_see_through(hf_client *client, hf_request *request);

/* Returns whether the lost hold may still be on the server. */
bool hf_renewer_may_stand(const hf_hold *hold);

/* The hold is lost. The queue's mark of a grant that was not confirmed goes at once: the server
 * would take the wait that is over for one that missed its grant, and serve it again. */
void hf_renewer_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason, hf_time now);

/* As hf_renewer_lose: the lease is over. */
void hf_renewer_lose_at_end(hf_client *client, hf_hold *hold, hf_time now);

/* Takes the lost hold out of the table. A hold that expired here may still be on the server: the
 * renewer cleans it up, with a hold of its own for the same caller. */
void hf_renewer_clean_up_lost(hf_client *client, hf_hold *hold, hf_time now);

/* The release of a hold that its caller has already replaced got no reply: the renewer goes on with
 * it. */
void hf_renewer_clean_up_replaced(hf_client *client, const hf_hold *hold, hf_time now);

/* A lost hold of a shared owner was granted the lock again: the renewer passes the lock on. Returns
 * the hold that does it; NULL: there is nothing to pass on, or out of memory. */
hf_hold *hf_renewer_clean_up_grant(hf_client *client, const hf_hold *hold, hf_time now);

/* Encodes the command that renews one hold, and confirms it if it came by a grant. Returns false
 * when out of memory. */
bool hf_renewer_encode_confirmation(const hf_client *client, const hf_hold *hold,
                                    hf_request *request, hf_time now);

/* The hold could not be cleaned up: the renewer goes on trying, and the caller does not wait for it
 * any more. Returns false when out of memory, and for a shared owner, whose holds are counted
 * together. */
bool hf_renewer_set_aside(hf_client *client, hf_hold *hold, hf_time now);

/* The server has freed the lock, and dead waiters must be evicted before the next one gets it: the
 * renewer does that. */
void hf_renewer_pass_on(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now);

/* The server has renewed the hold, by a command that was sent at `sent_at`. */
void hf_renewer_on_renewed(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* A caller waits until the hold is cleaned up: the command is sent now, over the callers' link. */
void hf_renewer_clean_up_first(hf_client *client, hf_hold *hold, hf_time now);

/* The hold goes to the renewer, which cleans it up. */
void hf_renewer_clean_up(hf_client *client, hf_hold *hold, hf_time now);

/* One entry of the hold is released, by a command that was sent at `sent_at`; hold->count has those
 * that are left. They may have been abandoned meanwhile. */
void hf_renewer_on_entry_released(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* See hf_client_approve, hf_client_set_renewed and hf_client_abandon. */
void hf_renewer_approve(hf_client *client, hf_hold *hold, hf_time now);
void hf_renewer_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now);
void hf_renewer_abandon(hf_client *client, hf_hold *hold, uint32_t count, hf_time now);

/* The re-entry that was under way is over: what was abandoned meanwhile is released. */
void hf_renewer_abandon_dropped(hf_client *client, hf_hold *hold, hf_time now);

#endif
