/* A server with a few locks, as one of the threads of orders.h. It knows the commands of the
 * programs and what they return, and runs none of them. */
#ifndef ORDERS_SERVER_H
#define ORDERS_SERVER_H

#include "orders_system.h"

#define ORDER_LOCKS 4
#define ORDER_WAITERS 4

typedef struct order_waiter {
    char number[24], owner[128], channel[80];
} order_waiter;

typedef struct order_lock {
    char key[16], owner[128]; /* owner "": it is free, now or soon */
    hf_time until;            /* the end of the lease */
    hf_time renewed_at;       /* when the last renewal was carried out */
    size_t waiting;
    order_waiter waiters[ORDER_WAITERS];
} order_lock;

typedef struct order_server {
    hf_time delay; /* of each answer */
    bool silent;   /* it reads and answers nothing */
    bool fast;     /* its clock: by 1 % */
    uint64_t token;
    order_lock locks[ORDER_LOCKS];
} order_server;

extern order_server order_server_now;

/* Starts it anew, without locks. */
void order_server_start(void);

/* Returns the lock of the key, which is made if there is none. */
order_lock *order_server_lock(const char *key);
bool order_server_is_held(const order_lock *lock);

/* As DEL of the key. */
void order_server_delete(const char *key);

/* Closes one of the connections that are open, if there are any. */
void order_server_hang_up(void);

/* Returns whether nobody holds or waits for any lock. */
bool order_server_is_empty(void);

#endif
