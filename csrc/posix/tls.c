#include "tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "system.h"

typedef struct stamps {
    uint64_t ca_file, ca_path, cert, key; /* results of hf_stamp_file */
} stamps;

struct hf_tls_settings {
    hf_tls_options options;        /* its strings are copies */
    char *store_file, *store_path; /* the system's store if it is trusted, else NULL */
    SSL_CTX *context;              /* created from the last usable files; NULL if there were none */
    stamps read_stamps;            /* the files' stamps, taken before they were read */
    char stale_reason[160];        /* why the current files are unusable, or "" */
    BIO_METHOD *method;
};

struct hf_tls {
    SSL *ssl;
    int fd;
    int error;  /* errno of the last socket failure, or 0 */
    bool ended; /* the server has closed the connection */
    bool handshake_done, failed;
    bool recv_wants_write, send_wants_read;
    char stale_reason[160]; /* the settings' `stale_reason` when the connection began */
    char reason[160];
};

/* ---- forks and the end of the process ---- */

/* Locked for reading inside OpenSSL, and for writing during a fork and at exit. */
static pthread_rwlock_t openssl_lock = PTHREAD_RWLOCK_INITIALIZER;
static bool process_exiting;

static void before_fork(void) {
    pthread_rwlock_wrlock(&openssl_lock);
}

static void after_fork(void) {
    pthread_rwlock_unlock(&openssl_lock);
}

static void after_fork_in_child(void) {
    pthread_rwlock_init(&openssl_lock, NULL);
}

/* Waits up to about a second: the thread that called exit may itself be inside OpenSSL. */
static void before_exit(void) {
    struct timespec millisecond = {0, 1000000};
    for (int tries = 0; pthread_rwlock_trywrlock(&openssl_lock) != 0; tries++) {
        if (tries == 1000) return;
        nanosleep(&millisecond, NULL);
    }
    process_exiting = true;
    pthread_rwlock_unlock(&openssl_lock);
}

/* OpenSSL cleans up at exit, while the watchdog's thread is still running, so before_exit must lock
 * threads out first. Handlers run in reverse order, so OpenSSL's is registered first. */
static void register_handlers(void) {
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    OPENSSL_init_ssl(0, NULL);
    atexit(before_exit);
}

/* Enters OpenSSL until `leave_openssl`. Returns false and sets errno if the process is exiting. */
static bool enter_openssl(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
    pthread_rwlock_rdlock(&openssl_lock);
    if (!process_exiting) {
        ERR_clear_error(); /* other code in this thread may also use OpenSSL */
        return true;
    }
    pthread_rwlock_unlock(&openssl_lock);
    errno = EPIPE;
    return false;
}

static void leave_openssl(void) {
    ERR_clear_error();
    pthread_rwlock_unlock(&openssl_lock);
}

/* ---- the socket ---- */

static int finish_io(hf_tls *tls, BIO *bio, ssize_t result, int retry) {
    bool again = result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    BIO_clear_retry_flags(bio);
    if (again) BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    else if (result < 0) tls->error = errno;
    return (int)result;
}

static int write_socket(BIO *bio, const char *bytes, int size) {
    hf_tls *tls = BIO_get_data(bio);
    ssize_t result = hf_send(tls->fd, bytes, (size_t)size);
    return finish_io(tls, bio, result, BIO_FLAGS_WRITE);
}

static int read_socket(BIO *bio, char *bytes, int size) {
    hf_tls *tls = BIO_get_data(bio);
    ssize_t result = hf_recv(tls->fd, bytes, (size_t)size);
    if (result == 0) tls->ended = true;
    return finish_io(tls, bio, result, BIO_FLAGS_READ);
}

static long control_socket(BIO *bio, int command, long number, void *pointer) {
    (void)number;
    (void)pointer;
    if (command == BIO_CTRL_EOF) return ((hf_tls *)BIO_get_data(bio))->ended;
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP;
}

static BIO_METHOD *new_method(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "holdfast socket");
    if (!method) return NULL;
    BIO_meth_set_write(method, write_socket);
    BIO_meth_set_read(method, read_socket);
    BIO_meth_set_ctrl(method, control_socket);
    return method;
}

/* ---- settings ---- */

