/* How long a lease may be believed.
 *
 * A lease counts on the server from some moment after the command was sent; here it counts from just before that, less
 * a drift of 1 % + 2 ms (at most a quarter) for clocks that do not run alike. Nothing is held past that. */
#ifndef HF_LEASE_H
#define HF_LEASE_H

#include "types.h"

#define HF_LEASE_MIN HF_MS
#define HF_LEASE_MAX (1000000000ull * HF_SECOND) /* about 31 years: far below what a server takes as a TTL */

/* Whole milliseconds of the lease, rounded up: what the server is told. */
uint64_t hf_lease_ms(hf_time lease);

/* The end of a lease that was asked for at `sent_at`. */
hf_time hf_lease_end(hf_time sent_at, hf_time lease);

/* When to renew: a third of the lease after `sent_at`. */
hf_time hf_lease_renew_at(hf_time sent_at, hf_time lease);

/* When to renew a lease that may be believed until `end`: as above. */
hf_time hf_lease_renew_before(hf_time end, hf_time lease);

/* When to try again after a renewal failed at `now`: soon, several times before `end`, and not after it. */
hf_time hf_lease_retry_at(hf_time now, hf_time end);

#endif
