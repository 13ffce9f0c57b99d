/* A whole client, of one server, of a quorum of three, with Sentinels or of a cluster, under
 * arbitrary replies. The input is a
 * program of one-byte commands, written so that a person can read it: operations begin and end,
 * bytes come in over any link in any cuts, connections end or cannot be made, time passes with and
 * without ticks, allocations fail.
 *
 * What must hold: the heap of holds is in order; nothing is held for longer than its lease from the
 * last command that was sent for it; a deadline that has passed is dealt with by a few ticks; every
 * wait ends; the message of a failure is printable; after close the client comes to rest; all
 * memory is rolled back. */
#include "base/lease.h"
#include "client.h"
#include "fields.h"
#include "input.h"
#include "memerr.h"
#include "names_of.h"
#include "quorum/quorum.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define MAX_OPS 24
#define MAX_HANDLES 8
#define MAX_STEPS 400
#define MAX_HOLDS 60
#define SENDINGS 4096

static const char *const KEYS[] = {"a", "b", "{c}"};
static const char *const CALLERS[] = {"me", "you", "us"};
#define SHARED_OWNER 2 /* the last one is known to the server by its name */
static const hf_slice NEXT_KEYS[] = {{"b", 1}, {"d", 1}};
static const hf_time WAITS[] = {0, 50 * HF_MS, HF_SECOND, 10 * HF_SECOND, HF_NEVER};
static const hf_time LEASES[] = {HF_MS, 100 * HF_MS, HF_SECOND, 30 * HF_SECOND,
                                 1000000000 * HF_SECOND};
static const hf_time STEPS[] = {0,         HF_MS,         10 * HF_MS,    100 * HF_MS,
                                HF_SECOND, 4 * HF_SECOND, 20 * HF_SECOND};
#define LONGEST_WAIT (10 * HF_SECOND)
#define SETTLED_AFTER                                                                              \
    (40 * HF_SECOND) /* longer than any wait, command or undoing of a lease of 30 s */

#define OTHER_UUID "10010203-0405-8607-8809-0a0b0c0d0e0f"

/* Replies of the programs, and others that a server gives. */
static const char *const REPLIES[] = {
    "+OK\r\n",
    ":1\r\n",
    ":2\r\n",
    ":-1\r\n",
    ":-2\r\n",
    "*3\r\n:1\r\n:77\r\n:0\r\n",
    "*5\r\n:0\r\n:20000\r\n:0\r\n:0\r\n$1\r\n5\r\n",
    "*5\r\n:0\r\n:20000\r\n:0\r\n:1\r\n$1\r\n6\r\n",
    "*2\r\n:2\r\n:3\r\n",
    "*1\r\n:-1\r\n",
    "*1\r\n:-2\r\n",
    "*1\r\n:-3\r\n",
    "*2\r\n:3\r\n$1\r\nD\r\n",
    "*1\r\n:4\r\n",
    "*2\r\n:1\r\n:1\r\n",
    "*3\r\n:1\r\n:78\r\n:79\r\n",
    "*2\r\n:-1\r\n:1\r\n",
    "*3\r\n$9\r\nsubscribe\r\n$3\r\nany\r\n:1\r\n",
    "*3\r\n$10\r\npsubscribe\r\n$24\r\nredisson_lock__channel:{a\r\n:1\r\n",
    "*4\r\n$8\r\npmessage\r\n$1\r\np\r\n$26\r\nredisson_lock__channel:{a}\r\n$1\r\n0\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$23\r\n1 grant l 1 5 77 2000 a\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$23\r\n1 grant l 2 5 77 2000 a\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$23\r\n1 grant m 9 5 77 2000 b\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$11\r\n1 turn 1 50\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$11\r\n1 recheck 1\r\n",
    "-NOSCRIPT No matching script.\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-BUSY Redis is busy\r\n",
    "-NOPERM this user has no permissions\r\n",
    "-WRONGTYPE Operation against a key\r\n",
    "*6\r\n$2\r\nme\r\n:1\r\n:900\r\n$2\r\n77\r\n:0\r\n:-1\r\n",
    "$-1\r\n",
    "*1\r\n:-4\r\n",
    ":3\r\n",
    "*2\r\n:-5\r\n:2\r\n",
    "*2\r\n:-6\r\n$5\r\nguard\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$23\r\n1 grant r 1 5 77 2000 a\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$23\r\n1 grant w 1 5 77 2000 a\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$23\r\n1 grant p 1 5 77 2000 a\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$30\r\n1 grants r 77 2000 2 1 5 2 5 a\r\n",
    "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
    "*2\r\n$1\r\nh\r\n$1\r\n2\r\n",
    "-READONLY You can't write against a read only replica.\r\n",
    "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:1\r\n",
    "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:7\r\n",
    "-MOVED 15495 h:2\r\n",
    "-ASK 15495 h:3\r\n",
    "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "*5\r\n:1\r\n:9223372036854775807\r\n:0\r\n:9223372036854775807\r\n:-9223372036854775808\r\n",
    "*5\r\n:0\r\n:9223372036854775807\r\n:9223372036854775807\r\n:0\r\n$1\r\n5\r\n",
    ("*8\r\n$2\r\nme\r\n:9223372036854775807\r\n:-9223372036854775808\r\n:-1\r\n"
     ":9223372036854775807\r\n:9223372036854775807\r\n:-9223372036854775808\r\n:0\r\n"),
    "*5\r\n:1\r\n:77\r\n:0\r\n:0\r\n:90\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$8\r\n1 wish 1\r\n",
    "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$27\r\n1 grant l 01 5 77-90 2000 a\r\n",
    "*6\r\n$38\r\n" OTHER_UUID ":1\r\n:1\r\n:900\r\n:77\r\n:1\r\n:0\r\n",
    ":0\r\n",
    "*2\r\n:1\r\n:3\r\n",
    "*3\r\n:1\r\n:2\r\n:3\r\n",
};

