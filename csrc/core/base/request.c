#include "base/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_ROOM 24 /* the maximum size of put_count's output, in bytes */

static char *put_end(char *out) {
    *out++ = '\r';
    *out++ = '\n';
    return out;
}

/* Writes "<prefix><value>\r\n". */
static char *put_count(char *out, char prefix, size_t value) {
    char text[24];
    hf_slice digits = hf_decimal(text, value);
    *out++ = prefix;
    memcpy(out, digits.data, digits.size);
    return put_end(out + digits.size);
}

static char *put_args(char *out, size_t count, const hf_slice *args) {
    for (size_t i = 0; i < count; i++) {
        out = put_count(out, '$', args[i].size);
        if (args[i].size > 0) memcpy(out, args[i].data, args[i].size);
        out = put_end(out + args[i].size);
    }
    return out;
}

static size_t room_for(size_t count, const hf_slice *args) {
    size_t room = 0;
    for (size_t i = 0; i < count; i++) room += COUNT_ROOM + args[i].size + 2;
    return room;
}

/* Encodes the `lead_count` words in `lead`, which are already encoded, and those in `args`. */
static bool encode(hf_request *request, size_t lead_count, hf_slice lead, size_t count,
                   const hf_slice *args) {
    size_t room = COUNT_ROOM + lead.size + room_for(count, args);
    char *bytes = malloc(room);
    if (!bytes) return false;
    char *end = put_count(bytes, '*', lead_count + count);
    memcpy(end, lead.data, lead.size);
    end = put_args(end + lead.size, count, args);
    assert((size_t)(end - bytes) <= room);
    hf_request_clear(request);
    request->bytes = bytes;
    request->size = (size_t)(end - bytes);
    request->replicas = 0;
    request->needs_new_connection = request->as_eval = false;
    return true;
}

bool hf_request_command(hf_request *request, size_t count, const hf_slice *args) {
    request->program = NULL;
    return encode(request, 0, (hf_slice){"", 0}, count, args);
}

#define SHA1_SIZE 40

static const char EVALSHA[] = "$7\r\nEVALSHA\r\n$40\r\n"; /* followed by the program's SHA-1 */

bool hf_request_call(hf_request *request, const hf_program *program, size_t keys, size_t count,
                     const hf_slice *args) {
    char number[24], lead[sizeof EVALSHA + SHA1_SIZE + (size_t)2 * COUNT_ROOM];
    hf_slice key_count = hf_decimal(number, keys);
    memcpy(lead, EVALSHA, sizeof EVALSHA - 1);
    memcpy(lead + sizeof EVALSHA - 1, program->sha1, SHA1_SIZE);
    char *end = put_args(put_end(lead + sizeof EVALSHA - 1 + SHA1_SIZE), 1, &key_count);
    assert(keys <= count);
    request->program = program;
    return encode(request, 3, (hf_slice){lead, (size_t)(end - lead)}, count, args);
}

void hf_request_use_program(hf_request *request, const hf_program *program) {
    char *head_end = memchr(request->bytes, '\n', request->size);
    assert(request->program);
    assert(memcmp(head_end + 1, EVALSHA, sizeof EVALSHA - 1) == 0);
    memcpy(head_end + sizeof EVALSHA, program->sha1, SHA1_SIZE);
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
