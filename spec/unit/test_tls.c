#include "tls.h"

#include <errno.h>
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
#include "system.h"

static char reason[160];
static short events;

/* ---- what a test makes, which is freed after it ---- */

typedef struct owned {
    void (*free)(void *what);
    void *what;
} owned;

static owned things[128];
static size_t count;

static void *own(void *what, void (*free_it)(void *)) {
    if (count == sizeof things / sizeof *things) abort();
    things[count++] = (owned){free_it, what};
    return what;
}

/* Frees it all, the last first. */
static void free_made(void) {
    while (count > 0) {
        count--;
        things[count].free(things[count].what);
    }
}

CHECK_AROUND(NULL, free_made)

static void free_settings(void *settings) {
    hf_tls_settings_free(settings);
}

static void free_tls(void *tls) {
    hf_tls_free(tls, true);
}

static void close_end(void *fd) {
    close((int)(intptr_t)fd);
}

static void own_end(int fd) {
    own((void *)(intptr_t)fd, close_end);
}

static hf_tls_settings *settings_of(hf_tls_options options) {
    return own(hf_tls_settings_new(&options), free_settings);
}

static hf_tls_settings *trusting(void) {
    return settings_of((hf_tls_options){.accepts_any_certificate = true});
}

/* TLS over one end of a pair of sockets, of which the other is `peer`. */
static int fd, peer;

static hf_tls *over_a_pair(hf_tls_settings *settings) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) abort();
    own_end(fd = ends[0]);
    own_end(peer = ends[1]);
    reason[0] = '\0';
    return own(hf_tls_new(settings, "localhost", fd, reason, sizeof reason), free_tls);
}

/* The peer disconnects. */
static void hang_up(void) {
    shutdown(peer, SHUT_RDWR);
}

#define CHECK_HANDSHAKE(tls, want)                                                                 \
    CHECK_EQ_INT(hf_tls_handshake(tls, &events, reason, sizeof reason), HF_TLS_##want)

TEST(a_tls_write_to_a_closed_socket_raises_no_signal) {
    hf_tls *tls = over_a_pair(trusting());
    CHECK(tls);
    hang_up(), CHECK_HANDSHAKE(tls, FAILED);
    CHECK_STR(reason, "Broken pipe during the TLS handshake");
}

TEST(a_tls_handshake_waits_for_the_server_and_fails_if_it_disconnects) {
    char bytes[4096];
    hf_tls *tls = over_a_pair(trusting());
    CHECK(tls);
    CHECK_HANDSHAKE(tls, PENDING);
    CHECK_EQ_INT(events, POLLIN);
    CHECK(read(peer, bytes, sizeof bytes) > 0 && bytes[0] == 0x16);
    CHECK_HANDSHAKE(tls, PENDING);
    hang_up(), CHECK_HANDSHAKE(tls, FAILED);
    CHECK_STR(reason, "the server closed the connection during the TLS handshake");
}

TEST(a_tls_handshake_on_a_full_socket_waits_until_the_socket_is_writable) {
    char bytes[4096] = {0};
    hf_tls *tls = over_a_pair(trusting());
    CHECK(tls);
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
    CHECK_HANDSHAKE(tls, PENDING);
    CHECK_EQ_INT(events, POLLOUT);
}

TEST(a_connection_to_a_server_without_tls_fails_and_says_so) {
    static const char *const answers[] = {"-ERR unknown command\r\n", "HTTP/1.1 400 Bad\r\n",
                                          "SSH-2.0-x\r\n"};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        hf_tls *tls = over_a_pair(trusting());
        CHECK(tls);
        CHECK(write(peer, answers[i], strlen(answers[i])) > 0);
        CHECK_HANDSHAKE(tls, FAILED);
        CHECK_STR(reason, "the server does not speak TLS");
    }
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

static void free_cert(void *cert) {
    X509_free(cert);
}

static void free_key(void *key) {
    EVP_PKEY_free(key);
}

static void free_context(void *context) {
    SSL_CTX_free(context);
}

static void remove_file(void *path) {
    remove(path);
    free(path);
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
    own(made.cert, free_cert);
    own(made.key, free_key);
    return made;
}

/* Writes the file with one or two certificates, a key or a text. */
static void write_over(const char *path, X509 *first, X509 *second, EVP_PKEY *key,
                       const char *text) {
    FILE *file = fopen(path, "w");
    if (!file || (first && PEM_write_X509(file, first) != 1) ||
        (second && PEM_write_X509(file, second) != 1) ||
        (key && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) != 1) ||
        (text && fputs(text, file) < 0))
        abort();
    fclose(file);
}