static struct {
    hf_client client;
    hf_names names[COUNT(KEYS)], rw_names[COUNT(KEYS)], latch_names[COUNT(KEYS)],
        semaphore_names[COUNT(KEYS)], fair_names[COUNT(KEYS)];
    const hf_names *all[COUNT(KEYS)];
    hf_op *ops[MAX_OPS];
    hf_hold *handles[MAX_HANDLES]; /* what was acquired, for as long as a handle stays */
    bool let_go[MAX_HANDLES];      /* since then a call has ended an entry of that hold */
    hf_time now;
    hf_time asked_at[SENDINGS]; /* when a command that names a key and an owner was last sent */
    bool refusing, mute;
    bool short_leases; /* no lease that outlives the run was asked for */
    bool failing;      /* an allocation has been made to fail */
    hf_life life;      /* that of all other clients' processes */
    bool tells;        /* the server itself says the password: a message may repeat that */
} w;

/* ---- the driver's part ---- */

static size_t index_of(hf_slice text, const char *const *list, size_t count) {
    size_t i = 0;
    while (i < count && !hf_slice_equal(text, hf_slice_of(list[i]))) i++;
    return i;
}

/* A semaphore's leases have a key of their own. */
static size_t key_index(hf_slice text) {
    size_t key = index_of(text, KEYS, COUNT(KEYS));
    for (size_t i = 0; key == COUNT(KEYS) && i < COUNT(KEYS); i++) {
        if (hf_slice_equal(text, w.names[i].leases)) return i;
    }
    return key;
}

static hf_time *asked_at(size_t key, hf_slice owner) {
    uint64_t hash = 0xcbf29ce484222325ull + key;
    for (size_t i = 0; i < owner.size; i++)
        hash = (hash ^ (unsigned char)owner.data[i]) * 0x100000001b3ull;
    return &w.asked_at[(hash ^ hash >> 32) %
                       SENDINGS]; /* two that share one make the check weaker */
}

/* The shared owner, or a text that a client has made for one hold. */
static bool is_owner(hf_slice text) {
    if (hf_slice_equal(text, hf_slice_of(CALLERS[SHARED_OWNER]))) return true;
    return text.size > HF_UUID_SIZE && text.data[8] == '-' && text.data[HF_UUID_SIZE] == ':';
}

/* The next argument of a command, or what stands before the first one. */
static hf_slice next_argument(hf_slice *output) {
    const char *at = output->data, *end = at + output->size;
    const char *line_end = memchr(at, '\n', output->size);
    MUST(line_end && (*at == '*' || *at == '$'));
    hf_slice argument = {at, 1};
    const char *next = line_end + 1;
    if (*at == '$') {
        argument = (hf_slice){next, strtoul(at + 1, NULL, 10)};
        next += argument.size + 2;
    }
    MUST(next <= end);
    *output = (hf_slice){next, (size_t)(end - next)};
    return argument;
}

