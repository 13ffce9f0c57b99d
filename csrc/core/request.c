#include "request.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool encode(hf_request *request, size_t count, const char **argv, const size_t *sizes) {
    char *bytes = NULL;
    long long size = redisFormatCommandArgv(&bytes, (int)count, argv, sizes);
    if (size < 0) return false;
    hf_request_clear(request);
    request->bytes = bytes;
    request->size = (size_t)size;
    request->replicas = 0;
    return true;
}

static bool encode_slices(hf_request *request, size_t lead, const hf_slice *leads, size_t count, const hf_slice *args) {
    const char *few_argv[HF_REQUEST_ARGS];
    size_t few_sizes[HF_REQUEST_ARGS];
    const char **argv = few_argv;
    size_t *sizes = few_sizes, all = lead + count;
    void *many = NULL;
    if (all > HF_REQUEST_ARGS) {
        many = calloc(all, sizeof *argv + sizeof *sizes);
        if (!many) return false;
        argv = many;
        sizes = (size_t *)(void *)(argv + all);
    }
    for (size_t i = 0; i < all; i++) {
        hf_slice arg = i < lead ? leads[i] : args[i - lead];
        argv[i] = arg.data;
        sizes[i] = arg.size;
    }
    bool encoded = encode(request, all, argv, sizes);
    free(many);
    return encoded;
}

bool hf_request_command(hf_request *request, size_t count, const hf_slice *args) {
    request->program = NULL;
    return encode_slices(request, 0, args, count, args);
}

bool hf_request_call(hf_request *request, const hf_program *program, size_t keys, size_t count, const hf_slice *args) {
    char text[24];
    hf_slice leads[] = {{"EVALSHA", 7}, {program->sha1, 40}, hf_decimal(text, keys)};
    request->program = program;
    request->whole = false;
    return encode_slices(request, 3, leads, count, args);
}

void hf_request_use(hf_request *request, const hf_program *program) {
    static const char EVALSHA[] = "$7\r\nEVALSHA\r\n$40\r\n";
    char *head_end = memchr(request->bytes, '\n', request->size);
    memcpy(head_end + sizeof EVALSHA, program->sha1, 40);
    request->program = program;
}

bool hf_request_confirm(hf_request *request, uint32_t replicas, hf_time timeout) {
    char number[24], ms[24], text[96];
    hf_slice count = hf_decimal(number, replicas), limit = hf_decimal(ms, timeout < HF_MS ? 1 : timeout / HF_MS);
    int size = snprintf(text, sizeof text, "*3\r\n$4\r\nWAIT\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", count.size, count.data,
                        limit.size, limit.data);
    char *bytes = realloc(request->bytes, request->size + (size_t)size);
    if (!bytes) return false;
    memcpy(bytes + request->size, text, (size_t)size);
    request->bytes = bytes;
    request->size += (size_t)size;
    request->replicas = replicas;
    return true;
}

bool hf_request_is_confirmed(const hf_request *request) {
    return request->confirmed >= request->replicas;
}

void hf_request_clear(hf_request *request) {
    free(request->bytes);
    request->bytes = NULL;
    request->size = 0;
}

hf_slice hf_decimal(char text[24], uint64_t value) {
    char *end = text + 23, *at = end;
    *end = '\0';
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return (hf_slice){at, (size_t)(end - at)};
}
