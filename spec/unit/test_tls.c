#include "tls.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
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
    CHECK_EQ_INT(memerr_until_success(make_settings, NULL, 20), 6);
    hf_tls_settings_free(NULL);
    hf_tls_free(NULL, true);
}

CHECK_MAIN