/* All that is said at once is taken for one command. */
static void note_sendings(hf_slice output) {
    bool keys[COUNT(KEYS)] = {false};
    for (hf_slice rest = output; rest.size > 0;) {
        size_t key = key_index(next_argument(&rest));
        if (key < COUNT(KEYS)) keys[key] = true;
    }
    for (hf_slice rest = output; rest.size > 0;) {
        hf_slice owner = next_argument(&rest);
        for (size_t key = 0; key < COUNT(KEYS) && is_owner(owner); key++) {
            if (keys[key]) *asked_at(key, owner) = w.now;
        }
    }
}

static void write_output(hf_session *session) {
    hf_slice output = hf_session_output(session);
    note_sendings(output);
    hf_session_written(session, output.size);
}

static void serve(void) {
    for (size_t i = 0; i < hf_client_link_count(&w.client); i++) {
        hf_session *session = hf_client_link(&w.client, i);
        if (hf_session_wants(session, w.now) == HF_WANT_CLOSE)
            hf_session_closed(session, "not needed", w.now);
        if (hf_session_wants(session, w.now) == HF_WANT_OPEN) {
            hf_session_opening(session, w.now);
            if (w.refusing) hf_session_closed(session, "refused", w.now);
            else if (!w.mute) hf_session_opened(session, w.now);
        }
        if (session->state == HF_SESSION_LOGIN || session->state == HF_SESSION_READY)
            write_output(session);
    }
}

/* Ticks until nothing is due any more, which takes a few rounds: a connection that is closed is
 * opened anew. */
static void settle(void) {
    int rounds = 0;
    do {
        MUST(rounds++ < 50);
        hf_client_tick(&w.client, w.now);
        serve();
    } while (hf_client_next_tick(&w.client) <= w.now);
}

/* Lets time pass, waking only when the client asks for it. */
static void sleep_until(hf_time until) {
    int wakes = 0;
    settle();
    for (hf_time at; (at = hf_client_next_tick(&w.client)) < until;) {
        MUST(wakes++ < 100000);
        w.now = hf_time_max(w.now, at);
        settle();
    }
    w.now = hf_time_max(w.now, until);
    settle();
}

static void feed(hf_session *session, hf_slice bytes) {
    char *exact = copy_of(bytes);
    hf_session_feed(session, exact, bytes.size, w.now);
    free(exact);
    serve();
}

