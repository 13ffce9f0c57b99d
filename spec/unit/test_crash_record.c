#include "crash_rig.h"

#ifdef HF_LINUX

/* Starts a process that makes a record and then calls this. */
static pid_t start(void (*then)(void)) {
    int ready[2];
    char byte;
    const char *name = new_uuid();
    if (pipe(ready) != 0) abort();
    pid_t pid = fork();
    if (pid == 0) {
        hf_die_with_parent(SIGKILL);
        if (!hf_crash_record(name)) _exit(1);
        if (write(ready[1], "r", 1) != 1) _exit(1);
        then();
        _exit(0);
    }
    close(ready[1]);
    if (pid < 0 || read(ready[0], &byte, 1) != 1) abort();
    close(ready[0]);
    return pid;
}

static void become_another_program(void) {
    execlp("sleep", "sleep", "60", (char *)NULL);
}

static hf_life life_after(pid_t pid, int signal, int options) {
    siginfo_t info;
    kill(pid, signal);
    waitid(P_PID, (id_t)pid, &info, options | WNOWAIT); /* it stays a zombie */
    return hf_crash_probe_process(uuid);
}

TEST(a_running_process_counts_as_alive_until_its_client_is_closed) {
    CHECK(hf_crash_record(new_uuid()));
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    hf_crash_forget(uuid), CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_UNKNOWN);
    hf_crash_forget(uuid);
}

TEST(a_zombie_counts_as_dead_and_so_does_a_process_that_is_gone) {
    pid_t pid = start(stay);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    CHECK_EQ_INT(life_after(pid, SIGKILL, WEXITED), HF_LIFE_ENDED);
    waitpid(pid, NULL, 0), CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_ENDED);
    end(pid);
}

TEST(a_process_counts_as_alive_until_its_last_thread_ends) {
    pid_t pid = start(leave_to_thread);
    for (int tries = 0; state_of(pid) != 'Z' && tries < 10000; tries++) usleep(1000);
    CHECK_EQ_INT(state_of(pid), 'Z');
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    CHECK_EQ_INT(life_after(pid, SIGKILL, WEXITED), HF_LIFE_ENDED);
    end(pid);
}

TEST(a_process_that_replaced_its_program_by_exec_counts_as_alive) {
    pid_t pid = start(become_another_program);
    await_program(pid, "sleep"), CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    CHECK_EQ_INT(life_after(pid, SIGKILL, WEXITED), HF_LIFE_ENDED);
    end(pid);
}

/* ---- records of other processes, boots and namespaces ---- */

static hf_life life_by(const char *text) {
    unlink(path_of(OTHER));
    if (symlink(text, path_of(OTHER)) != 0) return HF_LIFE_UNKNOWN;
    hf_life life = hf_crash_probe_process(OTHER);
    unlink(path_of(OTHER));
    return life;
}

/* Returns a process id that no process has: its process has ended and was collected. */
static pid_t dead_id(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, NULL, 0);
    return pid;
}

TEST(only_a_complete_record_of_this_boot_and_pid_namespace_proves_a_death) {
    char place[128], text[256];
    read_place(place, sizeof place);
    long dead = (long)dead_id();
    snprintf(text, sizeof text, "%s %ld", place, dead), CHECK_EQ_INT(life_by(text), HF_LIFE_ENDED);
    static const char *const behind[] =
        LIST("", " ", " 0", " -5", " 1x", " x", " -1", " 99999999999", " 99999999999999999999",
             "9 7", " 7 ", " 7 0", " 7 1", " 7 -1", " 7 x", " 7 8 9", " 7  8", " 7 8x");
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        snprintf(text, sizeof text, "%s%s", place, behind[i]);
        CHECK_OR(life_by(text) == HF_LIFE_UNKNOWN, "\"%s\"", text);
    }
    for (size_t i = 0; i < strlen(place); i++) { /* of another format, boot or namespace */
        snprintf(text, sizeof text, "%s %ld", place, dead);
        text[i] = text[i] == '7' ? '8' : '7';
        CHECK_OR(life_by(text) == HF_LIFE_UNKNOWN, "\"%s\"", text);
    }
    snprintf(text, sizeof text, "%s9%ld", place, dead); /* of a namespace with a longer number */
    CHECK_OR(life_by(text) == HF_LIFE_UNKNOWN, "\"%s\"", text);
    memset(text, '1', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_EQ_INT(life_by(text), HF_LIFE_UNKNOWN);
}