/* The path of a new file in /tmp. */
static char *write_pem(X509 *first, X509 *second, EVP_PKEY *key) {
    char *path = own(strdup("/tmp/test_tls.XXXXXX"), remove_file);
    close(mkstemp(path));
    write_over(path, first, second, key, NULL);
    return path;
}

static char *new_folder(void) {
    char *path = own(strdup("/tmp/test_tls.XXXXXX"), remove_file);
    if (!mkdtemp(path)) abort();
    return path;
}

/* The file of an authority in a folder. */
static char *file_in(const char *folder, X509 *root) {
    char path[128];
    snprintf(path, sizeof path, "%s/%08lx.0", folder, X509_subject_name_hash(root));
    return own(strdup(path), remove_file);
}

static char server_name[64]; /* that the server was asked for; "": none */

static int note_name(SSL *server, int *alert, void *context) {
    (void)alert;
    (void)context;
    const char *name = SSL_get_servername(server, TLSEXT_NAMETYPE_host_name);
    snprintf(server_name, sizeof server_name, "%s", name ? name : "");
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *server_with(const identity *its, const identity *trusted) {
    SSL_CTX *context = own(SSL_CTX_new(TLS_server_method()), free_context);
    SSL_CTX_use_certificate(context, its->cert);
    SSL_CTX_use_PrivateKey(context, its->key);
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
    pair at = {.server = SSL_new(context)};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, at.ends) != 0) abort();
    reason[0] = server_name[0] = '\0';
    at.tls = hf_tls_new(settings, host, at.ends[0], reason, sizeof reason);
    SSL_set_fd(at.server, at.ends[1]);
    hf_tls_state state = at.tls ? HF_TLS_PENDING : HF_TLS_FAILED;
    int accepted = 0;
    for (int i = 0; i < 10 && state != HF_TLS_FAILED && accepted <= 0; i++) {
        if (state == HF_TLS_PENDING)
            state = hf_tls_handshake(at.tls, &events, reason, sizeof reason);
        accepted = SSL_accept(at.server);
    }
    at.agreed = state == HF_TLS_CONNECTED && accepted == 1;
    return at;
}

static void free_pair(pair *at) {
    SSL_free(at->server);
    hf_tls_free(at->tls, false);
    close(at->ends[0]);
    close(at->ends[1]);
}

static bool agrees(hf_tls_settings *settings, const char *host, SSL_CTX *context) {
    pair at = connect_pair(settings, host, context);
    free_pair(&at);
    return at.agreed;
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
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        identity root = new_identity("root", NULL, NULL);
        identity its = new_identity("server", &root, CASES[i].alternatives);
        hf_tls_settings *settings = settings_of((hf_tls_options){
            .ca_file = write_pem(root.cert, NULL, NULL), .server_name = CASES[i].expected});
        bool agreed = agrees(settings, CASES[i].host, server_with(&its, NULL));
        const char *name = CASES[i].expected ? CASES[i].expected : CASES[i].host;
        bool is_name = strpbrk(name, "ghijklmnopqrstuvwxyz") != NULL;
        CHECK_OR(agreed == CASES[i].agrees, "%s for %s: %s", CASES[i].alternatives, name, reason);
        CHECK_STR(server_name, is_name ? name : "");
        free_made();
    }
}

/* A server that knows the root alone needs what is between. */
TEST(the_whole_chain_of_the_clients_certificate_is_sent) {
    identity root = new_identity("root", NULL, NULL), between = new_identity("m", &root, NULL);
    identity one = new_identity("c", &between, "DNS:c"), its = new_identity("s", &root, "DNS:s");
    SSL_CTX *context = server_with(&its, &root);
    for (int whole = 0; whole < 2; whole++) {
        hf_tls_settings *settings = settings_of(
            (hf_tls_options){.ca_file = write_pem(root.cert, NULL, NULL),
                             .cert = write_pem(one.cert, whole ? between.cert : NULL, NULL),
                             .key = write_pem(NULL, NULL, one.key)});
        CHECK_OR(agrees(settings, "s", context) == (whole == 1), "%d: %s", whole, reason);
    }
}