/* A message of our channel. */
static void hear_message(hf_session *session, hf_slice text) {
    char bytes[1024];
    int head =
        snprintf(bytes, sizeof bytes, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%zu\r\n", text.size);
    if ((size_t)head + text.size + 2 > sizeof bytes) return;
    memcpy(bytes + head, text.data, text.size);
    memcpy(bytes + head + text.size, "\r\n", 2);
    feed(session, (hf_slice){bytes, (size_t)head + text.size + 2});
}

/* An array of integers, given as text with commas; the last one of five is a place, which is a
 * text. */
static void hear_integers(hf_session *session, hf_slice text) {
    char bytes[1024];
    size_t count = 1, used;
    if (text.size > 200) return;
    for (size_t i = 0; i < text.size; i++) count += text.data[i] == ',';
    used = (size_t)snprintf(bytes, sizeof bytes, "*%zu\r\n:", count);
    for (size_t i = 0, index = 0; i < text.size; i++) {
        bool next = text.data[i] == ',';
        bool place = next && ++index == 4 && count == 5 && text.size - i - 1 < 10;
        if (place) used += (size_t)snprintf(bytes + used, 8, "\r\n$%zu\r\n", text.size - i - 1);
        else if (next) used += (size_t)snprintf(bytes + used, 8, "\r\n:");
        else bytes[used++] = text.data[i];
    }
    memcpy(bytes + used, "\r\n", 2);
    feed(session, (hf_slice){bytes, used + 2});
}

static void be_closed(hf_session *session) {
    hf_session_closed(session, "Connection reset by peer", w.now);
    serve();
}

/* ---- what must hold ---- */

/* The longest that may have been asked for. What a quorum's hold has by its members comes before
 * the decision. */
static hf_time most_lease(const hf_hold *hold) {
    hf_time lease = hf_time_max(lease_of(hold), w.client.config.grant_lease);
    for (uint32_t i = 0; i < member_count_of(hold); i++) {
        const hf_hold *member = member_holds_of(hold)[i];
        if (member) lease = hf_time_max(lease, lease_of(member));
    }
    return lease;
}

static void check_hold(const hf_hold *hold) {
    hf_hold_view view = hf_view_of(hold);
    if (!view.held) return;
    size_t key = index_of(hf_hold_key(hold), KEYS, COUNT(KEYS));
    MUST(key < COUNT(KEYS));
    MUST(view.valid_until <= hf_lease_end(*asked_at(key, hf_hold_owner(hold)), most_lease(hold)));
}

static void check_op(const hf_op *op) {
    MUST(!op->done || op->failure.code == HF_OK ||
         strlen(hf_fault_text(&op->failure)) < HF_FAILURE_TEXT_SIZE);
    MUST(!op->done || op->failure.code == HF_OK || is_printable(hf_fault_text(&op->failure)));
    MUST(!op->done || op->failure.code == HF_OK || w.tells ||
         !strstr(hf_fault_text(&op->failure), "hushhush"));
    MUST(!op->done || !op->blocked || op->spec.kind != HF_OP_ACQUIRE);
}

static void check_client(const hf_client *client) {
    size_t waiting = client->kept.count; /* each of these needs an events link, too */
    hf_holds_check(&client->holds, w.now);
    for (size_t i = 0; i < client->holds.count; i++) {
        const hf_hold *hold = hold_of_claim(client->holds.heap[i]);
        if (hold) check_hold(hold);
    }
    for (const hf_op *op = client->ops; op; op = op->next) {
        waiting += op->wait.needs_events;
        check_op(op);
    }
    for (size_t i = 0; i < client->node_count; i++) waiting -= client->nodes[i]->events_users;
    MUST(waiting == 0);
}

/* A hold with a handle does not end without a loss, unless its caller lets go of it. */
static void check_handles(void) {
    for (size_t i = 0; i < MAX_HANDLES; i++) {
        const hf_hold *hold = w.handles[i];
        if (!hold || w.let_go[i] || w.client.closed) continue;
        hf_hold_view view = hf_view_of(hold);
        MUST(view.held || view.state == HF_HOLD_LOST);
    }
}

static void check(void) {
    const hf_quorum *quorum = w.client.quorum;
    check_handles();
    check_client(&w.client);
    for (size_t i = 0; quorum && i < quorum->count; i++) check_client(quorum->members[i]);
}

/* ---- operations ---- */

static void note_release(const hf_op_spec *spec) {
    for (size_t i = 0; i < MAX_HANDLES && hf_op_impls[spec->kind]->releases; i++) {
        if (w.handles[i] && hf_slice_equal(hf_hold_caller(w.handles[i]), spec->caller))
            w.let_go[i] = true;
    }
}

static void note_abandoned(const hf_hold *hold) {
    for (size_t i = 0; i < MAX_HANDLES; i++) w.let_go[i] = w.let_go[i] || w.handles[i] == hold;
}

static void begin(hf_op_spec *spec) {
    note_release(spec);
    size_t free_place = 0;
    while (free_place < MAX_OPS && w.ops[free_place]) free_place++;
    if (free_place == MAX_OPS || w.client.holds.count > MAX_HOLDS) return;
    spec->token_ttl_ms = spec->token_ttl_ms == 1 ? 0 : 604800000;
    if (spec->lease > LEASES[3]) w.short_leases = false;
    w.ops[free_place] = hf_client_begin(&w.client, spec, w.now);
    MUST(w.ops[free_place] || w.failing);
    serve();
}

static void set_caller(input *in, hf_op_spec *spec) {
    unsigned caller = pick(in, COUNT(CALLERS));
    spec->caller = hf_slice_of(CALLERS[caller]);
    spec->shared = caller == SHARED_OWNER;
}

static hf_op_spec on_key(input *in, hf_op_kind kind) {
    hf_op_spec spec = {.kind = kind, .names = &w.names[pick(in, COUNT(KEYS))]};
    set_caller(in, &spec);
    spec.lock_kind = hf_kinds[pick(in, 3)];
    return spec;
}

static void begin_acquire(input *in) {
    hf_op_spec spec = on_key(in, HF_OP_ACQUIRE);
    spec.wait = WAITS[pick(in, COUNT(WAITS))];
    spec.lease = LEASES[pick(in, COUNT(LEASES))];
    unsigned flags = pick(in, 4);
    spec.renewed = flags & 1;
    spec.token_ttl_ms = flags & 2 ? 1 : 0;
    if (spec.lock_kind == &hf_kind_guard) spec.fingerprint = hf_slice_of("print");
    begin(&spec);
}

/* Of a lock that the client keeps, or with other bounds of waiting and holding. */
static void begin_bounded_acquire(input *in) {
    static const hf_time times[] = {0, 10 * HF_MS, 400 * HF_MS, 5 * HF_SECOND};
    hf_op_spec spec = on_key(in, HF_OP_ACQUIRE);
    spec.lock_kind = hf_kinds[pick(in, 2)];
    spec.wait = WAITS[pick(in, COUNT(WAITS))];
    spec.lease = LEASES[pick(in, COUNT(LEASES))];
    spec.keep = w.client.quorum || spec.shared ? 0 : times[pick(in, COUNT(times))];
    spec.max_hold = times[pick(in, COUNT(times))];
    unsigned flags = pick(in, 64);
    spec.renewed = flags & 1;
    spec.token_ttl_ms = flags & 2 ? 1 : 0;
    spec.blocks_callers = flags & 4;
    spec.limits_waiters = flags & 8;
    spec.max_waiters = 1;
    spec.args = flags & 16 ? NEXT_KEYS : NULL;
    spec.arg_count = flags & 16 ? COUNT(NEXT_KEYS) : 0;
    begin(&spec);
}

static void begin_on_key(input *in, hf_op_kind kind) {
    hf_op_spec spec = on_key(in, kind);
    spec.lease = LEASES[3];
    spec.keep = HF_SECOND;
    spec.result = hf_slice_of("D");
    if (kind == HF_OP_EXTEND) spec.lease = LEASES[pick(in, COUNT(LEASES))];
    if (kind == HF_OP_COMPLETE) spec.lock_kind = &hf_kind_guard;
    begin(&spec);
}

static void begin_plain(hf_op_kind kind) {
    static const hf_slice args[] = {{"HGETALL", 7}, {"a", 1}};
    hf_op_spec spec = {.kind = kind, .args = args, .arg_count = 2};
    begin(&spec);
}

static void begin_all(input *in, hf_op_kind kind) {
    hf_op_spec spec = {.kind = kind,
                       .lock_kind = &hf_kind_lock,
                       .batch = w.all,
                       .batch_count = 1 + pick(in, COUNT(KEYS))};
    set_caller(in, &spec);
    spec.lease = LEASES[pick(in, COUNT(LEASES))];
    spec.renewed = pick(in, 2);
    begin(&spec);
}

/* Of a read/write lock or a semaphore. */
static hf_op_spec on_other_kind(input *in, hf_op_kind kind) {
    hf_op_spec spec = on_key(in, kind);
    spec.lock_kind = hf_kinds[3 + pick(in, 3)];
    spec.shared = false;
    if (spec.lock_kind->has_permits) spec.permits = kind == HF_OP_ACQUIRE ? 1 + pick(in, 3) : 0;
    else spec.names = &w.rw_names[spec.names - w.names];
    return spec;
}

static void begin_acquire_other(input *in) {
    static const hf_time checks[] = {0, 10 * HF_MS, HF_SECOND};
    hf_op_spec spec = on_other_kind(in, HF_OP_ACQUIRE);
    spec.wait = WAITS[pick(in, COUNT(WAITS))];
    spec.lease = LEASES[pick(in, COUNT(LEASES))];
    spec.renewed = pick(in, 2);
    spec.blocks_callers = pick(in, 2);
    spec.deadlock_check = checks[pick(in, COUNT(checks))];
    begin(&spec);
}

static void begin_other(input *in) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_EXTEND, HF_OP_CHECK,
                                       HF_OP_INFO,    HF_OP_TTL,    HF_OP_FORCE};
    hf_op_spec spec = on_other_kind(in, kinds[pick(in, COUNT(kinds))]);
    if (spec.kind == HF_OP_FORCE && spec.lock_kind->has_permits) spec.kind = HF_OP_SET;
    spec.lease = LEASES[pick(in, COUNT(LEASES))];
    spec.value = 2;
    begin(&spec);
}

