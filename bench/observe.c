/* What the counters and the telling of names add to a free cycle: the same calls as an acquire and
 * a release make. observe CYCLES -> seconds for each cycle */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "op/deadlock.h"
#include "op/holding.h"
#include "op/observe.h"
#include "op/presence.h"

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void answer(hf_node *node, hf_op *op, hf_time now) {
    hf_request request = {.context = op, .routing.context_is_op = true, .sent_at = now};
    hf_observe_reply(node, &request, now + 30000);
}

static void cycle(hf_node *node, hf_op *acquire, hf_op *release, hf_time now) {
    hf_client *client = node->client;
    hf_hold *hold = acquire->hold;
    acquire->begun_at = now;
    hold->state = HF_HOLD_HELD; /* without the steps between, which cost time of their own */
    hf_presence_on_begin(client, now);
    answer(node, acquire, now);
    hf_presence_on_wait_end(acquire, now);
    hf_deadlock_end(acquire);
    hf_observe_op(acquire, now + 30000);
    hold->state = HF_HOLD_RELEASING;
    hf_presence_on_begin(client, now);
    answer(node, release, now);
    hf_presence_on_wait_end(release, now);
    hf_deadlock_end(release);
    hf_observe_op(release, now + 60000);
}

int main(int argc, char **argv) {
    static hf_client client;
    static const unsigned char entropy[24] = {1};
    hf_client_config config = {.mode = HF_MODE_ONE, .renewer = HF_LINK_RENEWER};
    long cycles = argc > 1 ? atol(argv[1]) : 1000000;
    if (!hf_client_init(&client, &config, entropy)) return 1;
    hf_client_introduce(&client, "host 1");
    hf_observe_class(&client, "");
    hf_slice key = {"bench", 5}, caller = {"caller", 6}, owner = {"owner", 5};
    hf_hold *hold = hf_holds_add(&client.holds, &hf_kind_lock, key, caller, owner);
    if (!hold) return 1;
    hf_op acquire = {.client = &client, .spec = {.kind = HF_OP_ACQUIRE}, .hold = hold};
    hf_op release = {.client = &client, .spec = {.kind = HF_OP_RELEASE}, .hold = hold};
    hf_node node = {.client = &client};
    double start = seconds();
    for (long i = 0; i < cycles; i++) cycle(&node, &acquire, &release, (hf_time)(i + 1) * 60000);
    printf("%.12f\n", (seconds() - start) / (double)cycles);
    const hf_class *class = client.observer.classes[0];
    uint64_t answers = 0;
    for (size_t i = 0; i <= HF_BUCKETS; i++) answers += class->round_trips.counts[i];
    int status = class->releases == (uint64_t)cycles && answers == 2 * class->releases ? 0 : 1;
    hf_client_free(&client);
    return status;
}
