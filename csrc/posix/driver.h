/* The driver: moves the bytes of one client over sockets, in the caller's thread and in the
 * watchdog's, unless it is external or looped (see hf_driver).
 *
 * One mutex guards the driver and its client. A thread holds it except while it sleeps in poll or
 * recv, fetches credentials, or waits for the watchdog to end. While the caller's thread runs an
 * operation, it polls the links for calls and events. The watchdog always polls the renewer's
 * links; while no operation runs, it also polls the call links on which replies are still due, and
 * the event links while the client keeps a lock. The watchdog starts with the first acquire and
 * blocks all signals except those that its own faults raise, such as SIGSEGV.
 *
 * A mutex is not fair: a caller that locks it again and again, such as is_held() in a loop, would
 * starve the watchdog. So the watchdog closes the gate while it waits for the mutex, and a caller
 * that finds it closed waits there.
 *
 * After a fork the child starts with a new client and a new identity: it closes its copies of the
 * parent's sockets and never uses the parent's holds again, as their `generation` is older.
 *
 * Credentials that must be fetched (config.session.asks_login) are fetched only in the caller's
 * thread, as that may call Lua. The watchdog logs in with the last credentials used for that
 * server; if the server has refused those, the next call fetches new ones for it. */
#ifndef HF_DRIVER_H
#define HF_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "holdfast.h"
#include "net.h"
#include "ready.h"
#include "system.h"

typedef struct hf_connection {
    int fd;       /* the socket, or -1 */
    hf_file file; /* identifies the file of `fd`, to detect that other code has closed it */
    hf_tls *tls;  /* owned; NULL without TLS */
    bool full;    /* the socket accepted only part of the output */
    bool dialing; /* `dial` is connecting it */
    hf_dial dial;
    hf_time quiet_at; /* when a poll last found nothing to read */
} hf_connection;

/* User and password of a log-in, or why there are none. */
typedef struct hf_credentials {
    char user[HF_URL_SECRET], password[HF_URL_SECRET];
    hf_code code;     /* HF_OK if they were fetched, else why not */
    char reason[160]; /* why there are none, human-readable; or "" */
} hf_credentials;

/* Fetches the user and the password for a log-in at the server with this label. `refused`: the
 * server has refused the last ones. It is called in the caller's thread, without the mutex, and may
 * block. */
typedef void hf_fetch_credentials(void *context, const char *server, bool refused,
                                  hf_credentials *fetched);

/* An external driver does no I/O of its own: Lua code moves the bytes and supplies the time
 * (lua/engine.c). It has no watchdog thread, and only one thread uses it.
 *
 * A looped driver has sockets, but never sleeps and has no watchdog: an event loop waits for its
 * descriptor (`ready`) and then calls hf_driver_serve. Its thread begins operations with
 * hf_driver_begin. Only closing may use a watchdog. */
typedef struct hf_driver {
    pthread_mutex_t mutex, gate; /* see above */
    pthread_cond_t changed;      /* broadcast when the watchdog has fed bytes */
    hf_client *client;
    hf_client_config config;
    hf_connection *connections; /* one for each of the client's links that the driver has seen */
    size_t connection_count;
    pthread_t thread; /* the watchdog's, while `running` */
    bool running;     /* there is a watchdog */
    bool stopping;    /* the watchdog must end */
    bool calling;     /* a caller's thread runs an operation */
    bool unwatched;   /* hf_driver_unwatch stopped the watchdog; an acquire must not start it */
    atomic_bool watchdog_waits;  /* the watchdog waits for the mutex, and holds the gate */
    hf_tls_settings *tls;        /* owned; needed for a server with TLS, else NULL */
    int wake[2];                 /* a pipe that ends the watchdog's sleep, or -1 */
    hf_file wake_file;           /* identifies the pipe, to close only that after a fork */
    hf_time sleeps_until;        /* when the watchdog wakes up; 0: it is awake */
    unsigned sleeps_on;          /* HF_ROLE bits of the links that wake the watchdog */
    hf_time serve_by;            /* the time by which an event loop must call hf_driver_serve */
    hf_time leftover_at;         /* when the watchdog reads late replies to calls, or 0 */
    hf_time stop_by;             /* when a stopping watchdog ends even if the client is not quiet */
    uint64_t wakes;              /* how many times the watchdog woke up, for statistics */
    uint64_t last_handle;        /* the last number given to a handle of permits */
    uint32_t generation;         /* counts the forks, each of which creates a new client */
    unsigned process;            /* the result of hf_process() when the client was created */
    uint32_t refs;               /* references of handles, and the client's own */
    int record_error;            /* errno of hf_crash_record if it failed, else 0 */
    bool closed;                 /* closing has begun */
    bool close_called;           /* hf_driver_close was called */
    bool external, looped;       /* see above; at most one of them */
    bool blocks;                 /* each call from Lua waits until its operation is done */
    bool introduces;             /* publishes who the client is */
    bool has_deferred_output;    /* a looped driver has output that the loop sends soon */
    bool fetching;               /* `fetch` is running, and must not use the client */
    char known_as[128];          /* a display name, published after host and pid, or "" */
    hf_ready *ready;             /* what wakes a looped driver, or NULL before it is needed */
    hf_time set_now;             /* an external driver's time; 0: the system's */
    hf_fetch_credentials *fetch; /* or NULL if nothing must be fetched */
} hf_driver;

