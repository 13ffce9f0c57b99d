/* holdfast.process: system functions that the command needs to run a job in its own process group.
 *
 * Signals belong to the whole process, so this state is static: only one Lua state per process may
 * use the module. Failures return nil, message, errno. */
#ifndef HF_PROCESS_H
#define HF_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "lua/compat.h"

/* ---- failure.c ---- */

/* Pushes nil, the error's message and its number. Returns 3. */
int hf_process_failed(lua_State *L, int error);

/* Returns the process, group or descriptor at `index`. Raises an error if it does not fit an int:
 * truncated, it might name a different one. */
int hf_check_int(lua_State *L, int index);

/* ---- signals.c ---- */

/* Returns the name without SIG, or NULL if the module does not know the signal. */
const char *hf_signal_name(int number);

/* Restores the dispositions and mask that this program was started with. Safe in a forked child. */
void hf_signals_restore(void);

/* For assertions: returns whether this thread blocks all signals that the module knows and that can
 * be blocked. Safe in a forked child. */
bool hf_signals_are_blocked(void);

/* In a forked child that continues without exec: restores the dispositions, so that only the parent
 * handles caught signals. */
void hf_signals_forget(void);

/* Sets the handler of the signal named at `arg`, unless the signal was ignored when this program
 * started or already has a handler of this module. */
void hf_signal_handle(lua_State *L, int arg, void (*handler)(int));

/* ---- terminal.c ---- */

/* Makes `to` the terminal's foreground group if the current one is `from`. Returns whether it did.
 * Safe after a fork. */
bool hf_terminal_give(pid_t from, pid_t to);

/* Returns whether this program may write to the terminal `fd`, because no other group is in its
 * foreground. Safe in a signal handler. */
bool hf_terminal_may_write(int fd);

/* ---- capture.c ---- */

/* Returns the pid of the captured program, which only captured_reap may reap, or 0. */
pid_t hf_process_captured_pid(void);

/* ---- module.c ---- */

/* Returns whether a pipe or terminal accepts PIPE_BUF bytes now. Safe in a signal handler. */
bool hf_is_writable(int fd);

/* ---- each file's functions for the module's table ---- */

extern const luaL_Reg hf_signals_functions[], hf_terminal_functions[], hf_file_functions[],
    hf_child_functions[], hf_capture_functions[], hf_group_functions[], hf_reporter_functions[];

#endif
