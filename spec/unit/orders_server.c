#include "orders_server.h"

#include <stdio.h>

#include "drive.h"
#include "words.h"

order_server order_server_now;

#define SERVER (&order_server_now)

/* ---- locks ---- */

order_lock *order_server_lock(const char *key) {
    for (size_t i = 0; i < ORDER_LOCKS; i++) {
        order_lock *lock = &SERVER->locks[i];
        if (lock->key[0] == '\0') snprintf(lock->key, sizeof lock->key, "%s", key);
        if (strcmp(lock->key, key) == 0) return lock;
    }
    order_fail("there are more than %d locks", ORDER_LOCKS);
}

bool order_server_is_held(const order_lock *lock) {
    return lock->owner[0] != '\0' && order_now() < lock->until;
}

static bool is_owner(const order_lock *lock, const char *owner) {
    return order_server_is_held(lock) && strcmp(lock->owner, owner) == 0;
}

/* When a lease that begins now is over for the server. */
static hf_time end_of(hf_time lease) {
    return order_now() + (SERVER->fast ? lease - lease / 100 : lease);
}

static void give(order_lock *lock, const char *owner, hf_time lease) {
    snprintf(lock->owner, sizeof lock->owner, "%s", owner);
    lock->until = end_of(lease);
    SERVER->token++;
}

void order_server_delete(const char *key) {
    order_server_lock(key)->owner[0] = '\0';
}

bool order_server_is_empty(void) {
    for (size_t i = 0; i < ORDER_LOCKS; i++) {
        const order_lock *lock = &SERVER->locks[i];
        if (order_server_is_held(lock) || lock->waiting > 0) return false;
    }
    return true;
}

/* ---- the queue ---- */

static hf_time ms(const char *text) {
    return strtoull(text, NULL, 10) * HF_MS;
}

/* A member is "1l<uuid>:<number>:<ttl>". */
static order_waiter read_member(const char *member, const char *owner) {
    order_waiter waiter;
    snprintf(waiter.owner, sizeof waiter.owner, "%s", owner);
    snprintf(waiter.channel, sizeof waiter.channel, "holdfast_grant:%.*s", HF_UUID_SIZE,
             member + 2);
    const char *number = member + 2 + HF_UUID_SIZE + 1;
    snprintf(waiter.number, sizeof waiter.number, "%.*s", (int)strcspn(number, ":"), number);
    return waiter;
}

static bool is_same_waiter(const order_waiter *a, const order_waiter *b) {
    return strcmp(a->number, b->number) == 0 && strcmp(a->channel, b->channel) == 0;
}

/* Returns how many are ahead of the waiter; all, if it is not there. */
static size_t place_of(const order_lock *lock, const order_waiter *waiter) {
    size_t place = 0;
    while (place < lock->waiting && !is_same_waiter(&lock->waiters[place], waiter)) place++;
    return place;
}

static void remove_waiter(order_lock *lock, size_t place) {
    if (place >= lock->waiting) return;
    lock->waiting--;
    memmove(&lock->waiters[place], &lock->waiters[place + 1],
            (lock->waiting - place) * sizeof lock->waiters[0]);
}

static void send_to(size_t socket, const char *text) {
    order_socket_send(&order_sockets[socket], text, strlen(text));
}

static void publish(const char *channel, const char *message) {
    char bytes[512];
    snprintf(bytes, sizeof bytes, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
             strlen(channel), channel, strlen(message), message);
    for (size_t i = 0; i < ORDER_SOCKETS; i++) {
        bool open = order_sockets[i].used && !order_sockets[i].closed;
        if (open && strcmp(order_sockets[i].channel, channel) == 0) send_to(i, bytes);
    }
}

static void pass_on(order_lock *lock, hf_time grant_lease) {
    char grant[128];
    lock->owner[0] = '\0';
    if (lock->waiting == 0) return;
    order_waiter first = lock->waiters[0];
    remove_waiter(lock, 0);
    give(lock, first.owner, grant_lease);
    snprintf(grant, sizeof grant, "1 grant l %s " PLACE " %llu %llu %s", first.number,
             (unsigned long long)SERVER->token, (unsigned long long)(grant_lease / HF_MS),
             lock->key);
    publish(first.channel, grant);
}

