/*
 * Makes chosen allocations fail. The program is linked with -Wl,--wrap for malloc, calloc, realloc,
 * strdup and free, and with the static hiredis, so that the allocations of both are counted. Any
 * thread may allocate; one thread chooses.
 */
#ifndef MEMERR_H
#define MEMERR_H

#include <stdbool.h>
#include <stddef.h>

/* The nth allocation from now on fails, and only that one; 0: none does. */
void memerr_fail(unsigned long nth);

/* Allocations since the last memerr_fail. */
unsigned long memerr_count(void);

/* Allocations that have not been freed. */
long memerr_live(void);

/* Whether the chosen allocation came and failed. */
bool memerr_failed(void);

/*
 * Calls operation(context) with its 1st, 2nd, 3rd ... allocation failing until it succeeds without
 * any failure. The operation returns true for success and must free all it took either way; to
 * succeed although an allocation failed is its right. Returns how many allocations were made to
 * fail, -1 if it still needed more than `limit` or did not succeed when nothing failed.
 */
long memerr_until_success(bool (*operation)(void *context), void *context, long limit);

#endif
