#include "base/url.h"

#include <stdio.h>
#include <string.h>

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Copies a part of the URL and decodes its escapes. Returns false if the part is too long, or
 * contains a bad escape or a NUL. */
static bool decode(char *out, size_t size, hf_slice part) {
    size_t used = 0;
    for (size_t i = 0; i < part.size; i++) {
        char c = part.data[i];
        if (c == '%') {
            if (i + 2 >= part.size) return false;
            int high = hex_digit(part.data[i + 1]), low = hex_digit(part.data[i + 2]);
            if (high < 0 || low < 0) return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || used + 1 >= size) return false;
        out[used++] = c;
    }
    out[used] = '\0';
    return true;
}

static bool read_number(hf_slice part, uint16_t *out) {
    uint32_t value = 0;
    if (part.size == 0 || part.size > 5) return false;
    for (size_t i = 0; i < part.size; i++) {
        if (part.data[i] < '0' || part.data[i] > '9') return false;
        value = value * 10 + (uint32_t)(part.data[i] - '0');
    }
    *out = (uint16_t)value;
    return value <= UINT16_MAX;
}

/* Splits *rest at the first (or last) `mark`: *before receives what precedes it, and *rest keeps
 * what follows it. If there is no mark, returns false and changes neither. */
static bool split(hf_slice *rest, char mark, bool last, hf_slice *before) {
    size_t at = rest->size;
    for (size_t i = 0; i < rest->size; i++) {
        if (rest->data[i] != mark) continue;
        at = i;
        if (!last) break;
    }
    if (at == rest->size) return false;
    *before = (hf_slice){rest->data, at};
    rest->data += at + 1;
    rest->size -= at + 1;
    return true;
}

static const char *parse_login(hf_server *server, hf_slice login) {
    hf_slice user = {"", 0};
    split(&login, ':', false, &user);
    if (!decode(server->user, sizeof server->user, user)) return "bad user";
    if (!decode(server->password, sizeof server->password, login)) return "bad password";
    return NULL;
}

static const char *parse_unix(hf_server *server, hf_slice rest) {
    hf_slice path = rest;
    if (split(&rest, '?', false, &path)) {
        if (!hf_slice_skip(&rest, "db=")) return "unknown parameter; only ?db=N is supported";
        if (!read_number(rest, &server->db)) return "bad db";
    }
    if (path.size == 0 || path.data[0] != '/') return "the socket path must be absolute";
    if (!decode(server->host, sizeof server->host, path)) return "bad socket path";
    if (strlen(server->host) > 107) return "socket path longer than 107 bytes";
    snprintf(server->label, sizeof server->label, "unix:%s", server->host);
    return NULL;
}

static const char NO_PARAMETERS[] =
    "? is allowed only in unix:// URLs; elsewhere, use the client's options";

static bool has_parameters(hf_slice rest) {
    return rest.size > 0 && memchr(rest.data, '?', rest.size);
}

/* Returns whether the text contains no space, control character or separator of a URL. */
static bool is_host(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text <= ' ' || *text == 0x7f) return false;
        if (strchr("/?#@,[]\\", *text)) return false;
    }
    return true;
}

/* Reads host[:port] or [IPv6][:port]. *port is unchanged if no port is given. */
static const char *parse_address(hf_slice address, char *out, uint16_t *port) {
    hf_slice host;
    if (hf_slice_skip(&address, "[")) {
        if (!split(&address, ']', false, &host)) return "missing ] after the IPv6 address";
        if (address.size > 0 && !(hf_slice_skip(&address, ":") && read_number(address, port)))
            return "bad port";
    } else if (split(&address, ':', true, &host)) {
        if (memchr(host.data, ':', host.size)) return "an IPv6 address must be in [ ]";
        if (!read_number(address, port)) return "bad port";
    } else {
        host = address;
    }
    if (*port == 0) return "bad port";
    if (host.size == 0) return "missing host";
    return decode(out, HF_URL_HOST, host) && is_host(out) ? NULL : "bad host";
}

static void set_label(hf_server *server) {
    snprintf(server->label, sizeof server->label, strchr(server->host, ':') ? "[%s]:%u" : "%s:%u",
             server->host, (unsigned)server->port);
}

