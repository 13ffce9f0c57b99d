/* Finds the address of a master by asking Sentinels.
 *
 * The client's first node is the master. The other nodes are the Sentinels, of which only the link
 * for calls is used. A link to the master is opened only after the Sentinels have replied. The
 * client asks all of them at once; if they disagree, the address with the most votes wins. While
 * the master still serves the client over another link, the client keeps that address unless a
 * majority of all Sentinels names a different one.
 *
 * A round asks every Sentinel. It ends once a majority agrees, with the last reply, or, while a
 * link to the master must be opened, GRACE_PERIOD after the first address. A round begins when a
 * link must be opened. While the client holds or waits for a lock, a round also begins every
 * POLL_INTERVAL, or at once if GRACE_PERIOD ended the last one without a majority. Polling is
 * needed because an old master that was cut off or hung may act as master for seconds after its
 * replacement. It costs each Sentinel one small command per second and, unlike a subscription,
 * cannot miss anything.
 *
 * In a round, each Sentinel has one of these states:
 *
 *   ASKED -> ANSWERED   it names an address
 *   ASKED -> NO_MASTER  it knows no master of this name
 *   ASKED -> FAILED     it did not reply, or its reply was invalid
 *   any -> ASKED        the next round begins */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/nodes.h"

#define POLL_INTERVAL HF_SECOND
#define GRACE_PERIOD (100 * HF_MS) /* how long to wait for more replies after the first address */
#define MAX_OPENS_WITHOUT_REPLY 3  /* then the server counts as gone */
#define RENEW_SPREAD (250 * HF_MS) /* spreads renewals: many clients notice a move at once */
#define STALE_VOTE_PERIOD (10 * HF_SECOND) /* how long votes for a replaced master are ignored */

typedef enum hf_sentinel_state {
    HF_SENTINEL_IDLE,
    HF_SENTINEL_ASKED,
    HF_SENTINEL_ANSWERED,
    HF_SENTINEL_NO_MASTER,
    HF_SENTINEL_FAILED /* the request has the reason */
} hf_sentinel_state;

typedef struct hf_sentinel {
    hf_node *node;
    hf_request request;
    hf_sentinel_state state;
    bool asked_twice; /* it was asked again in this round */
    hf_address answer;
} hf_sentinel;

struct hf_sentinels {
    hf_client *client;
    bool asking;              /* a round is under way */
    bool has_address;         /* the address of a master is known */
    hf_time first_address_at; /* when this round's first address arrived, or HF_NEVER */
    hf_time poll_at;          /* when the next round begins unless a link needs one earlier */
    hf_address old_master;    /* the last master that a majority has replaced */
    hf_time ignore_old_master_until; /* until then a minority's votes for it are ignored; or 0 */
    size_t count;
    hf_sentinel list[];
};

static void on_reply(hf_request *request, const hf_reply *reply, hf_time now);
static void ask_sentinel(hf_sentinels *sentinels, hf_sentinel *sentinel, hf_time now);

/* ---- creating and destroying ---- */

static hf_node *master_of(const hf_sentinels *sentinels) {
    return sentinels->client->nodes[0];
}

static hf_session *link_of(const hf_sentinels *sentinels, int link) {
    assert(link < HF_LINKS);
    return &master_of(sentinels)->links[link];
}

static void set_label(hf_sentinels *sentinels, const char *address) {
    hf_server *master = &master_of(sentinels)->server;
    snprintf(master->label, sizeof master->label, "master \"%.190s\"%s%.60s",
             sentinels->client->config.master, address ? " at " : "", address ? address : "");
}

static bool add_sentinel(hf_sentinels *sentinels, const hf_server *server) {
    assert(sentinels->count < sentinels->client->config.server_count);
    hf_sentinel *sentinel = &sentinels->list[sentinels->count];
    sentinel->node = hf_client_add_node(sentinels->client, server);
    if (!sentinel->node) return false;
    sentinel->node->may_have_keys = false;
    for (int link = 0; link < HF_LINKS; link++)
        sentinel->node->links[link].login = HF_LOGIN_FIXED; /* Sentinels have their own users */
    sentinel->request.done = on_reply;
    sentinel->request.fails_on_disconnect = true; /* on_reply asks again itself */
    sentinel->request.context = sentinels;
    sentinels->count++;
    return true;
}

static bool open_sentinels(hf_client *client) {
    size_t count = client->config.server_count;
    hf_sentinels *sentinels = calloc(1, sizeof *sentinels + count * sizeof *sentinels->list);
    if (!sentinels) return false;
    sentinels->client = client;
    client->sentinels = sentinels;
    set_label(sentinels, NULL);
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session *session = &client->nodes[0]->links[link];
        session->follows_master = session->unresolved = true;
    }
    for (size_t i = 0; i < count; i++) {
        if (!add_sentinel(sentinels, &client->config.servers[i])) return false;
    }
    return true;
}

