#include "base/request.h"
#include "lock/kind.h"

#include "check.h"
#include "memerr.h"

#define CHECK_BYTES(request, want) CHECK_MEM((request).bytes, (request).size, want, sizeof want - 1)

TEST(a_plain_command_is_encoded_in_the_redis_protocol) {
    hf_request request = {0};
    hf_slice args[] = {{"SET", 3}, {"a\0b", 3}, {"", 0}};
    CHECK(hf_request_command(&request, 3, args));
    CHECK_BYTES(request, "*3\r\n$3\r\nSET\r\n$3\r\na\0b\r\n$0\r\n\r\n");
    CHECK(!request.program);
    hf_request_clear(&request), CHECK(!request.bytes && request.size == 0);
    hf_request_clear(&request);
}

TEST(a_call_of_a_server_script_is_encoded_with_the_scripts_sha1) {
    static const hf_program program = {.sha1 = "0123456789abcdef0123456789abcdef01234567"};
    hf_request request = {.as_eval = true};
    hf_slice args[] = {{"key", 3}, {"x y", 3}};
    CHECK(hf_request_call(&request, &program, 1, 2, args));
    CHECK_BYTES(request,
                "*5\r\n$7\r\nEVALSHA\r\n$40\r\n0123456789abcdef0123456789abcdef01234567\r\n"
                "$1\r\n1\r\n$3\r\nkey\r\n$3\r\nx y\r\n");
    CHECK(request.program == &program);
    CHECK(!request.as_eval);
    hf_request_clear(&request);
}

TEST(a_command_with_hundreds_of_arguments_is_encoded) {
    for (size_t count = 16; count <= 301; count++) {
        hf_request request = {0};
        hf_slice args[301];
        char head[16];
        for (size_t i = 0; i < count; i++) args[i] = hf_slice_of(i % 2 ? "ab" : "c");
        CHECK(hf_request_call(&request, hf_kind_program(&hf_kind_lock, HF_VERB_RENEW), 1, count,
                              args));
        int size = snprintf(head, sizeof head, "*%zu\r\n", count + 3);
        CHECK_MEM(request.bytes, size, head, size);
        CHECK(memcmp(request.bytes + request.size - 4, count % 2 ? "\nc\r\n" : "ab\r\n", 4) == 0);
        hf_request_clear(&request);
    }
}

CHECK_MAIN
