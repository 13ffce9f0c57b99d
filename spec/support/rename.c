/* Preloaded into the command, makes each renameat take a fifth of a second longer, or fail if the
 * variable HOLDFAST_NO_RENAME is set. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__attribute__((visibility("default"))) int renameat(int from_directory, const char *from,
                                                    int to_directory, const char *to) {
    static int (*real)(int, const char *, int, const char *);
    struct timespec delay = {.tv_nsec = 200000000};
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "renameat");
    if (getenv("HOLDFAST_NO_RENAME")) {
        errno = EMFILE;
        return -1;
    }
    nanosleep(&delay, NULL);
    return real(from_directory, from, to_directory, to);
}
