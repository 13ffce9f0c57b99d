/* The map of a Redis Cluster, which gives the node of each key.
 *
 * A map comes from one reply; a reply that cannot be read changes nothing. Numbers must be in range
 * and hosts must fit. A node that does not know its own host is assumed to have the address to
 * which the command was sent. */
#ifndef HF_SLOTS_H
#define HF_SLOTS_H

#include "base/reply.h"
#include "base/url.h"
#include "lock/names.h"

#define HF_SLOTS 16384
#define HF_SLOTS_MAX_NODES 1024
#define HF_SLOT_NO_NODE UINT16_MAX

/* The limit for a reply to CLUSTER SLOTS: a range for each slot, with two nodes each. */
#define HF_SLOTS_MAX_ELEMENTS ((size_t)16 * HF_SLOTS)

/* A master or a replica. */
typedef struct hf_slots_member {
    hf_address address; /* port 0 if unknown */
    char id[HF_NODE_ID_SIZE + 1];
} hf_slots_member;

typedef struct hf_slots {
    hf_address *nodes; /* the masters, without duplicates */
    size_t count;
    hf_slots_member *members; /* the nodes with an id, each once; Redis before 4 gives no ids */
    size_t member_count, member_capacity;
    bool unnamed;             /* a master has "?" in place of its name */
    uint16_t owner[HF_SLOTS]; /* an index in `nodes`, or HF_SLOT_NO_NODE */
} hf_slots;

/* Returns the slot of a key or channel, 0..HF_SLOTS - 1: the CRC16 (XMODEM), modulo HF_SLOTS, of
 * the string between the first { and the next }, or of the whole string without such a part. */
uint16_t hf_slot_of(hf_slice key);

/* Returns whether the keys and the channel of a lock are in one slot. They are not if the key has
 * braces that do not form a tag, as in "a{b" and "a}b". */
bool hf_slot_is_one(const hf_names *names);

/* Creates an empty map, in which no slot has a node. */
void hf_slots_init(hf_slots *slots);

void hf_slots_free(hf_slots *slots);

/* Reads a reply to CLUSTER SLOTS that came from `asked`. Returns NULL on success, otherwise what is
 * wrong (a static string). If `slots` has ids and the reply has none of them, that is
 * HF_SLOTS_FOREIGN, or HF_SLOTS_NONE if the reply has no node at all. A range whose master has no
 * known host gets no node; if ranges overlap, the last one counts. */
const char *hf_slots_read(hf_slots *slots, const hf_reply *reply, const hf_address *asked);

extern const char HF_SLOTS_FOREIGN[], HF_SLOTS_NONE[];

/* Returns whether a node of the map has this id. */
bool hf_slots_has_id(const hf_slots *slots, const char *id);

/* Returns the id of the node at this address. Returns NULL if the map has no node there, and "" if
 * it has several, all but one of which must be gone. */
const char *hf_slots_id_at(const hf_slots *slots, const hf_address *address);

/* Returns whether a master or a replica has this address. */
bool hf_slots_has_address(const hf_slots *slots, const hf_address *address);

/* Forgets the ids, so that the next map may be from another cluster. */
void hf_slots_forget_ids(hf_slots *slots);

typedef enum hf_redirect_kind {
    HF_REDIRECT_NONE,  /* a different error */
    HF_REDIRECT_MOVED, /* the slot is on that node from now on */
    HF_REDIRECT_ASK    /* the slot is on that node for this one command, after ASKING */
} hf_redirect_kind;

typedef struct hf_redirect {
    hf_redirect_kind kind;
    uint16_t slot;
    hf_address to; /* port 0 if the host is unknown and the map must be read again */
} hf_redirect;

/* Reads an error reply "MOVED <slot> <host>:<port>" or "ASK …" that came from `asked`. */
hf_redirect hf_redirect_read(hf_slice error, const hf_address *asked);

#endif
