/* The map of a Redis Cluster, which gives the node that serves each slot.
 *
 * A map is read from a single reply; an invalid reply changes nothing. A node that does not know
 * its own host is assumed to be at the address to which the command was sent. */
#ifndef HF_SLOTS_H
#define HF_SLOTS_H

#include "base/reply.h"
#include "base/url.h"
#include "lock/names.h"

#define HF_SLOTS 16384
#define HF_SLOTS_MAX_NODES 1024
#define HF_SLOT_NO_NODE UINT16_MAX

/* How many elements a reply to CLUSTER SLOTS may have: one range per slot, with two nodes each. */
#define HF_SLOTS_MAX_ELEMENTS ((size_t)16 * HF_SLOTS)

/* A master or a replica of the cluster. */
typedef struct hf_slots_member {
    hf_address address; /* port 0 if unknown */
    char id[HF_NODE_ID_SIZE + 1];
} hf_slots_member;

typedef struct hf_slots {
    hf_address *nodes; /* the masters, without duplicates */
    size_t count;
    hf_slots_member *members; /* each node that has an id; Redis before version 4 gives none */
    size_t member_count, member_capacity;
    bool has_unknown_host;    /* a master's host is given as "?" */
    uint16_t owner[HF_SLOTS]; /* an index in `nodes`, or HF_SLOT_NO_NODE */
} hf_slots;

/* Returns the slot of a key or channel, 0..HF_SLOTS - 1: the CRC16 (XMODEM), modulo HF_SLOTS, of
 * the bytes between the first { and the next }, or of the whole string if there are none. */
uint16_t hf_slot_of(hf_slice key);

/* Returns whether a lock's keys and channel are all in one slot. They are not if the lock's key has
 * braces that do not form a tag, as in "a{b" and "a}b". */
bool hf_names_share_slot(const hf_names *names);

/* Initialises an empty map, in which no slot has a node. */
void hf_slots_init(hf_slots *slots);

void hf_slots_free(hf_slots *slots);

/* Reads a reply to CLUSTER SLOTS that came from `sender`. Returns NULL on success, otherwise an
 * error message (a static string). If `slots` has ids but the reply contains none of them, the
 * message is HF_SLOTS_FOREIGN, or HF_SLOTS_NONE if the reply has no node either. A range whose
 * master has no known host gets no node; if ranges overlap, the last one counts. */
const char *hf_slots_read(hf_slots *slots, const hf_reply *reply, const hf_address *sender);

extern const char HF_SLOTS_FOREIGN[], HF_SLOTS_NONE[];

/* Returns whether a node of the map has this id. */
bool hf_slots_has_id(const hf_slots *slots, const char *id);

/* Returns the id of the node at this address, NULL if the map has no node there, or "" if it has
 * several (at most one of them can still exist). */
const char *hf_slots_id_at(const hf_slots *slots, const hf_address *address);

/* Returns whether a master or a replica has this address. */
bool hf_slots_has_address(const hf_slots *slots, const hf_address *address);

/* Forgets the ids, so that the next map may be from another cluster. */
void hf_slots_forget_ids(hf_slots *slots);

typedef enum hf_redirect_kind {
    HF_REDIRECT_NONE,  /* any other error */
    HF_REDIRECT_MOVED, /* the slot has moved to that node */
    HF_REDIRECT_ASK    /* that node serves this one command, after ASKING */
} hf_redirect_kind;

typedef struct hf_redirect {
    hf_redirect_kind kind;
    uint16_t slot;
    hf_address address; /* port 0 if the host is unknown, so the map must be read again */
} hf_redirect;

/* Reads the error reply "MOVED <slot> <host>:<port>" or "ASK …" that came from `sender`. */
hf_redirect hf_redirect_read(hf_slice error, const hf_address *sender);

#endif
