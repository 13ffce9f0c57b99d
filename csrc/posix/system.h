/* Functions that use interfaces of one system, each with a replacement in plain POSIX. HF_PORTABLE
 * selects the replacements: macOS and the BSDs use them, and any system can build and test them. */
#ifndef HF_SYSTEM_H
#define HF_SYSTEM_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "holdfast.h"

/* Defined where Linux's own interfaces are used. No other line of the sources checks the system. */
#if defined __linux__ && !defined HF_PORTABLE
#define HF_LINUX
#endif

/* Returns the message for an errno value: `text`, or a static string; never NULL. For an unknown
 * value, the message contains the number. Safe to call from any thread. */
const char *hf_error_text(int error, char *text, size_t size);

/* Returns a monotonic time. Where possible, it also advances during a suspend of the host, so that
 * leases then run out. */
hf_time hf_now(void);

/* Writes up to 256 random bytes for an identity. On failure returns false and sets errno. */
bool hf_random(unsigned char *bytes, size_t size);

/* Creates a pipe whose ends are close-on-exec and, unless `blocking`, non-blocking. On failure
 * returns false and sets errno. */
bool hf_pipe(int ends[2], bool blocking);

/* Closes the ends that are open, and sets them to -1. Keeps errno. */
void hf_pipe_close(int ends[2]);

/* For a non-blocking pipe that wakes a thread: `wake` makes the reading end readable, and `drain`
 * empties it. */
void hf_pipe_wake(int end);
void hf_pipe_drain(int end);

/* Blocks all signals in this thread except those that its own faults raise, such as SIGSEGV. Stores
 * the old mask in `before`, for the caller to restore. */
void hf_block_signals(sigset_t *before);

/* Starts a thread with blocked signals (hf_block_signals). On failure returns false and sets
 * errno. */
bool hf_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

/* Moves a new descriptor above the standard streams. Otherwise, in a program that was started
 * without one of these, it might become stderr, and messages would be sent to a server. Returns
 * `fd`, or a close-on-exec copy of it; on failure, or if `fd` is -1, -1 with errno. */
int hf_move_above_standard(int fd);

/* Closes the descriptor and keeps errno. Returns -1. */
int hf_close_keeping_errno(int fd);

/* Returns a non-blocking, close-on-exec stream socket. On failure returns -1 and sets errno. */
int hf_socket(int family);

/* Makes the system end a TCP connection whose peer is gone, and keep an idle one alive in the
 * tables of NATs and load balancers: it sends a probe after 30 s of silence, and gives up after
 * three without an answer, or if data is not acknowledged within 15 s. Where a time cannot be set,
 * the system's default applies. */
void hf_probe_peer(int fd);

/* Like send and recv, but they never sleep or raise SIGPIPE. For sockets from hf_socket. */
ssize_t hf_send(int fd, const void *bytes, size_t size);
ssize_t hf_recv(int fd, void *bytes, size_t size);

/* hf_recv_wait is like recv, but sleeps for up to `span` until bytes arrive; EAGAIN: none have
 * arrived. hf_prepare_wait prepares the socket for this span: whole milliseconds, below 1 s. A
 * signal handler ends the sleep with EINTR, unless it ran just before. */
void hf_prepare_wait(int fd, hf_time span);
ssize_t hf_recv_wait(int fd, void *bytes, size_t size, hf_time span);

/* Like poll, but uses the signal mask `signals` during the sleep, or the thread's own if NULL. Lets
 * pending signals be handled even if `span` is 0. May return before the span has passed. */
int hf_poll(struct pollfd *fds, nfds_t count, hf_time span, const sigset_t *signals);

/* A condition variable whose waits do not depend on the wall clock. hf_cond_wait returns after the
 * span or earlier. */
void hf_cond_init(pthread_cond_t *condition);
void hf_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, hf_time span);

/* Returns a number that differs from those of all ancestors of this process. A process id would not
 * do: ids are reused, and each namespace has its own. A fork that does not run the handlers of
 * pthread_atfork is noticed only if the kernel can wipe a page of memory on fork. */
unsigned hf_process_number(void);

/* Returns a number that changes when the file is changed or replaced; 0 if there is no file or
 * `path` is NULL. Call it before you read the file, to detect a change during the reading. */
uint64_t hf_stamp_file(const char *path);

/* Keeps the shared object that contains this address in memory even if it is unloaded, for threads
 * that run its code. Without dladdr, which is not in POSIX, this is a no-op: link with -z nodelete
 * there. */
void hf_stay_loaded(const void *address);

/* Makes the system send this signal to this process when its parent ends. Safe after a fork.
 * Returns false if the system cannot. */
bool hf_die_with_parent(int number);

#endif
