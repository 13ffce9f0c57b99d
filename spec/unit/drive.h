/*
 * Drives sessions and clients as a driver would: with times made up by the test, and bytes written
 * by hand. What a session sends is read back as text, one command a line, its arguments separated
 * by spaces; a program is called by its name, and EVAL stands for its whole text.
 */
#ifndef DRIVE_H
#define DRIVE_H

#include <ctype.h>
#include <stdlib.h>

#include "check.h"
#include "fields.h"
#include "memerr.h"

/* A time on the test's clock, in milliseconds. */
#define AT(ms) (1000 * HF_SECOND + HF_MS * (hf_time)(ms))

static const hf_session_config DRIVE_CONFIG = {.server = {.host = "h", .port = 1, .label = "h:1"},
                                               .connect_timeout = HF_SECOND,
                                               .command_timeout = 3 * HF_SECOND};

static const unsigned char DRIVE_ENTROPY[24] = {0, 1,  2,  3,  4,  5,  6,  7, 8,
                                                9, 10, 11, 12, 13, 14, 15, 99};

#define DRIVE_UUID "00010203-0405-8607-8809-0a0b0c0d0e0f"
#define DRIVE_GRANTS "holdfast_grant:" DRIVE_UUID

/* ---- what was sent ---- */

#define SENT_SIZE (1 << 20)

static char sent_text[SENT_SIZE];

static UNUSED const char *text_of(const hf_program *program) {
    static char text[1 << 16];
    const char *segment;
    text[0] = '\0';
    for (size_t i = 0; (segment = hf_program_segment(program, i)); i++) strcat(text, segment);
    return text;
}

static UNUSED bool is_text_of(const hf_program *program, const char *bytes, size_t size) {
    hf_slice given = {bytes, size};
    return hf_slice_equal(given, hf_slice_of(program->sha1)) ||
           (size == program->length && memcmp(bytes, text_of(program), size) == 0);
}

/* Returns the name of the program with this hash or this text, or NULL. */
static UNUSED const char *sent_program(const char *bytes, size_t size) {
    for (size_t i = 0; hf_kinds[i]; i++) {
        for (int verb = 0; verb < HF_VERBS; verb++) {
            const hf_program *program = hf_kind_program(hf_kinds[i], (hf_verb)verb);
            if (!program) continue;
            if (is_text_of(program, bytes, size)) return program->name;
            const hf_program *sharded = program->sharded;
            if (sharded && is_text_of(sharded, bytes, size)) return sharded->name;
        }
    }
    if (is_text_of(hf_program_fence(), bytes, size)) return "fence";
    if (is_text_of(hf_program_once(), bytes, size)) return "once";
    return is_text_of(hf_program_wait(), bytes, size) ? "wait" : NULL;
}

/* Reads "<mark><number>\r\n" at *at. */
static UNUSED size_t sent_number(const char **at, const char *end, char mark) {
    char *after;
    if (*at >= end || **at != mark) abort();
    size_t number = strtoul(*at + 1, &after, 10);
    if (after + 2 > end || after[0] != '\r' || after[1] != '\n') abort();
    *at = after + 2;
    return number;
}

/* Returns all that the session has to write, which counts as written. */
static UNUSED const char *output_of(hf_session *session) {
    hf_slice output = hf_session_output(session);
    const char *at = output.data, *end = at + output.size;
    char *out = sent_text;
    while (at < end) {
        size_t count = sent_number(&at, end, '*');
        if (out > sent_text) *out++ = '\n';
        for (size_t i = 0; i < count; i++) {
            size_t size = sent_number(&at, end, '$');
            if (at + size + 2 > end || at[size] != '\r' || memchr(at, '\0', size)) abort();
            const char *program = i == 1 ? sent_program(at, size) : NULL;
            hf_slice word = program ? hf_slice_of(program) : (hf_slice){at, size};
            if (out + word.size + 8 > sent_text + SENT_SIZE) abort();
            if (i > 0) *out++ = ' ';
            memcpy(out, word.data, word.size);
            out += word.size;
            at += size + 2;
        }
    }
    *out = '\0';
    hf_session_written(session, output.size);
    return sent_text;
}

