/* The blocking driver: moves the bytes of one client over sockets, in the caller's thread and in
 * the watchdog's.
 *
 * One mutex guards the driver and its client. A thread holds it except while it sleeps in poll. The
 * caller's thread polls the links of the calls and the events while it runs an operation; the
 * watchdog always polls the renewer's link, and the other two while no operation runs. The watchdog
 * starts with the first acquire and blocks all signals except those of its own faults.
 *
 * A mutex is not fair: a caller that locks it again and again, such as is_held() in a loop, would
 * starve the watchdog. So the watchdog closes the gate while it waits for the mutex, and a caller
 * that finds it closed waits there.
 *
 * After a fork the child starts with a new client and a new identity: it closes its copies of the
 * parent's sockets and never uses the parent's holds again (`generation` has grown).
 *
 * Credentials that are fetched (config.session.asks_login) come from the caller's thread alone: it
 * may call Lua. The watchdog logs in as the last connection to that server did; if the server has
 * refused that, the next call fetches others for it. */
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
    int fd;       /* the socket; -1: none */
    hf_file file; /* which file `fd` was, to notice that somebody has closed it */
    hf_tls *tls;  /* the TLS connection, owned; NULL: the connection is plain */
    bool full;    /* the socket took only part of the output */
    bool dialing; /* `dial` is connecting it */
    hf_dial dial;
    hf_time quiet_at; /* when a poll last found nothing to read */
} hf_connection;

/* User and password of a log-in, or why there are none. */
typedef struct hf_credentials {
    char user[HF_URL_SECRET], password[HF_URL_SECRET];
    hf_code code;     /* HF_OK: they are there; otherwise why there are none */
    char reason[160]; /* the same for people */
} hf_credentials;

/* Fetches the user and the password for a log-in at the server with this label. `refused`: the
 * server has refused the last ones. The function is called in the caller's thread, without the
 * mutex, and may take its time. */
typedef void hf_fetch_credentials(void *context, const char *server, bool refused,
                                  hf_credentials *fetched);

/* An external driver does no I/O of its own: Lua code moves the bytes and gives the time
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
    pthread_t thread;           /* the watchdog's, while `running` */
    bool running;               /* there is a watchdog */
    bool stopping;              /* the watchdog must end */
    bool calling;               /* a caller's thread runs an operation */
    bool unwatched;             /* the watchdog was stopped for good */
    atomic_bool watchdog_waits; /* the watchdog waits for the mutex, and holds the gate */
    hf_tls_settings *tls;       /* owned; needed for a server with TLS, else NULL */
    int wake[2];                /* a pipe that ends the watchdog's sleep; -1: none */
    hf_file wake_file;          /* which file both ends of `wake` were */
    hf_time sleeps_until;       /* when the watchdog wakes up; 0: it is awake */
    unsigned sleeps_on;         /* the links that wake the watchdog, as a set of bits */
    hf_time rests_until;        /* when the task of an event loop must serve at the latest */
    hf_time reads_left_at;      /* when the watchdog reads replies that calls have left; 0: never */
    hf_time stop_by;            /* when a stopping watchdog no longer waits for a quiet client */
    uint64_t wakes;             /* how often the watchdog woke up, for statistics */
    uint64_t handles;           /* the last number of a handle that is a caller of its own */
    uint32_t generation;        /* grows when a fork makes a new client */
    unsigned process;           /* hf_process when the client was made */
    uint32_t refs;              /* references of handles, and the client's own */
    int unrecorded;             /* errno of hf_crash_record if it failed, else 0 */
    bool closed;                /* closing has begun */
    bool shut;                  /* closing has ended */
    bool external, looped;      /* see above; at most one of them */
    bool blocks;                /* each call of Lua waits for its end */
    bool introduces;            /* it publishes who the client is */
    bool fetching;              /* `fetch` is running, in which the client must not be used */
    char known_as[128];         /* a name for people, published after host and pid; "": none */
    hf_ready *ready;            /* what wakes a looped driver, or NULL before it is needed */
    hf_time set_now;            /* an external driver's time; 0: the system's */
    hf_fetch_credentials *fetch; /* NULL: there is nothing to fetch */
} hf_driver;

