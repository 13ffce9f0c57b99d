/* The sockets of a driver's client: one connection for each of its links. Call these functions
 * between hf_driver_enter and hf_driver_leave, except while a driver is being set up. */
#ifndef HF_LINKS_H
#define HF_LINKS_H

#include <signal.h>

#include "driver.h"

#define HF_POLL_SLICE (50 * HF_MS) /* a signal between polls is noticed within this time */

#define HF_ROLE(link) (1u << (link)) /* the bit of this hf_link in a set of roles */

static inline hf_session *hf_link_session(const hf_driver *driver, size_t link) {
    return hf_client_link(driver->client, link);
}

/* Makes room for the client's new links. When out of memory, they are not served, and operations
 * that need them time out. */
void hf_links_make_room(hf_driver *driver);

/* Do what the links of these roles want, as far as possible without waiting. The last two also do
 * what is due for calls or for the renewer. */
void hf_links_serve(hf_driver *driver, unsigned roles, hf_time now);
void hf_links_serve_calls(hf_driver *driver, hf_time now);
void hf_links_serve_renewer(hf_driver *driver, hf_time now);

/* Fetches credentials, in the caller's thread, for the links of these roles that need them, and for
 * the watchdog's links whose last credentials were refused. Passes `context` to driver->fetch and
 * releases the mutex in the meantime. Returns whether any were needed. */
bool hf_links_fetch_credentials(hf_driver *driver, unsigned roles, void *context);

/* Reads what has arrived, without sleeping. */
void hf_links_read(hf_driver *driver, unsigned roles);

/* Reads an idle connection for calls before a command is sent: the server may have closed it, or
 * sent replies that no call waited for. Returns the time after that. */
hf_time hf_links_read_idle(hf_driver *driver);

/* Waits for bytes on the first link for calls, in one recv of at most HF_POLL_SLICE, and reads
 * them. Releases the mutex while it waits. Returns false after a signal. */
bool hf_links_receive_reply(hf_driver *driver);

/* Sleeps until something arrives on a link of the roles that `roles_of` returns or on the
 * descriptor `extra`, which only the watchdog passes (else -1), but not past `until`; it may wake
 * up earlier. Releases the mutex while it sleeps, and then reads only the links that `roles_of`
 * still returns. `signals`: the signal mask during the sleep, or NULL to leave it unchanged.
 * Returns false after a signal. */
bool hf_links_sleep(hf_driver *driver, unsigned (*roles_of)(const hf_driver *), int extra,
                    hf_time until, const sigset_t *signals);

/* Returns whether a link for calls has a request to send or awaits a reply. */
bool hf_links_have_work(const hf_driver *driver);

/* Returns whether the caller's thread has left output on the renewer's links, such as requests that
 * waited for a new cluster map. Links that are full do not count, as a poll waits for them. */
bool hf_links_have_unwritten(const hf_driver *driver);

/* Returns when the first of the dials under way tries its next address, or HF_NEVER. */
hf_time hf_links_next_dial(const hf_driver *driver);

/* Makes driver->ready watch the sockets. Returns false when out of memory or watches. */
bool hf_links_watch(hf_driver *driver);

/* Writes what can be written now and closes all connections. */
void hf_links_close(hf_driver *driver);

/* In the child of a fork: closes its copies of the descriptors and drops the connections, whose
 * memory is not freed. */
void hf_links_forget(hf_driver *driver);

#endif
