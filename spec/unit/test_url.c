#include "base/url.h"

#include <stdlib.h>

#include "check.h"

static hf_server server;

static const char *parse(const char *url) {
    return hf_url_read_server(&server, url, strlen(url));
}

TEST(valid_urls_of_one_server_are_parsed) {
    CASES(const char *url, *host; int port, db; const char *user, *password, *label) = {
        {"redis://127.0.0.1", "127.0.0.1", 6379, 0, "", "", "127.0.0.1:6379"},
        {"redis://localhost:7000", "localhost", 7000, 0, "", "", "localhost:7000"},
        {"redis://h/", "h", 6379, 0, "", "", "h:6379"},
        {"redis://h:1/15", "h", 1, 15, "", "", "h:1"},
        {"redis://h:65535/65535", "h", 65535, 65535, "", "", "h:65535"},
        {"redis://secret@h", "h", 6379, 0, "", "secret", "h:6379"},
        {"redis://:secret@h", "h", 6379, 0, "", "secret", "h:6379"},
        {"redis://me:secret@h:2/3", "h", 2, 3, "me", "secret", "h:2"},
        {"redis://me:a:b@h", "h", 6379, 0, "me", "a:b", "h:6379"},
        {"redis://me:a@b@h", "h", 6379, 0, "me", "a@b", "h:6379"},
        {"redis://m%3Ae:%40%2f%25@h", "h", 6379, 0, "m:e", "@/%", "h:6379"},
        {"redis://[::1]", "::1", 6379, 0, "", "", "[::1]:6379"},
        {"redis://[fe80::1]:7001/2", "fe80::1", 7001, 2, "", "", "[fe80::1]:7001"},
        {"redis://u:p@[::1]:7001", "::1", 7001, 0, "u", "p", "[::1]:7001"},
        {"redis://guest:@h", "h", 6379, 0, "guest", "", "h:6379"},
        {"redis://:@h", "h", 6379, 0, "", "", "h:6379"},
        {"redis://@h", "h", 6379, 0, "", "", "h:6379"},
        {"valkey://me:secret@h:2/3", "h", 2, 3, "me", "secret", "h:2"},
        {"valkeys://h", "h", 6379, 0, "", "", "h:6379"},
        {"rediss://h", "h", 6379, 0, "", "", "h:6379"},
        {"rediss://u:p@[::1]:7001/3", "::1", 7001, 3, "u", "p", "[::1]:7001"},
        {"unix:///run/redis.sock", "/run/redis.sock", 0, 0, "", "", "unix:/run/redis.sock"},
        {"unix:///run/redis.sock?db=3", "/run/redis.sock", 0, 3, "", "", "unix:/run/redis.sock"},
        {"unix://u:p@/a%20b%3fc%40", "/a b?c@", 0, 0, "u", "p", "unix:/a b?c@"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *wrong = parse(cases[i].url);
        CHECK_OR(!wrong, "%s: %s", cases[i].url, wrong);
        CHECK_STR(server.host, cases[i].host);
        CHECK_EQ_INT(server.port, cases[i].port);
        CHECK_EQ_INT(server.db, cases[i].db);
        CHECK_STR(server.user, cases[i].user);
        CHECK_STR(server.password, cases[i].password);
        CHECK_STR(server.label, cases[i].label);
        bool tls = strncmp(cases[i].url, "rediss:", 7) == 0;
        CHECK_EQ_INT(server.tls, tls || strncmp(cases[i].url, "valkeys:", 8) == 0);
    }
}

#define NO_SCHEME                                                                                  \
    "a URL must begin with a scheme, as in redis://127.0.0.1:6379 or unix:///run/redis/redis.sock"
#define UNKNOWN_SCHEME                                                                             \
    "unknown scheme; use redis://, rediss://, unix://, redis[s]+sentinel:// or "                   \
    "redis[s]+cluster://, or their valkey equivalents"

TEST(invalid_urls_of_one_server_are_refused_with_a_reason) {
    CASES(const char *wrong, *urls[12]) = {
        {NO_SCHEME, {"", "localhost:6379", "rediss:/h", "redis:/h"}},
        {UNKNOWN_SCHEME, {"redisss://h", "http://h", "redis+other://h", "valkeyss://h"}},
        {"each server in a list needs its own URL, without +sentinel or +cluster",
         {"redis+sentinel://h/m"}},
        {"missing host",
         {"rediss://", "redis://", "redis:///1", "redis://:1", "redis://[]", "redis://me:secret@"}},
        {"bad port",
         {"rediss://h:0", "redis://h:", "redis://h:0", "redis://h:65536", "redis://h:99999",
          "redis://h:123456789012", "redis://h:-1", "redis://h:12a",
          "redis://[::1]:", "redis://[::1]:0", "redis://[::1]x"}},
        {"missing ] after the IPv6 address", {"redis://[::1"}},
        {"an IPv6 address must be in [ ]", {"redis://::1"}},
        {"bad db",
         {"redis://h/-1", "redis://h/65536", "redis://h/one",
          "unix:///a?db=", "unix:///a?db=70000"}},
        {"? is allowed only in unix:// URLs; elsewhere, use the client's options",
         {"redis://h/0?x=1", "redis://h?timeout=1", "redis://h:1?db=2"}},
        {"bad host",
         {"redis://a b", "redis://a%20b", "redis://a\tb", "redis://a#b", "redis://a%2fb",
          "redis://a%3fb", "redis://a%40b", "redis://[::1 ]", "redis://h%zz", "redis://h%0",
          "redis://h%00"}},
        {"bad user", {"redis://%:p@h"}},
        {"bad password", {"redis://u:%4@h", "redis://u:%00@h"}},
        {"the socket path must be absolute", {"unix://", "unix://run/redis.sock"}},
        {"unknown parameter; only ?db=N is supported", {"unix:///a?timeout=1"}},
        {"bad socket path", {"unix:///a%00b"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (const char *const *at = cases[i].urls; *at; at++) {
            const char *wrong = parse(*at);
            CHECK_OR(wrong && strcmp(wrong, cases[i].wrong) == 0, "%s: %s", *at,
                     wrong ? wrong : "no error");
        }
    }
}

/* prefix, then `count` times the letter, then suffix */
static const char *parse_long(const char *prefix, int count, const char *suffix) {
    char url[2000];
    int size = snprintf(url, sizeof url, "%s", prefix);
    memset(url + size, 'x', (size_t)count);
    size += count;
    size += snprintf(url + size, sizeof url - (size_t)size, "%s", suffix);
    return hf_url_read_server(&server, url, (size_t)size);
}

TEST(a_url_with_a_host_or_login_over_its_maximum_length_is_refused) {
    CHECK(!parse_long("redis://", HF_URL_HOST - 1, ":65535/1"));
    CHECK_EQ_INT(strlen(server.label), HF_URL_HOST - 1 + 6);
    CHECK(!parse_long("redis://[:", HF_URL_HOST - 2, "]:65535"));
    CHECK_EQ_INT(strlen(server.label), HF_URL_HOST - 1 + 8);
    CHECK_STR(parse_long("redis://", HF_URL_HOST, ""), "bad host");
    CHECK(!parse_long("redis://", HF_URL_SECRET - 1, "@h"));
    CHECK_STR(parse_long("redis://", HF_URL_SECRET, "@h"), "bad password");
    CHECK(!parse_long("redis://", HF_URL_SECRET - 1, ":p@h"));
    CHECK_STR(parse_long("redis://", HF_URL_SECRET, ":p@h"), "bad user");
    CHECK(!parse_long("unix:///", 106, ""));
    CHECK_STR(parse_long("unix:///", 107, ""), "socket path longer than 107 bytes");
    CHECK_STR(parse_long("unix:///", HF_URL_HOST, ""), "bad socket path");
}

TEST(a_servers_label_in_messages_contains_no_user_or_password) {
    CHECK(!parse("redis://me:secret@h:1"));
    CHECK(!strstr(server.label, "me") && !strstr(server.label, "secret"));
    CHECK(!parse("unix://me:secret@/s"));
    CHECK(!strstr(server.label, "me") && !strstr(server.label, "secret"));
}

TEST(parsing_a_url_reads_nothing_past_its_size) {
    static const char url[] = "unix://me:s%41cret@/a?db=12345";
    static const char tcp[] = "redis://me:s%41cret@[::1]:6379/12";
    for (size_t size = 0; size < sizeof url; size++) {
        char exact[sizeof url];
        memcpy(exact, url, size);
        hf_url_read_server(&server, exact, size);
    }
    for (size_t size = 0; size < sizeof tcp; size++) {
        char exact[sizeof tcp];
        memcpy(exact, tcp, size);
        hf_url_read_server(&server, exact, size);
    }
    CHECK(hf_url_read_server(&server, "redis://h\0", 10));
}

static hf_url url;

static const char *read_url(const char *text) {
    return hf_url_read(&url, text, strlen(text));
}

/* The hosts as host:port, a space between them. */
static const char *hosts(void) {
    static char text[HF_URL_MAX_HOSTS * 64];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < url.count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%u", i ? " " : "",
                                 url.hosts[i].host, (unsigned)url.hosts[i].port);
    return text;
}

TEST(a_url_of_a_single_server_is_distinguished_from_one_of_several_hosts) {
    CHECK(!read_url("redis://me:secret@h:1/2"));
    CHECK_EQ_INT(url.kind, HF_URL_SERVER);
    CHECK_STR(hosts(), "h:1");
    CHECK_STR(url.server.label, "h:1");
    CHECK_STR(url.server.user, "me");
    CHECK_EQ_INT(url.server.db, 2);
    CHECK(!read_url("unix:///run/redis.sock"));
    CHECK_EQ_INT(url.kind, HF_URL_SERVER);
    CHECK_STR(hosts(), "/run/redis.sock:0");
    CHECK_STR(url.server.label, "unix:/run/redis.sock");
}

TEST(urls_of_sentinels_are_parsed) {
    CASES(const char *url, *hosts, *master; int db; const char *user, *password) = {
        {"redis+sentinel://h/m", "h:26379", "m", 0, "", ""},
        {"redis+sentinel://h:1,i,[::1],[::1]:2/my-master.1/3", "h:1 i:26379 ::1:26379 ::1:2",
         "my-master.1", 3, "", ""},
        {"redis+sentinel://me:a@b,c@h,i:2/m/", "h:26379 i:2", "m", 0, "me", "a@b,c"},
        {"redis+sentinel://secret@h/m%2fn", "h:26379", "m/n", 0, "", "secret"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *wrong = read_url(cases[i].url);
        CHECK_OR(!wrong, "%s: %s", cases[i].url, wrong);
        CHECK_EQ_INT(url.kind, HF_URL_SENTINEL);
        CHECK_STR(hosts(), cases[i].hosts);
        CHECK_STR(url.master, cases[i].master);
        CHECK_EQ_INT(url.server.db, cases[i].db);
        CHECK_STR(url.server.user, cases[i].user);
        CHECK_STR(url.server.password, cases[i].password);
        CHECK_STR(url.server.host, url.hosts[0].host);
    }
}

TEST(urls_of_clusters_are_parsed) {
    CHECK(!read_url("redis+cluster://me:secret@h:7000,i,[::1]:7001"));
    CHECK_EQ_INT(url.kind, HF_URL_CLUSTER);
    CHECK_STR(hosts(), "h:7000 i:6379 ::1:7001");
    CHECK_STR(url.master, "");
    CHECK_STR(url.server.password, "secret");
    CHECK_STR(url.server.label, "h:7000");
    CHECK(!read_url("redis+cluster://h/"));
    CHECK_STR(hosts(), "h:6379");
}

TEST(urls_of_several_hosts_over_tls_are_parsed) {
    CHECK(!read_url("rediss+sentinel://me:secret@h,i:1/m/2"));
    CHECK_EQ_INT(url.kind, HF_URL_SENTINEL);
    CHECK(url.server.tls);
    CHECK_STR(hosts(), "h:26379 i:1");
    CHECK_STR(url.server.password, "secret");
    CHECK(!read_url("rediss+cluster://h,i:1"));
    CHECK_EQ_INT(url.kind, HF_URL_CLUSTER);
    CHECK(url.server.tls);
    CHECK_STR(hosts(), "h:6379 i:1");
    CHECK(!read_url("valkeys+sentinel://h/m") && url.server.tls);
    CHECK_EQ_INT(url.kind, HF_URL_SENTINEL);
    CHECK(!read_url("valkeys+cluster://h") && url.server.tls);
    CHECK_EQ_INT(url.kind, HF_URL_CLUSTER);
    CHECK(!read_url("valkey+sentinel://h/m") && !url.server.tls);
    CHECK(!read_url("valkey+cluster://h") && !url.server.tls);
    CHECK(!read_url("redis+sentinel://h/m") && !url.server.tls);
    CHECK(!read_url("redis+cluster://h") && !url.server.tls);
    CHECK_STR(read_url("rediss+sentinel://h"),
              "missing master name; use redis+sentinel://host/master-name");
}

TEST(invalid_urls_of_several_hosts_are_refused_with_a_reason) {
    CASES(const char *wrong, *urls[7]) = {
        {NO_SCHEME, {""}},
        {UNKNOWN_SCHEME, {"redis+other://h", "unix+cluster://h", "rediss+://h"}},
        {"bad port", {"redis://h:0", "redis+sentinel://h:0/m", "redis+sentinel://h,i:x/m"}},
        {"several hosts need redis+sentinel:// or redis+cluster://",
         {"redis://h,i", "redis://h:1,i:2"}},
        {"missing master name; use redis+sentinel://host/master-name",
         {"redis+sentinel://", "redis+sentinel://h", "redis+sentinel://h/",
          "redis+sentinel://h//0"}},
        {"missing host",
         {"redis+sentinel:///m", "redis+sentinel://h,/m", "redis+sentinel://,h/m",
          "redis+sentinel://h,,i/m", "redis+cluster://", "redis+cluster://h:7000,"}},
        {"bad db",
         {"redis+sentinel://h/m/x", "redis+sentinel://h/m/70000", "redis+sentinel://h/m/1/2"}},
        {"bad master name", {"redis+sentinel://h/%zz"}},
        {"an IPv6 address must be in [ ]", {"redis+sentinel://::1/m"}},
        {"? is allowed only in unix:// URLs; elsewhere, use the client's options",
         {"redis+sentinel://h/m?db=1", "redis+cluster://h?timeout=1"}},
        {"bad host", {"redis+sentinel://h, i/m"}},
        {"bad user", {"redis+sentinel://%:p@h/m"}},
        {"a cluster supports only database 0; leave out the number",
         {"redis+cluster://h/0", "redis+cluster://h/1"}},
        {"bad password", {"redis+cluster://u:%00@h"}},
        {"missing ] after the IPv6 address", {"redis+cluster://[::1,h"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (const char *const *at = cases[i].urls; *at; at++) {
            const char *wrong = read_url(*at);
            CHECK_OR(wrong && strcmp(wrong, cases[i].wrong) == 0, "%s: %s", *at,
                     wrong ? wrong : "no error");
        }
    }
}

/* A cluster's URL of `count` hosts. */
static const char *read_many(int count) {
    char text[HF_URL_MAX_HOSTS * 4];
    int size = snprintf(text, sizeof text, "redis+cluster://h");
    while (--count > 0) size += snprintf(text + size, sizeof text - (size_t)size, ",h");
    return hf_url_read(&url, text, (size_t)size);
}

TEST(a_url_with_more_than_64_hosts_is_refused) {
    CHECK(!read_many(HF_URL_MAX_HOSTS));
    CHECK_EQ_INT(url.count, HF_URL_MAX_HOSTS);
    CHECK_STR(read_many(HF_URL_MAX_HOSTS + 1), "more than 64 hosts");
}

TEST(logins_of_urls_are_hidden_in_any_text) {
    CASES(const char *text, *shown) = {
        {"", ""},
        {"order:42", "order:42"},
        {"me@host", "me@host"},
        {"redis://", "redis://"},
        {"redis://h:1/2", "redis://h:1/2"},
        {"redis://@h", "redis://@h"},
        {"redis://secret@h", "redis://***@h"},
        {"redis://u:s3cret@h:1/2", "redis://***@h:1/2"},
        {"REDISS+Sentinel://u:s3cret@h/m", "REDISS+Sentinel://***@h/m"},
        {"valkey+cluster://:a/b?c@d e@h,i", "valkey+cluster://***@h,i"},
        {"unix://u:s@/run/x", "unix://***@/run/x"},
        {"must be a URL, not \"redis://u:s@h\"", "must be a URL, not \"redis://***@h\""},
        {"redis://a:b@c,redis://d:e@f", "redis://***@f"},
        {"https://u:s@h/p@v1", "https://***@h/p@v1"},
        {"https://h/p@v1", "https://h/p@v1"},
        {"https://h?to=a@b", "https://h?to=a@b"},
        {"\"http://h\" by me@there", "\"http://h\" by me@there"},
        {"https://h/x redis://p@i", "https://h/x redis://***@i"},
        {"http://a:b@c http://d:e@f", "http://***@c http://***@f"},
        {"predis://h/p@v", "predis://h/p@v"},
        {"://p@h", "://***@h"},
        {"redis:// but https://a:b@c", "redis://***@c"},
        {"redis://h https://i", "redis://h https://i"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[256];
        size_t size = strlen(cases[i].text);
        hf_slice shown = hf_url_mask_credentials(out, 3 * size, (hf_slice){cases[i].text, size});
        CHECK_OR(hf_slice_equal(shown, hf_slice_of(cases[i].shown)), "%s: %.*s", cases[i].text,
                 (int)shown.size, shown.data);
    }
}

TEST(a_text_with_hidden_logins_that_is_too_long_is_truncated) {
    static const char text[] = "redis://u:s3cret@h redis";
    for (size_t size = 0; size < 20; size++) {
        char *out = malloc(size > 0 ? size : 1);
        hf_slice shown = hf_url_mask_credentials(out, size, hf_slice_of(text));
        CHECK_EQ_INT(shown.size, size < 19 ? size : 19);
        CHECK(memcmp(shown.data, "redis://***@h redis", shown.size) == 0);
        free(out);
    }
}

TEST(addresses_are_equal_if_host_and_port_are) {
    CHECK(hf_address_equal(&(hf_address){"h", 1}, &(hf_address){"h", 1}));
    CHECK(!hf_address_equal(&(hf_address){"h", 1}, &(hf_address){"h", 2}));
    CHECK(!hf_address_equal(&(hf_address){"h", 1}, &(hf_address){"i", 1}));
}

CHECK_MAIN
