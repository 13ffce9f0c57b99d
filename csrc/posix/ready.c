#include "ready.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "system.h"

static bool is_same_descriptor(const hf_watch *a, const hf_watch *b) {
    return a->fd == b->fd && a->file.device == b->file.device && a->file.inode == b->file.inode;
}

/* ---- the list of watches, and the timer ---- */

typedef struct watches {
    hf_watch *list;
    size_t count, capacity;
} watches;

static bool reserve_watches(watches *all, size_t count) {
    if (count <= all->capacity) return true;
    hf_watch *grown = realloc(all->list, count * sizeof *grown);
    if (!grown) return false;
    all->list = grown;
    all->capacity = count;
    return true;
}

/* Returns whether the set time, `fires_at`, must change: `at` is earlier, or `fires_at` has
 * passed. */
static bool must_change(hf_time fires_at, hf_time at, hf_time now) {
    bool has_passed = fires_at != HF_NEVER && fires_at <= now;
    return at < fires_at || (has_passed && at != fires_at);
}

#ifdef HF_LINUX

#include <sys/epoll.h>
#include <sys/timerfd.h>

/* An epoll set with the watched descriptors and a timer. */
struct hf_ready {
    int epoll, timer;
    hf_file epoll_file, timer_file;
    hf_time fires_at; /* when the timer fires, or HF_NEVER */
    watches watched;  /* what the epoll set contains */
};

static bool change_epoll(const hf_ready *ready, int operation, const hf_watch *watch) {
    struct epoll_event event = {.data.fd = watch->fd};
    if (watch->events & POLLIN) event.events |= EPOLLIN;
    if (watch->events & POLLOUT) event.events |= EPOLLOUT;
    return epoll_ctl(ready->epoll, operation, watch->fd, &event) == 0;
}

/* On failure returns false and leaves `watched` unchanged. */
static bool watch_one(const hf_ready *ready, hf_watch *watched, const hf_watch *wanted) {
    int operation = watched->fd < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    bool same = wanted->fd < 0 || (watched->fd >= 0 && watched->events == wanted->events);
    if (!same && !change_epoll(ready, operation, wanted)) return false;
    *watched = *wanted;
    return true;
}

