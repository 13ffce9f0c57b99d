/* Deliberate defects, by which the simulator shows that it would find such. They exist only where HF_DEFECTS is
 * defined, in the build of spec/sim/defects.lua; everywhere else HF_DEFECT(name) is false. */
#ifndef HF_DEFECTS_H
#define HF_DEFECTS_H

#include <stdbool.h>

#ifdef HF_DEFECTS

#define HF_DEFECT_LIST(X)                                                                                              \
    X(NONE)                                                                                                            \
    X(NO_VALIDITY)        /* a hold is believed in after its lease */                                                  \
    X(LEASE_FROM_REPLY)   /* the lease counts from the reply */                                                        \
    X(NO_DRIFT)           /* clocks are taken to run alike */                                                          \
    X(GRANT_UNBOUND)      /* a grant is believed for a whole lease from when it is heard */                            \
    X(STALE_GRANT)        /* a grant that may be an old one is believed */                                             \
    X(NO_LOOK_SUBSCRIBED) /* no second question once the channel is heard */                                           \
    X(BUSY_LOOK)          /* a waiter asks without end */                                                              \
    X(DEAF)               /* grants are not heard */                                                                   \
    X(NO_UNDO)            /* what an acquire may have left is left */                                                  \
    X(NO_END_OF_WAIT)     /* a wait does not end */                                                                    \
    X(LOSS_IGNORED)       /* a renewal that was refused counts */                                                      \
    X(RENEWAL_AFTER)      /* a released hold is renewed */                                                             \
    X(NO_RENEWAL)         /* nothing is renewed after the first time */                                                \
    X(COUNT_TWICE)        /* a re-entry counts two */                                                                  \
    X(NO_LOGOUT)          /* the events link stays open */                                                             \
    X(NO_WORD)            /* a hold is renewed without its owner's word */                                             \
    X(WORD_STAYS)         /* one word of the owner is good for ever */                                                 \
    X(DEAF_TO_WORD)       /* the owner's word is not heard */                                                          \
    X(STRAY_KEPT)         /* a grant for a lost hold is kept */                                                        \
    X(DEAF_TO_ANSWER)     /* what a given-up acquire of a shared owner took is not known */                            \
    X(ALL_NO_UNDO)        /* what an acquire of several may have left is left */                                       \
    X(ALL_FROM_REPLY)     /* the leases of several count from the reply */                                             \
    X(ALL_BEHIND)         /* a release of several that failed is forgotten */                                          \
    X(QUORUM_LESS_ONE)    /* one vote less than a majority is enough */                                                \
    X(NO_WRITE_BACK)      /* the token of a quorum stays with the server that gave it */                               \
    X(NO_GUARD)           /* a server that has just restarted has a vote */                                            \
    X(MINORITY_KEPT)      /* what a lost ballot got is not given back */                                               \
    X(YES_UNCOUNTED)      /* …what was not counted yet is not */                                                     \
    X(LATE_YES_KEPT)      /* a yes that nobody wants any more is kept */                                               \
    X(FIRST_END)          /* a hold of a quorum ends with its last part */                                             \
    X(TOKEN_LOWEST)       /* the lowest token of a quorum is the hold's */                                             \
    X(RAISE_UNHEARD)      /* a token counts as written back once that is sent */                                       \
    X(RECORD_UNTOLD)      /* a server without the lock counts as one that has the record */

#define HF_DEFECT_ENTRY(name) HF_DEFECT_##name,
typedef enum hf_defect { HF_DEFECT_LIST(HF_DEFECT_ENTRY) HF_DEFECT_COUNT } hf_defect;

extern hf_defect hf_defect_on;

#define HF_DEFECT(name) (hf_defect_on == HF_DEFECT_##name)
#else
#define HF_DEFECT(name) false
#endif

#endif
