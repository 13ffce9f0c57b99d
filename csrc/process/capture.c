/* Runs a program and captures its output, which may be a secret: the program gets no terminal, and
 * its standard error is discarded.
 *
 * It runs in its own process group, so that everything it starts can be killed with it. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "posix/system.h"
#include "process.h"

static pid_t program_pid;    /* or 0 */
static int output_pipe = -1; /* the read end of the pipe, or -1 */

pid_t hf_process_captured_pid(void) {
    return program_pid;
}

/* Runs in the child, with all signals blocked. */
static void run_program(char *const argv[], int output) {
    assert(hf_signals_are_blocked() && output > STDERR_FILENO); /* dup2 must not close it */
    int null_fd = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    hf_die_with_parent(SIGKILL);
    dup2(null_fd, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(null_fd, STDERR_FILENO);
    hf_signals_restore();
    execv(argv[0], argv);
    _exit(127);
}

/* Forks with all signals blocked. */
static pid_t start_program(char *const argv[], int output) {
    sigset_t all_signals, old_mask;
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &old_mask);
    pid_t pid = fork();
    if (pid == 0) run_program(argv, output);
    if (pid > 0) setpgid(pid, pid); /* both processes do this, because either may run first */
    pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
    return pid;
}

/* Safe to repeat. */
static void close_output(void) {
    if (output_pipe >= 0) close(output_pipe);
    output_pipe = -1;
}

/* capture(command) -> pid | nil, message, errno: starts /bin/sh -c command; only one program can
 * run at a time. Repeat captured_reap until the program has ended, then call captured_close. */
static int l_capture(lua_State *L) {
    const char *command = luaL_checkstring(L, 1);
    char *argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)command, NULL};
    int ends[2];
    if (program_pid) return luaL_error(L, "a program is captured already");
    if (!hf_pipe(ends, true)) return hf_process_failed(L, errno);
    pid_t pid = start_program(argv, ends[1]);
    int error = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return hf_process_failed(L, error);
    }
    close_output();
    program_pid = pid;
    output_pipe = ends[0];
    lua_pushinteger(L, pid);
    return 1;
}

/* captured_read(seconds) -> the next bytes of the program's output, "" at its end; nil if there are
 * none within that time (0 to 60), or after a signal. Once the output has ended, it only
 * sleeps. */
static int l_read(lua_State *L) {
    char bytes[1024];
    struct pollfd one = {.fd = output_pipe, .events = POLLIN};
    lua_Number seconds = luaL_checknumber(L, 1);
    luaL_argcheck(L, seconds >= 0 && seconds <= 60, 1, "out of range");
    if (poll(&one, 1, (int)(seconds * 1000)) <= 0) return 0;
    ssize_t size = read(output_pipe, bytes, sizeof bytes);
    if (size < 0) return 0;
    if (size == 0) close_output();
    lua_pushlstring(L, bytes, (size_t)size);
    memset(bytes, 0, sizeof bytes);
    return 1;
}

/* captured_reap(pid, force) -> "exit", code | "signal", number if the program with this pid has
 * ended; nil while it runs. If `force` is true, kills its whole group and waits for it to exit. */
static int l_reap(lua_State *L) {
    int status = 0;
    pid_t pid = hf_check_int(L, 1), ended;
    bool force = lua_toboolean(L, 2);
    luaL_argcheck(L, pid > 1 && pid == program_pid, 1, "not the program that is captured");
    if (force) kill(-pid, SIGKILL);
    do ended = waitpid(pid, &status, force ? 0 : WNOHANG);
    while (ended < 0 && errno == EINTR);
    if (ended == 0) return 0;
    program_pid = 0;
    bool exited = ended == pid && WIFEXITED(status);
    lua_pushstring(L, exited ? "exit" : "signal");
    lua_pushinteger(L, exited ? WEXITSTATUS(status) : WTERMSIG(status));
    return 2;
}

/* captured_close(): stops reading the program's output */
static int l_close(lua_State *L) {
    (void)L;
    close_output();
    return 0;
}

const luaL_Reg hf_capture_functions[] = {{"capture", l_capture},
                                         {"captured_read", l_read},
                                         {"captured_reap", l_reap},
                                         {"captured_close", l_close},
                                         {NULL, NULL}};