/* Containers may share the directory, but not the meaning of process ids. */
TEST(a_crash_record_names_the_boot_and_the_pid_namespace_as_the_kernel_does) {
    char place[128], boot[64] = "", wanted[192];
    struct stat namespace;
    read_place(place, sizeof place);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY);
    CHECK(fd >= 0 && read(fd, boot, 36) == 36);
    close(fd);
    CHECK_EQ_INT(stat("/proc/self/ns/pid", &namespace), 0);
    snprintf(wanted, sizeof wanted, "1 %s %llu", boot, (unsigned long long)namespace.st_ino);
    CHECK_STR(place, wanted);
}

static void *store_id(void *id) {
    *(volatile pid_t *)id = (pid_t)syscall(SYS_gettid);
    stay();
    return NULL;
}

TEST(a_process_whose_id_another_process_or_thread_reuses_counts_as_alive) {
    char place[128], text[256];
    volatile pid_t id = 0;
    pthread_t thread;
    read_place(place, sizeof place);
    snprintf(text, sizeof text, "%s %ld", place, (long)getpid());
    CHECK_EQ_INT(life_by(text), HF_LIFE_RUNNING);
    snprintf(text, sizeof text, "%s 1", place), CHECK_EQ_INT(life_by(text), HF_LIFE_RUNNING);
    CHECK_EQ_INT(pthread_create(&thread, NULL, store_id, (void *)&id), 0);
    while (id == 0) usleep(1000);
    snprintf(text, sizeof text, "%s %ld", place, (long)id);
    CHECK_EQ_INT(life_by(text), HF_LIFE_RUNNING);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

/* ---- forks ---- */

/* An emulator may not wipe memory at a fork, and accept advice that does not exist. */
static bool wipes_at_fork(void) {
    bool wipes = false;
#ifdef MADV_WIPEONFORK
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    wipes = madvise(page, size, -1) != 0 && madvise(page, size, MADV_WIPEONFORK) == 0;
    munmap(page, size);
#endif
    return wipes;
}

/* As fork, without the handlers of pthread_atfork. */
static pid_t fork_alone(void) {
#ifdef SYS_fork
    return (pid_t)syscall(SYS_fork);
#else
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
}

TEST(a_forked_child_that_ran_no_fork_handlers_is_not_taken_for_its_parent) {
    int status;
    unsigned own = hf_process_number();
    if (!wipes_at_fork()) return;
    pid_t child = fork_alone();
    if (child == 0) _exit(hf_process_number() != own ? 0 : 1);
    CHECK_EQ_INT(waitpid(child, &status, 0), child);
    CHECK_EQ_INT(status, 0);
    CHECK_EQ_U64(hf_process_number(), own);
}

/* ---- the directory ---- */

/* With the rights of root, which opens what belongs to others. */
static bool refuses_what_belongs_to_another_user(void) {
    char directory[64];
    uid_t user = 1900000000u + (uid_t)getpid();
    if (geteuid() != 0 || prctl(PR_SET_SECUREBITS, 1 << 2) != 0) return true;
    snprintf(directory, sizeof directory, "/dev/shm/holdfast-%lu", (unsigned long)user);
    if (setuid(user) != 0 || mkdir(directory, 0700) != 0) return false;
    bool given = chown(directory, user + 1, (gid_t)-1) == 0;
    bool refused = !hf_crash_record(OTHER) && errno == EPERM;
    rmdir(directory);
    return !given || refused;
}

static bool is_refused(const char *name) {
    int open = check_open_descriptors();
    bool made = hf_crash_record(name);
    return !made && hf_crash_probe_process(name) == HF_LIFE_UNKNOWN &&
           check_open_descriptors() == open;
}

static bool refuses_what_others_may_use(const char *directory) {
    static const mode_t modes[] = {0770, 0740, 0720, 0710, 0707, 0704, 0702, 0701};
    bool refused = mkdir(directory, 0700) == 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        refused = refused && chmod(directory, modes[i]) == 0 && is_refused(OTHER);
    rmdir(directory);
    return refused;
}

static bool refuses_a_link(const char *directory) {
    char own[80];
    snprintf(own, sizeof own, "%s-own", directory);
    bool refused = mkdir(own, 0700) == 0 && symlink(own, directory) == 0 && is_refused(OTHER);
    unlink(directory);
    rmdir(own);
    return refused;
}

static bool refuses_a_file(const char *directory) {
    int fd = open(directory, O_CREAT | O_WRONLY, 0600);
    bool refused = fd >= 0 && close(fd) == 0 && is_refused(OTHER);
    unlink(directory);
    return refused;
}

static bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static bool is_seen(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && info.st_mtime != 0;
}

static bool age(const char *path, time_t seconds) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - seconds}};
    return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool makes_another_record(void) {
    bool made = hf_crash_record(OTHER);
    hf_crash_forget(OTHER);
    return made;
}

