/* A client's holds: new ones, lost ones, and the operations that wait until one is free. */
#ifndef HF_HOLDING_H
#define HF_HOLDING_H

#include "base/lease.h"
#include "interfaces.h"
#include "lock/wire.h"

/* Adds a hold. If `owner` is empty, the hold gets its own owner, <client uuid>:<the hold's number>.
 * Returns NULL when out of memory. */
hf_hold *hf_client_add_hold(hf_client *client, const hf_kind *kind, hf_slice key, hf_slice caller,
                            hf_slice owner);

/* Adds a hold of `permits` permits of a semaphore in the same way, with its own owner. */
hf_hold *hf_client_add_permits(hf_client *client, const hf_kind *kind, hf_slice key,
                               hf_slice caller, uint32_t permits);

/* Adds a hold of this caller whose claim is for the same owner as this one, with all that the
 * owner's commands need. Returns NULL when out of memory. */
hf_hold *hf_client_add_copy(hf_client *client, const hf_claim *claim, hf_slice caller);

/* Ends the hold's command in flight: the operations that waited for it continue. */
void hf_client_unblock(hf_client *client, hf_hold *hold, hf_time now);

/* Writes the claim's member of the queue for this wait, and returns its size. `text` has room for
 * HF_WAITER_SIZE bytes. */
size_t hf_client_waiter(char *text, const hf_client *client, const hf_claim *claim, uint64_t wait,
                        uint64_t token_ttl_ms);

/* Writes the claim's member of the queue for its own wait, and returns it; empty: it came by none.
 */
hf_slice hf_client_waiter_of(char *text, const hf_client *client, const hf_claim *claim);

/* Returns the claim as commands name it. */
hf_wire_lock hf_client_lock(const hf_client *client, const hf_claim *claim, const hf_names *names);

/* Returns the reason of the loss for a verdict that means a lost hold. */
hf_lost_reason hf_lost_reason_of(hf_verdict verdict);

#endif
