/* A server's reply, read by hiredis's reader with our own limits.
 *
 * A reply owns its strings and elements. Strings are terminated by a NUL that `size` does not count. */
#ifndef HF_REPLY_H
#define HF_REPLY_H

#include <hiredis/read.h>

#include "types.h"

/* Over all levels of one reply. */
#define HF_REPLY_MAX_ELEMENTS 4096 /* unless the reader is told to allow more */
#define HF_REPLY_MAX_BYTES ((size_t)4 << 20)

typedef enum hf_reply_type {
    HF_REPLY_NIL,
    HF_REPLY_INTEGER,
    HF_REPLY_STRING,
    HF_REPLY_STATUS,
    HF_REPLY_ERROR,
    HF_REPLY_ARRAY
} hf_reply_type;

typedef struct hf_reply {
    hf_reply_type type;
    long long integer;          /* HF_REPLY_INTEGER */
    char *string;               /* HF_REPLY_STRING, _STATUS, _ERROR */
    size_t size;                /* of the string, or number of elements */
    struct hf_reply **elements; /* HF_REPLY_ARRAY */
} hf_reply;

/* What one reply may still take; begins anew with each reply. */
typedef struct hf_reader {
    redisReader *redis;
    size_t max_elements;
    size_t elements, bytes;
} hf_reader;

/* False when out of memory. The reader must not move while it is open. */
bool hf_reader_open(hf_reader *reader);

void hf_reader_close(hf_reader *reader);

/* From the next reply on. Not in the middle of one. */
void hf_reader_allow(hf_reader *reader, size_t elements);

/* False when out of memory. */
bool hf_reader_feed(hf_reader *reader, const char *bytes, size_t size);

/* The next whole reply in *reply, NULL when more bytes are needed. False: the bytes are no protocol, or break a limit,
 * or memory is out; the reader is of no more use. */
bool hf_reader_next(hf_reader *reader, hf_reply **reply);

void hf_reply_free(hf_reply *reply);

/* A copy that owns all of its own. NULL when out of memory. */
hf_reply *hf_reply_copy(const hf_reply *reply);

/* Element `i` of an array as an integer; also of a decimal string. `otherwise` when it is none. */
long long hf_reply_integer_at(const hf_reply *reply, size_t i, long long otherwise);

/* Element `i` of an array as a string; empty when it is none. */
hf_slice hf_reply_string_at(const hf_reply *reply, size_t i);

#endif