/* Makes a record after the last sweep was this many seconds ago. */
static bool makes_another_record_after(const char *directory, time_t seconds) {
    return age(printed("%s/swept", directory), seconds) && makes_another_record();
}

static bool sweeps(const char *directory) {
    return makes_another_record_after(directory, 3601);
}

static bool sweeps_after_a_day(const char *directory) {
    char path[128];
    pid_t living = start(stay);
    snprintf(path, sizeof path, "%s/%s", directory, uuid);
    bool good = !is_seen(path) && sweeps(directory) && !is_seen(path);
    good = good && age(path, 100000) && sweeps(directory) && exists(path);
    kill(living, SIGKILL);
    waitpid(living, NULL, 0);
    good = good && age(path, time(NULL)) && sweeps(directory) && is_seen(path);
    good = good && age(path, 86300) && sweeps(directory) && exists(path);
    good = good && age(path, 86500) && sweeps(directory) && !exists(path);
    unlink(path);
    remove_directory(directory);
    return good;
}

static bool sweeps_once_an_hour(const char *directory) {
    char path[128];
    pid_t living = start(stay); /* this sweeps */
    snprintf(path, sizeof path, "%s/%s", directory, uuid);
    kill(living, SIGKILL);
    waitpid(living, NULL, 0);
    bool good = makes_another_record() && !is_seen(path);
    good = good && makes_another_record_after(directory, 3500) && !is_seen(path);
    good = good && makes_another_record_after(directory, 3601) && is_seen(path);
    good = good && age(path, time(NULL)) && makes_another_record() && !is_seen(path);
    good = good && makes_another_record_after(directory, -60) && is_seen(path); /* set back */
    good = good && age(path, time(NULL)) && makes_another_record() && !is_seen(path);
    unlink(path);
    remove_directory(directory);
    return good;
}

static bool sweeps_behind_a_record(const char *directory) {
    char lock[128];
    bool good = hf_crash_record(new_uuid());
    int fd = hf_crash_lock_job(uuid);
    snprintf(lock, sizeof lock, "%s/%s.job", directory, uuid);
    good = good && fd >= 0 && sweeps(directory) && exists(lock);
    unlink(path_of(uuid));
    good = good && sweeps(directory) && !exists(lock);
    remove_directory(directory);
    return good;
}

/* Every waiter asks about the holder. */
static bool asks_without_a_directory(const char *directory) {
    bool good = hf_crash_probe_process(OTHER) == HF_LIFE_UNKNOWN && !exists(directory);
    good = good && hf_crash_lock_job(OTHER) == -1 && !exists(directory);
    good = good && !hf_crash_record_job(OTHER, getpgrp(), 0) && !exists(directory);
    rmdir(directory);
    return good;
}

static pid_t others; /* a group of processes of another user */

