/* Non-blocking sockets to one server.
 *
 * A dial goes through the addresses of a name one after the other. Its descriptor is to be polled for `events`, then
 * hf_dial_step called. Names that need a look-up are looked up by a thread of their own: the system's resolver cannot
 * be interrupted, and a thread that comes too late cleans up after itself. */
#ifndef HF_NET_H
#define HF_NET_H

#include <netdb.h>

#include "../core/url.h"

typedef struct hf_lookup hf_lookup;

typedef struct hf_dial {
    int fd; /* to poll; -1: none */
    short events;
    hf_lookup *lookup;
    struct addrinfo *addresses, *next;
    int error; /* errno of the last address */
} hf_dial;

typedef enum hf_dial_state { HF_DIAL_PENDING, HF_DIAL_CONNECTED, HF_DIAL_FAILED } hf_dial_state;

#define HF_DIAL_IDLE ((hf_dial){.fd = -1})

/* Begins to connect. On FAILED `reason` says why. Once CONNECTED, dial->fd is the caller's socket. */
hf_dial_state hf_dial_start(hf_dial *dial, const hf_server *server, char *reason, size_t size);
hf_dial_state hf_dial_step(hf_dial *dial, char *reason, size_t size);

/* Gives up; closes what is open, but not a socket that was CONNECTED. */
void hf_dial_cancel(hf_dial *dial);

#endif