/* Its waiters stand in a list, each with a channel of its own. */
static void begin_on_fair_lock(input *in) {
    static const hf_op_kind kinds[] = {HF_OP_ACQUIRE, HF_OP_ACQUIRE, HF_OP_RELEASE, HF_OP_EXTEND,
                                       HF_OP_INFO,    HF_OP_FORCE,   HF_OP_TTL};
    hf_op_spec spec = on_key(in, kinds[pick(in, COUNT(kinds))]);
    spec.names = &w.fair_names[spec.names - w.names];
    spec.lock_kind = &hf_kind_fair;
    spec.shared = false;
    spec.wait = WAITS[pick(in, COUNT(WAITS))];
    spec.lease = LEASES[pick(in, COUNT(LEASES))];
    spec.renewed = pick(in, 2);
    if (!w.client.quorum) begin(&spec);
}

static void begin_on_latch(input *in) {
    static const hf_op_kind kinds[] = {HF_OP_AWAIT, HF_OP_SET_COUNT, HF_OP_COUNT_DOWN, HF_OP_COUNT,
                                       HF_OP_DELETE};
    hf_op_spec spec = on_key(in, kinds[pick(in, COUNT(kinds))]);
    spec.names = &w.latch_names[spec.names - w.names];
    spec.lock_kind = &hf_kind_latch;
    spec.wait = WAITS[pick(in, COUNT(WAITS))];
    spec.value = 2;
    if (!w.client.quorum) begin(&spec);
}

