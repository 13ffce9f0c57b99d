/* Part of holds.c: changes of the states of holds. */

static int taken[HF_HOLD_STATES];

hf_hold_steps hf_hold_steps_taken(void) {
    hf_hold_steps steps;
    for (int from = 0; from < HF_HOLD_STATES; from++) {
        steps.legal[from] = allowed_next[from];
        steps.taken[from] = taken[from];
        taken[from] = 0;
    }
    return steps;
}
