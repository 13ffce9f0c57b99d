#include "link/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_RETRY_DELAY (10 * HF_MS)
#define MAX_RETRY_DELAY HF_SECOND
#define MAX_SOON_RETRY_DELAY (250 * HF_MS) /* if a failover or a refusal may end at any moment */
#define MIN_REFUSAL_PAUSE (20 * HF_MS)     /* doubles with each refusal, up to 320 ms */
#define TRANSIENT_DOUBLINGS 4
/* After READONLY or NOAUTH has caused a new connection, neither causes another one for this long.
 * Doubles with each such connection, up to 800 ms. */
#define REPLICA_PAUSE (100 * HF_MS)
#define REPLICA_DOUBLINGS 3
#define IDLE_TIME HF_SECOND /* a connection that has been silent for this long may be dead */
/* How long a doubtful connection may be silent: as long as a healthy server may pause, or
 * SILENCE_LIMIT_LOGINS times as long as the log-in took if that is longer. */
#define MIN_SILENCE_LIMIT (250 * HF_MS)
#define SILENCE_LIMIT_LOGINS 4
#define MIN_MAJOR_VERSION 5 /* in older versions, a program that has read the time cannot write */

void hf_session_init(hf_session *session, const hf_session_config *config, uint64_t *random) {
    *session = (hf_session){.config = config, .server = &config->server, .random = random};
    session->login = config->fetches_login ? HF_LOGIN_NEEDED : HF_LOGIN_FIXED;
    session->max_elements = HF_REPLY_MAX_ELEMENTS;
    session->queue_end = &session->queue;
}

void hf_session_free(hf_session *session) {
    hf_buffer_free(&session->output);
    hf_buffer_free(&session->piggyback);
    hf_reader_close(&session->reader);
    free(session->replies);
    session->replies = NULL;
}

/* ---- the queue and the awaited replies ---- */

static void enqueue(hf_session *session, hf_request *request) {
    assert(request->session == session && *session->queue_end == NULL);
    request->state = HF_REQUEST_QUEUED;
    request->next = NULL;
    *session->queue_end = request;
    session->queue_end = &request->next;
}

static void remove_queued(hf_session *session, hf_request *request) {
    for (hf_request **link = &session->queue; *link; link = &(*link)->next) {
        if (*link != request) continue;
        *link = request->next;
        if (session->queue_end == &request->next) session->queue_end = link;
        return;
    }
}

static hf_request **awaiting_at(const hf_session *session, uint64_t index) {
    assert(session->replies_capacity > 0 &&
           (session->replies_capacity & (session->replies_capacity - 1)) == 0);
    return &session->replies[index & (session->replies_capacity - 1)];
}

/* A request that replicas must confirm gets two consecutive replies. */
static uint64_t replies_of(const hf_request *request) {
    return request->replicas > 0 ? 2 : 1;
}

static bool reserve_replies(hf_session *session, uint64_t more) {
    uint64_t used = session->next_reply - session->first_reply;
    assert(used <= session->replies_capacity);
    if (used + more <= session->replies_capacity) return true;
    size_t capacity = session->replies_capacity ? session->replies_capacity * 2 : 16;
    while (capacity < used + more) capacity *= 2;
    hf_request **replies = calloc(capacity, sizeof *replies);
    if (!replies) return false;
    for (uint64_t index = session->first_reply; index < session->next_reply; index++)
        replies[index & (capacity - 1)] = *awaiting_at(session, index);
    free(session->replies);
    session->replies = replies;
    session->replies_capacity = capacity;
    return true;
}

static void finish(hf_request *request, const hf_reply *reply, hf_time now) {
    const hf_session *session = request->session;
    assert(request->done);
    request->state = HF_REQUEST_DONE;
    if (reply && session->on_reply) session->on_reply(session->context, request, now);
    request->done(request, reply, now);
}

void hf_request_fail(hf_request *request, hf_code code, const char *reason, hf_time now) {
    hf_fault_set(&request->failure, code, reason);
    finish(request, NULL, now);
}

void hf_session_cancel_fetching(hf_session *session) {
    if (session->login == HF_LOGIN_FETCHING) session->login = HF_LOGIN_NEEDED;
}

/* ---- closing ---- */

static void begin_closing(hf_session *session, hf_code code, const char *reason) {
    if (session->closing) return;
    session->closing = true;
    session->reason_is_for_new_connections = false;
    session->reason_code = code;
    snprintf(session->reason, sizeof session->reason, "%s", reason);
}

void hf_session_forget_failures(hf_session *session) {
    session->opens_since_reply = 0;
    session->retry_at = 0;
    session->reason[0] = '\0';
}

/* ---- connections that die silently ---- */

/* Returns whether the request was sent and must not be sent again. */
static bool must_not_resend(const hf_request *request) {
    return (request->no_retry || request->fails_on_disconnect) && request->possible_runs > 0;
}

static bool awaits_reply(const hf_session *session) {
    return session->first_reply != session->next_reply || session->ping_pending;
}

/* Returns the time since which the server has been silent: when it last sent something or, if that
 * is later, when the session began to await a reply. Before the session is READY: when the attempt
 * to connect or the log-in began. */
static hf_time silent_since(const hf_session *session) {
    if (session->state != HF_SESSION_READY) return session->opened_at;
    if (!awaits_reply(session)) return session->received_at;
    return hf_time_max(session->awaiting_since, session->received_at);
}

static bool was_idle_before(const hf_session *session, hf_time time) {
    return time >= hf_time_add(session->received_at, IDLE_TIME);
}

static bool is_doubtful(const hf_session *session) {
    return session->marked_doubtful || was_idle_before(session, silent_since(session));
}

/* Returns whether a command that must not be sent twice is awaiting its reply. It would fail if the
 * connection were given up. */
static bool awaits_unrepeatable(const hf_session *session) {
    for (uint64_t index = session->first_reply; index < session->next_reply; index++) {
        const hf_request *request = *awaiting_at(session, index);
        if (request && request->no_retry) return true;
    }
    return false;
}

/* Returns how long the server may be silent while a reply is awaited. A distant server, and a
 * server whose replicas must confirm writes, get more time. */
static hf_time silence_limit(const hf_session *session) {
    const hf_session_config *config = session->config;
    if (awaits_unrepeatable(session)) return config->command_timeout;
    hf_time base = is_doubtful(session)
                       ? hf_time_min(MIN_SILENCE_LIMIT, config->command_timeout / 2)
                       : config->command_timeout / 2;
    hf_time span =
        hf_time_max(base, SILENCE_LIMIT_LOGINS * session->login_duration) + config->confirm_timeout;
    return hf_time_min(span, config->command_timeout);
}

