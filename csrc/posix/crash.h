/* Proves to other clients on this host that a client's process has ended:
 * docs/explanation/crash.md.
 *
 * From its creation until it is closed, each client has a record in the memory of this host: a
 * symbolic link /dev/shm/holdfast-<user>/<uuid> that names the boot, the PID namespace and the
 * process. Only the client's own process creates the record, so a record found here is that of a
 * process of this kernel. A record that cannot be read, or is malformed, proves nothing.
 *
 * A process that holds locks for a job starts the job in a new process group and names the group in
 * its record. The job and what it starts inherit a descriptor of the file <uuid>.job, which remains
 * locked with flock until the last of them has closed it. The job has ended if the group is empty,
 * the file is not locked, the job's minimum hold has passed, and no process of the job is found
 * (job.h).
 *
 * A system without pidfd_open has no records, and proves nothing. */
#ifndef HF_CRASH_H
#define HF_CRASH_H

#include <sys/types.h>

#include "holdfast.h"

/* Creates the record of a client of this process; call it before the client acquires anything. On
 * failure returns false and sets errno. ENOSYS: there is no pidfd_open, or /dev/shm is not in
 * memory; ENOENT: there is no /dev/shm or no boot id; EPERM: others may use the directory. */
bool hf_crash_record(const char *uuid);

/* Creates and locks the job's file for a client that has a record. Returns a close-on-exec
 * descriptor for the job to inherit, which the caller closes. On failure returns -1 and sets
 * errno. */
int hf_crash_lock_job(const char *uuid);

/* Adds the job's process group to the record. Call it after hf_crash_lock_job and before the job
 * can run. `group`: the group, which is also the id of its first process; above 1. `min_hold`: for
 * this time from now, the death of all its processes proves nothing. On failure returns false, sets
 * errno, and leaves the record unchanged. */
bool hf_crash_record_job(const char *uuid, pid_t group, hf_time min_hold);

/* Removes the record and the job's file. Returns false and sets errno if the record still
 * exists. */
bool hf_crash_forget(const char *uuid);

/* Returns what this host knows about the client's process and its job: the `life` of
 * hf_client_config. `uuid`: HF_UUID_SIZE hexadecimal digits and hyphens. */
hf_life hf_crash_probe_process(const char *uuid);

#endif
