/* The blocking driver: moves the bytes of one client over sockets, in the caller's thread and in the watchdog's.
 *
 * One mutex guards everything below it; it is held except while a thread sleeps in poll. The caller's thread polls the
 * links of the calls and the events while it runs an operation; the watchdog polls the keeper's link always, and the
 * other two while no operation runs. The watchdog starts with the first acquire and blocks all signals.
 *
 * A mutex is not fair: a caller that takes it again and again, as one that looks at is_held() in a loop does, would
 * keep the watchdog from it. So callers make way for a watchdog that waits.
 *
 * After a fork the child starts with a new client and a new identity: it closes its copies of the parent's sockets and
 * never looks at the parent's holds again (`generation` has grown). */
#ifndef HF_DRIVER_H
#define HF_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "../core/client.h"
#include "net.h"

typedef struct hf_connection {
    int fd; /* -1: none */
    hf_file file;
    hf_tls *tls; /* NULL: plain */
    bool dialing;
    hf_dial dial;
} hf_connection;

/* An external driver does no I/O of its own: Lua code moves the bytes and gives the time (lua/engine.c). It has no
 * watchdog thread and is used by one thread alone. */
typedef struct hf_driver {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* broadcast when the watchdog has fed bytes */
    hf_client client;
    hf_client_config config;
    hf_connection *connections; /* one for each of the client's links that the driver has seen */
    size_t connection_count;
    pthread_t thread;
    bool running, stopping, calling;
    bool unwatched;             /* the watchdog was stopped for good */
    hf_tls_settings *tls;       /* owned; needed for a server with TLS, else NULL */
    int wake[2];                /* a pipe that ends the watchdog's sleep; -1: none */
    hf_file wake_file;          /* both ends */
    hf_time sleeps_until;       /* of the watchdog; 0: awake */
    hf_time stop_by;            /* when a stopping watchdog no longer waits for a quiet client */
    atomic_bool watchdog_waits; /* for the mutex: callers let it go first */
    uint64_t wakes;             /* of the watchdog, for statistics */
    uint32_t generation;
    pid_t pid;
    uint32_t refs; /* handles and the client's own */
    bool closed;
    bool external;
    hf_time set_now; /* an external driver's time; 0: the system's */
} hf_driver;

hf_time hf_now(void);

/* The driver's own time. */
hf_time hf_driver_now(const hf_driver *driver);

/* NULL when out of memory or without random bytes (errno). Does no I/O. One reference. `entropy`: 24 bytes, NULL: from
 * the system. */
hf_driver *hf_driver_new(const hf_client_config *config, const unsigned char *entropy);

void hf_driver_ref(hf_driver *driver);
/* The last one closes the client, waits at most `patience` for it to be quiet, and frees it. */
void hf_driver_unref(hf_driver *driver);

/* What may end a wait: called after a signal and every few hundredths of a second; true: interrupt. */
typedef bool hf_interrupt_check(void *context, bool signalled);

/* Locks for a call: after it the client may be used until hf_driver_leave. Notices a fork. */
void hf_driver_enter(hf_driver *driver);
void hf_driver_leave(hf_driver *driver);

/* Runs one operation to its end; NULL when out of memory. Between enter and leave; the result is to be read and given
 * to hf_op_end before leave. */
hf_op *hf_driver_run(hf_driver *driver, const hf_op_spec *spec, bool interruptible, hf_interrupt_check *check,
                     void *context);

/* Starts the watchdog unless it runs, or was stopped by hf_driver_unwatch. False: errno says why. Between enter and
 * leave. */
bool hf_driver_watch(hf_driver *driver);

/* Stops renewing: holds that need it are lost at the end of their lease. Between enter and leave. */
void hf_driver_unwatch(hf_driver *driver);

/* Ends the watchdog's sleep if something is due before it would wake. Between enter and leave. */
void hf_driver_nudge(hf_driver *driver);

/* Lets go of everything and ends the watchdog; waits at most `patience` for the server. */
void hf_driver_close(hf_driver *driver, hf_time patience);

#endif
