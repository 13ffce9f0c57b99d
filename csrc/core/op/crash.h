/* A waiter frees the hold of a process that has crashed on the same host: docs/crash.md.
 *
 * While an acquire waits, it sometimes asks the server who owns the lock. The driver knows whether
 * the process of a client on this host still runs (hf_client_config.life). Once its end is proved,
 * the waiter sends the release that the owner would have sent. The program compares the owner, and
 * no other hold ever has the same one, so the release is harmless if it arrives late or twice. Only
 * a process that a job has started may have its command's owner, as a second hold. */
#ifndef HF_CRASH_RELEASE_H
#define HF_CRASH_RELEASE_H

#include "client.h"

/* When an acquire that waits checks next; HF_NEVER: it does not, or a reply is in flight. */
hf_time hf_crash_at(const hf_op *op);

/* Checks if it is time. */
void hf_crash_tick(hf_op *op, hf_time now);

/* The operation ends. */
void hf_crash_end(hf_op *op);

#endif
