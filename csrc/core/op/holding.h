/* A client's holds: new ones, lost ones, and the operations that wait until one is free. */
#ifndef HF_HOLDING_H
#define HF_HOLDING_H

#include "base/lease.h"
#include "interfaces.h"
#include "lock/wire.h"

/* Adds a hold. Without `owner` it gets its own: <client uuid>:<the hold's number>. Returns NULL
 * when out of memory. */
hf_hold *hf_client_add_hold(hf_client *client, const hf_kind *kind, hf_slice key, hf_slice caller,
                            hf_slice owner);

/* The same for `permits` permits of a semaphore. */
hf_hold *hf_client_add_permits(hf_client *client, const hf_kind *kind, hf_slice key,
                               hf_slice caller, uint32_t permits);

/* The hold's command in flight is done: the operations that waited for that go on. */
void hf_client_unblock(hf_client *client, hf_hold *hold, hf_time now);

/* Writes the hold's member of the queue for this wait, and returns its size. `text` has room for
 * HF_WAITER_SIZE bytes. */
size_t hf_client_waiter(char *text, const hf_client *client, const hf_hold *hold, uint64_t wait,
                        uint64_t token_ttl_ms);

/* Returns the reason of the loss for a verdict that means a lost hold. */
hf_lost_reason hf_lost_reason_of(hf_verdict verdict);

#endif
