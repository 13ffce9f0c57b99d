/*
 * Makes chosen system calls of the driver fail. The program is linked with -Wl,--wrap for each call
 * that syserr.c names. Any thread may make the calls; one thread chooses.
 */
#ifndef SYSERR_H
#define SYSERR_H

#include <stdbool.h>

typedef enum syserr_fault {
    SYSERR_NONE,
    SYSERR_INTERRUPTED, /* EINTR; a connect continues in the background */
    SYSERR_NOT_READY,   /* EAGAIN; a poll ends early */
    SYSERR_SHORT,       /* one byte is sent or received */
    SYSERR_BROKEN,      /* the error of a lost connection, or of a resource that has run out */
    SYSERR_ENDED,       /* the end of the stream */
    SYSERR_FAULTS
} syserr_fault;

extern const char *const syserr_names[SYSERR_FAULTS];

/* Makes only the nth call from now on that can have the fault have it. SYSERR_NONE: none has. */
void syserr_inject(syserr_fault fault, unsigned nth);

/* Returns the name of the call that had the fault, or NULL if there were fewer calls. */
const char *syserr_injected(void);

/* For a call that a program wraps itself: returns whether this one fails, with errno. */
bool syserr_fails(const char *call, int error);

/* Exempts the calls of this thread, which are not the driver's, from faults. */
void syserr_exempt_thread(void);

#endif
