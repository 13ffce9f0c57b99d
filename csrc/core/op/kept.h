/* Locks that the client keeps for its callers after a release.
 *
 * A kept lock has one owner at the server, whose number begins with 0, and one hold in the table:
 * that of the caller to whom it is lent, or an idle one. Other callers of the client are queued
 * here; only the first one asks the server.
 *
 *   none -> asking     a caller asks the server
 *   asking -> lent     it gets the lock
 *   asking -> none     …or has not: the next one asks
 *   lent -> lent       its last release gives the lock to the next caller
 *   lent -> idle       …or nobody wants it
 *   idle -> lent
 *   lent, idle -> none the release goes to the server: others want the lock, its time is over, its
 *                      tokens are used up, or a command for it is in doubt; or it is lost
 *
 * The state is that of the entry's hold: none, ACQUIRING, HELD, or HELD and idle. */
#ifndef HF_KEPT_H
#define HF_KEPT_H

#include "interfaces.h"

/* The acquire begins. Returns false if it must ask the server; else it has the lock, waits in the
 * queue or until a command is done, or has failed. */
bool hf_kept_begin(hf_op *op, hf_time now);

/* Adds a hold for an acquire that asks for a lock to keep. Returns NULL when out of memory. */
hf_hold *hf_kept_add_hold(hf_op *op);

/* The acquire has got the lock, with these tokens. */
void hf_kept_took(hf_op *op, uint64_t last_token, hf_time now);

/* The acquire waits in the queue no longer. */
void hf_kept_cancel(hf_op *op);

/* Returns when the hold that the acquire waits for ends by itself, or when it may ask. */
hf_time hf_kept_end(const hf_op *op);

/* That time has come. */
void hf_kept_notice(hf_op *op, hf_time now);

/* The last release of a hold: returns true if the client keeps the lock, and the hold is over. */
bool hf_kept_take_back(hf_client *client, hf_hold *hold, hf_time now);

/* Returns an idle lock of this key to the server, before a command that the lock would be in the
 * way of. The lock is of any kind except `but`; NULL: of any kind. Returns the hold that is being
 * returned, or NULL if there is none. When it is gone, call again: there may be another one. */
hf_hold *hf_kept_clear(hf_client *client, const hf_kind *but, hf_slice key, hf_time now);

/* The lock is about to be taken by force: its present owner lends it to no further caller, and an
 * idle one is returned before. */
void hf_kept_force(hf_client *client, const hf_kind *kind, hf_slice key, hf_time now);

/* Serves the entries whose holds have ended or that others want. */
void hf_kept_tick(hf_client *client, hf_time now);

void hf_kept_free(hf_client *client);

#endif