/* Returns when to give up a silent connection, or HF_NEVER if no reply is awaited. */
static hf_time silence_deadline(const hf_session *session) {
    const hf_session_config *config = session->config;
    switch (session->state) {
    case HF_SESSION_OPENING: return hf_time_add(session->opened_at, config->connect_timeout);
    case HF_SESSION_LOGIN:
        return hf_time_add(session->opened_at, session->opens_since_reply > 1
                                                   ? config->command_timeout
                                                   : config->command_timeout / 2);
    case HF_SESSION_READY:
        return awaits_reply(session) ? silent_since(session) + silence_limit(session) : HF_NEVER;
    default: return HF_NEVER;
    }
}

hf_time hf_session_doubtful_until(const hf_session *session) {
    bool awaits = session->state == HF_SESSION_READY && awaits_reply(session);
    return awaits && is_doubtful(session) ? silence_deadline(session) : 0;
}

static void give_up(hf_session *session, const char *reason, hf_time now) {
    if (session->closing) return;
    begin_closing(session, HF_UNREACHABLE, reason);
    session->login_timed_out = session->state == HF_SESSION_LOGIN;
    if (session->on_silence) session->on_silence(session->context, silent_since(session), now);
}

void hf_session_abort(hf_session *session, hf_time now) {
    if (session->state == HF_SESSION_READY) give_up(session, "no reply in time", now);
}

void hf_session_prepare_close(hf_session *session) {
    session->marked_doubtful = session->state == HF_SESSION_READY;
    if (session->state == HF_SESSION_CLOSED) hf_session_forget_failures(session);
}

void hf_session_doubt(hf_session *session, hf_time since, hf_time now) {
    bool open = session->state == HF_SESSION_READY && !session->closing;
    if (!open || session->received_at > since) return;
    session->marked_doubtful = true;
    if (!awaits_reply(session)) hf_session_ping(session, now);
}

/* Returns whether the server may be used. Any node of the cluster will do, because it redirects
 * each command to the node of its key. */
static bool is_expected_server(const hf_session *session) {
    const char *id = session->peer_id;
    return !session->node_id[0] || !id[0] || strcmp(id, session->node_id) == 0 ||
           session->is_member(session->context, id);
}

void hf_session_check_id(hf_session *session) {
    if (session->state == HF_SESSION_CLOSED) hf_session_forget_failures(session);
    else if (!is_expected_server(session))
        begin_closing(session, HF_UNREACHABLE, "another node has taken over the server's address");
}

static void forget_reply(hf_request *request) {
    hf_reply_free(request->reply);
    request->reply = NULL;
}

static void requeue_sent(hf_session *session) {
    hf_request *head = NULL, **end = &head;
    for (uint64_t index = session->first_reply; index < session->next_reply; index++) {
        hf_request *request = *awaiting_at(session, index);
        if (!request || request->state == HF_REQUEST_QUEUED)
            continue; /* a dropped request, or the second reply to one */
        forget_reply(request);
        request->state = HF_REQUEST_QUEUED;
        *end = request;
        end = &request->next;
    }
    session->first_reply = session->next_reply = 0;
    if (!head) return;
    *end = session->queue;
    if (!session->queue) session->queue_end = end;
    session->queue = head;
}

static bool ended_by_transient_refusal(const hf_session *session) {
    return hf_refusal_is_transient(hf_refusal_of(session->reason), false);
}

/* A successful log-in does not reset opens_since_reply, but a later reply does. Otherwise a server
 * that closes each connection at once would be tried more often than one that refuses them. */
static void schedule_reopen(hf_session *session, hf_time now) {
    if (session->opens_since_reply == 0 || session->retries_login) {
        session->retry_at = now;
        return;
    }
    uint32_t doublings = session->opens_since_reply < 11 ? session->opens_since_reply - 1 : 10;
    bool retries_soon = session->follows_master || ended_by_transient_refusal(session);
    hf_time max_delay = retries_soon ? MAX_SOON_RETRY_DELAY : MAX_RETRY_DELAY;
    hf_time delay = hf_time_min(MIN_RETRY_DELAY << doublings, max_delay);
    session->retry_at = now + delay / 2 + hf_jitter(session->random, delay / 2 + 1);
}

/* Returns whether the request fails if an attempt to connect fails. */
static bool must_not_wait(const hf_session *session, const hf_request *request) {
    bool outcome_unknown = request->possible_runs > 0 && session->reason_code == HF_UNREACHABLE;
    bool logs_in_again = request->accepted && session->reason_code == HF_DENIED;
    return !request->waits_for_connection && !outcome_unknown && !logs_in_again;
}

/* Fails the queued requests that must not be sent again. Unless `may_wait` is set, also fails those
 * that must not wait for the next connection. A `done` may change the queue. */
static void fail_queued(hf_session *session, bool may_wait, hf_time now) {
    hf_request *request = session->queue;
    while (request) {
        if (!must_not_resend(request) && (may_wait || !must_not_wait(session, request))) {
            request = request->next;
            continue;
        }
        remove_queued(session, request);
        hf_request_fail(request, session->reason_code, session->reason, now);
        request = session->queue;
    }
}

static void report_delay(hf_session *session, const hf_request *request, hf_code code,
                         const char *reason, hf_time now) {
    if (session->on_delay) session->on_delay(session->context, request, code, reason, now);
}

/* If no connection could be opened, reports the delay of each queued request. */
static void report_delays(hf_session *session, hf_time now) {
    if (session->opens_since_reply == 0) return;
    for (hf_request *request = session->queue; request; request = request->next)
        report_delay(session, request, hf_session_failure_code(session), session->reason, now);
}

static bool persists(const hf_request *request) {
    return request->resend_until > 0;
}

/* Counts consecutive transient refusals of the request. After the first one, a request that
 * persists also waits for connections. */
static void count_refusal(hf_request *request, bool transient) {
    request->refusals = transient ? request->refusals + 1 : 0;
    if (!transient || !persists(request)) return;
    request->deadline = request->resend_until;
    request->waits_for_connection = true;
}

/* Called when a connection has ended. If it ended with a transient refusal, counts that as a
 * refusal of each request, because those that were sent after the refused one would be refused as
 * well, and their replies are not read. */
static void count_refusals(hf_session *session) {
    if (!ended_by_transient_refusal(session)) return;
    for (hf_request *request = session->queue; request; request = request->next) {
        if (request->refusals == 0) count_refusal(request, true);
    }
}

/* Offers the queued requests to the topology, because the server is unreachable and another node
 * may serve them. */
