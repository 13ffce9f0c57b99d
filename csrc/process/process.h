/* holdfast.process: what the command needs of the system to run a job in a process group of its
 * own.
 *
 * Signals belong to the whole process, so this state is static: one Lua state of a program may use
 * the module. Failures return nil, message, errno. */
#ifndef HF_PROCESS_H
#define HF_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "lua/compat.h"

/* ---- failure.c ---- */

/* Pushes nil, the error's message and its number: three results. */
int hf_process_failed(lua_State *L, int error);

/* Returns the process, group or descriptor at `index`. Raises for a number that is none: cut off,
 * it might be that of another. */
int hf_check_int(lua_State *L, int index);

/* ---- signals.c ---- */

/* Returns the name without SIG; NULL if it has none on this system. */
const char *hf_signal_name(int number);

/* Restores the dispositions and the mask that this program was started with. Safe in a forked
 * child.
 */
void hf_signals_restore(void);

/* For assertions: returns whether this thread blocks all signals that the module knows and that can
 * be blocked. Safe in a forked child. */
bool hf_signals_are_blocked(void);

/* In a forked child that continues without exec: restores the dispositions, and leaves the signals
 * that were caught to the parent. */
void hf_signals_forget(void);

/* Sets the handler of the signal that is named at `arg`, unless it was ignored when this program
 * started or has a handler of this module already. */
void hf_signal_handle(lua_State *L, int arg, void (*handler)(int));

void hf_open_signals(lua_State *L); /* adds to the module table on top */

/* ---- terminal.c ---- */

/* Makes the group `to` the terminal's foreground group if `from` is that now. Safe after a fork. */
bool hf_terminal_give(pid_t from, pid_t to);

/* Whether what this program's group writes to the terminal `fd` is in its place: no other group is
 * in the foreground there. Safe in a signal handler. */
bool hf_terminal_is_ours(int fd);

void hf_open_terminal(lua_State *L);

/* ---- file.c ---- */

void hf_open_file(lua_State *L);

/* ---- child.c ---- */

void hf_open_child(lua_State *L);

/* ---- capture.c ---- */

/* Returns the program whose output is captured, which has its own wait; 0: there is none. */
pid_t hf_process_captured(void);

void hf_open_capture(lua_State *L);

/* ---- group.c ---- */

void hf_open_group(lua_State *L);

/* ---- reporter.c ---- */

void hf_open_reporter(lua_State *L);

#endif
