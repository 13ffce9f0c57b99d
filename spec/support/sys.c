/*
 * spec.support.sys: system calls that the specs, the demo and the benches need, but that no Lua
 * package of the supported systems offers. Linux only.
 *
 * Descriptors and process ids are plain integers; the caller closes or waits for them. Times are in
 * seconds. Failures return nil, message, errno; misuse raises an error. Reads and writes block for
 * at most the given timeout.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <lualib.h>
#include <malloc.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../csrc/lua/compat.h"

#define READ_MAX 65536
#define ARGV_MAX 256
#define THREADS_MAX 64

extern char **environ;

static int failed(lua_State *L, int error) {
    lua_pushnil(L);
    lua_pushstring(L, strerror(error));
    lua_pushinteger(L, error);
    return 3;
}

static int done(lua_State *L, int result) {
    if (result < 0) return failed(L, errno);
    lua_pushboolean(L, 1);
    return 1;
}

/* Time */

static double monotonic(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int sys_now(lua_State *L) {
    lua_pushnumber(L, monotonic());
    return 1;
}

static int sys_sleep(lua_State *L) {
    double seconds = luaL_checknumber(L, 1);
    struct timespec left = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR) continue;
    return 0;
}

static double in_seconds(struct timeval tv) {
    return (double)tv.tv_sec + (double)tv.tv_usec * 1e-6;
}

/* cpu(["children"]): user and system seconds used so far */
static int sys_cpu(lua_State *L) {
    struct rusage usage;
    getrusage(lua_isnoneornil(L, 1) ? RUSAGE_SELF : RUSAGE_CHILDREN, &usage);
    lua_pushnumber(L, in_seconds(usage.ru_utime));
    lua_pushnumber(L, in_seconds(usage.ru_stime));
    return 2;
}

/* allocated(): bytes that malloc has handed out, or nil if the C library cannot tell */
static int sys_allocated(lua_State *L) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();
    lua_pushnumber(L, (double)(info.uordblks + info.hblkhd));
#else
    lua_pushnil(L);
#endif
    return 1;
}

/* Sockets */

static bool wait_ready(int fd, short events, double timeout) {
    double deadline = monotonic() + timeout;
    for (;;) {
        double left = deadline - monotonic();
        struct pollfd entry = {fd, events, 0};
        int ready = poll(&entry, 1, left > 0 ? (int)ceil(left * 1000) : 0);
        if (ready > 0) return true;
        if (ready == 0) errno = ETIMEDOUT;
        if (ready == 0 || errno != EINTR) return false;
    }
}

static struct sockaddr_un unix_address(lua_State *L, int index) {
    size_t length;
    const char *path = luaL_checklstring(L, index, &length);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    luaL_argcheck(L, length < sizeof address.sun_path, index, "path too long for a socket");
    memcpy(address.sun_path, path, length);
    return address;
}

static int push_fd(lua_State *L, int fd) {
    if (fd < 0) return failed(L, errno);
    lua_pushinteger(L, fd);
    return 1;
}

static int connected(lua_State *L, int fd, const struct sockaddr *address, socklen_t length) {
    if (fd < 0) return failed(L, errno);
    if (connect(fd, address, length) == 0) return push_fd(L, fd);
    int error = errno;
    close(fd);
    return failed(L, error);
}

