#include "job.h"

#include "system.h"

#ifdef HF_LINUX
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATH_SIZE 64
#define NUMBER_SIZE 24
#define MAX_ANCESTORS 32
#define DESCRIPTION_SIZE 1024
#define MAX_LISTS 50  /* on a busy host, processes may start all the time */
#define QUIET_LISTS 2 /* lists in a row without a new process prove that all were seen */
#define MAX_SEARCH_TIME (HF_SECOND / 2) /* the maximum delay of a wait that ends in a search */
#define MAX_START_AGE 10    /* the maximum seconds from a process's start to its description */
#define NO_LOGIN 4294967295 /* the audit session of a process that was started without a login */
#define KERNEL_THREAD 0x00200000
#define SYS_PTRACE 19 /* the capability to inspect all processes */

/* Times are in clock ticks since the boot, as in /proc/PID/stat; 0 if unknown. */
typedef struct description {
    uint64_t time_namespace; /* the time namespace in which the times are valid */
    uint64_t started;        /* when the first process of the job started */
    uint64_t held_until;     /* the time until which the lock must remain held */
    uint64_t login;          /* the audit session, which a login sets for all its processes */
    pid_t session;           /* the holder's session, or 0 if unknown */
    pid_t ancestors[MAX_ANCESTORS + 1]; /* the holder's ancestors, then 0; none if unknown */
} description;

/* ---- reading /proc ---- */

typedef struct process {
    char state;
    pid_t parent, session;
    uint64_t flags, threads, started, environment, environment_end;
} process;