TEST(the_systems_certificate_authorities_are_trusted_unless_others_are_given) {
    identity root = new_identity("root", NULL, NULL), its = new_identity("s", &root, "DNS:s");
    identity other = new_identity("other", NULL, NULL);
    SSL_CTX *context = server_with(&its, NULL);
    for (int given = 0; given < 3; given++) { /* nothing; the store; the store and another file */
        if (given > 0) setenv("SSL_CERT_FILE", write_pem(root.cert, NULL, NULL), 1);
        hf_tls_settings *settings = settings_of(
            (hf_tls_options){.ca_file = given == 2 ? write_pem(other.cert, NULL, NULL) : NULL});
        unsetenv("SSL_CERT_FILE"); /* a program may change its environment at any later time */
        CHECK_EQ_INT(agrees(settings, "s", context), given == 1);
    }
}

TEST(each_connection_attempt_reports_an_invalid_tls_file_until_that_is_valid) {
    identity root = new_identity("root", NULL, NULL), one = new_identity("c", &root, "DNS:c");
    identity other = new_identity("o", &root, "DNS:o");
    const char *ca = write_pem(root.cert, NULL, NULL), *cert = write_pem(one.cert, NULL, NULL);
    const char *key = write_pem(NULL, NULL, one.key), *other_key = write_pem(NULL, NULL, other.key);
    const struct {
        hf_tls_options options;
        const char *named;
    } CASES[] = {
        {{.ca_file = ca, .cert = cert, .key = key}, NULL},
        {{.ca_file = key}, key},
        {{.ca_file = ca, .cert = key, .key = key}, key},
        {{.ca_file = ca, .cert = cert, .key = "/nowhere/key"}, "key /nowhere/key: No such"},
        {{.ca_file = ca, .cert = "/nowhere/cert", .key = key}, "cert /nowhere/cert: No"},
        {{.cert = cert, .key = other_key, .accepts_any_certificate = true}, other_key},
        {{.ca_file = "/nowhere/ca", .accepts_any_certificate = true}, NULL}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        hf_tls_settings *settings = settings_of(CASES[i].options);
        for (int tries = 0; tries < 2; tries++) {
            hf_tls *tls = over_a_pair(settings);
            bool good = CASES[i].named ? !tls && strstr(reason, CASES[i].named) : tls != NULL;
            CHECK_OR(good, "case %zu: %s", i, reason);
            CHECK_EQ_INT(ERR_peek_error(), 0); /* others would take it for theirs */
        }
    }
}

/* ---- files that are replaced ---- */

/* Two authorities, the server's and the client's certificates of each, and the client's files. */
typedef struct rotation {
    identity root[2], server[2], client[2];
    SSL_CTX *context[2];
    char *ca, *cert, *key;
    hf_tls_settings *settings;
} rotation;

static rotation begin_rotation(void) {
    rotation at;
    for (int i = 0; i < 2; i++) {
        at.root[i] = new_identity("root", NULL, NULL);
        at.server[i] = new_identity("s", &at.root[i], "DNS:s");
        at.client[i] = new_identity("c", &at.root[i], "DNS:c");
        at.context[i] = server_with(&at.server[i], &at.root[i]);
    }
    at.ca = write_pem(at.root[0].cert, NULL, NULL);
    at.cert = write_pem(at.client[0].cert, NULL, NULL);
    at.key = write_pem(NULL, NULL, at.client[0].key);
    at.settings = settings_of((hf_tls_options){.ca_file = at.ca, .cert = at.cert, .key = at.key});
    return at;
}

/* Both sides agree with these settings, or not. */
#define CHECK_AGREES(settings, context) CHECK_OR(agrees(settings, "s", context), "%s", reason)
#define CHECK_DISAGREES(settings, context) CHECK(!agrees(settings, "s", context))

