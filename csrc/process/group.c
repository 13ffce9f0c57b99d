/* Finds the processes of a group that this program may not signal, such as those of a job that
 * changed its user. A signal to the group reaches only the others, and kill reports success. */
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool may_not_signal(pid_t pid) {
    return kill(pid, 0) != 0 && errno == EPERM;
}

/* Reads the state and the group of a process. Returns false if the process is gone or /proc hides
 * it. */
static bool read_process(pid_t pid, char *state, pid_t *group) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = '\0';
    const char *name_end = strrchr(text, ')'); /* ") STATE PARENT GROUP ..." */
    if (!name_end || name_end[1] != ' ' || !name_end[2]) return false;
    *state = name_end[2];
    char *parent_end;
    strtol(name_end + 3, &parent_end, 10);
    *group = (pid_t)strtol(parent_end, NULL, 10);
    return true;
}

static bool is_running_in(pid_t group, pid_t pid, bool include_stopped) {
    char state;
    pid_t process_group;
    if (!read_process(pid, &state, &process_group) || process_group != group) return false;
    return strchr(include_stopped ? "ZX" : "ZXTt", state) == NULL;
}

static void append(lua_State *L, int *count, pid_t pid) {
    lua_pushinteger(L, pid);
    lua_rawseti(L, -2, ++*count);
}

/* out_of_reach(group, include_stopped) -> a list of the group's running processes that may not be
 * signalled, with include_stopped also of stopped ones. If /proc hides the processes of others, the
 * list has only the group's number if none of its processes can be signalled, and is empty
 * otherwise. */
static int l_out_of_reach(lua_State *L) {
    pid_t group = hf_check_int(L, 1), process_group;
    bool include_stopped = lua_toboolean(L, 2);
    int count = 0;
    char state;
    lua_newtable(L);
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10); /* 0: not a process */
        if (pid > 0 && may_not_signal(pid) && is_running_in(group, pid, include_stopped))
            append(L, &count, pid);
    }
    if (processes) closedir(processes);
    bool is_hidden = !read_process(1, &state, &process_group);
    if (count == 0 && is_hidden && may_not_signal(-group)) append(L, &count, group);
    return 1;
}

const luaL_Reg hf_group_functions[] = {{"out_of_reach", l_out_of_reach}, {NULL, NULL}};
