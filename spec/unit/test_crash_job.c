#include "crash_rig.h"

#ifdef HF_LINUX

/* ---- jobs ---- */

static pid_t feed(void) {
    pid_t pid;
    if (read(pids[0], &pid, sizeof pid) != sizeof pid) abort();
    return pid;
}

static hf_time hold; /* for which the lock of the next job must stay held */

/* As holdfast run: a process makes the record of a job that runs this. Returns the process and the
 * job. What is left of them becomes this program's. */
static pid_t start_job(void (*run)(int lock), pid_t *job) {
    int ready[2];
    const char *name = new_uuid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe(pids) != 0 || pipe(ready) != 0) abort();
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        bool made = hf_crash_record(name);
        int lock = hf_crash_lock_job(name);
        pid_t child = made && lock >= 0 ? fork() : -1;
        if (child == 0) {
            alarm(20);
            setpgid(0, 0);
            run(lock);
        }
        setpgid(child, child);
        close(lock);
        if (child < 0 || !hf_crash_record_job(name, child, hold)) _exit(1);
        if (write(ready[1], &child, sizeof child) != sizeof child) _exit(1);
        stay();
    }
    if (read(ready[0], job, sizeof *job) != sizeof *job) abort();
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void end_job(void) {
    close(pids[0]);
    close(pids[1]);
    hf_crash_forget(uuid);
}

/* The command and the job that it runs. */
static void kill_both(pid_t command, pid_t job) {
    kill_and_collect(command);
    kill_and_collect(job);
}

/* The job ends with the process that has left it. */
static void end_with(pid_t apart) {
    kill_and_collect(apart);
    end_job();
}

static bool is_proved(hf_life life) {
    return life == HF_LIFE_ENDED || life == HF_LIFE_JOB_ENDED;
}

static bool is_never_proved(int tries) {
    bool never = true;
    for (int i = 0; never && i < tries; i++) never = !is_proved(hf_crash_probe_process(uuid));
    return never;
}

/* Waits until the life is none of these two. A dead process is in its group until its parent has
 * collected it; a program of this machine that is just being started may be part of the job. */
static hf_life life_other_than(hf_life one, hf_life two) {
    hf_life life = hf_crash_probe_process(uuid);
    for (int tries = 0; (life == one || life == two) && tries < 10000; tries++) {
        usleep(1000);
        life = hf_crash_probe_process(uuid);
    }
    return life;
}

static hf_life life_in_the_end(void) {
    return life_other_than(HF_LIFE_RUNNING, HF_LIFE_UNSURE);
}

static void stay_as_job(int lock) {
    (void)lock;
    stay();
}

/* As a program does that closes all descriptors but its own. */
static void stay_without_descriptor(int lock) {
    close(lock);
    send_pid(getpid());
    stay();
}

/* The kernel kills a job's first process with the holder. */
TEST(a_job_whose_first_process_has_not_been_reaped_counts_as_about_to_end) {
    pid_t job, pid = start_job(stay_as_job, &job);
    kill_and_collect(pid);
    kill(job, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)job, &info, WEXITED | WNOWAIT); /* it stays a zombie */
    hf_life life = hf_crash_probe_process(uuid);
    kill_and_collect(job), CHECK_EQ_INT(life, HF_LIFE_UNSURE);
    CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    end_job();
}

TEST(a_job_counts_as_ended_once_the_last_process_of_its_group_has_ended) {
    pid_t job, pid = start_job(stay_without_descriptor, &job);
    CHECK_EQ_INT(feed(), job);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    kill_and_collect(pid), CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_UNSURE);
    kill(job, SIGSTOP), CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_UNSURE);
    kill_and_collect(job), CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    end_job();
}

/* ---- a job that starts while a waiter reads the record ---- */

static pid_t late_command;
static int gate[2]; /* a pipe: one byte lets the command start its job */

/* The command starts its job and ends, while the job goes on. */
static void start_late(void) {
    if (write(gate[1], "b", 1) != 1) abort();
    waitpid(late_command, NULL, 0);
}