TEST(rotated_tls_files_apply_to_new_connections_and_not_to_open_ones) {
    rotation at = begin_rotation();
    char bytes[2];
    pair old = connect_pair(at.settings, "s", at.context[0]);
    CHECK(old.agreed);
    write_over(at.ca, at.root[1].cert, NULL, NULL, NULL);
    write_over(at.cert, at.client[1].cert, NULL, NULL, NULL);
    write_over(at.key, NULL, NULL, at.client[1].key, NULL);
    CHECK_AGREES(at.settings, at.context[1]);
    CHECK_DISAGREES(at.settings, at.context[0]);
    CHECK(hf_tls_send(old.tls, "x", 1) == 1 && SSL_read(old.server, bytes, 1) == 1);
    free_pair(&old);
}

TEST(the_previous_tls_files_are_used_while_the_files_are_being_rotated) {
    rotation at = begin_rotation();
    CHECK_AGREES(at.settings, at.context[0]);
    write_over(at.cert, at.client[1].cert, NULL, NULL, NULL); /* the key is still the old one's */
    CHECK_AGREES(at.settings, at.context[0]);
    write_over(at.ca, NULL, NULL, NULL, "-----BEGIN CERTIFICATE-----\nMIIB");
    CHECK_AGREES(at.settings, at.context[0]);
    CHECK_EQ_INT(ERR_peek_error(), 0); /* others would take it for theirs */
    CHECK_DISAGREES(at.settings, at.context[1]);
    CHECK_CONTAINS(reason, at.ca);
    CHECK_CONTAINS(reason, "certificate verify failed");
    write_over(at.ca, at.root[1].cert, NULL, NULL, NULL);
    write_over(at.key, NULL, NULL, at.client[1].key, NULL);
    CHECK_AGREES(at.settings, at.context[1]);
}

TEST(a_directory_of_certificate_authorities_is_read_with_each_connection) {
    rotation at = begin_rotation();
    const char *folder = new_folder(), *file = file_in(folder, at.root[0].cert);
    hf_tls_settings *settings =
        settings_of((hf_tls_options){.ca_path = folder, .cert = at.cert, .key = at.key});
    write_over(file, at.root[0].cert, NULL, NULL, NULL), CHECK_AGREES(settings, at.context[0]);
    write_over(file, at.root[1].cert, NULL, NULL, NULL); /* in place: the directory is the same */
    CHECK_DISAGREES(settings, at.context[0]);
}

TEST(the_systems_certificate_store_is_read_again_when_it_has_changed) {
    rotation at = begin_rotation();
    setenv("SSL_CERT_FILE", at.ca, 1);
    hf_tls_settings *settings = settings_of((hf_tls_options){0});
    bool first = agrees(settings, "s", server_with(&at.server[0], NULL));
    write_over(at.ca, at.root[1].cert, NULL, NULL, NULL);
    bool second = agrees(settings, "s", server_with(&at.server[1], NULL));
    unsetenv("SSL_CERT_FILE"), CHECK(first);
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
    SSL_write(at->server, "two", 3), CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), 3);
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
    shutdown(at->ends[1], SHUT_RDWR), CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), 0);
    errno = 0;
    CHECK_EQ_INT(hf_tls_send(at->tls, "x", 1), -1);
    CHECK_EQ_INT(errno, EPIPE);
}

static void on_end_without_alert(pair *at) {
    char bytes[8];
    shutdown(at->ends[1], SHUT_RDWR), CHECK_EQ_INT(hf_tls_recv(at->tls, bytes, sizeof bytes), 0);
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
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) abort();
    hf_tls *tls = hf_tls_new(trusting(), "localhost", ends[0], reason, sizeof reason);
    bool pending = hf_tls_handshake(tls, &events, reason, sizeof reason) == HF_TLS_PENDING;
    close(ends[1]);
    errno = 0;
    bool reset = hf_tls_recv(tls, bytes, sizeof bytes) == -1 && errno == ECONNRESET;
    hf_tls_free(tls, false);
    close(ends[0]);
    return pending && reset;
}

/* A server that trusts nobody, and one that wants a certificate that no client has. */
static SSL_CTX *open_server(void) {
    identity its = new_identity("s", NULL, "DNS:s");
    return server_with(&its, NULL);
}

static SSL_CTX *asking_server(void) {
    identity its = new_identity("s", NULL, "DNS:s");
    return server_with(&its, &its);
}