static int sys_connect_unix(lua_State *L) {
    struct sockaddr_un address = unix_address(L, 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connected(L, fd, (struct sockaddr *)&address, sizeof address);
}

static struct sockaddr_in loopback(lua_Integer port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* connect_tcp(port): connects to 127.0.0.1 */
static int sys_connect_tcp(lua_State *L) {
    struct sockaddr_in address = loopback(luaL_checkinteger(L, 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connected(L, fd, (struct sockaddr *)&address, sizeof address);
}

static int listening(lua_State *L, int fd, const struct sockaddr *address, socklen_t length) {
    int on = 1;
    if (fd < 0) return failed(L, errno);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address, length) == 0 && listen(fd, 64) == 0) return push_fd(L, fd);
    int error = errno;
    close(fd);
    return failed(L, error);
}

/* listen_tcp([port]): fd, port; listens on 127.0.0.1, by default on a free port */
static int sys_listen_tcp(lua_State *L) {
    struct sockaddr_in address = loopback(luaL_optinteger(L, 1, 0));
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int results = listening(L, fd, (struct sockaddr *)&address, length);
    if (results != 1) return results;
    getsockname(fd, (struct sockaddr *)&address, &length);
    lua_pushinteger(L, ntohs(address.sin_port));
    return 2;
}

static int fd_arg(lua_State *L) {
    return (int)luaL_checkinteger(L, 1);
}

/* accept(fd, timeout) */
static int sys_accept(lua_State *L) {
    int fd = fd_arg(L);
    if (!wait_ready(fd, POLLIN, luaL_checknumber(L, 2))) return failed(L, errno);
    return push_fd(L, accept4(fd, NULL, NULL, SOCK_CLOEXEC));
}

/* read(fd, timeout): the available bytes, at least one; "" at the end of the stream */
static int sys_read(lua_State *L) {
    char bytes[READ_MAX];
    int fd = fd_arg(L);
    if (!wait_ready(fd, POLLIN, luaL_checknumber(L, 2))) return failed(L, errno);
    ssize_t count = read(fd, bytes, sizeof bytes);
    if (count < 0) return failed(L, errno);
    lua_pushlstring(L, bytes, (size_t)count);
    return 1;
}

/* write(fd, bytes, timeout): writes all bytes; the timeout is for each part */
static int sys_write(lua_State *L) {
    int fd = fd_arg(L);
    size_t length;
    const char *bytes = luaL_checklstring(L, 2, &length);
    double timeout = luaL_checknumber(L, 3);
    while (length > 0) {
        if (!wait_ready(fd, POLLOUT, timeout)) return failed(L, errno);
        ssize_t count = send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EAGAIN && errno != EINTR) return failed(L, errno);
        if (count > 0) bytes += count, length -= (size_t)count;
    }
    return done(L, 0);
}

static int sys_close(lua_State *L) {
    return done(L, close(fd_arg(L)));
}

/* Processes */

static int sys_getpid(lua_State *L) {
    lua_pushinteger(L, getpid());
    return 1;
}

static int sys_fork(lua_State *L) {
    pid_t pid = fork();
    if (pid < 0) return failed(L, errno);
    lua_pushinteger(L, pid);
    return 1;
}

/* new_pids(): the next child that this process forks gets the id 1. → true | nil, message if that
 * is not permitted */
static int sys_new_pids(lua_State *L) {
#if defined __linux__ && defined CLONE_NEWPID
    return done(L, unshare(CLONE_NEWPID));
#else
    return failed(L, ENOSYS);
#endif
}

/* _exit(code): ends a forked child without its finalizers */
static int sys_exit(lua_State *L) {
    _exit((int)luaL_optinteger(L, 1, 0));
}

static const char *string_field(lua_State *L, const char *name) {
    lua_getfield(L, 1, name);
    const char *text = lua_tostring(L, -1);
    lua_pop(L, 1);
    return text;
}

static void change_environment(lua_State *L) {
    lua_getfield(L, 1, "env");
    if (!lua_istable(L, -1)) return;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        if (lua_isboolean(L, -1)) unsetenv(lua_tostring(L, -2));
        else setenv(lua_tostring(L, -2), lua_tostring(L, -1), 1);
    }
}

static void redirect(const char *path, int flags, int target) {
    int fd = path ? open(path, flags | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) dup2(fd, target);
}

/* Programs under test start with default signals, whatever the parent of the test run ignores. */
static void default_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
}

