#include "crash.h"

#include "job.h"
#include "system.h"

#ifdef HF_LINUX
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define TMPFS_MAGIC 0x01021994
#define RECORD_TTL ((time_t)86400)    /* the seconds for which a dead process's record is kept */
#define SWEEP_INTERVAL ((time_t)3600) /* seconds between sweeps */
#define SWEEP_FILE "swept"            /* its modification time is the time of the last sweep */
#define BOOT_ID_SIZE 36
#define RECORD_SIZE 128
#define MAX_DIGITS 9 /* a process id is at most 2^22 on Linux */
#define NAME_SIZE (HF_UUID_SIZE + 8)
#define JOB_SUFFIX ".job" /* follows the uuid in the name of a file that a job keeps locked */
#define UNFINISHED_SUFFIX ".new"

/* ---- processes ---- */

/* Returns a descriptor of the process, or -1 and sets errno. */
static int open_process(pid_t pid) {
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    (void)pid;
    errno = ENOSYS;
    return -1;
#endif
}

/* Returns whether all threads of the process have ended. A process that is stopped, that belongs to
 * another user, or that has the reused id of a dead one has not ended. */
static bool has_ended(pid_t pid) {
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    int fd = open_process(pid);
    if (fd < 0) return false;
    struct pollfd process = {.fd = fd, .events = POLLIN};
    bool ended = poll(&process, 1, 0) == 1 && (process.revents & POLLIN) != 0;
    close(fd);
    return ended;
}

/* ---- records ---- */

/* Writes the scope in which process ids are valid: this boot and this PID namespace. On failure
 * returns false and sets errno. */
static bool read_scope(char scope[RECORD_SIZE]) {
    char boot[BOOT_ID_SIZE + 1] = "";
    struct stat namespace;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t size = read(fd, boot, BOOT_ID_SIZE);
    close(fd);
    if (size != BOOT_ID_SIZE || strspn(boot, "0123456789abcdef-") != BOOT_ID_SIZE) {
        errno = ENOSYS;
        return false;
    }
    if (stat("/proc/self/ns/pid", &namespace) != 0) return false;
    snprintf(scope, RECORD_SIZE, "1 %s %llu", boot, (unsigned long long)namespace.st_ino);
    return true;
}

/* The processes that a record names. */
typedef struct record_processes {
    pid_t pid, group; /* the client's process, and the process group of its job or 0 */
} record_processes;

/* Reads a process id and moves `text` past it. Returns 0 if there is no valid id. */
static pid_t read_id(const char **text) {
    size_t size = strspn(*text, "0123456789");
    if (size == 0 || size > MAX_DIGITS) return 0;
    pid_t id = (pid_t)strtol(*text, NULL, 10);
    *text += size;
    return id;
}

/* Returns false for a record from another scope, or a malformed one. */
static bool parse_record(const char *text, const char *scope, record_processes *processes) {
    size_t size = strlen(scope);
    if (strncmp(text, scope, size) != 0 || text[size] != ' ') return false;
    const char *at = text + size + 1;
    *processes = (record_processes){.pid = read_id(&at)};
    if (processes->pid == 0) return false;
    if (*at == '\0') return true;
    if (*at++ != ' ') return false;
    processes->group = read_id(&at);
    return processes->group > 1 && *at == '\0'; /* to kill, -1 means all processes */
}

static bool read_record(int directory, const char *uuid, const char *scope,
                        record_processes *processes) {
    char text[RECORD_SIZE];
    ssize_t size = readlinkat(directory, uuid, text, sizeof text);
    if (size <= 0 || size >= (ssize_t)sizeof text) return false;
    text[size] = '\0';
    return parse_record(text, scope, processes);
}

/* ---- jobs ---- */

/* Returns whether the group is empty. kill fails with EPERM if the group contains only other users'
 * processes. */
static bool is_group_empty(pid_t group) {
    return kill(-group, 0) != 0 && errno == ESRCH;
}

/* Opens the file that the job keeps locked. Returns -1 and sets errno if it is not a regular file
 * of this user. */
static int open_job_file(int directory, const char *uuid, int mode) {
    char name[NAME_SIZE];
    struct stat file;
    snprintf(name, sizeof name, "%s" JOB_SUFFIX, uuid);
    int fd = openat(directory, name, mode | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == geteuid()) return fd;
    errno = EPERM;
    return hf_close_keeping_errno(fd);
}

/* Returns whether no process has the inherited descriptor open. Takes a shared lock, so that other
 * waiters can check at the same time. */
static bool is_unlocked(int lock) {
    return flock(lock, LOCK_SH | LOCK_NB) == 0;
}

/* Searching the environments of all processes takes a long time, so once a search has found a
 * process, it deletes the record: no client will search again. */
static hf_life search_for_job(int directory, const char *uuid, int lock) {
    hf_job_finding finding = hf_job_find(lock, uuid);
    if (finding == HF_JOB_PRESENT) unlinkat(directory, uuid, 0);
    if (finding == HF_JOB_UNSURE) return HF_LIFE_UNSURE;
    return finding == HF_JOB_ABSENT ? HF_LIFE_JOB_ENDED : HF_LIFE_RUNNING;
}

