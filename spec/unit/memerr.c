#include "memerr.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);

static atomic_ulong chosen, seen;
static atomic_long live;

static bool fails(void) {
    unsigned long nth = atomic_fetch_add(&seen, 1) + 1;
    return nth == atomic_load(&chosen);
}

static void *made(void *block) {
    if (block) atomic_fetch_add(&live, 1);
    return block;
}

void memerr_fail(unsigned long nth) {
    chosen = nth;
    seen = 0;
}

unsigned long memerr_count(void) {
    return seen;
}

bool memerr_failed(void) {
    return chosen != 0 && seen >= chosen;
}

static unsigned long failures; /* of memerr_end since memerr_first */
static bool goes_on;

bool memerr_end(void) {
    bool failed = memerr_failed();
    memerr_fail(0);
    failures += failed;
    return goes_on = failed;
}

unsigned long memerr_first(void) {
    failures = 0;
    goes_on = true;
    return 1;
}

bool memerr_goes_on(void) {
    if (failures == 1000) abort();
    return goes_on;
}

unsigned long memerr_failures(void) {
    return failures;
}

long memerr_until_success(bool (*operation)(void *context), void *context, long limit) {
    for (long nth = 1; nth <= limit; nth++) {
        memerr_fail((unsigned long)nth);
        bool success = operation(context);
        if (!memerr_end()) return success ? nth - 1 : -1;
    }
    return -1;
}

long memerr_live(void) {
    return live;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : made(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : made(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size) {
    if (fails()) return NULL;
    void *block = __real_realloc(old, size);
    return old ? block : made(block);
}

void __wrap_free(void *block) {
    if (block) atomic_fetch_sub(&live, 1);
    __real_free(block);
}

char *__wrap_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}
