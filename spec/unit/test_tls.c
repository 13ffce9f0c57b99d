#include "tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "memerr.h"
#include "net.h"
#include "system.h"

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

TEST(a_tls_write_to_a_closed_socket_raises_no_signal) {
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

TEST(a_tls_handshake_waits_for_the_server_and_fails_if_it_disconnects) {
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

TEST(a_tls_handshake_on_a_full_socket_waits_until_the_socket_is_writable) {
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

TEST(a_connection_to_a_server_without_tls_fails_and_says_so) {
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

TEST(each_connection_attempt_reports_a_tls_file_that_cannot_be_read) {
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

/* ---- certificates ---- */

typedef struct identity {
    X509 *cert;
    EVP_PKEY *key;
} identity;

static void set_extension(X509 *cert, int kind, const char *value) {
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);
    if (!extension || X509_add_ext(cert, extension, -1) != 1) abort();
    X509_EXTENSION_free(extension);
}

/* by: NULL for one that signs itself. alternatives: NULL for an authority. */
static identity new_identity(const char *name, const identity *by, const char *alternatives) {
    identity made = {X509_new(), NULL};
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    if (EVP_PKEY_keygen_init(maker) != 1 || EVP_PKEY_keygen(maker, &made.key) != 1) abort();
    EVP_PKEY_CTX_free(maker);
    X509_NAME *subject = X509_get_subject_name(made.cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(made.cert, by ? X509_get_subject_name(by->cert) : subject);
    X509_set_version(made.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(made.cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made.cert), 3600);
    X509_set_pubkey(made.cert, made.key);
    if (alternatives) set_extension(made.cert, NID_subject_alt_name, alternatives);
    else set_extension(made.cert, NID_basic_constraints, "critical,CA:TRUE");
    if (!X509_sign(made.cert, by ? by->key : made.key, NULL)) abort();
    return made;
}

static void free_identity(identity one) {
    X509_free(one.cert);
    EVP_PKEY_free(one.key);
}

/* A file in /tmp with one or two certificates, or a key alone. */
static const char *write_pem(char *path, X509 *first, X509 *second, EVP_PKEY *key) {
    snprintf(path, 64, "/tmp/test_tls.XXXXXX");
    FILE *file = fdopen(mkstemp(path), "w");
    if (!file || (first && PEM_write_X509(file, first) != 1) ||
        (second && PEM_write_X509(file, second) != 1) ||
        (key && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) != 1))
        abort();
    fclose(file);
    return path;
}

static char server_name[64]; /* that the server was asked for; "": none */

static int note_name(SSL *server, int *alert, void *context) {
    (void)alert;
    (void)context;
    const char *name = SSL_get_servername(server, TLSEXT_NAMETYPE_host_name);
    snprintf(server_name, sizeof server_name, "%s", name ? name : "");
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *server_with(const identity *own, const identity *trusted) {
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context, own->cert);
    SSL_CTX_use_PrivateKey(context, own->key);
    SSL_CTX_set_tlsext_servername_callback(context, note_name);
    SSL_CTX_set_num_tickets(context, 0);
    if (!trusted) return context;
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), trusted->cert);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return context;
}

typedef struct pair {
    int ends[2]; /* the client's and the server's */
    hf_tls *tls;
    SSL *server;
    bool agreed; /* both sides */
} pair;

static pair connect_pair(hf_tls_settings *settings, const char *host, SSL_CTX *context) {
    pair made = {.server = SSL_new(context)};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, made.ends) != 0) abort();
    reason[0] = server_name[0] = '\0';
    made.tls = hf_tls_new(settings, host, made.ends[0], reason, sizeof reason);
    SSL_set_fd(made.server, made.ends[1]);
    hf_tls_state state = made.tls ? HF_TLS_PENDING : HF_TLS_FAILED;
    int accepted = 0;
    for (int i = 0; i < 10 && state != HF_TLS_FAILED && accepted <= 0; i++) {
        if (state == HF_TLS_PENDING)
            state = hf_tls_handshake(made.tls, &events, reason, sizeof reason);
        accepted = SSL_accept(made.server);
    }
    made.agreed = state == HF_TLS_CONNECTED && accepted == 1;
    return made;
}

