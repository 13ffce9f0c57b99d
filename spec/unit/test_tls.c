#include "tls.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "memerr.h"

static char reason[160];
static short events;

/* TLS over one end of a pair of sockets; `peer` is the other. */
static hf_tls *over_a_pair(hf_tls_settings *settings, int *fd, int *peer) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) abort();
    *fd = ends[0];
    *peer = ends[1];
    return hf_tls_new(settings, "localhost", *fd, reason, sizeof reason);
}

static hf_tls_settings *trusting(void) {
    return hf_tls_settings_new(&(hf_tls_options){.trusting = true});
}

TEST(a_write_to_a_closed_socket_raises_no_signal) {
    int fd, peer;
    hf_tls_settings *settings = trusting();
    hf_tls *tls = over_a_pair(settings, &fd, &peer);
    CHECK(tls);
    close(peer);
    CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_FAILED);
    CHECK_STR(reason, "Broken pipe during the TLS handshake");
    hf_tls_free(tls, true);
    close(fd);
    hf_tls_settings_free(settings);
}

TEST(a_handshake_waits_for_the_server_and_fails_when_it_goes) {
    int fd, peer;
    char bytes[4096];
    hf_tls_settings *settings = trusting();
    hf_tls *tls = over_a_pair(settings, &fd, &peer);
    CHECK(tls);
    CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_PENDING);
    CHECK_EQ_INT(events, POLLIN);
    CHECK(read(peer, bytes, sizeof bytes) > 0 && bytes[0] == 0x16);
    CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_PENDING);
    close(peer);
    CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_FAILED);
    CHECK_STR(reason, "the server closed the connection during the TLS handshake");
    hf_tls_free(tls, true);
    close(fd);
    hf_tls_settings_free(settings);
}

TEST(a_full_socket_is_polled_for_writing) {
    int fd, peer;
    char bytes[4096] = {0};
    hf_tls_settings *settings = trusting();
    hf_tls *tls = over_a_pair(settings, &fd, &peer);
    CHECK(tls);
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
    CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_PENDING);
    CHECK_EQ_INT(events, POLLOUT);
    hf_tls_free(tls, true);
    close(fd);
    close(peer);
    hf_tls_settings_free(settings);
}

TEST(a_server_without_tls_is_reported_as_such) {
    static const char *const answers[] = {"-ERR unknown command\r\n", "HTTP/1.1 400 Bad\r\n",
                                          "SSH-2.0-x\r\n"};
    hf_tls_settings *settings = trusting();
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        int fd, peer;
        hf_tls *tls = over_a_pair(settings, &fd, &peer);
        CHECK(tls);
        CHECK(write(peer, answers[i], strlen(answers[i])) > 0);
        CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_FAILED);
        CHECK_STR(reason, "the server does not speak TLS");
        hf_tls_free(tls, true);
        close(fd);
        close(peer);
    }
    hf_tls_settings_free(settings);
}

TEST(a_file_that_cannot_be_used_is_reported_each_time) {
    int fd, peer;
    hf_tls_settings *settings = hf_tls_settings_new(&(hf_tls_options){.ca_file = "/nowhere/ca"});
    for (int i = 0; i < 2; i++) {
        reason[0] = '\0';
        CHECK(!over_a_pair(settings, &fd, &peer));
        CHECK_STR(reason, "TLS: cannot use ca_file /nowhere/ca: No such file or directory");
        close(fd);
        close(peer);
    }
    hf_tls_settings_free(settings);
}

/* ---- OpenSSL's memory ---- */

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *block);

static long blocks;  /* that OpenSSL has */
static int fails_in; /* so many blocks; 0: none does */

static void *allocate(size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    bool fails = fails_in > 0 && --fails_in == 0;
    void *block = fails ? NULL : __real_malloc(size);
    blocks += block != NULL;
    return block;
}

static void *reallocate(void *old, size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    void *block = __real_realloc(old, size);
    blocks += !old && block;
    return block;
}

static void release(void *block, const char *file, int line) {
    (void)file;
    (void)line;
    blocks -= block != NULL;
    __real_free(block);
}

static void connect_once(void) {
    int fd, peer;
    hf_tls_settings *settings = trusting();
    hf_tls *tls = over_a_pair(settings, &fd, &peer);
    CHECK(tls);
    CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_PENDING);
    hf_tls_free(tls, true);
    close(fd);
    close(peer);
    hf_tls_settings_free(settings);
}

