#include <assert.h>

#include "client.h"
#include "op/observe.h"

static void add_loss(const hf_stake *stake, hf_lost_reason reason) {
    hf_losses *losses = stake->losses;
    if (stake->muted) return;
    losses->unreported[reason]++;
    if (losses->first == HF_LOST_NONE) losses->first = reason;
}

void hf_client_lose(hf_client *client, hf_hold *hold, hf_lost_reason reason) {
    client->stats.losses++;
    hf_holds_mark_lost(&client->holds, hold, reason);
    for (const hf_stake *stake = hold->stakes; stake; stake = stake->next) add_loss(stake, reason);
    hf_observe_loss(client, hold);
}

void hf_stake_begin(hf_stake *stake, hf_client *client, hf_hold *hold, hf_losses *losses) {
    *stake =
        (hf_stake){.hold = hold, .losses = losses, .next = hold->stakes, .link = &hold->stakes};
    if (stake->next) stake->next->link = &stake->next;
    hold->stakes = stake;
    hf_hold_ref(hold);
    if (hold->reason == HF_LOST_NONE) return;
    add_loss(stake, hold->reason);
    client->holds.losses++;
}

void hf_stake_move(hf_stake *to, const hf_stake *from) {
    *to = *from;
    *to->link = to;
    if (to->next) to->next->link = &to->next;
}

void hf_stake_end(hf_stake *stake) {
    assert(*stake->link == stake);
    *stake->link = stake->next;
    if (stake->next) stake->next->link = stake->link;
    hf_hold_unref(stake->hold);
}

hf_lost_reason hf_losses_peek(const hf_losses *losses) {
    for (int reason = HF_LOST_NONE + 1; reason < HF_LOST_REASONS; reason++) {
        if (losses->unreported[reason] > 0) return (hf_lost_reason)reason;
    }
    return HF_LOST_NONE;
}

hf_lost_reason hf_losses_take(hf_losses *losses) {
    hf_lost_reason reason = hf_losses_peek(losses);
    if (reason != HF_LOST_NONE) losses->unreported[reason]--;
    return reason;
}
