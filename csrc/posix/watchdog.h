/* The watchdog: the thread that renews a blocking client's holds. hf_driver_start_watchdog in
 * driver.h starts it. */
#ifndef HF_WATCHDOG_H
#define HF_WATCHDOG_H

#include "driver.h"

/* Wakes the watchdog if something is due before it would wake up. Call it between enter and
 * leave. */
void hf_watchdog_wake(hf_driver *driver);

/* Ends the watchdog if it is running, and waits up to `timeout` for the client to be quiet. Call it
 * between enter and leave; it releases the mutex while it waits. */
void hf_watchdog_join(hf_driver *driver, hf_time timeout);

#endif
