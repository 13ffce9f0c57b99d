#include "link/slots.h"

#include <stdlib.h>

#include "check.h"
#include "memerr.h"
#include "names_of.h"

static const hf_address ASKED = {"10.0.0.9", 7009};
static hf_slots slots;

static void init(void) {
    hf_slots_init(&slots);
}

static void clear(void) {
    hf_slots_free(&slots);
}

CHECK_AROUND(init, clear)

static hf_reply *reply_of(const char *text) {
    hf_reader reader;
    hf_reply *reply = NULL;
    if (hf_reader_open(&reader) && hf_reader_feed(&reader, text, strlen(text)))
        hf_reader_next(&reader, &reply);
    hf_reader_close(&reader);
    return reply;
}

static const char *read_text(const char *text) {
    hf_reply *reply = reply_of(text);
    const char *wrong = reply ? hf_slots_read(&slots, reply, &ASKED) : "no reply";
    hf_reply_free(reply);
    return wrong;
}

#define NODE(size, host, port) "*3\r\n$" size "\r\n" host "\r\n:" port "\r\n$2\r\nid\r\n"
#define RANGE(first, last, master) "*3\r\n:" first "\r\n:" last "\r\n" master

static bool belongs(size_t slot, const char *host, int port) {
    uint16_t owner = slots.owner[slot];
    return owner < slots.count && strcmp(slots.nodes[owner].host, host) == 0 &&
           slots.nodes[owner].port == port;
}

TEST(keys_get_the_same_cluster_slots_as_in_redis) {
    CASES(const char *key; int slot) = {
        {"", 0},
        {"somekey", 11058},
        {"123456789", 12739},
        {"foo{hash_tag}", 2515},
        {"bar", 5061},
        {"{}foo", 9500},
        {"foo{}{bar}", 8363},
        {"foo{{bar}}zap", 4015},
        {"foo{bar}{zap}", 5061},
        {"{bar", 4015},
        {"a{b", 13340},
        {"\xff\xfe", 3374},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int slot = hf_slot_of(hf_slice_of(cases[i].key));
        CHECK_OR(slot == cases[i].slot, "\"%s\" has slot %d, not %d", cases[i].key, slot,
                 cases[i].slot);
    }
    CHECK_EQ_INT(hf_slot_of((hf_slice){"x{ba\0r}", 7}), hf_slot_of((hf_slice){"ba\0r", 4}));
    CHECK_EQ_INT(hf_slot_of((hf_slice){"a}b{c}", 6}), hf_slot_of(hf_slice_of("c")));
    CHECK_EQ_INT(hf_slot_of((hf_slice){"{bar}", 4}), 4015); /* the brace is past the end */
}

TEST(a_cluster_map_gives_the_node_of_each_slot) {
    CHECK(!belongs(0, "", 0) && slots.owner[16383] == HF_SLOT_NO_NODE);
    const char *wrong = read_text(
        "*3\r\n" RANGE("0", "5460", NODE("8", "10.0.0.1", "7001")) "*4\r\n:5462\r\n:10922\r\n" NODE(
            "8", "10.0.0.2", "7001") NODE("8", "10.0.0.3", "7001")
            RANGE("10923", "16383", NODE("8", "10.0.0.1", "7002")));
    CHECK_OR(!wrong, "%s", wrong);
    CHECK_EQ_INT(slots.count, 3); /* replicas are not in it */
    CHECK(belongs(0, "10.0.0.1", 7001) && belongs(5460, "10.0.0.1", 7001));
    CHECK_EQ_INT(slots.owner[5461], HF_SLOT_NO_NODE);
    CHECK(belongs(5462, "10.0.0.2", 7001) && belongs(10922, "10.0.0.2", 7001));
    CHECK(belongs(10923, "10.0.0.1", 7002) && belongs(16383, "10.0.0.1", 7002));
    hf_slots_forget_ids(&slots), CHECK(!read_text("*0\r\n")), CHECK_EQ_INT(slots.count, 0);
    CHECK_EQ_INT(slots.owner[0], HF_SLOT_NO_NODE);
}

