/* Between the parts of the client: client.c (links, events), acquire.c, calls.c (the other operations), keeper.c. */
#ifndef HF_CLIENT_INTERNAL_H
#define HF_CLIENT_INTERNAL_H

#include "client.h"
#include "lease.h"

#define HF_NO_WAITER ((hf_slice){"", 0})

/* Writes a place in the queue, "<client uuid>:<wait>:<token ttl ms> <owner>"; its size. `size` must be enough:
 * HF_UUID_SIZE + 64 + owner.size. */
size_t hf_waiter_format(char *text, size_t size, const hf_client *client, uint64_t wait, uint64_t token_ttl_ms,
                        hf_slice owner);

/* acquire.c */
void hf_acquire_begin(hf_op *op, hf_time now);
/* The hold this acquire is about: the owner's own, or a new one. False: the operation is done. */
bool hf_acquire_choose_hold(hf_op *op, hf_time now);
void hf_acquire_unblock(hf_op *op, hf_time now);
void hf_acquire_on_subscribed(hf_op *op, hf_time now);
void hf_acquire_on_grant(hf_op *op, uint64_t token, hf_time grant_lease, hf_time now);
void hf_acquire_on_turn(hf_op *op, hf_time turn, hf_time now);
void hf_acquire_on_nudge(hf_op *op, hf_time now);
void hf_acquire_on_denied(hf_op *op, hf_code code, const char *reason, hf_time now);
void hf_acquire_tick(hf_op *op, hf_time now);
void hf_acquire_give_up(hf_op *op, hf_time now);

/* calls.c */
void hf_call_begin(hf_op *op, hf_time now);
/* The operation is about a hold of the caller's own that is lost: spec.lost. */
void hf_call_begin_on_lost(hf_op *op);
void hf_call_unblock(hf_op *op, hf_time now);
void hf_call_give_up(hf_op *op, hf_time now);

/* several.c */
void hf_several_begin(hf_op *op, hf_time now);
void hf_several_give_up(hf_op *op, hf_time now);
void hf_several_end(hf_op *op);

/* What the server has settled for a hold that stays held: when to look at it next. */
void hf_client_keep(hf_client *client, hf_hold *hold, hf_time sent_at);

/* keeper.c */
void hf_keeper_tick(hf_client *client, hf_time now);
/* After a command that did not renew the hold: the keeper goes on as if it had not been sent. */
void hf_keeper_resume(hf_client *client, hf_hold *hold, hf_time now);
/* Nothing of the operation that used the hold stands on the server. */
void hf_keeper_forget(hf_client *client, hf_hold *hold, hf_time now);
/* The hold goes to the keeper, which leaves behind what may still be under way over the callers' link. */
void hf_keeper_leave_in_order(hf_client *client, hf_hold *hold, hf_time now);
/* An acquire asked for then has taken a hold that nobody has here: of a shared owner it is let go of with what is let
 * go of next. */
void hf_keeper_owe(hf_hold *hold, hf_time asked_at);
/* The acquire `ask` of a shared owner was given up: the keeper waits for its answer, and lets go of what it took.
 * False: no answer is to come, or out of memory. */
bool hf_keeper_await_answer(hf_client *client, hf_hold *hold, hf_request *ask, hf_time now);
/* Whether the lost hold may still stand on the server. */
bool hf_keeper_may_stand(const hf_hold *hold);
/* The lost hold goes out of the table. What ended by its time may still stand on the server: the keeper makes it forget
 * that, by a hold of its own. */
void hf_keeper_leave_lost(hf_client *client, hf_hold *hold, hf_time now);
/* The hold goes to the keeper, which makes the server forget it. */
void hf_keeper_leave(hf_client *client, hf_hold *hold, hf_time now);

/* client.c */
/* The command that used the hold has landed: whoever waited for that goes on. */
void hf_client_hold_is_free(hf_client *client, hf_hold *hold, hf_time now);
/* Sends the request over this link of the node where the key lives; without a key, of any. */
void hf_client_submit(hf_client *client, hf_slice key, hf_link link, hf_request *request, hf_time now);
/* Redisson's releases are announced where nobody but its clients listens. */
bool hf_client_is_sharded(const hf_client *client);
/* Lets the encoded request be confirmed by as many replicas as the configuration asks for. False: out of memory. */
bool hf_client_sync(const hf_client *client, hf_request *request);
/* -1, -2 of the programs. */
hf_lost_reason hf_lost_reason_of(long long reply);

/* events.c */
void hf_events_open(hf_node *node);
void hf_events_tick(hf_node *node, hf_time now);
hf_time hf_events_deadline(const hf_node *node);
/* The operation needs the events link, or no longer does. */
void hf_client_listen(hf_op *op, bool listen, hf_time now);
void hf_client_listen_foreign(hf_op *op, hf_time now);

/* operation.c */
static inline bool hf_op_is_several(const hf_op *op) {
    return op->spec.kind == HF_OP_ACQUIRE_ALL || op->spec.kind == HF_OP_RELEASE_ALL;
}
/* Ends the operation; code HF_OK or a failure about the operation's key and server. */
void hf_op_succeed(hf_op *op);
void hf_op_fail(hf_op *op, hf_code code, const char *detail, ...) __attribute__((format(printf, 3, 4)));
/* The operation's request was carried out, and too few replicas have confirmed it. */
void hf_op_fail_unconfirmed(hf_op *op);
/* Ends one that is not done: what it may have left on the server is undone. */
void hf_op_stop(hf_op *op, hf_code code, const char *reason, hf_time now);
/* From now on the operation's key lives on this node. */
void hf_op_move(hf_op *op, hf_node *node, hf_time now);
/* Sends the operation's request over the callers' link. */
void hf_op_send(hf_op *op, hf_request_done *done, hf_time deadline, bool patient, hf_time now);

#endif
