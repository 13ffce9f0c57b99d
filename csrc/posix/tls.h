/* TLS over a non-blocking socket, with OpenSSL.
 *
 * Settings belong to one driver, connections to one socket; both are used by one thread at a time.
 * Bytes go through hf_send and hf_recv, so no write raises SIGPIPE.
 *
 * Certificates are read for the first connection, and again for each later one if the files have
 * changed. If the new files cannot be used, the last good ones remain in use, and if a handshake
 * then fails, the reason names the unusable file.
 *
 * After EAGAIN from hf_tls_recv no decrypted bytes are left in OpenSSL, so it is safe to poll the
 * socket.
 *
 * After a fork, the child must not touch objects that the parent created (hf_tls_settings_forget).
 * A fork waits until no other thread is inside OpenSSL, so OpenSSL's own locks are free in the
 * child. */
#ifndef HF_TLS_H
#define HF_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A missing option is NULL. With neither ca_file nor ca_path, the system's store is trusted. */
typedef struct hf_tls_options {
    const char *ca_file, *ca_path; /* a PEM file; a directory with hashed names */
    const char *cert, *key;        /* PEM files, both or neither; the key without a passphrase */
    const char *server_name;      /* the name that the certificate must have, instead of the host */
    bool accepts_any_certificate; /* accepts any certificate: anyone on the path can read and change
                                     everything */
} hf_tls_options;

typedef struct hf_tls_settings hf_tls_settings;

/* Creates settings with copies of the options. Returns NULL when out of memory. */
hf_tls_settings *hf_tls_settings_new(const hf_tls_options *options);
void hf_tls_settings_free(hf_tls_settings *settings); /* a no-op for NULL */

/* Returns the settings' copy of the options. */
const hf_tls_options *hf_tls_settings_options(const hf_tls_settings *settings);

/* In the child of a fork: drops what the parent created, without freeing it. */
void hf_tls_settings_forget(hf_tls_settings *settings);

typedef struct hf_tls hf_tls;

typedef enum hf_tls_state { HF_TLS_PENDING, HF_TLS_CONNECTED, HF_TLS_FAILED } hf_tls_state;

/* Begins TLS with `host` over a connected socket, which the caller owns. On failure returns NULL;
 * `reason` says why. */
hf_tls *hf_tls_new(hf_tls_settings *settings, const char *host, int fd, char *reason, size_t size);

/* Continues the handshake. On PENDING, poll the socket for `events`; on FAILED, `reason` says
 * why. */
hf_tls_state hf_tls_handshake(hf_tls *tls, short *events, char *reason, size_t size);

/* Like hf_recv and hf_send; a send may be partial. EAGAIN: poll the socket. EPROTO: hf_tls_reason
 * says why. */
ssize_t hf_tls_recv(hf_tls *tls, char *bytes, size_t size);
ssize_t hf_tls_send(hf_tls *tls, const char *bytes, size_t size);
const char *hf_tls_reason(const hf_tls *tls);

/* Returns the events for polling the socket. `output`: there are bytes to send. */
short hf_tls_events(const hf_tls *tls, bool output);

/* Returns whether hf_tls_recv must be called again when the socket is writable. */
bool hf_tls_recv_wants_write(const hf_tls *tls);

/* Returns the seconds until the server's certificate or our own expires, whichever is first;
 * negative if one has expired. INFINITY if the time is unknown, or before the handshake is
 * complete. */
double hf_tls_seconds_left(const hf_tls *tls);

/* Frees the connection; with `send_close_alert`, first sends the server a close alert, unless that
 * would block. */
void hf_tls_free(hf_tls *tls, bool send_close_alert);

#endif
