/* A separate process that reports what this program is waiting for, so that I/O for the report
 * cannot delay the wait or signal handling. It ends with this program or earlier. */
#include "process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "posix/system.h"

#define ERASE_LINE "\r\33[K"

static pid_t reporter_pid;      /* or 0 */
static pid_t parent_pid;        /* in the reporter: the program that started it */
static volatile char *has_line; /* shared by both processes: whether there is a line to erase */

static bool allocate_shared_flag(void) {
    if (has_line) return true;
#ifdef MAP_ANONYMOUS
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
#else
    int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    if (zero < 0) return false;
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
    close(zero);
#endif
    if (page == MAP_FAILED) return false;
    has_line = page;
    return true;
}

/* Safe in a signal handler. */
static void end_reporter(void) {
    int error = errno;
    pid_t pid = reporter_pid;
    if (pid == 0) return;
    reporter_pid = 0;
    /* if it was already reaped, its pid may now be another process's */
    if (waitpid(pid, NULL, WNOHANG) == 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    if (*has_line && hf_terminal_may_write(STDERR_FILENO) && hf_is_writable(STDERR_FILENO)) {
        ssize_t written = write(STDERR_FILENO, ERASE_LINE, sizeof ERASE_LINE - 1);
        (void)written;
    }
    errno = error;
}

static void run_reporter(lua_State *L, pid_t parent, const sigset_t *mask) {
    assert(getpid() != parent && has_line);
    hf_die_with_parent(SIGKILL);
    parent_pid = parent;
    reporter_pid = 0;
    hf_signals_forget();
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() == parent) lua_pcall(L, 0, 0, 0);
    _exit(0);
}

/* begin_report(fn) -> true | nil, message, errno. A forked process calls fn() and exits. */
static int l_begin_report(lua_State *L) {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    pid_t parent = getpid();
    sigset_t all_signals, old_mask;
    end_reporter();
    if (!allocate_shared_flag()) return hf_process_failed(L, errno);
    *has_line = 0;
    sigfillset(&all_signals);
    sigprocmask(SIG_SETMASK, &all_signals, &old_mask);
    pid_t pid = fork();
    int error = errno;
    if (pid == 0) run_reporter(L, parent, &old_mask);
    reporter_pid = pid > 0 ? pid : 0;
    sigprocmask(SIG_SETMASK, &old_mask, NULL);
    if (pid < 0) return hf_process_failed(L, error);
    lua_pushboolean(L, true);
    return 1;
}

/* end_report(): ends the reporter and erases the line that it has drawn */
static int l_end_report(lua_State *L) {
    (void)L;
    end_reporter();
    return 0;
}

/* may_draw() -> in the reporter, whether this job may write to the terminal at standard error. If
 * so, there may be a line to erase from then on. */
static int l_may_draw(lua_State *L) {
    bool may_write = hf_terminal_may_write(STDERR_FILENO);
    if (may_write && has_line) *has_line = 1;
    lua_pushboolean(L, may_write);
    return 1;
}

/* parent_is_running() -> in the reporter, whether the program that started it is still running */
static int l_parent_is_running(lua_State *L) {
    lua_pushboolean(L, getppid() == parent_pid);
    return 1;
}

static void on_fatal_signal(int number) {
    end_reporter();
    signal(number, SIG_DFL);
    raise(number);
}

/* end_report_on_signals(name, ...): lets these signals end the reporter before they end this
 * program */
static int l_end_report_on_signals(lua_State *L) {
    for (int arg = 1; arg <= lua_gettop(L); arg++) hf_signal_handle(L, arg, on_fatal_signal);
    return 0;
}

const luaL_Reg hf_reporter_functions[] = {{"begin_report", l_begin_report},
                                          {"end_report", l_end_report},
                                          {"may_draw", l_may_draw},
                                          {"parent_is_running", l_parent_is_running},
                                          {"end_report_on_signals", l_end_report_on_signals},
                                          {NULL, NULL}};