/* Copies a string or NULL. Returns false when out of memory. */
static bool copy_option(const char **copy, const char *option) {
    *copy = option ? strdup(option) : NULL;
    return *copy || !option;
}

static char *variable_or_default(const char *name, const char *fallback) {
    const char *value = getenv(name);
    return strdup(value ? value : fallback);
}

/* Finds the system's store. Reads the environment now, in the caller's thread: contexts are created
 * later, perhaps by the watchdog's thread while the program changes its environment. */
static bool find_store(hf_tls_settings *settings) {
    const hf_tls_options *options = &settings->options;
    if (options->accepts_any_certificate || options->ca_file || options->ca_path) return true;
    settings->store_file =
        variable_or_default(X509_get_default_cert_file_env(), X509_get_default_cert_file());
    settings->store_path =
        variable_or_default(X509_get_default_cert_dir_env(), X509_get_default_cert_dir());
    return settings->store_file && settings->store_path;
}

hf_tls_settings *hf_tls_settings_new(const hf_tls_options *options) {
    hf_tls_settings *settings = calloc(1, sizeof *settings);
    if (!settings) return NULL;
    hf_tls_options *copy = &settings->options;
    copy->accepts_any_certificate = options->accepts_any_certificate;
    if (copy_option(&copy->ca_file, options->ca_file) &&
        copy_option(&copy->ca_path, options->ca_path) && copy_option(&copy->cert, options->cert) &&
        copy_option(&copy->key, options->key) &&
        copy_option(&copy->server_name, options->server_name) && find_store(settings)) {
        return settings;
    }
    hf_tls_settings_free(settings);
    return NULL;
}

static void free_context(hf_tls_settings *settings) {
    if (!enter_openssl()) return;
    SSL_CTX_free(settings->context);
    BIO_meth_free(settings->method);
    settings->context = NULL;
    settings->method = NULL;
    leave_openssl();
}

void hf_tls_settings_free(hf_tls_settings *settings) {
    if (!settings) return;
    if (settings->context || settings->method) free_context(settings);
    const hf_tls_options *options = &settings->options;
    const char *texts[] = {options->ca_file, options->ca_path, options->cert, options->key,
                           options->server_name};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free((char *)(uintptr_t)texts[i]);
    free(settings->store_file);
    free(settings->store_path);
    free(settings);
}

const hf_tls_options *hf_tls_settings_options(const hf_tls_settings *settings) {
    return &settings->options;
}

void hf_tls_settings_forget(hf_tls_settings *settings) {
    settings->context = NULL;
    settings->method = NULL;
}

static const char *describe(unsigned long error, char *text, size_t size) {
    if (ERR_GET_LIB(error) == ERR_LIB_SYS) return hf_error_text(ERR_GET_REASON(error), text, size);
    const char *reason = error ? ERR_reason_error_string(error) : NULL;
    return reason ? reason : "unknown error";
}

/* Returns why the last call failed. The first queued error is the most useful. */
static const char *error_text(char *text, size_t size) {
    return describe(ERR_get_error(), text, size);
}

static bool report_unusable_file(const char *option, const char *path, char *reason, size_t size) {
    char text[96];
    snprintf(reason, size, "TLS: cannot use %s %s: %s", option, path,
             error_text(text, sizeof text));
    return false;
}

/* Like SSL_CTX_set_default_verify_paths, ignores a missing file or directory, but does not read the
 * environment. */
static void load_store(SSL_CTX *context, const hf_tls_settings *settings) {
    SSL_CTX_load_verify_locations(context, settings->store_file, NULL);
    SSL_CTX_load_verify_locations(context, NULL, settings->store_path);
    ERR_clear_error();
}

static bool load_trust(SSL_CTX *context, const hf_tls_settings *settings, char *reason,
                       size_t size) {
    const hf_tls_options *options = &settings->options;
    if (options->ca_file && SSL_CTX_load_verify_locations(context, options->ca_file, NULL) != 1)
        return report_unusable_file("ca_file", options->ca_file, reason, size);
    if (options->ca_path && SSL_CTX_load_verify_locations(context, NULL, options->ca_path) != 1)
        return report_unusable_file("ca_path", options->ca_path, reason, size);
    if (settings->store_file) load_store(context, settings);
    return true;
}