static int run_late(const char *name) {
    char byte;
    alarm(20);
    if (!hf_crash_record(name) || write(pids[1], "r", 1) != 1) return 1;
    int lock = hf_crash_lock_job(name);
    if (read(gate[0], &byte, 1) != 1 || lock < 0) return 1;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        setpgid(0, 0);
        stay();
    }
    setpgid(child, child);
    if (!hf_crash_record_job(name, child, 0)) return 1;
    send_pid(child);
    return 0;
}

TEST(a_job_that_starts_after_a_waiter_has_read_its_holders_record_counts_as_alive) {
    char byte;
    const char *name = new_uuid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe(pids) != 0 || pipe(gate) != 0) abort();
    late_command = fork();
    if (late_command == 0) _exit(run_late(name));
    if (read(pids[0], &byte, 1) != 1) abort();
    on_record_read = start_late;
    hf_life life = hf_crash_probe_process(uuid);
    pid_t job = feed();
    CHECK_EQ_INT(life, HF_LIFE_UNSURE);
    kill_and_collect(job), CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    close(gate[0]), close(gate[1]);
    end_job();
}

TEST(a_job_counts_as_alive_if_the_search_for_its_processes_takes_too_long) {
    pid_t job, pid = start_job(stay_without_descriptor, &job);
    CHECK_EQ_INT(feed(), job);
    kill_both(pid, job);
    step = HF_SECOND / 4; /* two processes, and the half of a second is over */
    hf_life life = life_other_than(HF_LIFE_RUNNING, HF_LIFE_RUNNING);
    step = 0;
    CHECK_EQ_INT(life, HF_LIFE_UNSURE);
    CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    end_job();
}

static void start_one_in_the_group(int lock) {
    if (fork() > 0) stay();
    alarm(20);
    stay_without_descriptor(lock);
}

/* As a shell that has started a program in the background. */
TEST(a_job_counts_as_alive_even_if_its_group_leader_has_ended) {
    if (is_emulated()) return;
    pid_t job, pid = start_job(start_one_in_the_group, &job), member = feed();
    kill_both(pid, job);
    bool left = has_ended(job), goes_on = true;
    for (int i = 0; i < 20; i++)
        goes_on = goes_on && hf_crash_probe_process(uuid) == HF_LIFE_RUNNING;
    kill_and_collect(member);
    hf_life life = life_in_the_end();
    end_job();
    CHECK(left);
    CHECK(goes_on);
    CHECK_EQ_INT(life, HF_LIFE_JOB_ENDED);
}

/* Another user can create it, so it is not the file that the job keeps locked. */
TEST(a_jobs_lock_file_owned_by_another_user_proves_no_death) {
    if (is_emulated()) return;
    if (geteuid() != 0) return;
    pid_t job, pid = start_job(stay_as_job, &job);
    kill_both(pid, job);
    const char *name = printed("%s.job", uuid);
    bool given = chown(path_of(name), 1900000000u, (gid_t)-1) == 0, goes_on = true;
    for (int i = 0; i < 20; i++)
        goes_on = goes_on && hf_crash_probe_process(uuid) == HF_LIFE_RUNNING;
    bool back = chown(path_of(name), 0, (gid_t)-1) == 0;
    hf_life life = life_in_the_end();
    end_job();
    CHECK(!given || goes_on);
    CHECK(!given || (back && life == HF_LIFE_JOB_ENDED));
}

/* A version without jobs reads "<place> <digits>" and nothing else. */
TEST(an_older_holdfast_version_cannot_misread_a_jobs_crash_record) {
    char place[128], text[192] = "", own[192];
    pid_t job, pid = start_job(stay_as_job, &job);
    CHECK(readlink(path_of(uuid), text, sizeof text - 1) > 0);
    kill_both(pid, job);
    end_job();
    read_place(place, sizeof place);
    snprintf(own, sizeof own, "%s %ld %ld", place, (long)pid, (long)job), CHECK_STR(text, own);
}

TEST(a_holdfast_command_that_outlives_its_job_counts_as_alive) {
    pid_t job, pid = start_job(stay_as_job, &job);
    kill_and_collect(job); /* its parent has not collected it */
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    kill_and_collect(pid);
    waitpid(job, NULL, 0), CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    end_job();
}

/* The job starts a process in a session of its own, which ends by itself if a check fails. */
static pid_t start_apart(void) {
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        setsid();
        send_pid(getpid());
    }
    return pid;
}

