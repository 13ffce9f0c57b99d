/* Writes caught signals as bytes to a pipe, so that one poll can wait for signals and for input.
 *
 * A signal that was ignored when the program started remains ignored, as nohup and background jobs
 * intend. SIGCHLD is an exception: if it is ignored, the system forgets how the job ended. A caught
 * signal also ends a wait of the library. Because it may arrive just before that wait begins,
 * SIGALRM follows every second until the signal is read, except after SIGCHLD. */
#include "process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "posix/system.h"

#define REPEAT_INTERVAL 1 /* seconds */

static const struct {
    const char *name;
    int number;
} SIGNALS[] = {{"HUP", SIGHUP},     {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"TERM", SIGTERM},
               {"USR1", SIGUSR1},   {"USR2", SIGUSR2}, {"TSTP", SIGTSTP}, {"CONT", SIGCONT},
               {"WINCH", SIGWINCH}, {"CHLD", SIGCHLD}, {"KILL", SIGKILL}, {"STOP", SIGSTOP},
               {"TTIN", SIGTTIN},   {"TTOU", SIGTTOU}, {"PIPE", SIGPIPE}, {"XFSZ", SIGXFSZ}};

#define SIGNAL_COUNT (sizeof SIGNALS / sizeof *SIGNALS)

static int signal_pipe[2] = {-1, -1};                   /* contains a byte for each caught signal */
static sigset_t initial_mask;                           /* the signal mask at the first `catch` */
static struct sigaction old_dispositions[SIGNAL_COUNT]; /* the earlier dispositions */
static bool is_changed[SIGNAL_COUNT];
static struct sigaction old_alarm;

const char *hf_signal_name(int number) {
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        if (SIGNALS[i].number == number) return SIGNALS[i].name;
    }
    return NULL;
}

static void on_signal(int number) {
    int error = errno;
    unsigned char byte = (unsigned char)number;
    ssize_t written = write(signal_pipe[1], &byte, 1);
    (void)written; /* a full pipe wakes the reader as well */
    if (number != SIGCHLD) alarm(REPEAT_INTERVAL);
    errno = error;
}

static void on_alarm(int number) {
    (void)number;
    alarm(REPEAT_INTERVAL);
}

static int open_pipe(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    if (signal_pipe[0] >= 0) return 0;
    sigprocmask(SIG_SETMASK, NULL, &initial_mask);
    if (!hf_pipe(signal_pipe, false)) return -1;
    return sigaction(SIGALRM, &action, &old_alarm);
}

/* Sets a handler, unless the signal was ignored at the start. A signal ends poll, but not stdio. */
static int set_handler(size_t i, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (is_changed[i]) return 0;
    if (sigaction(SIGNALS[i].number, NULL, &old_dispositions[i]) != 0) return -1;
    if (old_dispositions[i].sa_handler == SIG_IGN && SIGNALS[i].number != SIGCHLD) return 0;
    is_changed[i] = true;
    return sigaction(SIGNALS[i].number, &action, NULL);
}

static int catch_signal(size_t i) {
    sigset_t signals;
    assert(signal_pipe[0] >= 0 && signal_pipe[1] >= 0); /* on_signal writes there */
    if (set_handler(i, on_signal) != 0) return -1;
    sigemptyset(&signals);
    sigaddset(&signals, SIGNALS[i].number);
    return sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

bool hf_signals_are_blocked(void) {
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        bool can_be_blocked = SIGNALS[i].number != SIGKILL && SIGNALS[i].number != SIGSTOP;
        if (can_be_blocked && sigismember(&mask, SIGNALS[i].number) != 1) return false;
    }
    return true;
}

void hf_signals_restore(void) {
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        if (is_changed[i]) sigaction(SIGNALS[i].number, &old_dispositions[i], NULL);
    }
    if (signal_pipe[0] >= 0) sigaction(SIGALRM, &old_alarm, NULL);
    sigprocmask(SIG_SETMASK, &initial_mask, NULL);
}

void hf_signals_forget(void) {
    assert(hf_signals_are_blocked()); /* a signal would be handled as if it were the parent's */
    hf_signals_restore();
    memset(is_changed, 0, sizeof is_changed);
    hf_pipe_close(signal_pipe);
}

static size_t check_signal(lua_State *L, int arg) {
    const char *name = luaL_checkstring(L, arg);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        if (strcmp(SIGNALS[i].name, name) == 0) return i;
    }
    return (size_t)luaL_argerror(L, arg, "no such signal");
}

void hf_signal_handle(lua_State *L, int arg, void (*handler)(int)) {
    set_handler(check_signal(L, arg), handler);
}

/* catch(name, ...) -> true | nil, message, errno. From now on `wait` returns these signals instead
 * of the system's action, except those that were ignored when the program started. SIGPIPE is
 * ignored, so that a write to a broken pipe fails instead. */