static bool load_identity(SSL_CTX *context, const hf_tls_options *options, char *reason,
                          size_t size) {
    if (!options->cert) return true;
    if (SSL_CTX_use_certificate_chain_file(context, options->cert) != 1)
        return report_unusable_file("cert", options->cert, reason, size);
    if (SSL_CTX_use_PrivateKey_file(context, options->key, SSL_FILETYPE_PEM) != 1)
        return report_unusable_file("key", options->key, reason, size);
    return true;
}

/* Replaces OpenSSL's prompt on the terminal. */
static int no_passphrase(char *text, int size, int writing, void *context) {
    (void)text;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static void configure(SSL_CTX *context, const hf_tls_options *options) {
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
    SSL_CTX_set_options(
        context, SSL_OP_IGNORE_UNEXPECTED_EOF); /* truncation is detected: a reply has its length */
#endif
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_verify(context,
                       options->accepts_any_certificate ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
}

/* ---- the files, which may be replaced while the client runs ---- */

static stamps stamp_files(const hf_tls_settings *settings) {
    const hf_tls_options *options = &settings->options;
    stamps current = {.cert = hf_stamp_file(options->cert), .key = hf_stamp_file(options->key)};
    if (options->accepts_any_certificate) return current;
    current.ca_file = hf_stamp_file(settings->store_file ? settings->store_file : options->ca_file);
    current.ca_path = hf_stamp_file(settings->store_path ? settings->store_path : options->ca_path);
    return current;
}

/* Returns whether the context is as good as a new one. With a ca_path it is not: OpenSSL reads that
 * directory on demand and caches the files, and a file may change without a change of the
 * directory. So each connection then gets its own context, which costs little. */
static bool is_current(const hf_tls_settings *settings, const stamps *current) {
    bool reads_on_demand = settings->options.ca_path && !settings->options.accepts_any_certificate;
    return settings->context && !settings->stale_reason[0] && !reads_on_demand &&
           memcmp(&settings->read_stamps, current, sizeof *current) == 0;
}

/* Returns a context created from the current files, or NULL and a reason if they cannot be used. */
static SSL_CTX *read_files(const hf_tls_settings *settings, char *reason, size_t size) {
    const hf_tls_options *options = &settings->options;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context) {
        char text[96];
        snprintf(reason, size, "TLS: %s", error_text(text, sizeof text));
        return NULL;
    }
    configure(context, options);
    bool is_loaded =
        options->accepts_any_certificate || load_trust(context, settings, reason, size);
    if (is_loaded && load_identity(context, options, reason, size)) return context;
    SSL_CTX_free(context);
    return NULL;
}

static bool create_method(hf_tls_settings *settings, char *reason, size_t size) {
    char text[96];
    if (!settings->method) settings->method = new_method();
    if (settings->method) return true;
    snprintf(reason, size, "TLS: %s", error_text(text, sizeof text));
    return false;
}

/* Reads the files again if they have changed. In the middle of a rotation, a file may be
 * incomplete, or a certificate may not match its key: then the last good context remains in use,
 * and the next connection reads the files again. Open connections keep their contexts. */
static bool refresh_context(hf_tls_settings *settings, char *reason, size_t size) {
    stamps current = stamp_files(settings);
    if (!create_method(settings, reason, size)) return false;
    if (is_current(settings, &current)) return true;
    SSL_CTX *context = read_files(settings, reason, size);
    if (!context) {
        snprintf(settings->stale_reason, sizeof settings->stale_reason, "%s", reason);
        ERR_clear_error();
        return settings->context != NULL;
    }
    SSL_CTX_free(settings->context);
    settings->context = context;
    settings->read_stamps = current;
    settings->stale_reason[0] = '\0';
    return true;
}

/* ---- a connection ---- */

static bool is_address(const char *host) {
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* Server Name Indication is only for names, not for addresses. */
static bool set_expected_name(SSL *ssl, const char *name) {
    if (is_address(name)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
}

static bool set_up_connection(hf_tls *tls, const hf_tls_settings *settings, const char *host) {
    const char *name = settings->options.server_name ? settings->options.server_name : host;
    tls->ssl = SSL_new(settings->context);
    if (!tls->ssl || !set_expected_name(tls->ssl, name)) return false;
    BIO *bio = BIO_new(settings->method);
    if (!bio) return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    ERR_clear_error();
    SSL_set_connect_state(tls->ssl); /* may run out of memory, but returns nothing */
    return ERR_peek_error() == 0;
}

static hf_tls *new_connection(hf_tls_settings *settings, const char *host, int fd, char *reason,
                              size_t size) {
    if (!refresh_context(settings, reason, size)) return NULL;
    hf_tls *tls = calloc(1, sizeof *tls);
    if (tls) {
        tls->fd = fd;
        memcpy(tls->stale_reason, settings->stale_reason, sizeof tls->stale_reason);
        if (set_up_connection(tls, settings, host)) return tls;
        SSL_free(tls->ssl);
        free(tls);
    }
    char text[96];
    snprintf(reason, size, "TLS: %s", tls ? error_text(text, sizeof text) : "out of memory");
    return NULL;
}

hf_tls *hf_tls_new(hf_tls_settings *settings, const char *host, int fd, char *reason, size_t size) {
    if (!enter_openssl()) {
        snprintf(reason, size, "the process is exiting");
        return NULL;
    }
    hf_tls *tls = new_connection(settings, host, fd, reason, size);
    leave_openssl();
    return tls;
}

/* Sets the reason. If a changed file could not be used, the reason begins with that failure, which
 * is the likely cause. */
static void set_reason(hf_tls *tls, const char *reason, const char *details) {
    size_t size = sizeof tls->reason, filled = 0;
    if (tls->stale_reason[0])
        filled = (size_t)snprintf(tls->reason, size,
                                  "%.100s; with the last good files: ", tls->stale_reason);
    snprintf(tls->reason + filled, size - filled, "%s%s", reason, details);
}

/* Returns whether the server's certificate was refused. OpenSSL's first error may not say so: if
 * the authority has a new key under its old name, the error is about the signature's arithmetic. */
static bool is_certificate_refused(const hf_tls *tls) {
    return !tls->handshake_done && SSL_get_verify_mode(tls->ssl) != SSL_VERIFY_NONE &&
           SSL_get_verify_result(tls->ssl) != X509_V_OK;
}

/* Returns the first error about TLS itself. Earlier attempts of OpenSSL may have queued other
 * errors, such as "Is a directory" about a file in ca_path. */
static unsigned long first_tls_error(void) {
    unsigned long first = ERR_get_error(), error = first;
    while (error != 0 && ERR_GET_LIB(error) != ERR_LIB_SSL) error = ERR_get_error();
    return error ? error : first;
}

/* Stores OpenSSL's reason, reworded if it is about internals of the protocol. */
static void set_error(hf_tls *tls) {
    char text[96];
    unsigned long error = first_tls_error();
    int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    if (is_certificate_refused(tls)) {
        set_reason(tls, "certificate verify failed: ",
                   X509_verify_cert_error_string(SSL_get_verify_result(tls->ssl)));
        return;
    }
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_LENGTH_MISMATCH:
        if (tls->handshake_done) break;
        set_reason(tls, "the server does not speak TLS", "");
        return;
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        set_reason(tls, "the server requires a client certificate", "");
        return;
    default: break;
    }
    set_reason(tls, "TLS: ", describe(error, text, sizeof text));
}

static bool is_end_of_stream(unsigned long error) {
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
        ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        return true;
#endif
    return error == 0;
}

/* OpenSSL 3.5 queues the errno of a failed write as a separate error. */
static bool is_socket_error(const hf_tls *tls, unsigned long error) {
    return tls->error && ERR_GET_LIB(error) == ERR_LIB_SYS && ERR_GET_REASON(error) == tls->error;
}

/* Handles a failure. Returns 0, like recv, if the server closed the connection, else -1 with
 * errno. */
static ssize_t on_failure(hf_tls *tls) {
    unsigned long error = ERR_peek_error();
    tls->failed = true;
    errno = EPROTO;
    if (!is_end_of_stream(error) && !is_socket_error(tls, error)) {
        set_error(tls);
        return -1;
    }
    if (!tls->error) return 0;
    errno = tls->error;
    return -1;
}

/* Converts the result of an OpenSSL call to that of recv or send. `wants_opposite`: set if it must
 * wait for the opposite direction, whose error code is `opposite`. */
static ssize_t finish_call(hf_tls *tls, int result, bool *wants_opposite, int opposite) {
    if (result > 0) return result;
    int error = SSL_get_error(tls->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        *wants_opposite = error == opposite;
        errno = EAGAIN;
        return -1;
    }
    return error == SSL_ERROR_ZERO_RETURN ? 0 : on_failure(tls);
}

static int clamp_size(size_t size) {
    return size > 65536 ? 65536 : (int)size;
}

ssize_t hf_tls_recv(hf_tls *tls, char *bytes, size_t size) {
    if (!enter_openssl()) return -1;
    tls->recv_wants_write = false;
    tls->error = 0;
    int result = SSL_read(tls->ssl, bytes, clamp_size(size));
    ssize_t received = finish_call(tls, result, &tls->recv_wants_write, SSL_ERROR_WANT_WRITE);
    int error = errno;
    leave_openssl();
    errno = error;
    return received;
}

/* If the server has closed the connection, fails with EPIPE, like send on a socket. */
ssize_t hf_tls_send(hf_tls *tls, const char *bytes, size_t size) {
    if (!enter_openssl()) return -1;
    tls->send_wants_read = false;
    tls->error = 0;
    int result = SSL_write(tls->ssl, bytes, clamp_size(size));
    ssize_t sent = finish_call(tls, result, &tls->send_wants_read, SSL_ERROR_WANT_READ);
    int error = sent == 0 ? EPIPE : errno;
    leave_openssl();
    errno = error;
    return sent == 0 ? -1 : sent;
}

static void describe_failed_handshake(const hf_tls *tls, ssize_t result, char *reason,
                                      size_t size) {
    char text[96];
    int error = errno;
    if (result == 0)
        snprintf(reason, size, "the server closed the connection during the TLS handshake");
    else if (error == EPROTO) snprintf(reason, size, "%s", tls->reason);
    else
        snprintf(reason, size, "%s during the TLS handshake",
                 hf_error_text(error, text, sizeof text));
}

hf_tls_state hf_tls_handshake(hf_tls *tls, short *events, char *reason, size_t size) {
    bool wants_write = false;
    if (!enter_openssl()) {
        snprintf(reason, size, "the process is exiting");
        return HF_TLS_FAILED;
    }
    ssize_t result =
        finish_call(tls, SSL_do_handshake(tls->ssl), &wants_write, SSL_ERROR_WANT_WRITE);
    bool pending = result < 0 && errno == EAGAIN;
    *events = wants_write ? POLLOUT : POLLIN;
    tls->handshake_done = result > 0;
    if (result <= 0 && !pending) describe_failed_handshake(tls, result, reason, size);
    leave_openssl();
    if (tls->handshake_done) return HF_TLS_CONNECTED;
    return pending ? HF_TLS_PENDING : HF_TLS_FAILED;
}

const char *hf_tls_reason(const hf_tls *tls) {
    return tls->reason;
}

short hf_tls_events(const hf_tls *tls, bool output) {
    bool writes = (output && !tls->send_wants_read) || tls->recv_wants_write;
    return (short)(POLLIN | (writes ? POLLOUT : 0));
}

bool hf_tls_recv_wants_write(const hf_tls *tls) {
    return tls->recv_wants_write;
}

/* `certificate` may be NULL. */
static double seconds_left(const X509 *certificate) {
    int days, seconds;
    if (!certificate) return INFINITY;
    if (!ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate))) return INFINITY;
    return days * 86400.0 + seconds;
}

double hf_tls_seconds_left(const hf_tls *tls) {
    if (!tls->handshake_done || !enter_openssl()) return INFINITY;
    X509 *server = SSL_get_peer_certificate(tls->ssl);
    double theirs = seconds_left(server), ours = seconds_left(SSL_get_certificate(tls->ssl));
    X509_free(server);
    leave_openssl();
    return theirs < ours ? theirs : ours;
}

void hf_tls_free(hf_tls *tls, bool send_close_alert) {
    if (!tls || !enter_openssl()) return;
    if (send_close_alert && tls->handshake_done && !tls->failed) SSL_shutdown(tls->ssl);
    SSL_free(tls->ssl);
    leave_openssl();
    free(tls);
}
