/* A task is a request of the renewer about one or more claims on one node. It references its claims
 * until it is freed. `has_command_in_flight` is set in each claim from hf_task_add until the claim
 * is unblocked. */
#ifndef HF_TASK_H
#define HF_TASK_H

#include "interfaces.h"

/* How long a round trip may take on a healthy server. */
#define HF_HEALTHY_ROUND_TRIP (250 * HF_MS)

typedef struct hf_task {
    hf_request request;
    hf_client *client;
    hf_time first_end, last_end; /* the earliest and the latest end of its claims */
    size_t count;
    hf_claim *claims[HF_RENEWALS_MAX];
} hf_task;

/* Returns a task without claims, or NULL when out of memory. */
hf_task *hf_task_new(hf_client *client);

/* Returns a task without claims that takes over a sent request, or NULL if no reply can arrive or
 * when out of memory. */
hf_task *hf_task_inherit(hf_client *client, hf_request *request, hf_request_done *done);

void hf_task_free(hf_task *task);

/* Adds a claim from the table, and marks it in flight. */
void hf_task_add(hf_task *task, hf_claim *claim);

/* Sends the request over this link of the claims' node. */
void hf_task_submit(hf_task *task, hf_link link, hf_request_done *done, hf_time deadline,
                    bool waits_for_connection, hf_time now);

/* Called when the request has failed: closes the renewer's link if the server has not replied in
 * time. Keeps the link if even a healthy server had too little time to reply, because other claims
 * need the link. */
void hf_task_abort_link(const hf_task *task, hf_time now);

#endif
