/* Preloaded into a server, sets its wall clock ahead by the number of seconds in the file named by
 * HOLDFAST_CLOCK. Preloaded into a client, also sets ahead the clock that includes time suspended.
 * It does not change how long system calls sleep. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void) {
    long seconds = 0;
    const char *path = getenv("HOLDFAST_CLOCK");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
    fclose(file);
    return seconds;
}

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    now->tv_sec += ahead();
    return result;
}

#ifdef CLOCK_BOOTTIME
PUBLIC int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_BOOTTIME) now->tv_sec += ahead();
    return result;
}
#endif

PUBLIC time_t time(time_t *seconds) {
    struct timeval now;
    gettimeofday(&now, NULL);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