static int l_catch(lua_State *L) {
    if (open_pipe() != 0) return hf_process_failed(L, errno);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        if (SIGNALS[i].number == SIGPIPE) set_handler(i, SIG_IGN);
    }
    for (int arg = 1; arg <= lua_gettop(L); arg++) {
        if (catch_signal(check_signal(L, arg)) != 0) return hf_process_failed(L, errno);
    }
    lua_pushboolean(L, true);
    return 1;
}

/* uncatch(name, ...): restores their earlier dispositions. Signals that have arrived can still be
 * read. */
static int l_uncatch(lua_State *L) {
    for (int arg = 1; arg <= lua_gettop(L); arg++) {
        size_t i = check_signal(L, arg);
        if (is_changed[i]) sigaction(SIGNALS[i].number, &old_dispositions[i], NULL);
        is_changed[i] = false;
    }
    return 0;
}

/* default(name): restores the system's action for the signal. */
static int l_default(lua_State *L) {
    signal(SIGNALS[check_signal(L, 1)].number, SIG_DFL);
    return 0;
}

/* ignore(name, ...) -> true | nil, message, errno */
static int l_ignore(lua_State *L) {
    for (int arg = 1; arg <= lua_gettop(L); arg++) {
        if (set_handler(check_signal(L, arg), SIG_IGN) != 0) return hf_process_failed(L, errno);
    }
    lua_pushboolean(L, true);
    return 1;
}

static double monotonic_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int poll_timeout(double until) {
    double left = ceil((until - monotonic_seconds()) * 1000);
    if (!(left > 0)) return 0;
    return left > 3600e3 ? 3600000 : (int)left;
}

/* Returns the next caught signal, or 0. */
static int next_signal(void) {
    unsigned char byte;
    if (signal_pipe[0] < 0 || read(signal_pipe[0], &byte, 1) != 1) return 0;
    alarm(0);
    return byte;
}

/* wait(seconds [, awaits_input]) -> the name of the next caught signal; "input" if `awaits_input`
 * is true and standard input is readable or at its end; nil after that many seconds */
static int l_wait(lua_State *L) {
    double until = monotonic_seconds() + luaL_checknumber(L, 1);
    bool awaits_input = lua_toboolean(L, 2);
    for (;;) {
        int number = next_signal();
        if (number > 0) {
            lua_pushstring(L, hf_signal_name(number));
            return 1;
        }
        struct pollfd fds[] = {{.fd = signal_pipe[0], .events = POLLIN},
                               {.fd = awaits_input ? STDIN_FILENO : -1, .events = POLLIN}};
        int ready = poll(fds, 2, poll_timeout(until));
        if (ready > 0 && fds[1].revents && !fds[0].revents) {
            lua_pushliteral(L, "input");
            return 1;
        }
        if (ready <= 0 && !(monotonic_seconds() < until)) return 0;
    }
}

/* kill(pid, name) -> true | nil, message, errno. A negative pid is a group. */
static int l_kill(lua_State *L) {
    pid_t pid = hf_check_int(L, 1);
    luaL_argcheck(L, pid != 0 && pid != -1, 1, "would hit more than one group");
    if (kill(pid, SIGNALS[check_signal(L, 2)].number) != 0) return hf_process_failed(L, errno);
    lua_pushboolean(L, true);
    return 1;
}

/* exists(pid) -> whether the process, or a process of the group -pid, exists */
static int l_exists(lua_State *L) {
    lua_pushboolean(L, kill(hf_check_int(L, 1), 0) == 0 || errno == EPERM);
    return 1;
}

static volatile sig_atomic_t was_continued;
static struct sigaction old_continue; /* the disposition of SIGCONT */

static void on_continue(int number) {
    was_continued = 1;
    if (old_continue.sa_handler == on_signal) on_signal(number);
}

/* stop(name, group) -> whether this program was stopped. Stops this program, or its whole group, as
 * the signal does by default, and returns when continued. The system does not stop a group that no
 * parent could continue. */
static int l_stop(lua_State *L) {
    int number = SIGNALS[check_signal(L, 1)].number;
    struct sigaction action = {.sa_handler = SIG_DFL}, old_action;
    struct sigaction continue_action = {.sa_handler = on_continue, .sa_flags = SA_RESTART};
    was_continued = 0;
    sigaction(SIGCONT, &continue_action, &old_continue);
    sigaction(number, &action, &old_action);
    if (lua_toboolean(L, 2)) kill(0, number);
    else raise(number);
    sigaction(number, &old_action, NULL);
    sigaction(SIGCONT, &old_continue, NULL);
    lua_pushboolean(L, was_continued);
    return 1;
}

const luaL_Reg hf_signals_functions[] = {
    {"catch", l_catch},   {"uncatch", l_uncatch}, {"default", l_default},
    {"ignore", l_ignore}, {"wait", l_wait},       {"kill", l_kill},
    {"exists", l_exists}, {"stop", l_stop},       {NULL, NULL}};
