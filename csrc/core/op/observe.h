/* A client's counters and histograms for each class of locks, and its list of events. Events are
 * added only if somebody wants them, up to HF_EVENTS_MAX. The driver takes them from the list. */
#ifndef HF_OBSERVE_H
#define HF_OBSERVE_H

#include "lock/holds.h"

#define HF_EVENTS_MAX 10000

typedef struct hf_observer {
    hf_class *classes[HF_CLASSES_MAX]; /* [0] is the client's own; unused elements are NULL */
    hf_event *first, **end;
    size_t count;
    uint64_t dropped; /* events without room in the list or in memory */
    bool wanted;      /* all events are wanted, not only those of locks with an observer */
} hf_observer;

struct hf_request;

/* Prepares a restarted client: carries over the classes and `wanted` of `before`, its observer
 * until then. All counters begin at 0. */
void hf_observe_carry_over(hf_client *client, const hf_observer *before);

/* Counts an operation that acquires, releases or polls, when it ends, and adds its event. */
void hf_observe_op(hf_op *op, hf_time now);
/* Counts the end of an abandoned hold, for whose release no operation waits. */
void hf_observe_end(hf_client *client, hf_hold *hold, hf_time now);
void hf_observe_loss(hf_client *client, hf_hold *hold);
void hf_observe_risk(hf_client *client, const hf_claim *claim, hf_time now);
/* Counts a renewal. `late`: earlier attempts had failed. */
void hf_observe_renewal(hf_client *client, const hf_claim *claim, bool late);
/* Adds the event that a wait freed the hold of a crashed process. `class` and `observer` are those
 * of the wait, which may have ended since. */
void hf_observe_crash(hf_client *client, uint16_t class, uint64_t observer, hf_slice key,
                      hf_slice owner);
/* Adds the event that the wait continues although its server does not reply, or refuses its
 * commands. The event is not repeated until the wait is resumed. `reason` is a failure's text. */
void hf_observe_cut_off(hf_op *op, hf_code code, const char *reason, hf_time now);
void hf_observe_resumed(hf_op *op, hf_time now);
/* Does what hf_observe_cut_off does for the operation, if any, whose request is not served now and
 * will be sent again. */
void hf_observe_delay(void *node, const struct hf_request *request, hf_code code,
                      const char *reason, hf_time now);
void hf_observe_link(void *node, const hf_session *session, bool open);
/* Counts a request's round trip, and resumes its operation if that was cut off. Background work
 * counts for the client's own class. */
void hf_observe_answer(void *node, const struct hf_request *request, hf_time now);

void hf_observe_free(hf_client *client);

#endif
