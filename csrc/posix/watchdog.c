#include "watchdog.h"

#include <assert.h>

#include "links.h"

/* Returns whether calls may end before all of their replies have arrived: those of a quorum nearly
 * always do, and so does a release that is not awaited. The next call reads these replies, or the
 * watchdog after READ_LEFTOVER_AFTER. */
static bool leaves_replies(const hf_driver *driver) {
    return hf_client_uses_every_server(driver->client) || hf_client_has_detached(driver->client);
}

/* Returns the roles of the links that the watchdog reads. While no call runs, it also waits for
 * late replies to calls, unless read_leftover will read them, and for messages from others that
 * want a lock which the client keeps. */
static unsigned watchdog_roles(const hf_driver *driver) {
    bool awaits_replies = !driver->calling && !leaves_replies(driver) && hf_links_have_work(driver);
    bool keeps = !driver->calling && hf_client_has_kept_locks(driver->client);
    return HF_ROLE(HF_LINK_RENEWER) | (awaits_replies ? HF_ROLE(HF_LINK_CALLS) : 0) |
           (keeps ? HF_ROLE(HF_LINK_EVENTS) : 0);
}

#define READ_LEFTOVER_AFTER (10 * HF_MS)

/* Sets the time at which the watchdog reads late replies. Without it, each call that leaves a reply
 * would have to wake the watchdog. */
static void schedule_leftover_read(hf_driver *driver) {
    if (driver->calling) return;
    bool leftover = leaves_replies(driver) && hf_links_have_work(driver);
    if (!leftover) driver->leftover_at = 0;
    else if (driver->leftover_at == 0) driver->leftover_at = hf_now() + READ_LEFTOVER_AFTER;
}

static void read_leftover(hf_driver *driver) {
    bool due = driver->stopping || hf_now() >= driver->leftover_at;
    if (!leaves_replies(driver) || !due) return;
    driver->leftover_at = 0;
    hf_links_read(driver, HF_ROLE(HF_LINK_CALLS));
}

/* Call it after schedule_leftover_read. */
static hf_time watch_deadline(const hf_driver *driver) {
    if (driver->calling) return hf_client_renewer_next_tick(driver->client);
    hf_time until = hf_client_next_tick(driver->client);
    return driver->leftover_at > 0 ? hf_time_min(until, driver->leftover_at) : until;
}

static bool must_keep_running(const hf_driver *driver) {
    if (!driver->stopping) return true;
    return hf_now() < driver->stop_by && !hf_client_is_quiet(driver->client);
}

static void *run_watchdog(void *context) {
    hf_driver *driver = context;
    pthread_mutex_lock(&driver->mutex);
    assert(driver->process == hf_process_number() && !driver->external);
    while (must_keep_running(driver)) {
        driver->sleeps_until = 0;
        if (!driver->calling) {
            read_leftover(driver);
            hf_links_serve_calls(driver, hf_now());
        }
        hf_links_serve_renewer(driver, hf_now());
        pthread_cond_broadcast(&driver->changed);
        if (!must_keep_running(driver)) break;
        schedule_leftover_read(driver);
        hf_time until = watch_deadline(driver);
        if (driver->stopping) until = hf_time_min(until, driver->stop_by);
        driver->sleeps_until = until;
        driver->sleeps_on = watchdog_roles(driver);
        hf_links_sleep(driver, watchdog_roles, driver->wake[0], until, NULL);
        hf_pipe_drain(driver->wake[0]);
        driver->wakes++;
    }
    pthread_mutex_unlock(&driver->mutex);
    return NULL;
}

bool hf_driver_start_watchdog(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    bool is_unneeded = driver->external || (driver->uses_event_loop && !driver->closed);
    if (driver->running || driver->watchdog_stopped || is_unneeded) return true;
    if (driver->wake[0] < 0) {
        if (!hf_pipe(driver->wake, false)) return false;
        driver->wake_file = hf_file_of(driver->wake[0]);
    }
    driver->running = hf_thread_start(&driver->thread, run_watchdog, driver);
    driver->stopping = false;
    return driver->running;
}

void hf_watchdog_wake(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    if (!driver->running || driver->sleeps_until == 0) return;
    schedule_leftover_read(driver);
    bool more_links = watchdog_roles(driver) & ~driver->sleeps_on;
    if (more_links || hf_links_have_unwritten(driver) ||
        watch_deadline(driver) < driver->sleeps_until) {
        driver->sleeps_until = 0;
        hf_pipe_wake(driver->wake[1]);
    }
}

void hf_watchdog_join(hf_driver *driver, hf_time timeout) {
    assert(hf_driver_is_entered(driver));
    if (!driver->running) return;
    assert(!hf_driver_is_watchdog(driver)); /* the watchdog would wait for itself */
    driver->stopping = true;
    driver->stop_by = hf_time_add(hf_now(), timeout);
    hf_pipe_wake(driver->wake[1]);
    pthread_mutex_unlock(&driver->mutex);
    pthread_join(driver->thread, NULL);
    pthread_mutex_lock(&driver->mutex);
    driver->running = false;
}

void hf_driver_stop_watchdog(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    driver->watchdog_stopped = true;
    hf_watchdog_join(driver, 0);
}
