/* The sockets of a driver's client: one connection for each of its links. Call these functions
 * between hf_driver_enter and hf_driver_leave, except while a driver is being set up. */
#ifndef HF_LINKS_H
#define HF_LINKS_H

#include <signal.h>

#include "driver.h"

#define HF_POLL_SLICE                                                                              \
    (50 * HF_MS) /* the maximum delay of a signal that arrives between two polls */

#define HF_ROLE(link) (1u << (link)) /* the bit of this hf_link in a set of roles */

static inline hf_session *hf_link_session(const hf_driver *driver, size_t link) {
    return hf_client_link(driver->client, link);
}

/* Makes room for the client's new links. When out of memory, these links are not served, and
 * operations that need them time out. */
void hf_links_make_room(hf_driver *driver);

/* Serve the links of these roles as far as possible without waiting. The last two also do what is
 * due for calls or for the renewer. */
void hf_links_serve(hf_driver *driver, unsigned roles, hf_time now);
void hf_links_serve_calls(hf_driver *driver, hf_time now);
void hf_links_serve_renewer(hf_driver *driver, hf_time now);

/* Fetches credentials in the caller's thread for the links of these roles that need them, and for
 * the watchdog's links whose last credentials were refused. Passes `context` to driver->fetch.
 * Releases the mutex while it fetches. Returns whether any credentials were needed. */
bool hf_links_fetch_credentials(hf_driver *driver, unsigned roles, void *context);

/* Reads the bytes that have arrived, without sleeping. */
void hf_links_read(hf_driver *driver, unsigned roles);

/* Reads idle connections for calls before a command is sent: the server may have closed one, or
 * sent replies for which no call waited. Returns the time after reading. */
hf_time hf_links_read_idle(hf_driver *driver);

/* Waits for bytes on the first link for calls, in one recv of up to HF_POLL_SLICE, and reads them.
 * Releases the mutex while it waits. Returns false after a signal. */
bool hf_links_receive_reply(hf_driver *driver);

/* Sleeps until bytes arrive on a link of the roles that `roles_of` returns, or the descriptor
 * `extra` is readable (only the watchdog passes one; else -1), but not past `until`; it may wake up
 * earlier. Releases the mutex while it sleeps, then reads only links of the roles that `roles_of`
 * now returns. `signals`: the signal mask during the sleep, or NULL to leave it unchanged. Returns
 * false after a signal. */
bool hf_links_sleep(hf_driver *driver, unsigned (*roles_of)(const hf_driver *), int extra,
                    hf_time until, const sigset_t *signals);

/* Returns whether a link for calls has a request to send or awaits a reply. */
bool hf_links_have_work(const hf_driver *driver);

/* Returns whether the caller's thread has left output on the renewer's links, such as requests that
 * waited for a new cluster map. Full links do not count, because a poll waits for them. */
bool hf_links_have_unwritten(const hf_driver *driver);

/* Returns when the first of the dials under way must try its next address, or HF_NEVER. */
hf_time hf_links_next_dial(const hf_driver *driver);

/* Makes driver->ready watch the sockets. Returns false when out of memory or epoll watches. */
bool hf_links_watch(hf_driver *driver);

/* Writes as much output as the sockets accept, and closes all connections. */
void hf_links_close(hf_driver *driver);

/* In the child of a fork: closes its copies of the descriptors, and drops the connections without
 * freeing their memory. */
void hf_links_forget(hf_driver *driver);

#endif
