/* One descriptor that stands for many: it is readable when one of the watched descriptors is ready,
 * or at a given time. An event loop watches only this one.
 *
 * On Linux, it is an epoll set. On other systems, or with HF_PORTABLE, a thread polls and writes to
 * a pipe. */
#ifndef HF_READY_H
#define HF_READY_H

#include "holdfast.h"
#include "net.h"

typedef struct hf_ready hf_ready;

/* One descriptor to watch; fd is -1 for none. `file` distinguishes files that have had the same
 * descriptor number. */
typedef struct hf_watch {
    int fd;
    hf_file file;
    short events; /* as in struct pollfd: POLLIN, POLLOUT */
} hf_watch;

/* Returns NULL and sets errno when out of memory, descriptors or threads. The caller frees it. */
hf_ready *hf_ready_new(void);
void hf_ready_free(hf_ready *ready);

/* In the child of a fork: closes its copies of the descriptors, and frees no memory. */
void hf_ready_forget(hf_ready *ready);

/* Returns the descriptor, which never changes. Wait until it is readable, but never read it. */
int hf_ready_fd(const hf_ready *ready);

/* Replaces the list: the descriptor is readable when one of these is ready, or at the time set by
 * hf_ready_set_time. An entry at another index than before is watched like a new one. Returns false
 * when out of memory or watches: then call it again soon. */
bool hf_ready_watch(hf_ready *ready, const hf_watch *list, size_t count);

/* Stops watching entry i until the next list. Call it before the descriptor may be closed: epoll
 * drops a closed descriptor only if no other process, such as a forked child, has a copy. */
void hf_ready_unwatch(hf_ready *ready, size_t i);

/* Also makes the descriptor readable at the time `at`. An earlier time that was set and has not
 * passed remains set: the descriptor may become readable too early, but never too late. */
void hf_ready_set_time(hf_ready *ready, hf_time at, hf_time now);

#endif
