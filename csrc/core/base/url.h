/* Where servers are and how to log in, read from a URL.
 *
 *   redis://[[user:]password@]host[:port][/db]      port 1..65535, 6379 by default; IPv6 as [::1]
 *   rediss://...                                    the same over TLS
 *   unix://[[user:]password@]/path[?db=N]
 *   redis+sentinel://[[user:]password@]host[:port][,host[:port]…]/master[/db]
 *                                                   the Sentinels, port 26379 by default; the
 * log-in is the master's redis+cluster://[[user:]password@]host[:port][,host[:port]…][/]
 *   rediss+sentinel://..., rediss+cluster://...     the same, over TLS to each server and Sentinel
 *   valkey and valkeys, in place of redis and rediss, mean the same
 *
 * A user with an empty password logs in with the empty one, as a user with nopass may. Neither a
 * user nor a password is no log-in.
 * %XX escapes are decoded in user, password, host, path and master. A host has no space and none of
 * /?#@,[]\. */
#ifndef HF_URL_H
#define HF_URL_H

#include "base/types.h"

#define HF_URL_HOST 256
#define HF_URL_SECRET 512

typedef struct hf_server {
    char host[HF_URL_HOST]; /* name, address, or the socket's path */
    uint16_t port;          /* 0: a unix socket */
    uint16_t db;            /* 0..65535 */
    bool tls;
    char user[HF_URL_SECRET];
    char password[HF_URL_SECRET];
    char label[HF_URL_HOST + 16]; /* for messages: no user, no password */
} hf_server;

#define HF_NODE_ID_SIZE 40 /* of the id that a node of a cluster gives itself */

typedef struct hf_address {
    char host[HF_URL_HOST]; /* as in hf_server */
    uint16_t port;
} hf_address;

#define HF_URL_MAX_HOSTS 64

typedef enum hf_url_kind {
    HF_URL_SERVER,   /* the one server itself */
    HF_URL_SENTINEL, /* Sentinels that know where a master is */
    HF_URL_CLUSTER   /* some nodes of a cluster */
} hf_url_kind;

typedef struct hf_url {
    hf_url_kind kind;
    char master[HF_URL_HOST]; /* HF_URL_SENTINEL: the name that the Sentinels know it by */
    hf_server server;         /* the first host, with login and db */
    size_t count;             /* of hosts, 1..HF_URL_MAX_HOSTS */
    hf_address hosts[HF_URL_MAX_HOSTS];
} hf_url;

/* Reads a URL of any kind. Returns NULL on success, else what is wrong with it (a static text);
 * `url` is then unspecified. */
const char *hf_url_read(hf_url *url, const char *text, size_t size);

/* Reads a URL of one server. Returns NULL on success, else what is wrong with it (a static text);
 * `server` is then unspecified. */
const char *hf_url_parse(hf_server *server, const char *url, size_t size);

/* Sets host, port and label; the log-in stays. */
void hf_server_move(hf_server *server, const hf_address *to);

/* Writes `text` to `out`, as much of it as fits in `size` bytes, with *** in place of each log-in
 * in it: what is between :// and @. In a URL of ours that is all up to the last @, since a password
 * may hold anything; in any other, all up to the last @ of the host's part. Returns what was
 * written, which is not terminated; three times the text always fits. Messages show no value that a
 * caller has chosen but through this. */
hf_slice hf_url_hide(char *out, size_t size, hf_slice text);

bool hf_address_equal(const hf_address *a, const hf_address *b);

#endif