/* The child dies with the parent, so that a killed test run leaves nothing behind. */
static void run_child(lua_State *L, char *const argv[], pid_t parent) {
    const char *output = string_field(L, "output");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    default_signals();
    change_environment(L);
    redirect("/dev/null", O_RDONLY, STDIN_FILENO);
    redirect(output, O_WRONLY | O_CREAT | O_APPEND, STDOUT_FILENO);
    redirect(output, O_WRONLY | O_CREAT | O_APPEND, STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

/* spawn{ command, arguments..., env = { NAME = value | false }, output = path }: pid */
static int sys_spawn(lua_State *L) {
    char *argv[ARGV_MAX + 1];
    int count = 0;
    luaL_checktype(L, 1, LUA_TTABLE);
    for (;; count++) {
        lua_rawgeti(L, 1, count + 1);
        if (lua_isnil(L, -1)) break;
        luaL_argcheck(L, count < ARGV_MAX, 1, "too many arguments");
        luaL_checkstack(L, 4, "too many arguments");
        argv[count] = (char *)(uintptr_t)lua_tostring(L, -1);
        luaL_argcheck(L, argv[count] != NULL, 1, "arguments are strings");
    }
    luaL_argcheck(L, count > 0, 1, "no command");
    argv[count] = NULL;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) return failed(L, errno);
    if (pid == 0) run_child(L, argv, parent);
    lua_pushinteger(L, pid);
    return 1;
}

/* kill(pid, signal) */
static int sys_kill(lua_State *L) {
    return done(L, kill((pid_t)luaL_checkinteger(L, 1), (int)luaL_checkinteger(L, 2)));
}

/* wait(pid | -1 for any child): nil while it is running, then "exit", code or "signal", number.
 * Does not block. */
static int sys_wait(lua_State *L) {
    int status;
    pid_t pid = waitpid((pid_t)luaL_checkinteger(L, 1), &status, WNOHANG);
    if (pid < 0) return failed(L, errno);
    if (pid == 0) return 0;
    lua_pushstring(L, WIFEXITED(status) ? "exit" : "signal");
    lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return 2;
}

/* adopt(): orphans among the descendants of this process become its children instead of init's;
 * wait(-1) reaps them */
static int sys_adopt(lua_State *L) {
    return done(L, prctl(PR_SET_CHILD_SUBREAPER, 1));
}

/* pin(pid, cpu, ...): restricts a process (0 means this one) and its later children to these
 * processors */
static int sys_pin(lua_State *L) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 2; i <= lua_gettop(L); i++) CPU_SET((size_t)luaL_checkinteger(L, i), &set);
    return done(L, sched_setaffinity((pid_t)luaL_checkinteger(L, 1), sizeof set, &set));
}

static volatile sig_atomic_t caught;

static void count_signal(int number) {
    (void)number;
    caught++;
}

/* catch(signal): from now on the signal is only counted, and interrupts system calls */
static int sys_catch(lua_State *L) {
    struct sigaction action = {.sa_handler = count_signal};
    return done(L, sigaction((int)luaL_checkinteger(L, 1), &action, NULL));
}

static int sys_caught(lua_State *L) {
    lua_pushinteger(L, caught);
    return 1;
}

/* Files */

/* mkdtemp(prefix): the path of a new private directory */
static int sys_mkdtemp(lua_State *L) {
    char path[96];
    const char *prefix = luaL_checkstring(L, 1);
    luaL_argcheck(L, strlen(prefix) + 7 < sizeof path, 1, "prefix too long");
    strcpy(path, prefix);
    strcat(path, "XXXXXX");
    if (!mkdtemp(path)) return failed(L, errno);
    lua_pushstring(L, path);
    return 1;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where) {
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

/* remove(path): removes a file, or a directory with its contents */
static int sys_remove(lua_State *L) {
    return done(L, nftw(luaL_checkstring(L, 1), remove_entry, 16, FTW_DEPTH | FTW_PHYS));
}

static int sys_isatty(lua_State *L) {
    lua_pushboolean(L, isatty(fd_arg(L)));
    return 1;
}

/* interpreter(): the path of the running program, or $HOLDFAST_INTERPRETER, which starts it in an
 * emulator */
static int sys_interpreter(lua_State *L) {
    char path[4096];
    const char *given = getenv("HOLDFAST_INTERPRETER");
    if (given && *given) {
        lua_pushstring(L, given);
        return 1;
    }
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length < 0) return failed(L, errno);
    lua_pushlstring(L, path, (size_t)length);
    return 1;
}