/* Returns what is known about a job whose group is not empty. When the holder dies, the kernel
 * kills the job's first process, but not the others. So if the first one exists, it is probably
 * about to end or to be reaped. */
static hf_life probe_group(pid_t first_pid) {
    bool exists = kill(first_pid, 0) == 0 || errno != ESRCH;
    return exists ? HF_LIFE_UNSURE : HF_LIFE_RUNNING;
}

/* Checks the group and the lock before it searches. What they show remains true: no process can
 * join an empty group, or get the descriptor again. */
static hf_life probe_job(int directory, const char *uuid, pid_t group) {
    if (!is_group_empty(group)) return probe_group(group);
    int lock = open_job_file(directory, uuid, O_RDONLY);
    if (lock < 0) return HF_LIFE_RUNNING;
    bool over = is_unlocked(lock) && !hf_job_is_in_min_hold(lock);
    hf_life life = over ? search_for_job(directory, uuid, lock) : HF_LIFE_RUNNING;
    close(lock);
    return life;
}

static hf_life probe_process(int directory, const char *uuid, const char *scope) {
    record_processes processes;
    if (!read_record(directory, uuid, scope, &processes)) return HF_LIFE_UNKNOWN;
    if (!has_ended(processes.pid)) return HF_LIFE_RUNNING;
    /* It may have started its job since. Now that it has ended, its record is final. */
    if (!read_record(directory, uuid, scope, &processes)) return HF_LIFE_UNKNOWN;
    if (processes.group == 0) return HF_LIFE_ENDED;
    return probe_job(directory, uuid, processes.group);
}

/* ---- the directory ---- */

/* Returns whether the directory is in memory and accessible only to this user. */
static bool is_safe(int directory) {
    struct stat info;
    struct statfs system;
    if (fstat(directory, &info) != 0 || fstatfs(directory, &system) != 0) return false;
    if ((unsigned long)system.f_type != TMPFS_MAGIC) errno = ENOSYS;
    else if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) errno = EPERM;
    else return true;
    return false;
}

#define DIRECTORY_FORMAT "/dev/shm/holdfast-%lu"