TEST(a_cluster_map_may_contain_host_names_and_ipv6_addresses_and_empty_hosts) {
    const char *wrong = read_text(
        "*7\r\n" RANGE("6", "6", NODE("3", " ab", "7006"))
            RANGE("0", "0", NODE("0", "", "7001")) /* does not know its own */
        RANGE("1", "1", "*2\r\n$-1\r\n:7002\r\n")  /* is not to tell */
        RANGE("2", "2", NODE("1", "?", "7003"))    /* has no name */
        RANGE("3", "3", NODE("3", "::1", "7004"))  /* */
        RANGE("4", "4",
              "*4\r\n$6\r\nnode.x\r\n:7005\r\n$2\r\nid\r\n"
              "*2\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n") RANGE("5", "5", NODE("3", "a b", "7006")));
    CHECK_OR(!wrong, "%s", wrong);
    CHECK(belongs(0, "10.0.0.9", 7001));
    CHECK(belongs(1, "10.0.0.9", 7002));
    CHECK_EQ_INT(slots.owner[2], HF_SLOT_NO_NODE);
    CHECK(belongs(3, "::1", 7004));
    CHECK(belongs(4, "node.x", 7005));
    CHECK_EQ_INT(slots.owner[5], HF_SLOT_NO_NODE);
    CHECK_EQ_INT(slots.owner[6], HF_SLOT_NO_NODE);
}

TEST(a_malformed_cluster_map_leaves_the_slots_as_they_were) {
    static const char *const bad[] = LIST(
        "-ERR This instance has cluster support disabled\r\n", "+OK\r\n", ":1\r\n", "$-1\r\n",
        "*-1\r\n", "*1\r\n:1\r\n", "*1\r\n*0\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n:7\r\n", "*1\r\n*3\r\n:0\r\n:1\r\n*0\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n", "*1\r\n" RANGE("-1", "1", NODE("1", "b", "1")),
        "*1\r\n" RANGE("1", "0", NODE("1", "b", "1")),
        "*1\r\n" RANGE("0", "16384", NODE("1", "b", "1")),
        "*1\r\n" RANGE("0", "9223372036854775807", NODE("1", "b", "1")),
        "*1\r\n*3\r\n$1\r\nx\r\n:1\r\n" NODE("1", "b", "1"),
        "*2\r\n" RANGE("0", "1", NODE("1", "b", "1")) ":1\r\n");
    CHECK(!read_text("*1\r\n" RANGE("0", "16383", NODE("1", "a", "1"))));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OR(read_text(bad[i]), "taken for a map: %s", bad[i]);
        CHECK(belongs(0, "a", 1) && belongs(16383, "a", 1) && slots.count == 1);
    }
    CHECK_STR(hf_slots_read(&slots, NULL, &ASKED), "the reply is not a list of slots");
}

TEST(a_cluster_map_leaves_out_nodes_with_invalid_ports_or_hosts_that_are_too_long) {
    static char host[HF_URL_HOST + 1], text[HF_URL_HOST + 100];
    memset(host, 'h', HF_URL_HOST - 1);
    CHECK(!read_text(
        "*4\r\n" RANGE("0", "0", NODE("1", "a", "0")) RANGE("1", "1", NODE("1", "a", "65536"))
            RANGE("2", "2", NODE("1", "a", "-1")) RANGE("3", "3", "*2\r\n$1\r\na\r\n$1\r\nx\r\n")));
    CHECK_EQ_INT(slots.count, 0);
    hf_slots_forget_ids(&slots);
    snprintf(text, sizeof text, "*1\r\n*3\r\n:7\r\n:7\r\n*2\r\n$%d\r\n%s\r\n:1\r\n",
             HF_URL_HOST - 1, host);
    CHECK(!read_text(text));
    CHECK(belongs(7, host, 1));
    host[HF_URL_HOST - 1] = 'h';
    snprintf(text, sizeof text, "*1\r\n*3\r\n:7\r\n:7\r\n*2\r\n$%d\r\n%s\r\n:1\r\n", HF_URL_HOST,
             host);
    CHECK(!read_text(text));
    CHECK_EQ_INT(slots.owner[7], HF_SLOT_NO_NODE);
}

