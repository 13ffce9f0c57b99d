/* Searches this host for processes of a job whose holder has ended: docs/explanation/crash.md.
 *
 * A process belongs to the job if its environment names the client that held the lock. A process
 * that may not be inspected, such as sudo, makes the result UNSURE, unless something that it cannot
 * change shows that it is not part of the job: its start time, login, session or ancestors. For
 * this comparison, the holder describes its job in the file that the job keeps locked.
 *
 * The processes of a host change during the search: one may end after it was listed, and its child
 * may have started in a part of the list that was already read. So the list is read again until the
 * search has seen every process in it. */
#ifndef HF_JOB_H
#define HF_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include "holdfast.h"

typedef enum hf_job_finding {
    HF_JOB_ABSENT, /* no process of the job is left */
    HF_JOB_UNSURE, /* there may be a process of the job */
    HF_JOB_PRESENT /* there is a process of the job */
} hf_job_finding;

/* Describes a job in its empty file, before it starts. `file`: open for writing. `first`: the job's
 * first process. `min_hold`: how long from now its lock must remain held, even if all its processes
 * die. On failure returns false and sets errno. */
bool hf_job_describe(int file, pid_t first, hf_time min_hold);

/* Returns whether the job's lock must remain held. `file`: open for reading. */
bool hf_job_is_in_min_hold(int file);

/* Searches for processes of the job. `file`: open for reading. `uuid`: the client that held its
 * lock. */
hf_job_finding hf_job_find(int file, const char *uuid);

#endif
