/* The controlling terminal: its foreground group, its size, and unbuffered keyboard input.
 *
 * A caller that switches the terminal to cbreak mode must switch it back before this program stops
 * or ends. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int terminal = -1;
static struct termios saved_settings;
static bool is_cbreak;

/* Blocks SIGTTOU, because otherwise only the foreground group may change the foreground group. */
bool hf_terminal_give(pid_t from, pid_t to) {
    sigset_t ttou, old_mask;
    if (terminal < 0 || tcgetpgrp(terminal) != from) return false;
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    sigprocmask(SIG_BLOCK, &ttou, &old_mask);
    bool was_given = tcsetpgrp(terminal, to) == 0;
    sigprocmask(SIG_SETMASK, &old_mask, NULL);
    return was_given;
}

bool hf_terminal_may_write(int fd) {
    pid_t foreground = tcgetpgrp(fd);
    return foreground < 0 || foreground == getpgrp(); /* below 0: not the controlling terminal */
}

/* open_terminal() -> whether there is a controlling terminal */
static int l_open(lua_State *L) {
    if (terminal < 0) terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    lua_pushboolean(L, terminal >= 0);
    return 1;
}

/* give_terminal(group) -> whether that group has replaced this program's in the foreground */
static int l_give(lua_State *L) {
    lua_pushboolean(L, hf_terminal_give(getpgrp(), hf_check_int(L, 1)));
    return 1;
}

/* take_terminal(group) -> whether this program's group has replaced that one in the foreground */
static int l_take(lua_State *L) {
    lua_pushboolean(L, hf_terminal_give(hf_check_int(L, 1), getpgrp()));
    return 1;
}

/* is_terminal(fd) */
static int l_is_terminal(lua_State *L) {
    lua_pushboolean(L, isatty(hf_check_int(L, 1)));
    return 1;
}

/* leads_group() -> whether this program leads its group, as when a shell starts it as a job */
static int l_leads_group(lua_State *L) {
    lua_pushboolean(L, getpgrp() == getpid());
    return 1;
}

/* terminal_size([fd]) -> rows, columns of the terminal at `fd`, by default standard output; nil if
 * that is not a terminal */
static int l_terminal_size(lua_State *L) {
    struct winsize size;
    int fd = lua_isnoneornil(L, 1) ? STDOUT_FILENO : hf_check_int(L, 1);
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 0;
    lua_pushinteger(L, size.ws_row);
    lua_pushinteger(L, size.ws_col);
    return 2;
}

/* cbreak(on) -> true | nil, message, errno; nothing if the mode is unchanged. In cbreak mode,
 * standard input returns keys as they are pressed, without echo. */
static int l_cbreak(lua_State *L) {
    bool on = lua_toboolean(L, 1);
    if (on == is_cbreak) return 0;
    if (on && tcgetattr(STDIN_FILENO, &saved_settings) != 0) return hf_process_failed(L, errno);
    struct termios changed = saved_settings;
    if (on) {
        changed.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        changed.c_cc[VMIN] = 1;
        changed.c_cc[VTIME] = 0;
    }
    if (tcsetattr(STDIN_FILENO, TCSANOW, &changed) != 0) return hf_process_failed(L, errno);
    is_cbreak = on;
    lua_pushboolean(L, true);
    return 1;
}

/* read_keys() -> the bytes available on standard input, up to 64; "" at its end; nil if reading
 * failed. Blocks if there are none. */
static int l_read_keys(lua_State *L) {
    char bytes[64];
    ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
    if (size < 0) return 0;
    lua_pushlstring(L, bytes, (size_t)size);
    return 1;
}

const luaL_Reg hf_terminal_functions[] = {{"open_terminal", l_open},
                                          {"give_terminal", l_give},
                                          {"take_terminal", l_take},
                                          {"is_terminal", l_is_terminal},
                                          {"leads_group", l_leads_group},
                                          {"terminal_size", l_terminal_size},
                                          {"cbreak", l_cbreak},
                                          {"read_keys", l_read_keys},
                                          {NULL, NULL}};