/* Returns how many of the commands in this output begin like this. */
static UNUSED int commands_in(const char *output, const char *beginning) {
    int count = strncmp(output, beginning, strlen(beginning)) == 0;
    for (const char *line = output; (line = strchr(line, '\n')); line++)
        count += strncmp(line + 1, beginning, strlen(beginning)) == 0;
    return count;
}

/* ---- one session ---- */

static UNUSED void feed_bytes(hf_session *session, const char *bytes, size_t size, hf_time now) {
    char *exact; /* so that a sanitizer sees a read past the end */
    do exact = malloc(size);
    while (!exact); /* where one allocation fails, the next does not */
    memcpy(exact, bytes, size);
    hf_session_feed(session, exact, size, now);
    free(exact);
}

static UNUSED void feed(hf_session *session, const char *text, hf_time now) {
    feed_bytes(session, text, strlen(text), now);
}

static UNUSED void open_session(hf_session *session, hf_time now) {
    hf_session_opening(session, now);
    hf_session_opened(session, now);
}

/* ---- one client ---- */

#define RIG_NODES 8

static UNUSED struct rig {
    hf_client client;
    hf_names names;
    bool refusing;                /* all connections are refused */
    const char *down[RIG_NODES];  /* for each node, why it cannot be reached, or NULL */
    const char *login[RIG_NODES]; /* for each node of a cluster, its reply to the log-in; "": none
                                     yet; NULL: DRIVE_LOGIN */
    uint64_t opens;               /* how many connections the client has asked for */
    bool begun;                   /* the client is there until rig_end */
    hf_time now;                  /* the latest time that the test named */
    hf_hold *watched[32];         /* holds that live until rig_end: see watch */
    size_t watched_count;
} rig;

/* What the client asks a node of a cluster at the log-in, and the replies of a node with the id
 * "id" and sharded channels. */
#define DRIVE_ASKS_NODE "CLUSTER MYID\nPUBSUB SHARDNUMSUB 0"
#define DRIVE_LOGIN "$2\r\nid\r\n*2\r\n$1\r\n0\r\n:0\r\n"

static UNUSED hf_client_config rig_config(void) {
    return (hf_client_config){
        .session = DRIVE_CONFIG, .grant_lease = 2 * HF_SECOND, .renewer = HF_LINK_RENEWER};
}

/* Ends all operations and frees the client, if there is one. */
static UNUSED void rig_end(hf_time now) {
    if (!rig.begun) return;
    while (ops_of(&rig.client)) hf_op_end(ops_of(&rig.client), now);
    while (rig.watched_count > 0) hf_hold_unref(rig.watched[--rig.watched_count]);
    hf_client_free(&rig.client);
    hf_names_free(&rig.names);
    rig.begun = false;
}

/* A rig that had begun before ends first. */
static UNUSED bool rig_begin_with(const hf_client_config *config) {
    rig_end(rig.now);
    rig = (struct rig){.begun = true};
    while (!hf_names_make(&rig.names, hf_slice_of("k"))) continue; /* where one allocation fails */
    return hf_client_init(&rig.client, config, DRIVE_ENTROPY);
}

static UNUSED void rig_begin(void) {
    hf_client_config config = rig_config();
    rig_begin_with(&config);
}

static UNUSED hf_session *link_of(hf_link link) {
    return &first_node(&rig.client)->links[link];
}

static UNUSED const char *sent_over(hf_link link) {
    return output_of(link_of(link));
}

static UNUSED void cut_link(hf_link link, const char *reason, hf_time now) {
    hf_session_closed(link_of(link), reason, now);
}

/* ---- what the rig's client says and does ---- */

static UNUSED hf_stats stats(void) {
    return hf_client_stats(&rig.client);
}

/* Returns how many claims the client has, of holds or of what is being cleaned up. */
static UNUSED size_t holds_left(void) {
    return hold_count(&rig.client);
}

