/* The map of a Redis Cluster: the node of each key.
 *
 * A map comes from one reply; a reply that cannot be read changes nothing. Numbers must be in range
 * and hosts must fit. A node that does not know its own host has the address that was asked. */
#ifndef HF_SLOTS_H
#define HF_SLOTS_H

#include "base/reply.h"
#include "base/url.h"
#include "lock/names.h"

#define HF_SLOTS 16384
#define HF_SLOTS_MAX_NODES 1024
#define HF_SLOT_NOBODY UINT16_MAX

/* The limit of a reply to CLUSTER SLOTS: a range for each slot, two nodes in each range. */
#define HF_SLOTS_MAX_ELEMENTS ((size_t)16 * HF_SLOTS)

/* A master or a replica. */
typedef struct hf_slots_member {
    hf_address address; /* port 0: not known */
    char id[HF_NODE_ID_SIZE + 1];
} hf_slots_member;

typedef struct hf_slots {
    hf_address *nodes; /* the masters, each once */
    size_t count;
    hf_slots_member *members; /* those with an id, each once; Redis before 4 gives no ids */
    size_t member_count, member_capacity;
    bool unnamed;             /* a node does not know the name of another one, and reports "?" */
    uint16_t owner[HF_SLOTS]; /* index in `nodes`, or HF_SLOT_NOBODY */
} hf_slots;

/* Returns the slot of a key or channel, 0..HF_SLOTS - 1: CRC16 (XMODEM) of the text between the
 * first { and the next }, or of the whole text if there is none. */
uint16_t hf_slot_of(hf_slice key);

/* Returns whether the keys and the channel of a lock are in one slot. They are not if the key has
 * braces that make no tag, as in "a{b" and "a}b". */
bool hf_slot_is_one(const hf_names *names);

/* Makes an empty map: no slot has a node. */
void hf_slots_init(hf_slots *slots);

void hf_slots_free(hf_slots *slots);

/* Reads the reply to CLUSTER SLOTS that came from `asked`. Returns NULL on success, else what is
 * wrong (a static text): HF_SLOTS_FOREIGN if `slots` has ids and the reply has none of them, or
 * then HF_SLOTS_NONE if it has no node at all. A range whose master has no known host gets no node;
 * if ranges overlap, the last one counts. */
const char *hf_slots_read(hf_slots *slots, const hf_reply *reply, const hf_address *asked);

extern const char HF_SLOTS_FOREIGN[], HF_SLOTS_NONE[];

/* Returns whether a node of the map has this id. */
bool hf_slots_has(const hf_slots *slots, const char *id);

/* Returns the id of the node at this address; NULL: the map has none. "": it names several nodes
 * there, of which all but one are gone. */
const char *hf_slots_id_at(const hf_slots *slots, const hf_address *address);

/* Returns whether a master or a replica has this address. */
bool hf_slots_names(const hf_slots *slots, const hf_address *address);

/* Forgets the ids, so that the next map may be that of another cluster. */
void hf_slots_forget_ids(hf_slots *slots);

typedef enum hf_redirect_kind {
    HF_REDIRECT_NONE,  /* another error */
    HF_REDIRECT_MOVED, /* the slot is on that node from now on */
    HF_REDIRECT_ASK    /* on that node for this one command, after ASKING */
} hf_redirect_kind;

typedef struct hf_redirect {
    hf_redirect_kind kind;
    uint16_t slot;
    hf_address to; /* port 0: the host is not known, read the map again */
} hf_redirect;

/* Reads an error reply "MOVED <slot> <host>:<port>" or "ASK …" that came from `asked`. */
hf_redirect hf_redirect_read(hf_slice error, const hf_address *asked);

#endif
