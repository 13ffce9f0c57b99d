#include "url.h"

#include "check.h"

static hf_server server;

static const char *parse(const char *url)
{
    return hf_url_parse(&server, url, strlen(url));
}

TEST(good_urls)
{
    static const struct {
        const char *url, *host;
        int port, db;
        const char *user, *password, *label;
    } cases[] = {
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
        CHECK_EQ_INT(server.tls, strncmp(cases[i].url, "rediss:", 7) == 0);
    }
}

TEST(bad_urls)
{
    static const struct {
        const char *url, *wrong;
    } cases[] = {
        {"", "unknown scheme; known are redis://, rediss:// and unix://"},
        {"localhost:6379", "unknown scheme; known are redis://, rediss:// and unix://"},
        {"redisss://h", "unknown scheme; known are redis://, rediss:// and unix://"},
        {"rediss:/h", "unknown scheme; known are redis://, rediss:// and unix://"},
        {"redis:/h", "unknown scheme; known are redis://, rediss:// and unix://"},
        {"rediss://", "missing host"},
        {"rediss://h:0", "bad port"},
        {"redis://", "missing host"},
        {"redis:///1", "missing host"},
        {"redis://:1", "missing host"},
        {"redis://[]", "missing host"},
        {"redis://me:secret@", "missing host"},
        {"redis://h:", "bad port"},
        {"redis://h:0", "bad port"},
        {"redis://h:65536", "bad port"},
        {"redis://h:99999", "bad port"},
        {"redis://h:123456789012", "bad port"},
        {"redis://h:-1", "bad port"},
        {"redis://h:12a", "bad port"},
        {"redis://[::1]:", "bad port"},
        {"redis://[::1]:0", "bad port"},
        {"redis://[::1]x", "bad port"},
        {"redis://[::1", "missing ] after the IPv6 address"},
        {"redis://::1", "an IPv6 address stands in [ ]"},
        {"redis://h/-1", "bad db"},
        {"redis://h/65536", "bad db"},
        {"redis://h/0?x=1", "bad db"},
        {"redis://h/one", "bad db"},
        {"redis://h%zz", "bad host"},
        {"redis://h%0", "bad host"},
        {"redis://h%00", "bad host"},
        {"redis://%:p@h", "bad user"},
        {"redis://u:%4@h", "bad password"},
        {"redis://u:%00@h", "bad password"},
        {"unix://", "the socket's path must be absolute"},
        {"unix://run/redis.sock", "the socket's path must be absolute"},
        {"unix:///a?db=", "bad db"},
        {"unix:///a?db=70000", "bad db"},
        {"unix:///a?timeout=1", "unknown parameter; only ?db=N is known"},
        {"unix:///a%00b", "bad socket path"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *wrong = parse(cases[i].url);
        CHECK_OR(wrong && strcmp(wrong, cases[i].wrong) == 0, "%s: %s", cases[i].url,
                 wrong ? wrong : "no error");
    }
}

/* prefix, then `count` times the letter, then suffix */
static const char *parse_long(const char *prefix, int count, const char *suffix)
{
    char url[2000];
    int size = snprintf(url, sizeof url, "%s", prefix);
    memset(url + size, 'x', (size_t)count);
    size += count;
    size += snprintf(url + size, sizeof url - (size_t)size, "%s", suffix);
    return hf_url_parse(&server, url, (size_t)size);
}

TEST(lengths_are_bounded)
{
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
    CHECK_STR(parse_long("unix:///", 107, ""), "socket path over 107 bytes");
    CHECK_STR(parse_long("unix:///", HF_URL_HOST, ""), "bad socket path");
}

TEST(label_shows_no_secret)
{
    CHECK(!parse("redis://me:secret@h:1"));
    CHECK(!strstr(server.label, "me") && !strstr(server.label, "secret"));
    CHECK(!parse("unix://me:secret@/s"));
    CHECK(!strstr(server.label, "me") && !strstr(server.label, "secret"));
}

TEST(nothing_is_read_past_the_size)
{
    static const char url[] = "unix://me:s%41cret@/a?db=12345";
    static const char tcp[] = "redis://me:s%41cret@[::1]:6379/12";
    for (size_t size = 0; size < sizeof url; size++) {
        char exact[sizeof url];
        memcpy(exact, url, size);
        hf_url_parse(&server, exact, size);
    }
    for (size_t size = 0; size < sizeof tcp; size++) {
        char exact[sizeof tcp];
        memcpy(exact, tcp, size);
        hf_url_parse(&server, exact, size);
    }
    CHECK(hf_url_parse(&server, "redis://h\0", 10));
}

CHECK_MAIN