static UNUSED bool is_quiet(void) {
    return hf_client_is_quiet(&rig.client);
}

static UNUSED hf_time client_next_tick(void) {
    return hf_client_next_tick(&rig.client);
}

static UNUSED hf_time calls_next_tick(void) {
    return hf_client_calls_next_tick(&rig.client);
}

static UNUSED hf_time renewer_next_tick(void) {
    return hf_client_renewer_next_tick(&rig.client);
}

static UNUSED void abandon_hold(hf_hold *hold, uint32_t count, hf_time now) {
    hf_client_abandon(&rig.client, hold, count, now);
}

static UNUSED void lose_hold(hf_hold *hold, hf_lost_reason reason) {
    hf_client_lose(&rig.client, hold, reason);
}

static UNUSED void close_rig(hf_time now) {
    hf_client_close(&rig.client, now);
}

/* Opens the connection, and answers what the client asks a node of a cluster. */
static UNUSED void rig_open(size_t node, hf_session *session, hf_time now) {
    const char *login = node < RIG_NODES ? rig.login[node] : NULL;
    if (session->state != HF_SESSION_OPENING) hf_session_opening(session, now);
    hf_session_opened(session, now);
    if (!session->node_id || session->state != HF_SESSION_LOGIN) return;
    if (!login) login = DRIVE_LOGIN;
    if (login[0]) output_of(session);
    if (login[0]) feed(session, login, now);
}

/* Does what the links of all nodes want from a driver. */
static UNUSED void rig_serve(hf_time now) {
    rig.now = hf_time_max(rig.now, now);
    for (size_t i = 0, count = hf_client_link_count(&rig.client); i < count; i++) {
        hf_session *session = hf_client_link(&rig.client, i);
        const char *down = i / HF_LINKS < RIG_NODES ? rig.down[i / HF_LINKS] : NULL;
        if (rig.refusing) down = "refused";
        hf_want want = hf_session_wants(session, now);
        if (want == HF_WANT_NOTHING) continue;
        if (want == HF_WANT_CLOSE) hf_session_closed(session, "not needed", now);
        if (hf_session_wants(session, now) != HF_WANT_OPEN) continue;
        rig.opens++;
        hf_session_opening(session, now);
        if (down) hf_session_closed(session, down, now);
        else rig_open(i / HF_LINKS, session, now);
    }
}

static UNUSED void rig_tick(hf_time now) {
    hf_client_tick(&rig.client, now);
    rig_serve(now);
}

/* Cuts all links, with this reason. */
static UNUSED void rig_cut(const char *reason, hf_time now) {
    for (int link = 0; link < HF_LINKS; link++)
        hf_session_closed(link_of((hf_link)link), reason, now);
}

/* Forgets what all links have to write, which counts as written. */
static UNUSED void rig_hush(void) {
    for (size_t i = 0; i < hf_client_link_count(&rig.client); i++)
        output_of(hf_client_link(&rig.client, i));
}

/* Returns what the client sends over its link for calls once it is `now`. */
static UNUSED const char *output_at(hf_time now) {
    rig_tick(now);
    return output_of(link_of(HF_LINK_CALLS));
}

/* Lets time pass until `until`, waking only when the client asks for it. Returns how often it was
 * woken. */
static UNUSED int rig_sleep(hf_time now, hf_time until) {
    int wakes = 0;
    rig_tick(now);
    for (hf_time at; (at = hf_client_next_tick(&rig.client)) <= until && wakes < 100000; wakes++) {
        now = hf_time_max(now, at);
        rig_tick(now);
    }
    rig_tick(until);
    return wakes;
}

/* Lets time pass in steps of 10 ms, for at most 20 s, until the client sends a command other than
 * PING over this link. Returns the time of that. */
static UNUSED hf_time rig_await_command(hf_session *link, hf_time now) {
    for (hf_time end = now + 20 * HF_SECOND; now < end; now += 10 * HF_MS) {
        rig_tick(now);
        const char *sent = output_of(link);
        if (*sent && strcmp(sent, "PING") != 0) break;
    }
    return now;
}

