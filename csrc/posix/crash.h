/* Proves to other clients on this host that a client's process has ended:
 * docs/explanation/crash.md.
 *
 * From the creation of a client until it is closed, the memory of this host has a record of its
 * process: a symbolic link /dev/shm/holdfast-<user>/<uuid> that names the boot, the PID namespace
 * and the process. The process itself makes it, so a client whose record is here was made here, and
 * the kernel knows its process. A record that cannot be read, or is malformed, proves nothing.
 *
 * A process that holds locks for a job starts it in a process group of its own and names the group
 * in its record. The job and what it starts inherit a descriptor of the file <uuid>.job, which is
 * locked with flock until the last of them has closed it. The job has ended if the group is empty,
 * the file is not locked, and no process of the job is found (job.h).
 *
 * A system without pidfd_open has no records, and proves nothing. */
#ifndef HF_CRASH_H
#define HF_CRASH_H

#include <sys/types.h>

#include "holdfast.h"

/* Makes the record of a client of this process; call it before the client acquires anything. On
 * failure returns false and sets errno. ENOSYS: no pidfd_open, or /dev/shm is not in memory;
 * ENOENT: no /dev/shm, or no boot id. */
bool hf_crash_record(const char *uuid);

/* Makes the file that the job of this process keeps locked, for a client that has a record. Returns
 * the descriptor to be inherited, which exec closes; it is the caller's. On failure returns -1 and
 * sets errno. */
int hf_crash_lock_job(const char *uuid);

/* Names the job's process group in the record, for a job that has its file; call it before the job
 * can run. `group`: also the first process of the job. `hold`: for how long from now the death of
 * all of them proves nothing. On failure returns false, sets errno, and the record is as before. */
bool hf_crash_record_job(const char *uuid, pid_t group, hf_time hold);

/* Removes the record. Returns false and sets errno if it is still there. */
bool hf_crash_forget(const char *uuid);

/* For hf_client_config. `uuid`: HF_UUID_SIZE hexadecimal digits and hyphens. */
hf_life hf_crash_life(const char *uuid);

#endif
