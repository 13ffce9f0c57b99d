#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

static ssize_t read_all(int fd, char *into, size_t max_size) {
    size_t used = 0;
    while (used < max_size) {
        ssize_t got = read(fd, into + used, max_size - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

static int refuse(lua_State *L, const char *why) {
    lua_pushnil(L);
    lua_pushstring(L, why);
    lua_pushinteger(L, EINVAL);
    return 3;
}

/* read_file(path, max_size) -> the text, the file's mode, whether it belongs to a user who is
 * neither this one nor root | nil, message, errno. Reads only a regular file of at most `max_size`
 * bytes, and never blocks, as opening a FIFO would. */
static int l_read_file(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    size_t max_size = (size_t)luaL_checkinteger(L, 2);
    char *text = hf_newuserdata(L, max_size + 1);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return hf_process_failed(L, errno);
    struct stat about;
    ssize_t size = -1;
    bool is_regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    if (is_regular) size = read_all(fd, text, max_size + 1);
    int error = errno;
    close(fd);
    if (!is_regular) return refuse(L, "it is not a regular file");
    if (size < 0) return hf_process_failed(L, error);
    if ((size_t)size > max_size) return refuse(L, "it is too large");
    lua_pushlstring(L, text, (size_t)size);
    lua_pushinteger(L, (lua_Integer)(about.st_mode & 07777));
    lua_pushboolean(L, about.st_uid != 0 && about.st_uid != geteuid());
    return 3;
}

void hf_open_file(lua_State *L) {
    static const luaL_Reg functions[] = {{"read_file", l_read_file}, {NULL, NULL}};
    hf_setfuncs(L, functions);
}