static void free_pair(pair *made) {
    SSL_free(made->server);
    hf_tls_free(made->tls, false);
    close(made->ends[0]);
    close(made->ends[1]);
}

static bool agrees(hf_tls_settings *settings, const char *host, SSL_CTX *context) {
    pair made = connect_pair(settings, host, context);
    free_pair(&made);
    return made.agreed;
}

TEST(a_certificate_for_a_different_host_is_refused) {
    static const struct {
        const char *alternatives, *host, *expected; /* expected: instead of the host */
        bool agrees;
    } CASES[] = {
        {"DNS:redis.example", "redis.example", NULL, true},
        {"DNS:redis.example", "REDIS.example", NULL, true},
        {"DNS:redis.example", "other.example", NULL, false},
        {"DNS:redis.example", "redis.example.org", NULL, false},
        {"DNS:redis.example", "example", NULL, false},
        {"DNS:*.example.org", "redis.example.org", NULL, true},
        {"DNS:*.example.org", "a.redis.example.org", NULL, false},
        {"DNS:r*.example.org", "redis.example.org", NULL, false},
        {"DNS:*s.example.org", "redis.example.org", NULL, false},
        {"IP:127.0.0.1", "127.0.0.1", NULL, true},
        {"IP:127.0.0.1", "127.0.0.2", NULL, false},
        {"DNS:127.0.0.1", "127.0.0.1", NULL, false},
        {"IP:::1", "::1", NULL, true},
        {"IP:::1", "::2", NULL, false},
        {"DNS:redis.example", "127.0.0.1", "redis.example", true},
        {"IP:127.0.0.1", "redis.example", "127.0.0.1", true},
        {"DNS:redis.example", "redis.example", "other.example", false},
    };
    char ca[64];
    identity root = new_identity("root", NULL, NULL);
    write_pem(ca, root.cert, NULL, NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        identity own = new_identity("server", &root, CASES[i].alternatives);
        SSL_CTX *context = server_with(&own, NULL);
        hf_tls_settings *settings =
            hf_tls_settings_new(&(hf_tls_options){.ca_file = ca, .server_name = CASES[i].expected});
        bool agreed = agrees(settings, CASES[i].host, context);
        const char *name = CASES[i].expected ? CASES[i].expected : CASES[i].host;
        bool is_name = strpbrk(name, "ghijklmnopqrstuvwxyz") != NULL;
        bool asked = strcmp(server_name, is_name ? name : "") == 0;
        hf_tls_settings_free(settings);
        SSL_CTX_free(context);
        free_identity(own);
        CHECK_OR(agreed == CASES[i].agrees, "%s for %s: %s", CASES[i].alternatives, name, reason);
        CHECK_OR(asked, "%s: the server was asked for \"%s\"", name, server_name);
    }
    unlink(ca);
    free_identity(root);
}

/* A server that knows the root alone needs what is between. */
TEST(the_whole_chain_of_the_clients_certificate_is_sent) {
    char ca[64], cert[64], key[64];
    identity root = new_identity("root", NULL, NULL), between = new_identity("m", &root, NULL);
    identity own = new_identity("c", &between, "DNS:c"), its = new_identity("s", &root, "DNS:s");
    SSL_CTX *context = server_with(&its, &root);
    write_pem(ca, root.cert, NULL, NULL);
    write_pem(key, NULL, NULL, own.key);
    for (int whole = 0; whole < 2; whole++) {
        write_pem(cert, own.cert, whole ? between.cert : NULL, NULL);
        hf_tls_settings *settings =
            hf_tls_settings_new(&(hf_tls_options){.ca_file = ca, .cert = cert, .key = key});
        bool agreed = agrees(settings, "s", context);
        hf_tls_settings_free(settings);
        unlink(cert);
        CHECK_OR(agreed == (whole == 1), "%d: %s", whole, reason);
    }
    unlink(ca);
    unlink(key);
    SSL_CTX_free(context);
    free_identity(own);
    free_identity(its);
    free_identity(between);
    free_identity(root);
}

