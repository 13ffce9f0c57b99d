/* Starts a job and reports how it ends.
 *
 * Between fork and exec the child calls nothing that is unsafe in a process with threads:
 * everything that it needs is prepared before. If the system supports it, the child is killed when
 * this program ends for any reason.
 *
 * The child waits at a gate until its client's record names its process group (posix/crash.h). If
 * this program ends before that, the job never runs. */
#include "process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "posix/crash.h"
#include "posix/system.h"

#define MIN_LOCK_FD 400  /* shell scripts themselves use lower descriptors */
#define MAX_MIN_HOLD 1e9 /* seconds */

extern char **environ;

typedef struct plan {
    char **argv, **envp;
    pid_t parent;
    int error[2]; /* a pipe that carries the errno of a failed exec; a successful exec closes it */
    int gate[2];  /* a pipe: one byte lets the child start its program */
    int lock;     /* the descriptor of hf_crash_lock_job to inherit, or -1 */
    hf_time min_hold; /* how long its locks must remain held, even if all its processes die */
    bool gets_terminal;
} plan;

/* Returns a NULL-terminated array of the strings in the table at `index`, with room for `more`
 * others. The table owns the strings. */
static char **new_list(lua_State *L, int index, size_t *count, size_t more) {
    *count = hf_rawlen(L, index);
    char **list = hf_newuserdata(L, (*count + more + 1) * sizeof *list);
    for (size_t i = 0; i < *count; i++) {
        lua_rawgeti(L, index, (int)i + 1);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, index, "a list of strings");
        list[i] = (char *)(uintptr_t)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    list[*count] = NULL;
    return list;
}

static bool has_same_name(const char *a, const char *b) {
    size_t size = strcspn(a, "=");
    return strncmp(a, b, size) == 0 && b[size] == '=';
}

static bool is_replaced(const char *entry, char **new_entries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (has_same_name(new_entries[i], entry)) return true;
    }
    return false;
}

/* Returns this program's environment, in which the entries "NAME=value" of the table at `index`
 * replace entries with the same name. */
static char **new_environment(lua_State *L, int index) {
    size_t inherited = 0, count;
    while (environ[inherited]) inherited++;
    char **list = new_list(L, index, &count, inherited);
    size_t total = count;
    for (size_t i = 0; i < inherited; i++) {
        if (!is_replaced(environ[i], list, count)) list[total++] = environ[i];
    }
    assert(total <= count + inherited);
    list[total] = NULL;
    return list;
}

static void fail_to_start(const plan *job, int error) {
    ssize_t written = write(job->error[1], &error, sizeof error);
    (void)written;
    _exit(127);
}

static void wait_at_gate(const plan *job) {
    char byte;
    close(job->gate[1]);
    if (read(job->gate[0], &byte, 1) != 1) _exit(127);
}

/* Moves the lock's descriptor above those that scripts use. Called after the fork, because in a
 * process with threads the kernel takes 15 ms to make room for such a high number. */
static void inherit_lock(const plan *job) {
    if (job->lock < 0 || fcntl(job->lock, F_DUPFD, MIN_LOCK_FD) >= 0) return;
    fcntl(job->lock, F_SETFD, 0);
}

/* Runs in the child, with all signals blocked. */
static void run_job(const plan *job) {
    assert(hf_signals_are_blocked());
    setpgid(0, 0);
    if (job->gets_terminal) hf_terminal_give(getpgid(job->parent), getpid());
    hf_die_with_parent(SIGKILL);
    if (getppid() != job->parent) _exit(127);
    wait_at_gate(job);
    inherit_lock(job);
    hf_signals_restore();
    environ = job->envp;
    execvp(job->argv[0], job->argv);
    fail_to_start(job, errno);
}

static int open_pipes(plan *job) {
    if (!hf_pipe(job->error, true)) return errno;
    if (hf_pipe(job->gate, true)) return 0;
    hf_pipe_close(job->error);
    return errno;
}

static pid_t fork_blocked(const plan *job) {
    sigset_t all_signals, old_mask;
    sigfillset(&all_signals);
    sigprocmask(SIG_SETMASK, &all_signals, &old_mask);
    pid_t pid = fork();
    if (pid == 0) run_job(job);
    if (pid > 0) setpgid(pid, pid); /* both processes do this, because either may run first */
    sigprocmask(SIG_SETMASK, &old_mask, NULL);
    return pid;
}

/* Publishes how others can prove that the job has ended. If that fails, deletes the client's
 * record, so that its locks end with their leases. Returns 0, or an errno if the record could not
 * be deleted. */
static int publish_job(const plan *job, const char *uuid, pid_t pid) {
    bool proved =
        job->lock >= 0 && getpgid(pid) == pid && hf_crash_record_job(uuid, pid, job->min_hold);
    return proved || hf_crash_forget(uuid) ? 0 : errno;
}

static int open_gate(const plan *job) {
    return write(job->gate[1], "", 1) == 1 ? 0 : errno;
}

/* Waits until the job runs, and returns 0, or the errno of its failed exec. */
static int await_exec(int fd) {
    int error = 0;
    ssize_t size;
    do size = read(fd, &error, sizeof error);
    while (size < 0 && errno == EINTR);
    return size == (ssize_t)sizeof error ? error : 0;
}

