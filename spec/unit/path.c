/* Prints which functions run on the paths of docs/explanation/architecture.md. tools/check_path.lua
 * builds this with -finstrument-functions and reads it: "hf_client_begin <address>", then for each
 * path "path <name>", and "+ <address>" and "-" where a function begins and ends. */
#include "drive.h"

#define UNPRINTED __attribute__((no_instrument_function))

void __cyg_profile_func_enter(void *function, void *site) UNPRINTED;
void __cyg_profile_func_exit(void *function, void *site) UNPRINTED;

static bool printing;

void __cyg_profile_func_enter(void *function, void *site) {
    (void)site;
    if (printing) printf("+ %p\n", function);
}

void __cyg_profile_func_exit(void *function, void *site) {
    (void)function;
    (void)site;
    if (printing) puts("-");
}

static UNPRINTED hf_op *acquire_free(hf_time now) {
    hf_op *op = begin_acquire(0, now);
    feed_calls(":72\r\n", now + HF_MS); /* the token alone */
    return op;
}

static UNPRINTED hf_op *acquire_by_grant(hf_time now) {
    char grant[128];
    hf_op *op = wait_in_queue(HF_SECOND, now);
    snprintf(grant, sizeof grant, GRANT("%llu", "99"), (unsigned long long)wait_number_of(op));
    feed_message(grant, now + 5 * HF_MS);
    return op;
}

static UNPRINTED hf_op *release(hf_time now) {
    hf_op *op = begin(HF_OP_RELEASE, now);
    feed_calls(":1\r\n", now + HF_MS);
    return op;
}

static UNPRINTED void take(const char *name, hf_op *(*path)(hf_time), hf_time now) {
    if (name) printf("path %s\n", name);
    printing = name != NULL;
    hf_op *op = path(now);
    CHECK_OUTCOME(op, "ok");
    hf_op_end(op, now + 9 * HF_MS);
    printing = false;
}

TEST(the_paths) {
    printf("hf_client_begin %p\n", (void *)(uintptr_t)hf_client_begin);
    rig_begin();
    take(NULL, acquire_free, AT(0)); /* connects */
    take("release", release, AT(10));
    take("acquire", acquire_free, AT(20));
    take(NULL, release, AT(30));
    take("grant", acquire_by_grant, AT(40));
    rig_end(AT(60));
}

CHECK_MAIN