static void leave_one_apart(int lock) {
    (void)lock;
    start_apart();
    stay();
}

static void leave_one_cut_off(int lock) {
    if (start_apart() == 0) close(lock);
    stay();
}

static size_t other_variables; /* bytes of the environment before the uuid */
static size_t variables_behind;

static void leave_a_worker(int lock) {
    char owner[64], other[8192] = "", behind[16384] = "";
    char *environment[] = {other, owner, behind, NULL};
    size_t before = sizeof "HOLDFAST_OWNER";
    if (other_variables > before) memset(other, 'X', other_variables - before - 1);
    memset(behind, 'X', variables_behind);
    snprintf(owner, sizeof owner, "HOLDFAST_OWNER=%s:1", uuid);
    if (start_apart() > 0) stay();
    close(lock);
    execle("/bin/sleep", "sleep", "60", (char *)NULL, environment);
}

static void leave_one_without_environment(int lock) {
    char *environment[] = {NULL};
    if (start_apart() > 0) stay();
    close(lock);
    execle("/bin/sleep", "sleep", "60", (char *)NULL, environment);
}

static pid_t left_behind(void (*run)(int lock)) {
    pid_t job, pid = start_job(run, &job), apart = feed();
    kill_both(pid, job);
    return apart;
}

static pid_t left_asleep(void (*run)(int lock)) {
    pid_t apart = left_behind(run);
    await_program(apart, "sleep");
    return apart;
}

TEST(a_process_that_left_the_jobs_group_keeps_the_job_alive_by_its_lock_descriptor) {
    if (is_emulated()) return;
    pid_t apart = left_behind(leave_one_apart);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    kill_and_collect(apart), CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    end_job();
}

TEST(a_process_with_the_jobs_environment_keeps_the_job_alive_without_its_lock_descriptor) {
    if (is_emulated()) return;
    pid_t apart = left_asleep(leave_a_worker);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    CHECK_EQ_INT(life_in_the_end(), HF_LIFE_UNKNOWN);
    end_with(apart);
}

/* It is read in pieces. */
TEST(the_owner_is_found_wherever_it_is_in_an_environment) {
    CASES(size_t before, behind) = {{4096 - HF_UUID_SIZE / 2, 0},
                                    {4096 + HF_UUID_SIZE / 2, 0},
                                    {2 * 4096 - HF_UUID_SIZE / 2, 0},
                                    {0, 16000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        other_variables = cases[i].before;
        variables_behind = cases[i].behind;
        pid_t apart = left_asleep(leave_a_worker);
        other_variables = variables_behind = 0;
        CHECK_OR(life_in_the_end() == HF_LIFE_UNKNOWN, "case %zu", i);
        end_with(apart);
    }
}

TEST(a_process_without_the_jobs_descriptor_and_environment_is_not_part_of_the_job) {
    pid_t apart = left_behind(leave_one_cut_off);
    CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    end_with(apart);
}

/* One that has arguments is not just being started. */
TEST(a_process_without_any_environment_is_not_part_of_the_job) {
    pid_t apart = left_asleep(leave_one_without_environment);
    CHECK_EQ_INT(life_in_the_end(), HF_LIFE_JOB_ENDED);
    end_with(apart);
}

TEST(a_job_whose_lock_file_is_missing_or_replaced_counts_as_alive) {
    if (is_emulated()) return;
    pid_t job, pid = start_job(stay_as_job, &job);
    kill_both(pid, job);
    const char *name = printed("%s.job", uuid);
    CHECK_EQ_INT(unlink(path_of(name)), 0);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    CHECK_EQ_INT(mkfifo(path_of(name), 0600), 0);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    CHECK_EQ_INT(unlink(path_of(name)), 0);
    CHECK_EQ_INT(symlink("/etc/passwd", path_of(name)), 0);
    CHECK_EQ_INT(hf_crash_probe_process(uuid), HF_LIFE_RUNNING);
    end_job();
}

TEST(several_waiters_can_check_whether_a_job_has_ended_at_the_same_time) {
    pid_t job, pid = start_job(stay_as_job, &job);
    kill_both(pid, job);
    int fd = open(path_of(printed("%s.job", uuid)), O_RDONLY | O_CLOEXEC);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
    for (int tries = 0; !locked && tries < 10000; tries++) { /* its threads are still ending */
        usleep(1000);
        locked = flock(fd, LOCK_SH | LOCK_NB) == 0;
    }
    hf_life life = life_in_the_end();
    close(fd);
    end_job();
    CHECK(locked);
    CHECK_EQ_INT(life, HF_LIFE_JOB_ENDED);
}

/* Where the arguments of this process begin and its environment ends. */
static bool read_bounds(unsigned long *begin, unsigned long *end) {
    char text[1024] = "";
    int fd = open("/proc/self/stat", O_RDONLY);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    const char *at = size > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 48; field++) at = strchr(at + 1, ' ');
    return at && sscanf(at, "%lu %*s %*s %lu", begin, end) == 2;
}