TEST(the_systems_certificate_authorities_are_trusted_unless_others_are_given) {
    char ca[64];
    identity root = new_identity("root", NULL, NULL), own = new_identity("s", &root, "DNS:s");
    SSL_CTX *context = server_with(&own, NULL);
    bool agreed[3];
    write_pem(ca, root.cert, NULL, NULL);
    for (int given = 0; given < 3; given++) { /* nothing; the store; the store and another file */
        identity other = new_identity("other", NULL, NULL);
        char file[64];
        write_pem(file, other.cert, NULL, NULL);
        if (given > 0) setenv("SSL_CERT_FILE", ca, 1);
        hf_tls_settings *settings =
            hf_tls_settings_new(&(hf_tls_options){.ca_file = given == 2 ? file : NULL});
        unsetenv("SSL_CERT_FILE"); /* a program may change its environment at any later time */
        agreed[given] = agrees(settings, "s", context);
        hf_tls_settings_free(settings);
        unlink(file);
        free_identity(other);
    }
    unlink(ca);
    SSL_CTX_free(context);
    free_identity(own);
    free_identity(root);
    CHECK(!agreed[0]);
    CHECK(agreed[1]);
    CHECK(!agreed[2]);
}

TEST(each_connection_attempt_reports_an_invalid_tls_file_until_that_is_valid) {
    char ca[64], cert[64], key[64], other_key[64];
    identity root = new_identity("root", NULL, NULL), own = new_identity("c", &root, "DNS:c");
    identity other = new_identity("o", &root, "DNS:o");
    write_pem(ca, root.cert, NULL, NULL);
    write_pem(cert, own.cert, NULL, NULL);
    write_pem(key, NULL, NULL, own.key);
    write_pem(other_key, NULL, NULL, other.key);
    const struct {
        hf_tls_options options;
        const char *named;
    } CASES[] = {
        {{.ca_file = ca, .cert = cert, .key = key}, NULL},
        {{.ca_file = key}, key},
        {{.ca_file = ca, .cert = key, .key = key}, key},
        {{.ca_file = ca, .cert = cert, .key = "/nowhere/key"}, "key /nowhere/key: No such"},
        {{.ca_file = ca, .cert = "/nowhere/cert", .key = key}, "cert /nowhere/cert: No"},
        {{.cert = cert, .key = other_key, .trusting = true}, other_key},
        {{.ca_file = "/nowhere/ca", .trusting = true}, NULL}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        hf_tls_settings *settings = hf_tls_settings_new(&CASES[i].options);
        for (int tries = 0; tries < 2; tries++) {
            int fd, peer;
            reason[0] = '\0';
            hf_tls *tls = over_a_pair(settings, &fd, &peer);
            bool good = CASES[i].named ? !tls && strstr(reason, CASES[i].named) : tls != NULL;
            good = good && ERR_peek_error() == 0; /* others would take it for theirs */
            hf_tls_free(tls, false);
            close(fd);
            close(peer);
            CHECK_OR(good, "case %zu: %s", i, reason);
        }
        hf_tls_settings_free(settings);
    }
    unlink(ca);
    unlink(cert);
    unlink(key);
    unlink(other_key);
    free_identity(own);
    free_identity(other);
    free_identity(root);
}

/* ---- files that are replaced ---- */

static void write_over(const char *path, X509 *cert, EVP_PKEY *key, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file || (cert && PEM_write_X509(file, cert) != 1) ||
        (key && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) != 1) ||
        (text && fputs(text, file) < 0))
        abort();
    fclose(file);
}

/* Two authorities, the server's and the client's certificates of each, and the client's files. */
typedef struct rotation {
    identity root[2], server[2], client[2];
    SSL_CTX *context[2];
    char ca[64], cert[64], key[64];
    hf_tls_settings *settings;
} rotation;

