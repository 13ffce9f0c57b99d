/*
 * test_ready.c for systems without epoll, with the code for these compiled here.
 */
#ifndef HF_PORTABLE
#define HF_PORTABLE
#endif
#include <errno.h>
#include <poll.h>
#include <pthread.h>

/* The BSDs know no other number below 0 than that for a wait without end. */
static int strict_poll(struct pollfd *fds, nfds_t count, int timeout) {
    if (timeout >= -1) return poll(fds, count, timeout);
    errno = EINVAL;
    return -1;
}

#define poll strict_poll
static int mutexes;
#define pthread_mutex_init(mutex, attributes) (mutexes++, pthread_mutex_init(mutex, attributes))
#define pthread_mutex_destroy(mutex) (mutexes--, pthread_mutex_destroy(mutex))
#define hf_ready_new portable_ready_new
#define hf_ready_free portable_ready_free
#define hf_ready_forget portable_ready_forget
#define hf_ready_fd portable_ready_fd
#define hf_ready_watch portable_ready_watch
#define hf_ready_unwatch portable_ready_unwatch
#define hf_ready_set_time portable_ready_by
#include "../../csrc/posix/ready.c"
#undef poll
#include "test_ready.c"

TEST(watching_an_unchanged_list_again_does_not_wake_up_the_watching_thread) {
    hf_watch list[] = {watch(ends[0], POLLIN)};
    CHECK(hf_ready_watch(ready, list, 1));
    uint64_t version = ready->version;
    CHECK(hf_ready_watch(ready, list, 1));
    CHECK_EQ_U64(ready->version, version);
}

/* Some systems allocate them. */
TEST(freeing_a_ready_set_destroys_its_mutex) {
    int before = mutexes;
    hf_ready *own = hf_ready_new();
    CHECK_EQ_INT(mutexes, before + 1);
    hf_ready_free(own);
    CHECK_EQ_INT(mutexes, before);
}