/* Checks that the client has sent exactly this over the link. */
#define CHECK_SENT(link, want) CHECK_STR(output_of(link_of(link)), want)

/* Checks that nothing was sent over any link. */
#define CHECK_SILENT() CHECK_STR(sent_over_all_links(), "")

static UNUSED const char *sent_over_all_links(void) {
    const char *sent = "";
    for (int link = 0; link < HF_LINKS && !*sent; link++) sent = output_of(link_of((hf_link)link));
    return sent;
}

static UNUSED hf_op_spec spec_of(hf_op_kind kind) {
    return (hf_op_spec){.kind = kind,
                        .lock_kind = &hf_kind_lock,
                        .names = kind == HF_OP_PING ? NULL : &rig.names,
                        .caller = {"me", 2},
                        .owner = {"me", 2},
                        .lease = 30 * HF_SECOND,
                        .token_ttl_ms = 1000,
                        .renewed = true};
}

static UNUSED hf_op *begin_spec(const hf_op_spec *spec, hf_time now) {
    hf_op *op = hf_client_begin(&rig.client, spec, now);
    rig_serve(now);
    return op;
}

static UNUSED hf_op *begin(hf_op_kind kind, hf_time now) {
    hf_op_spec spec = spec_of(kind);
    return begin_spec(&spec, now);
}

static UNUSED hf_op *begin_acquire(hf_time wait, hf_time now) {
    hf_op_spec spec = spec_of(HF_OP_ACQUIRE);
    spec.wait = wait;
    return begin_spec(&spec, now);
}

static UNUSED hf_hold *hold_of(void) {
    return hf_holds_find(holds_of(&rig.client), &hf_kind_lock, hf_slice_of("k"), hf_slice_of("me"));
}

/* Returns the hold, with a reference until the rig ends, so that it can be seen once it is over. */
static UNUSED hf_hold *watch(hf_hold *hold) {
    if (rig.watched_count == sizeof rig.watched / sizeof *rig.watched) abort();
    hf_hold_ref(hold);
    return rig.watched[rig.watched_count++] = hold;
}

/* Returns the claim of this caller that is leaving, or NULL. */
static UNUSED hf_claim *leaving_of(void) {
    return hf_holds_find_leaving(holds_of(&rig.client), &hf_kind_lock, hf_slice_of("k"),
                                 hf_slice_of("me"));
}

/* Returns the hold's state, CLEANING_UP if only its claim is there, or -1. */
static UNUSED int state_of(void) {
    const hf_hold *hold = hold_of();
    if (hold) return hold_state(hold);
    return leaving_of() ? CLEANING_UP : -1;
}

/* The arguments of the programs for key k and owner me. The grant lease of 2 s follows, except in
 * the brief calls, which leave out the usual values. */
#define ALL_KEYS "4 k redisson_lock_token:{k} holdfast_queue:{k} redisson_lock__channel:{k} "
#define K_AND_OWNER ALL_KEYS "me"
#define KEYS_OF_K K_AND_OWNER " 2000 "
#define BRIEF_ASK_OF_K "EVALSHA acquire " K_AND_OWNER " 30000 1000"
#define BRIEF_RELEASE_OF_K "EVALSHA release " K_AND_OWNER
#define ASK_OF_K(from, shared, waiter)                                                             \
    "EVALSHA acquire " KEYS_OF_K from " " shared " 30000 1000 " waiter
#define MEMBER(wait) "1l" DRIVE_UUID ":" wait ":1000"

#define CONFIRM_K                                                                                  \
    "EVALSHA extend 2 k holdfast_queue:{k} me 30000 2000 " MEMBER("1") " redisson_lock__channel:{" \
                                                                       "k}"

/* An owner that the client has named, and others that are smaller and larger as texts. */
#define OWNER(number) DRIVE_UUID ":" number
#define OWN OWNER("1")
#define BELOW "00000000-0000-4000-8000-000000000000:7"
#define ABOVE "ffffffff-ffff-4fff-8fff-ffffffffffff:7"
#define INFO_OF(key, waiter)                                                                       \
    "EVALSHA info 3 " key " redisson_lock_token:{" key "} holdfast_queue:{" key "} " waiter

