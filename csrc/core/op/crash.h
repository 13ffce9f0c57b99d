/* A waiter frees the hold of a process that has crashed on the same host:
 * docs/explanation/crash.md.
 *
 * While an acquire waits, it asks the server from time to time who owns the lock. The driver knows
 * whether the process of a client on this host is still running (hf_client_config.life). Once it
 * has proof that the owner's process has ended, the waiter sends the owner's release. The program
 * releases the lock only if this owner still holds it, and no other hold ever has the same owner,
 * so the release is harmless if it arrives late or twice. One exception: the processes of a job may
 * enter the job's lock as the same owner, and each adds to its count. A job's lock is therefore
 * freed only if it is held once. */
#ifndef HF_CRASH_RELEASE_H
#define HF_CRASH_RELEASE_H

#include "client.h"

/* Returns when a waiting acquire checks next; HF_NEVER if it never does, or is awaiting a reply. */
hf_time hf_crash_next_check(const hf_op *op);

/* Begins a check if one is due. */
void hf_crash_tick(hf_op *op, hf_time now);

/* Ends the operation's checks. */
void hf_crash_end(hf_op *op);

#endif
