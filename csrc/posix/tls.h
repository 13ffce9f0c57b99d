/* TLS over a non-blocking socket, by OpenSSL.
 *
 * Settings are one driver's, connections one socket's; both are used by one thread at a time. The certificates are read
 * when the first connection is made. The bytes go through this library's own send and recv: no write raises SIGPIPE.
 *
 * What a call has decrypted it hands out: after hf_tls_recv has said EAGAIN nothing is left that a poll would not see.
 *
 * After a fork the child must not touch what the parent made (hf_tls_settings_forget); a fork waits for the calls that
 * other threads have under way here, so OpenSSL's own locks are free in the child. */
#ifndef HF_TLS_H
#define HF_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* NULL: not given. With neither ca_file nor ca_path the system's store is trusted. */
typedef struct hf_tls_options {
    const char *ca_file, *ca_path; /* PEM; a directory with hashed names */
    const char *cert, *key;        /* PEM, both or none; the key without a passphrase */
    const char *server_name;       /* whom the certificate must be for, instead of the host */
    bool trusting;                 /* any certificate will do: whoever is in between can read and change everything */
} hf_tls_options;

typedef struct hf_tls_settings hf_tls_settings;

/* Copies the options. NULL when out of memory. */
hf_tls_settings *hf_tls_settings_new(const hf_tls_options *options);
void hf_tls_settings_free(hf_tls_settings *settings); /* NULL is fine */

/* The settings' options, as copied. */
const hf_tls_options *hf_tls_settings_options(const hf_tls_settings *settings);

/* In the child of a fork: its connections are made without anything of the parent's. */
void hf_tls_settings_forget(hf_tls_settings *settings);

typedef struct hf_tls hf_tls;

typedef enum hf_tls_state { HF_TLS_PENDING, HF_TLS_AGREED, HF_TLS_FAILED } hf_tls_state;

/* TLS with `host` over a connected socket, which stays the caller's. NULL: `reason` says why. */
hf_tls *hf_tls_new(hf_tls_settings *settings, const char *host, int fd, char *reason, size_t size);

/* A step of the handshake. While PENDING, `events` is what to poll the socket for; on FAILED `reason` says why. */
hf_tls_state hf_tls_handshake(hf_tls *tls, short *events, char *reason, size_t size);

/* As recv and send with MSG_DONTWAIT | MSG_NOSIGNAL: less than `size` may be sent; EAGAIN when the socket is to be
 * polled. EPROTO: hf_tls_reason says why. */
ssize_t hf_tls_recv(hf_tls *tls, char *bytes, size_t size);
ssize_t hf_tls_send(hf_tls *tls, const char *bytes, size_t size);
const char *hf_tls_reason(const hf_tls *tls);

/* What to poll the socket for, with or without bytes to be sent. */
short hf_tls_events(const hf_tls *tls, bool output);

/* True when hf_tls_recv waits for the socket to take bytes. */
bool hf_tls_recv_wants_write(const hf_tls *tls);

/* Tells the server, if it can be told at once, that no more will come (polite), and frees it. */
void hf_tls_free(hf_tls *tls, bool polite);

#endif