/* In a thread with a stack of its own, as that of the first one has both. */
static void *drop_arguments_and_environment(void *unused) {
    unsigned long begin, end, page = (unsigned long)sysconf(_SC_PAGESIZE);
    if (!read_bounds(&begin, &end)) return unused;
    begin -= begin % page;
    bool dropped = munmap((void *)begin, (end - begin + page - 1) / page * page) == 0;
    send_pid(dropped ? 1 : 0);
    stay();
    return NULL;
}

static void leave_one_that_starts(int lock) {
    pthread_t thread;
    if (start_apart() > 0) stay();
    close(lock);
    if (pthread_create(&thread, NULL, drop_arguments_and_environment, NULL) == 0)
        pthread_join(thread, NULL);
    _exit(1);
}

/* It may become the job's. Under an emulator the environment is the emulator's. */
TEST(a_process_that_is_just_starting_delays_the_proof_that_a_job_has_ended) {
    if (is_emulated()) return;
    pid_t apart = left_behind(leave_one_that_starts);
    bool delayed = feed() == 1;
    for (int i = 0; i < 20; i++)
        delayed = delayed && hf_crash_probe_process(uuid) == HF_LIFE_UNSURE;
    kill_and_collect(apart);
    hf_life life = life_in_the_end();
    end_job();
    CHECK(delayed);
    CHECK_EQ_INT(life, HF_LIFE_JOB_ENDED);
}

/* ---- processes of a job that nobody can look into, or that do not stand still ---- */

/* In a process namespace of its own, where nothing else is started. Returns 0 if the test returns
 * true, or if this system does not permit such a namespace. */
static int alone(bool (*test)(void), const char *options) {
    int status = 0;
    pid_t pid = geteuid() == 0 ? fork() : -1;
    if (pid == 0) {
        outside = getpid();
        bool is_alone = unshare(CLONE_NEWNS | CLONE_NEWPID) == 0;
        pid_t first = is_alone ? fork() : -1;
        if (first == 0) {
            bool mounted = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                           mount("proc", "/proc", "proc", 0, options) == 0;
            setsid();
            _exit(!mounted || test() ? 0 : 1);
        }
        if (first > 0) waitpid(first, &status, 0);
        _exit(status == 0 ? 0 : 1);
    }
    if (pid > 0) waitpid(pid, &status, 0);
    return status;
}

/* As sudo, or a program that may not be read. */
static void leave_one_unreadable(int lock) {
    if (start_apart() == 0) {
        close(lock);
        prctl(PR_SET_DUMPABLE, 0);
        send_pid(getpid());
    }
    stay();
}

/* The process must be this user's own: root may look into all. */
static bool waits_for_an_unreadable_process(void) {
    char directory[64];
    if (!become_nobody(directory)) return false;
    pid_t apart = left_behind(leave_one_unreadable);
    bool good = feed() == apart && is_never_proved(20);
    kill_and_collect(apart);
    good = good && life_in_the_end() == HF_LIFE_JOB_ENDED;
    end_job();
    remove_directory(directory);
    return good;
}

TEST(a_process_that_this_user_may_not_inspect_prevents_the_proof_that_a_job_has_ended) {
    CHECK_EQ_INT(alone(waits_for_an_unreadable_process, NULL), 0);
}

static bool waits_without_a_description(void) {
    char directory[64];
    if (!become_nobody(directory)) return false;
    pid_t apart = left_behind(leave_one_unreadable);
    bool good = feed() == apart && truncate(path_of(printed("%s.job", uuid)), 0) == 0 &&
                is_never_proved(20);
    end_with(apart);
    remove_directory(directory);
    return good;
}

