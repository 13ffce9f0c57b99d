/* A server with a few locks, as one of the threads of orders.h. It knows the commands of the
 * programs and their replies, but runs no program. */
#ifndef ORDERS_SERVER_H
#define ORDERS_SERVER_H

#include "orders_system.h"

#define ORDER_LOCKS 4
#define ORDER_WAITERS 4

typedef struct order_waiter {
    char number[24], owner[128], channel[80];
} order_waiter;

typedef struct order_lock {
    char key[16], owner[128]; /* owner "": the lock is free, now or soon */
    hf_time until;            /* the end of the lease */
    hf_time renewed_at;       /* when the last renewal was carried out */
    size_t waiting;
    order_waiter waiters[ORDER_WAITERS];
} order_lock;

typedef struct order_server {
    hf_time delay; /* of each reply */
    bool silent;   /* it neither reads nor replies */
    bool fast;     /* its clock is 1 % fast */
    uint64_t token;
    order_lock locks[ORDER_LOCKS];
} order_server;

extern order_server order_server_now;

/* Restarts the server without locks. */
void order_server_start(void);

/* Returns the lock of the key, which it creates if there is none. */
order_lock *order_server_lock(const char *key);
bool order_server_is_held(const order_lock *lock);

/* Does what DEL of the key does. */
void order_server_delete(const char *key);

/* Closes one of the open connections, if there are any. */
void order_server_hang_up(void);

/* Returns whether no lock is held or waited for. */
bool order_server_is_empty(void);

#endif