/* Returns a descriptor of the directory, or -1 and sets errno. */
static int open_directory(bool creates) {
    char path[64];
    snprintf(path, sizeof path, DIRECTORY_FORMAT, (unsigned long)geteuid());
    if (creates && mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 || is_safe(fd) ? fd : hf_close_keeping_errno(fd);
}

/* Deletes the file if its record no longer exists. */
static void sweep_orphan(int directory, const char *name) {
    char uuid[HF_UUID_SIZE + 1] = "";
    struct stat record;
    memcpy(uuid, name, HF_UUID_SIZE);
    bool is_gone = fstatat(directory, uuid, &record, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
    if (is_gone) unlinkat(directory, name, 0);
}

/* A record cannot be removed as soon as its process is found dead: the process may have held
 * several locks, and each of them is freed by a waiter that needs the proof, or ends with its
 * lease. So the record is kept for a day, which few leases outlast. Its modification time is 0
 * until a sweep has found the process dead. */
static void sweep_record(int directory, const char *name, const char *scope) {
    static const struct timespec marked[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    record_processes processes;
    struct stat info;
    if (strlen(name) > HF_UUID_SIZE) sweep_orphan(directory, name);
    if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
    bool is_marked = info.st_mtime != 0;
    if (is_marked && time(NULL) - info.st_mtime <= RECORD_TTL) return;
    if (!read_record(directory, name, scope, &processes) || !has_ended(processes.pid)) return;
    if (is_marked) unlinkat(directory, name, 0);
    else utimensat(directory, name, marked, AT_SYMLINK_NOFOLLOW);
}

/* Returns whether a sweep is due. If so, stores the time of this sweep, so that clients do not
 * all read every record when they start. If the time cannot be stored, each start sweeps. */
static bool claim_sweep(int directory) {
    struct stat last;
    struct timespec now = {0}; /* time() lags behind the times of files by up to a tick */
    clock_gettime(CLOCK_REALTIME, &now);
    bool is_known = fstatat(directory, SWEEP_FILE, &last, AT_SYMLINK_NOFOLLOW) == 0;
    time_t age = is_known ? now.tv_sec - last.st_mtime : SWEEP_INTERVAL;
    if (age >= 0 && age < SWEEP_INTERVAL) return false; /* below 0: the clock was set back */
    int fd = openat(directory, SWEEP_FILE, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return true;
    futimens(fd, NULL);
    close(fd);
    return true;
}

static void sweep(int directory, const char *scope) {
    if (!claim_sweep(directory)) return;
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *records = copy >= 0 ? fdopendir(copy) : NULL;
    if (!records && copy >= 0) close(copy);
    for (struct dirent *entry; records && (entry = readdir(records));)
        sweep_record(directory, entry->d_name, scope);
    if (records) closedir(records);
}

/* `job`: the text after the process id, which names the job's process group, or "" */
static bool write_record(int directory, const char *name, const char *scope, const char *job) {
    static const struct timespec never[2] = {{0}, {0}};
    char text[RECORD_SIZE + 64];
    snprintf(text, sizeof text, "%s %ld%s", scope, (long)getpid(), job);
    if (symlinkat(text, directory, name) != 0) return false;
    return utimensat(directory, name, never, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Atomically replaces the record of this process with one that names its job. */
static bool replace_record(int directory, const char *uuid, pid_t group) {
    char scope[RECORD_SIZE], new_name[NAME_SIZE], job[32];
    if (!read_scope(scope)) return false;
    snprintf(new_name, sizeof new_name, "%s" UNFINISHED_SUFFIX, uuid);
    snprintf(job, sizeof job, " %ld", (long)group);
    return write_record(directory, new_name, scope, job) &&
           renameat(directory, new_name, directory, uuid) == 0;
}

/* ---- the file that a job keeps locked ---- */

/* Creates the job's file, and locks it before giving it its name. Returns its descriptor, or -1 and
 * sets errno. */
static int create_job_file(int directory, const char *uuid) {
    char new_name[NAME_SIZE], name[NAME_SIZE];
    struct stat record;
    snprintf(new_name, sizeof new_name, "%s" UNFINISHED_SUFFIX, uuid);
    snprintf(name, sizeof name, "%s" JOB_SUFFIX, uuid);
    if (fstatat(directory, uuid, &record, AT_SYMLINK_NOFOLLOW) != 0) return -1;
    int fd =
        openat(directory, new_name, O_CREAT | O_EXCL | O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (locked && renameat(directory, new_name, directory, name) == 0) return fd;
    return hf_close_keeping_errno(fd);
}

static bool describe_job(int directory, const char *uuid, pid_t first_pid, hf_time min_hold) {
    int lock = open_job_file(directory, uuid, O_WRONLY);
    if (lock < 0) return false;
    bool described = hf_job_describe(lock, first_pid, min_hold);
    hf_close_keeping_errno(lock);
    return described;
}

/* ---- the interface for clients ---- */

bool hf_crash_record(const char *uuid) {
    assert(strlen(uuid) == HF_UUID_SIZE);
    char scope[RECORD_SIZE];
    int pidfd = open_process(getpid());
    if (pidfd < 0) return false;
    close(pidfd);
    if (!read_scope(scope)) return false;
    int directory = open_directory(true);
    if (directory < 0) return false;
    sweep(directory, scope);
    bool written = write_record(directory, uuid, scope, "");
    hf_close_keeping_errno(directory);
    return written;
}

int hf_crash_lock_job(const char *uuid) {
    assert(strlen(uuid) == HF_UUID_SIZE);
    int directory = open_directory(false);
    if (directory < 0) return -1;
    int fd = create_job_file(directory, uuid);
    hf_close_keeping_errno(directory);
    return fd;
}

bool hf_crash_record_job(const char *uuid, pid_t group, hf_time min_hold) {
    assert(strlen(uuid) == HF_UUID_SIZE && group > 1); /* to kill, -1 means all processes */
    int directory = open_directory(false);
    if (directory < 0) return false;
    bool replaced =
        describe_job(directory, uuid, group, min_hold) && replace_record(directory, uuid, group);
    hf_close_keeping_errno(directory);
    return replaced;
}

/* Uses paths, so that it works in a process without a free descriptor. */
bool hf_crash_forget(const char *uuid) {
    assert(strlen(uuid) == HF_UUID_SIZE);
    char path[128];
    int size = snprintf(path, sizeof path, DIRECTORY_FORMAT "/%s", (unsigned long)geteuid(), uuid);
    bool is_gone = unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR;
    int error = errno;
    snprintf(path + size, sizeof path - (size_t)size, JOB_SUFFIX);
    unlink(path);
    errno = error;
    return is_gone;
}

hf_life hf_crash_probe_process(const char *uuid) {
    assert(strlen(uuid) == HF_UUID_SIZE);
    char scope[RECORD_SIZE];
    if (!read_scope(scope)) return HF_LIFE_UNKNOWN;
    int directory = open_directory(false);
    if (directory < 0) return HF_LIFE_UNKNOWN;
    hf_life life = probe_process(directory, uuid, scope);
    close(directory);
    return life;
}

#else
#include <errno.h>

bool hf_crash_record(const char *uuid) {
    (void)uuid;
    errno = ENOSYS;
    return false;
}

int hf_crash_lock_job(const char *uuid) {
    (void)uuid;
    errno = ENOSYS;
    return -1;
}

bool hf_crash_record_job(const char *uuid, pid_t group, hf_time min_hold) {
    (void)uuid, (void)group, (void)min_hold;
    errno = ENOSYS;
    return false;
}

bool hf_crash_forget(const char *uuid) {
    (void)uuid;
    return true;
}

hf_life hf_crash_probe_process(const char *uuid) {
    (void)uuid;
    return HF_LIFE_UNKNOWN;
}
#endif
