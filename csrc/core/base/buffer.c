#include "base/buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(hf_buffer *buffer, size_t size) {
    size_t used = buffer->end - buffer->start;
    assert(buffer->start <= buffer->end && buffer->end <= buffer->capacity);
    if (size > HF_BUFFER_CAP - used) return false;
    if (buffer->start > 0) {
        memmove(buffer->bytes, buffer->bytes + buffer->start, used);
        buffer->start = 0;
        buffer->end = used;
    }
    if (used + size <= buffer->capacity) return true;
    size_t capacity = buffer->capacity ? buffer->capacity : 1024;
    while (capacity < used + size) capacity *= 2;
    char *bytes = realloc(buffer->bytes, capacity);
    if (!bytes) return false;
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return true;
}

bool hf_buffer_append(hf_buffer *buffer, const char *bytes, size_t size) {
    if (size == 0) return true; /* `buffer->bytes` may still be NULL */
    if (buffer->end + size > buffer->capacity && !reserve(buffer, size)) return false;
    assert(buffer->end + size <= buffer->capacity);
    memcpy(buffer->bytes + buffer->end, bytes, size);
    buffer->end += size;
    return true;
}

hf_slice hf_buffer_content(const hf_buffer *buffer) {
    return (hf_slice){buffer->bytes ? buffer->bytes + buffer->start : "",
                      buffer->end - buffer->start};
}

void hf_buffer_consume(hf_buffer *buffer, size_t size) {
    assert(size <= buffer->end - buffer->start);
    buffer->start += size;
    if (buffer->start == buffer->end) buffer->start = buffer->end = 0;
}

void hf_buffer_clear(hf_buffer *buffer) {
    buffer->start = buffer->end = 0;
}

void hf_buffer_free(hf_buffer *buffer) {
    free(buffer->bytes);
    *buffer = (hf_buffer){0};
}