TEST(a_job_of_an_older_version_is_not_taken_for_ended_while_a_process_cannot_be_inspected) {
    CHECK_EQ_INT(alone(waits_without_a_description, NULL), 0);
}

static pid_t start_unreadable(void) {
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        setsid();
        prctl(PR_SET_DUMPABLE, 0);
        stay();
    }
    usleep(50000); /* five ticks of the clock by which starts are compared */
    return pid;
}

static bool ignores_an_older_process(void) {
    char directory[64];
    if (!become_nobody(directory)) return false;
    pid_t older = start_unreadable(), job, pid = start_job(stay_as_job, &job);
    kill_both(pid, job);
    bool good = life_in_the_end() == HF_LIFE_JOB_ENDED;
    kill_and_collect(older);
    end_job();
    remove_directory(directory);
    return good;
}

TEST(an_unreadable_process_that_is_older_than_the_job_is_not_part_of_it) {
    CHECK_EQ_INT(alone(ignores_an_older_process, NULL), 0);
}

/* How a daemon, which is older than the job, starts an unreadable process after it. */
static struct beside {
    bool leaves;     /* does not remain the parent: its child's new parent may also be the job's */
    bool in_its_own; /* session; else in a session that the process begins */
    bool logs_in;    /* as sshd and cron do */
    bool proved;     /* that the job has ended, all the same */
} beside;

/* leaver: the parent that ends soon; 0: the parent stays. */
static void be_unreadable(int answer, pid_t leaver) {
    pid_t pid = getpid();
    int fd = beside.logs_in ? open("/proc/self/loginuid", O_WRONLY) : -1;
    bool good = !beside.logs_in || (fd >= 0 && write(fd, "1234", 4) == 4);
    alarm(20);
    if (!beside.in_its_own) setsid();
    prctl(PR_SET_DUMPABLE, 0);
    while (leaver != 0 && getppid() == leaver) usleep(1000);
    if (!good || write(answer, &pid, sizeof pid) != sizeof pid) _exit(1);
    stay();
}

/* Begins once a byte comes. */
static void start_daemon(int order, int answer) {
    char byte;
    if (fork() != 0) return;
    alarm(20);
    setsid();
    if (read(order, &byte, 1) != 1) _exit(1);
    pid_t starter = beside.leaves ? fork() : 0, leaver = beside.leaves ? getpid() : 0;
    if (starter == 0 && fork() == 0) be_unreadable(answer, leaver);
    if (starter == 0 && beside.leaves) _exit(0);
    stay();
}

/* While the process of the daemon runs. */
static bool proves_an_end_beside_daemon_or_not(void) {
    int order[2], answer[2];
    pid_t job, started;
    char directory[64];
    if (pipe(order) != 0 || pipe(answer) != 0) abort();
    start_daemon(order[0], answer[1]);
    close(answer[1]);
    int fd = open("/proc/self/loginuid", O_WRONLY); /* the job has a login of its own */
    bool has_login = fd >= 0 && write(fd, "5678", 4) == 4;
    usleep(50000);
    bool good = become_nobody(directory);
    pid_t pid = start_job(stay_as_job, &job);
    good = good && write(order[1], "x", 1) == 1;
    good = good && read(answer[0], &started, sizeof started) == sizeof started;
    kill_both(pid, job);
    bool never = is_never_proved(50);
    end_job();
    remove_directory(directory);
    return good && ((beside.logs_in && !has_login) || never != beside.proved);
}