/* What OpenSSL keeps for ever it has since the first rounds. */
TEST(a_connection_and_its_settings_leave_no_memory_of_openssl) {
    long before = 0;
    for (int round = 0; round < 3; round++) {
        before = blocks;
        connect_once();
    }
    CHECK_EQ_INT(blocks, before);
}

/* Returns whether the nth block failed. */
static bool connect_without(int nth) {
    int fd, peer;
    hf_tls_settings *settings = trusting();
    reason[0] = '\0';
    fails_in = nth;
    hf_tls *tls = over_a_pair(settings, &fd, &peer);
    bool failed = fails_in == 0;
    fails_in = 0;
    if (!tls && (!failed || strncmp(reason, "TLS: ", 5) != 0))
        check_fail(__FILE__, __LINE__, "block %d: %s", nth, reason);
    if (!tls) tls = hf_tls_new(settings, "localhost", fd, reason, sizeof reason);
    if (!tls || hf_tls_handshake(tls, &events, reason, sizeof reason) != HF_TLS_PENDING)
        check_fail(__FILE__, __LINE__, "block %d: no handshake: %s", nth, reason);
    hf_tls_free(tls, true);
    close(fd);
    close(peer);
    hf_tls_settings_free(settings);
    return failed;
}

TEST(a_lack_of_memory_is_reported_and_may_pass) {
    connect_once();
    for (int nth = 1; connect_without(nth); nth++) continue;
}

/* ---- the end of the process ---- */

static hf_tls *used_at_exit; /* NULL: by nobody */
static hf_tls_settings *settings_at_exit;

static void use_at_exit(void) {
    char bytes[8];
    if (!used_at_exit) return;
    reason[0] = '\0';
    hf_tls_state state = hf_tls_handshake(used_at_exit, &events, reason, sizeof reason);
    if (state != HF_TLS_FAILED || strcmp(reason, "the process is exiting") != 0) _exit(1);
    reason[0] = '\0';
    if (hf_tls_new(settings_at_exit, "localhost", 0, reason, sizeof reason)) _exit(2);
    if (strcmp(reason, "the process is exiting") != 0) _exit(3);
    errno = 0;
    if (hf_tls_recv(used_at_exit, bytes, sizeof bytes) != -1 || errno != EPIPE) _exit(4);
    if (hf_tls_send(used_at_exit, "x", 1) != -1 || errno != EPIPE) _exit(5);
    alarm(10); /* ends a fork that waits for ever for those inside of OpenSSL */
    _exit(fork() >= 0 ? 0 : 7);
}

/* OpenSSL has freed what it needs. */
TEST(nobody_uses_openssl_when_the_process_has_ended) {
    int fd, peer, status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        settings_at_exit = trusting();
        used_at_exit = over_a_pair(settings_at_exit, &fd, &peer);
        exit(6);
    }
    CHECK_EQ_INT(waitpid(child, &status, 0), child);
    CHECK_EQ_INT(status, 0);
}

/* ---- settings ---- */

static bool make_settings(void *context) {
    hf_tls_options options = {"/a", "/b", "/c", "/d", "e", false};
    (void)context;
    hf_tls_settings *settings = hf_tls_settings_new(&options);
    if (!settings) return false;
    const hf_tls_options *own = hf_tls_settings_options(settings);
    bool copied = own->ca_file != options.ca_file && strcmp(own->ca_file, "/a") == 0 &&
                  strcmp(own->key, "/d") == 0 && strcmp(own->server_name, "e") == 0 &&
                  !own->trusting;
    hf_tls_settings_free(settings);
    return copied;
}

TEST(settings_survive_without_memory) {
    long before = memerr_live();
    CHECK_EQ_INT(memerr_until_success(make_settings, NULL, 20), 6);
    CHECK_EQ_INT(memerr_live(), before);
    hf_tls_settings_free(NULL);
    hf_tls_free(NULL, true);
}

/* The handler is there before OpenSSL's, so it runs behind them. */
int main(int argc, char **argv) {
    if (!CRYPTO_set_mem_functions(allocate, reallocate, release)) return 1;
    atexit(use_at_exit);
    return check_run(argc > 1 ? argv[1] : NULL);
}