/* One that keeps its locks learns that others want them; the number of such an owner begins with 0.
 */
static void publish_wish(const order_lock *lock) {
    const char *number = lock->owner + HF_UUID_SIZE + 1;
    char channel[80], wish[40];
    if (strlen(lock->owner) <= HF_UUID_SIZE + 1 || number[0] != '0') return;
    snprintf(channel, sizeof channel, "holdfast_grant:%.*s", HF_UUID_SIZE, lock->owner);
    snprintf(wish, sizeof wish, "1 wish %s", number);
    publish(channel, wish);
}

/* ---- programs ---- */

/* Of a call that leaves it out. */
#define USUAL_GRANT_LEASE (2 * HF_SECOND)

/* NULL follows the last one. */
typedef const char *const *words_of;

/* EVALSHA sha 4 key … owner grant-lease from shared lease token-ttl waiter; or, in a brief call,
 * owner lease token-ttl */
static void acquire(size_t socket, words_of words) {
    order_lock *lock = order_server_lock(words[3]);
    bool brief = !words[10];
    const char *owner = words[7], *member = brief ? "" : words[13];
    char text[64];
    if (!order_server_is_held(lock)) pass_on(lock, brief ? USUAL_GRANT_LEASE : ms(words[8]));
    if (!order_server_is_held(lock)) give(lock, owner, ms(words[brief ? 8 : 11]));
    if (is_owner(lock, owner)) {
        snprintf(text, sizeof text, "*2\r\n:1\r\n:%llu\r\n", (unsigned long long)SERVER->token);
        send_to(socket, text);
        return;
    }
    order_waiter waiter = read_member(member[0] ? member : "1l" DRIVE_UUID ":0:0", owner);
    size_t ahead = place_of(lock, &waiter);
    if (ahead == lock->waiting && member[0]) {
        ORDER_CHECK(lock->waiting < ORDER_WAITERS, "more than %d wait", ORDER_WAITERS);
        lock->waiters[lock->waiting++] = waiter;
    }
    publish_wish(lock);
    send_to(socket, busy((int)((lock->until - order_now()) / HF_MS), (int)ahead, 0));
}

/* EVALSHA sha 4 key … owner grant-lease to lease own; or owner alone */
static void release(size_t socket, words_of words) {
    order_lock *lock = order_server_lock(words[3]);
    bool held = order_server_is_held(lock), ours = is_owner(lock, words[7]);
    if (ours) pass_on(lock, words[8] ? ms(words[8]) : USUAL_GRANT_LEASE);
    send_to(socket, ours ? ":1\r\n" : held ? ":-2\r\n" : ":-1\r\n");
}

/* EVALSHA sha 4 key … owner grant-lease to waiter own */
static void leave(size_t socket, words_of words) {
    order_lock *lock = order_server_lock(words[3]);
    const char *member = words[10];
    bool ours = is_owner(lock, words[7]);
    if (member[0]) {
        order_waiter waiter = read_member(member, words[7]);
        remove_waiter(lock, place_of(lock, &waiter));
    }
    if (ours) pass_on(lock, ms(words[8]));
    send_to(socket, ours ? ":1\r\n" : ":0\r\n");
}

/* Returns what a renewal of the lock returns. */
static const char *renew_one(order_lock *lock, const char *owner, hf_time until) {
    if (!is_owner(lock, owner)) return order_server_is_held(lock) ? ":-2\r\n" : ":-1\r\n";
    lock->until = until;
    lock->renewed_at = order_now();
    return ":1\r\n";
}

/* EVALSHA sha 2 key queue owner lease … */
static void extend(size_t socket, words_of words) {
    send_to(socket, renew_one(order_server_lock(words[3]), words[5], end_of(ms(words[6]))));
}

/* EVALSHA sha count key … owner lease … */
static void renew(size_t socket, words_of words) {
    size_t count = strtoul(words[2], NULL, 10);
    char head[16];
    snprintf(head, sizeof head, "*%zu\r\n", count);
    send_to(socket, head);
    for (size_t i = 0; i < count; i++) {
        words_of arguments = words + 3 + count + 2 * i;
        order_lock *lock = order_server_lock(words[3 + i]);
        hf_time until = hf_time_max(lock->until, end_of(ms(arguments[1])));
        send_to(socket, renew_one(lock, arguments[0], until));
    }
}

