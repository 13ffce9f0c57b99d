/* What the simulator and the chaos runs read and change inside the core. spec/sim/sources.lua
 * copies csrc, adds these files, and puts each mutant of spec/sim/core_mutants.lua behind a
 * switch. */
#ifndef HF_INSIDE_H
#define HF_INSIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/holdfast.h"
#include "mutants.h"

#define HF_MUTANT_ENTRY(name) HF_MUTANT_##name,
typedef enum hf_mutant { HF_MUTANT_LIST(HF_MUTANT_ENTRY) HF_MUTANT_COUNT } hf_mutant;

extern hf_mutant hf_mutant_on;

#define HF_MUTANT(name) (hf_mutant_on == HF_MUTANT_##name)

/* Adds its functions to the table of the engine's functions on top of the stack. */
struct lua_State;
void hf_open_inside(struct lua_State *L);

/* Replaces the program with this name for the life of the process. Returns false if there is no
 * such program. */
bool hf_program_replace(const char *name, const char *sha1, const char *text, size_t length);

/* For each state of a hold, a bit set of the states that may follow, and of the states
 * that have followed since the last call. */
typedef struct hf_hold_steps {
    int legal[HF_HOLD_STATES], taken[HF_HOLD_STATES];
} hf_hold_steps;

hf_hold_steps hf_hold_steps_taken(void);

#endif