/* It may have been given a new parent, unless its session or its login shows where it is from. */
TEST(only_an_unreadable_process_that_the_job_may_have_started_prevents_the_proof_of_its_end) {
    static const struct beside cases[] = {{false, false, false, true},
                                          {true, false, false, false},
                                          {true, true, false, true},
                                          {true, false, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        beside = cases[i];
        CHECK_OR(alone(proves_an_end_beside_daemon_or_not, NULL) == 0, "case %zu", i);
    }
}

/* Nor can it be proved that it has ended. */
static bool never_proves_beside_hidden_processes(const char *directory) {
    pid_t apart = left_behind(leave_one_unreadable);
    bool good = feed() == apart && is_never_proved(20);
    kill_and_collect(apart);
    good = good && is_never_proved(20);
    end_job();
    remove_directory(directory);
    return good;
}

static bool finds_hidden_processes(void) {
    pid_t job, pid = start_job(stay_as_job, &job);
    kill_both(pid, job);
    bool sees = life_in_the_end() == HF_LIFE_JOB_ENDED; /* root sees all */
    end_job();
    return sees && as_nobody(never_proves_beside_hidden_processes) == 0;
}

TEST(hidden_processes_prevent_the_proof_that_a_job_has_ended_unless_this_user_can_see_them) {
    CHECK_EQ_INT(alone(finds_hidden_processes, "hidepid=2"), 0);
}

static unsigned rounds;

static const char *mode; /* of `main` */

/* Starts this program anew in the mode, with the owner in its environment. */
static void leave_one_in_mode(int lock) {
    char owner[64], flag[160], pipe_end[32];
    char *environment[] = {owner, flag, pipe_end, NULL};
    snprintf(pipe_end, sizeof pipe_end, "PIPE=%d", pids[1]);
    snprintf(owner, sizeof owner, "HOLDFAST_OWNER=%s:1", uuid);
    snprintf(flag, sizeof flag, "FLAG=%s", getenv("FLAG") ? getenv("FLAG") : "none");
    if (start_apart() > 0) stay();
    close(lock);
    execle("/proc/self/exe", "test", mode, (char *)NULL, environment);
}

/* Whether such a process keeps the job alive for as long as it works. It is found sooner or later,
 * and then the record is gone. */
static bool keeps_alive(void) {
    char flag[128], byte;
    unsigned round = ++rounds;
    snprintf(flag, sizeof flag, "/dev/shm/holdfast-test-%ld-%u", (long)getpid(), round);
    setenv("FLAG", flag, 1);
    close(open(flag, O_CREAT | O_WRONLY, 0600));
    left_behind(leave_one_in_mode);
    feed();
    hf_life life = HF_LIFE_UNSURE;
    time_t end = time(NULL) + 2;
    while (time(NULL) < end && life != HF_LIFE_UNKNOWN && !is_proved(life))
        life = hf_crash_probe_process(uuid);
    unlink(flag);
    unsetenv("FLAG");
    close(pids[1]);
    pids[1] = -1;
    while (read(pids[0], &byte, 1) > 0) continue; /* until the last of them has ended */
    end_job();
    return !is_proved(life);
}

TEST(a_process_that_keeps_changing_its_pid_keeps_its_job_alive) {
    if (getenv("HOLDFAST_RUNNER")) return; /* which would start anew instead */
    mode = "hop";
    for (int i = 0; i < 10; i++) CHECK(keeps_alive());
}

/* As one does that hops during the first list, and from the highest number to the lowest during the
 * second one. */
static bool finds_a_process_that_passes_two_lists(void) {
    passing = left_asleep(leave_a_worker);
    bool found = life_in_the_end() == HF_LIFE_UNKNOWN;
    kill_and_collect(passing);
    end_job();
    return found;
}

TEST(a_process_whose_pid_starts_over_during_the_search_keeps_its_job_alive) {
    CHECK_EQ_INT(alone(finds_a_process_that_passes_two_lists, NULL), 0);
}

TEST(a_process_that_keeps_replacing_its_program_keeps_its_job_alive) {
    if (getenv("HOLDFAST_RUNNER")) return; /* which would start anew instead */
    mode = "replace";
    for (int i = 0; i < 10; i++) CHECK(keeps_alive());
}

TEST(a_process_whose_main_thread_has_ended_keeps_its_job_alive) {
    if (getenv("HOLDFAST_RUNNER")) return; /* which would start anew instead */
    mode = "thread";
    pid_t apart = left_behind(leave_one_in_mode);
    CHECK_EQ_INT(feed(), apart);
    for (int tries = 0; state_of(apart) != 'Z' && tries < 10000; tries++) usleep(1000);
    bool alive = is_never_proved(20);
    end_with(apart);
    CHECK(alive);
}

/* A waiter with few descriptors left cannot look. */
TEST(a_job_counts_as_alive_if_no_descriptor_is_free_to_search_for_its_processes) {
    struct rlimit limit, few;
    pid_t apart = left_asleep(leave_a_worker);
    CHECK_EQ_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int lowest = dup(0);
    close(lowest);
    bool never = true;
    for (int more = 0; never && more < 5; more++) {
        few = (struct rlimit){.rlim_cur = (rlim_t)(lowest + more), .rlim_max = limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &few);
        never = is_never_proved(1);
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    end_with(apart);
    CHECK(never);
}

TEST(a_jobs_death_releases_no_lock_before_the_minimum_hold_time_is_over) {
    if (is_emulated()) return;
    pid_t job, pid;
    hold = HF_SECOND / 4;
    pid = start_job(stay_as_job, &job);
    kill_both(pid, job);
    hf_life early = hf_crash_probe_process(uuid), late = life_in_the_end();
    end_job();
    hold = 1000 * HF_SECOND;
    pid = start_job(stay_as_job, &job);
    hold = 0;
    kill_both(pid, job);
    bool held = is_never_proved(20);
    end_job();
    CHECK_EQ_INT(early, HF_LIFE_RUNNING);
    CHECK_EQ_INT(late, HF_LIFE_JOB_ENDED);
    CHECK(held);
}

TEST(a_jobs_lock_file_becomes_visible_only_once_it_is_locked) {
    char name[64];
    struct stat info;
    CHECK(hf_crash_record(new_uuid()));
    int fd = hf_crash_lock_job(uuid);
    CHECK(fd >= 0);
    CHECK_EQ_INT(names_of_job_locks, 1);
    CHECK_EQ_INT(unlocked, 0);
    CHECK_EQ_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    snprintf(name, sizeof name, "%s.job", uuid), CHECK_EQ_INT(stat(path_of(name), &info), 0);
    CHECK(hf_crash_forget(uuid));
    CHECK_EQ_INT(stat(path_of(name), &info), -1);
    CHECK(hf_crash_forget(uuid));
}

/* Without its name no waiter would ever find the lock. */
TEST(a_jobs_lock_file_that_cannot_be_named_is_reported_and_leaves_no_descriptor) {
    char name[64];
    CHECK(hf_crash_record(new_uuid()));
    snprintf(name, sizeof name, "%s.job", uuid);
    bool made = mkdir(path_of(name), 0700) == 0;
    int open = check_open_descriptors();
    errno = 0;
    int fd = hf_crash_lock_job(uuid), error = errno;
    int left = check_open_descriptors() - open;
    rmdir(path_of(name));
    snprintf(name, sizeof name, "%s.new", uuid);
    unlink(path_of(name));
    CHECK(hf_crash_forget(uuid));
    CHECK(made);
    CHECK_EQ_INT(fd, -1);
    CHECK_EQ_INT(error, EISDIR);
    CHECK_EQ_INT(left, 0);
}

/* By its name a sweep finds what a process has left that died in between. */
TEST(a_jobs_crash_record_is_replaced_by_renaming_a_file_with_the_suffix_new) {
    char first[40], name[64];
    CHECK(hf_crash_record(new_uuid()));
    snprintf(first, sizeof first, "%s", uuid), CHECK(hf_crash_record(new_uuid()));
    int fd = hf_crash_lock_job(first), own = hf_crash_lock_job(uuid);
    CHECK(fd >= 0 && own >= 0);
    close(fd);
    close(own);
    CHECK(hf_crash_record_job(uuid, getpgrp(), 0));
    snprintf(name, sizeof name, "%s.new", uuid), CHECK_STR(renamed, name);
    CHECK(hf_crash_forget(first));
    CHECK(hf_crash_forget(uuid));
}

TEST(a_client_without_a_crash_record_has_no_lock_file_for_its_job) {
    CHECK_EQ_INT(hf_crash_lock_job(new_uuid()), -1);
    CHECK_EQ_INT(errno, ENOENT);
}

CRASH_MAIN
#else
TEST(a_client_on_a_system_that_cannot_prove_deaths_writes_no_crash_record_of_a_job) {
    CHECK_EQ_INT(hf_crash_lock_job("cccccccc-2222-8333-8444-555555555555"), -1);
    CHECK(!hf_crash_record_job("cccccccc-2222-8333-8444-555555555555", 7, 0));
}

CHECK_MAIN
#endif
