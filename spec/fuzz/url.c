/* Any bytes as a URL. Nothing is read past them; what comes out is terminated and in its range; the
 * label, the address and the complaint are the same whatever the log-in is, so none of them tells a
 * user or a password. */
#include "base/url.h"
#include "input.h"

static bool is_terminated(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

static void check_server(const hf_server *server) {
    MUST(is_terminated(server->host, sizeof server->host));
    MUST(is_terminated(server->user, sizeof server->user));
    MUST(is_terminated(server->password, sizeof server->password));
    MUST(is_terminated(server->label, sizeof server->label));
    MUST(server->host[0] && server->label[0]);
    MUST(strstr(server->label, server->host));
    MUST(server->port > 0 || server->host[0] == '/');
}

static const char *parse(hf_server *server, hf_slice url) {
    char *exact = copy_of(url);
    memset(server, 0xee, sizeof *server);
    const char *wrong = hf_url_read_server(server, exact, url.size);
    free(exact);
    if (!wrong) check_server(server);
    return wrong;
}

/* The URL with another log-in; false when it has none. */
static bool with_other_login(hf_slice url, const char *login, char **other, size_t *size) {
    const char *scheme = url.size > 0 ? memchr(url.data, '/', url.size) : NULL;
    if (scheme == url.data || (scheme && scheme[-1] != ':')) return false;
    const char *end = url.data + url.size, *at = end;
    while (at > url.data && at[-1] != '@') at--;
    if (!scheme || scheme + 2 >= end || at < scheme + 3) return false;
    size_t head = (size_t)(scheme + 2 - url.data), middle = strlen(login),
           tail = (size_t)(end - at);
    *size = head + middle + 1 + tail;
    *other = malloc(*size);
    MUST(*other);
    memcpy(*other, url.data, head);
    memcpy(*other + head, login, middle);
    (*other)[head + middle] = '@';
    memcpy(*other + head + middle + 1, at, tail);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static hf_server server, other;
    hf_slice url = {(const char *)data, size};
    const char *wrong = parse(&server, url);
    hf_slice changed;
    char *bytes;
    if (wrong && (strcmp(wrong, "bad user") == 0 || strcmp(wrong, "bad password") == 0)) return 0;
    if (!with_other_login(url, "Uz:Pz", &bytes, &changed.size)) return 0;
    changed.data = bytes;
    const char *other_wrong = parse(&other, changed);
    free(bytes);
    MUST(wrong == other_wrong);
    if (wrong) return 0;
    MUST(strcmp(server.label, other.label) == 0 && strcmp(server.host, other.host) == 0);
    MUST(server.port == other.port && server.db == other.db);
    MUST(strcmp(other.user, "Uz") == 0 && strcmp(other.password, "Pz") == 0);
    return 0;
}
