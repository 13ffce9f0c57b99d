/* Mutants, by which the simulator shows that it finds such errors. They exist only where
 * HF_MUTANTS is defined, in the build of spec/sim/mutants.lua; everywhere else HF_MUTANT(name) is
 * false. */
#ifndef HF_MUTANTS_H
#define HF_MUTANTS_H

#include <stdbool.h>

#ifdef HF_MUTANTS

#define HF_MUTANT_LIST(X)                                                                          \
    X(NONE)                                                                                        \
    X(NO_VALIDITY)        /* a hold is believed in after its lease */                              \
    X(LEASE_FROM_REPLY)   /* the lease counts from the reply */                                    \
    X(NO_DRIFT)           /* clocks are taken to run alike */                                      \
    X(GRANT_UNBOUND)      /* a grant is believed for a whole lease from when it is heard */        \
    X(STALE_GRANT)        /* a grant that may be an old one is believed */                         \
    X(SAME_OWNER)         /* all holds of a caller have one owner */                               \
    X(CALLERS_OWNER)      /* …and their waits name it, of locks, mutexes and guards */           \
    X(PUT_OFF)            /* a check puts off the confirmation of a grant, and renews nothing */   \
    X(NO_LOOK_SUBSCRIBED) /* no second question once the channel is heard */                       \
    X(DEAF_TO_JAVA)       /* a fair lock's waiter has no channel of its own */                     \
    X(BUSY_LOOK)          /* a waiter asks without end */                                          \
    X(DEAF)               /* grants are not heard */                                               \
    X(EARLY_UNHEARD)      /* …nor is one that overtakes the reply to its enqueue */              \
    X(NO_UNDO)            /* what an acquire may have left is left */                              \
    X(NO_END_OF_WAIT)     /* a wait does not end */                                                \
    X(LOSS_IGNORED)       /* a renewal that was refused counts */                                  \
    X(RENEWAL_AFTER)      /* a released hold is renewed */                                         \
    X(NO_RENEWAL)         /* nothing is renewed after the first time */                            \
    X(MAX_HOLD_IGNORED)   /* a renewal does not heed max_hold */                                   \
    X(MAX_HOLD_ANEW)      /* …but a re-entry begins it anew */                                   \
    X(MAX_HOLD_LENT)      /* …or the next caller of a kept lock has what is left of it */        \
    X(COLLECTED_ENDS)     /* what is collected ends with its own lease */                          \
    X(COUNT_TWICE)        /* a re-entry counts two */                                              \
    X(NO_LOGOUT)          /* the events link stays open */                                         \
    X(NO_WORD)            /* a hold is renewed without its owner's approval */                     \
    X(WORD_STAYS)         /* one word of the owner is good for ever */                             \
    X(DEAF_TO_WORD)       /* the owner's approval is not heard */                                  \
    X(DEAF_TO_ANSWER)     /* what a given-up acquire of a shared owner took is not known */        \
    X(ALL_NO_UNDO)        /* what an acquire of several may have left is left */                   \
    X(ALL_FROM_REPLY)     /* the leases of several count from the reply */                         \
    X(ALL_BEHIND)         /* a release of several that failed is forgotten */                      \
    X(QUORUM_LESS_ONE)    /* one vote less than a majority is enough */                            \
    X(NO_WRITE_BACK)      /* the token of a quorum stays with the server that gave it */           \
    X(NO_GUARD)           /* a server that has just restarted has a vote */                        \
    X(MINORITY_KEPT)      /* what a lost round got is not rolled back */                           \
    X(YES_UNCOUNTED)      /* …what was not counted yet is not */                                 \
    X(LATE_YES_KEPT)      /* a yes that nobody wants any more is kept */                           \
    X(BUSY_ANYHOW)        /* a wait that ends in a pause is busy, whatever the servers said */     \
    X(FIRST_END)          /* a hold of a quorum ends with its last part */                         \
    X(TOKEN_LOWEST)       /* the lowest token of a quorum is the hold's */                         \
    X(NOT_FOLLOWING)      /* an acquire behind a release of its caller is busy by that */          \
    X(ENTRY_ABANDONED)    /* what is abandoned while its owner enters it again is gone for the     \
                             acquire */                                                            \
    X(GAP_UNSEEN)         /* a yes that comes late joins a majority that has ended meanwhile */    \
    X(REFUSAL_UNNOTED)    /* a server that has another owner is asked again with a renewal only */ \
    X(STRAYS_FORGOTTEN)   /* a dropped handle releases what others have released for it */         \
    X(RELEASE_UNNOTED)    /* a release that nobody comes for leaves its entry to the handle */     \
    X(ALL_ABANDONED)      /* what one caller of a handle abandons is gone for all of them */       \
    X(LOST_ENTRY_KEPT)    /* a lost hold stays when its last release has failed */                 \
    X(FORCED_LENT)        /* what was taken by force is lent to the next caller */                 \
    X(RETURN_PASSED)      /* an acquire does not wait for the return of what was kept */           \
    X(LATE_ENTRY_KEPT)    /* a lost hold stays when a late reply ends its last release */          \
    X(RELEASES_UNCOUNTED) /* what is abandoned in a quorum forgets the releases under way */       \
    X(LAST_ENTRY_KEPT)    /* a quorum's hold without entries stays */                              \
    X(RECORD_UNTOLD)      /* a server without the lock counts as one that has the record */        \
    X(UNCONFIRMED)        /* what no replica has confirmed counts */                               \
    X(FAR_UNHEARD)        /* what Sentinels say that are far away is not waited for */             \
    X(MINORITY_MOVES)     /* one Sentinel is enough to move from a master that serves */           \
    X(NEVER_MOVES)        /* a master that serves is not asked about */                            \
    X(ASKING_UNSAID)      /* ASK is followed without ASKING */                                     \
    X(LEASE_UNNAMED)      /* a renewal does not name where a reader's lease stands */              \
    X(LEAVE_ANYHOW)       /* what undoes an acquire may overtake it */                             \
    X(LATCH_BELIEVES)     /* a message opens a latch */                                            \
    X(LATCH_DEAF)         /* …or is not heard */                                                 \
    X(NO_LAST_LOOK)       /* the wait for a latch ends with what was read before */                \
    X(NOT_PASSED_ON)      /* who is served does not tell the next waiter of its client */          \
    X(RELEASE_DROPPED)    /* a release of permits without a reply does not go on */                \
    X(NOTE_FORGOTTEN)     /* the note of a call goes although a copy of that may come */           \
    X(KEEPS_ON)           /* a kept lock is never returned while it is used */                     \
    X(WISH_UNHEARD)       /* a client that keeps a lock does not hear that others want it */       \
    X(LENT_ANEW)          /* a kept lock is lent for a whole lease */                              \
    X(TOKEN_AGAIN)        /* the callers of a kept lock have one token */                          \
    X(SHORT_UNNOTICED)    /* the end of a lock is not moved when its lease becomes short */        \
    X(SHORT_UNBACKED)     /* …and moves to what no replica has confirmed */                      \
    X(CLOSE_KEEPS)        /* a closed client keeps what it has */                                  \
    X(CLOSE_WAITS)        /* …and goes on with its calls */                                      \
    X(REFUSAL_COUNTS)     /* a renewal that the server refuses counts */                           \
    X(GRANT_OURS)         /* a grant is believed for as long as its waiter would give one */       \
    X(CIRCLE_UNSEEN)      /* nobody of a circle of waits ends */                                   \
    X(CIRCLE_ALL)         /* …all of them end */                                                 \
    X(CIRCLE_ANY)         /* whoever waits for one that waits takes that for a circle */           \
    X(CIRCLE_FOLLOWED)    /* a circle of others is followed on and on */                           \
    X(REFUSAL_ENDS_WAIT)  /* a server that refuses to write for the moment ends a wait */          \
    X(REFUSED_PERMIT_LOST) /* …and a permit that is given back then is lost */                   \
    X(UNDO_REFUSED)        /* …and what undoes or releases is not sent again */                  \
    X(RECORD_DROPPED)      /* …and a guard's record is not written later */                      \
    /* a release that was redirected is not sent on */                                             \
    X(CLUSTER_RELEASE_DROPPED)                                                                     \
    /* …nor is what undoes an acquire */                                                         \
    X(CLUSTER_UNDO_ONCE)

#define HF_MUTANT_ENTRY(name) HF_MUTANT_##name,
typedef enum hf_mutant { HF_MUTANT_LIST(HF_MUTANT_ENTRY) HF_MUTANT_COUNT } hf_mutant;

extern hf_mutant hf_mutant_on;

#define HF_MUTANT(name) (hf_mutant_on == HF_MUTANT_##name)
#else
#define HF_MUTANT(name) false
#endif

#endif