/* `count` nodes of one slot each, built without the reader and its limits. */
static hf_reply *many_nodes(size_t count) {
    hf_reply *one = reply_of("*1\r\n" RANGE("0", "0", NODE("1", "a", "1")));
    if (!one) return NULL;
    hf_reply *many = calloc(1, sizeof *many);
    if (many) many->type = HF_REPLY_ARRAY;
    if (many) many->elements = calloc(count, sizeof *many->elements);
    for (size_t i = 0; many && many->elements && i < count; i++) {
        hf_reply *range = hf_reply_copy(one->elements[0]);
        if (!range) break;
        range->elements[0]->integer = range->elements[1]->integer = (long long)i;
        range->elements[2]->elements[1]->integer = (long long)i + 1;
        many->elements[many->size++] = range;
    }
    hf_reply_free(one);
    return many;
}

TEST(a_cluster_map_keeps_a_bounded_number_of_nodes) {
    hf_reply *many = many_nodes(HF_SLOTS_MAX_NODES + 5);
    CHECK(many && many->size == HF_SLOTS_MAX_NODES + 5);
    CHECK(!hf_slots_read(&slots, many, &ASKED));
    CHECK_EQ_INT(slots.count, HF_SLOTS_MAX_NODES);
    CHECK(belongs(HF_SLOTS_MAX_NODES - 1, "a", HF_SLOTS_MAX_NODES));
    CHECK_EQ_INT(slots.owner[HF_SLOTS_MAX_NODES], HF_SLOT_NO_NODE);
    hf_reply_free(many);
}

/* A range of its own for each slot, with a replica, as real servers write them. */
static char *worst_map(size_t *size) {
    enum { MOST = 200 };
    char *text = malloc((size_t)MOST * HF_SLOTS), *at = text;
    if (!text) abort();
    at += sprintf(at, "*%d\r\n", HF_SLOTS);
    for (int i = 0; i < HF_SLOTS; i++) {
        at += sprintf(at, "*4\r\n:%d\r\n:%d\r\n", i, i);
        for (int port = 7000 + i % 3; port < 7010; port += 7)
            at += sprintf(at, "*4\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n%040d\r\n*0\r\n", port, port);
    }
    *size = (size_t)(at - text);
    return text;
}

static hf_reply *read_worst(size_t elements) {
    hf_reader worst;
    hf_reply *reply = NULL;
    size_t size;
    char *text = worst_map(&size);
    if (!hf_reader_open(&worst)) abort();
    hf_reader_set_max_elements(&worst, elements);
    if (hf_reader_feed(&worst, text, size)) hf_reader_next(&worst, &reply);
    hf_reader_close(&worst);
    free(text);
    return reply;
}

TEST(a_reader_with_a_raised_limit_accepts_the_longest_possible_cluster_map) {
    CHECK(!read_worst(HF_REPLY_MAX_ELEMENTS));
    hf_reply *reply = read_worst(HF_SLOTS_MAX_ELEMENTS);
    CHECK(reply);
    CHECK(!hf_slots_read(&slots, reply, &ASKED));
    CHECK_EQ_INT(slots.count, 3);
    for (size_t i = 0; i < HF_SLOTS; i++) CHECK(belongs(i, "127.0.0.1", 7000 + (int)(i % 3)));
    hf_reply_free(reply);
}

static bool read_map(void *context) {
    const char *wrong = hf_slots_read(&slots, context, &ASKED);
    if (wrong && (strcmp(wrong, "out of memory") != 0 || slots.count != 1)) abort();
    return !wrong;
}

#define MEMBER(host, port, id) "*3\r\n$1\r\n" host "\r\n:" port "\r\n$2\r\n" id "\r\n"
#define PAIR(first, last, master, replica) "*4\r\n:" first "\r\n:" last "\r\n" master replica

static const char *id_at(const char *host, uint16_t port) {
    hf_address address = {.port = port};
    snprintf(address.host, sizeof address.host, "%s", host);
    return hf_slots_id_at(&slots, &address);
}

TEST(a_cluster_map_gives_the_ids_of_masters_and_replicas) {
    CHECK(!id_at("a", 1));
    CHECK(!read_text("*3\r\n" PAIR("0", "1", MEMBER("a", "1", "m1"), MEMBER("b", "2", "r1"))
                         PAIR("2", "3", MEMBER("c", "3", "m2"), MEMBER("d", "4", "r2"))
                             PAIR("4", "4", MEMBER("a", "1", "m1"), MEMBER("b", "2", "r1"))));
    CHECK_EQ_INT(slots.member_count, 4);
    CHECK_STR(id_at("a", 1), "m1");
    CHECK_STR(id_at("b", 2), "r1");
    CHECK_STR(id_at("c", 3), "m2");
    CHECK_STR(id_at("d", 4), "r2");
    CHECK(!id_at("d", 3) && !id_at("e", 4));
}