/* What it leaves is settled for longer than the run. */
static void begin_on_semaphore(input *in) {
    static const hf_op_kind kinds[] = {HF_OP_TAKE,      HF_OP_TAKE,  HF_OP_GIVE,  HF_OP_DRAIN,
                                       HF_OP_SET_COUNT, HF_OP_COUNT, HF_OP_DELETE};
    hf_op_spec spec = on_key(in, kinds[pick(in, COUNT(kinds))]);
    spec.names = &w.semaphore_names[spec.names - w.names];
    spec.lock_kind = &hf_kind_plain_semaphore;
    spec.wait = WAITS[pick(in, COUNT(WAITS))];
    spec.value = 1 + pick(in, 3);
    if (w.client.quorum) return;
    w.short_leases = false;
    begin(&spec);
}

static void begin_pause(input *in) {
    hf_op_spec spec = {
        .kind = HF_OP_PAUSE, .lock_kind = &hf_kind_lock, .names = &w.names[0], .node = 1};
    spec.wait = WAITS[pick(in, COUNT(WAITS))];
    begin(&spec);
}

/* ---- handles ---- */

static hf_hold **handle_at(input *in) {
    return &w.handles[pick(in, MAX_HANDLES)];
}

static void drop_handle(hf_hold **handle) {
    if (*handle) hf_hold_unref(*handle);
    *handle = NULL;
}

/* Returns whether a call under way may end entries of the hold. */
static bool is_being_released(const hf_hold *hold) {
    for (const hf_op *op = w.client.ops; op; op = op->next) {
        bool releases = hf_op_impls[op->spec.kind]->releases && !op->done;
        if (releases && hf_slice_equal(hf_hold_caller(hold), op->spec.caller)) return true;
    }
    return !hf_view_of(hold).held;
}

/* A handle takes what this operation has acquired. */
static void take_hold(input *in, const hf_op *op) {
    hf_hold **handle = handle_at(in);
    bool took = op && op->done && op->failure.code == HF_OK && op->spec.kind == HF_OP_ACQUIRE;
    if (!took) return;
    drop_handle(handle);
    hf_hold_ref(op->hold);
    *handle = op->hold;
    w.let_go[handle - w.handles] = is_being_released(op->hold);
}

/* It is collected, with all of its entries. */
static void collect(input *in) {
    hf_hold **handle = handle_at(in);
    unsigned count = 1 + pick(in, 3);
    if (*handle) note_abandoned(*handle);
    if (*handle) hf_client_abandon(&w.client, *handle, count, w.now);
    drop_handle(handle);
}

/* About a hold that its caller has lost and replaced. */
static void begin_on_lost(input *in) {
    static const hf_op_kind kinds[] = {HF_OP_RELEASE, HF_OP_EXTEND, HF_OP_CHECK};
    hf_hold *hold = *handle_at(in);
    hf_op_spec spec = {
        .kind = kinds[pick(in, COUNT(kinds))], .names = &w.names[0], .lost_hold = hold};
    if (!hold || hf_hold_in_table(hold) || hf_view_of(hold).state != HF_HOLD_LOST) return;
    spec.lock_kind = kind_of_hold(hold);
    spec.caller = hf_hold_caller(hold);
    spec.lease = HF_SECOND;
    begin(&spec);
}

/* Nobody waits for the release any more. */
static void detach(hf_op **op) {
    if (!*op || (*op)->spec.kind != HF_OP_RELEASE || (*op)->detached) return;
    if (hf_op_detach(*op)) *op = NULL;
}

static void end_op(size_t i) {
    if (w.ops[i]) hf_op_end(w.ops[i], w.now);
    w.ops[i] = NULL;
    serve();
}

static hf_session *pick_link(input *in) {
    return hf_client_link(&w.client, pick(in, (unsigned)hf_client_link_count(&w.client)));
}

static hf_hold *pick_hold(input *in) {
    size_t count = w.client.holds.count;
    unsigned i = pick(in, 64);
    return count > 0 ? hold_of_claim(w.client.holds.heap[i % count]) : NULL;
}

static void approve(hf_hold *hold) {
    if (hold) hf_client_approve(&w.client, hold, w.now);
}