static void hand_over_queue(hf_session *session, hf_time now) {
    if (!session->on_refusal || session->reason_code != HF_UNREACHABLE) return;
    const char *error = ended_by_transient_refusal(session) ? session->reason : NULL;
    hf_request *request = session->queue;
    session->queue = NULL;
    session->queue_end = &session->queue;
    for (hf_request *next; request; request = next) {
        next = request->next;
        if (must_not_resend(request) || !session->on_refusal(session->context, request, error, now))
            enqueue(session, request);
    }
}

/* Returns the likely reason why the server closed the connection before its first byte or during
 * the log-in: it expects TLS, or it is a proxy that rejects one of the commands. */
static const char *early_hang_up_text(const hf_session *session) {
    const hf_server *server = session->server;
    bool may_expect_tls = !session->has_received && !server->tls && server->port != 0;
    return may_expect_tls ? "the server closed the connection during login; if it expects TLS, use "
                            "rediss://; if it is a proxy, it may reject CLIENT or SELECT"
                          : "the server closed the connection during login; if it is a proxy, it "
                            "may reject CLIENT or SELECT";
}

static const char *hang_up_text(const hf_session *session) {
    if (session->state != HF_SESSION_READY || !session->has_received)
        return early_hang_up_text(session);
    if (session->opens_since_reply <= 1) return "the server closed the connection";
    return session->subscriber
               ? "the connection was closed on SUBSCRIBE; is a proxy rejecting that command?"
               : "the connection was closed on the first command; is a proxy rejecting EVALSHA?";
}

/* Returns whether the connection worked until it was no longer needed. */
static bool was_closed_as_unused(const hf_session *session) {
    bool was_connected = session->state == HF_SESSION_LOGIN || session->state == HF_SESSION_READY;
    return was_connected && !session->closing && session->subscriber && !session->stays_open;
}

void hf_session_closed(hf_session *session, const char *reason, hf_time now) {
    hf_session_cancel_fetching(session);
    if (session->state == HF_SESSION_CLOSED) return;
    bool was_unused = was_closed_as_unused(session);
    begin_closing(session, was_unused ? HF_CLOSED : HF_UNREACHABLE,
                  reason ? reason : hang_up_text(session));
    bool may_move = session->follows_master && session->reason_code == HF_UNREACHABLE;
    bool may_wait = session->state == HF_SESSION_READY || may_move || session->login_timed_out ||
                    session->retries_login;
    if (session->state == HF_SESSION_READY && session->on_change)
        session->on_change(session->context, session, false);
    session->state = HF_SESSION_CLOSED;
    session->closing = session->login_timed_out = false;
    session->marked_doubtful = session->ping_pending = false;
    session->peer_id[0] = '\0';
    session->unresolved = session->follows_master;
    hf_buffer_clear(&session->output);
    hf_buffer_clear(&session->piggyback);
    session->piggyback_count = 0;
    hf_reader_close(&session->reader);
    requeue_sent(session);
    count_refusals(session);
    schedule_reopen(session, now);
    session->retries_login = false;
    if (!may_wait) hand_over_queue(session, now);
    fail_queued(session, may_wait, now);
    report_delays(session, now);
    if (was_unused) hf_session_forget_failures(session);
    if (session->on_closed) session->on_closed(session->context, now);
}

hf_code hf_session_failure_code(const hf_session *session) {
    bool denied = session->reason[0] != '\0' && session->reason_code == HF_DENIED;
    return denied ? HF_DENIED : HF_UNREACHABLE;
}

/* ---- following a master ---- */

static bool is_needed(const hf_session *session) {
    return session->stays_open || session->queue;
}

hf_time hf_session_resolve_at(const hf_session *session) {
    bool waits = session->state == HF_SESSION_CLOSED && session->unresolved && is_needed(session);
    return waits ? session->retry_at : HF_NEVER;
}

void hf_session_resolve(hf_session *session) {
    assert(session->state == HF_SESSION_CLOSED);
    session->unresolved = false;
}

void hf_session_move(hf_session *session, hf_time now) {
    session->opens_since_reply = 0;
    session->retry_at = now;
    if (session->state != HF_SESSION_CLOSED)
        begin_closing(session, HF_UNREACHABLE, "the master has moved");
}

void hf_session_fail_pending(hf_session *session, hf_code code, const char *reason, hf_time now) {
    session->reason_is_for_new_connections = false;
    session->reason_code = code;
    snprintf(session->reason, sizeof session->reason, "%s", reason);
    session->opens_since_reply++;
    schedule_reopen(session, now);
    fail_queued(session, false, now);
    report_delays(session, now);
    if (session->on_closed) session->on_closed(session->context, now);
}

void hf_session_fail_all(hf_session *session, hf_code code, const char *reason, hf_time now) {
    requeue_sent(session);
    for (hf_request *request; (request = session->queue);) {
        remove_queued(session, request);
        hf_request_fail(request, code, reason, now);
    }
}

/* ---- sending ---- */

static bool append_source(hf_buffer *output, const hf_program *program) {
    const char *segment;
    for (size_t i = 0; (segment = hf_program_segment(program, i)); i++) {
        if (!hf_buffer_append(output, segment, strlen(segment))) return false;
    }
    return true;
}

/* Appends EVAL with the program's source, because the server does not have the program. The other
 * arguments are those of EVALSHA. */
static bool append_eval(hf_session *session, const hf_request *request) {
    static const char EVALSHA[] = "$7\r\nEVALSHA\r\n$40\r\n";
    const char *head_end = memchr(request->bytes, '\n', request->size);
    size_t count = (size_t)(head_end - request->bytes) + 1, skip = count + sizeof EVALSHA - 1 + 42;
    char head[64];
    int size = snprintf(head, sizeof head, "$4\r\nEVAL\r\n$%zu\r\n", request->program->length);
    size_t old_size = session->output.end - session->output.start;
    if (hf_buffer_append(&session->output, request->bytes, count) &&
        hf_buffer_append(&session->output, head, (size_t)size) &&
        append_source(&session->output, request->program) &&
        hf_buffer_append(&session->output, "\r\n", 2) &&
        hf_buffer_append(&session->output, request->bytes + skip, request->size - skip)) {
        return true;
    }
    session->output.end = session->output.start + old_size;
    return false;
}

/* Called before an awaited reply is added. If no other reply is awaited, the server's time to reply
 * starts now. */
static void begin_awaiting(hf_session *session, hf_time now) {
    if (!awaits_reply(session)) session->awaiting_since = now;
}