/* Threads */

struct job {
    pthread_t thread;
    const char *path, *cpath;
    const char *code;
    size_t length;
    char *result;
    int ok;
};

static void set_package_field(lua_State *L, const char *name, const char *value) {
    lua_getglobal(L, "package");
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

static const char *package_field(lua_State *L, const char *name) {
    lua_getglobal(L, "package");
    lua_getfield(L, -1, name);
    return lua_tostring(L, -1);
}

static void *run_job(void *argument) {
    struct job *job = argument;
    lua_State *L = luaL_newstate();
    if (!L) return NULL;
    luaL_openlibs(L);
    set_package_field(L, "path", job->path);
    set_package_field(L, "cpath", job->cpath);
    job->ok = !luaL_loadbuffer(L, job->code, job->length, "=thread") && !lua_pcall(L, 0, 1, 0);
    const char *text = lua_tostring(L, -1);
    job->result = strdup(text ? text : "");
    lua_close(L);
    return NULL;
}

/* run_threads{ code, ... }: runs each string in a thread and Lua state of its own, with this
 * state's module paths, and returns a list with the string that each returned. Raises the first
 * error. */
static int sys_run_threads(lua_State *L) {
    struct job jobs[THREADS_MAX] = {0};
    int count = 0;
    luaL_checktype(L, 1, LUA_TTABLE);
    const char *path = package_field(L, "path");
    const char *cpath = package_field(L, "cpath");
    for (; count < THREADS_MAX; count++) {
        lua_rawgeti(L, 1, count + 1);
        if (lua_isnil(L, -1)) break;
        jobs[count].path = path;
        jobs[count].cpath = cpath;
        luaL_checkstack(L, 4, "too many threads");
        jobs[count].code = luaL_checklstring(L, -1, &jobs[count].length);
    }
    int started = 0;
    while (started < count && !pthread_create(&jobs[started].thread, NULL, run_job, &jobs[started]))
        started++;
    lua_newtable(L);
    int failures = 0;
    for (int i = 0; i < started; i++) {
        pthread_join(jobs[i].thread, NULL);
        lua_pushstring(L, jobs[i].result);
        free(jobs[i].result);
        if (!jobs[i].ok && failures++ == 0) {
            lua_pushvalue(L, -1);
            lua_setfield(L, -3, "error");
        }
        lua_rawseti(L, -2, i + 1);
    }
    if (started < count) return luaL_error(L, "could not start thread %d", started + 1);
    lua_getfield(L, -1, "error");
    if (failures) return lua_error(L);
    lua_pop(L, 1);
    return 1;
}

static const luaL_Reg functions[] = {
    {"now", sys_now},
    {"sleep", sys_sleep},
    {"cpu", sys_cpu},
    {"allocated", sys_allocated},
    {"connect_unix", sys_connect_unix},
    {"connect_tcp", sys_connect_tcp},
    {"listen_tcp", sys_listen_tcp},
    {"accept", sys_accept},
    {"read", sys_read},
    {"write", sys_write},
    {"close", sys_close},
    {"getpid", sys_getpid},
    {"fork", sys_fork},
    {"new_pids", sys_new_pids},
    {"exit", sys_exit},
    {"spawn", sys_spawn},
    {"kill", sys_kill},
    {"wait", sys_wait},
    {"adopt", sys_adopt},
    {"pin", sys_pin},
    {"catch", sys_catch},
    {"caught", sys_caught},
    {"mkdtemp", sys_mkdtemp},
    {"remove", sys_remove},
    {"isatty", sys_isatty},
    {"interpreter", sys_interpreter},
    {"run_threads", sys_run_threads},
    {NULL, NULL},
};

__attribute__((visibility("default"))) int luaopen_spec_support_sys(lua_State *L);

int luaopen_spec_support_sys(lua_State *L) {
    lua_newtable(L);
    hf_setfuncs(L, functions);
    return 1;
}
