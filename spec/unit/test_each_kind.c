/* What each kind that has a lease owes its holder: renewals by the owner's word alone where that is
 * asked for, replicas that confirm, and a lock that is given back whatever happens. */

#include "rig.h"

RIG_BEGINS

static hf_client_config config;

/* → whether it has a lease: what is renewed */
static bool has_lease(const hf_kind *kind) {
    return hf_kind_program(kind, HF_VERB_RENEW) != NULL;
}

static void begin_kind(const hf_kind *kind) {
    rig_begin_with(&config);
    hf_names_free(&rig.names);
    while (!hf_names_make_on(&rig.names, hf_slice_of("k"), kind)) continue;
}

static hf_op *begin_op(hf_op_kind what, const hf_kind *kind, hf_time now) {
    hf_op_spec spec = spec_of(what);
    spec.lock_kind = kind;
    spec.owner = (hf_slice){"", 0};
    if (kind->has_permits) spec.permits = 1;
    return begin_spec(&spec, now);
}

static hf_hold *take(const hf_kind *kind, const char *reply) {
    hf_op *op = begin_op(HF_OP_ACQUIRE, kind, AT(0));
    sent_over(CALLS);
    end_with(op, reply, AT(0));
    return hf_holds_find(holds_of(&rig.client), kind, hf_slice_of("k"), hf_slice_of("me"));
}

/* → whether a link sends the command that gives it back */
static bool gives_back(const hf_kind *kind) {
    bool given = false;
    for (int link = 0; link < HF_LINKS; link++) {
        const char *text = output_of(link_of((hf_link)link));
        given |= strstr(text, hf_kind_program(kind, HF_VERB_LEAVE)->name) != NULL;
        given |= strstr(text, "release_all") != NULL;
    }
    return given;
}

#define EACH_LEASED(kind)                                                                          \
    for (const hf_kind *const *each = hf_kinds, *kind; (kind = *each); each++)                     \
        if (has_lease(kind))

/* The queue has a mark for a grant that is not confirmed. */
TEST(an_unconfirmed_grant_of_each_kind_of_lock_is_removed_from_the_queue_when_it_ends) {
    EACH_LEASED(kind) {
        config = rig_config();
        config.needs_approval = true;
        begin_kind(kind);
        hf_hold *hold = take(kind, ACQUIRED);
        set_granted(hold, true);
        set_wait(hold, number_of(hold));
        rig_sleep(AT(0), AT(31000)), CHECK(is_lost(hold));
        CHECK_OR(gives_back(kind), "%s leaves its mark", kind->name);
    }
}

TEST(closing_a_client_releases_each_kind_of_lock) {
    EACH_LEASED(kind) {
        config = rig_config();
        begin_kind(kind);
        take(kind, ACQUIRED);
        close_rig(AT(1));
        rig_sleep(AT(1), AT(10)), CHECK_OR(gives_back(kind), "%s stays", kind->name);
    }
}

CHECK_MAIN