bool hf_session_ping(hf_session *session, hf_time now) {
    static const char PING[] = "*1\r\n$4\r\nPING\r\n";
    assert(session->state == HF_SESSION_READY);
    bool has_room = session->subscriber || reserve_replies(session, 1);
    if (!has_room || !hf_buffer_append(&session->output, PING, sizeof PING - 1)) return false;
    begin_awaiting(session, now);
    session->ping_pending = true;
    if (!session->subscriber) *awaiting_at(session, session->next_reply++) = NULL;
    return true;
}

/* Returns whether the command must wait until the reply to a PING proves that the connection works.
 * Sends that PING if none is pending. If there is no memory for it, the command does not wait. */
static bool delay_for_ping(hf_session *session, const hf_request *request, hf_time now) {
    if (!request->no_retry) return false;
    hf_time since = awaits_reply(session) ? silent_since(session) : now;
    if (!session->marked_doubtful && !was_idle_before(session, since)) return false;
    return session->ping_pending || hf_session_ping(session, now);
}

static bool append_asking(hf_session *session) {
    static const char ASKING[] = "*1\r\n$6\r\nASKING\r\n";
    if (!hf_buffer_append(&session->output, ASKING, sizeof ASKING - 1)) return false;
    *awaiting_at(session, session->next_reply++) = NULL;
    return true;
}

bool hf_session_piggyback(hf_session *session, const hf_request *request) {
    if (session->state != HF_SESSION_READY || session->closing) return false;
    if (!hf_buffer_append(&session->piggyback, request->bytes, request->size)) return false;
    session->piggyback_count++;
    return true;
}

void hf_session_flush_piggybacked(hf_session *session, hf_time now) {
    size_t count = session->piggyback_count;
    hf_slice bytes = hf_buffer_content(&session->piggyback);
    if (count == 0 || !reserve_replies(session, count)) return;
    if (!hf_buffer_append(&session->output, bytes.data, bytes.size)) return;
    begin_awaiting(session, now);
    for (; count > 0; count--) *awaiting_at(session, session->next_reply++) = NULL;
    hf_buffer_clear(&session->piggyback);
    session->piggyback_count = 0;
}

static bool append_request(hf_session *session, const hf_request *request) {
    if (request->as_eval) return append_eval(session, request);
    return hf_buffer_append(&session->output, request->bytes, request->size);
}

/* Chooses the program that fits this server. A resend may go to a server of another version. */
static void choose_program(const hf_session *session, hf_request *request) {
    const hf_program *program = request->program;
    if (!program) return;
    const hf_program *fitting = session->sharded ? program->sharded : program->unsharded;
    if (fitting) hf_request_use_program(request, fitting);
}

static void send(hf_session *session, hf_request *request, hf_time now) {
    assert(session->state == HF_SESSION_READY && request->bytes);
    choose_program(session, request);
    begin_awaiting(session, now);
    hf_session_flush_piggybacked(session, now);
    bool added = !request->asking || (reserve_replies(session, 1) && append_asking(session));
    if (!added || !reserve_replies(session, replies_of(request)) ||
        !append_request(session, request)) {
        hf_request_fail(request, HF_NO_MEMORY, "out of memory", now);
        return;
    }
    request->reply_index = session->next_reply;
    assert(session->next_reply - session->first_reply + replies_of(request) <=
           session->replies_capacity);
    request->connection = session->opens;
    for (uint64_t i = replies_of(request); i > 0; i--)
        *awaiting_at(session, session->next_reply++) = request;
    request->confirmed = 0;
    request->state = HF_REQUEST_SENT;
    request->sent_at = now;
    request->retry_at = 0;
    request->possible_runs++;
}

/* Sends the queued requests, except those that wait for a retry or for the reply to a PING. The
 * `done` of a request that fails may change the queue. */
static void flush(hf_session *session, hf_time now) {
    hf_request *request = session->queue;
    while (request) {
        bool waits = request->retry_at > now;
        if (waits || delay_for_ping(session, request, now)) {
            if (!waits) request->retry_at = 0; /* it is due, but still waits for the PING's reply */
            request = request->next;
            continue;
        }
        remove_queued(session, request);
        send(session, request, now);
        request = session->queue;
    }
}

void hf_session_submit(hf_session *session, hf_request *request, hf_time now) {
    assert(request->state == HF_REQUEST_IDLE || request->state == HF_REQUEST_DONE);
    assert(request->bytes && request->done && !request->reply);
    request->possible_runs = request->refusals = 0;
    request->failure.code = HF_OK;
    hf_session_adopt(session, request, now);
}

void hf_session_adopt(hf_session *session, hf_request *request, hf_time now) {
    request->session = session;
    request->retry_at = 0;
    bool open = session->state == HF_SESSION_READY && !session->closing;
    if (open && !delay_for_ping(session, request, now)) {
        send(session, request, now);
        return;
    }
    if (session->state == HF_SESSION_CLOSED && !request->waits_for_connection)
        session->retry_at = now;
    enqueue(session, request);
}

void hf_session_retry_now(hf_session *session, hf_time now) {
    if (session->state == HF_SESSION_CLOSED && session->queue) session->retry_at = now;
}

/* Asserts that the last reply to a sent request is still awaited. */
static void check_awaited(const hf_session *session, const hf_request *request) {
    uint64_t last = request->reply_index + replies_of(request) - 1;
    assert(last >= session->first_reply && last < session->next_reply);
    assert(*awaiting_at(session, last) == request);
    (void)session, (void)last;
}

void hf_session_drop(hf_request *request) {
    hf_session *session = request->session;
    if (request->state == HF_REQUEST_QUEUED) remove_queued(session, request);
    if (request->state == HF_REQUEST_SENT) {
        check_awaited(session, request);
        if (!request->reply) *awaiting_at(session, request->reply_index) = NULL;
        if (request->replicas > 0) *awaiting_at(session, request->reply_index + 1) = NULL;
        forget_reply(request);
    }
    request->state = HF_REQUEST_IDLE;
}

/* Returns whether the request's last reply is still to come over this connection. */
static bool is_reply_due(const hf_session *session, const hf_request *request) {
    if (!session || session->state != HF_SESSION_READY || request->connection != session->opens)
        return false;
    return request->possible_runs > 0 &&
           request->reply_index + (request->reply ? 1 : 0) >= session->first_reply;
}

bool hf_session_inherit(hf_request *heir, hf_request *request) {
    hf_session *session = request->session;
    if (request->state == HF_REQUEST_QUEUED || !is_reply_due(session, request)) {
        hf_session_drop(request);
        return false;
    }
    hf_request_move(heir, request);
    heir->routing.context_is_op = false;
    heir->state = HF_REQUEST_SENT;
    if (!heir->reply) *awaiting_at(session, heir->reply_index) = heir;
    if (heir->replicas > 0) *awaiting_at(session, heir->reply_index + 1) = heir;
    request->state = HF_REQUEST_IDLE;
    return true;
}