static rotation begin_rotation(void) {
    rotation made;
    for (int i = 0; i < 2; i++) {
        made.root[i] = new_identity("root", NULL, NULL);
        made.server[i] = new_identity("s", &made.root[i], "DNS:s");
        made.client[i] = new_identity("c", &made.root[i], "DNS:c");
        made.context[i] = server_with(&made.server[i], &made.root[i]);
    }
    write_pem(made.ca, made.root[0].cert, NULL, NULL);
    write_pem(made.cert, made.client[0].cert, NULL, NULL);
    write_pem(made.key, NULL, NULL, made.client[0].key);
    made.settings = hf_tls_settings_new(
        &(hf_tls_options){.ca_file = made.ca, .cert = made.cert, .key = made.key});
    return made;
}

static void end_rotation(rotation *made) {
    hf_tls_settings_free(made->settings);
    for (int i = 0; i < 2; i++) {
        SSL_CTX_free(made->context[i]);
        free_identity(made->server[i]);
        free_identity(made->client[i]);
        free_identity(made->root[i]);
    }
    unlink(made->ca);
    unlink(made->cert);
    unlink(made->key);
}

TEST(rotated_tls_files_apply_to_new_connections_and_not_to_open_ones) {
    rotation at = begin_rotation();
    char bytes[2];
    pair old = connect_pair(at.settings, "s", at.context[0]);
    bool first = old.agreed;
    write_over(at.ca, at.root[1].cert, NULL, NULL);
    write_over(at.cert, at.client[1].cert, NULL, NULL);
    write_over(at.key, NULL, at.client[1].key, NULL);
    bool second = agrees(at.settings, "s", at.context[1]);
    bool third = agrees(at.settings, "s", at.context[0]);
    bool goes_on = hf_tls_send(old.tls, "x", 1) == 1 && SSL_read(old.server, bytes, 1) == 1;
    free_pair(&old);
    end_rotation(&at);
    CHECK(first);
    CHECK_OR(second, "the new files: %s", reason);
    CHECK(!third);
    CHECK(goes_on);
}

TEST(the_previous_tls_files_are_used_while_the_files_are_being_rotated) {
    rotation at = begin_rotation();
    bool agreed[4];
    agreed[0] = agrees(at.settings, "s", at.context[0]);
    write_over(at.cert, at.client[1].cert, NULL, NULL); /* the key is still the old one's */
    agreed[1] = agrees(at.settings, "s", at.context[0]);
    write_over(at.ca, NULL, NULL, "-----BEGIN CERTIFICATE-----\nMIIB");
    agreed[2] = agrees(at.settings, "s", at.context[0]);
    bool clean = ERR_peek_error() == 0; /* others would take it for theirs */
    pair refused = connect_pair(at.settings, "s", at.context[1]);
    char said[sizeof reason];
    memcpy(said, reason, sizeof said);
    bool refuses = !refused.agreed;
    free_pair(&refused);
    write_over(at.ca, at.root[1].cert, NULL, NULL);
    write_over(at.key, NULL, at.client[1].key, NULL);
    agreed[3] = agrees(at.settings, "s", at.context[1]);
    bool names_it = strstr(said, at.ca) != NULL;
    end_rotation(&at);
    CHECK_OR(names_it, "%s", said);
    for (int i = 0; i < 4; i++) CHECK_OR(agreed[i], "step %d failed", i);
    CHECK(clean);
    CHECK(refuses);
    CHECK_OR(strstr(said, at.ca) && strstr(said, "certificate verify failed"), "%s", said);
}