static void free_sentinels(hf_client *client) {
    hf_sentinels *sentinels = client->sentinels;
    for (size_t i = 0; sentinels && i < sentinels->count; i++) {
        hf_session_drop(&sentinels->list[i].request);
        hf_request_clear(&sentinels->list[i].request);
    }
    free(sentinels);
}

/* ---- the end of a round ---- */

/* Returns whether the master is serving the client: a link is connected, and no other link has
 * repeatedly failed to open. A connected link alone proves nothing, because a server may die
 * without closing it. */
static bool is_master_serving(const hf_sentinels *sentinels) {
    bool serving = false;
    for (int link = 0; link < HF_LINKS; link++) {
        const hf_session *session = link_of(sentinels, link);
        if (session->state == HF_SESSION_READY && !session->closing) serving = true;
        else if (session->opens_since_reply >= MAX_OPENS_WITHOUT_REPLY &&
                 hf_session_resolve_at(session) != HF_NEVER)
            return false;
    }
    return serving;
}

static bool is_current(const hf_sentinels *sentinels, const hf_address *address) {
    const hf_server *master = &master_of(sentinels)->server;
    return sentinels->has_address && master->port == address->port &&
           strcmp(master->host, address->host) == 0;
}

/* Renews all holds soon after a move, because the new master may not have received them. */
static void renew_soon(hf_client *client, hf_time now) {
    for (size_t i = 0; i < client->holds.count; i++) {
        hf_claim *claim = client->holds.heap[i];
        if (!hf_claim_is_held(claim) || !claim->renewed || claim->has_command_in_flight ||
            claim->approval == HF_APPROVAL_PENDING)
            continue;
        claim->wake_at =
            hf_time_min(claim->wake_at, now + hf_jitter(&client->random, RENEW_SPREAD));
    }
    hf_holds_resort(&client->holds);
}

static void remember_replaced(hf_sentinels *sentinels, hf_time now) {
    const hf_server *master = &master_of(sentinels)->server;
    sentinels->old_master.port = master->port;
    snprintf(sentinels->old_master.host, sizeof sentinels->old_master.host, "%s", master->host);
    sentinels->ignore_old_master_until = now + STALE_VOTE_PERIOD;
}

static void move_master(hf_sentinels *sentinels, const hf_address *address, bool has_majority,
                        hf_time now) {
    hf_node *master = master_of(sentinels);
    char label[sizeof master->server.label];
    if (sentinels->has_address && has_majority) remember_replaced(sentinels, now);
    hf_server_set_address(&master->server, address);
    memcpy(label, master->server.label, sizeof label);
    set_label(sentinels, label);
    for (int link = 0; link < HF_LINKS; link++) hf_session_move(link_of(sentinels, link), now);
    if (sentinels->has_address) renew_soon(sentinels->client, now);
    sentinels->has_address = true;
}

static void resolve_waiting_links(hf_sentinels *sentinels) {
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session *session = link_of(sentinels, link);
        if (hf_session_resolve_at(session) != HF_NEVER) hf_session_resolve(session);
    }
}

/* Writes the labels of the first Sentinels, as many as fit. */
static void write_labels(const hf_sentinels *sentinels, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sentinels->count; i++) {
        const char *label = sentinels->list[i].node->server.label;
        if (used + strlen(label) + sizeof ", , ..." > size) {
            snprintf(text + used, size - used, "%s...", i > 0 ? ", " : "");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", label);
    }
}

static const hf_sentinel *find_in_state(const hf_sentinels *sentinels, hf_sentinel_state state,
                                        hf_code code) {
    for (size_t i = 0; i < sentinels->count; i++) {
        const hf_sentinel *sentinel = &sentinels->list[i];
        if (sentinel->state != state) continue;
        if (code == HF_OK || sentinel->request.failure.code == code) return sentinel;
    }
    return NULL;
}

/* Writes why no Sentinel has named an address. Returns the code of that failure. */
static hf_code explain(const hf_sentinels *sentinels, char *text, size_t size) {
    char labels[56];
    const hf_sentinel *failed = find_in_state(sentinels, HF_SENTINEL_FAILED, HF_DENIED);
    write_labels(sentinels, labels, sizeof labels);
    if (failed) {
        snprintf(text, size, "sentinel %.60s: %.80s", failed->node->server.label,
                 hf_fault_text(&failed->request.failure));
        return HF_DENIED;
    }
    if (find_in_state(sentinels, HF_SENTINEL_NO_MASTER, HF_OK)) {
        snprintf(text, size, "no sentinel at %s knows this master", labels);
        return HF_UNREACHABLE;
    }
    failed = find_in_state(sentinels, HF_SENTINEL_FAILED, HF_OK);
    snprintf(text, size, "no sentinel at %s answered (%.78s)", labels,
             failed ? hf_fault_text(&failed->request.failure) : "");
    return HF_UNREACHABLE;
}