bool hf_session_send(hf_session *session, size_t count, const hf_slice *args) {
    hf_request request = {0};
    bool sent = hf_request_command(&request, count, args) &&
                hf_buffer_append(&session->output, request.bytes, request.size);
    hf_request_clear(&request);
    return sent;
}

/* ---- opening ---- */

hf_want hf_session_wants(const hf_session *session, hf_time now) {
    if (session->state != HF_SESSION_CLOSED) {
        bool idle = session->subscriber && !session->stays_open;
        return session->closing || idle ? HF_WANT_CLOSE : HF_WANT_NOTHING;
    }
    bool may_open = is_needed(session) && !session->unresolved;
    if (!may_open || now < session->retry_at || session->login == HF_LOGIN_FETCHING)
        return HF_WANT_NOTHING;
    return session->login == HF_LOGIN_NEEDED ? HF_WANT_LOGIN : HF_WANT_OPEN;
}

bool hf_session_may_open(const hf_session *session) {
    bool knows_login = session->login == HF_LOGIN_FIXED || session->login == HF_LOGIN_SET;
    return session->state == HF_SESSION_CLOSED && !session->unresolved && knows_login;
}

bool hf_session_is_opening(const hf_session *session) {
    return session->state == HF_SESSION_OPENING;
}

void hf_session_opening(hf_session *session, hf_time now) {
    assert(hf_session_may_open(session));
    session->state = HF_SESSION_OPENING;
    session->opened_at = now;
    session->handshaking = session->found_other_server = false;
    session->opens_since_reply++;
    if (session->login == HF_LOGIN_SET) session->login = HF_LOGIN_NEEDED;
}

void hf_session_handshaking(hf_session *session) {
    assert(hf_session_is_opening(session));
    session->handshaking = true;
}

static void become_ready(hf_session *session, hf_time now) {
    assert(session->state == HF_SESSION_LOGIN && session->login_left == 0);
    session->state = HF_SESSION_READY;
    session->login_duration = now - session->opened_at;
    session->refused_logins = 0;
    if (session->opens_since_reply <= 1)
        session->reason[0] = '\0'; /* otherwise it remains until a command gets a reply */
    flush(session, now);
    if (session->on_change) session->on_change(session->context, session, true);
    if (session->on_ready) session->on_ready(session->context, now);
}

/* On servers with CVE-2025-46818 a script can change what all scripts share, such as the methods of
 * strings, and so run code with another user's permissions. The server's version does not show
 * whether it is affected, because distributions backport the fix. This script changes nothing. */
static const char EXPOSED_TEST[] =
    "return pcall(function() getmetatable('').holdfast = nil end) and 1 or 0";

/* Sends a command of the log-in, and stores the index of its reply. */
static bool send_at_login(hf_session *session, size_t *index, size_t count, const hf_slice *args) {
    *index = session->login_sent++;
    return hf_session_send(session, count, args);
}

/* Asks a cluster node for its id, and whether it supports sharded channels. Like Redisson, assumes
 * that a node that knows PUBSUB SHARDNUMSUB supports them. A different version or node comes with a
 * new connection, so asking once per log-in is enough. */
static bool ask_node(hf_session *session) {
    hf_slice id[] = {{"CLUSTER", 7}, {"MYID", 4}},
             sharded[] = {{"PUBSUB", 6}, {"SHARDNUMSUB", 11}, {"0", 1}};
    session->sharded = false;
    return send_at_login(session, &session->login_id, 2, id) &&
           send_at_login(session, &session->login_sharded, 3, sharded);
}

static bool send_login(hf_session *session) {
    const hf_session_config *config = session->config;
    const hf_server *server = session->server;
    size_t unused;
    session->login_sent = 0;
    session->login_auth = session->login_select = session->login_role = SIZE_MAX;
    session->login_info = session->login_known = session->login_scripts = SIZE_MAX;
    session->login_id = session->login_sharded = SIZE_MAX;
    if (server->user[0] || server->password[0]) {
        hf_slice auth[] = {{"AUTH", 4}, hf_slice_of(server->user), hf_slice_of(server->password)};
        if (server->user[0] == '\0') auth[1] = auth[2];
        if (!send_at_login(session, &session->login_auth, server->user[0] ? 3 : 2, auth))
            return false;
    }
    if (server->db > 0) {
        char text[24];
        hf_slice select[] = {{"SELECT", 6}, hf_decimal(text, server->db)};
        if (!send_at_login(session, &session->login_select, 2, select)) return false;
    }
    if (config->name[0]) {
        hf_slice setname[] = {{"CLIENT", 6}, {"SETNAME", 7}, hf_slice_of(config->name)};
        if (!send_at_login(session, &unused, 3, setname)) return false;
    }
    if (session->follows_master) {
        hf_slice role[] = {{"ROLE", 4}};
        if (!send_at_login(session, &session->login_role, 1, role)) return false;
    }
    if (config->reads_server_info) {
        hf_slice info[] = {{"INFO", 4}, {"server", 6}};
        if (!send_at_login(session, &session->login_info, 2, info)) return false;
    }
    if (config->reads_known_run) {
        hf_slice get[] = {{"GET", 3}, hf_slice_of(HF_KNOWN_KEY)};
        if (!send_at_login(session, &session->login_known, 2, get)) return false;
    }
    if (config->tests_script_isolation && !session->subscriber) {
        hf_slice eval[] = {{"EVAL", 4}, hf_slice_of(EXPOSED_TEST), {"0", 1}};
        if (!send_at_login(session, &session->login_scripts, 3, eval)) return false;
    }
    if (session->node_id && !ask_node(session)) return false;
    session->login_left = session->login_sent;
    return true;
}

void hf_session_opened(hf_session *session, hf_time now) {
    assert(hf_session_is_opening(session));
    assert(session->first_reply == session->next_reply);
    session->state = HF_SESSION_LOGIN;
    session->opened_at = session->received_at = now;
    session->has_received = false;
    session->opens++;
    bool readable = hf_reader_open(&session->reader);
    if (readable) hf_reader_set_max_elements(&session->reader, session->max_elements);
    if (!readable || !send_login(session)) {
        begin_closing(session, HF_NO_MEMORY, "out of memory");
    } else if (session->login_left == 0) {
        become_ready(session, now);
    }
}

