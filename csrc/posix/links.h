/* The sockets of a driver's client: one connection for each of its links. Call all of this between
 * hf_driver_enter and hf_driver_leave. */
#ifndef HF_LINKS_H
#define HF_LINKS_H

#include <signal.h>

#include "driver.h"

#define HF_SLICE (50 * HF_MS) /* how soon a wait notices a signal that came between two polls */

#define HF_ROLE(link) (1u << (link)) /* a set of links: those of all nodes with this role */

static inline hf_session *hf_link_session(const hf_driver *driver, size_t link) {
    return hf_client_link(driver->client, link);
}

/* Makes room for the client's new links. Those that there is no memory for are not served: what
 * needs them fails by its time. */
void hf_links_notice(hf_driver *driver);

/* Do what the links want and can do without waiting; the latter two also what is due for the calls
 * or for the renewer. */
void hf_links_serve(hf_driver *driver, unsigned roles, hf_time now);
void hf_links_serve_calls(hf_driver *driver, hf_time now);
void hf_links_serve_renewer(hf_driver *driver, hf_time now);

/* Fetches the credentials of these links that need them, in the caller's thread, and of the
 * renewer's links whose last ones were refused. Releases the mutex while it fetches. Returns
 * whether any were needed. */
bool hf_links_log_in(hf_driver *driver, unsigned roles, void *context);

/* Reads what has come, without sleeping. */
void hf_links_read(hf_driver *driver, unsigned roles);

/* Reads an idle connection for calls before a command is sent: the server may have closed it, or
 * sent replies that nobody waited for. Returns the time after that. */
hf_time hf_links_read_idle(hf_driver *driver);

/* Waits for bytes on the first link for calls, in one recv, and reads them. Releases the mutex
 * while it waits. Returns false after a signal. */
bool hf_links_receive_reply(hf_driver *driver);

/* Sleeps until something arrives on one of the links or on the extra descriptor, which only the
 * watchdog has (else -1), at the latest until `until`; it may wake up earlier. Releases the mutex
 * while it sleeps, and then reads only the links that `mine` still allows. `signals` is the signal
 * mask during the sleep; NULL: the mask is not changed. Returns false after a signal. */
bool hf_links_sleep(hf_driver *driver, unsigned (*mine)(const hf_driver *), int extra,
                    hf_time until, const sigset_t *signals);

/* Returns whether a reply to a call is still to come. */
bool hf_links_have_work(const hf_driver *driver);

/* Returns whether the caller's thread has left something on the renewer's links: a new map of a
 * cluster sends what has waited for it. A poll waits for those that are full. */
bool hf_links_have_unwritten(const hf_driver *driver);

/* Returns when the next of the dials under way tries its next address. */
hf_time hf_links_next_dial(const hf_driver *driver);

/* Lets driver->ready wait for the sockets. Returns false when out of memory. */
bool hf_links_watch(hf_driver *driver);

/* Writes what can be written now and closes all connections. */
void hf_links_close(hf_driver *driver);

/* In the child of a fork: closes its copies of the descriptors and drops the connections, whose
 * memory is not freed. */
void hf_links_forget(hf_driver *driver);

#endif
