#include "link/slots.h"

#include <stdlib.h>
#include <string.h>

static uint16_t crc16(hf_slice bytes) {
    unsigned crc = 0; /* the polynomial is x^16 + x^12 + x^5 + 1; each step takes four bits */
    for (size_t i = 0; i < bytes.size; i++) {
        unsigned char byte = (unsigned char)bytes.data[i];
        crc = (crc << 4 ^ (crc >> 12 ^ byte >> 4) * 0x1021u) & 0xffff;
        crc = (crc << 4 ^ (crc >> 12 ^ (byte & 15u)) * 0x1021u) & 0xffff;
    }
    return (uint16_t)crc;
}

static hf_slice tag_of(hf_slice key) {
    const char *open = memchr(key.data, '{', key.size);
    if (!open) return key;
    hf_slice rest = {open + 1, key.size - (size_t)(open + 1 - key.data)};
    const char *close = memchr(rest.data, '}', rest.size);
    if (!close || close == rest.data) return key;
    return (hf_slice){rest.data, (size_t)(close - rest.data)};
}

uint16_t hf_slot_of(hf_slice key) {
    return crc16(tag_of(key)) % HF_SLOTS;
}

bool hf_names_share_slot(const hf_names *names) {
    uint16_t slot = hf_slot_of(names->key);
    return hf_slot_of(names->counter) == slot && hf_slot_of(names->queue) == slot &&
           hf_slot_of(names->releases) == slot;
}

void hf_slots_init(hf_slots *slots) {
    slots->nodes = NULL;
    slots->members = NULL;
    slots->count = slots->member_count = slots->member_capacity = 0;
    slots->has_unknown_host = false;
    for (size_t i = 0; i < HF_SLOTS; i++) slots->owner[i] = HF_SLOT_NO_NODE;
}

void hf_slots_free(hf_slots *slots) {
    free(slots->nodes);
    free(slots->members);
    hf_slots_init(slots);
}

/* Reads a node's address from a reply that came from `sender`. Returns false if the reply has no
 * valid address. */
static bool read_address(hf_address *address, hf_slice host, long long port,
                         const hf_address *sender) {
    if (port < 1 || port > UINT16_MAX || host.size >= sizeof address->host) return false;
    if (hf_slice_equal(host, hf_slice_of("?"))) return false;
    if (host.size == 0) host = hf_slice_of(sender->host);
    for (size_t i = 0; i < host.size; i++) {
        if ((unsigned char)host.data[i] <= ' ' || host.data[i] == 0x7f) return false;
    }
    memcpy(address->host, host.data, host.size);
    address->host[host.size] = '\0';
    address->port = (uint16_t)port;
    return true;
}

static bool is_array(const hf_reply *reply, size_t min_size) {
    return reply && reply->type == HF_REPLY_ARRAY && reply->size >= min_size;
}

/* Returns the node's index in slots->nodes, and adds the node if needed. Returns HF_SLOT_NO_NODE if
 * there are too many nodes. */
static uint16_t index_of(hf_slots *slots, const hf_address *node) {
    for (size_t i = 0; i < slots->count; i++) {
        if (hf_address_equal(&slots->nodes[i], node)) return (uint16_t)i;
    }
    if (slots->count == HF_SLOTS_MAX_NODES) return HF_SLOT_NO_NODE;
    slots->nodes[slots->count] = *node;
    return (uint16_t)slots->count++;
}

/* ---- node ids ---- */

#define MAX_MEMBERS ((size_t)4 * HF_SLOTS_MAX_NODES) /* ids beyond these are ignored */

static const hf_slots_member *find_member(const hf_slots *slots, const char *id) {
    for (size_t i = 0; i < slots->member_count; i++) {
        if (strcmp(slots->members[i].id, id) == 0) return &slots->members[i];
    }
    return NULL;
}

/* Sets `id` to the node's id, or to "" if it has none. */
static void read_id(char id[HF_NODE_ID_SIZE + 1], const hf_reply *node) {
    hf_slice text = is_array(node, 3) ? hf_reply_string_at(node, 2) : (hf_slice){"", 0};
    size_t size = text.size <= HF_NODE_ID_SIZE ? text.size : 0;
    memcpy(id, text.data, size);
    id[size] = '\0';
}

static bool add_member(hf_slots *slots, const hf_reply *node, const hf_address *sender) {
    hf_slots_member member = {.address = {.port = 0}};
    read_id(member.id, node);
    if (!member.id[0] || find_member(slots, member.id)) return true;
    if (slots->member_count == MAX_MEMBERS) return true;
    hf_address address;
    if (read_address(&address, hf_reply_string_at(node, 0), hf_reply_integer_at(node, 1, 0),
                     sender))
        member.address = address;
    if (slots->member_count == slots->member_capacity) {
        size_t capacity = slots->member_capacity ? 2 * slots->member_capacity : 16;
        hf_slots_member *grown = realloc(slots->members, capacity * sizeof *grown);
        if (!grown) return false;
        slots->members = grown;
        slots->member_capacity = capacity;
    }
    slots->members[slots->member_count++] = member;
    return true;
}

/* Adds the members of a range, unless its master is already known: all of a master's ranges have
 * the same replicas. Returns false when out of memory. */
static bool read_members(hf_slots *slots, const hf_reply *range, const hf_address *sender) {
    char id[HF_NODE_ID_SIZE + 1];
    read_id(id, range->elements[2]);
    if (find_member(slots, id)) return true;
    for (size_t i = 2; i < range->size; i++) {
        if (!add_member(slots, range->elements[i], sender)) return false;
    }
    return true;
}