/* Returns whether the error ends the connection. A refused AUTH or SELECT does. A refused EVAL does
 * not, because some servers run everything except scripts. Any other refusal, for example of CLIENT
 * SETNAME, only makes a feature unavailable, unless the server currently runs no commands. A busy
 * server may still be used, unless it is too busy to report its node id, because it may be a
 * different node. */
static bool is_fatal_at_login(const hf_session *session, size_t index, const char *error) {
    if (index == session->login_auth || index == session->login_select) return true;
    if (index == session->login_scripts) return false;
    bool asks_node = index == session->login_id || index == session->login_sharded;
    bool is_unavailable = hf_code_of_error(error) == HF_UNREACHABLE &&
                          (asks_node || hf_refusal_of(error) != HF_REFUSAL_BUSY);
    return strncmp(error, "NOAUTH", 6) == 0 || is_unavailable;
}

/* ---- fetched user and password ---- */

void hf_session_fetching_login(hf_session *session) {
    assert(session->state == HF_SESSION_CLOSED && session->login == HF_LOGIN_NEEDED);
    session->login = HF_LOGIN_FETCHING;
}

bool hf_session_is_login_refused(const hf_session *session) {
    return session->refused_logins > 0;
}

bool hf_session_needs_other_login(const hf_session *session) {
    return session->state == HF_SESSION_CLOSED && session->login == HF_LOGIN_NEEDED &&
           session->refused_logins > 0;
}

void hf_session_log_in_again(hf_session *session) {
    if (session->state != HF_SESSION_CLOSED) return; /* a late fetch; the next one is up to date */
    bool needs_login = session->login == HF_LOGIN_NEEDED || session->login == HF_LOGIN_FETCHING;
    if (needs_login) session->login = HF_LOGIN_SET;
}

void hf_session_login_failed(hf_session *session, hf_code code, const char *reason, hf_time now) {
    if (session->login != HF_LOGIN_FETCHING) return;
    session->login = HF_LOGIN_NEEDED;
    hf_session_fail_pending(session, code, reason, now);
}

/* Passwords and tokens may be replaced. After the first refusal the session therefore asks for new
 * credentials, and fails requests only if the new ones are refused, too. */
static void count_refused_login(hf_session *session) {
    if (session->login == HF_LOGIN_FIXED) return;
    session->refused_logins++;
    session->retries_login = session->refused_logins == 1;
}

/* Returns whether the server says that it is not a master. If the user lacks the permission to ask
 * for the role, only READONLY errors show that a server is a replica. */
static bool is_not_master(const hf_reply *role) {
    return role->type != HF_REPLY_ERROR &&
           !hf_slice_equal(hf_reply_string_at(role, 0), hf_slice_of("master"));
}

/* ---- the server process ---- */

/* Returns the value of a field of INFO, or an empty slice. */
static hf_slice info_field(const hf_reply *reply, const char *field) {
    if (reply->type != HF_REPLY_STRING) return (hf_slice){"", 0};
    const char *text = strstr(reply->string, field);
    if (!text) return (hf_slice){"", 0};
    text += strlen(field);
    return (hf_slice){text, strcspn(text, "\r\n")};
}

/* If the run id is new or missing, the server process counts as known only from now on. */
static void set_run_id(hf_session *session, hf_slice run_id, hf_time now) {
    bool same = run_id.size > 0 && hf_slice_equal(run_id, hf_slice_of(session->run_id));
    if (!same) session->known_since = now;
    size_t size = run_id.size <= HF_RUN_ID_SIZE ? run_id.size : 0;
    memcpy(session->run_id, run_id.data, size);
    session->run_id[size] = '\0';
    session->run_id_stored = false;
}

/* Refuses a server that is too old. A version that is missing or not a number is accepted. */
static void check_version(hf_session *session, hf_slice version) {
    unsigned long major = version.size > 0 ? strtoul(version.data, NULL, 10) : 0;
    if (major == 0 || major >= MIN_MAJOR_VERSION) return;
    char text[96];
    snprintf(text, sizeof text, "the server is Redis %.*s; holdfast needs Redis %d.0 or later",
             (int)hf_time_min(version.size, 24), version.data, MIN_MAJOR_VERSION);
    begin_closing(session, HF_SERVER, text);
}

static void read_server_info(hf_session *session, const hf_reply *info, hf_time now) {
    set_run_id(session, info_field(info, "\nrun_id:"), now);
    check_version(session, info_field(info, "\nredis_version:"));
}

static void read_known_run_id(hf_session *session, const hf_reply *known) {
    bool equal = known->type == HF_REPLY_STRING && strcmp(known->string, session->run_id) == 0;
    session->run_id_stored = equal && session->run_id[0] != '\0';
}

bool hf_session_is_known(const hf_session *session, hf_time guard, hf_time now) {
    return session->run_id_stored || now >= hf_time_add(session->known_since, guard);
}

void hf_session_store_run_id(hf_session *session, hf_time now) {
    bool ready = session->state == HF_SESSION_READY && !session->closing;
    if (!ready || session->run_id_stored || session->run_id[0] == '\0') return;
    hf_slice set[] = {{"SET", 3}, hf_slice_of(HF_KNOWN_KEY), hf_slice_of(session->run_id)};
    if (!reserve_replies(session, 1) || !hf_session_send(session, 3, set)) return;
    begin_awaiting(session, now);
    *awaiting_at(session, session->next_reply++) =
        NULL; /* if the server refuses this, other clients wait for restart_guard themselves */
    session->run_id_stored = true;
}

/* ---- the node of a cluster ---- */

static void refuse_server(hf_session *session, const char *who) {
    char text[sizeof session->reason];
    snprintf(text, sizeof text, "another server answers at this address (%s; the cluster has %s)",
             who, session->node_id);
    session->found_other_server = true;
    begin_closing(session, HF_UNREACHABLE, text);
}

/* Checks the node's id. If the user lacks the permission to ask for it, any server is accepted,
 * except one that is not in a cluster. */
static void check_id(hf_session *session, const hf_reply *reply) {
    static const char SINGLE[] = "ERR This instance has cluster support disabled";
    bool not_clustered = reply->type == HF_REPLY_ERROR && strcmp(reply->string, SINGLE) == 0;
    bool has_id = reply->type == HF_REPLY_STRING && reply->size <= HF_NODE_ID_SIZE;
    if (has_id) snprintf(session->peer_id, sizeof session->peer_id, "%s", reply->string);
    if (not_clustered && session->node_id[0]) refuse_server(session, "not in a cluster");
    else if (!is_expected_server(session)) refuse_server(session, session->peer_id);
}

/* ---- replies to the log-in ---- */

