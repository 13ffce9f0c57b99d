/* Addresses of servers and how to log in, read from a URL.
 *
 *   redis://[[user:]password@]host[:port][/db]    port 1..65535, 6379 by default; IPv6 as [::1]
 *   rediss://...                                  the same over TLS
 *   unix://[[user:]password@]/path[?db=N]
 *   redis+sentinel://[[user:]password@]host[:port][,host[:port]…]/master[/db]
 *   redis+cluster://[[user:]password@]host[:port][,host[:port]…][/]
 *   rediss+sentinel://..., rediss+cluster://...   the same, over TLS to each server and Sentinel
 *
 * The schemes valkey and valkeys mean the same as redis and rediss. Sentinels have port 26379 by
 * default, and the log-in is for the master.
 *
 * A user with an empty password logs in with that password, which works for users with nopass.
 * Without user and password, there is no log-in. %XX escapes are decoded in user, password, host,
 * path and master. A host must not contain a space, a control character or any of /?#@,[]\. */
#ifndef HF_URL_H
#define HF_URL_H

#include "base/types.h"

/* The sizes of strings in bytes, with the NUL. */
#define HF_URL_HOST 256
#define HF_URL_SECRET 512

typedef struct hf_server {
    char host[HF_URL_HOST]; /* a name, an address, or a socket's path */
    uint16_t port;          /* 0 for a unix socket */
    uint16_t db;            /* 0..65535 */
    bool tls;
    char user[HF_URL_SECRET];
    char password[HF_URL_SECRET];
    char label[HF_URL_HOST + 16]; /* the address for messages, without user and password */
} hf_server;

#define HF_NODE_ID_SIZE 40 /* the size of a cluster node's id in bytes, without the NUL */

typedef struct hf_address {
    char host[HF_URL_HOST]; /* as in hf_server */
    uint16_t port;
} hf_address;

#define HF_URL_MAX_HOSTS 64

typedef enum hf_url_kind {
    HF_URL_SERVER,   /* a single server */
    HF_URL_SENTINEL, /* Sentinels that know a master's address */
    HF_URL_CLUSTER   /* some nodes of a cluster */
} hf_url_kind;

typedef struct hf_url {
    hf_url_kind kind;
    char master[HF_URL_HOST]; /* HF_URL_SENTINEL: the master's name in the Sentinels */
    hf_server server;         /* the first host, with the log-in and the database */
    size_t count;             /* the number of hosts, 1..HF_URL_MAX_HOSTS */
    hf_address hosts[HF_URL_MAX_HOSTS];
} hf_url;

/* Reads a URL of any kind. Returns NULL on success, otherwise what is wrong with the URL (a static
 * string); `url` is then unspecified. */
const char *hf_url_read(hf_url *url, const char *text, size_t size);

/* Reads a URL of one server. Returns NULL on success, otherwise what is wrong with the URL (a
 * static string); `server` is then unspecified. */
const char *hf_url_read_server(hf_server *server, const char *url, size_t size);

/* Sets host, port and label. The log-in remains. */
void hf_server_set_address(hf_server *server, const hf_address *to);

/* Writes `text` to `out`, truncated to `size` bytes, with *** in place of each log-in: the part
 * between :// and @. In a URL of holdfast the log-in ends at the last @, because a password may
 * contain any character; in any other URL it ends at the last @ of the host part. Returns what was
 * written, without a NUL. Three times the size of the text is always enough room. Every
 * caller-supplied value in a message must pass through this function. */
hf_slice hf_url_mask_credentials(char *out, size_t size, hf_slice text);

bool hf_address_equal(const hf_address *a, const hf_address *b);

#endif