static void allow_all(void) {
    for (size_t i = 0; i < w.client.holds.count; i++)
        approve(hold_of_claim(w.client.holds.heap[i]));
}

/* ---- the input ---- */

static void step(input *in) {
    hf_op *op;
    hf_hold *hold;
    hf_session *link;
    switch (take_byte(in)) {
    case 'a': begin_acquire(in); break;
    case 'K': begin_bounded_acquire(in); break;
    case 'D': w.life = (hf_life)pick(in, 4); break;
    case 'N':
        if ((hold = pick_hold(in))) hf_client_set_renewed(&w.client, hold, pick(in, 2), w.now);
        break;
    case 'r': begin_on_key(in, HF_OP_RELEASE); break;
    case 'c': begin_on_key(in, HF_OP_COMPLETE); break;
    case 'e': begin_on_key(in, HF_OP_EXTEND); break;
    case 'k': begin_on_key(in, HF_OP_CHECK); break;
    case 'f': begin_on_key(in, HF_OP_FORCE); break;
    case 'i': begin_on_key(in, HF_OP_INFO); break;
    case 't': begin_on_key(in, HF_OP_TTL); break;
    case 'p': begin_plain(HF_OP_PING); break;
    case 'x': begin_plain(HF_OP_COMMAND); break;
    case 'A': begin_all(in, HF_OP_ACQUIRE_ALL); break;
    case 'R': begin_all(in, HF_OP_RELEASE_ALL); break;
    case 'I':
        if ((op = w.ops[pick(in, MAX_OPS)])) hf_op_interrupt(op, w.now);
        break;
    case 'G':
        if ((op = w.ops[pick(in, MAX_OPS)])) hf_op_abandon(op, w.now);
        break;
    case 'E': end_op(pick(in, MAX_OPS)); break;
    case 'q': begin_acquire_other(in); break;
    case 'u': begin_other(in); break;
    case 'P': begin_pause(in); break;
    case 'C': begin_on_latch(in); break;
    case 'S': begin_on_semaphore(in); break;
    case 'F': begin_on_fair_lock(in); break;
    case 'L': begin_on_lost(in); break;
    case 'd': detach(&w.ops[pick(in, MAX_OPS)]); break;
    case 'h': take_hold(in, w.ops[pick(in, MAX_OPS)]); break;
    case 'g': collect(in); break;
    case 'w': hf_client_introduce(&w.client, "who"); break;
    case 'b':
        if (!(hold = pick_hold(in))) break;
        note_abandoned(hold);
        hf_client_abandon(&w.client, hold, 1, w.now);
        break;
    case 'l': allow_all(); break;
    case '<':
        link = pick_link(in);
        feed(link, take_until(in, '~'));
        break;
    case 'm':
        link = pick_link(in);
        hear_message(link, take_until(in, '~'));
        break;
    case '*':
        link = pick_link(in);
        hear_integers(link, take_until(in, '~'));
        break;
    case '~': feed(pick_link(in), hf_slice_of("~")); break;
    case '=':
        link = pick_link(in);
        feed(link, hf_slice_of(REPLIES[pick(in, COUNT(REPLIES))]));
        break;
    case '!': be_closed(pick_link(in)); break;
    case 'o':
        link = pick_link(in);
        if (link->state == HF_SESSION_OPENING && !link->closing) hf_session_opened(link, w.now);
        break;
    case '/': w.refusing = !w.refusing; break;
    case '_': w.mute = !w.mute; break;
    case '+': sleep_until(w.now + STEPS[pick(in, COUNT(STEPS))]); break;
    case '>': w.now += STEPS[pick(in, COUNT(STEPS))]; break;
    case 'n': hf_client_detect_losses(&w.client, w.now); break;
    case 'Z': hf_client_close(&w.client, w.now); break;
    case 'M':
        w.failing = true;
        memerr_fail(1 + pick(in, 32));
        break;
    default: break;
    }
}

static hf_life life_of(const char *uuid) {
    MUST(strlen(uuid) == HF_UUID_SIZE);
    return w.life;
}

