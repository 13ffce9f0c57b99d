/* The renewer's first half: renews claims that are ACTIVE, and confirms those that came by a
 * grant, as long as they are held: by a hold that is HELD, by the client that keeps the lock while
 * it is idle, or for the record of a run.
 *
 *     WAITING --> UNAPPROVED --> IN FLIGHT
 *        ^                           |
 *        +---------------------------+
 *
 *   WAITING     until `wake_at`: for a third of the lease; after a failed command, when it is
 *               at risk, for an eighth of the time that is left, at most a second
 *   UNAPPROVED  with config.needs_approval, until the owner approves
 *   IN FLIGHT   until the reply, or until no reply can come
 *
 * Invariants of a claim that is held:
 * - It needs attention at `valid_until` at the latest, whatever is in flight. Then its hold is
 *   lost; without a hold, an idle lock is given back, and a record is given up.
 * - No second command is sent while one is in flight, so a renewal never arrives after the release.
 * - Only a reply increases `valid_until`, which counts from when the command was sent.
 * - It is no longer renewed when `max_until` prevents its lease from growing. */
#ifndef HF_RENEW_H
#define HF_RENEW_H

#include "interfaces.h"

/* Serves the claims that need attention now. */
void hf_renewer_tick(hf_client *client, hf_time now);

/* Sets when the renewer handles the claim next, according to its current state and `valid_until`.
 * Does nothing if the claim is not held. */
void hf_renewer_resume(hf_client *client, hf_claim *claim, hf_time now);

/* Sets when a kept lock that no caller is using is due next. Its lease on the server becomes short,
 * and is renewed until the client no longer keeps the lock. */
void hf_renewer_resume_idle(hf_client *client, hf_claim *claim, hf_time now);

/* Makes the renewer resend the request, which writes the record of the run under this hold, and
 * renew the lock until the record is written or the lock is lost. Until then the client is not
 * quiet. The hold is over. Returns false when out of memory. */
bool hf_renewer_record(hf_client *client, hf_hold *hold, hf_request *request, hf_time now);

/* Encodes the command that renews one claim, and confirms it if it was granted. Returns false when
 * out of memory. */
bool hf_renewer_encode_confirmation(const hf_client *client, const hf_claim *claim,
                                    hf_request *request, hf_time now);

/* Notes that the server has renewed the claim by a command that was sent at `sent_at`. */
void hf_renewer_on_renewed(hf_client *client, hf_claim *claim, hf_time sent_at, hf_time now);

/* Notes that one entry of the hold was released by a command that was sent at `sent_at`. The
 * claim's count is what is left. Entries may have been abandoned since the command was sent. */
void hf_renewer_on_entry_released(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* The implementations of hf_client_approve and hf_client_set_renewed. */
void hf_renewer_approve(hf_client *client, hf_hold *hold, hf_time now);
void hf_renewer_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now);

#endif
