/* Bytes on their way to a socket: appended at the end, consumed at the front.
 *
 * The content is bytes[start .. end). Its size never exceeds HF_BUFFER_CAP. */
#ifndef HF_BUFFER_H
#define HF_BUFFER_H

#include "base/types.h"

#define HF_BUFFER_CAP ((size_t)64 << 20)

typedef struct hf_buffer {
    char *bytes;
    size_t start, end, capacity;
} hf_buffer;

/* Appends a copy of the bytes. Returns false when out of memory or over the cap; the content is
 * then unchanged. */
bool hf_buffer_append(hf_buffer *buffer, const char *bytes, size_t size);

hf_slice hf_buffer_content(const hf_buffer *buffer);

/* Drops the first `size` bytes; `size` must not exceed the content's size. */
void hf_buffer_consume(hf_buffer *buffer, size_t size);

void hf_buffer_clear(hf_buffer *buffer);

void hf_buffer_free(hf_buffer *buffer);

#endif
