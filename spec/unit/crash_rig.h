/* Records of real processes in the real /dev/shm, and what the kernel knows about them. */
#ifndef CRASH_RIG_H
#define CRASH_RIG_H

#include "posix/crash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "posix/system.h"

#define UNUSED __attribute__((unused))

/* ---- the clock ---- */

hf_time __real_hf_now(void);
hf_time __wrap_hf_now(void);

static hf_time step; /* by which the clock goes on whenever it is asked */

hf_time __wrap_hf_now(void) {
    static hf_time ahead;
    return __real_hf_now() + (ahead += step);
}

/* An emulator makes up a process's own entry in /proc, so no search of all processes proves
 * anything there. */
static UNUSED bool is_emulated(void) {
    return getenv("HOLDFAST_EMULATED") != NULL;
}

#ifdef HF_LINUX

#define UUID "cccccccc-2222-8333-8444-"
#define OTHER "cccccccc-2222-8333-8444-555555555555"

static UNUSED char uuid[40];
static UNUSED pid_t
    outside; /* the number that the first process of a namespace has outside; 0: none */

/* Returns a number that no other process on this host has. */
static UNUSED pid_t own_number(void) {
    return outside != 0 ? outside + getpid() - 1 : getpid();
}

/* Returns a uuid that no other process uses. */
static UNUSED const char *new_uuid(void) {
    static unsigned last;
    snprintf(uuid, sizeof uuid, UUID "%06x%06x", (unsigned)own_number() & 0xffffff, ++last);
    return uuid;
}

static UNUSED const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "/dev/shm/holdfast-%lu/%s", (unsigned long)geteuid(), name);
    return path;
}

static UNUSED void stay(void) {
    for (;;) pause();
}

static UNUSED void *stay_in_thread(void *unused) {
    (void)unused;
    stay();
    return NULL;
}

/* The first thread ends, and the process keeps running. */
static UNUSED void leave_to_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay_in_thread, NULL) != 0) abort();
    pthread_exit(NULL);
}

static UNUSED void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    hf_crash_forget(uuid);
}

/* What /proc says about the process; "": it is gone. */
static UNUSED const char *entry_of(pid_t pid, const char *name) {
    static char text[512];
    int fd = open(printed("/proc/%ld/%s", (long)pid, name), O_RDONLY);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    text[size > 0 ? size : 0] = '\0';
    return text;
}

/* '?': it is gone. */
static UNUSED char state_of(pid_t pid) {
    const char *name_end = strrchr(entry_of(pid, "stat"), ')');
    return name_end && name_end[1] ? name_end[2] : '?';
}

static UNUSED void await_program(pid_t pid, const char *name) {
    for (int tries = 0; tries < 10000; tries++) {
        if (strncmp(entry_of(pid, "comm"), name, strlen(name)) == 0) return;
        usleep(1000);
    }
    CHECK_OR(false, "%s does not run", name);
}

/* ---- records of other processes, boots and namespaces ---- */

/* "1 <boot> <namespace>" of this process. */
static UNUSED void read_place(char *place, size_t size) {
    CHECK(hf_crash_record(new_uuid()));
    ssize_t length = readlink(path_of(uuid), place, size - 1);
    place[length > 0 ? length : 0] = '\0';
    char *pid = strrchr(place, ' ');
    if (pid) *pid = '\0';
    hf_crash_forget(uuid);
}

/* ---- jobs ---- */

static UNUSED int pids[2]; /* a pipe: the ids of processes */

static UNUSED void send_pid(pid_t pid) {
    if (write(pids[1], &pid, sizeof pid) != sizeof pid) _exit(1);
}

/* Also if nobody has collected it. */
static UNUSED bool has_ended(pid_t pid) {
    return strchr("ZX?", state_of(pid)) != NULL;
}

/* Under an emulator it may stay a child of others. */
static UNUSED void kill_and_collect(pid_t pid) {
    kill(pid, SIGKILL);
    if (waitpid(pid, NULL, 0) == pid) return;
    for (int tries = 0; !has_ended(pid) && tries < 10000; tries++) usleep(1000);
}

/* ---- processes of a job that nobody can look into, or that do not stand still ---- */

/* Becomes a user that no other process has, and writes the directory of its records. */
static UNUSED bool become_nobody(char directory[64]) {
    uid_t user = 1900000000u + (uid_t)own_number();
    snprintf(directory, 64, "/dev/shm/holdfast-%lu", (unsigned long)user);
    return setuid(user) == 0;
}

/* Removes the directory of records, if no record is left in it. */
static UNUSED void remove_directory(const char *directory) {
    char swept[128];
    snprintf(swept, sizeof swept, "%s/swept", directory);
    unlink(swept);
    rmdir(directory);
}

