/* One session, and calls whose outcome is written down. */
#ifndef SESSION_RIG_H
#define SESSION_RIG_H

#include "drive.h"
#include "link/session.h"

static hf_session_config config;
static hf_session session;
static uint64_t random_state;

/* What became of a request: "", then "done" or the failure's code and text. */
struct call {
    hf_request request;
    char outcome[256];
    int calls;
    struct call *then; /* submitted by `done` */
};

static UNUSED void on_done(hf_request *request, const hf_reply *reply, hf_time now) {
    struct call *call = request->context;
    call->calls++;
    if (!reply) {
        snprintf(call->outcome, sizeof call->outcome, "%s: %.200s",
                 hf_code_name(request->failure.code), hf_fault_text(&request->failure));
    } else if (reply->type == HF_REPLY_INTEGER) {
        snprintf(call->outcome, sizeof call->outcome, "%lld", reply->integer);
    } else {
        snprintf(call->outcome, sizeof call->outcome, "%.200s",
                 reply->string ? reply->string : "done");
    }
    if (call->then) hf_session_submit(&session, &call->then->request, now);
}

#define MAX_CALLS 64

static struct call *begun[MAX_CALLS]; /* by the test; NULL behind the last one */
static bool is_begun;                 /* the session is there until `finish` */

static UNUSED struct call one, two, three, heir;

static UNUSED void discard(struct call *call) {
    hf_session_drop(&call->request);
    hf_request_clear(&call->request);
}

/* Ends what start has begun, and all calls. */
static UNUSED void finish(void) {
    for (size_t i = 0; begun[i]; i++) discard(begun[i]);
    memset(begun, 0, sizeof begun);
    if (is_begun) hf_session_free(&session);
    is_begun = false;
}

static UNUSED void start(void) {
    finish();
    random_state = 1;
    config = DRIVE_CONFIG;
    hf_session_init(&session, &config, &random_state);
    is_begun = true;
}

static UNUSED void connect_at(hf_time now) {
    open_session(&session, now);
}

static UNUSED void receive(const char *text, hf_time now) {
    feed(&session, text, now);
}

/* The connection is lost, or was refused, for this reason. */
static UNUSED void hang_up(const char *reason, hf_time now) {
    hf_session_closed(&session, reason, now);
}

/* What the session has to write. */
#define CHECK_SENDS(want) CHECK_STR(output_of(&session), want)

static UNUSED void start_open(void) {
    start();
    connect_at(AT(0));
}

static UNUSED void note(struct call *call) {
    size_t i = 0;
    while (begun[i] && begun[i] != call) i++;
    if (i == MAX_CALLS - 1) abort();
    begun[i] = call;
}

static UNUSED void prepare(struct call *call, const hf_program *program, const char *text) {
    hf_slice arg = hf_slice_of(text);
    note(call);
    memset(call, 0, sizeof *call);
    bool encoded = program ? hf_request_call(&call->request, program, 1, 1, &arg)
                           : hf_request_command(&call->request, 1, &arg);
    if (!encoded) abort();
    call->request.done = on_done;
    call->request.context = call;
}

static UNUSED void submit(struct call *call, const char *text, int deadline_ms, hf_time now) {
    prepare(call, NULL, text);
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

/* An open session that has sent "A", whose call is `one`. */
static UNUSED void start_calling(int deadline_ms, hf_time now) {
    start_open();
    submit(&one, "A", deadline_ms, now);
}

/* A request that waits for a connection however often one is refused. */
static UNUSED void submit_patient(struct call *call, const char *text, int deadline_ms,
                                  hf_time now) {
    prepare(call, NULL, text);
    call->request.waits_for_connection = true;
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

/* The connection is lost, or was refused, for this reason, and the next one opens. */
static UNUSED void reopen(const char *reason, hf_time now, hf_time then) {
    hang_up(reason, now);
    connect_at(then);
}

/* The server refuses a connection. */
static UNUSED void refuse(hf_time now) {
    hf_session_opening(&session, now);
    hang_up("refused", now);
}

#define CHECK_TICK(now, call, want)                                                                \
    (hf_session_tick(&session, now), CHECK_STR((call).outcome, want))

/* What became of the call after this reply. */
#define CHECK_REPLY(reply, now, call, want) (receive(reply, now), CHECK_STR((call).outcome, want))

/* What the session sends after this reply, or from this time on. */
#define CHECK_REPLY_SENDS(reply, now, want) (receive(reply, now), CHECK_SENDS(want))

#define CHECK_TICK_SENDS(now, want) (hf_session_tick(&session, now), CHECK_SENDS(want))

/* What the session sends over a connection that opens now. */
#define CHECK_OPENED_SENDS(now, want) (connect_at(now), CHECK_SENDS(want))

#define CHECK_WANTS(want, now) CHECK_EQ_INT(hf_session_wants(&session, now), HF_WANT_##want)

/* What the session wants from its driver once it is `now`. */
#define CHECK_TICK_WANTS(want, now) (hf_session_tick(&session, now), CHECK_WANTS(want, now))

static UNUSED void submit_program(struct call *call, const char *text, int deadline_ms,
                                  hf_time now) {
    prepare(call, hf_kind_program(&hf_kind_lock, HF_VERB_INFO), text);
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

CHECK_AROUND(start, finish)

static UNUSED bool inherit(struct call *by, struct call *from) {
    note(by);
    memset(by, 0, sizeof *by);
    if (!hf_session_inherit(&by->request, &from->request)) return false;
    by->request.done = on_done;
    by->request.context = by;
    return true;
}

#define MASTER "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"

static UNUSED void submit_confirmed(struct call *call, uint32_t replicas, int deadline_ms,
                                    hf_time now) {
    prepare(call, NULL, "A");
    if (!hf_request_confirm(&call->request, replicas, HF_SECOND)) abort();
    call->request.deadline = AT(deadline_ms);
    hf_session_submit(&session, &call->request, now);
}

#endif