static void on_login_reply(hf_session *session, const hf_reply *reply, hf_time now) {
    assert(session->login_left > 0 && session->login_left <= session->login_sent);
    size_t index = session->login_sent - session->login_left--;
    if (index == session->login_info) read_server_info(session, reply, now);
    if (index == session->login_known) read_known_run_id(session, reply);
    if (index == session->login_scripts)
        session->lacks_script_isolation = reply->type == HF_REPLY_INTEGER && reply->integer == 1;
    if (index == session->login_id) check_id(session, reply);
    if (index == session->login_sharded) session->sharded = reply->type != HF_REPLY_ERROR;
    if (session->closing) return;
    if (reply->type == HF_REPLY_ERROR && is_fatal_at_login(session, index, reply->string)) {
        hf_code code = hf_code_of_error(reply->string);
        bool refused = index == session->login_auth && code == HF_SERVER;
        if (refused || code == HF_DENIED) count_refused_login(session);
        begin_closing(session, refused ? HF_DENIED : code, reply->string);
    } else if (index == session->login_role && is_not_master(reply)) {
        begin_closing(session, HF_UNREACHABLE, "the server says that it is not a master");
    } else if (session->login_left == 0) {
        become_ready(session, now);
    }
}

/* ---- replies ---- */

static hf_time pause_after_refusal(const hf_session *session, const hf_request *request) {
    uint32_t doublings = request->refusals - 1;
    hf_time pause = MIN_REFUSAL_PAUSE
                    << (doublings < TRANSIENT_DOUBLINGS ? doublings : TRANSIENT_DOUBLINGS);
    return pause / 2 + hf_jitter(session->random, pause);
}

/* Retries the request after a pause. Keeps the error, which explains more than "no reply in time"
 * if the deadline passes before the next reply. Returns false if the request must fail. */
static bool retry_later(hf_session *session, hf_request *request, const char *error, hf_time now) {
    if (hf_refusal_of(error) == HF_REFUSAL_OF_WRITES && !persists(request)) return false;
    if (now >= request->deadline) return false;
    hf_fault_set(&request->failure, hf_code_of_error(error), error);
    request->retry_at = hf_time_min(now + pause_after_refusal(session, request), request->deadline);
    enqueue(session, request);
    report_delay(session, request, request->failure.code, error, now);
    return true;
}

/* Called when the server is no longer a master, or has forgotten the log-in. A followed master has
 * moved; the host name of another server may now resolve to a different address. The command is put
 * back among those that await replies, and is sent again with them, in order, over the next
 * connection. */
static void put_back_and_reconnect(hf_session *session, hf_request *request, const char *error,
                                   hf_time now) {
    request->needs_new_connection = true;
    session->no_reconnect_until = now + (REPLICA_PAUSE << session->refused_connections);
    if (session->refused_connections < REPLICA_DOUBLINGS) session->refused_connections++;
    session->first_reply--;
    assert(request->reply_index == session->first_reply);
    for (uint64_t i = 0; i < replies_of(request); i++)
        *awaiting_at(session, session->first_reply + i) = request;
    bool reopens = !session->closing;
    begin_closing(session, session->follows_master ? HF_UNREACHABLE : hf_code_of_error(error),
                  error);
    session->reason_is_for_new_connections = reopens && !session->follows_master;
}

static bool has_credentials(const hf_session *session) {
    return session->server->user[0] || session->server->password[0] ||
           session->login != HF_LOGIN_FIXED;
}

/* Returns whether a new connection might serve the command. A command that keeps trying gets a new
 * connection from time to time, any other command only one. */
static bool needs_other_connection(const hf_session *session, const hf_request *request,
                                   const char *error, bool transient, hf_time now) {
    bool keeps_trying = transient && (persists(request) || request->accepted);
    bool due =
        now >= session->no_reconnect_until && (keeps_trying || !request->needs_new_connection);
    if (hf_error_is_readonly(error)) return session->follows_master || due;
    return due && has_credentials(session) && strncmp(error, "NOAUTH", 6) == 0;
}

static void on_error_reply(hf_session *session, hf_request *request, const hf_reply *reply,
                           hf_time now) {
    assert(request->possible_runs > 0);
    request->possible_runs--; /* the server did not run it */
    bool program_unknown =
        request->program && !request->as_eval && strncmp(reply->string, "NOSCRIPT", 8) == 0;
    bool transient = hf_refusal_is_transient(hf_refusal_of(reply->string), request->accepted);
    count_refusal(request, transient);
    if (needs_other_connection(session, request, reply->string, transient, now)) {
        put_back_and_reconnect(session, request, reply->string, now);
        return;
    }
    if (program_unknown) {
        request->as_eval = true;
        send(session, request, now);
        return;
    }
    if (session->on_refusal && session->on_refusal(session->context, request, reply->string, now))
        return;
    if (transient && retry_later(session, request, reply->string, now)) return;
    hf_request_fail(request, hf_code_of_error(reply->string), reply->string, now);
}

/* Handles the reply to the WAIT. The command itself has been carried out. If the WAIT was refused,
 * the failure's text says why. */
static void on_wait_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_reply *first = request->reply;
    assert(request->replicas > 0);
    bool counts = reply->type == HF_REPLY_INTEGER && reply->integer > 0;
    request->reply = NULL;
    request->confirmed = counts ? (uint32_t)hf_time_min((hf_time)reply->integer, UINT32_MAX) : 0;
    hf_fault_set(&request->failure, HF_OK, reply->type == HF_REPLY_ERROR ? reply->string : "");
    request->as_eval = false;
    finish(request, first, now);
    hf_reply_free(first);
}

/* Handles a reply. If the request keeps the reply, sets *reply to NULL. */
static void on_reply(hf_session *session, hf_reply **reply, hf_time now) {
    bool error = (*reply)->type == HF_REPLY_ERROR;
    if (!error) session->refused_connections = 0;
    if (session->first_reply == session->next_reply) {
        begin_closing(session, HF_UNREACHABLE,
                      error ? (*reply)->string : "the server sent an unexpected reply");
        return;
    }
    hf_request *request = *awaiting_at(session, session->first_reply++);
    session->reply_count++;
    if (!request) return;
    if (request->reply) {
        on_wait_reply(request, *reply, now);
    } else if (error) {
        if (request->replicas > 0)
            *awaiting_at(session, session->first_reply) =
                NULL; /* the WAIT has nothing to wait for */
        on_error_reply(session, request, *reply, now);
    } else if (request->replicas > 0) {
        request->reply = *reply;
        *reply = NULL;
    } else {
        request->as_eval = false;
        finish(request, *reply, now);
    }
}

