/* The driver: moves the bytes of one client over sockets, in the caller's thread and in the
 * watchdog's; see hf_driver for external drivers and those of event loops.
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
 * that finds the gate closed waits there.
 *
 * After a fork, the child starts with a new client and a new identity: it closes its copies of the
 * parent's sockets, and never uses the parent's holds, whose `generation` is older.
 *
 * Credentials that must be fetched (config.session.fetches_login) are fetched only in the caller's
 * thread, because that may call Lua. The watchdog logs in with the last credentials used for that
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
    hf_file file; /* the file of `fd`, to detect that other code has closed it */
    hf_tls *tls;  /* owned; NULL without TLS */
    bool is_full; /* the socket accepted only a part of the output */
    bool dialing; /* `dial` is connecting it */
    hf_dial dial;
    hf_time quiet_at; /* when a poll last found nothing to read */
} hf_connection;

/* A log-in's user and password, or the reason why there are none. */
typedef struct hf_credentials {
    char user[HF_URL_SECRET], password[HF_URL_SECRET];
    hf_code code;     /* HF_OK if they were fetched, else the reason's code */
    char reason[160]; /* a message for the user, or "" */
} hf_credentials;

/* Fetches the user and the password for the server with this label. `refused`: the server has
 * refused the last ones. Called in the caller's thread without the mutex; may block. */
typedef void hf_fetch_credentials(void *context, const char *server, bool refused,
                                  hf_credentials *fetched);

/* An external driver does no I/O of its own: Lua code moves the bytes and supplies the time
 * (lua/engine.c). It has no watchdog thread, and only one thread uses it.
 *
 * The driver of an event loop (`uses_event_loop`) has sockets, but never sleeps and has no
 * watchdog: the loop waits for its descriptor (`ready`) and then calls hf_driver_serve. The loop's
 * thread begins operations with hf_driver_begin. Only closing may use a watchdog. */
typedef struct hf_driver {
    pthread_mutex_t mutex, gate; /* see above */
    pthread_cond_t changed;      /* broadcast when the watchdog has fed bytes */
    hf_client *client;
    hf_client_config config;
    hf_connection *connections; /* one for each of the client's links that the driver knows */
    size_t connection_count;
    pthread_t thread;           /* the watchdog's, while `running` */
    bool running;               /* the watchdog's thread exists */
    bool stopping;              /* the watchdog must end */
    bool calling;               /* a caller's thread runs an operation */
    bool watchdog_stopped;      /* hf_driver_stop_watchdog stopped the watchdog; an acquire must not
                                   start it */
    atomic_bool watchdog_waits; /* the watchdog is waiting for the mutex, and holds the gate */
    hf_tls_settings *tls;       /* owned; needed for a server with TLS, else NULL */
    int wake[2];                /* a pipe that ends the watchdog's sleep, or -1 */
    hf_file wake_file;    /* identifies the pipe, so that after a fork no other file that reuses
                             its descriptors is closed */
    hf_time sleeps_until; /* when the watchdog wakes up; 0: it is awake */
    unsigned sleeps_on;   /* HF_ROLE bits of the links that wake the watchdog */
    hf_time serve_by;     /* the time by which an event loop must call hf_driver_serve */
    hf_time leftover_at;  /* when the watchdog reads late replies to calls, or 0 */
    hf_time stop_by;      /* when a stopping watchdog ends even if the client is not quiet */
    uint64_t wakes;       /* the number of times the watchdog woke up, for statistics */
    uint64_t last_handle; /* the last number given to a handle of permits */
    uint32_t generation;  /* counts the forks, each of which creates a new client */
    unsigned process;     /* the result of hf_process_number() when the client was created */
    uint32_t refs;        /* the number of references: those of handles, and the client's own */
    int record_error;     /* errno of hf_crash_record if it failed, else 0 */
    bool closed;          /* closing has begun */
    bool close_called;    /* hf_driver_close was called */
    bool external, uses_event_loop; /* see above; at most one of them */
    bool blocks;                    /* each call from Lua waits until its operation is done */
    bool introduces;                /* publishes the client's host and pid */
    bool has_deferred_output;       /* the event loop will send the output soon */
    bool fetching;                  /* `fetch` is running, and must not use the client */
    char published_name[128];       /* a display name, published after host and pid, or "" */
    hf_ready *ready;                /* wakes the event loop; NULL before it is needed */
    hf_time external_now;           /* an external driver's time; 0: the system's */
    hf_fetch_credentials *fetch;    /* or NULL if nothing must be fetched */
} hf_driver;

