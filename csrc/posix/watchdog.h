/* The watchdog: the thread that renews what a blocking client holds. hf_driver_watch in driver.h
 * starts it. */
#ifndef HF_WATCHDOG_H
#define HF_WATCHDOG_H

#include "driver.h"

/* Ends its sleep if something is due before it would wake. Between enter and leave. */
void hf_watchdog_wake(hf_driver *driver);

/* Ends it; waits at most `patience` for the client to be quiet. Does nothing if it does not run.
 * Between enter and leave; releases the mutex meanwhile. */
void hf_watchdog_join(hf_driver *driver, hf_time patience);

#endif
