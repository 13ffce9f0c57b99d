/* The system of the threads of orders.h: it replaces the driver's mutexes, conditions, pipes,
 * sockets and clock. The program is linked with -Wl,--wrap for each call that orders_system.c
 * names.
 *
 * Descriptors have numbers from ORDER_FIRST_FD on; lower ones are the real system's. */
#ifndef ORDERS_SYSTEM_H
#define ORDERS_SYSTEM_H

#include "orders.h"

#define ORDER_FIRST_FD 1000
#define ORDER_ROOM 8192

/* The bytes of one direction of a socket. */
typedef struct order_bytes {
    size_t size;
    char bytes[ORDER_ROOM];
} order_bytes;

/* A connection to the server, until both sides have closed it. */
typedef struct order_socket {
    bool used;
    bool closed;        /* by the client */
    bool ended;         /* by the server: the client reads what has arrived, and then the end */
    bool of_parent;     /* in the child of a fork */
    order_bytes sent;   /* by the client, not read yet */
    order_bytes coming; /* to the client */
    char channel[80];   /* for the server: what the client has subscribed to */
} order_socket;

#define ORDER_SOCKETS 16

/* All sockets; the server reads and writes them. */
extern order_socket order_sockets[ORDER_SOCKETS];

void order_socket_send(order_socket *to, const char *bytes, size_t size);
void order_socket_end(order_socket *of);  /* like a server that closes a connection */
void order_socket_free(order_socket *of); /* the server has closed its side, too */

typedef struct order_network {
    hf_time connects_in; /* how long a connect takes; 0: it completes at once */
    hf_time looks_up_in; /* how long a look-up of a name takes */
    bool loses;          /* drops what the client sends */
    hf_time tried_at;    /* when the client last sent something, or began to connect */
} order_network;

extern order_network order_net;

/* Names the threads that the driver starts with this context, for traces. */
void order_system_name(const void *context, const char *name);

/* Resets the system: no descriptor is open, no mutex is locked. */
void order_system_begin(void);
size_t order_descriptors(void); /* the open ones, except copies that a fork has made */

/* In the child of a fork: marks its sockets as copies of its parent's, which the parent still
 * uses. */
void order_system_fork(void);

/* Returns whether bytes have arrived on the descriptor. */
bool order_has_bytes(int fd);

#endif