TEST(a_directory_of_certificate_authorities_is_read_with_each_connection) {
    rotation at = begin_rotation();
    char directory[64] = "/tmp/test_tls.XXXXXX", file[128];
    if (!mkdtemp(directory)) abort();
    snprintf(file, sizeof file, "%s/%08lx.0", directory, X509_subject_name_hash(at.root[0].cert));
    hf_tls_settings *settings = hf_tls_settings_new(
        &(hf_tls_options){.ca_path = directory, .cert = at.cert, .key = at.key});
    write_over(file, at.root[0].cert, NULL, NULL);
    bool first = agrees(settings, "s", at.context[0]);
    write_over(file, at.root[1].cert, NULL, NULL); /* in place: the directory has not changed */
    bool second = agrees(settings, "s", at.context[0]);
    hf_tls_settings_free(settings);
    unlink(file);
    rmdir(directory);
    end_rotation(&at);
    CHECK(first);
    CHECK(!second);
}

TEST(the_systems_certificate_store_is_read_again_when_it_has_changed) {
    char store[64];
    rotation at = begin_rotation();
    SSL_CTX *open[2] = {server_with(&at.server[0], NULL), server_with(&at.server[1], NULL)};
    write_pem(store, at.root[0].cert, NULL, NULL);
    setenv("SSL_CERT_FILE", store, 1);
    hf_tls_settings *settings = hf_tls_settings_new(&(hf_tls_options){0});
    bool first = agrees(settings, "s", open[0]);
    write_over(store, at.root[1].cert, NULL, NULL);
    bool second = agrees(settings, "s", open[1]);
    unsetenv("SSL_CERT_FILE");
    hf_tls_settings_free(settings);
    unlink(store);
    SSL_CTX_free(open[0]);
    SSL_CTX_free(open[1]);
    end_rotation(&at);
    CHECK(first);
    CHECK(second);
}

/* ---- a connection that both sides agreed on ---- */

static void on_records(pair *at) {
    char bytes[8];
    CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), -1);
    CHECK_EQ_INT(errno, EAGAIN);
    CHECK_EQ_INT(hf_tls_events(at->tls, false), POLLIN);
    CHECK_EQ_INT(hf_tls_events(at->tls, true), POLLIN | POLLOUT);
    CHECK(!hf_tls_recv_wants_write(at->tls));
    SSL_write(at->server, "one", 3);
    SSL_write(at->server, "two", 3);
    CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), 3);
    CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), 3);
    CHECK_EQ_INT(memcmp(bytes, "two", 3), 0);
    CHECK_EQ_INT(hf_tls_send(at->tls, "three", 5), 5);
    CHECK_EQ_INT(SSL_read(at->server, bytes, sizeof bytes), 5);
}

/* OpenSSL has one list of errors for all that a thread does. */
static void on_errors_of_others(pair *at) {
    char bytes[8];
    CHECK(!BIO_new_file("/nowhere/file", "r") && ERR_peek_error() != 0);
    CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), -1);
    CHECK_EQ_INT(errno, EAGAIN);
    CHECK_EQ_INT(ERR_peek_error(), 0);
}

/* It takes a part, and later the rest, wherever that lies by then. */
static void on_full_socket(pair *at) {
    static char places[2][1 << 20], read[1 << 16];
    size_t all = sizeof *places, sent = 0, received = 0;
    for (int i = 0; i < 10000 && received < all; i++) {
        ssize_t size = 0;
        while (sent < all && (size = hf_tls_send(at->tls, places[i % 2] + sent, all - sent)) > 0)
            sent += (size_t)size;
        CHECK(size > 0 || sent == all || errno == EAGAIN);
        CHECK_EQ_INT(hf_tls_events(at->tls, true), POLLIN | POLLOUT);
        int got = SSL_read(at->server, read, sizeof read);
        received += got > 0 ? (size_t)got : 0;
    }
    CHECK_EQ_INT(received, all);
}

static void on_close_alert(pair *at) {
    char bytes[8];
    SSL_shutdown(at->server);
    shutdown(at->ends[1], SHUT_RDWR);
    CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), 0);
    errno = 0;
    CHECK_EQ_INT(hf_tls_send(at->tls, "x", 1), -1);
    CHECK_EQ_INT(errno, EPIPE);
}