static void fail_pending(hf_sentinels *sentinels, hf_time now) {
    char text[160];
    hf_code code = explain(sentinels, text, sizeof text);
    for (int link = 0; link < HF_LINKS; link++) {
        hf_session *session = link_of(sentinels, link);
        if (hf_session_resolve_at(session) <= now)
            hf_session_fail_pending(session, code, text, now);
    }
}

static size_t votes_for(const hf_sentinels *sentinels, const hf_address *address) {
    size_t votes = 0;
    for (size_t i = 0; i < sentinels->count; i++) {
        const hf_sentinel *sentinel = &sentinels->list[i];
        votes +=
            sentinel->state == HF_SENTINEL_ANSWERED && hf_address_equal(&sentinel->answer, address);
    }
    return votes;
}

static bool was_replaced(const hf_sentinels *sentinels, const hf_address *address, hf_time now) {
    return now < sentinels->ignore_old_master_until &&
           hf_address_equal(&sentinels->old_master, address);
}

/* Returns whether the address wins a tie: it is not the current one, and no majority has replaced
 * it recently. */
static bool wins_tie(const hf_sentinels *sentinels, const hf_address *address, hf_time now) {
    return !was_replaced(sentinels, address, now) && !is_current(sentinels, address);
}

/* Returns the address with the most votes, or NULL if no Sentinel named one. Sets *max_votes. */
static const hf_address *choose_address(const hf_sentinels *sentinels, size_t *max_votes,
                                        hf_time now) {
    const hf_address *best = NULL;
    *max_votes = 0;
    for (size_t i = 0; i < sentinels->count; i++) {
        const hf_sentinel *sentinel = &sentinels->list[i];
        if (sentinel->state != HF_SENTINEL_ANSWERED) continue;
        size_t votes = votes_for(sentinels, &sentinel->answer);
        bool is_better = !best || votes > *max_votes ||
                         (votes == *max_votes && wins_tie(sentinels, &sentinel->answer, now) &&
                          !wins_tie(sentinels, best, now));
        if (!is_better) continue;
        best = &sentinel->answer;
        *max_votes = votes;
    }
    return best;
}

static void end_round(hf_sentinels *sentinels, const hf_address *address, bool has_majority,
                      hf_time now) {
    sentinels->asking = false;
    for (size_t i = 0; i < sentinels->count; i++) hf_session_drop(&sentinels->list[i].request);
    bool serving = is_master_serving(sentinels);
    if (!address && !serving) {
        fail_pending(sentinels, now);
        return;
    }
    if (address && !is_current(sentinels, address)) {
        bool may_move = has_majority || (!serving && !was_replaced(sentinels, address, now));
        if (may_move) move_master(sentinels, address, has_majority, now);
    }
    resolve_waiting_links(sentinels);
}

static hf_time needs_address_at(const hf_sentinels *sentinels) {
    hf_time earliest = HF_NEVER;
    for (int link = 0; link < HF_LINKS; link++)
        earliest = hf_time_min(earliest, hf_session_resolve_at(link_of(sentinels, link)));
    return earliest;
}

/* Returns when to end the round with the replies that have arrived. Returns HF_NEVER to wait for
 * all replies: as long as no link must be opened, distant Sentinels can vote, too. */
static hf_time decide_at(const hf_sentinels *sentinels) {
    hf_time grace = hf_time_add(sentinels->first_address_at, GRACE_PERIOD);
    return hf_time_max(needs_address_at(sentinels), grace);
}

static void decide(hf_sentinels *sentinels, hf_time now) {
    size_t votes;
    const hf_address *address = choose_address(sentinels, &votes, now);
    bool has_majority = votes * 2 > sentinels->count;
    bool complete = !find_in_state(sentinels, HF_SENTINEL_ASKED, HF_OK);
    if (address) sentinels->first_address_at = hf_time_min(sentinels->first_address_at, now);
    if (!has_majority && !complete && now < decide_at(sentinels)) return;
    if (!has_majority && !complete) sentinels->poll_at = now;
    end_round(sentinels, address, has_majority, now);
}

/* ---- asking ---- */

