/*
 * The bare cost of a hand-off: processes that stand in a list on the server, one EVALSHA to enter
 * it, one to leave it, which publishes one message to the next, and nothing else. No lease, no
 * owner, no dead waiter.
 *
 *   handoff_baseline unix:PATH|tcp:PORT PROCESSES SECONDS [programs]
 *
 * With "programs" the scripts are holdfast's acquire and release, and the same loop stands in the
 * queue of a lock: what is left of a hand-off without holdfast's client. Prints the hand-offs per
 * second.
 */
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/programs.h"
#include "programs/embedded.h"

#define START_UP 1.5

static const char ENTER[] =
    "if redis.call('rpush', KEYS[1], ARGV[1]) == 1 then return 1 end return 0";
static const char LEAVE[] =
    "redis.call('lpop', KEYS[1]) local next = redis.call('lindex', KEYS[1], 0) "
    "if next then redis.call('publish', next, '1') end return 1";

static void fail(const char *what) {
    fprintf(stderr, "handoff_baseline: %s\n", what);
    exit(1);
}

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static redisContext *connect_to(const char *target) {
    bool local = strncmp(target, "unix:", 5) == 0;
    redisContext *redis =
        local ? redisConnectUnix(target + 5) : redisConnect("127.0.0.1", atoi(target + 4));
    if (!redis || redis->err) fail("cannot connect");
    return redis;
}

static redisReply *checked(redisContext *redis, redisReply *reply) {
    if (!reply) fail(redis->errstr);
    if (reply->type == REDIS_REPLY_ERROR) fail(reply->str);
    return reply;
}

static const char *text_of(enum hf_program_id id) {
    static char text[1 << 16];
    const unsigned char *segments = hf_program_table[id].segments;
    text[0] = '\0';
    for (; *segments != HF_NO_SEGMENT; segments++) strcat(text, hf_segment_table[*segments]);
    return text;
}

static void load(redisContext *redis, const char *script, char sha[41]) {
    redisReply *reply = checked(redis, redisCommand(redis, "SCRIPT LOAD %s", script));
    snprintf(sha, 41, "%s", reply->str);
    freeReplyObject(reply);
}

/* What one of the processes sends. */
struct scripts {
    char enter[41], leave[41], channel[80], owner[64], member[96];
    long number; /* of its hold, in a lock's queue; 0: it stands in a list */
};

/* The first element of a reply that is a list. */
static long long result_of(redisReply *reply) {
    long long result = reply->elements > 0 ? reply->element[0]->integer : reply->integer;
    freeReplyObject(reply);
    return result;
}

static void set_up(struct scripts *scripts, redisContext *redis, int number, bool programs) {
    load(redis, programs ? text_of(HF_PROGRAM_ACQUIRE) : ENTER, scripts->enter);
    load(redis, programs ? text_of(HF_PROGRAM_RELEASE) : LEAVE, scripts->leave);
    snprintf(scripts->owner, sizeof scripts->owner, "11e9e134-b940-8130-bb64-%012x", number);
    snprintf(scripts->channel, sizeof scripts->channel, programs ? "holdfast_grant:%s" : "%s",
             scripts->owner);
    scripts->number = programs ? 1 : 0;
}

#define LOCK                                                                                       \
    " 4 bench:handoff redisson_lock_token:{bench:handoff} holdfast_queue:{bench:handoff}"          \
    " redisson_lock__channel:{bench:handoff} %s:%ld 2000 0 "

/* Whether it has its turn at once. */
static bool enter(redisContext *redis, struct scripts *of) {
    const char *client = of->owner;
    if (of->number == 0)
        return result_of(checked(redis, redisCommand(redis, "EVALSHA %s 1 bench:handoff %s",
                                                     of->enter, of->channel))) == 1;
    snprintf(of->member, sizeof of->member, "1l%s:%ld:604800000", client, of->number);
    return result_of(checked(redis, redisCommand(redis, "EVALSHA %s" LOCK "0 30000 604800000 %s",
                                                 of->enter, client, of->number, of->member))) == 1;
}

static void leave(redisContext *redis, struct scripts *of) {
    redisReply *reply =
        of->number == 0
            ? redisCommand(redis, "EVALSHA %s 1 bench:handoff %s", of->leave, of->channel)
            : redisCommand(redis, "EVALSHA %s" LOCK "0 %s", of->leave, of->owner, of->number, "");
    if (result_of(checked(redis, reply)) != 1) fail("a release failed");
    if (of->number > 0) of->number++;
}

static void wait_for_message(redisContext *events) {
    redisReply *reply = NULL;
    if (redisGetReply(events, (void **)&reply) != REDIS_OK) fail(events->errstr);
    freeReplyObject(reply);
}

/* One of the processes; the number of its turns goes into the pipe. */
static void work(const char *target, int number, bool programs, double start, double stop,
                 int report) {
    struct scripts scripts = {0};
    long turns = 0;
    redisContext *calls = connect_to(target), *events = connect_to(target);
    set_up(&scripts, calls, number, programs);
    freeReplyObject(checked(events, redisCommand(events, "SUBSCRIBE %s", scripts.channel)));
    double early = start - now();
    if (early > 0) usleep((useconds_t)(early * 1e6));
    while (now() < stop) {
        if (!enter(calls, &scripts)) wait_for_message(events);
        if (now() < stop) turns++;
        leave(calls, &scripts);
    }
    if (write(report, &turns, sizeof turns) != sizeof turns) fail("cannot report");
    _exit(0);
}

int main(int argc, char **argv) {
    int report[2];
    long all = 0, turns;
    if (argc < 4 || pipe(report) != 0)
        fail("usage: handoff_baseline unix:PATH|tcp:PORT PROCESSES SECONDS [programs]");
    int processes = atoi(argv[2]);
    double seconds = atof(argv[3]), start = now() + START_UP;
    for (int i = 0; i < processes; i++) {
        if (fork() == 0) work(argv[1], i, argc > 4, start, start + seconds, report[1]);
    }
    for (int i = 0; i < processes; i++) {
        int status;
        if (wait(&status) < 0 || status != 0) fail("a process failed");
        if (read(report[0], &turns, sizeof turns) != sizeof turns) fail("a process says nothing");
        all += turns;
    }
    printf("%.3f\n", (double)all / seconds);
    return 0;
}
