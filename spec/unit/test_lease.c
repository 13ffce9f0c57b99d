#include "base/lease.h"

#include "check.h"

#define NOW (1000 * HF_SECOND)
#define LONGEST (1000000000 * HF_SECOND) /* that the option `lease` permits */

TEST(a_lease_is_rounded_up_to_whole_milliseconds) {
    CHECK_EQ_U64(hf_lease_ms(HF_MS), 1);
    CHECK_EQ_U64(hf_lease_ms(HF_MS + 1), 2);
    CHECK_EQ_U64(hf_lease_ms(2 * HF_MS - 1), 2);
    CHECK_EQ_U64(hf_lease_ms(30 * HF_SECOND), 30000);
    CHECK_EQ_U64(hf_lease_ms(LONGEST), 1000000000000);
}

TEST(a_hold_ends_earlier_than_its_lease_by_the_allowance_for_clock_drift) {
    CHECK_EQ_U64(hf_lease_end(NOW, 30 * HF_SECOND), NOW + 29698 * HF_MS);
    CHECK_EQ_U64(hf_lease_end(NOW, 2 * HF_SECOND), NOW + 1978 * HF_MS);
    CHECK_EQ_U64(hf_lease_end(NOW, 100 * HF_MS), NOW + 97 * HF_MS);
}

TEST(the_allowance_for_clock_drift_is_at_most_a_quarter_of_the_lease) {
    CHECK_EQ_U64(hf_lease_end(NOW, HF_MS), NOW + 750000);
    CHECK_EQ_U64(hf_lease_end(NOW, 4 * HF_MS), NOW + 3 * HF_MS);
    for (hf_time lease = HF_LEASE_MIN; lease <= LONGEST; lease = lease * 3 / 2 + 1) {
        hf_time end = hf_lease_end(NOW, lease);
        CHECK(end > NOW);
        CHECK(end < NOW + lease);
        CHECK(end >= NOW + lease - lease / 4);
    }
}

TEST(the_end_of_the_longest_lease_does_not_overflow) {
    CHECK_EQ_U64(hf_lease_end(HF_NEVER - HF_SECOND, 30 * HF_SECOND), HF_NEVER);
    CHECK(hf_lease_end(NOW, LONGEST) > NOW);
    CHECK_EQ_U64(hf_lease_renew_at(HF_NEVER - HF_SECOND, 30 * HF_SECOND), HF_NEVER);
}

TEST(the_time_of_the_renewal_can_be_computed_from_the_end_of_the_lease) {
    for (hf_time lease = HF_LEASE_MIN; lease <= LONGEST; lease = lease * 3 / 2 + 1) {
        CHECK_EQ_U64(hf_lease_renew_at_from_end(hf_lease_end(NOW, lease), lease),
                     hf_lease_renew_at(NOW, lease));
    }
    CHECK_EQ_U64(hf_lease_renew_at_from_end(5, HF_SECOND), 0);
}

TEST(a_failed_renewal_is_retried_soon_and_several_times_before_the_lease_ends) {
    CHECK_EQ_U64(hf_lease_retry_at(NOW, NOW + 20 * HF_SECOND), NOW + HF_SECOND);
    CHECK_EQ_U64(hf_lease_retry_at(NOW, NOW + 4 * HF_SECOND), NOW + 500 * HF_MS);
    CHECK_EQ_U64(hf_lease_retry_at(NOW, NOW + 4 * HF_MS), NOW + HF_MS);
    for (hf_time left = 100 * HF_MS; left < 40 * HF_SECOND; left = left * 3 / 2) {
        hf_time now = NOW, end = NOW + left;
        int tries = 0;
        for (; now < end; tries++) now = hf_lease_retry_at(now, end);
        CHECK_OR(tries >= 8 && tries < 200, "%d tries in %llu", tries, (unsigned long long)left);
    }
}

CHECK_MAIN
