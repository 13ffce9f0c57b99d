/* A client's counters and histograms by class of lock, and its list of events.
 *
 * A class is a name that the user gives to locks of one use. The list of events is filled only if
 * somebody wants events, and has at most HF_EVENTS_MOST entries; the driver takes it away. */
#ifndef HF_OBSERVE_H
#define HF_OBSERVE_H

#include "lock/holds.h"

#define HF_EVENTS_MOST 10000

typedef struct hf_observer {
    hf_class *classes[HF_CLASSES_MAX]; /* [0] is the client's own; NULL: none */
    hf_event *first, **end;
    size_t count;
    uint64_t dropped; /* events for which there was no room */
    bool wanted;      /* all events, not only those of locks with an observer */
} hf_observer;

struct hf_request;

/* Starts a client that replaces another: it keeps the classes and `wanted` of `before`, and all
 * counters are 0. */
void hf_observe_again(hf_client *client, const hf_observer *before);

/* Counts an operation that ends, and adds its event. */
void hf_observe_op(hf_op *op, hf_time now);
/* The hold is abandoned; no operation waits for its release. */
void hf_observe_end(hf_client *client, hf_hold *hold, hf_time now);
void hf_observe_loss(hf_client *client, hf_hold *hold);
void hf_observe_risk(hf_client *client, const hf_hold *hold, hf_time now);
/* `late`: renewals before it had failed. */
void hf_observe_renewal(hf_client *client, const hf_hold *hold, bool late);
/* A wait with this class and listener, which may have ended since, freed a hold of a process that
 * had crashed. */
void hf_observe_crash(hf_client *client, uint16_t class, uint64_t observer, hf_slice key,
                      hf_slice owner);
/* The wait continues, but its server does not answer or refuses its commands. Adds the event once
 * until the wait is resumed. `reason` is a message as in a failure. */
void hf_observe_cut_off(hf_op *op, hf_code code, const char *reason, hf_time now);
void hf_observe_resumed(hf_op *op, hf_time now);
/* The request, which may be an operation's, is not served now and will be sent again later. */
void hf_observe_delay(void *node, const struct hf_request *request, hf_code code,
                      const char *reason, hf_time now);
void hf_observe_link(void *node, const hf_session *session, bool open);
/* Counts the round trip of a request. Work in the background counts for the client's own class. */
void hf_observe_answer(void *node, const struct hf_request *request, hf_time now);

void hf_observe_free(hf_client *client);

#endif
