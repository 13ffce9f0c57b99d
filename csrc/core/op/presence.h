/* Publishes who a client is, and what its callers that hold other locks are waiting for.
 *
 * holdfast_client:<uuid> contains the string from hf_client_introduce while the client holds a lock
 * or waits for one. holdfast_wait:<owner> names the lock that the owner's caller is waiting for.
 * Both keys have a TTL. A tenant's prefix precedes <uuid> and <owner>, so that no other tenant can
 * write the keys. They are written in the background over the renewer's link, once a hold or wait
 * has lasted a quarter of a second. */
#ifndef HF_PRESENCE_H
#define HF_PRESENCE_H

#include "client.h"

/* Records that an operation has begun, so the client may soon hold a lock or wait for one. */
void hf_presence_on_begin(hf_client *client, hf_time now);
/* Records that the acquire has found the lock taken, and is waiting. */
void hf_presence_on_wait(hf_op *op, hf_time now);
/* Deletes what is published about the operation's wait. */
void hf_presence_on_wait_end(hf_op *op, hf_time now);

/* Deletes the client's keys because the client is closed. */
void hf_presence_close(hf_client *client, hf_time now);

hf_time hf_presence_next_tick(const hf_client *client);
void hf_presence_tick(hf_client *client, hf_time now);

#define HF_PRESENCE_KEY (HF_OWNER_MAX + HF_TENANT_SIZE + 16)

/* Write the name of the client's key, or of an owner's wait, without a NUL. Return its size in
 * bytes. The owner has at most HF_OWNER_MAX bytes. */
size_t hf_presence_client_key(char key[HF_PRESENCE_KEY], const hf_client *client);
size_t hf_presence_wait_key(char key[HF_PRESENCE_KEY], const hf_client *client, hf_slice owner);

/* Writes "<uuid>:<number>", which names a waiting acquire in its queue member, and returns the size
 * in bytes. */
#define HF_WAIT_NAME 64
size_t hf_wait_name(char name[HF_WAIT_NAME], const hf_op *op);

#endif
