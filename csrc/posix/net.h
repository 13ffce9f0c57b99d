/* Non-blocking sockets to one server.
 *
 * A dial tries the addresses of a name one after the other, and does the TLS handshake for a server
 * with TLS. Poll its descriptor for `events`, then call hf_dial_step; call it also at `next_at`,
 * when the next address is tried: a silent address must not use up the time of the others. A thread
 * of its own looks up a name, because the system's resolver cannot be interrupted; a thread that
 * finishes too late cleans up after itself. */
#ifndef HF_NET_H
#define HF_NET_H

#include <netdb.h>

#include "holdfast.h"
#include "tls.h"

/* Which file a descriptor is: the child of a fork may have closed it, and opened another one under
 * its number. */
typedef struct hf_file {
    dev_t device;
    ino_t inode;
} hf_file;

hf_file hf_file_of(int fd);

/* Closes the descriptor if it is still this file; -1: does nothing. */
void hf_file_close(int fd, hf_file file);

typedef struct hf_lookup hf_lookup;

typedef struct hf_dial {
    int fd; /* to poll: the socket, or the look-up's pipe; -1: none */
    hf_file file;
    int notified_by; /* the other end of that pipe; -1: none */
    short events;
    hf_time next_at; /* HF_NEVER: the address has all the time that is left */
    hf_time until;
    const hf_server *server;
    hf_tls_settings *tls_settings;
    hf_tls *tls; /* NULL: not connected yet, or plain */
    hf_lookup *lookup;
    struct addrinfo *addresses, *next;
    int error; /* errno of the last address */
} hf_dial;

typedef enum hf_dial_state { HF_DIAL_PENDING, HF_DIAL_CONNECTED, HF_DIAL_FAILED } hf_dial_state;

#define HF_DIAL_IDLE ((hf_dial){.fd = -1, .notified_by = -1, .next_at = HF_NEVER})

/* Starts to connect; the caller stops at `until`. `settings` are used for a server with TLS alone;
 * they and the server must outlive the dial. On FAILED `reason` says why. */
hf_dial_state hf_dial_start(hf_dial *dial, const hf_server *server, hf_tls_settings *settings,
                            hf_time now, hf_time until, char *reason, size_t size);
hf_dial_state hf_dial_step(hf_dial *dial, hf_time now, char *reason, size_t size);

/* Stops the dial and closes what it has open, but not the fd and tls that the caller took from a
 * CONNECTED dial. */
void hf_dial_cancel(hf_dial *dial);

/* In the child of a fork: closes its copies of the descriptors, and does not touch the parent's
 * memory. */
void hf_dial_forget(hf_dial *dial);

#endif
