/* TLS over a non-blocking socket, by OpenSSL.
 *
 * Settings are one driver's, connections one socket's; both are used by one thread at a time. The
 * bytes go through this library's own send and recv: no write raises SIGPIPE.
 *
 * Certificates are read with the first connection, and again with each later one if the files have
 * changed. If they cannot be used then, the last good ones are, and a handshake that fails says
 * which file could not be used.
 *
 * After EAGAIN from hf_tls_recv no decrypted bytes are left inside, so it is safe to poll the
 * socket.
 *
 * After a fork the child must not touch what the parent made (hf_tls_settings_forget); a fork waits
 * for the calls that other threads have under way here, so OpenSSL's own locks are free in the
 * child. */
#ifndef HF_TLS_H
#define HF_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* NULL: not given. With neither ca_file nor ca_path the system's store is trusted. */
typedef struct hf_tls_options {
    const char *ca_file, *ca_path; /* PEM; a directory with hashed names */
    const char *cert, *key;        /* PEM, both or none; the key without a passphrase */
    const char *server_name; /* the name that the certificate must have, instead of the host */
    bool trusting; /* accepts any certificate: anyone on the path can read and change everything */
} hf_tls_options;

typedef struct hf_tls_settings hf_tls_settings;

/* Makes settings with copies of the options. Returns NULL when out of memory. */
hf_tls_settings *hf_tls_settings_new(const hf_tls_options *options);
void hf_tls_settings_free(hf_tls_settings *settings); /* NULL is fine */

/* Returns the settings' own copy of the options. */
const hf_tls_options *hf_tls_settings_options(const hf_tls_settings *settings);

/* For the child of a fork: its connections use nothing that the parent made. */
void hf_tls_settings_forget(hf_tls_settings *settings);

typedef struct hf_tls hf_tls;

typedef enum hf_tls_state { HF_TLS_PENDING, HF_TLS_AGREED, HF_TLS_FAILED } hf_tls_state;

/* Begins TLS with `host` over a connected socket, which stays the caller's. Returns NULL on
 * failure; `reason` says why. */
hf_tls *hf_tls_new(hf_tls_settings *settings, const char *host, int fd, char *reason, size_t size);

/* Goes on with the handshake. While PENDING, `events` is what to poll the socket for; on FAILED
 * `reason` says why. */
hf_tls_state hf_tls_handshake(hf_tls *tls, short *events, char *reason, size_t size);

/* As hf_recv and hf_send: less than `size` may be sent. EAGAIN: poll the socket. EPROTO:
 * hf_tls_reason says why. */
ssize_t hf_tls_recv(hf_tls *tls, char *bytes, size_t size);
ssize_t hf_tls_send(hf_tls *tls, const char *bytes, size_t size);
const char *hf_tls_reason(const hf_tls *tls);

/* Returns what to poll the socket for, with or without bytes to send. */
short hf_tls_events(const hf_tls *tls, bool output);

/* Returns whether hf_tls_recv waits until the socket takes bytes. */
bool hf_tls_recv_wants_write(const hf_tls *tls);

/* Returns the time in seconds until the first of the two certificates of a connection that has
 * agreed ends, the server's or our own; negative: it has ended. INFINITY: not known. */
double hf_tls_seconds_left(const hf_tls *tls);

/* Frees it; if `polite`, first sends the server a close alert, unless that would block. */
void hf_tls_free(hf_tls *tls, bool polite);

#endif
