/* A client's counters and histograms for each class of locks, and its list of events, from which
 * the driver takes them. Only wanted events are added, up to HF_EVENTS_MAX. */
#ifndef HF_OBSERVE_H
#define HF_OBSERVE_H

#include "lock/holds.h"

#define HF_EVENTS_MAX 10000

typedef struct hf_observer {
    hf_class *classes[HF_CLASSES_MAX]; /* [0] is the client's own; unused elements are NULL */
    hf_event *first, **end;
    size_t count;
    uint64_t dropped; /* events that were not added because the list or memory was full */
    bool wants_all;   /* all events are wanted, not only those of locks with an observer */
} hf_observer;

struct hf_request;

/* Copies the classes' names and `wants_all` from `previous`, the observer of a client that is
 * started over. All counters begin at 0. */
void hf_observe_carry_over(hf_client *client, const hf_observer *previous);

/* Counts an ended operation that acquires, releases or polls, and adds its event. */
void hf_observe_op(hf_op *op, hf_time now);
/* Counts the end of an abandoned hold, whose release no operation awaits. */
void hf_observe_end(hf_client *client, hf_hold *hold, hf_time now);
void hf_observe_loss(hf_client *client, hf_hold *hold);
/* Counts the first failed renewal, and adds HF_EVENT_AT_RISK. For a quorum's member,
 * only counts it. */
void hf_observe_risk(hf_client *client, const hf_claim *claim, hf_time now);
/* Counts a renewal. `late` says that earlier attempts had failed. */
void hf_observe_renewal(hf_client *client, const hf_claim *claim, bool late);
/* Adds HF_EVENT_CRASH_RELEASED. `class` and `observer` are those of the wait that freed the hold;
 * the wait itself may have ended. */
void hf_observe_crash(hf_client *client, uint16_t class, uint64_t observer, hf_slice key,
                      hf_slice owner);
/* Adds HF_EVENT_CUT_OFF: the wait continues although its server does not reply, or refuses its
 * commands. Not repeated until hf_observe_resumed. `reason` is the text of the failure. */
void hf_observe_cut_off(hf_op *op, hf_code code, const char *reason, hf_time now);
void hf_observe_resumed(hf_op *op, hf_time now);
/* Calls hf_observe_cut_off for the operation, if any, that sent this request, which cannot be
 * served now and will be sent again. */
void hf_observe_delay(void *node, const struct hf_request *request, hf_code code,
                      const char *reason, hf_time now);
void hf_observe_link(void *node, const hf_session *session, bool open);
/* Counts a request's round trip, and resumes its operation if that was cut off. Requests without an
 * operation count for the client's own class. */
void hf_observe_reply(void *node, const struct hf_request *request, hf_time now);

void hf_observe_free(hf_client *client);

#endif