/* Returns the driver's time. Call it between enter and leave. */
hf_time hf_driver_now(hf_driver *driver);

/* Creates a driver with one reference, which has not connected yet. It copies the servers and
 * shards of `config`. `entropy`: 24 random bytes, or NULL to take them from the system. Returns
 * NULL and sets errno when out of memory or without random bytes. */
hf_driver *hf_driver_new(const hf_client_config *config, const unsigned char *entropy);

/* Makes the client publish its host and pid, then `name` unless it is "". */
void hf_driver_introduce(hf_driver *driver, const char *name);

/* Returns the seconds until the first certificate of the open connections expires (negative if one
 * has expired); INFINITY without TLS. Call it between enter and leave. */
double hf_driver_certificate_seconds_left(const hf_driver *driver);

void hf_driver_ref(hf_driver *driver);

/* Drops a reference. Dropping the last one closes the client, waits up to a second until it is
 * quiet, and frees it. */
void hf_driver_unref(hf_driver *driver);

/* Called after each sleep of a wait; `signalled`: a signal ended the sleep. Returns true to end the
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

/* Call all the following functions between enter and leave, except hf_driver_close_ready_fd,
 * hf_driver_begin_close and hf_driver_close. */

/* For assertions: returns whether the calling thread is the watchdog. */
static inline bool hf_driver_is_watchdog(const hf_driver *driver) {
    return driver->running && pthread_equal(driver->thread, pthread_self());
}

/* Runs one operation until it is done. `interruptible`: signals are blocked except during sleeps,
 * so that none is missed. Returns NULL when out of memory. Before leave, read the result and pass
 * the operation to hf_op_end. */
hf_op *hf_driver_run(hf_driver *driver, const hf_op_spec *spec, bool interruptible,
                     hf_interrupt_check *check, void *context);

/* Runs two operations begun by hf_driver_begin until one is done; `check` ends only the first. */
void hf_driver_run_both(hf_driver *driver, hf_op *op, const hf_op *other, bool interruptible,
                        hf_interrupt_check *check, void *context);

/* Sends a release, and waits for its reply only if no watchdog can read it. Returns the operation,
 * which is detached (hf_op_is_detached) or done, or NULL when out of memory. Do not pass a detached
 * operation to hf_op_end. */
hf_op *hf_driver_send(hf_driver *driver, const hf_op_spec *spec, hf_interrupt_check *check,
                      void *context);

/* Begins an operation without waiting for it. Returns NULL when out of memory. */
hf_op *hf_driver_begin(hf_driver *driver, const hf_op_spec *spec);

/* For an event loop: reads the bytes that have arrived if `reads`, does what is due, and writes as
 * much as the sockets accept. Does not wait. */
void hf_driver_serve(hf_driver *driver, bool reads);

/* For an event loop: leaves the output for the end of this iteration, so that commands begun in the
 * same iteration are sent in one write. The descriptor returned by hf_driver_prepare_wait becomes
 * readable, and hf_driver_serve then sends. */
void hf_driver_defer_output(hf_driver *driver);

/* For an event loop: returns the descriptor that becomes readable when hf_driver_serve has work,
 * and at `until`. On failure returns -1 and sets errno. */
int hf_driver_prepare_wait(hf_driver *driver, hf_time until);

/* Closes the descriptor returned by hf_driver_prepare_wait; nothing may be waiting for it. */
void hf_driver_close_ready_fd(hf_driver *driver);

/* Returns whether the watchdog needs new credentials. hf_driver_fetch_credentials fetches them in
 * the caller's thread and passes `context` to driver->fetch. */
bool hf_driver_needs_login(const hf_driver *driver);
void hf_driver_fetch_credentials(hf_driver *driver, void *context);

/* Starts the watchdog unless it is running or was stopped by hf_driver_stop_watchdog. Returns false
 * and sets errno if that fails. */
bool hf_driver_start_watchdog(hf_driver *driver);

/* Stops renewals: holds that depend on them are lost at the end of their lease. */
void hf_driver_stop_watchdog(hf_driver *driver);

/* Wakes the watchdog or the event loop if something is due before it would wake up. */
void hf_driver_wake(hf_driver *driver);

/* For an external driver or an event loop: begins to release everything, while I/O continues as
 * before. If that I/O cannot complete the release, hf_driver_close does. */
void hf_driver_begin_close(hf_driver *driver);

/* Releases everything and ends the watchdog; waits up to `timeout` for the server. */
void hf_driver_close(hf_driver *driver, hf_time timeout);

#endif