/* Reads a server's address from the reply. Returns false if the reply does not have a valid one. */
static bool read_address(const hf_reply *reply, hf_address *address) {
    hf_slice host = hf_reply_string_at(reply, 0);
    long long port = hf_reply_integer_at(reply, 1, 0);
    if (host.size == 0 || host.size >= sizeof address->host || memchr(host.data, '\0', host.size))
        return false;
    if (port < 1 || port > UINT16_MAX) return false;
    *address = (hf_address){.port = (uint16_t)port};
    memcpy(address->host, host.data, host.size);
    return true;
}

static void on_reply(hf_request *request, const hf_reply *reply, hf_time now) {
    hf_sentinels *sentinels = request->context;
    hf_sentinel *sentinel =
        (hf_sentinel *)(void *)((char *)request - offsetof(hf_sentinel, request));
    bool connection_lost =
        !reply && request->possible_runs > 0 && request->failure.code == HF_UNREACHABLE;
    if (connection_lost && !sentinel->asked_twice && now < request->deadline) {
        sentinel->asked_twice = true;
        ask_sentinel(sentinels, sentinel, now);
        if (sentinel->state == HF_SENTINEL_ASKED) return;
    }
    if (!reply) {
        sentinel->state = HF_SENTINEL_FAILED;
    } else if (reply->type == HF_REPLY_NIL) {
        sentinel->state = HF_SENTINEL_NO_MASTER;
    } else if (read_address(reply, &sentinel->answer)) {
        sentinel->state = HF_SENTINEL_ANSWERED;
    } else {
        hf_fault_set(&request->failure, HF_SERVER, "unexpected reply; is this server a sentinel?");
        sentinel->state = HF_SENTINEL_FAILED;
    }
    if (sentinels->asking) decide(sentinels, now);
}

/* Asks a Sentinel whose state is ASKED. When out of memory, it is FAILED on return. */
static void ask_sentinel(hf_sentinels *sentinels, hf_sentinel *sentinel, hf_time now) {
    hf_slice args[] = {{"SENTINEL", 8},
                       {"GET-MASTER-ADDR-BY-NAME", 23},
                       hf_slice_of(sentinels->client->config.master)};
    if (!hf_request_command(&sentinel->request, 3, args)) {
        hf_fault_set(&sentinel->request.failure, HF_NO_MEMORY, "out of memory");
        sentinel->state = HF_SENTINEL_FAILED;
        return;
    }
    sentinel->request.deadline = now + sentinels->client->config.session.connect_timeout;
    hf_session_submit(&sentinel->node->links[HF_LINK_CALLS], &sentinel->request, now);
}

static void begin_round(hf_sentinels *sentinels, hf_time now) {
    sentinels->first_address_at = HF_NEVER;
    sentinels->poll_at = now + POLL_INTERVAL - POLL_INTERVAL / 10 +
                         hf_jitter(&sentinels->client->random, POLL_INTERVAL / 5);
    for (size_t i = 0; i < sentinels->count; i++) {
        sentinels->list[i].state = HF_SENTINEL_ASKED;
        sentinels->list[i].asked_twice = false;
    }
    for (size_t i = 0; i < sentinels->count; i++) ask_sentinel(sentinels, &sentinels->list[i], now);
    sentinels->asking = true; /* a reply during the loop must not end the round */
    decide(sentinels, now);
}

/* ---- time ---- */

static bool is_in_use(const hf_sentinels *sentinels) {
    const hf_client *client = sentinels->client;
    const hf_claim *first = hf_holds_first(&client->holds);
    const hf_node *master = master_of(sentinels);
    bool has_holds = first && first->wake_at != HF_NEVER;
    return has_holds || master->events_users > 0 ||
           hf_session_has_work(&master->links[HF_LINK_CALLS]);
}

static hf_time deadline_of(const hf_sentinels *sentinels) {
    if (sentinels->asking) return decide_at(sentinels);
    hf_time needed = needs_address_at(sentinels);
    return is_in_use(sentinels) ? hf_time_min(needed, sentinels->poll_at) : needed;
}

static hf_time next_tick(const hf_client *client, hf_link caller_link) {
    return caller_link == HF_LINK_CALLS ? deadline_of(client->sentinels) : HF_NEVER;
}

static void tick(hf_client *client, hf_link caller_link, hf_time now) {
    hf_sentinels *sentinels = client->sentinels;
    if (caller_link != HF_LINK_CALLS || now < deadline_of(sentinels)) return;
    if (sentinels->asking) decide(sentinels, now);
    else begin_round(sentinels, now);
}

const hf_topology hf_sentinel_topology = {
    .open = open_sentinels,
    .close = free_sentinels,
    .node_of = hf_nodes_first,
    .group_of = hf_nodes_one_group,
    .submit = hf_nodes_submit,
    .next_tick = next_tick,
    .tick = tick,
};
