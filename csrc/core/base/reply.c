#include "base/reply.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

static void *attach(const redisReadTask *task, hf_reply *reply) {
    if (reply && task->parent) {
        hf_reply *parent = task->parent->obj;
        assert(task->idx >= 0 && (size_t)task->idx < parent->size);
        parent->elements[task->idx] = reply;
    }
    return reply;
}

/* Counts part of a reply against the reader's limits before it is created. Returns false if that
 * exceeds a limit. */
static bool charge(const redisReadTask *task, size_t elements, size_t bytes) {
    hf_reader *reader = task->privdata;
    if (bytes > reader->bytes_left) reader->excess = HF_REPLY_TOO_LARGE "4 MiB";
    if (elements > reader->elements_left)
        reader->excess = HF_REPLY_TOO_LARGE "the elements allowed";
    if (reader->excess) return false;
    reader->elements_left -= elements;
    reader->bytes_left -= bytes;
    return true;
}

static hf_reply *new_reply(hf_reply_type type) {
    hf_reply *reply = malloc(sizeof *reply);
    if (reply) *reply = (hf_reply){.type = type};
    return reply;
}

static hf_reply_type type_of(int type) {
    if (type == REDIS_REPLY_ERROR) return HF_REPLY_ERROR;
    return type == REDIS_REPLY_STATUS ? HF_REPLY_STATUS : HF_REPLY_STRING;
}

static void *create_string(const redisReadTask *task, char *bytes, size_t size) {
    hf_reply *reply = charge(task, 0, size) ? new_reply(type_of(task->type)) : NULL;
    if (!reply) return NULL;
    reply->string = malloc(size + 1);
    if (!reply->string) {
        free(reply);
        return NULL;
    }
    memcpy(reply->string, bytes, size);
    reply->string[size] = '\0';
    reply->size = size;
    return attach(task, reply);
}

#if HIREDIS_MAJOR >= 1
static void *create_array(const redisReadTask *task, size_t count) {
#else
static void *create_array(const redisReadTask *task, int signed_count) {
    size_t count = signed_count < 0 ? 0 : (size_t)signed_count;
#endif
    hf_reply *reply = charge(task, count, 0) ? new_reply(HF_REPLY_ARRAY) : NULL;
    if (!reply) return NULL;
    reply->elements = calloc(count ? count : 1, sizeof *reply->elements);
    if (!reply->elements) {
        free(reply);
        return NULL;
    }
    reply->size = count;
    return attach(task, reply);
}

static void *create_integer(const redisReadTask *task, long long value) {
    hf_reply *reply = new_reply(HF_REPLY_INTEGER);
    if (reply) reply->integer = value;
    return attach(task, reply);
}

static void *create_nil(const redisReadTask *task) {
    return attach(task, new_reply(HF_REPLY_NIL));
}

#if HIREDIS_MAJOR >= 1
/* For RESP3, which the session never requests. Without these functions, hiredis would return
 * numbers instead of objects. */
static void *create_double(const redisReadTask *task, double value, char *text, size_t size) {
    (void)value;
    return create_string(task, text, size);
}

static void *create_bool(const redisReadTask *task, int value) {
    return create_integer(task, value);
}
#endif

static void free_object(void *reply) {
    hf_reply_free(reply);
}

static redisReplyObjectFunctions FUNCTIONS = {
    .createString = create_string,
    .createArray = create_array,
    .createInteger = create_integer,
    .createNil = create_nil,
#if HIREDIS_MAJOR >= 1
    .createDouble = create_double,
    .createBool = create_bool,
#endif
    .freeObject = free_object,
};

static void reset_limits(hf_reader *reader) {
    reader->elements_left = reader->max_elements;
    reader->bytes_left = HF_REPLY_MAX_BYTES;
}

void hf_reader_set_max_elements(hf_reader *reader, size_t elements) {
    reader->max_elements = elements;
    reset_limits(reader);
}

bool hf_reader_open(hf_reader *reader) {
    reader->redis = redisReaderCreateWithFunctions(&FUNCTIONS);
    if (!reader->redis) return false;
    reader->redis->privdata = reader;
    reader->max_elements = HF_REPLY_MAX_ELEMENTS;
    reader->excess = NULL;
    reset_limits(reader);
    return true;
}

void hf_reader_close(hf_reader *reader) {
    if (reader->redis) redisReaderFree(reader->redis);
    reader->redis = NULL;
}

bool hf_reader_feed(hf_reader *reader, const char *bytes, size_t size) {
    return redisReaderFeed(reader->redis, bytes, size) == REDIS_OK;
}

bool hf_reader_next(hf_reader *reader, hf_reply **reply) {
    void *object = NULL;
    *reply = NULL;
    if (redisReaderGetReply(reader->redis, &object) != REDIS_OK) return false;
    if (!object && reader->redis->len - reader->redis->pos > HF_REPLY_MAX_BYTES)
        reader->excess = HF_REPLY_TOO_LARGE "4 MiB";
    if (!object) return !reader->excess;
    reset_limits(reader);
    *reply = object;
    return true;
}

void hf_reply_free(hf_reply *reply) {
    if (!reply) return;
    if (reply->type == HF_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->size; i++) hf_reply_free(reply->elements[i]);
        free(reply->elements);
    }
    free(reply->string);
    free(reply);
}

static bool copy_string(hf_reply *copy, const hf_reply *reply) {
    copy->string = malloc(reply->size + 1);
    if (!copy->string) return false;
    memcpy(copy->string, reply->string, reply->size + 1);
    copy->size = reply->size;
    return true;
}

static bool copy_elements(hf_reply *copy, const hf_reply *reply) {
    copy->elements = calloc(reply->size ? reply->size : 1, sizeof *copy->elements);
    if (!copy->elements) return false;
    for (; copy->size < reply->size; copy->size++) {
        copy->elements[copy->size] = hf_reply_copy(reply->elements[copy->size]);
        if (!copy->elements[copy->size]) return false;
    }
    return true;
}

hf_reply *hf_reply_copy(const hf_reply *reply) {
    hf_reply *copy = new_reply(reply->type);
    if (!copy) return NULL;
    copy->integer = reply->integer;
    bool copied = true;
    if (reply->string) copied = copy_string(copy, reply);
    if (reply->type == HF_REPLY_ARRAY) copied = copy_elements(copy, reply);
    if (copied) return copy;
    hf_reply_free(copy);
    return NULL;
}

static const hf_reply *element(const hf_reply *reply, size_t i) {
    if (!reply || reply->type != HF_REPLY_ARRAY || i >= reply->size) return NULL;
    return reply->elements[i];
}

long long hf_reply_integer_at(const hf_reply *reply, size_t i, long long fallback) {
    const hf_reply *item = element(reply, i);
    if (item && item->type == HF_REPLY_INTEGER) return item->integer;
    if (item && item->type == HF_REPLY_STRING && item->size > 0) {
        char *end;
        long long value = strtoll(item->string, &end, 10);
        if (*end == '\0') return value;
    }
    return fallback;
}

hf_slice hf_reply_string_at(const hf_reply *reply, size_t i) {
    const hf_reply *item = element(reply, i);
    if (item && item->string) return (hf_slice){item->string, item->size};
    return (hf_slice){"", 0};
}
