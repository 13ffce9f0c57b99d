/* Where a server is and how to log in, read from a URL.
 *
 *   redis://[[user:]password@]host[:port][/db]      port 1..65535, 6379 by default; IPv6 as [::1]
 *   rediss://...                                    the same over TLS
 *   unix://[[user:]password@]/path[?db=N]
 *
 * %XX escapes are decoded in user, password and path. */
#ifndef HF_URL_H
#define HF_URL_H

#include "types.h"

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

/* NULL on success, else what is wrong with the URL (a static text). `server` is then unspecified. */
const char *hf_url_parse(hf_server *server, const char *url, size_t size);

#endif