static const char *parse_tcp(hf_server *server, hf_slice rest) {
    hf_slice address = rest;
    if (has_parameters(rest)) return NO_PARAMETERS;
    if (split(&rest, '/', false, &address) && rest.size > 0 && !read_number(rest, &server->db))
        return "bad db";
    if (memchr(address.data, ',', address.size))
        return "several hosts need redis+sentinel:// or redis+cluster://";
    server->port = 6379;
    const char *problem = parse_address(address, server->host, &server->port);
    if (!problem) set_label(server);
    return problem;
}

/* What the scheme of a URL says. */
typedef struct url_scheme {
    hf_url_kind kind;
    bool tls, is_unix;
} url_scheme;

static const char NO_SCHEME[] = "a URL must begin with a scheme, as in redis://127.0.0.1:6379 or "
                                "unix:///run/redis/redis.sock";

static const char UNKNOWN_SCHEME[] =
    "unknown scheme; use redis://, rediss://, unix://, redis[s]+sentinel:// or "
    "redis[s]+cluster://, or their valkey equivalents";

static bool has_scheme(hf_slice rest) {
    hf_slice word;
    return split(&rest, ':', false, &word) && hf_slice_skip(&rest, "//");
}

/* Reads the scheme and moves *rest past it. Returns NULL on success, otherwise what is wrong. */
static const char *read_scheme(url_scheme *found, hf_slice *rest) {
    static const struct {
        const char *end;
        hf_url_kind kind;
    } kinds[] = {
        {"://", HF_URL_SERVER}, {"+sentinel://", HF_URL_SENTINEL}, {"+cluster://", HF_URL_CLUSTER}};
    *found = (url_scheme){.kind = HF_URL_SERVER};
    if (!has_scheme(*rest)) return NO_SCHEME;
    found->is_unix = hf_slice_skip(rest, "unix://");
    if (found->is_unix) return NULL;
    if (!hf_slice_skip(rest, "redis") && !hf_slice_skip(rest, "valkey")) return UNKNOWN_SCHEME;
    found->tls = hf_slice_skip(rest, "s");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hf_slice_skip(rest, kinds[i].end)) continue;
        found->kind = kinds[i].kind;
        return NULL;
    }
    return UNKNOWN_SCHEME;
}

static const char *parse_server(hf_server *server, const url_scheme *scheme, hf_slice rest) {
    hf_slice login;
    server->tls = scheme->tls;
    if (split(&rest, '@', true, &login)) {
        const char *problem = parse_login(server, login);
        if (problem) return problem;
    }
    return scheme->is_unix ? parse_unix(server, rest) : parse_tcp(server, rest);
}

const char *hf_url_read_server(hf_server *server, const char *url, size_t size) {
    hf_slice rest = {url, size};
    url_scheme scheme;
    *server = (hf_server){0};
    const char *problem = read_scheme(&scheme, &rest);
    if (problem) return problem;
    if (scheme.kind != HF_URL_SERVER)
        return "each server in a list needs its own URL, without +sentinel or +cluster";
    return parse_server(server, &scheme, rest);
}

static const char *parse_hosts(hf_url *url, hf_slice list, uint16_t port) {
    for (bool more = true; more;) {
        hf_slice part = list;
        more = split(&list, ',', false, &part);
        if (url->count == HF_URL_MAX_HOSTS) return "more than 64 hosts";
        hf_address *host = &url->hosts[url->count++];
        host->port = port;
        const char *problem = parse_address(part, host->host, &host->port);
        if (problem) return problem;
    }
    hf_server_set_address(&url->server, &url->hosts[0]);
    return NULL;
}

static const char *parse_sentinels(hf_url *url, hf_slice rest) {
    hf_slice hosts, master;
    if (!split(&rest, '/', false, &hosts))
        return "missing master name; use redis+sentinel://host/master-name";
    master = rest;
    if (split(&rest, '/', false, &master) && rest.size > 0 && !read_number(rest, &url->server.db))
        return "bad db";
    if (master.size == 0) return "missing master name; use redis+sentinel://host/master-name";
    if (!decode(url->master, sizeof url->master, master)) return "bad master name";
    return parse_hosts(url, hosts, 26379);
}

