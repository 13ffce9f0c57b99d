/* Proves to other clients on this host that a client's process has ended: docs/crash.md.
 *
 * From the creation of a client until it is closed, the memory of this host has a record of its
 * process: a symbolic link /dev/shm/holdfast-<user>/<uuid> that names the boot, the PID namespace
 * and the process. The process itself makes it, so a client whose record is here was made here, and
 * the kernel knows its process. A record that cannot be read, or is malformed, proves nothing.
 *
 * A system without pidfd_open has no records, and proves nothing. */
#ifndef HF_CRASH_H
#define HF_CRASH_H

#include "holdfast.h"

/* Makes the record of a client of this process; call it before the client acquires anything. On
 * failure returns false and sets errno. ENOSYS: no pidfd_open, or /dev/shm is not in memory;
 * ENOENT: no /dev/shm, or no boot id. */
bool hf_crash_record(const char *uuid);

/* Removes the record if there is one. */
void hf_crash_forget(const char *uuid);

/* For hf_client_config. `uuid`: HF_UUID_SIZE hexadecimal digits and hyphens. */
hf_life hf_crash_life(const char *uuid);

#endif
