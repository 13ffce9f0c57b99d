#include "base/failure.h"

#include "check.h"

static const hf_slice ORDER = {"order:42", 8};

static hf_failure failure;

TEST(an_error_message_contains_advice_that_fits_its_error_code) {
    hf_failure_set(&failure, HF_BUSY, "acquire", ORDER, "h:1",
                   "this owner already holds it, and the lock is not re-entrant");
    CHECK_STR(failure.text, "cannot acquire \"order:42\" on h:1: this owner already holds it, and "
                            "the lock is not re-entrant; release it first; waiting will not help");
    hf_failure_set(&failure, HF_SERVER, "ping", ORDER, "h:1", "%s", "ERR DB index is out of range");
    CHECK_STR(failure.text, "cannot ping \"order:42\" on h:1: ERR DB index is out of range; check "
                            "the database number");
    hf_failure_set(&failure, HF_UNREACHABLE, "ping", ORDER, "h:1", "%s",
                   "no resolver defined to resolve \"h\"");
    CHECK_STR(failure.text,
              "cannot ping \"order:42\" on h:1: no resolver defined to resolve \"h\"; "
              "add a resolver to nginx.conf, or use an IP address in the URL");
}

TEST(an_unreachable_server_that_has_replied_is_not_said_to_be_down) {
    CASES(const char *error, *advice) = {
        {"LOADING Redis is loading the dataset in memory", "wait until the server has loaded"},
        {"CLUSTERDOWN The cluster is down", "check the cluster with CLUSTER INFO"},
        {"MASTERDOWN Link with MASTER is down", "check the replica's link"},
        {"READONLY You can't write against a read only replica.", "check which master"},
        {"NOREPLICAS Not enough good replicas to write.", "check the server's replicas"},
        {"BUSY Redis is busy running a script.", "check which script"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_failure_set(&failure, HF_UNREACHABLE, "acquire", ORDER, "h:1", "%s", cases[i].error);
        CHECK_OR(strstr(failure.text, cases[i].advice), "%s", failure.text);
        CHECK_OR(!strstr(failure.text, "is running and can be reached"), "%s", failure.text);
    }
}

TEST(advice_is_appended_to_an_error_message_in_place_of_its_full_stop) {
    hf_failure_set(&failure, HF_DENIED, "ping", ORDER, "h:1", "%s",
                   "NOAUTH Authentication required.");
    CHECK(strstr(failure.text, "Authentication required; check the user"));
}

TEST(an_error_message_does_not_show_the_user_and_password_of_a_url) {
    char long_password[200];
    memset(long_password, 's', sizeof long_password);
    memcpy(long_password, "redis://", 8);
    memcpy(long_password + sizeof long_password - 2, "@h", 2);
    hf_failure_set(&failure, HF_SERVER, "acquire", hf_slice_of("redis://u:s3cret@h"), "h:1",
                   "it belongs to \"%s\"", "https://u:s3cret@i");
    CHECK_STR(failure.text, "cannot acquire \"redis://***@h\" on h:1: it belongs to "
                            "\"https://***@i\"");
    hf_failure_set(&failure, HF_SERVER, "acquire", (hf_slice){long_password, sizeof long_password},
                   "h:1", "oops");
    CHECK_STR(failure.text, "cannot acquire \"redis://***@h\" on h:1: oops");
}

TEST(the_error_message_of_a_call_without_a_key_mentions_no_key) {
    hf_failure_set(&failure, HF_SERVER, "ping", (hf_slice){"", 0}, "h:1", "oops");
    CHECK_STR(failure.text, "cannot ping on h:1: oops");
}

TEST(unprintable_bytes_of_a_key_are_escaped_in_error_messages) {
    hf_slice key = {"a\0\n\x7f\"\\\x1b[0m\xc3\xa9", 12};
    hf_failure_set(&failure, HF_SERVER, "acquire", key, "h:1", "oops");
    CHECK_STR(failure.text,
              "cannot acquire \"a\\x00\\x0a\\x7f\\x22\\x5c\\x1b[0m\xc3\xa9\" on h:1: oops");
}

TEST(an_error_message_truncates_a_long_key) {
    char key[1000];
    memset(key, 'k', sizeof key);
    hf_failure_set(&failure, HF_SERVER, "acquire", (hf_slice){key, 64}, "h:1", "oops");
    CHECK(!strstr(failure.text, "..."));
    hf_failure_set(&failure, HF_SERVER, "acquire", (hf_slice){key, 65}, "h:1", "oops");
    CHECK(strstr(failure.text, "kkk...\" on h:1: oops"));
    memset(key, 1, sizeof key);
    hf_failure_set(&failure, HF_SERVER, "acquire", (hf_slice){key, sizeof key}, "h:1", "oops");
    CHECK(strstr(failure.text, "\\x01...\" on h:1: oops"));
}

TEST(an_error_message_that_is_too_long_is_truncated_and_terminated) {
    char detail[2000];
    memset(detail, 'd', sizeof detail);
    detail[sizeof detail - 1] = '\0';
    memset(&failure, 'x', sizeof failure);
    hf_failure_set(&failure, HF_DENIED, "acquire", ORDER, "h:1", "%s", detail);
    CHECK_EQ_INT(strnlen(failure.text, sizeof failure.text), HF_FAILURE_TEXT_SIZE - 1);
    memset(&failure, 'x', sizeof failure);
    hf_failure_set(&failure, HF_DENIED, "acquire", ORDER, detail, "%s", detail);
    CHECK_EQ_INT(strnlen(failure.text, sizeof failure.text), HF_FAILURE_TEXT_SIZE - 1);
    for (int length = 200; length < 330; length++) { /* around the place where the advice begins */
        memset(&failure, 'x', sizeof failure);
        hf_failure_set(&failure, HF_DENIED, "acquire", ORDER, "h:1", "%.*s", length, detail);
        CHECK(strnlen(failure.text, sizeof failure.text) < HF_FAILURE_TEXT_SIZE);
    }
}

TEST(an_error_message_replaces_bidirectional_marks_and_invalid_utf8) {
    hf_slice key = {"\xc2\x9b\xe2\x80\xae\xff\xed\xa0\x80\xe2\x82\xac", 12};
    hf_failure_set(&failure, HF_SERVER, "acquire", key, "h:1", "%s",
                   "\xd8\x9c \xe2\x81\xa6 \xe2\x80\xa8 \xc0\xaf \xf0\x9f\x98\x80 \xe2\x80");
    CHECK_STR(failure.text,
              "cannot acquire \"\\xc2\\x9b\\xe2\\x80\\xae\\xff\\xed\\xa0\\x80\xe2\x82\xac\""
              " on h:1: ?\? ?\?\? ?\?\? ?\? \xf0\x9f\x98\x80 ?\?");
}

TEST(an_error_message_spells_out_invisible_characters) {
    hf_slice key = hf_slice_of("a\xc2\xad\xe2\x80\x8b\xc2\xa0\xef\xbb\xbf\xf3\xa0\x80\x81"
                               "\xe2\x81\xb0");
    hf_failure_set(&failure, HF_SERVER, "acquire", key, "h:1", "oops");
    CHECK_STR(failure.text, "cannot acquire \"a\\xc2\\xad\\xe2\\x80\\x8b\\xc2\\xa0\\xef\\xbb\\xbf"
                            "\\xf3\\xa0\\x80\\x81\xe2\x81\xb0\" on h:1: oops");
}

/* Redis 7 says where in the script it was, by the script's digest. */
TEST(error_messages_omit_the_position_in_a_server_script) {
    hf_failure_set(&failure, HF_CONFLICT, "acquire", ORDER, "h:1", "%s",
                   "WRONGTYPE Operation against a key holding the wrong kind of value "
                   "script: e547016e5dd6dc5a849cb1ab095dd7288384185f, on @user_script:38.");
    CHECK_STR(
        failure.text,
        "cannot acquire \"order:42\" on h:1: WRONGTYPE Operation against a key holding the wrong "
        "kind of value; use client:mutex for a string set with SET NX; otherwise use another key "
        "or a prefix");
    hf_failure_set(&failure, HF_UNREACHABLE, "release", ORDER, "h:1", "%s; it goes on",
                   "NOREPLICAS Not enough good replicas to write. script: "
                   "e547016e5dd6dc5a849cb1ab095dd7288384185f, on @user_script:38.");
    CHECK(strstr(failure.text, " to write.; it goes on; check the server's replicas"));
    hf_failure_set(&failure, HF_SERVER, "acquire", ORDER, "h:1", "%s", "ERR no script: e547");
    CHECK(strstr(failure.text, ": ERR no script: e547"));
    hf_failure_set(&failure, HF_SERVER, "acquire", (hf_slice){"a script: b", 11}, "h:1", "oops");
    CHECK_STR(failure.text, "cannot acquire \"a script: b\" on h:1: oops");
}

TEST(error_replies_of_the_server_become_the_documented_error_codes) {
    CASES(hf_code code; const char *errors[17]) = {
        {HF_DENIED,
         {"NOAUTH Authentication required.",
          "WRONGPASS invalid username-password pair or user is disabled.",
          "NOPERM this user has no permissions to run the 'evalsha' command",
          "ERR The user executing the script can't run this command or subcommand",
          "ERR invalid password", "ERR Client sent AUTH, but no password is set",
          "ERR AUTH <password> called without any password configured for the default user.",
          "DENIED Redis is running in protected mode",
          "READONLY You can't write against a read only replica.",
          "ERR Error running script: @user_script:1: -READONLY You can't write",
          "ERR Error running script: @user_script:1: @user_script: 1: The user executing the "
          "script can't run this command or subcommand",
          "ERR Error running script: @user_script: 1: The user executing the script can't access "
          "at least one of the keys mentioned in the command arguments",
          "NOPERM No permissions to access a key",
          "ERR ACL failure in script: User u has no permissions to run the 'get' command script: "
          "620cd258, on @user_script:1.",
          "ERR ACL failure in script: No permissions to access a key script: 620cd258, on "
          "@user_script:1.",
          "ERR ACL failure in script: No permissions to access a channel script: 620cd258"}},
        {HF_SERVER,
         {"ERR Unknown Redis command called from script script: 7ae0187b, on @user_script:1.",
          "ERR unknown command", ""}},
        {HF_CONFLICT,
         {"WRONGTYPE Operation against a key holding the wrong kind of value",
          "ERR Error running script: @user_script: 3: WRONGTYPE Operation against"}},
        {HF_UNREACHABLE,
         {"LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down",
          "CLUSTERDOWN The cluster is down",
          "TRYAGAIN Multiple keys request during rehashing of slot",
          "ERR max number of clients reached", "BUSY Redis is busy running a script.",
          "OOM command not allowed when used memory > 'maxmemory'.",
          "MISCONF Redis is configured to save RDB snapshots",
          "NOREPLICAS Not enough good replicas to write. script: 620cd258",
          "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command "
          "not allowed"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (const char *const *at = cases[i].errors; *at; at++)
            CHECK_OR(hf_code_of_error(*at) == cases[i].code, "%s", *at);
    }
}

TEST(loading_and_busy_replies_count_as_temporary_errors) {
    CHECK(hf_refusal_is_transient(hf_refusal_of("LOADING Redis is loading the dataset in memory"),
                                  false));
    CHECK(hf_refusal_is_transient(hf_refusal_of("BUSY Redis is busy running a script."), false));
    CHECK(hf_refusal_is_transient(hf_refusal_of("MASTERDOWN Link with MASTER is down"), false));
    CHECK(
        !hf_refusal_is_transient(hf_refusal_of("BUSYKEY Target key name already exists."), false));
    CHECK(!hf_refusal_is_transient(hf_refusal_of("ERR LOADING"), false));
    CHECK(!hf_refusal_is_transient(hf_refusal_of("ERR no such key: -OOM "), false));
    CHECK(!hf_refusal_is_transient(hf_refusal_of(""), false));
}

TEST(errors_such_as_oom_and_readonly_count_as_temporary_refusals_of_writes) {
    CHECK_EQ_INT(hf_refusal_of("OOM command not allowed"), HF_REFUSAL_OF_WRITES);
    CHECK_EQ_INT(hf_refusal_of("MISCONF Errors writing to the AOF file"), HF_REFUSAL_OF_WRITES);
    CHECK_EQ_INT(hf_refusal_of("NOREPLICAS Not enough"), HF_REFUSAL_OF_WRITES);
    CHECK_EQ_INT(hf_refusal_of("ERR Error running script (call to f_1): @user_script:1: "
                               "@user_script: 1: -NOREPLICAS Not enough"),
                 HF_REFUSAL_OF_WRITES);
    CHECK_EQ_INT(hf_refusal_of("TRYAGAIN Multiple keys"), HF_REFUSAL_UNAVAILABLE);
    CHECK_EQ_INT(hf_refusal_of("READONLY You can't write"), HF_REFUSAL_OF_WRITES);
    CHECK_EQ_INT(hf_refusal_of("ERR Error running script (call to f_1): @user_script:1: "
                               "@user_script: 1: -READONLY You can't write"),
                 HF_REFUSAL_OF_WRITES);
}

TEST(a_missing_right_counts_as_temporary_only_for_a_call_that_the_server_accepted_before) {
    static const char *const errors[] =
        LIST("NOAUTH Authentication required.",
             "WRONGPASS invalid username-password pair or user is disabled.",
             "NOPERM this user has no permissions to run the 'evalsha' command",
             "ERR invalid password", "ERR Client sent AUTH, but no password is set",
             "ERR AUTH <password> called without any password configured for the default user.",
             "ERR The user executing the script can't run this command or subcommand",
             "ERR ACL failure in script: User x has no permissions to run the 'set' command",
             "ERR Error running script (call to f_1): @user_script:1: -NOPERM No permissions");
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        hf_refusal refusal = hf_refusal_of(errors[i]);
        CHECK_OR(refusal == HF_REFUSAL_OF_USER, "%s", errors[i]);
        CHECK(hf_refusal_is_transient(refusal, true) && !hf_refusal_is_transient(refusal, false));
    }
    CHECK(!hf_refusal_is_transient(hf_refusal_of("WRONGTYPE no"), true));
    CHECK(!hf_refusal_is_transient(hf_refusal_of("ERR any other"), true));
}

TEST(each_error_code_is_classified_as_temporary_or_permanent) {
    static const hf_code may[] = {HF_BUSY,      HF_UNREACHABLE, HF_LOST,
                                  HF_NO_QUORUM, HF_SERVER,      HF_TIMEOUT};
    size_t passing = 0, accepted = 0;
    for (size_t i = 0; i < sizeof may / sizeof *may; i++)
        CHECK(hf_code_is_transient(may[i], false));
    for (int code = 0; code < HF_CODES; code++) {
        passing += hf_code_is_transient((hf_code)code, false);
        accepted += hf_code_is_transient((hf_code)code, true);
    }
    CHECK_EQ_INT(passing, sizeof may / sizeof *may);
    CHECK_EQ_INT(accepted, passing + 1);
    CHECK(hf_code_is_transient(HF_DENIED, true) && !hf_code_is_transient(HF_DENIED, false));
}

CHECK_MAIN