/* Returns the driver's time. Call it between enter and leave. */
hf_time hf_driver_now(hf_driver *driver);

/* Creates a driver with one reference, which has not connected yet. It copies the servers and
 * shards of `config`. `entropy`: 24 random bytes, or NULL to take them from the system. Returns
 * NULL and sets errno when out of memory or without random bytes. */
hf_driver *hf_driver_new(const hf_client_config *config, const unsigned char *entropy);

/* Makes the client publish its host and pid, and `name` unless it is "". */
void hf_driver_introduce(hf_driver *driver, const char *name);

/* Returns the seconds until the first certificate of the open connections expires (negative if one
 * has expired); INFINITY without TLS. Call it between enter and leave. */
double hf_driver_certificate_seconds_left(const hf_driver *driver);

void hf_driver_ref(hf_driver *driver);

/* Drops a reference. Dropping the last one closes the client, waits at most a second until it is
 * quiet, and frees it. */
void hf_driver_unref(hf_driver *driver);

/* Called after each sleep of a wait. `signalled`: a signal ended the sleep. Returns true to end the
 * wait. */
typedef bool hf_interrupt_check(void *context, bool signalled);

/* Locks the mutex; the caller may use the client until hf_driver_leave. Detects a fork. */
void hf_driver_enter(hf_driver *driver);
void hf_driver_leave(hf_driver *driver);

/* For assertions: returns whether a thread is between enter and leave. */
static inline bool hf_driver_is_entered(hf_driver *driver) {
    if (driver->external || pthread_mutex_trylock(&driver->mutex) != 0) return true;
    pthread_mutex_unlock(&driver->mutex);
    return false;
}

/* Call all that follows between enter and leave, except hf_driver_forget_ready,
 * hf_driver_begin_close and hf_driver_close. */

/* For assertions: returns whether the calling thread is the watchdog. */
static inline bool hf_driver_is_watchdog(const hf_driver *driver) {
    return driver->running && pthread_equal(driver->thread, pthread_self());
}

/* Runs one operation to its end. `interruptible`: signals are blocked except during sleeps, so that
 * none is missed. Returns NULL when out of memory. Read the result and pass the operation to
 * hf_op_end before leave. */
hf_op *hf_driver_run(hf_driver *driver, const hf_op_spec *spec, bool interruptible,
                     hf_interrupt_check *check, void *context);

/* Runs two operations from hf_driver_begin until one is done; `check` ends only the first. */
void hf_driver_run_both(hf_driver *driver, hf_op *op, const hf_op *other, bool interruptible,
                        hf_interrupt_check *check, void *context);

/* Sends a release, and waits for its reply only if no watchdog can read it. Returns the operation,
 * which is detached (hf_op_is_detached) or done, or NULL when out of memory. Do not pass a detached
 * operation to hf_op_end. */
hf_op *hf_driver_send(hf_driver *driver, const hf_op_spec *spec, hf_interrupt_check *check,
                      void *context);

/* Begins an operation and does not wait for it. Returns NULL when out of memory. */
hf_op *hf_driver_begin(hf_driver *driver, const hf_op_spec *spec);

/* For a looped driver: reads bytes that have arrived if `reads`, does what is due, and writes as
 * much as the sockets accept. It does not wait. */
void hf_driver_serve(hf_driver *driver, bool reads);

/* For a looped driver: leaves the output for the end of this turn of the loop, so that commands
 * begun in the same turn are sent in one write. The descriptor returned by hf_driver_prepare_wait
 * becomes readable, and hf_driver_serve then sends. */
void hf_driver_defer_output(hf_driver *driver);

/* For a looped driver: returns the descriptor that becomes readable when hf_driver_serve has work,
 * and at `until`. On failure returns -1 and sets errno. */
int hf_driver_prepare_wait(hf_driver *driver, hf_time until);

/* Closes the descriptor returned by hf_driver_prepare_wait; nothing may wait for it. */
void hf_driver_forget_ready(hf_driver *driver);

/* Returns whether the watchdog needs new credentials. hf_driver_fetch_credentials fetches them in
 * the caller's thread and passes `context` to driver->fetch. */
bool hf_driver_needs_login(const hf_driver *driver);
void hf_driver_fetch_credentials(hf_driver *driver, void *context);

/* Starts the watchdog unless it is running or was stopped by hf_driver_unwatch. Returns false and
 * sets errno if that fails. */
bool hf_driver_watch(hf_driver *driver);

/* Stops renewals: holds that depend on them are lost at the end of their lease. */
void hf_driver_unwatch(hf_driver *driver);

/* Ends the watchdog's sleep, or a loop's, if something is due before it would wake up. */
void hf_driver_wake(hf_driver *driver);

/* For an external or looped driver: begins to release everything, while its I/O continues as
 * before. If that I/O cannot complete the release, hf_driver_close does. */
void hf_driver_begin_close(hf_driver *driver);

/* Releases everything and ends the watchdog; waits at most `patience` for the server. */
void hf_driver_close(hf_driver *driver, hf_time patience);

#endif
