#include "driver.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "links.h"
#include "system.h"
#include "watchdog.h"

hf_time hf_driver_now(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    return driver->external_now ? driver->external_now : hf_now();
}

/* ---- creating and destroying ---- */

/* Writes the host's name with ? for spaces and unprintable characters, or "?" if it is unknown. */
static void read_host_name(char *name, size_t size) {
    bool known = gethostname(name, size) == 0 && name[0] != '\0';
    name[size - 1] = '\0';
    if (!known) snprintf(name, size, "?");
    for (char *at = name; *at; at++) {
        if (*at < 33 || *at > 126) *at = '?';
    }
}

static void publish_introduction(hf_driver *driver) {
    char host[256], text[HF_WHO_SIZE + 128];
    if (!driver->introduces) return;
    read_host_name(host, sizeof host);
    snprintf(text, sizeof text, "%s %ld%s%s", host, (long)getpid(),
             driver->published_name[0] ? " " : "", driver->published_name);
    hf_client_introduce(driver->client, text);
}

void hf_driver_introduce(hf_driver *driver, const char *name) {
    snprintf(driver->published_name, sizeof driver->published_name, "%s", name);
    driver->introduces = true;
    publish_introduction(driver);
}

double hf_driver_certificate_seconds_left(const hf_driver *driver) {
    double left = INFINITY;
    for (size_t i = 0; i < driver->connection_count; i++) {
        const hf_tls *tls = driver->connections[i].tls;
        double seconds = tls ? hf_tls_seconds_left(tls) : INFINITY;
        if (seconds < left) left = seconds;
    }
    return left;
}

static bool create_client(hf_driver *driver, const unsigned char *source) {
    unsigned char entropy[24];
    if (source) memcpy(entropy, source, sizeof entropy);
    else if (!hf_random(entropy, sizeof entropy)) return false;
    driver->client = hf_client_new(&driver->config, entropy);
    return driver->client != NULL;
}

static bool has_crash_record(const hf_driver *driver) {
    return driver->config.life == hf_crash_probe_process;
}

static void init_for_process(hf_driver *driver) {
    driver->record_error =
        has_crash_record(driver) && !hf_crash_record(hf_client_uuid(driver->client)) ? errno : 0;
    driver->wake[0] = driver->wake[1] = -1;
    driver->process = hf_process_number();
    driver->serve_by = HF_NEVER;
    publish_introduction(driver);
}

static void init_locks(hf_driver *driver) {
    hf_cond_init(&driver->changed);
    pthread_mutex_init(&driver->mutex, NULL);
    pthread_mutex_init(&driver->gate, NULL);
}

static bool copy_servers(hf_client_config *config, const hf_client_config *source) {
    if (source->server_count == 0) return true;
    hf_server *servers = calloc(source->server_count, sizeof *servers);
    if (servers) memcpy(servers, source->servers, source->server_count * sizeof *servers);
    config->servers = servers;
    return servers != NULL;
}

static bool copy_shards(hf_client_config *config, const hf_client_config *source) {
    size_t count = source->server_count, size = count * sizeof(hf_shard);
    if (!source->shards || count == 0) return true;
    for (size_t i = 0; i < count; i++)
        size += source->shards[i].name ? strlen(source->shards[i].name) + 1 : 0;
    hf_shard *shards = malloc(size);
    config->shards = shards;
    if (!shards) return false;
    char *name = (char *)(shards + count);
    for (size_t i = 0; i < count; i++) {
        shards[i] = source->shards[i];
        if (!shards[i].name) continue;
        size_t length = strlen(shards[i].name) + 1;
        shards[i].name = memcpy(name, shards[i].name, length);
        name += length;
    }
    return true;
}

static bool copy_config(hf_driver *driver, const hf_client_config *source) {
    driver->config = *source;
    driver->config.servers = NULL;
    driver->config.shards = NULL;
    return copy_servers(&driver->config, source) && copy_shards(&driver->config, source);
}

static void free_config(hf_client_config *config) {
    free((void *)(uintptr_t)config->servers);
    free((void *)(uintptr_t)config->shards);
}

hf_driver *hf_driver_new(const hf_client_config *config, const unsigned char *entropy) {
    hf_driver *driver = calloc(1, sizeof *driver);
    if (!driver) return NULL;
    driver->refs = 1;
    if (!copy_config(driver, config) || !create_client(driver, entropy)) {
        free_config(&driver->config);
        free(driver);
        return NULL;
    }
    init_for_process(driver);
    init_locks(driver);
    hf_links_make_room(driver);
    return driver;
}

/* Gives the client a new identity. Without random bytes it has none, and is closed. */
static void reset_identity(hf_driver *driver) {
    unsigned char entropy[24];
    bool random = hf_random(entropy, sizeof entropy);
    if (!hf_client_start_over(driver->client, random ? entropy : NULL)) driver->closed = true;
}

/* The parent's memory is not freed, because it may have been copied in the middle of a change. */
static void reset_after_fork(hf_driver *driver) {
    hf_links_forget(driver);
    for (int end = 0; end < 2; end++) hf_file_close(driver->wake[end], driver->wake_file);
    if (driver->tls) hf_tls_settings_forget(driver->tls);
    if (driver->ready) hf_ready_forget(driver->ready);
    driver->ready = NULL;
    driver->generation++;
    driver->running = driver->stopping = driver->calling = driver->fetching =
        driver->has_deferred_output = false;
    atomic_store(&driver->watchdog_waits, false);
    driver->sleeps_until = driver->leftover_at = 0;
    init_locks(driver);
    reset_identity(driver);
    init_for_process(driver);
    hf_links_make_room(driver);
}

