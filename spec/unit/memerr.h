/*
 * Makes chosen allocations fail. The program is linked with -Wl,--wrap for malloc, calloc, realloc,
 * strdup and free, and with the static hiredis, so that the allocations of both are counted. Any
 * thread may allocate; one thread chooses.
 */
#ifndef MEMERR_H
#define MEMERR_H

#include <stdbool.h>
#include <stddef.h>

/* Makes only the nth allocation from now on fail; 0: none fails. */
void memerr_fail(unsigned long nth);

/* Returns the number of allocations since the last memerr_fail. */
unsigned long memerr_count(void);

/* Returns the number of allocations that have not been freed. */
long memerr_live(void);

/* Returns whether the chosen allocation was made, and failed. */
bool memerr_failed(void);

/* The same; and no allocation fails from now on. */
bool memerr_end(void);

/* Runs a block with nth = 1, 2, 3 ... until its last memerr_end has returned false; that of at
 * least `least` rounds must have returned true. Each round begins as a test does. */
#define EACH_FAILURE(nth, least)                                                                   \
    for (unsigned long nth = memerr_first();                                                       \
         memerr_goes_on() ? check_begin_case() : (CHECK(memerr_failures() >= (least)), 0); nth++)

unsigned long memerr_first(void);
bool memerr_goes_on(void);
unsigned long memerr_failures(void);

/* Calls operation(context) with its 1st, 2nd, 3rd ... allocation failing until it succeeds without
 * any failure. The operation returns true for success, and must free all that it allocated in any
 * case; it may succeed although an allocation failed. Returns how many allocations failed, or -1 if
 * the operation needed more than `limit` or did not succeed although none failed. */
long memerr_until_success(bool (*operation)(void *context), void *context, long limit);

#endif
