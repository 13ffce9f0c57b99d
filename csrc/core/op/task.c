#include "op/task.h"

#include <assert.h>
#include <stdlib.h>

#include "link/nodes.h"

hf_task *hf_task_new(hf_client *client) {
    hf_task *task = calloc(1, sizeof *task);
    if (task) task->client = client;
    return task;
}

hf_task *hf_task_inherit(hf_client *client, hf_request *request, hf_request_done *done) {
    hf_task *task = hf_task_new(client);
    if (!task) return NULL;
    if (!hf_session_inherit(&task->request, request)) {
        hf_task_free(task);
        return NULL;
    }
    task->request.done = done;
    task->request.context = task;
    return task;
}

void hf_task_free(hf_task *task) {
    for (size_t i = 0; i < task->count; i++) hf_claim_unref(task->claims[i]);
    hf_request_clear(&task->request);
    free(task);
}

/* Also schedules the renewer to wake when the claim's validity ends, so that a missing reply does
 * not hide the loss. */
void hf_task_add(hf_task *task, hf_claim *claim) {
    assert(task->count < HF_RENEWALS_MAX && hf_claim_in_table(claim));
    hf_claim_ref(claim);
    claim->has_command_in_flight = true;
    if (claim->approval == HF_APPROVAL_GIVEN) claim->approval = HF_APPROVAL_NONE;
    hf_time end = claim->valid_until;
    hf_holds_set_wake_at(&task->client->holds, claim, end);
    task->first_end = task->count > 0 ? hf_time_min(task->first_end, end) : end;
    task->last_end = hf_time_max(task->last_end, end);
    task->claims[task->count++] = claim;
}

void hf_task_submit(hf_task *task, hf_link link, hf_request_done *done, hf_time deadline,
                    bool waits_for_connection, hf_time now) {
    assert(task->count > 0 && task->claims[0]->has_command_in_flight);
    task->request.done = done;
    task->request.context = task;
    task->request.deadline = deadline;
    task->request.waits_for_connection = waits_for_connection;
    hf_client_submit(task->client, hf_claim_key(task->claims[0]), link, &task->request, now);
}

/* Returns whether the server has had time to reply. If the link was already silent when the request
 * was sent, that silence counts, too. */
static bool had_time_to_reply(const hf_request *request, hf_time now) {
    const hf_session *session = request->session;
    hf_time silent_since = hf_time_max(session->awaiting_since, session->received_at);
    return now >= hf_time_min(request->sent_at, silent_since) + HF_HEALTHY_ROUND_TRIP;
}

void hf_task_abort_link(const hf_task *task, hf_time now) {
    const hf_request *request = &task->request;
    bool own_link = task->client->config.renewer == HF_LINK_RENEWER;
    bool unanswered = request->possible_runs > 0 && request->failure.code == HF_UNREACHABLE;
    if (own_link && unanswered && had_time_to_reply(request, now))
        hf_session_abort(request->session, now);
}