/* A dead master whose slots nobody has taken over, and a new one at its address. */
TEST(an_address_that_a_cluster_map_gives_for_two_nodes_is_treated_as_having_no_id) {
    CHECK(!read_text("*2\r\n" RANGE("0", "1", MEMBER("a", "1", "m1"))
                         RANGE("2", "3", MEMBER("a", "1", "m2"))));
    CHECK_STR(id_at("a", 1), "");
}

TEST(a_node_id_that_is_too_long_is_ignored) {
    static const char *const digits = "0123456789012345678901234567890123456789";
    char text[256];
    for (int size = HF_NODE_ID_SIZE; size <= HF_NODE_ID_SIZE + 1; size++) {
        hf_slots_init(&slots);
        snprintf(text, sizeof text,
                 "*1\r\n" RANGE("0", "1", "*3\r\n$1\r\na\r\n:1\r\n$%d\r\n%s%s\r\n"), size, digits,
                 size > HF_NODE_ID_SIZE ? "0" : "");
        CHECK(!read_text(text));
        if (size == HF_NODE_ID_SIZE) CHECK_STR(id_at("a", 1), digits);
        else CHECK(!id_at("a", 1));
        hf_slots_free(&slots);
    }
}

TEST(a_cluster_map_that_shares_no_node_id_with_the_last_belongs_to_a_different_cluster) {
    static const char *const foreign[] = {
        "*1\r\n" RANGE("0", "9", MEMBER("a", "1", "x1")),
        "*1\r\n" PAIR("0", "9", MEMBER("a", "1", "x1"), MEMBER("b", "2", "x2")),
        "*1\r\n" RANGE("0", "9", "*2\r\n$1\r\na\r\n:1\r\n")};
    static const char *const own[] = {
        "*1\r\n" RANGE("0", "9", MEMBER("c", "3", "r1")), /* it has taken over */
        "*2\r\n" RANGE("0", "4", MEMBER("e", "5", "m9")) RANGE("5", "9", MEMBER("a", "1", "m1")),
        "*1\r\n" RANGE("0", "9", MEMBER("?", "1", "m1"))};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        hf_slots_init(&slots);
        CHECK(!read_text("*1\r\n" PAIR("0", "9", MEMBER("a", "1", "m1"), MEMBER("b", "2", "r1"))));
        for (size_t at = 0; at < sizeof foreign / sizeof *foreign; at++) {
            CHECK_STR(read_text(foreign[at]), HF_SLOTS_FOREIGN);
            CHECK_STR(id_at("a", 1), "m1");
            CHECK(belongs(9, "a", 1));
        }
        CHECK_STR(read_text("*0\r\n"), HF_SLOTS_NONE);
        CHECK_STR(id_at("a", 1), "m1");
        CHECK_OR(!read_text(own[i]), "%s", own[i]);
        hf_slots_free(&slots);
    }
}

TEST(after_its_node_ids_were_discarded_a_cluster_map_may_be_replaced_by_any_other) {
    CHECK(!read_text("*1\r\n" RANGE("0", "9", MEMBER("a", "1", "m1"))));
    hf_slots_forget_ids(&slots), CHECK(!id_at("a", 1) && belongs(9, "a", 1));
    CHECK(!read_text("*1\r\n" RANGE("0", "9", MEMBER("a", "1", "x1"))));
    CHECK_STR(id_at("a", 1), "x1");
}

TEST(a_failed_allocation_leaves_the_slot_map_unchanged) {
    CHECK(!read_text("*1\r\n" RANGE("0", "16383", NODE("1", "a", "1"))));
    hf_reply *reply = reply_of("*2\r\n" RANGE("0", "1", NODE("1", "b", "1"))
                                   RANGE("2", "3", NODE("1", "c", "1")));
    CHECK(reply);
    CHECK_EQ_INT(memerr_until_success(read_map, reply, 10), 3);
    CHECK_EQ_INT(slots.count, 2);
    hf_reply_free(reply);
}