static void on_end_without_alert(pair *at) {
    char bytes[8];
    shutdown(at->ends[1], SHUT_RDWR);
    CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), 0);
}

/* As a proxy sends that loses its place. */
static void on_other_bytes(pair *at) {
    char bytes[8];
    CHECK(write(at->ends[1], "HTTP/1.1 400 Bad\r\n", 18) == 18);
    errno = 0;
    CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), -1);
    CHECK_EQ_INT(errno, EPROTO);
    CHECK_OR(strncmp(hf_tls_reason(at->tls), "TLS: ", 5) == 0, "%s", hf_tls_reason(at->tls));
    CHECK_EQ_INT(ERR_peek_error(), 0);
}

static bool sees_alert(pair *at) {
    char bytes[8];
    int size = SSL_read(at->server, bytes, sizeof bytes);
    return size <= 0 && SSL_get_error(at->server, size) == SSL_ERROR_ZERO_RETURN;
}

static void on_polite_end(pair *at) {
    hf_tls_free(at->tls, true);
    at->tls = NULL;
    CHECK(sees_alert(at));
}

/* Where output is discarded, no alert is sent either. */
static void on_impolite_end(pair *at) {
    hf_tls_free(at->tls, false);
    at->tls = NULL;
    CHECK(!sees_alert(at));
}

/* ---- calls into OpenSSL ---- */

static _Thread_local int locked; /* locks of this program that the thread has */
static int calls_outside;        /* into OpenSSL, of a thread without any */

#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAP(int, pthread_rwlock_rdlock, pthread_rwlock_t *lock) {
    locked++;
    return __real_pthread_rwlock_rdlock(lock);
}

WRAP(int, pthread_rwlock_wrlock, pthread_rwlock_t *lock) {
    locked++;
    return __real_pthread_rwlock_wrlock(lock);
}

WRAP(int, pthread_rwlock_trywrlock, pthread_rwlock_t *lock) {
    int error = __real_pthread_rwlock_trywrlock(lock);
    locked += error == 0;
    return error;
}

WRAP(int, pthread_rwlock_unlock, pthread_rwlock_t *lock) {
    locked--;
    return __real_pthread_rwlock_unlock(lock);
}

WRAP(void, ERR_clear_error, void) {
    calls_outside += locked == 0;
    __real_ERR_clear_error();
}

static bool ignores_no_end; /* as OpenSSL before 3.0 */

WRAP(uint64_t, SSL_CTX_set_options, SSL_CTX *context, uint64_t options) {
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
    if (ignores_no_end) options &= ~(uint64_t)SSL_OP_IGNORE_UNEXPECTED_EOF;
#endif
    return __real_SSL_CTX_set_options(context, options);
}

/* ---- what OpenSSL queues ---- */

static bool queues_errno; /* as OpenSSL 3.5 does when a write fails */

static int queue_errno(int result) {
    int error = errno;
    if (queues_errno && result <= 0 && (error == EPIPE || error == ECONNRESET)) {
#ifdef ERR_raise
        ERR_raise(ERR_LIB_SYS, error);
#else
        ERR_PUT_error(ERR_LIB_SYS, 0, error, __FILE__, __LINE__);
#endif
    }
    errno = error;
    return result;
}

WRAP(int, SSL_do_handshake, SSL *ssl) {
    errno = 0;
    return queue_errno(__real_SSL_do_handshake(ssl));
}

WRAP(int, SSL_read, SSL *ssl, void *bytes, int size) {
    errno = 0;
    return queue_errno(__real_SSL_read(ssl, bytes, size));
}

WRAP(int, SSL_write, SSL *ssl, const void *bytes, int size) {
    errno = 0;
    return queue_errno(__real_SSL_write(ssl, bytes, size));
}