/* Forks and lets the child start its program. Returns 0 or an errno; after an error the child ends
 * by itself. */
static int launch(plan *job, const char *uuid, pid_t *pid) {
    assert(job->parent == getpid() && job->argv[0]);
    *pid = fork_blocked(job);
    int error = *pid < 0 ? errno : 0;
    if (*pid > 0 && uuid) error = publish_job(job, uuid, *pid);
    if (*pid > 0 && error == 0) error = open_gate(job);
    hf_pipe_close(job->gate);
    close(job->error[1]);
    return error != 0 ? error : await_exec(job->error[0]);
}

static hf_time read_min_hold(lua_State *L, int index) {
    double seconds = luaL_optnumber(L, index, 0);
    return seconds > 0 ? (hf_time)(fmin(seconds, MAX_MIN_HOLD) * (double)HF_SECOND) : 0;
}

/* spawn(arguments, environment, terminal [, uuid, min_hold]) -> pid | nil, message, errno. Starts
 * the job in its own process group, which replaces this program's in the terminal's foreground if
 * `terminal` is true. `uuid`: the client that holds locks for the job. Its record, if it has one,
 * becomes the job's. If all processes then die, the locks remain held until `min_hold` seconds
 * after the start, unless their leases end earlier. */
static int l_spawn(lua_State *L) {
    size_t count;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    plan job = {.parent = getpid(), .gets_terminal = lua_toboolean(L, 3)};
    const char *uuid = luaL_optstring(L, 4, NULL);
    job.min_hold = read_min_hold(L, 5);
    job.argv = new_list(L, 1, &count, 0);
    luaL_argcheck(L, count > 0, 1, "no command");
    job.envp = new_environment(L, 2);
    pid_t pid = -1;
    int error = open_pipes(&job);
    if (error != 0) return hf_process_failed(L, error);
    job.lock = uuid ? hf_crash_lock_job(uuid) : -1;
    error = launch(&job, uuid, &pid);
    close(job.error[0]);
    if (job.lock >= 0) close(job.lock);
    if (error != 0) {
        if (pid > 0) hf_terminal_give(pid, getpgrp());
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
        return hf_process_failed(L, error);
    }
    lua_pushinteger(L, pid);
    return 1;
}

static int push_status(lua_State *L, const char *how, int number, bool is_signal) {
    const char *name = is_signal ? hf_signal_name(number) : NULL;
    lua_pushstring(L, how);
    lua_pushinteger(L, number);
    lua_pushstring(L, name);
    return 3;
}

/* Reaps orphans of the job, which this program inherits if it is process 1 of a container. Leaves
 * `job` to l_status, and a captured program to captured_reap. */
static void reap_orphans(pid_t job) {
    siginfo_t ended;
    do {
        ended.si_pid = 0;
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0) return;
        if (ended.si_pid == 0 || ended.si_pid == job) return;
        if (ended.si_pid == hf_process_captured_pid()) return;
    } while (waitpid(ended.si_pid, NULL, WNOHANG) > 0);
}

/* status(pid) -> "exit", code | "signal", number, name | "stopped", number, name | "continued" |
 * "gone" if it was already reaped | nil if nothing has changed */
static int l_status(lua_State *L) {
    int status;
    pid_t job = hf_check_int(L, 1);
    pid_t pid = waitpid(job, &status, WNOHANG | WUNTRACED | WCONTINUED);
    int error = errno;
    if (getpid() == 1) reap_orphans(job);
    errno = error;
    if (pid == 0 || (pid < 0 && errno == EINTR)) return 0;
    if (pid < 0) return push_status(L, "gone", 0, false);
    if (WIFSTOPPED(status)) return push_status(L, "stopped", WSTOPSIG(status), true);
    if (WIFCONTINUED(status)) return push_status(L, "continued", SIGCONT, true);
    if (WIFSIGNALED(status)) return push_status(L, "signal", WTERMSIG(status), true);
    return push_status(L, "exit", WEXITSTATUS(status), false);
}

/* life(owner) -> what this host knows about the process that holds this owner's locks: "unknown",
 * "alive", "unsure" (its job may be alive), or "ended" */
static int l_life(lua_State *L) {
    static const char *const names[] = {[HF_LIFE_UNKNOWN] = "unknown",
                                        [HF_LIFE_RUNNING] = "alive",
                                        [HF_LIFE_UNSURE] = "unsure",
                                        [HF_LIFE_ENDED] = "ended",
                                        [HF_LIFE_JOB_ENDED] = "ended"};
    char uuid[HF_UUID_SIZE + 1] = "";
    strncpy(uuid, luaL_checkstring(L, 1), HF_UUID_SIZE);
    bool is_uuid = strspn(uuid, "0123456789abcdef-") == HF_UUID_SIZE;
    lua_pushstring(L, names[is_uuid ? hf_crash_probe_process(uuid) : HF_LIFE_UNKNOWN]);
    return 1;
}

const luaL_Reg hf_child_functions[] = {
    {"spawn", l_spawn}, {"status", l_status}, {"life", l_life}, {NULL, NULL}};
