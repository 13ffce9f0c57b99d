/* A server's reply, read by hiredis's reader with stricter limits.
 *
 * A reply owns its strings and elements. Strings end with a NUL that `size` does not include. */
#ifndef HF_REPLY_H
#define HF_REPLY_H

#include "base/types.h"

/* Limits over all levels of one reply. */
#define HF_REPLY_MAX_ELEMENTS 4096 /* unless the reader allows more */
#define HF_REPLY_MAX_BYTES ((size_t)4 << 20)

/* How the reason for rejecting a reply beyond these limits begins. */
#define HF_REPLY_TOO_LARGE "the reply is larger than "

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
    size_t size;                /* the size of the string in bytes, or the number of elements */
    struct hf_reply **elements; /* HF_REPLY_ARRAY */
} hf_reply;

typedef struct hf_reader {
    struct redisReader *redis; /* hiredis's reader */
    size_t max_elements;
    size_t elements_left, bytes_left; /* how many more the current reply may contain */
    const char *excess;               /* why the reply is too large, a static string; or NULL */
} hf_reader;

/* Initialises the reader. Returns false when out of memory. It must not move in memory while
 * open. */
bool hf_reader_open(hf_reader *reader);

void hf_reader_close(hf_reader *reader);

/* Sets the maximum number of elements in the next replies. Call this only between replies. */
void hf_reader_set_max_elements(hf_reader *reader, size_t elements);

/* Passes bytes to the reader. Returns false when out of memory. */
bool hf_reader_feed(hf_reader *reader, const char *bytes, size_t size);

/* Sets *reply to the next whole reply, or to NULL if more bytes are needed. Returns false if the
 * bytes are not valid protocol or exceed a limit (`excess` is then set), or when out of memory;
 * after that, the reader can only be closed. */
bool hf_reader_next(hf_reader *reader, hf_reply **reply);

void hf_reply_free(hf_reply *reply);

/* Returns a deep copy, or NULL when out of memory. */
hf_reply *hf_reply_copy(const hf_reply *reply);

/* Returns element `i` of an array if it is an integer or a string of decimal digits, or
 * `fallback`. */
long long hf_reply_integer_at(const hf_reply *reply, size_t i, long long fallback);

/* Returns the string of element `i` of an array, which may be a status or an error, or an empty
 * slice if there is none. */
hf_slice hf_reply_string_at(const hf_reply *reply, size_t i);

#endif