/* A process dies whose job is that group, which kill may not ask for. */
static bool leaves_a_job_of_another_user(const char *directory) {
    int status = -1;
    const char *name = new_uuid();
    pid_t pid = fork();
    if (pid == 0) {
        bool made = hf_crash_record(name) && hf_crash_lock_job(name) >= 0;
        _exit(made && hf_crash_record_job(name, others, 0) ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    bool good = status == 0;
    for (int i = 0; i < 20; i++) good = good && hf_crash_probe_process(name) == HF_LIFE_UNSURE;
    hf_crash_forget(name);
    remove_directory(directory);
    return good;
}

/* Whether it may be asked for or not. */
static bool takes_another_users_process_for_alive(const char *directory) {
    char place[128], text[256];
    read_place(place, sizeof place);
    snprintf(text, sizeof text, "%s %ld", place, (long)others);
    bool good = place[0] && life_by(text) == HF_LIFE_RUNNING;
    remove_directory(directory);
    return good;
}

TEST(a_process_of_another_user_counts_as_alive_if_it_exists) {
    others = fork();
    if (others == 0) {
        alarm(20);
        stay();
    }
    setpgid(others, others);
    int status = as_nobody(leaves_a_job_of_another_user);
    int other_status = as_nobody(takes_another_users_process_for_alive);
    kill_and_collect(others);
    CHECK_EQ_INT(status, 0);
    CHECK_EQ_INT(other_status, 0);
}

TEST(a_crash_record_directory_that_other_users_may_use_is_refused) {
    CHECK_EQ_INT(as_nobody(refuses_what_others_may_use), 0);
    CHECK_EQ_INT(as_nobody(refuses_a_link), 0);
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) _exit(refuses_what_belongs_to_another_user() ? 0 : 1);
    waitpid(pid, &status, 0), CHECK_EQ_INT(status, 0), CHECK_EQ_INT(as_nobody(refuses_a_file), 0);
}

/* What it opens then has the numbers of the standard streams. */
static bool works_without_standard_streams(const char *directory) {
    for (int fd = 0; fd < 3; fd++) close(fd);
    bool good = hf_crash_record(new_uuid()) && hf_crash_probe_process(uuid) == HF_LIFE_RUNNING;
    int lock = hf_crash_lock_job(uuid);
    good = good && lock >= 0 && hf_crash_record_job(uuid, getpgrp(), 0);
    good = good && hf_crash_forget(uuid) && hf_crash_probe_process(uuid) == HF_LIFE_UNKNOWN;
    close(lock);
    remove_directory(directory);
    return good && open("/", O_RDONLY) == 0; /* nothing is left open */
}

TEST(a_process_without_standard_streams_can_write_crash_records) {
    CHECK_EQ_INT(as_nobody(works_without_standard_streams), 0);
}

/* In a directory that has no /proc. Returns what has gone wrong, 0: nothing. */
static int know_nothing_in(const char *directory) {
    if (chroot(directory) != 0) return errno == EPERM ? 0 : 2;
    return is_refused(OTHER) && !hf_crash_record_job(OTHER, getpgrp(), 0) ? 0 : 1;
}

TEST(without_the_proc_file_system_no_process_counts_as_dead) {
    char directory[] = "/tmp/test_crash_record.XXXXXX";
    int status;
    if (!mkdtemp(directory)) abort();
    pid_t child = fork();
    if (child == 0) _exit(know_nothing_in(directory));
    CHECK_EQ_INT(waitpid(child, &status, 0), child);
    rmdir(directory), CHECK_EQ_INT(status, 0);
}

TEST(crash_records_of_dead_processes_are_removed_after_a_day_and_those_of_live_ones_never) {
    CHECK_EQ_INT(as_nobody(sweeps_after_a_day), 0);
}

TEST(a_client_checks_the_crash_records_of_other_processes_once_an_hour) {
    CHECK_EQ_INT(as_nobody(sweeps_once_an_hour), 0);
}

TEST(a_jobs_lock_file_is_removed_after_its_crash_record) {
    CHECK_EQ_INT(as_nobody(sweeps_behind_a_record), 0);
}

TEST(only_a_client_that_writes_a_crash_record_creates_the_directory) {
    CHECK_EQ_INT(as_nobody(asks_without_a_directory), 0);
}

TEST(removing_old_crash_records_leaks_no_descriptor_if_memory_runs_out) {
    int open = check_open_descriptors();
    reads_no_directory = true;
    bool made = hf_crash_record(new_uuid());
    reads_no_directory = false;
    int left = check_open_descriptors() - open;
    hf_crash_forget(uuid), CHECK(made), CHECK_EQ_INT(left, 0);
}

/* A uuid belongs to one process. */
TEST(a_crash_record_is_never_replaced_by_another_process) {
    CHECK(hf_crash_record(new_uuid()));
    CHECK(!hf_crash_record(uuid));
    CHECK_EQ_INT(errno, EEXIST);
    hf_crash_forget(uuid);
}

CRASH_MAIN
#else
TEST(a_client_on_a_system_that_cannot_prove_deaths_writes_no_crash_record) {
    CHECK(!hf_crash_record("cccccccc-2222-8333-8444-555555555555"));
    CHECK_EQ_INT(errno, ENOSYS);
    CHECK_EQ_INT(hf_crash_probe_process("cccccccc-2222-8333-8444-555555555555"), HF_LIFE_UNKNOWN);
    CHECK(hf_crash_forget("cccccccc-2222-8333-8444-555555555555"));
}

CHECK_MAIN
#endif