static bool open_descriptors(hf_ready *ready) {
    ready->epoll = hf_move_above_standard(epoll_create1(EPOLL_CLOEXEC));
    ready->timer =
        hf_move_above_standard(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    return ready->epoll >= 0 && ready->timer >= 0 &&
           change_epoll(ready, EPOLL_CTL_ADD, &(hf_watch){.fd = ready->timer, .events = POLLIN});
}

hf_ready *hf_ready_new(void) {
    hf_ready *ready = calloc(1, sizeof *ready);
    if (!ready) return NULL;
    ready->fires_at = HF_NEVER;
    if (!open_descriptors(ready)) {
        int error = errno;
        hf_ready_free(ready);
        errno = error;
        return NULL;
    }
    ready->epoll_file = hf_file_of(ready->epoll);
    ready->timer_file = hf_file_of(ready->timer);
    return ready;
}

void hf_ready_free(hf_ready *ready) {
    if (!ready) return;
    if (ready->epoll >= 0) close(ready->epoll);
    if (ready->timer >= 0) close(ready->timer);
    free(ready->watched.list);
    free(ready);
}

void hf_ready_forget(hf_ready *ready) {
    hf_file_close(ready->epoll, ready->epoll_file);
    hf_file_close(ready->timer, ready->timer_file);
}

int hf_ready_fd(const hf_ready *ready) {
    return ready->epoll;
}

void hf_ready_unwatch(hf_ready *ready, size_t i) {
    hf_watch *old = i < ready->watched.count ? &ready->watched.list[i] : NULL;
    if (!old || old->fd < 0) return;
    change_epoll(ready, EPOLL_CTL_DEL, old);
    old->fd = -1;
}

/* Removes the old descriptors first: a new one may have the same number. */
bool hf_ready_watch(hf_ready *ready, const hf_watch *list, size_t count) {
    watches *watched = &ready->watched;
    if (!reserve_watches(watched, count)) return false;
    for (size_t i = 0; i < watched->count; i++) {
        hf_watch wanted = i < count ? list[i] : (hf_watch){.fd = -1};
        if (!is_same_descriptor(&watched->list[i], &wanted)) hf_ready_unwatch(ready, i);
    }
    while (watched->count < count) watched->list[watched->count++] = (hf_watch){.fd = -1};
    watched->count = count;
    bool all_watched = true;
    for (size_t i = 0; i < count; i++)
        all_watched = watch_one(ready, &watched->list[i], &list[i]) && all_watched;
    return all_watched;
}

void hf_ready_set_time(hf_ready *ready, hf_time at, hf_time now) {
    if (!must_change(ready->fires_at, at, now)) return;
    hf_time left = at > now ? at - now : 1;
    struct itimerspec timer = {.it_value = {(time_t)(left / HF_SECOND), (long)(left % HF_SECOND)}};
    if (at == HF_NEVER) timer.it_value = (struct timespec){0, 0};
    timerfd_settime(ready->timer, 0, &timer, NULL);
    ready->fires_at = at;
}

#else

#include <pthread.h>

/* A thread polls the descriptors. Once it has notified its owner, it waits for the next list. */
struct hf_ready {
    pthread_mutex_t mutex;
    pthread_t thread;
    bool running, stopping;
    int control[2], notice[2]; /* pipes: "poll again" to the thread, and "ready" to its owner */
    hf_file files[4];
    uint64_t version; /* incremented whenever fires_at or watched is set */
    bool notified;    /* the owner has been notified of this version */
    hf_time fires_at;
    watches watched;
};

static int poll_timeout(hf_time at) {
    hf_time now = hf_now();
    if (at == HF_NEVER) return -1;
    hf_time ms = at > now ? (at - now + HF_MS - 1) / HF_MS : 0;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* Writes the descriptors to poll to `fds`, from index 1 on; the caller adds the control pipe at
 * index 0. Returns the count, including the pipe. When out of memory, the thread polls only the
 * pipe, and soon tries again. */
static size_t copy_polled(hf_ready *ready, struct pollfd **fds, size_t *capacity, int *timeout) {
    size_t count = 1, needed = ready->watched.count + 1;
    struct pollfd *grown = needed > *capacity ? realloc(*fds, needed * sizeof *grown) : *fds;
    *timeout = ready->notified ? -1 : poll_timeout(ready->fires_at);
    if (grown && needed > *capacity) *capacity = needed;
    if (grown) *fds = grown;
    else *timeout = 10;
    for (size_t i = 0; grown && !ready->notified && i < ready->watched.count; i++) {
        const hf_watch *watch = &ready->watched.list[i];
        if (watch->fd >= 0)
            grown[count++] = (struct pollfd){.fd = watch->fd, .events = watch->events};
    }
    return count;
}

static void *run_thread(void *context) {
    hf_ready *ready = context;
    struct pollfd first = {0}, *fds = NULL;
    size_t capacity = 0;
    pthread_mutex_lock(&ready->mutex);
    while (!ready->stopping) {
        int timeout;
        size_t count = copy_polled(ready, &fds, &capacity, &timeout);
        struct pollfd *polled = fds ? fds : &first;
        polled[0] = (struct pollfd){.fd = ready->control[0], .events = POLLIN};
        uint64_t version = ready->version;
        pthread_mutex_unlock(&ready->mutex);
        int ready_count = poll(polled, fds ? count : 1, timeout);
        bool was_woken = ready_count > 0 && polled[0].revents != 0; /* by poll_again */
        hf_pipe_drain(ready->control[0]);
        pthread_mutex_lock(&ready->mutex);
        bool is_due = ready_count >= 0 && !(was_woken && ready_count == 1) &&
                      version == ready->version && !ready->notified && !ready->stopping;
        if (is_due) hf_pipe_wake(ready->notice[1]);
        ready->notified = ready->notified || is_due;
    }
    pthread_mutex_unlock(&ready->mutex);
    free(fds);
    return NULL;
}

static int *pipe_end(hf_ready *ready, int i) {
    return i < 2 ? &ready->control[i] : &ready->notice[i - 2];
}

static bool open_pipes(hf_ready *ready) {
    if (!hf_pipe(ready->control, false) || !hf_pipe(ready->notice, false)) return false;
    for (int i = 0; i < 4; i++) ready->files[i] = hf_file_of(*pipe_end(ready, i));
    return true;
}

static bool start_thread(hf_ready *ready) {
    ready->running = hf_thread_start(&ready->thread, run_thread, ready);
    return ready->running;
}

hf_ready *hf_ready_new(void) {
    hf_ready *ready = calloc(1, sizeof *ready);
    if (!ready) return NULL;
    for (int i = 0; i < 4; i++) *pipe_end(ready, i) = -1;
    pthread_mutex_init(&ready->mutex, NULL);
    ready->fires_at = HF_NEVER;
    if (open_pipes(ready) && start_thread(ready)) return ready;
    int error = errno;
    hf_ready_free(ready);
    errno = error;
    return NULL;
}

static void poll_again(hf_ready *ready) {
    ready->version++;
    ready->notified = false;
    hf_pipe_drain(ready->notice[0]);
    hf_pipe_wake(ready->control[1]);
}

void hf_ready_free(hf_ready *ready) {
    if (!ready) return;
    if (ready->running) {
        pthread_mutex_lock(&ready->mutex);
        ready->stopping = true;
        hf_pipe_wake(ready->control[1]);
        pthread_mutex_unlock(&ready->mutex);
        pthread_join(ready->thread, NULL);
    }
    for (int i = 0; i < 4; i++)
        if (*pipe_end(ready, i) >= 0) close(*pipe_end(ready, i));
    pthread_mutex_destroy(&ready->mutex);
    free(ready->watched.list);
    free(ready);
}

void hf_ready_forget(hf_ready *ready) {
    for (int i = 0; i < 4; i++) hf_file_close(*pipe_end(ready, i), ready->files[i]);
}

int hf_ready_fd(const hf_ready *ready) {
    return ready->notice[0];
}

/* A no-op: the thread polls descriptor numbers, so a copy in another process does not keep a closed
 * descriptor watched. */
void hf_ready_unwatch(hf_ready *ready, size_t i) {
    (void)ready;
    (void)i;
}

static bool is_same_list(const watches *watched, const hf_watch *list, size_t count) {
    for (size_t i = 0; i < count && count == watched->count; i++) {
        if (!is_same_descriptor(&watched->list[i], &list[i]) ||
            watched->list[i].events != list[i].events)
            return false;
    }
    return count == watched->count;
}

/* After a notification, the thread polls even an unchanged list again, because the caller may have
 * served the ready descriptor. */
bool hf_ready_watch(hf_ready *ready, const hf_watch *list, size_t count) {
    pthread_mutex_lock(&ready->mutex);
    bool reserved = reserve_watches(&ready->watched, count);
    if (reserved && (ready->notified || !is_same_list(&ready->watched, list, count))) {
        if (count > 0) memcpy(ready->watched.list, list, count * sizeof *list);
        ready->watched.count = count;
        poll_again(ready);
    }
    pthread_mutex_unlock(&ready->mutex);
    return reserved;
}

void hf_ready_set_time(hf_ready *ready, hf_time at, hf_time now) {
    pthread_mutex_lock(&ready->mutex);
    if (must_change(ready->fires_at, at, now)) {
        ready->fires_at = at;
        poll_again(ready);
    }
    pthread_mutex_unlock(&ready->mutex);
}

#endif