static bool begin_client(input *in) {
    static const unsigned char entropy[24] = {0, 1,  2,  3,  4,  5,  6,  7, 8,
                                              9, 10, 11, 12, 13, 14, 15, 99};
    static const hf_server servers[] = {{.host = "h", .port = 1, .label = "h:1"},
                                        {.host = "h", .port = 2, .label = "h:2"},
                                        {.host = "h", .port = 3, .label = "h:3"}};
    unsigned flags = pick(in, 256);
    hf_client_config config = {.grant_lease = 2 * HF_SECOND,
                               .renewer = flags & 1 ? HF_LINK_CALLS : HF_LINK_RENEWER,
                               .needs_approval = flags & 2,
                               .session = {.server = {.host = "h", .port = 1, .label = "h:1"},
                                           .connect_timeout = HF_SECOND,
                                           .command_timeout = 3 * HF_SECOND}};
    if (flags & 4) {
        config.session.server.db = 3;
        snprintf(config.session.server.password, sizeof config.session.server.password, "hushhush");
        snprintf(config.session.name, sizeof config.session.name, "holdfast");
    }
    if (flags & 64) config.life = life_of;
    if (flags & 128) config.sync = (hf_sync){.replicas = 1, .timeout = 100 * HF_MS};
    if (flags & 8) {
        config.mode = HF_MODE_QUORUM;
        config.servers = servers;
        config.server_count = COUNT(servers);
    } else if (flags & 48) {
        config.mode = flags & 16 ? HF_MODE_SENTINEL : HF_MODE_CLUSTER;
        config.servers = servers;
        config.server_count = COUNT(servers);
        snprintf(config.master, sizeof config.master, "m");
    }
    memset(&w, 0, sizeof w);
    w.now = 1000 * HF_SECOND;
    w.short_leases = true;
    for (size_t i = 0; i < COUNT(KEYS); i++) {
        if (!hf_names_make(&w.names[i], hf_slice_of(KEYS[i])) ||
            !hf_names_make_on(&w.rw_names[i], hf_slice_of(KEYS[i]), &hf_kind_read) ||
            !hf_names_make_on(&w.latch_names[i], hf_slice_of(KEYS[i]), &hf_kind_latch) ||
            !hf_names_make_on(&w.fair_names[i], hf_slice_of(KEYS[i]), &hf_kind_fair) ||
            !hf_names_make_on(&w.semaphore_names[i], hf_slice_of(KEYS[i]),
                              &hf_kind_plain_semaphore))
            return false;
        w.all[i] = &w.names[i];
    }
    return hf_client_init(&w.client, &config, entropy);
}

/* Nobody answers any more: every operation that does not wait for ever ends by itself. Of a quorum,
 * calls about one hold come one after the other, each with its own time. */
static void await_ends(void) {
    for (size_t i = 0; i < MAX_OPS; i++) {
        if (w.ops[i] && w.ops[i]->spec.wait == HF_NEVER) end_op(i);
    }
    sleep_until(w.now + LONGEST_WAIT + (w.client.quorum ? MAX_OPS : 1) * 4 * HF_SECOND);
    for (size_t i = 0; i < MAX_OPS; i++) {
        const hf_op *op = w.ops[i];
        if (!op || op->done) continue;
        fprintf(stderr, "operation %zu of kind %d, state %d, blocked %d, has not ended\n", i,
                (int)op->spec.kind, (int)op->state, op->blocked);
        abort();
    }
}

static void close_client(bool to_rest) {
    hf_client_close(&w.client, w.now);
    check();
    for (const hf_op *op = w.client.ops; op; op = op->next) MUST(op->done);
    if (!to_rest || !w.short_leases) return;
    sleep_until(w.now + SETTLED_AFTER);
    MUST(hf_client_is_quiet(&w.client));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {(const char *)data, (const char *)data + size};
    if (!begin_client(&in)) abort();
    w.tells = memmem(data, size, "hushhush", 8) != NULL;
    unsigned end = pick(&in, 4);
    for (int steps = 0; in.at < in.end && steps < MAX_STEPS; steps++) {
        step(&in);
        check();
    }
    memerr_fail(0);
    w.refusing = end & 2;
    w.mute = false;
    if (end & 1) await_ends();
    close_client(end != 0);
    for (size_t i = 0; i < MAX_OPS; i++) end_op(i);
    for (size_t i = 0; i < MAX_HANDLES; i++) drop_handle(&w.handles[i]);
    hf_client_free(&w.client);
    for (size_t i = 0; i < COUNT(KEYS); i++) hf_names_free(&w.names[i]);
    for (size_t i = 0; i < COUNT(KEYS); i++) hf_names_free(&w.rw_names[i]);
    for (size_t i = 0; i < COUNT(KEYS); i++) hf_names_free(&w.latch_names[i]);
    for (size_t i = 0; i < COUNT(KEYS); i++) hf_names_free(&w.semaphore_names[i]);
    for (size_t i = 0; i < COUNT(KEYS); i++) hf_names_free(&w.fair_names[i]);
    return 0;
}