/* Opens a file of a process, or of /proc itself if `pid` is empty. Returns -1 and sets errno. */
static int open_proc_file(const char *pid, const char *name) {
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Reads a short file as a string. On failure returns false and sets errno. */
static bool read_proc_file(const char *pid, const char *name, char *text, size_t size) {
    int fd = open_proc_file(pid, name);
    if (fd < 0) return false;
    ssize_t filled = read(fd, text, size - 1);
    hf_close_keeping_errno(fd);
    text[filled > 0 ? filled : 0] = '\0';
    return filled >= 0;
}

/* On failure returns false and sets errno; ENOENT or ESRCH means that the process is gone. */
static bool read_process(const char *pid, process *info) {
    enum {
        PARENT = 4,
        SESSION = 6,
        FLAGS = 9,
        THREADS = 20,
        STARTED = 22,
        ENVIRONMENT = 50,
        ALL = 52
    };
    char text[1024];
    uint64_t fields[ALL] = {0};
    if (!read_proc_file(pid, "stat", text, sizeof text)) return false;
    char *at = strrchr(text, ')'); /* the end of the name, which may contain anything */
    if (!at || at[1] != ' ' || at[2] == '\0') {
        errno = EIO;
        return false;
    }
    info->state = at[2];
    at += 3;
    for (int field = PARENT; field < ALL; field++) fields[field] = strtoull(at, &at, 10);
    info->parent = (pid_t)fields[PARENT];
    info->session = (pid_t)fields[SESSION];
    info->flags = fields[FLAGS];
    info->threads = fields[THREADS];
    info->started = fields[STARTED];
    info->environment = fields[ENVIRONMENT];
    info->environment_end = fields[ENVIRONMENT + 1];
    return true;
}

static bool read_process_by_id(pid_t pid, process *info) {
    char name[NUMBER_SIZE];
    snprintf(name, sizeof name, "%ld", (long)pid);
    return read_process(name, info);
}

/* Also returns NO_LOGIN if the kernel has no audit sessions. */
static uint64_t login_of(const char *pid) {
    char text[NUMBER_SIZE];
    return read_proc_file(pid, "sessionid", text, sizeof text) ? strtoull(text, NULL, 10)
                                                               : NO_LOGIN;
}

static uint64_t inode_of(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

static uint64_t own_time_namespace(void) {
    return inode_of("/proc/self/ns/time");
}

/* Returns the time since the boot in clock ticks. */
static uint64_t ticks_now(void) {
    struct timespec now;
    uint64_t rate = (uint64_t)sysconf(_SC_CLK_TCK);
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * rate + (uint64_t)now.tv_nsec * rate / HF_SECOND;
}

/* ---- the description of a job ---- */

/* Returns the start time of the process, or 0 if it is unknown: some sandboxes invent the contents
 * of /proc, so a time that does not fit the clock is ignored. */
static uint64_t start_of(pid_t first, uint64_t now) {
    process info;
    if (!read_process_by_id(first, &info)) return 0;
    uint64_t max_age = MAX_START_AGE * (uint64_t)sysconf(_SC_CLK_TCK);
    return info.started <= now && now - info.started <= max_age ? info.started : 0;
}

/* Writes the ancestors of this process, or none if not all can be read. An orphan of the job can be
 * adopted only by one of them, by process 1, or by a process of the job. */
static void read_ancestors(pid_t *list) {
    process info;
    size_t count = 0;
    for (pid_t pid = getpid(); pid != 0; pid = info.parent) {
        bool is_valid = count <= MAX_ANCESTORS && read_process_by_id(pid, &info);
        if (!is_valid) count = 0;
        if (!is_valid) break;
        if (count < MAX_ANCESTORS) list[count] = info.parent;
        count++;
    }
    list[count < MAX_ANCESTORS ? count : 0] = 0;
}

bool hf_job_describe(int file, pid_t first, hf_time min_hold) {
    char text[DESCRIPTION_SIZE];
    pid_t ancestors[MAX_ANCESTORS + 1];
    uint64_t now = ticks_now(), rate = (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t held_until = min_hold > 0 ? now + 1 + (uint64_t)min_hold / (HF_SECOND / rate) : 0;
    read_ancestors(ancestors);
    int size = snprintf(text, sizeof text, "%llu %llu %llu %llu %ld",
                        (unsigned long long)own_time_namespace(),
                        (unsigned long long)start_of(first, now), (unsigned long long)held_until,
                        (unsigned long long)login_of("self"), (long)getsid(0));
    for (const pid_t *at = ancestors; *at != 0; at++)
        size += snprintf(text + size, sizeof text - (size_t)size, " %ld", (long)*at);
    assert(size > 0 && (size_t)size < sizeof text);
    ssize_t written = write(file, text, (size_t)size);
    if (written >= 0 && written < size) errno = ENOSPC;
    return written == size;
}

/* Fields that are missing from the file are unknown; an earlier version left it empty. */
static description read_description(int file) {
    char text[DESCRIPTION_SIZE];
    description job = {.login = NO_LOGIN};
    ssize_t size = pread(file, text, sizeof text - 1, 0);
    if (size <= 0) return job;
    text[size] = '\0';
    char *at = text;
    job.time_namespace = strtoull(at, &at, 10);
    job.started = strtoull(at, &at, 10);
    job.held_until = strtoull(at, &at, 10);
    job.login = strtoull(at, &at, 10);
    job.session = (pid_t)strtol(at, &at, 10);
    for (size_t i = 0; i < MAX_ANCESTORS && *at == ' '; i++)
        job.ancestors[i] = (pid_t)strtol(at, &at, 10);
    if (job.time_namespace != own_time_namespace()) job.started = 0;
    return job;
}

bool hf_job_is_in_min_hold(int file) {
    description job = read_description(file);
    return job.held_until != 0 &&
           (job.time_namespace != own_time_namespace() || ticks_now() < job.held_until);
}

/* ---- one process ---- */

static bool started_before(const description *job, const process *info) {
    return job->started != 0 && info->started < job->started;
}

static bool may_adopt(const description *job, pid_t pid) {
    if (pid == 1) return true;
    for (const pid_t *at = job->ancestors; *at != 0; at++) {
        if (*at == pid) return true;
    }
    return false;
}

/* Returns whether the process descends from one that is older than the job and cannot have adopted
 * an orphan of the job. The same holds for 0, a parent outside this namespace. */
static bool has_other_parents(const description *job, pid_t parent) {
    process info;
    if (job->started == 0 || job->ancestors[0] == 0) return false;
    for (int depth = 0; parent != 0; depth++) {
        if (depth > 1000 || may_adopt(job, parent) || !read_process_by_id(parent, &info))
            return false;
        if (started_before(job, &info)) return true;
        parent = info.parent;
    }
    return true;
}

/* Processes cannot join an existing session, so those of the job are in the holder's session or in
 * one whose leader is younger than the job. A leader outside this namespace, 0, is neither. */
static bool has_other_session(const description *job, pid_t session) {
    process leader;
    if (job->session == 0 || session == job->session) return false;
    return session == 0 || (read_process_by_id(session, &leader) && started_before(job, &leader));
}

/* Only a login, such as one by sshd or cron, starts another audit session: sudo and su do not. */
static bool has_other_login(const description *job, const char *pid) {
    uint64_t login = login_of(pid);
    return job->login != NO_LOGIN && login != NO_LOGIN && login != job->login;
}

/* Searches the environment for the uuid. Returns whether it was found, and in `total` the bytes
 * read. */
static bool contains_uuid(int fd, const char *uuid, uint64_t *total) {
    char text[4096 + HF_UUID_SIZE];
    size_t filled = 0;
    *total = 0;
    for (ssize_t size; (size = read(fd, text + filled, sizeof text - filled)) > 0;) {
        *total += (uint64_t)size;
        filled += (size_t)size;
        if (memmem(text, filled, uuid, HF_UUID_SIZE)) return true;
        size_t rest = filled < HF_UUID_SIZE ? filled : HF_UUID_SIZE - 1;
        memmove(text, text + filled - rest, rest);
        filled = rest;
    }
    return false;
}

static bool is_gone(void) {
    return errno == ENOENT || errno == ESRCH;
}

/* A process whose first thread has ended is a zombie in /proc while its other threads still run. */
static bool has_ended(const process *info) {
    return (info->state == 'Z' || info->state == 'X') && info->threads <= 1;
}

/* If the process has no environment yet, or called exec while it was being read, the bytes that
 * were read are not its own. The size or the address then differs, and the result is UNSURE. */
static hf_job_finding read_environment(const char *pid, const char *uuid, const process *before) {
    process after;
    uint64_t total = 0;
    int fd = open_proc_file(pid, "environ");
    bool found = fd >= 0 && contains_uuid(fd, uuid, &total);
    if (fd >= 0) close(fd);
    if (found) return HF_JOB_PRESENT;
    if (!read_process(pid, &after)) return is_gone() ? HF_JOB_ABSENT : HF_JOB_UNSURE;
    if (has_ended(&after)) return HF_JOB_ABSENT;
    bool is_complete = total == before->environment_end - before->environment;
    bool is_unchanged = before->environment != 0 && after.environment == before->environment &&
                        after.environment_end == before->environment_end;
    return is_complete && is_unchanged ? HF_JOB_ABSENT : HF_JOB_UNSURE;
}

/* Also returns ABSENT for a process that has ended: its children are in the next list. */
static hf_job_finding inspect(const description *job, const char *uuid, const char *pid) {
    process info;
    if (!read_process(pid, &info)) return is_gone() ? HF_JOB_ABSENT : HF_JOB_UNSURE;
    bool is_kernel_thread = (info.flags & KERNEL_THREAD) != 0;
    if (is_kernel_thread || has_ended(&info) || started_before(job, &info)) return HF_JOB_ABSENT;
    hf_job_finding finding = read_environment(pid, uuid, &info);
    if (finding != HF_JOB_UNSURE) return finding;
    bool is_other = has_other_login(job, pid) || has_other_session(job, info.session) ||
                    has_other_parents(job, info.parent);
    return is_other ? HF_JOB_ABSENT : HF_JOB_UNSURE;
}

/* ---- all processes ---- */

typedef struct list {
    pid_t *pids;
    size_t count, capacity;
} list;

static int compare(const void *a, const void *b) {
    const pid_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static bool contains(const list *all, pid_t pid) {
    return all->count > 0 && bsearch(&pid, all->pids, all->count, sizeof pid, compare);
}

static bool append(list *all, pid_t pid) {
    if (all->count == all->capacity) {
        size_t capacity = all->capacity * 2 + 256;
        pid_t *pids = realloc(all->pids, capacity * sizeof *pids);
        if (!pids) return false;
        all->pids = pids;
        all->capacity = capacity;
    }
    all->pids[all->count++] = pid;
    return true;
}

/* Reads the whole list before any process is inspected. The kernel lists by number, and a child has
 * a higher number than its parent, so no process can escape by forking, except when the numbers
 * wrap around. That does not happen in two consecutive lists, unless both use up all numbers. */
static bool read_list(DIR *processes, list *all) {
    struct dirent *entry;
    all->count = 0;
    rewinddir(processes);
    while (errno = 0, (entry = readdir(processes))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && !append(all, pid)) return false;
    }
    if (errno != 0 || all->count == 0) return false; /* this process itself is in every list */
    qsort(all->pids, all->count, sizeof *all->pids, compare);
    return true;
}

/* Inspects the processes that are not in the list `before`, until the time `end`. Stores in
 * `has_new` whether there were any. */
static hf_job_finding inspect_new(const description *job, const char *uuid, const list *before,
                                  const list *all, hf_time end, bool *has_new) {
    char name[NUMBER_SIZE];
    *has_new = false;
    for (size_t i = 0; i < all->count; i++) {
        if (contains(before, all->pids[i])) continue;
        *has_new = true;
        if (hf_now() >= end) return HF_JOB_UNSURE;
        snprintf(name, sizeof name, "%ld", (long)all->pids[i]);
        hf_job_finding finding = inspect(job, uuid, name);
        if (finding != HF_JOB_ABSENT) return finding;
    }
    return HF_JOB_ABSENT;
}

static hf_job_finding search(DIR *processes, const description *job, const char *uuid) {
    list lists[2] = {{0}, {0}};
    hf_job_finding finding = HF_JOB_ABSENT;
    hf_time end = hf_now() + MAX_SEARCH_TIME;
    int quiet_count = 0;
    for (int i = 0; quiet_count < QUIET_LISTS && finding == HF_JOB_ABSENT; i++) {
        bool has_new = true;
        list *before = &lists[i % 2], *all = &lists[(i + 1) % 2];
        bool was_listed = i < MAX_LISTS && hf_now() < end && read_list(processes, all);
        finding = was_listed ? inspect_new(job, uuid, before, all, end, &has_new) : HF_JOB_UNSURE;
        quiet_count = has_new ? 0 : quiet_count + 1;
    }
    free(lists[0].pids);
    free(lists[1].pids);
    return finding;
}

/* ---- the visibility of processes in /proc ---- */

/* Returns whether this process may inspect all processes of its namespace. */
static bool may_inspect_all(void) {
    struct {
        uint32_t version;
        int pid;
    } header = {0x20080522, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = {{0}, {0}};
    uint64_t first = inode_of("/proc/1/ns/user");
    bool is_capable =
        syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective >> SYS_PTRACE & 1) != 0;
    return is_capable && first != 0 && first == inode_of("/proc/self/ns/user");
}

/* Returns whether /proc was mounted with an option that hides the processes of others. */
static bool hides_processes(void) {
    char *line = NULL;
    size_t capacity = 0;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    bool hiding = mounts == NULL;
    while (!hiding && getline(&line, &capacity, mounts) >= 0)
        hiding = strstr(line, " /proc ") && strstr(line, "hidepid=");
    free(line);
    if (mounts) fclose(mounts);
    return hiding;
}

/* If /proc belongs to a different namespace, this process has a different number there. */
static bool shows_all_processes(void) {
    char own_number[NUMBER_SIZE] = "", expected[NUMBER_SIZE];
    snprintf(expected, sizeof expected, "%ld", (long)getpid());
    ssize_t size = readlink("/proc/self", own_number, sizeof own_number - 1);
    return size > 0 && strcmp(own_number, expected) == 0 &&
           (!hides_processes() || may_inspect_all());
}

hf_job_finding hf_job_find(int file, const char *uuid) {
    description job = read_description(file);
    if (!shows_all_processes()) return HF_JOB_UNSURE;
    DIR *processes = opendir("/proc");
    if (!processes) return HF_JOB_UNSURE;
    hf_job_finding finding = search(processes, &job, uuid);
    closedir(processes);
    return finding;
}
#endif
