/* Functions that add a client's holds and claims, encode them for commands, and unblock operations
 * that are waiting for a claim's command. */
#ifndef HF_HOLDING_H
#define HF_HOLDING_H

#include "base/lease.h"
#include "interfaces.h"
#include "lock/wire.h"

/* Adds a hold. If `owner` is empty, the hold gets its own owner, <client uuid>:<number>. Returns
 * NULL when out of memory. */
hf_hold *hf_client_add_hold(hf_client *client, const hf_kind *kind, hf_slice key, hf_slice caller,
                            hf_slice owner);

/* Adds a hold of `permits` permits of a semaphore in the same way; it always gets its own owner. */
hf_hold *hf_client_add_permits(hf_client *client, const hf_kind *kind, hf_slice key,
                               hf_slice caller, uint32_t permits);

/* Like hf_client_add_hold, but adds a claim without a hold. Returns NULL when out of memory. */
hf_claim *hf_client_add_claim(hf_client *client, const hf_kind *kind, hf_slice key, hf_slice owner);

/* Adds a claim without a hold for the same owner, copying everything that commands for this owner
 * need. Returns NULL when out of memory. */
hf_claim *hf_client_copy_claim(hf_client *client, const hf_claim *claim);

/* Marks the claim as no longer in flight, and runs the operations that were waiting for this, until
 * one of them sends a command: the claim may be in flight again on return. */
void hf_client_unblock(hf_client *client, hf_claim *claim, hf_time now);

/* Writes the claim's queue member for this wait, and returns its size in bytes. `text` has room for
 * HF_WAITER_SIZE bytes. */
size_t hf_client_write_waiter(char *text, const hf_client *client, const hf_claim *claim,
                              uint64_t wait, uint64_t token_ttl_ms);

/* Writes the claim's queue member for its own wait to `text`, and returns it; an empty slice if the
 * claim has no wait. */
hf_slice hf_client_write_claim_waiter(char *text, const hf_client *client, const hf_claim *claim);

/* Returns the claim's lock and owner, for encoding commands. */
hf_wire_lock hf_client_wire_lock(const hf_client *client, const hf_claim *claim,
                                 const hf_names *names);

/* Returns the reason for the loss that this verdict reports. */
hf_lost_reason hf_lost_reason_of(hf_verdict verdict);

#endif