/* A grant to a waiter to which busy() gave the place PLACE. */
#define PLACE "5"
#define GRANT(wait, token) "1 grant l " wait " " PLACE " " token " 2000 k"

#define LEAVE_OF_K(to, waiter) "EVALSHA leave " KEYS_OF_K to " " waiter " "

#define ACQUIRED "*2\r\n:1\r\n:77\r\n"
#define GONE "*1\r\n:-1\r\n"
#define TAKEN "*1\r\n:-2\r\n"

/* Returns the reply of an acquire that finds the lock held by another owner. */
static UNUSED const char *busy(int ttl_ms, int ahead, int foreign) {
    static char text[64];
    snprintf(text, sizeof text, "*5\r\n:0\r\n:%d\r\n:%d\r\n:%d\r\n$1\r\n" PLACE "\r\n", ttl_ms,
             ahead, foreign);
    return text;
}

static UNUSED void feed_calls(const char *text, hf_time now) {
    feed(link_of(HF_LINK_CALLS), text, now);
    rig_serve(now);
}

static UNUSED void feed_renewer(const char *text, hf_time now) {
    feed(link_of(HF_LINK_RENEWER), text, now);
    rig_serve(now);
}

/* Feeds the reply that names the holder: this owner, for 20 s more. `ahead`: how many waiters are
 * ahead of the one that asks; -1: none asks. */
static UNUSED void feed_owner(const char *owner, int ahead, hf_time now) {
    char text[1024];
    snprintf(text, sizeof text, "*6\r\n$%zu\r\n%s\r\n:1\r\n:20000\r\n:7\r\n:1\r\n:%d\r\n",
             strlen(owner), owner, ahead);
    feed_calls(text, now);
}

static UNUSED void feed_event(const char *kind, const char *channel, const char *text,
                              hf_time now) {
    char bytes[2048];
    snprintf(bytes, sizeof bytes, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(kind),
             kind, strlen(channel), channel, strlen(text), text);
    feed(link_of(HF_LINK_EVENTS), bytes, now);
    rig_serve(now);
}

static UNUSED void feed_message(const char *text, hf_time now) {
    feed_event("message", DRIVE_GRANTS, text, now);
}

static UNUSED void feed_subscribed(hf_time now) {
    feed_event("subscribe", DRIVE_GRANTS, "1", now);
}

/* Returns the operation's code, or "under way". */
static UNUSED const char *outcome(const hf_op *op) {
    return hf_op_is_done(op) ? hf_code_name(hf_op_code(op)) : "under way";
}

#define CHECK_OUTCOME(op, want) CHECK_STR(outcome(op), want)

/* The operation's message contains this. */
#define CHECK_MESSAGE(op, part) CHECK_OR(strstr(message_of(op), part), "%s", message_of(op))

/* Lets the acquire that was sent at `now` find the lock held, subscribe 2 ms later, and enter the
 * queue. */
static UNUSED void enter_queue(hf_time now) {
    feed_calls(busy(20000, 0, 0), now + HF_MS);
    feed_subscribed(now + 2 * HF_MS);
    feed_calls(busy(20000, 0, 0), now + 3 * HF_MS);
    rig_hush();
}

/* Begins an acquire, which enters the queue. */
static UNUSED hf_op *wait_in_queue(hf_time wait, hf_time now) {
    hf_op *op = begin_acquire(wait, now);
    enter_queue(now);
    return op;
}

/* Acquires the lock, and ends the acquire. */
static UNUSED hf_hold *hold_lock(hf_time now) {
    hf_op *op = begin_acquire(0, now);
    output_of(link_of(HF_LINK_CALLS));
    feed(link_of(HF_LINK_CALLS), "*2\r\n:1\r\n:77\r\n", now);
    hf_op_end(op, now);
    return hold_of();
}

#endif
