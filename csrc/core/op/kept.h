/* Locks that the client keeps for its callers after a release.
 *
 * A kept lock has one owner on the server, whose number begins with 0, and one claim in the table.
 * The claim has the hold of the caller to whom the lock is lent, or no hold while it is idle. Other
 * callers of the client queue here; only the first of them asks the server.
 *
 *   none -> asking     a caller asks the server
 *   asking -> lent     the caller gets the lock
 *   asking -> none     the caller does not get the lock; the next one asks
 *   lent -> lent       the caller releases the lock, and the next one gets it
 *   lent -> idle       the caller releases the lock, and no other caller wants it
 *   idle -> lent       a caller acquires the lock
 *   lent, idle -> none the lock is lost, or given back to the server: others want it, its keep
 *                      time has passed, its tokens are used up, or a command for it is in doubt
 *
 * The state is that of the kept lock's claim: no claim, REQUESTED, ACTIVE with a hold, or idle. */
#ifndef HF_KEPT_H
#define HF_KEPT_H

#include "interfaces.h"

/* Begins an acquire. Returns false if the acquire must ask the server. Otherwise the acquire holds
 * the lock, waits in this client's queue or for a command, or has failed. */
bool hf_kept_begin(hf_op *op, hf_time now);

/* Adds the hold for an acquire of a lock that will be kept. Returns NULL when out of memory. */
hf_hold *hf_kept_add_hold(hf_op *op);

/* Called when the acquire has got the lock and may issue tokens up to `last_token`. */
void hf_kept_on_acquired(hf_op *op, uint64_t last_token, hf_time now);

/* Removes the acquire from this client's queue. */
void hf_kept_cancel(hf_op *op);

/* Returns when the hold for which the QUEUED_LOCALLY acquire waits expires, or when it may ask the
 * server; hf_kept_wait_tick must be called at that time. */
hf_time hf_kept_wait_next_tick(const hf_op *op);
void hf_kept_wait_tick(hf_op *op, hf_time now);

/* Called for the last release of a hold. Returns true if the client keeps the lock; the hold has
 * then ended. */
bool hf_kept_take_back(hf_client *client, hf_hold *hold, hf_time now);

/* Gives an idle lock on this key back to the server, before a command that the lock would block.
 * The lock may be of any kind except `except`, which may be NULL. Returns the claim that is being
 * given back, or NULL. Call again once that claim is gone: there may be another. */
hf_claim *hf_kept_give_back(hf_client *client, const hf_kind *except, hf_slice key, hf_time now);

/* Called before a forced release: the lock is no longer lent, and an idle one is given back. */
void hf_kept_before_force(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now);

/* Serves the kept locks that are due because their claims have ended or others want them. */
void hf_kept_tick(hf_client *client, hf_time now);

void hf_kept_free(hf_client *client);

#endif