static void dispatch(hf_session *session, hf_reply **reply_slot, hf_time now) {
    const hf_reply *reply = *reply_slot;
    if (session->state == HF_SESSION_LOGIN) {
        on_login_reply(session, reply, now);
    } else if (session->subscriber) {
        session->on_event(session->context, reply, now);
    } else {
        on_reply(session, reply_slot, now);
    }
}

/* Ends the connection after an unreadable reply. If the reply was too large, its request fails,
 * because it would get the same reply again. All other requests are sent again. */
static void on_unreadable(hf_session *session, hf_time now) {
    const char *excess = session->reader.excess;
    begin_closing(session, HF_UNREACHABLE,
                  excess ? excess : "the reply is not in the Redis protocol");
    bool awaited = session->state == HF_SESSION_READY && session->first_reply < session->next_reply;
    hf_request *request = excess && awaited ? *awaiting_at(session, session->first_reply) : NULL;
    if (!request) return;
    session->opens_since_reply = 0; /* the server does reply to commands */
    hf_session_drop(request);
    hf_request_fail(request, HF_UNREACHABLE, excess, now);
}

/* A TLS server replies to a client without TLS with an alert: a record of type 21, version 3.x. */
static bool is_tls_alert(const char *bytes, size_t size) {
    return size >= 2 && bytes[0] == 0x15 && bytes[1] == 0x03;
}

bool hf_session_feed(hf_session *session, const char *bytes, size_t size, hf_time now) {
    bool open = session->state == HF_SESSION_LOGIN || session->state == HF_SESSION_READY;
    if (!open || session->closing) return false;
    if (!session->has_received && is_tls_alert(bytes, size)) {
        session->has_received = true;
        begin_closing(session, HF_UNREACHABLE, "the server speaks TLS; use rediss://");
        return true;
    }
    bool has_reply = false, was_pinged = session->ping_pending;
    session->has_received = true;
    session->marked_doubtful = session->ping_pending = false;
    session->received_at = now;
    if (!hf_reader_feed(&session->reader, bytes, size))
        begin_closing(session, HF_NO_MEMORY, "out of memory");
    while (!session->closing) {
        hf_reply *reply;
        if (!hf_reader_next(&session->reader, &reply)) on_unreadable(session, now);
        if (!reply) break;
        has_reply = true;
        bool was_ready = session->state == HF_SESSION_READY; /* log-in replies do not count */
        dispatch(session, &reply, now);
        hf_reply_free(reply);
        if (was_ready && !session->closing) {
            session->opens_since_reply = 0;
            session->reason[0] = '\0';
        }
    }
    if (was_pinged && session->queue && !session->closing) flush(session, now);
    return has_reply || session->closing;
}

/* ---- output and time ---- */

hf_slice hf_session_output(const hf_session *session) {
    return hf_buffer_content(&session->output);
}

void hf_session_written(hf_session *session, size_t size) {
    hf_buffer_consume(&session->output, size);
}

bool hf_session_has_work(const hf_session *session) {
    for (uint64_t index = session->first_reply; index < session->next_reply; index++) {
        if (*awaiting_at(session, index)) return true;
    }
    return session->queue != NULL || session->ping_pending;
}

static hf_time request_deadline(const hf_session *session) {
    hf_time earliest = HF_NEVER;
    for (const hf_request *request = session->queue; request; request = request->next) {
        earliest = hf_time_min(earliest, request->deadline);
        bool retries = request->retry_at > 0 && session->state == HF_SESSION_READY;
        if (retries) earliest = hf_time_min(earliest, request->retry_at);
    }
    for (uint64_t index = session->first_reply; index < session->next_reply; index++) {
        const hf_request *request = *awaiting_at(session, index);
        if (request) earliest = hf_time_min(earliest, request->deadline);
    }
    return earliest;
}

hf_time hf_session_next_tick(const hf_session *session) {
    hf_time earliest = hf_time_min(silence_deadline(session), request_deadline(session));
    bool reopens = session->state == HF_SESSION_CLOSED && is_needed(session) &&
                   !session->unresolved && session->login != HF_LOGIN_FETCHING;
    return reopens ? hf_time_min(earliest, session->retry_at) : earliest;
}

/* Returns whether the session's reason explains why the request got no reply. */
static bool is_explained(const hf_session *session, const hf_request *request) {
    if (!session->reason[0] ||
        (session->reason_is_for_new_connections && !request->needs_new_connection))
        return false;
    return request->state == HF_REQUEST_QUEUED || session->opens_since_reply > 1;
}

/* Fails a request whose deadline has passed. The failure says why there is no connection, or what
 * the last refusal was, if either is known. */
static void expire(hf_session *session, hf_request *request, hf_time now) {
    bool is_known = is_explained(session, request);
    hf_session_drop(request);
    if (!is_known && request->failure.code != HF_OK) {
        finish(request, NULL, now);
        return;
    }
    const char *reason = is_known ? session->reason : "no reply in time";
    hf_request_fail(request, is_known ? session->reason_code : HF_UNREACHABLE, reason, now);
}

static hf_request *first_expired(const hf_session *session, hf_time now) {
    for (hf_request *request = session->queue; request; request = request->next) {
        if (request->deadline <= now) return request;
    }
    return NULL;
}

/* Fails the queued requests whose deadlines have passed. Returns whether there were any. A `done`
 * may change the queue. */
static bool expire_queued(hf_session *session, hf_time now) {
    hf_request *request = first_expired(session, now);
    bool found = request != NULL;
    for (; request; request = first_expired(session, now)) expire(session, request, now);
    return found;
}

/* Fails the sent requests whose deadlines have passed, and returns whether there were any. An
 * expired request leaves NULL, so each entry is visited once. A `done` may add requests at the end,
 * or close the session, which empties the list. */
static bool expire_awaited(hf_session *session, hf_time now) {
    bool found = false;
    for (uint64_t index = session->first_reply; index < session->next_reply; index++) {
        hf_request *request = *awaiting_at(session, index);
        if (!request || request->deadline > now) continue;
        expire(session, request, now);
        found = true;
    }
    return found;
}

static const char *silence_text(const hf_session *session) {
    if (session->state != HF_SESSION_OPENING) return "no reply in time";
    return session->handshaking ? "the TLS handshake timed out; does the server speak TLS?"
                                : "the connection attempt timed out";
}

void hf_session_tick(hf_session *session, hf_time now) {
    if (silence_deadline(session) <= now) give_up(session, silence_text(session), now);
    if (request_deadline(session) > now) return;
    for (bool found = true; found;) {
        found = expire_queued(session, now);
        found = expire_awaited(session, now) || found;
    }
    if (session->state == HF_SESSION_READY && !session->closing) flush(session, now);
}
