#include "crash.h"

#include "system.h"

#ifdef HF_LINUX
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define TMPFS 0x01021994
#define KEPT ((time_t)86400) /* seconds for which the record of a dead process is kept */
#define BOOT_SIZE 36
#define RECORD_SIZE 128
#define MOST_DIGITS 9 /* of a process id, which is at most 2^22 on Linux */

/* ---- what the kernel knows ---- */

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

/* Whether no thread of the process runs any more. A process that is stopped, that belongs to
 * another user, or that took over the id of a dead one has not ended. */
static bool has_ended(pid_t pid) {
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    int fd = open_process(pid);
    if (fd < 0) return false;
    struct pollfd process = {.fd = fd, .events = POLLIN};
    bool ended = poll(&process, 1, 0) == 1 && (process.revents & POLLIN) != 0;
    close(fd);
    return ended;
}

/* ---- the text of a record ---- */

/* Writes where process ids mean the same: this boot and this PID namespace. */
static bool read_place(char place[RECORD_SIZE]) {
    char boot[BOOT_SIZE + 1] = "";
    struct stat namespace;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t size = read(fd, boot, BOOT_SIZE);
    close(fd);
    if (size != BOOT_SIZE || strspn(boot, "0123456789abcdef-") != BOOT_SIZE) {
        errno = ENOSYS;
        return false;
    }
    if (stat("/proc/self/ns/pid", &namespace) != 0) return false;
    snprintf(place, RECORD_SIZE, "1 %s %llu", boot, (unsigned long long)namespace.st_ino);
    return true;
}

/* Returns the process of a record that was made in this place; 0: it was made elsewhere. */
static pid_t process_of(const char *record, const char *place) {
    size_t size = strlen(place);
    if (strncmp(record, place, size) != 0 || record[size] != ' ') return 0;
    const char *number = record + size + 1;
    if (strspn(number, "0123456789") != strlen(number) || strlen(number) > MOST_DIGITS) return 0;
    return (pid_t)strtol(number, NULL, 10);
}

static hf_life life_of(int directory, const char *name, const char *place) {
    char record[RECORD_SIZE];
    ssize_t size = readlinkat(directory, name, record, sizeof record);
    if (size <= 0 || size >= (ssize_t)sizeof record) return HF_LIFE_UNKNOWN;
    record[size] = '\0';
    pid_t pid = process_of(record, place);
    if (pid == 0) return HF_LIFE_UNKNOWN;
    return has_ended(pid) ? HF_LIFE_ENDED : HF_LIFE_GOES_ON;
}

/* ---- the directory ---- */

/* Whether the directory is in memory, and only this user can write to it. */
static bool is_safe(int directory) {
    struct stat own;
    struct statfs system;
    if (fstat(directory, &own) != 0 || fstatfs(directory, &system) != 0) return false;
    if ((unsigned long)system.f_type != TMPFS) errno = ENOSYS;
    else if (own.st_uid != geteuid() || (own.st_mode & 077) != 0) errno = EPERM;
    else return true;
    return false;
}

/* Returns a descriptor of the directory, or -1 and sets errno. */
static int open_directory(bool makes) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/holdfast-%lu", (unsigned long)geteuid());
    if (makes && mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || is_safe(fd)) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* The record of a dead process is kept for a day, so that all its leases end first. Its time of
 * modification is 0 until a client has found the process dead. */
static void sweep_one(int directory, const char *name, const char *place) {
    static const struct timespec seen[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    struct stat record;
    if (life_of(directory, name, place) != HF_LIFE_ENDED) return;
    if (fstatat(directory, name, &record, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (record.st_mtime == 0) utimensat(directory, name, seen, AT_SYMLINK_NOFOLLOW);
    else if (time(NULL) - record.st_mtime > KEPT) unlinkat(directory, name, 0);
}

static void sweep(int directory, const char *place) {
    int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *records = again >= 0 ? fdopendir(again) : NULL;
    if (!records && again >= 0) close(again);
    for (struct dirent *entry; records && (entry = readdir(records));)
        sweep_one(directory, entry->d_name, place);
    if (records) closedir(records);
}

static bool write_record(int directory, const char *uuid, const char *place) {
    static const struct timespec never[2] = {{0}, {0}};
    char record[RECORD_SIZE + 16];
    snprintf(record, sizeof record, "%s %ld", place, (long)getpid());
    if (symlinkat(record, directory, uuid) != 0) return false;
    return utimensat(directory, uuid, never, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- what clients use ---- */

bool hf_crash_record(const char *uuid) {
    char place[RECORD_SIZE];
    int self = open_process(getpid());
    if (self < 0) return false;
    close(self);
    if (!read_place(place)) return false;
    int directory = open_directory(true);
    if (directory < 0) return false;
    sweep(directory, place);
    bool written = write_record(directory, uuid, place);
    int error = errno;
    close(directory);
    errno = error;
    return written;
}

void hf_crash_forget(const char *uuid) {
    int directory = open_directory(false);
    if (directory < 0) return;
    unlinkat(directory, uuid, 0);
    close(directory);
}

hf_life hf_crash_life(const char *uuid) {
    char place[RECORD_SIZE];
    if (!read_place(place)) return HF_LIFE_UNKNOWN;
    int directory = open_directory(false);
    if (directory < 0) return HF_LIFE_UNKNOWN;
    hf_life life = life_of(directory, uuid, place);
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

void hf_crash_forget(const char *uuid) {
    (void)uuid;
}

hf_life hf_crash_life(const char *uuid) {
    (void)uuid;
    return HF_LIFE_UNKNOWN;
}
#endif
