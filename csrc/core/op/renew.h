/* The renewer's first half. It renews ACTIVE claims, and confirms those acquired by a grant, for
 * as long as they are held: by a HELD hold, by a client that keeps an idle lock, or for a run's
 * record that is not written yet.
 *
 *     WAITING --> UNAPPROVED --> IN FLIGHT
 *        ^                           |
 *        +---------------------------+
 *
 *   WAITING     until `wake_at`: a third of the lease; after a failed command (the claim is then at
 *               risk), an eighth of the time left, at most 1 s
 *   UNAPPROVED  only with config.needs_approval: until the owner approves
 *   IN FLIGHT   until the reply arrives, or can no longer arrive
 *
 * Invariants of a claim that is held:
 * - The renewer handles it at `valid_until` at the latest, even if a command is in flight. A hold
 * is then lost; if there is no hold, an idle lock is released, and a record is given up.
 * - No second command is sent while one is in flight, so a renewal never arrives after the release.
 * - Only a reply increases `valid_until`, which counts from when the command was sent.
 * - Renewals stop once `max_until` prevents a later end. */
#ifndef HF_RENEW_H
#define HF_RENEW_H

#include "interfaces.h"

/* Handles the claims that are due. */
void hf_renewer_tick(hf_client *client, hf_time now);

/* Schedules the claim's next renewal, confirmation or expiry. No-op if the claim is not held. */
void hf_renewer_resume(hf_client *client, hf_claim *claim, hf_time now);

/* Schedules the next renewal or expiry of an idle lock. Its lease on the server is shortened, and
 * then renewed until the client stops keeping the lock. */
void hf_renewer_resume_idle(hf_client *client, hf_claim *claim, hf_time now);

/* Makes the renewer take over `request`, which writes the record of the run under this hold. The
 * renewer resends it, and renews the lock, until the record is written or the lock is lost; until
 * then the client is not quiet. Ends the hold. Returns false when out of memory. */
bool hf_renewer_record(hf_client *client, hf_hold *hold, hf_request *request, hf_time now);

/* Encodes the command that renews one claim, and confirms it if it was granted. Returns false when
 * out of memory. */
bool hf_renewer_encode_confirmation(const hf_client *client, const hf_claim *claim,
                                    hf_request *request, hf_time now);

/* Called when the server has renewed the claim with a command that was sent at `sent_at`. */
void hf_renewer_on_renewed(hf_client *client, hf_claim *claim, hf_time sent_at, hf_time now);

/* Called when a command that was sent at `sent_at` has released one entry of the hold, and the
 * claim's count has been reduced. If other entries were abandoned in the meantime, no entry may be
 * left. */
void hf_renewer_on_entry_released(hf_client *client, hf_hold *hold, hf_time sent_at, hf_time now);

/* Implement hf_client_approve and hf_client_set_renewed. */
void hf_renewer_approve(hf_client *client, hf_hold *hold, hf_time now);
void hf_renewer_set_renewed(hf_client *client, hf_hold *hold, bool renewed, hf_time now);

#endif
