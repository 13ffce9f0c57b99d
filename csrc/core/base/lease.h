/* How long a lease is valid for its holder.
 *
 * On the server, a lease begins some time after the command was sent. The holder counts it from
 * just before sending, and subtracts a drift of 1 % + 2 ms (at most a quarter of the lease),
 * because clocks run at different speeds. It never considers the lock held after that time. */
#ifndef HF_LEASE_H
#define HF_LEASE_H

#include "base/types.h"

#define HF_LEASE_MIN HF_MS

/* Returns the lease in milliseconds, rounded up, as sent to the server. */
uint64_t hf_lease_ms(hf_time lease);

/* Returns the end of a lease whose command was sent at `sent_at`. */
hf_time hf_lease_end(hf_time sent_at, hf_time lease);

/* Returns when to renew the lease: a third of it after `sent_at`. */
hf_time hf_lease_renew_at(hf_time sent_at, hf_time lease);

/* Returns the same time, computed from the end of the lease's validity. */
hf_time hf_lease_renew_at_from_end(hf_time end, hf_time lease);

/* Returns when to retry after a renewal failed at `now`, so that there are several attempts before
 * `end` and none after it. Returns `now` if `end` has passed. */
hf_time hf_lease_retry_at(hf_time now, hf_time end);

#endif
