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

/* Makes the renewer send the request, which writes the record of the run under this hold, until it
 * is written or the lock is lost, and renew the lock in the meantime. The client is not quiet
 * before that. Returns false when out of memory. */
bool hf_renewer_record(hf_client *client, const hf_hold *hold, hf_request *request, hf_time now);

/* Encodes the command that renews one hold, and confirms it if it came by a grant. Returns false
 * when out of memory. */
bool hf_renewer_encode_confirmation(const hf_client *client, const hf_hold *hold,
                                    hf_request *request, hf_time now);

/* Notes that the server has renewed the hold, by a command that was sent at `sent_at`. */
void hf_renewer_on_renewed(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* Notes that one entry of the hold was released, by a command that was sent at `sent_at`.
 * hold->count has the entries that are left, which may have been abandoned in the meantime. */
void hf_renewer_on_entry_released(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* See hf_client_approve and hf_client_set_renewed. */
void hf_renewer_approve(hf_client *client, hf_hold *hold, hf_time now);
void hf_renewer_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now);

#endif