/* Returns the driver's time. Call it between enter and leave. */
hf_time hf_driver_now(hf_driver *driver);

/* Makes a driver with one reference, without I/O. `entropy` is 24 random bytes; NULL: they are
 * taken from the system. Returns NULL and sets errno when out of memory or without random bytes. */
hf_driver *hf_driver_new(const hf_client_config *config, const unsigned char *entropy);

/* From now on the client publishes its host and pid, and this name; "": no name. */
void hf_driver_introduce(hf_driver *driver, const char *name);

/* Returns the time in seconds until the first certificate of the open connections ends (negative:
 * it has ended); INFINITY without TLS. Call it between enter and leave. */
double hf_driver_certificates_left(const hf_driver *driver);

void hf_driver_ref(hf_driver *driver);

/* Drops a reference. The last one closes the client, waits at most a second until it is
 * quiet, and frees it. */
void hf_driver_unref(hf_driver *driver);

/* Called during a wait after each sleep, which a signal ends. Returns true to end the wait. */
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

/* For assertions: returns whether the calling thread is the watchdog. Call it between enter and
 * leave. */
static inline bool hf_driver_is_watchdog(const hf_driver *driver) {
    return driver->running && pthread_equal(driver->thread, pthread_self());
}

/* Runs one operation to its end. Returns NULL when out of memory. Call it between enter and leave;
 * read the result and pass the operation to hf_op_end before leave. */
hf_op *hf_driver_run(hf_driver *driver, const hf_op_spec *spec, bool interruptible,
                     hf_interrupt_check *check, void *context);

/* Runs two operations of hf_driver_begin until one of them is done; a signal ends only the first.
 * Call it between enter and leave. */
void hf_driver_run_both(hf_driver *driver, hf_op *op, const hf_op *beside, bool interruptible,
                        hf_interrupt_check *check, void *context);

/* Sends a release and does not wait for the reply: the operation is detached (hf_op_is_detached) or
 * done. Call it between enter and leave, and do not pass a detached operation to hf_op_end. */
hf_op *hf_driver_send(hf_driver *driver, const hf_op_spec *spec, hf_interrupt_check *check,
                      void *context);

/* Begins an operation and does not wait for it. Returns NULL when out of memory. Call it between
 * enter and leave. */
hf_op *hf_driver_begin(hf_driver *driver, const hf_op_spec *spec);

/* For a looped driver: reads what has arrived if `reads`, does what is due, and sends what the
 * sockets take. It does not wait. Call it between enter and leave. */
void hf_driver_serve(hf_driver *driver, bool reads);

/* For a looped driver: returns the descriptor that becomes readable when hf_driver_serve has work,
 * and at `until`. On failure returns -1 and sets errno. Call it between enter and leave. */
int hf_driver_rest(hf_driver *driver, hf_time until);

/* Closes the descriptor of hf_driver_rest; nothing may wait for it. */
void hf_driver_forget_ready(hf_driver *driver);

/* Returns whether the watchdog needs other credentials than the last ones. `log_in` fetches them in
 * the caller's thread, with this context for driver->fetch. Call both between enter and leave. */
bool hf_driver_needs_login(const hf_driver *driver);
void hf_driver_log_in(hf_driver *driver, void *context);

/* Starts the watchdog unless it is running or was stopped by hf_driver_unwatch. Returns false and
 * sets errno if that fails. Call it between enter and leave. */
bool hf_driver_watch(hf_driver *driver);

/* Stops renewals: holds that depend on them are lost at the end of their lease. Call it between
 * enter and leave. */
void hf_driver_unwatch(hf_driver *driver);

/* Ends the watchdog's sleep, or a loop's, if something is due before it would wake up. Call it
 * between enter and leave. */
void hf_driver_wake(hf_driver *driver);

/* Begins to release everything, for an external or looped driver, whose I/O goes on as before. If
 * that cannot complete it, hf_driver_close does. */
void hf_driver_begin_close(hf_driver *driver);

/* Releases everything and ends the watchdog; waits at most `patience` for the server. */
void hf_driver_close(hf_driver *driver, hf_time patience);

#endif
