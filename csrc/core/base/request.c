#include "base/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_ROOM 24 /* the maximum size of put_count's output */

static char *put_end(char *at) {
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

/* Writes "<prefix><value>\r\n". */
static char *put_count(char *at, char prefix, size_t value) {
    char text[24];
    hf_slice digits = hf_decimal(text, value);
    *at++ = prefix;
    memcpy(at, digits.data, digits.size);
    return put_end(at + digits.size);
}

static char *put_args(char *at, size_t count, const hf_slice *args) {
    for (size_t i = 0; i < count; i++) {
        at = put_count(at, '$', args[i].size);
        if (args[i].size > 0) memcpy(at, args[i].data, args[i].size);
        at = put_end(at + args[i].size);
    }
    return at;
}

static size_t room_for(size_t count, const hf_slice *args) {
    size_t room = 0;
    for (size_t i = 0; i < count; i++) room += COUNT_ROOM + args[i].size + 2;
    return room;
}

/* Encodes the arguments in `lead_args`, then those in `args`, as one command. */
static bool encode(hf_request *request, size_t lead_count, const hf_slice *lead_args, size_t count,
                   const hf_slice *args) {
    char *bytes = malloc(COUNT_ROOM + room_for(lead_count, lead_args) + room_for(count, args));
    if (!bytes) return false;
    char *end = put_args(put_args(put_count(bytes, '*', lead_count + count), lead_count, lead_args),
                         count, args);
    assert((size_t)(end - bytes) <=
           COUNT_ROOM + room_for(lead_count, lead_args) + room_for(count, args));
    hf_request_clear(request);
    request->bytes = bytes;
    request->size = (size_t)(end - bytes);
    request->replicas = 0;
    request->sent_back = request->as_eval = false;
    return true;
}

bool hf_request_command(hf_request *request, size_t count, const hf_slice *args) {
    request->program = NULL;
    return encode(request, 0, NULL, count, args);
}

bool hf_request_call(hf_request *request, const hf_program *program, size_t keys, size_t count,
                     const hf_slice *args) {
    char text[24];
    hf_slice lead_args[] = {{"EVALSHA", 7}, {program->sha1, 40}, hf_decimal(text, keys)};
    assert(keys <= count);
    request->program = program;
    return encode(request, 3, lead_args, count, args);
}

void hf_request_use_program(hf_request *request, const hf_program *program) {
    static const char EVALSHA[] = "$7\r\nEVALSHA\r\n$40\r\n";
    char *head_end = memchr(request->bytes, '\n', request->size);
    assert(request->program);
    assert(memcmp(head_end + 1, EVALSHA, sizeof EVALSHA - 1) == 0);
    memcpy(head_end + sizeof EVALSHA, program->sha1, 40);
    request->program = program;
}

bool hf_request_confirm(hf_request *request, uint32_t replicas, hf_time timeout) {
    assert(request->bytes && request->replicas == 0 && replicas > 0);
    char number[24], ms[24];
    hf_slice args[] = {{"WAIT", 4},
                       hf_decimal(number, replicas),
                       hf_decimal(ms, timeout < HF_MS ? 1 : timeout / HF_MS)};
    char *bytes = realloc(request->bytes, request->size + COUNT_ROOM + room_for(3, args));
    if (!bytes) return false;
    request->bytes = bytes;
    request->size = (size_t)(put_args(put_count(bytes + request->size, '*', 3), 3, args) - bytes);
    request->replicas = replicas;
    return true;
}

bool hf_request_is_confirmed(const hf_request *request) {
    return request->confirmed >= request->replicas;
}

void hf_request_move(hf_request *to, hf_request *from) {
    *to = *from;
    to->failure = (hf_fault){0};
    from->bytes = NULL;
    from->reply = NULL;
}

void hf_request_clear(hf_request *request) {
    assert(request->state != HF_REQUEST_QUEUED && request->state != HF_REQUEST_SENT);
    free(request->bytes);
    request->bytes = NULL;
    request->size = 0;
    hf_fault_free(&request->failure);
}