static void run_agreed(void) {
    static void (*const CASES[])(pair *) = {on_records,     on_errors_of_others,  on_full_socket,
                                            on_close_alert, on_end_without_alert, on_other_bytes,
                                            on_polite_end,  on_impolite_end};
    SSL_CTX *context = open_server();
    signal(SIGPIPE, SIG_IGN); /* of the server */
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        pair at = connect_pair(trusting(), "s", context);
        CHECK_OR(at.agreed, "case %zu: %s", i, reason);
        CASES[i](&at);
        free_pair(&at);
    }
    signal(SIGPIPE, SIG_DFL);
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
    identity root = new_identity("root", NULL, NULL), its = new_identity("s", &root, "DNS:s");
    const char *folder = new_folder();
    if (mkdir(file_in(folder, root.cert), 0700) != 0) abort();
    CHECK_DISAGREES(settings_of((hf_tls_options){.ca_path = folder}), server_with(&its, NULL));
    CHECK_STR(reason, "certificate verify failed: unable to get local issuer certificate");
}

TEST(a_tls_connection_closed_without_an_alert_counts_as_closed_and_not_as_failed) {
    char bytes[8];
    ignores_no_end = true;
    pair at = connect_pair(trusting(), "s", open_server());
    ignores_no_end = false;
    shutdown(at.ends[1], SHUT_WR), CHECK(at.agreed);
    CHECK_EQ_INT(hf_tls_recv(at.tls, bytes, sizeof bytes), 0);
    free_pair(&at);
}

/* Where OpenSSL is linked into the program. */
static bool counts_openssls_own_calls(void) {
    SSL *server = SSL_new(open_server());
    SSL_set_bio(server, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    calls_outside = 0;
    SSL_accept(server);
    SSL_free(server);
    return calls_outside > 0;
}

/* Without the lock the process may be exiting, and OpenSSL may have freed its memory. */
TEST(every_openssl_call_holds_the_lock_that_a_process_exit_waits_for) {
    if (counts_openssls_own_calls()) return;
    calls_outside = 0;
    run_agreed(), CHECK_EQ_INT(calls_outside, 0);
}

/* With TLS 1.3 the client has agreed before the server checks its certificate. */
TEST(a_servers_demand_for_a_certificate_is_reported_even_after_the_handshake) {
    char bytes[8];
    pair at = connect_pair(trusting(), "s", asking_server());
    CHECK(at.tls);
    CHECK_EQ_INT(hf_tls_recv(at.tls, bytes, sizeof bytes), -1);
    CHECK_EQ_INT(errno, EPROTO);
    CHECK_STR(hf_tls_reason(at.tls), "the server requires a client certificate");
    free_pair(&at);
}

/* ---- OpenSSL's memory ---- */

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *block);

static int fails_in; /* so many allocations of OpenSSL; 0: none does */

static void *allocate(size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    bool fails = fails_in > 0 && --fails_in == 0;
    return fails ? NULL : __real_malloc(size);
}

static void *reallocate(void *old, size_t size, const char *file, int line) {
    (void)file;
    (void)line;
    return __real_realloc(old, size);
}

static void release(void *block, const char *file, int line) {
    (void)file;
    (void)line;
    __real_free(block);
}

static void connect_once(void) {
    hf_tls *tls = over_a_pair(trusting());
    CHECK(tls);
    CHECK_HANDSHAKE(tls, PENDING);
    free_made();
}

/* Returns whether the nth block failed. */
static bool connect_without(int nth) {
    hf_tls_settings *settings = trusting();
    fails_in = nth;
    hf_tls *tls = over_a_pair(settings);
    bool failed = fails_in == 0;
    fails_in = 0;
    CHECK_OR(tls || (failed && strncmp(reason, "TLS: ", 5) == 0), "block %d: %s", nth, reason);
    if (!tls) tls = over_a_pair(settings);
    CHECK_OR(tls, "block %d: %s", nth, reason);
    CHECK_HANDSHAKE(tls, PENDING);
    free_made();
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
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        settings_at_exit = trusting();
        used_at_exit = over_a_pair(settings_at_exit);
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
                  !own->accepts_any_certificate;
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
