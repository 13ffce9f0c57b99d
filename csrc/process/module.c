#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

static int l_pid(lua_State *L) {
    lua_pushinteger(L, getpid());
    return 1;
}

static int l_host(lua_State *L) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    lua_pushstring(L, name);
    return 1;
}

/* time() -> seconds since 1970, with fractions */
static int l_time(lua_State *L) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    lua_pushnumber(L, (lua_Number)now.tv_sec + (lua_Number)now.tv_nsec / 1e9);
    return 1;
}

bool hf_is_writable(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    return poll(&one, 1, 0) > 0;
}

/* say(text [, fd]): writes as much as standard error, or that descriptor, accepts without blocking,
 * because its reader may have stopped. */
static int l_say(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    int fd = lua_isnoneornil(L, 2) ? STDERR_FILENO : hf_check_int(L, 2);
    while (size > 0 && hf_is_writable(fd)) {
        ssize_t written = write(fd, text, size < PIPE_BUF ? size : PIPE_BUF);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return 0;
        text += written;
        size -= (size_t)written;
    }
    return 0;
}

/* withhold(fd) -> whether the descriptor is open. Programs started from now on do not inherit
 * it. */
static int l_withhold(lua_State *L) {
    lua_pushboolean(L, fcntl(hf_check_int(L, 1), F_SETFD, FD_CLOEXEC) == 0);
    return 1;
}

/* Opens /dev/null for standard streams that were closed at the start. Otherwise the next pipe or
 * connection would get their descriptor, and this program's output. */
static void open_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return;
    }
}

__attribute__((visibility("default"))) int luaopen_holdfast_process(lua_State *L);

int luaopen_holdfast_process(lua_State *L) {
    static const luaL_Reg functions[] = {{"pid", l_pid}, {"host", l_host},         {"time", l_time},
                                         {"say", l_say}, {"withhold", l_withhold}, {NULL, NULL}};
    hf_check_version(L);
    bool has_output = fcntl(STDOUT_FILENO, F_GETFD) >= 0;
    open_standard_streams();
    lua_newtable(L);
    lua_pushboolean(L, has_output);
    lua_setfield(L, -2, "has_output"); /* standard output was open at the start */
    hf_setfuncs(L, functions);
    hf_setfuncs(L, hf_signals_functions);
    hf_setfuncs(L, hf_child_functions);
    hf_setfuncs(L, hf_capture_functions);
    hf_setfuncs(L, hf_group_functions);
    hf_setfuncs(L, hf_terminal_functions);
    hf_setfuncs(L, hf_file_functions);
    hf_setfuncs(L, hf_reporter_functions);
    return 1;
}
