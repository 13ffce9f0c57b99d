/* Functions of one system, each with its replacement by POSIX. HF_PORTABLE selects the replacements
 * everywhere: macOS and the BSDs use them, and any system can build and test them. */
#ifndef HF_SYSTEM_H
#define HF_SYSTEM_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "holdfast.h"

/* Defined where Linux's own ways are used. No other line of the sources asks for a system. */
#if defined __linux__ && !defined HF_PORTABLE
#define HF_LINUX
#endif

/* The text for an errno value, safe to call from any thread. Returns `text` or a string that lives
 * forever; never NULL. An unknown number gives a text that names it. */
const char *hf_error_text(int error, char *text, size_t size);

/* Returns a monotonic time. Where the system can do that, it advances while the host is suspended,
 * so no lease outlives a suspend. */
hf_time hf_now(void);

/* Writes random bytes for identities, at most 256. On failure returns false and sets errno. */
bool hf_random(unsigned char *bytes, size_t size);

/* Makes a pipe whose ends exec closes. On failure returns false and sets errno. */
bool hf_pipe(int ends[2], bool blocking);

/* A pipe that wakes a thread that polls its reading end. wake: makes it readable. drain: reads all
 * that is there. For pipes that do not block. */
void hf_pipe_wake(int end);
void hf_pipe_drain(int end);

/* Blocks all signals in this thread but those of its own faults. before: gets the mask to set again
 * later. */
void hf_hold_signals(sigset_t *before);

/* Starts a thread that holds signals so. On failure returns false and sets errno. */
bool hf_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

/* Where a program was started with standard streams closed, the next descriptor is one of them, and
 * what it writes to stderr would be sent to a server. Returns the descriptor, or a copy of it above
 * those, which exec closes, in its place; -1, and sets errno: `fd` was -1, or there is none free.
 */
int hf_above_standard(int fd);

/* Returns a stream socket that exec closes and that does not block; on failure -1, and sets errno.
 */
int hf_socket(int family);

/* Makes the system end a TCP connection whose other end is gone, and keep an idle one alive in the
 * tables of NATs and load balancers: it sends a probe after half a minute of silence, and gives up
 * after three without an answer, or when what was sent is not received within 15 s. Where a time
 * cannot be set, the system's own counts. */
void hf_probe_peer(int fd);

/* As send and recv, but never sleep and never raise SIGPIPE. For sockets of hf_socket. */
ssize_t hf_send(int fd, const void *bytes, size_t size);
ssize_t hf_recv(int fd, void *bytes, size_t size);

/* As recv, and sleeps until something comes: at most for the span, a number of whole milliseconds,
 * that the socket was given by hf_prepare_wait; EAGAIN when that is over. A signal handler ends it:
 * EINTR, or EAGAIN when it ran just before. */
void hf_prepare_wait(int fd, hf_time span);
ssize_t hf_recv_wait(int fd, void *bytes, size_t size, hf_time span);

/* As poll, with the signal mask `signals` while it sleeps; NULL: the thread's. With a span of 0 it
 * lets in the signals that are pending. May return 0 before the span is over. */
int hf_poll(struct pollfd *fds, nfds_t count, hf_time span, const sigset_t *signals);

/* A condition whose waits do not depend on the wall clock. hf_cond_wait returns after the span, or
 * before. */
void hf_cond_init(pthread_cond_t *condition);
void hf_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, hf_time span);

/* A number that no ancestor of this process has. A process id would not do: another namespace has
 * its own ids, and ids are used again. A fork that runs no handlers of pthread_atfork is seen only
 * where the kernel wipes a page of memory at a fork. */
unsigned hf_process(void);

/* Returns a number that differs after the file was changed or replaced; 0: there is no file, or
 * `path` is NULL. Take it before the file is read, so that a change during the reading is noticed.
 */
uint64_t hf_stamp_file(const char *path);

/* Keeps the shared object that has this address in memory when it is unloaded, for threads that run
 * its code. Without dladdr, which is not in POSIX, this does nothing: link with -z nodelete there.
 */
void hf_stay_loaded(const void *address);

/* Makes the system send this signal to this process when its parent ends. Returns false if it
 * cannot do that. Safe after a fork. */
bool hf_end_with_parent(int number);

#endif