TEST(moved_and_ask_redirects_are_parsed) {
    CASES(const char *error; hf_redirect_kind kind; int slot; const char *host; int port) = {
        {"MOVED 3999 127.0.0.1:6381", HF_REDIRECT_MOVED, 3999, "127.0.0.1", 6381},
        {"ASK 0 127.0.0.1:1", HF_REDIRECT_ASK, 0, "127.0.0.1", 1},
        {"MOVED 16383 ::1:65535", HF_REDIRECT_MOVED, 16383, "::1", 65535},
        {"MOVED 1 [fe80::1]:7000", HF_REDIRECT_MOVED, 1, "fe80::1", 7000},
        {"ASK 12 node-1.example:7000", HF_REDIRECT_ASK, 12, "node-1.example", 7000},
        {"MOVED 12 :7000", HF_REDIRECT_MOVED, 12, "10.0.0.9", 7000}, /* where it was asked */
        {"MOVED 12 []:7000", HF_REDIRECT_MOVED, 12, "10.0.0.9", 7000},
        {"MOVED 12 [:7000", HF_REDIRECT_MOVED, 12, "[", 7000},
        {"MOVED 12 ]:7000", HF_REDIRECT_MOVED, 12, "]", 7000},
        {"MOVED 00012 a:07000", HF_REDIRECT_MOVED, 12, "a", 7000},
        {"MOVED 12 ?:7000", HF_REDIRECT_MOVED, 12, "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_redirect got = hf_redirect_read(hf_slice_of(cases[i].error), &ASKED);
        CHECK_OR(got.kind == cases[i].kind && got.slot == cases[i].slot, "%s: %d %d",
                 cases[i].error, got.kind, got.slot);
        CHECK_STR(got.address.host, cases[i].host);
        CHECK_EQ_INT(got.address.port, cases[i].port);
    }
}

TEST(malformed_redirects_are_ignored) {
    static const char *const others[] = LIST(
        "", "MOVED", "MOVED ", "ERR no", "MOVED 1", "MOVED 1 ", "MOVED x a:1", "MOVED -1 a:1",
        "MOVED 16384 a:1", "MOVED 999999 a:1", "MOVED  a:1", "MOVED 000001 a:1",
        "MOVED 0000001 a:1", "MOVED 1 a:000001", "MOVED 1 a:0000001", "MOVED 1  a:1x", "MOVED 1 a",
        "MOVED 1 77", "MOVED 1 a:", "MOVED 1 a:0", "MOVED 1 a:65536", "MOVED 1 a:999999",
        "MOVED 1 a:1 b", "MOVED 1 a:-1", "ASKING", "ASK 1", "TRYAGAIN x", "moved 1 a:1");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        hf_redirect got = hf_redirect_read(hf_slice_of(others[i]), &ASKED);
        CHECK_OR(got.kind == HF_REDIRECT_NONE, "taken for a redirect: %s", others[i]);
    }
}

TEST(parsing_a_redirect_reads_nothing_past_its_end) {
    static const char error[] = "MOVED 16383 [::1]:7000";
    for (size_t size = 0; size < sizeof error; size++) {
        char *exact = malloc(size ? size : 1);
        CHECK(exact);
        memcpy(exact, error, size);
        hf_redirect_read((hf_slice){exact, size}, &ASKED);
        free(exact);
    }
}

/* An open brace makes the whole name count. Of a key of this length one name is in the key's slot
 * by chance, and the others are not. */
TEST(a_lock_is_refused_in_a_cluster_unless_all_of_its_names_are_in_one_slot) {
    CASES(size_t size; bool counter, queue, releases) = {
        {5756, true, false, false}, {14914, false, true, false}, {2480, false, false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_names names;
        char *key = malloc(cases[i].size);
        if (!key) abort();
        memset(key, '{', cases[i].size);
        if (!hf_names_make(&names, (hf_slice){key, cases[i].size})) abort();
        uint16_t slot = hf_slot_of(names.key);
        CHECK_EQ_INT(hf_slot_of(names.counter) == slot, cases[i].counter);
        CHECK_EQ_INT(hf_slot_of(names.queue) == slot, cases[i].queue);
        CHECK_EQ_INT(hf_slot_of(names.releases) == slot, cases[i].releases);
        CHECK(!hf_names_share_slot(&names));
        hf_names_free(&names);
        free(key);
    }
}

CHECK_MAIN