/* ---- commands ---- */

typedef struct program {
    const char *name;
    void (*run)(size_t socket, words_of words);
} program;

static const program PROGRAMS[] = {{"acquire", acquire}, {"release", release}, {"leave", leave},
                                   {"extend", extend},   {"renew", renew},     {NULL, NULL}};

static const program *program_named(const char *name) {
    const program *at = PROGRAMS;
    while (at->name && strcmp(at->name, name) != 0) at++;
    return at->name ? at : NULL;
}

/* By its hash; each is looked for once. */
static const program *program_of(const char *hash) {
    static struct {
        char hash[48];
        const program *program;
    } known[8];
    size_t i = 0;
    while (i < 7 && known[i].hash[0] && strcmp(known[i].hash, hash) != 0) i++;
    if (strcmp(known[i].hash, hash) == 0) return known[i].program;
    const char *name = sent_program(hash, strlen(hash));
    snprintf(known[i].hash, sizeof known[i].hash, "%s", hash);
    known[i].program = name ? program_named(name) : NULL;
    return known[i].program;
}

static void subscribe(size_t socket, const char *channel) {
    char bytes[256];
    snprintf(order_sockets[socket].channel, sizeof order_sockets[socket].channel, "%s", channel);
    snprintf(bytes, sizeof bytes, "*3\r\n$9\r\nsubscribe\r\n$%zu\r\n%s\r\n:1\r\n", strlen(channel),
             channel);
    send_to(socket, bytes);
}

static void on_command(size_t socket, words_of words) {
    bool evaluates = strcmp(words[0], "EVALSHA") == 0;
    const program *called = evaluates ? program_of(words[1]) : NULL;
    ORDER_CHECK(called || !evaluates, "the server does not know the program of %s", words[3]);
    order_note(called ? called->name : "another command");
    if (called) called->run(socket, words);
    else if (strcmp(words[0], "SUBSCRIBE") == 0) subscribe(socket, words[1]);
    else send_to(socket, "+PONG\r\n");
}

/* ---- the thread ---- */

static bool has_sent(size_t socket) {
    const order_socket *of = &order_sockets[socket];
    return of->used && !of->ended && of->sent.size > 0;
}

static bool has_work(const void *what) {
    (void)what;
    for (size_t i = 0; i < ORDER_SOCKETS; i++)
        if (has_sent(i)) return !SERVER->silent;
    return false;
}

/* One of those over which something has come. */
static size_t choose_socket(void) {
    size_t with[ORDER_SOCKETS], count = 0;
    for (size_t i = 0; i < ORDER_SOCKETS; i++)
        if (has_sent(i)) with[count++] = i;
    return with[order_choose((uint32_t)count)];
}

/* The connection may be over by now. */
static void serve_one(size_t socket) {
    order_socket *of = &order_sockets[socket];
    char *words[WORDS_MAX + 1] = {NULL};
    size_t used;
    if (!has_sent(socket) || words_take(of->sent.bytes, of->sent.size, words, &used) == 0) return;
    on_command(socket, (words_of)words);
    of->sent.size -= used;
    memmove(of->sent.bytes, of->sent.bytes + used, of->sent.size);
}

static void free_closed(void) {
    for (size_t i = 0; i < ORDER_SOCKETS; i++) {
        bool over = order_sockets[i].used && order_sockets[i].closed && !has_sent(i);
        if (over) order_socket_free(&order_sockets[i]);
    }
}

static void *serve(void *context) {
    for (;;) {
        order_wait("reads a command", has_work, NULL, HF_NEVER);
        size_t socket = choose_socket();
        if (SERVER->delay > 0) order_sleep("takes its time", SERVER->delay);
        serve_one(socket);
        free_closed();
    }
    return context;
}

void order_server_hang_up(void) {
    size_t open[ORDER_SOCKETS], count = 0;
    for (size_t i = 0; i < ORDER_SOCKETS; i++)
        if (order_sockets[i].used && !order_sockets[i].ended) open[count++] = i;
    if (count > 0) order_socket_end(&order_sockets[open[order_choose((uint32_t)count)]]);
}

void order_server_start(void) {
    memset(SERVER, 0, sizeof *SERVER);
    SERVER->token = 100;
    order_start("server", serve, NULL, true);
}
