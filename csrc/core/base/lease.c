#include "base/lease.h"

#include <assert.h>

static hf_time drift(hf_time lease) {
    return hf_time_min(lease / 100 + 2 * HF_MS, lease / 4);
}

uint64_t hf_lease_ms(hf_time lease) {
    return (lease + HF_MS - 1) / HF_MS;
}

hf_time hf_lease_end(hf_time sent_at, hf_time lease) {
    assert(drift(lease) <= lease);
    return hf_time_add(sent_at, lease - drift(lease));
}

hf_time hf_lease_renew_at(hf_time sent_at, hf_time lease) {
    return hf_time_add(sent_at, lease / 3);
}

hf_time hf_lease_renew_at_from_end(hf_time end, hf_time lease) {
    hf_time left = lease - drift(lease) - lease / 3;
    return end > left ? end - left : 0;
}

hf_time hf_lease_retry_at(hf_time now, hf_time end) {
    if (now >= end) return now;
    return hf_time_min(end, now + hf_time_max(HF_MS, hf_time_min((end - now) / 8, HF_SECOND)));
}
