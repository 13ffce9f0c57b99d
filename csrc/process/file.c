#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

static ssize_t read_all(int fd, char *buffer, size_t max_size) {
    size_t filled = 0;
    while (filled < max_size) {
        ssize_t received = read(fd, buffer + filled, max_size - filled);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0) return -1;
        if (received == 0) break;
        filled += (size_t)received;
    }
    return (ssize_t)filled;
}

static int refuse(lua_State *L, const char *why) {
    lua_pushnil(L);
    lua_pushstring(L, why);
    lua_pushinteger(L, EINVAL);
    return 3;
}

/* read_file(path, max_size) -> the contents, the file's mode, whether it belongs to a user other
 * than this one and root | nil, message, errno. Reads only a regular file of up to `max_size`
 * bytes, and never blocks, as opening a FIFO would. */
static int l_read_file(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    size_t max_size = (size_t)luaL_checkinteger(L, 2);
    char *text = hf_newuserdata(L, max_size + 1);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return hf_process_failed(L, errno);
    struct stat info;
    ssize_t size = -1;
    bool is_regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (is_regular) size = read_all(fd, text, max_size + 1);
    int error = errno;
    close(fd);
    if (!is_regular) return refuse(L, "it is not a regular file");
    if (size < 0) return hf_process_failed(L, error);
    if ((size_t)size > max_size) return refuse(L, "it is too large");
    lua_pushlstring(L, text, (size_t)size);
    lua_pushinteger(L, (lua_Integer)(info.st_mode & 07777));
    lua_pushboolean(L, info.st_uid != 0 && info.st_uid != geteuid());
    return 3;
}

const luaL_Reg hf_file_functions[] = {{"read_file", l_read_file}, {NULL, NULL}};