static const char *parse_cluster(hf_url *url, hf_slice rest) {
    hf_slice hosts = rest;
    if (split(&rest, '/', false, &hosts) && rest.size > 0)
        return "a cluster supports only database 0; leave out the number";
    return parse_hosts(url, hosts, 6379);
}

static const char *read_single(hf_url *url, const url_scheme *scheme, hf_slice rest) {
    const char *problem = parse_server(&url->server, scheme, rest);
    url->count = 1;
    memcpy(url->hosts[0].host, url->server.host, sizeof url->server.host);
    url->hosts[0].port = url->server.port;
    return problem;
}

const char *hf_url_read(hf_url *url, const char *text, size_t size) {
    hf_slice rest = {text, size}, login;
    url_scheme scheme;
    const char *problem = read_scheme(&scheme, &rest);
    if (problem) return problem;
    *url = (hf_url){.kind = scheme.kind, .server.tls = scheme.tls};
    if (scheme.kind == HF_URL_SERVER) return read_single(url, &scheme, rest);
    if (split(&rest, '@', true, &login)) problem = parse_login(&url->server, login);
    if (problem) return problem;
    if (has_parameters(rest)) return NO_PARAMETERS;
    return url->kind == HF_URL_SENTINEL ? parse_sentinels(url, rest) : parse_cluster(url, rest);
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Ignores the case of `text`. `word` has only lower-case letters. */
static bool begins_with_word(hf_slice text, const char *word) {
    size_t size = strlen(word);
    if (text.size < size) return false;
    for (size_t i = 0; i < size; i++)
        if ((text.data[i] | 0x20) != word[i]) return false;
    return true;
}

/* Returns whether the word before a :// begins like one of holdfast's schemes, even if misspelt. */
static bool has_holdfast_scheme(hf_slice before) {
    hf_slice word = {before.data + before.size, 0};
    while (word.size < before.size && (is_letter(word.data[-1]) || word.data[-1] == '+')) {
        word.data--;
        word.size++;
    }
    return begins_with_word(word, "redis") || begins_with_word(word, "valkey") ||
           begins_with_word(word, "unix");
}

/* Returns the size in bytes of a URL's authority (log-in, host and port), which begins at `rest`.
 * The URL may be in the middle of a sentence. */
static size_t authority_size(hf_slice rest) {
    size_t size = 0;
    while (size < rest.size && (unsigned char)rest.data[size] > ' ' &&
           !strchr("/?#\"'", rest.data[size]))
        size++;
    return size;
}

/* Returns the first log-in in the text, or an empty slice at the text's end if there is none. */
static hf_slice find_login(hf_slice text) {
    for (size_t i = 0; i + 3 < text.size; i++) {
        if (memcmp(text.data + i, "://", 3) != 0) continue;
        hf_slice rest = {text.data + i + 3, text.size - i - 3}, login;
        bool is_holdfast = has_holdfast_scheme((hf_slice){text.data, i});
        if (!is_holdfast) rest.size = authority_size(rest);
        if (split(&rest, '@', true, &login) && login.size > 0) return login;
        if (is_holdfast) break; /* no later URL contains an @ either */
    }
    return (hf_slice){text.data + text.size, 0};
}

static void append(char *out, size_t size, size_t *used, const char *text, size_t length) {
    size_t fits = length < size - *used ? length : size - *used;
    memcpy(out + *used, text, fits);
    *used += fits;
}

hf_slice hf_url_mask_credentials(char *out, size_t size, hf_slice text) {
    size_t used = 0;
    while (text.size > 0) {
        hf_slice login = find_login(text);
        size_t before = (size_t)(login.data - text.data);
        append(out, size, &used, text.data, before);
        if (login.size > 0) append(out, size, &used, "***", 3);
        text.data += before + login.size;
        text.size -= before + login.size;
    }
    return (hf_slice){out, used};
}

void hf_server_set_address(hf_server *server, const hf_address *to) {
    memcpy(server->host, to->host, sizeof server->host);
    server->port = to->port;
    set_label(server);
}

bool hf_address_equal(const hf_address *a, const hf_address *b) {
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}