/* Returns whether the clusters differ: ids are random, so two clusters have none in common. */
static bool is_foreign(const hf_slots *known, const hf_slots *read) {
    for (size_t i = 0; i < read->member_count; i++) {
        if (find_member(known, read->members[i].id)) return false;
    }
    return known->member_count > 0;
}

bool hf_slots_has_id(const hf_slots *slots, const char *id) {
    return find_member(slots, id) != NULL;
}

const char *hf_slots_id_at(const hf_slots *slots, const hf_address *address) {
    const char *id = NULL;
    for (size_t i = 0; i < slots->member_count; i++) {
        if (!hf_address_equal(&slots->members[i].address, address)) continue;
        if (id) return "";
        id = slots->members[i].id;
    }
    return id;
}

bool hf_slots_has_address(const hf_slots *slots, const hf_address *address) {
    for (size_t i = 0; i < slots->count; i++) {
        if (hf_address_equal(&slots->nodes[i], address)) return true;
    }
    return hf_slots_id_at(slots, address) != NULL;
}

void hf_slots_forget_ids(hf_slots *slots) {
    slots->member_count = 0;
}

/* ---- the map ---- */

const char HF_SLOTS_FOREIGN[] = "it belongs to another cluster now";
const char HF_SLOTS_NONE[] = "it knows of no node that serves a slot";

/* Reads a range: its first slot, last slot, master (host, port, id, …) and replicas. */
static bool read_range(hf_slots *slots, const hf_reply *range, const hf_address *sender) {
    if (!is_array(range, 3) || !is_array(range->elements[2], 2)) return false;
    long long first = hf_reply_integer_at(range, 0, -1), last = hf_reply_integer_at(range, 1, -1);
    if (first < 0 || last < first || last >= HF_SLOTS) return false;
    const hf_reply *master = range->elements[2];
    hf_address node;
    uint16_t owner = HF_SLOT_NO_NODE;
    if (hf_slice_equal(hf_reply_string_at(master, 0), hf_slice_of("?")))
        slots->has_unknown_host = true;
    if (read_address(&node, hf_reply_string_at(master, 0), hf_reply_integer_at(master, 1, 0),
                     sender))
        owner = index_of(slots, &node);
    for (long long i = first; i <= last; i++) slots->owner[i] = owner;
    return true;
}

const char *hf_slots_read(hf_slots *slots, const hf_reply *reply, const hf_address *sender) {
    if (!is_array(reply, 0)) return "the reply is not a list of slots";
    hf_slots *read = malloc(sizeof *read);
    if (!read) return "out of memory";
    hf_slots_init(read);
    size_t max_nodes = reply->size < HF_SLOTS_MAX_NODES ? reply->size : HF_SLOTS_MAX_NODES;
    read->nodes = calloc(max_nodes ? max_nodes : 1, sizeof *read->nodes);
    const char *error = read->nodes ? NULL : "out of memory";
    for (size_t i = 0; !error && i < reply->size; i++) {
        if (!read_range(read, reply->elements[i], sender)) error = "the reply has a bad slot range";
        else if (!read_members(read, reply->elements[i], sender)) error = "out of memory";
    }
    if (!error && is_foreign(slots, read))
        error = read->count > 0 ? HF_SLOTS_FOREIGN : HF_SLOTS_NONE;
    if (error) {
        hf_slots_free(read);
    } else {
        hf_slots_free(slots);
        *slots = *read;
    }
    free(read);
    return error;
}

/* Reads a decimal number of at most five digits and moves *rest past it. Returns -1 if there is no
 * number, or if it has more digits. */
static long long take_number(hf_slice *rest) {
    long long value = 0;
    size_t digits = 0;
    for (; digits < rest->size && digits < 6 && rest->data[digits] >= '0' &&
           rest->data[digits] <= '9';
         digits++)
        value = value * 10 + (rest->data[digits] - '0');
    if (digits == 0 || digits == 6) return -1;
    rest->data += digits;
    rest->size -= digits;
    return value;
}

/* Splits <host>:<port>. The colons of an IPv6 host may be in [ ] or not. Returns false if the port
 * is missing or invalid. */
static bool split_address(hf_slice text, hf_slice *host, long long *port) {
    size_t colon = text.size;
    while (colon > 0 && text.data[colon - 1] != ':') colon--;
    if (colon == 0) return false;
    hf_slice digits = {text.data + colon, text.size - colon};
    *host = (hf_slice){text.data, colon - 1};
    if (host->size >= 2 && host->data[0] == '[' && host->data[host->size - 1] == ']')
        *host = (hf_slice){host->data + 1, host->size - 2};
    *port = take_number(&digits);
    return *port >= 1 && *port <= UINT16_MAX && digits.size == 0;
}

hf_redirect hf_redirect_read(hf_slice error, const hf_address *sender) {
    static const hf_redirect none = {.kind = HF_REDIRECT_NONE};
    hf_redirect redirect = none;
    if (hf_slice_skip(&error, "MOVED ")) redirect.kind = HF_REDIRECT_MOVED;
    else if (hf_slice_skip(&error, "ASK ")) redirect.kind = HF_REDIRECT_ASK;
    else return none;
    long long slot = take_number(&error), port;
    hf_slice host;
    if (slot < 0 || slot >= HF_SLOTS || !hf_slice_skip(&error, " ") ||
        !split_address(error, &host, &port))
        return none;
    redirect.slot = (uint16_t)slot;
    if (!read_address(&redirect.address, host, port, sender)) redirect.address = none.address;
    return redirect;
}