/* The peer closes without reading the client's greeting, so the next read fails with ECONNRESET. */
static bool is_reset(void) {
    char bytes[8];
    int fd, peer;
    hf_tls_settings *settings = trusting();
    hf_tls *tls = over_a_pair(settings, &fd, &peer);
    bool pending = hf_tls_handshake(tls, &events, reason, sizeof reason) == HF_TLS_PENDING;
    close(peer);
    errno = 0;
    bool reset = hf_tls_recv(tls, bytes, sizeof bytes) == -1 && errno == ECONNRESET;
    hf_tls_free(tls, false);
    close(fd);
    hf_tls_settings_free(settings);
    return pending && reset;
}

static void run_agreed(void) {
    static void (*const CASES[])(pair *) = {on_records,     on_errors_of_others,  on_full_socket,
                                            on_close_alert, on_end_without_alert, on_other_bytes,
                                            on_polite_end,  on_impolite_end};
    identity own = new_identity("s", NULL, "DNS:s");
    SSL_CTX *context = server_with(&own, NULL);
    signal(SIGPIPE, SIG_IGN); /* of the server */
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        hf_tls_settings *settings = trusting();
        pair at = connect_pair(settings, "s", context);
        if (at.agreed) CASES[i](&at);
        else check_fail(__FILE__, __LINE__, "case %zu: %s", i, reason);
        free_pair(&at);
        hf_tls_settings_free(settings);
    }
    signal(SIGPIPE, SIG_DFL);
    SSL_CTX_free(context);
    free_identity(own);
}

TEST(a_tls_connection_after_its_handshake_sends_and_receives_like_a_socket) {
    run_agreed();
}

TEST(a_socket_failure_keeps_its_errno_even_if_openssl_queues_it_as_an_error) {
    queues_errno = true;
    a_tls_write_to_a_closed_socket_raises_no_signal();
    bool reset = is_reset();
    run_agreed();
    queues_errno = false;
    CHECK(reset);
}

/* The file that ca_path would have for the authority is a folder, which OpenSSL cannot read. */
TEST(a_certificate_that_cannot_be_verified_is_reported_whatever_else_openssl_queued) {
    char folder[] = "/tmp/holdfast-XXXXXX", file[64], said[160];
    identity root = new_identity("root", NULL, NULL), own = new_identity("s", &root, "DNS:s");
    SSL_CTX *context = server_with(&own, NULL);
    if (!mkdtemp(folder)) abort();
    snprintf(file, sizeof file, "%s/%08lx.0", folder,
             X509_NAME_hash(X509_get_subject_name(root.cert)));
    if (mkdir(file, 0700) != 0) abort();
    hf_tls_settings *settings = hf_tls_settings_new(&(hf_tls_options){.ca_path = folder});
    bool agreed = agrees(settings, "s", context);
    snprintf(said, sizeof said, "%s", reason);
    hf_tls_settings_free(settings);
    rmdir(file);
    rmdir(folder);
    SSL_CTX_free(context);
    free_identity(own);
    free_identity(root);
    CHECK(!agreed);
    CHECK_STR(said, "certificate verify failed: unable to get local issuer certificate");
}

TEST(a_tls_connection_closed_without_an_alert_counts_as_closed_and_not_as_failed) {
    char bytes[8];
    identity own = new_identity("s", NULL, "DNS:s");
    SSL_CTX *context = server_with(&own, NULL);
    hf_tls_settings *settings = trusting();
    ignores_no_end = true;
    pair at = connect_pair(settings, "s", context);
    ignores_no_end = false;
    shutdown(at.ends[1], SHUT_WR);
    ssize_t size = at.agreed ? hf_tls_recv(at.tls, bytes, sizeof bytes) : -1;
    free_pair(&at);
    hf_tls_settings_free(settings);
    SSL_CTX_free(context);
    free_identity(own);
    CHECK_EQ_INT(size, 0);
}