/* Runs `test` in a process of its own, as a user that no other process has; 0 if it returns true.
 */
static UNUSED int as_nobody(bool (*test)(const char *directory)) {
    if (geteuid() != 0) return 0;
    pid_t pid = fork();
    if (pid == 0) {
        char directory[64];
        if (!become_nobody(directory)) _exit(2);
        bool good = test(directory);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static UNUSED bool is_wanted(time_t end) {
    return access(getenv("FLAG"), F_OK) == 0 && time(NULL) < end;
}

/* Seconds after which a process ends by itself. A machine may stand still for ten. */
#define MAX_SECONDS 60

/* Its number changes every few microseconds. It pauses for the process that has to collect what it
 * leaves: without that the numbers of a busy machine run out. */
static UNUSED int hop(void) {
    for (time_t end = time(NULL) + MAX_SECONDS; is_wanted(end);) {
        for (int i = 0; i < 20; i++) {
            if (fork() > 0) _exit(0);
        }
        usleep(1000);
    }
    return 0;
}

static UNUSED int replace_itself(const char *program) {
    alarm(MAX_SECONDS);
    if (is_wanted(time(NULL) + MAX_SECONDS)) execl(program, "test", "replace", (char *)NULL);
    return 0;
}

static UNUSED int run_mode(const char *program, const char *mode) {
    pids[1] = atoi(getenv("PIPE"));
    send_pid(getpid());
    if (strcmp(mode, "hop") == 0) return hop();
    if (strcmp(mode, "replace") == 0) return replace_itself(program);
    leave_to_thread();
    return 0;
}

static UNUSED pid_t passing; /* is not in the first two lists of a search; 0: each process is */
static UNUSED unsigned lists_read;

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
struct dirent *__real_readdir(DIR *directory);
struct dirent *__wrap_readdir(DIR *directory);

DIR *__wrap_opendir(const char *path) {
    lists_read = 0;
    return __real_opendir(path);
}

static UNUSED bool passes(const struct dirent *entry) {
    return entry && passing != 0 && lists_read < 2 && atol(entry->d_name) == passing;
}

struct dirent *__wrap_readdir(DIR *directory) {
    struct dirent *entry = __real_readdir(directory);
    while (passes(entry)) entry = __real_readdir(directory);
    if (!entry) lists_read++;
    return entry;
}

/* ---- reading a record ---- */

static UNUSED void (*on_record_read)(void); /* is called once, after the next record is read */

ssize_t __real_readlinkat(int directory, const char *path, char *text, size_t size);
ssize_t __wrap_readlinkat(int directory, const char *path, char *text, size_t size);

ssize_t __wrap_readlinkat(int directory, const char *path, char *text, size_t size) {
    ssize_t filled = __real_readlinkat(directory, path, text, size);
    void (*then)(void) = on_record_read;
    on_record_read = NULL;
    if (then) then();
    return filled;
}

/* The same, fortified. */
ssize_t __wrap___readlinkat_chk(int directory, const char *path, char *text, size_t size,
                                size_t room);

ssize_t __wrap___readlinkat_chk(int directory, const char *path, char *text, size_t size,
                                size_t room) {
    (void)room;
    return __wrap_readlinkat(directory, path, text, size);
}

/* ---- a least time for which the lock stays held ---- */

static UNUSED int names_of_job_locks, unlocked;
static UNUSED char renamed[64];

int __real_renameat(int from_directory, const char *from, int to_directory, const char *to);
int __wrap_renameat(int from_directory, const char *from, int to_directory, const char *to);

int __wrap_renameat(int from_directory, const char *from, int to_directory, const char *to) {
    int fd = strstr(to, ".job") ? openat(from_directory, from, O_RDONLY | O_CLOEXEC) : -1;
    names_of_job_locks += fd >= 0;
    unlocked += fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (fd >= 0) close(fd);
    snprintf(renamed, sizeof renamed, "%s", from);
    return __real_renameat(from_directory, from, to_directory, to);
}

/* ---- the directory ---- */

static UNUSED bool reads_no_directory;

DIR *__real_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd);

DIR *__wrap_fdopendir(int fd) {
    return reads_no_directory ? NULL : __real_fdopendir(fd);
}

/* Valgrind does not know the call that proofs are made with. */
static int run_crash_tests(int argc, char **argv) {
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd < 0 && errno == ENOSYS) return puts("ok 1 - there is no pidfd_open here") < 0;
    close(fd);
    if (getenv("FLAG")) return run_mode("/proc/self/exe", argv[1]);
    return check_run(argc > 1 ? argv[1] : NULL);
}

#define CRASH_MAIN                                                                                 \
    int main(int argc, char **argv) {                                                              \
        return run_crash_tests(argc, argv);                                                        \
    }

#endif

#endif