void hf_driver_ref(hf_driver *driver) {
    assert(driver->refs > 0);
    driver->refs++; /* not atomic: the handles and the client belong to one Lua state */
}

void hf_driver_unref(hf_driver *driver) {
    assert(driver->refs > 0);
    if (--driver->refs > 0) return;
    hf_driver_close(driver, HF_SECOND);
    hf_driver_close_ready_fd(driver);
    hf_client_delete(driver->client);
    free(driver->connections);
    free_config(&driver->config);
    hf_tls_settings_free(driver->tls);
    pthread_mutex_destroy(&driver->mutex);
    pthread_mutex_destroy(&driver->gate);
    pthread_cond_destroy(&driver->changed);
    free(driver);
}

void hf_driver_enter(hf_driver *driver) {
    assert(!driver->external || !driver->uses_event_loop);
    if (driver->process != hf_process_number()) reset_after_fork(driver);
    if (driver->external) return;
    if (atomic_load(&driver->watchdog_waits)) { /* let it go first: the mutex itself is not fair */
        pthread_mutex_lock(&driver->gate);
        pthread_mutex_unlock(&driver->gate);
    }
    pthread_mutex_lock(&driver->mutex);
}

void hf_driver_leave(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    if (!driver->external) pthread_mutex_unlock(&driver->mutex);
}

/* ---- in an event loop ---- */

#define ALL_ROLES (HF_ROLE(HF_LINK_CALLS) | HF_ROLE(HF_LINK_EVENTS) | HF_ROLE(HF_LINK_RENEWER))

hf_op *hf_driver_begin(hf_driver *driver, const hf_op_spec *spec) {
    assert(hf_driver_is_entered(driver) && !driver->calling);
    if (driver->uses_event_loop) hf_links_read_idle(driver);
    return hf_client_begin(driver->client, spec, hf_driver_now(driver));
}

/* Returns when the event loop must serve the client: at once while a caller must be notified. */
static hf_time loop_deadline(const hf_driver *driver) {
    bool due = driver->has_deferred_output || hf_client_has_next_done(driver->client);
    hf_time until = due ? 0 : hf_client_next_tick(driver->client);
    until = hf_time_min(until, driver->serve_by);
    return hf_time_min(until, hf_links_next_dial(driver));
}

void hf_driver_wake(hf_driver *driver) {
    assert(hf_driver_is_entered(driver));
    if (driver->ready) hf_ready_set_time(driver->ready, loop_deadline(driver), hf_now());
    hf_watchdog_wake(driver);
}

/* Makes the descriptor readable at `until`; sooner if some sockets cannot be watched now. */
static void set_ready_at(hf_driver *driver, hf_time until) {
    hf_time now = hf_now();
    if (!hf_links_watch(driver)) until = hf_time_min(until, now + 10 * HF_MS);
    hf_ready_set_time(driver->ready, hf_time_min(until, loop_deadline(driver)), now);
}

void hf_driver_serve(hf_driver *driver, bool reads) {
    assert(hf_driver_is_entered(driver) && driver->uses_event_loop && !driver->running);
    driver->has_deferred_output = false;
    bool reads_first = reads; /* a reply that has arrived counts even if its deadline has passed */
    if (reads) driver->serve_by = HF_NEVER;
    else reads_first = hf_client_next_tick(driver->client) <= hf_now();
    if (reads_first) hf_links_read(driver, ALL_ROLES);
    hf_links_serve_calls(driver, hf_now());
    hf_links_serve_renewer(driver, hf_now());
    if (driver->ready && !reads) set_ready_at(driver, HF_NEVER);
}

void hf_driver_defer_output(hf_driver *driver) {
    assert(hf_driver_is_entered(driver) && driver->uses_event_loop);
    driver->has_deferred_output = true;
    if (driver->ready) hf_ready_set_time(driver->ready, 0, hf_now());
}

int hf_driver_prepare_wait(hf_driver *driver, hf_time until) {
    assert(hf_driver_is_entered(driver) && driver->uses_event_loop);
    if (!driver->ready) driver->ready = hf_ready_new();
    if (!driver->ready) return -1;
    driver->serve_by = until;
    set_ready_at(driver, until);
    return hf_ready_fd(driver->ready);
}

void hf_driver_close_ready_fd(hf_driver *driver) {
    hf_ready_free(driver->ready);
    driver->ready = NULL;
}

/* ---- closing ---- */

void hf_driver_begin_close(hf_driver *driver) {
    hf_driver_enter(driver);
    if (!driver->closed) hf_client_close(driver->client, hf_driver_now(driver));
    driver->closed = true;
    hf_driver_leave(driver);
}

void hf_driver_close(hf_driver *driver, hf_time timeout) {
    hf_driver_enter(driver);
    if (!driver->closed) hf_client_close(driver->client, hf_driver_now(driver));
    driver->closed = true;
    if (!driver->close_called) {
        driver->close_called = true;
        driver->watchdog_stopped = false;
        if (!hf_client_is_quiet(driver->client)) hf_driver_start_watchdog(driver);
    }
    hf_watchdog_join(driver, timeout);
    if (!driver->external) hf_links_close(driver);
    hf_pipe_close(driver->wake);
    if (has_crash_record(driver)) hf_crash_forget(hf_client_uuid(driver->client));
    hf_driver_leave(driver);
}