/* Where OpenSSL is linked into the program. */
static bool counts_openssls_own_calls(void) {
    identity own = new_identity("s", NULL, "DNS:s");
    SSL_CTX *context = server_with(&own, NULL);
    SSL *server = SSL_new(context);
    SSL_set_bio(server, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    calls_outside = 0;
    SSL_accept(server);
    SSL_free(server);
    SSL_CTX_free(context);
    free_identity(own);
    return calls_outside > 0;
}

/* Without the lock the process may be exiting, and OpenSSL may have freed its memory. */
TEST(every_openssl_call_holds_the_lock_that_a_process_exit_waits_for) {
    if (counts_openssls_own_calls()) return;
    calls_outside = 0;
    run_agreed();
    CHECK_EQ_INT(calls_outside, 0);
}

/* With TLS 1.3 the client has agreed before the server checks its certificate. */
TEST(a_servers_demand_for_a_certificate_is_reported_even_after_the_handshake) {
    char bytes[8];
    identity own = new_identity("s", NULL, "DNS:s");
    SSL_CTX *context = server_with(&own, &own);
    hf_tls_settings *settings = trusting();
    pair at = connect_pair(settings, "s", context);
    ssize_t size = at.tls ? hf_tls_recv(at.tls, bytes, sizeof bytes) : 0;
    int error = errno;
    char said[160];
    snprintf(said, sizeof said, "%s", at.tls ? hf_tls_reason(at.tls) : reason);
    free_pair(&at);
    hf_tls_settings_free(settings);
    SSL_CTX_free(context);
    free_identity(own);
    CHECK_STR(said, "the server requires a client certificate");
    CHECK_EQ_INT(size, -1);
    CHECK_EQ_INT(error, EPROTO);
}

/* ---- OpenSSL's memory ---- */

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *block);

static long blocks;  /* that OpenSSL has */
static int fails_in; /* this many blocks; 0: none does */

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
TEST(a_closed_tls_connection_and_its_settings_leave_no_memory_of_openssl) {
    long before = 0;
    for (int round = 0; round < 3; round++) {
        before = blocks;
        connect_once();
    }
    CHECK_EQ_INT(blocks, before);
}

static int listen_in_silence(in_port_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool listens = bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 8) == 0 &&
                   getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    *port = ntohs(address.sin_port);
    if (!listens) check_fail(__FILE__, __LINE__, "no socket");
    return fd;
}

static bool cancel_a_handshake(const hf_server *server, hf_tls_settings *settings) {
    hf_dial dial;
    hf_time until = hf_now() + 20 * HF_SECOND;
    hf_dial_state state =
        hf_dial_start(&dial, server, settings, hf_now(), until, reason, sizeof reason);
    while (state == HF_DIAL_PENDING && !dial.tls && hf_now() < until)
        state = hf_dial_step(&dial, hf_now(), reason, sizeof reason);
    bool shakes = state == HF_DIAL_PENDING && dial.tls;
    hf_dial_cancel(&dial);
    return shakes && dial.fd < 0 && !dial.tls;
}

TEST(a_connection_cancelled_during_its_tls_handshake_leaks_no_memory) {
    in_port_t port = 0;
    int listener = listen_in_silence(&port);
    hf_server server = {.tls = true, .port = port, .host = "127.0.0.1"};
    hf_tls_settings *settings = trusting();
    bool shakes = true;
    long before = 0;
    for (int round = 0; round < 3; round++) {
        before = blocks;
        shakes = cancel_a_handshake(&server, settings) && shakes;
    }
    long after = blocks;
    hf_tls_settings_free(settings);
    close(listener);
    CHECK(shakes);
    CHECK_EQ_INT(after, before);
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

TEST(tls_settings_that_could_not_be_loaded_for_lack_of_memory_are_loaded_later) {
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
TEST(openssl_is_not_used_after_the_process_has_begun_to_exit) {
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
                  strcmp(own->ca_path, "/b") == 0 && strcmp(own->cert, "/c") == 0 &&
                  strcmp(own->key, "/d") == 0 && strcmp(own->server_name, "e") == 0 &&
                  !own->trusting;
    hf_tls_settings_free(settings);
    return copied;
}

TEST(creating_tls_settings_survives_each_failed_allocation) {
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
