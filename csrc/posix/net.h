/* Non-blocking sockets to one server.
 *
 * A dial tries the addresses of a name one after the other, and does the TLS handshake for a server
 * with TLS. Poll its descriptor for `events`, then call hf_dial_step. Also call it at `next_at`,
 * when it tries the next address: an address that does not answer must not use up the time of the
 * others. Names are looked up in a separate thread, because the system's resolver cannot be
 * interrupted; if the dial is cancelled before the lookup ends, the thread frees the lookup. */
#ifndef HF_NET_H
#define HF_NET_H

#include <netdb.h>

#include "holdfast.h"
#include "tls.h"

/* Identifies a descriptor's file: after a fork, the child may have closed the descriptor and reused
 * its number for another file. */
typedef struct hf_file {
    dev_t device;
    ino_t inode;
} hf_file;

hf_file hf_file_of(int fd);

/* Closes the descriptor if it still refers to this file. A no-op for -1. */
void hf_file_close(int fd, hf_file file);

typedef struct hf_lookup hf_lookup;

typedef struct hf_dial {
    int fd; /* the descriptor to poll: the socket, or the lookup's pipe; or -1 */
    hf_file file;
    int lookup_write_fd; /* the write end of the lookup's pipe, or -1 */
    short events;
    hf_time next_at; /* when to try the next address; HF_NEVER if this one may use all the remaining
                        time */
    hf_time until;
    const hf_server *server;
    hf_tls_settings *tls_settings;
    hf_tls *tls; /* NULL before the socket is connected, or without TLS */
    hf_lookup *lookup;
    struct addrinfo *addresses, *next;
    int error; /* errno of the last address that failed */
} hf_dial;

typedef enum hf_dial_state { HF_DIAL_PENDING, HF_DIAL_CONNECTED, HF_DIAL_FAILED } hf_dial_state;

#define HF_DIAL_IDLE ((hf_dial){.fd = -1, .lookup_write_fd = -1, .next_at = HF_NEVER})

/* Begins to connect to `server`; the caller cancels the dial at `until`. `settings` are used only
 * for a server with TLS; they and the server must outlive the dial. On FAILED, `reason` says
 * why. */
hf_dial_state hf_dial_start(hf_dial *dial, const hf_server *server, hf_tls_settings *settings,
                            hf_time now, hf_time until, char *reason, size_t size);
hf_dial_state hf_dial_step(hf_dial *dial, hf_time now, char *reason, size_t size);

/* Stops the dial and closes its descriptors, except the fd and tls that the caller took from a
 * CONNECTED dial. */
void hf_dial_cancel(hf_dial *dial);

/* In the child of a fork: closes its copies of the descriptors, and frees nothing, because a lookup
 * thread may have been using it at the fork. */
void hf_dial_forget(hf_dial *dial);

#endif
