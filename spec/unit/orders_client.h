/* Clients of the server of orders_server.h, each with one thread that calls it. */
#ifndef ORDERS_CLIENT_H
#define ORDERS_CLIENT_H

#include "client.h"
#include "drive.h"
#include "driver.h"
#include "orders_server.h"

#define K "k"

/* A client and the thread that calls it. */
typedef struct caller {
    const char *name;
    hf_driver *driver;
    order_thread *thread;
} caller;

#define CALLERS 2

static caller callers[CALLERS];
static const char *const CALLER_NAMES[CALLERS] = {"A", "B"};
static const char *const WATCHDOG_NAMES[CALLERS] = {"watchdog A", "watchdog B"};

static UNUSED void open_client(caller *of, const char *host) {
    size_t index = (size_t)(of - callers);
    unsigned char entropy[24] = {(unsigned char)(index + 1)};
    hf_client_config config = {
        .session = {.connect_timeout = HF_SECOND, .command_timeout = HF_SECOND, .name = "unit"},
        .grant_lease = 2 * HF_SECOND,
        .renewer = HF_LINK_RENEWER};
    snprintf(config.session.server.host, sizeof config.session.server.host, "%s", host);
    snprintf(config.session.server.label, sizeof config.session.server.label, "here");
    config.session.server.port = 1;
    of->name = CALLER_NAMES[index];
    of->driver = hf_driver_new(&config, entropy);
    ORDER_CHECK(of->driver, "there is no memory for a client");
    hf_driver_introduce(of->driver, of->name);
    order_system_name(of->driver, WATCHDOG_NAMES[index]);
}

static UNUSED void close_client(caller *of) {
    hf_driver *driver = of->driver;
    hf_driver_close(driver, HF_SECOND);
    of->driver = NULL;
    hf_driver_unref(driver);
}

static bool is_signalled(void *context, bool signalled) {
    unsigned *handled = context, now = order_handled(order_current());
    bool ran = now > *handled;
    *handled = now;
    return signalled || ran;
}

typedef enum manner { RUNS, RUNS_INTERRUPTIBLY, SENDS } manner;

static hf_code call(caller *of, const hf_op_spec *spec, manner how) {
    hf_driver *driver = of->driver;
    unsigned handled = order_handled(order_current());
    hf_driver_enter(driver);
    bool watched = driver->closed || hf_driver_start_watchdog(driver);
    ORDER_CHECK(watched, "there is no watchdog");
    hf_op *op = how == SENDS ? hf_driver_send(driver, spec, is_signalled, &handled)
                             : hf_driver_run(driver, spec, how == RUNS_INTERRUPTIBLY, is_signalled,
                                             &handled);
    ORDER_CHECK(op, "there is no memory for a call");
    hf_code code = hf_op_is_detached(op) ? HF_OK : hf_op_code(op);
    if (!hf_op_is_detached(op)) hf_op_end(op, hf_now());
    hf_driver_leave(driver);
    return code;
}

static hf_code call_on(caller *of, const char *key, hf_op_spec spec, manner how) {
    const hf_kind *kind = hf_kind_by_name("lock");
    hf_names *names = hf_client_names(of->driver->client, kind, hf_slice_of(key));
    spec.lock_kind = kind;
    spec.names = names;
    spec.caller = hf_slice_of("me");
    spec.blocks_callers = true;
    hf_code code = call(of, &spec, how);
    hf_names_delete(names);
    return code;
}

static UNUSED hf_code acquire(caller *of, const char *key, hf_time wait, hf_time lease,
                              manner how) {
    hf_op_spec spec = {.kind = HF_OP_ACQUIRE, .lease = lease, .wait = wait, .renewed = true};
    return call_on(of, key, spec, how);
}

static UNUSED hf_code release(caller *of, const char *key, manner how) {
    return call_on(of, key, (hf_op_spec){.kind = HF_OP_RELEASE}, how);
}

static UNUSED hf_code rest(caller *of, hf_time span) {
    return call_on(of, K, (hf_op_spec){.kind = HF_OP_PAUSE, .wait = span}, RUNS);
}

#define CHECK_CODE(what, want) check_code(#what, what, want)

static UNUSED void check_code(const char *what, hf_code code, hf_code want) {
    ORDER_CHECK(code == want, "%s is %s", what, hf_code_name(code));
}

#endif
