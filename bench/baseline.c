/*
 * The bare cost of a cycle: sends two given commands by hiredis, one after the other, again and
 * again; pipelined: both in one write.
 *
 *   baseline unix:PATH|tcp:PORT CYCLES FILE [pipelined|CONNECTIONS]
 *
 * With a number of connections, each of them has one command in flight at all times: the loop sends
 * a command over each, and then receives the replies. CYCLES are those of all connections.
 *
 * FILE holds the two commands, each as a line with the number of arguments, then for each argument
 * a line with its length, its bytes and a newline. Ten # in an argument stand for the number of the
 * cycle. Prints the seconds that one cycle took. Fails if a reply is an error or its type changes:
 * then it would not be measuring what it should.
 */
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ARGUMENTS_MAX 64
#define COMMANDS 2
#define CONNECTIONS_MAX 1024
#define WARM_UP 200
#define NUMBER "##########"

struct command {
    int count;
    char *text[ARGUMENTS_MAX];
    size_t length[ARGUMENTS_MAX];
    char *number; /* the place of the cycle's number; NULL: there is none */
    int reply_type;
};

static void fail(const char *what) {
    fprintf(stderr, "baseline: %s\n", what);
    exit(1);
}

static void read_command(FILE *file, struct command *command) {
    if (fscanf(file, "%d", &command->count) != 1 || command->count > ARGUMENTS_MAX)
        fail("bad file");
    for (int i = 0; i < command->count; i++) {
        if (fscanf(file, "%zu", &command->length[i]) != 1 || fgetc(file) != '\n') fail("bad file");
        command->text[i] = malloc(command->length[i] + 1);
        if (!command->text[i]) fail("out of memory");
        if (fread(command->text[i], 1, command->length[i], file) != command->length[i])
            fail("bad file");
        command->text[i][command->length[i]] = '\0';
        char *number = strstr(command->text[i], NUMBER);
        if (number) command->number = number;
    }
}

static void write_number(struct command *command, long number) {
    char digits[24];
    if (!command->number) return;
    snprintf(digits, sizeof digits, "%010ld", number);
    memcpy(command->number, digits, strlen(NUMBER));
}

static redisContext *connect_to(const char *target) {
    bool local = strncmp(target, "unix:", 5) == 0;
    redisContext *redis =
        local ? redisConnectUnix(target + 5) : redisConnect("127.0.0.1", atoi(target + 4));
    if (!redis || redis->err) fail("cannot connect");
    return redis;
}

static void append(redisContext *redis, const struct command *command) {
    if (redisAppendCommandArgv(redis, command->count, (const char **)command->text,
                               command->length) != REDIS_OK)
        fail(redis->errstr);
}

static void receive(redisContext *redis, struct command *command) {
    redisReply *reply = NULL;
    if (redisGetReply(redis, (void **)&reply) != REDIS_OK) fail(redis->errstr);
    if (reply->type == REDIS_REPLY_ERROR) fail(reply->str);
    if (command->reply_type && command->reply_type != reply->type) fail("the reply changed");
    command->reply_type = reply->type;
    freeReplyObject(reply);
}

/* together: how many commands go into one write. */
static void run_cycles(redisContext *redis, struct command *commands, int together, long from,
                       long to) {
    for (long i = from * COMMANDS; i < to * COMMANDS; i += together) {
        for (int j = 0; j < together; j++) {
            struct command *command = &commands[(i + j) % COMMANDS];
            write_number(command, i / COMMANDS);
            append(redis, command);
        }
        for (int j = 0; j < together; j++) receive(redis, &commands[(i + j) % COMMANDS]);
    }
}

static void flush(redisContext *redis) {
    for (int done = 0; !done;) {
        if (redisBufferWrite(redis, &done) != REDIS_OK) fail(redis->errstr);
    }
}

/* The same by many connections, for cycles with these numbers. */
static void run_apart(redisContext **all, int count, struct command *commands, long from, long to) {
    for (long first = from; first < to; first += count) {
        for (int j = 0; j < COMMANDS; j++) {
            for (int i = 0; i < count; i++) {
                write_number(&commands[j], first + i);
                append(all[i], &commands[j]);
                flush(all[i]);
            }
            for (int i = 0; i < count; i++) receive(all[i], &commands[j]);
        }
    }
}

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    struct command commands[COMMANDS] = {{0}};
    if (argc < 4) fail("usage: baseline unix:PATH|tcp:PORT CYCLES FILE [pipelined|CONNECTIONS]");
    long cycles = atol(argv[2]);
    int count = argc > 4 ? atoi(argv[4]) : 0, together = argc > 4 && count == 0 ? COMMANDS : 1;
    if (count < 0 || count > CONNECTIONS_MAX) fail("too many connections");
    FILE *file = fopen(argv[3], "rb");
    if (!file) fail("cannot read the file");
    for (int i = 0; i < COMMANDS; i++) read_command(file, &commands[i]);
    redisContext *all[CONNECTIONS_MAX] = {connect_to(argv[1])};
    for (int i = 1; i < count; i++) all[i] = connect_to(argv[1]);
    if (count > 0) run_apart(all, count, commands, 0, WARM_UP);
    else run_cycles(all[0], commands, together, 0, WARM_UP);
    double start = now();
    if (count > 0) run_apart(all, count, commands, WARM_UP, WARM_UP + cycles);
    else run_cycles(all[0], commands, together, WARM_UP, WARM_UP + cycles);
    printf("%.9f\n", (now() - start) / (double)cycles);
    for (int i = 0; i < CONNECTIONS_MAX && all[i]; i++) redisFree(all[i]);
    fclose(file);
    return 0;
}
