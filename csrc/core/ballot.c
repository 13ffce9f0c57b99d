/* The operations of a quorum.
 *
 *   ASKING -> DECIDED                 a majority said yes, or can no longer be had
 *   ASKING -> RAISING -> DECIDED      an acquire whose token a majority of the servers does not know yet
 *   ASKING -> PAUSING -> ASKING ...   an acquire that waits: no majority this time
 *
 * A server that fails counts at once, one that hangs does not delay what the others decide; only where the outcome
 * depends on it is it waited for, and not much longer than the others took. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quorum_internal.h"

#define LEAST_GRACE (250 * HF_MS) /* for the servers on which the outcome depends */
#define REFUSED_FOR (100 * HF_MS) /* who refused is not tried again for so long, unless the others do not suffice */
#define FIRST_PAUSE (10 * HF_MS)
#define MOST_PAUSE (200 * HF_MS)

/* ---- life ---- */

static hf_slice copy(char **to, hf_slice from) {
    hf_slice made = {*to, from.size};
    if (from.size > 0) memcpy(*to, from.data, from.size);
    *to += from.size;
    return made;
}

hf_ballot *hf_ballot_new(const hf_op_spec *spec, size_t count) {
    size_t votes = count * sizeof(hf_vote), texts = spec->owner.size + spec->print.size + spec->result.size;
    hf_ballot *ballot = calloc(1, sizeof *ballot + votes + texts);
    if (!ballot) return NULL;
    char *text = (char *)ballot->votes + votes;
    *ballot = (hf_ballot){.refs = 1, .count = count, .retry_at = HF_NEVER, .decide_by = HF_NEVER};
    ballot->owner = copy(&text, spec->owner);
    ballot->print = copy(&text, spec->print);
    ballot->result = copy(&text, spec->result);
    if (spec->names && !hf_names_make(&ballot->names, spec->names->key)) {
        free(ballot);
        return NULL;
    }
    return ballot;
}

void hf_ballot_unref(hf_ballot *ballot) {
    if (--ballot->refs > 0) return;
    if (ballot->hold) hf_hold_unref(ballot->hold);
    hf_names_free(&ballot->names);
    free(ballot);
}

hf_op_spec hf_ballot_spec(const hf_ballot *ballot, const hf_op_spec *spec) {
    hf_op_spec own = *spec;
    own.names = spec->names ? &ballot->names : NULL;
    own.owner = ballot->owner;
    own.print = ballot->print;
    own.result = ballot->result;
    own.wait = 0;
    own.lost = NULL;
    return own;
}

/* ---- votes ---- */

static hf_quorum *quorum_of(const hf_op *op) {
    return op->client->quorum;
}

static bool acquires(const hf_op *op) {
    return op->spec.kind == HF_OP_ACQUIRE;
}

static bool lets_go(const hf_op *op) {
    return op->spec.kind == HF_OP_RELEASE || op->spec.kind == HF_OP_COMPLETE;
}

typedef struct tally {
    size_t yes, pending, spared, busy, denied, conflict, lost;
} tally;

static tally count_votes(const hf_ballot *ballot) {
    tally votes = {0};
    for (size_t i = 0; i < ballot->count; i++) {
        const hf_vote *vote = &ballot->votes[i];
        votes.pending += !vote->counted;
        votes.yes += vote->counted && vote->yes;
        votes.spared += vote->spared;
        votes.busy += vote->counted && !vote->yes && vote->code == HF_BUSY;
        votes.denied += vote->counted && !vote->yes && vote->code == HF_DENIED;
        votes.conflict += vote->counted && !vote->yes && vote->code == HF_CONFLICT;
        votes.lost += vote->counted && !vote->yes && (vote->code == HF_LOST || vote->code == HF_NOT_HELD);
    }
    return votes;
}

static void say_no(hf_vote *vote, hf_code code, const char *why) {
    vote->counted = true;
    vote->yes = false;
    vote->code = code;
    snprintf(vote->why, sizeof vote->why, "%.63s", why);
}

static void say_yes(hf_vote *vote) {
    vote->counted = vote->yes = true;
    vote->code = HF_OK;
}

/* The bare reason where there is one, else the code's name. */
static const char *why_not(const hf_op *op) {
    bool server_said = op->failure.code == HF_UNREACHABLE || op->failure.code == HF_DENIED;
    bool bare = server_said && op->request.failure.code == op->failure.code;
    return bare ? op->request.failure.text : hf_code_name(op->failure.code);
}

static void count_vote(hf_op *op, size_t index, hf_time now) {
    hf_vote *vote = &op->ballot->votes[index];
    const hf_op *asked = vote->op;
    if (asked->failure.code != HF_OK) {
        say_no(vote, asked->failure.code, why_not(asked));
        return;
    }
    say_yes(vote);
    if (!acquires(op)) return;
    vote->token = asked->hold->token;
    hf_quorum_learn_clock(quorum_of(op), index, asked);
    if (!hf_quorum_is_guarded(op->client, index, now) || HF_DEFECT(NO_GUARD)) return;
    hf_client_abandon(quorum_of(op)->members[index], asked->hold, 1, now);
    vote->left = true;
    say_no(vote, HF_UNREACHABLE, "restarted a short time ago");
}

static void count_done(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    for (size_t i = 0; i < ballot->count; i++) {
        hf_vote *vote = &ballot->votes[i];
        if (!vote->counted && vote->op->done) count_vote(op, i, now);
    }
}

/* A server that is not there keeps those waiting that must first undo something on it. */
static const char *why_silent(const hf_client *member) {
    const hf_session *calls = &member->first.links[HF_LINK_CALLS];
    bool away = calls->state == HF_SESSION_CLOSED && calls->reason[0] != '\0';
    return away ? calls->reason : "no reply in time";
}

static void time_out(const hf_op *op) {
    hf_ballot *ballot = op->ballot;
    for (size_t i = 0; i < ballot->count; i++) {
        if (!ballot->votes[i].counted) say_no(&ballot->votes[i], HF_UNREACHABLE, why_silent(quorum_of(op)->members[i]));
    }
}

/* It waits for a command of the keeper, which waits for a connection: that is tried now, as for a command of its own.
 */
static void hasten(hf_client *member, hf_time now) {
    for (int link = 0; link < HF_LINKS; link++) hf_session_hasten(&member->first.links[link], now);
}

static bool ask(hf_op *op, size_t index, const hf_op_spec *spec, hf_time now) {
    hf_vote *vote = &op->ballot->votes[index];
    vote->op = hf_client_begin(quorum_of(op)->members[index], spec, now);
    if (!vote->op) say_no(vote, HF_NO_MEMORY, "out of memory");
    else if (vote->op->blocked) hasten(quorum_of(op)->members[index], now);
    return vote->op != NULL;
}

static void open_round(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    ballot->state = HF_BALLOT_ASKING;
    ballot->rounds++;
    ballot->asked_at = now;
    ballot->decide_by = now + op->client->config.session.command_timeout;
    ballot->retry_at = HF_NEVER;
    memset(ballot->votes, 0, ballot->count * sizeof *ballot->votes);
}

static bool refused_lately(const hf_client *member, hf_time now) {
    const hf_session *calls = &member->first.links[HF_LINK_CALLS];
    bool refused = calls->state == HF_SESSION_CLOSED && calls->vain_opens > 0 && calls->reason_code == HF_UNREACHABLE;
    return refused && now < calls->opened_at + REFUSED_FOR;
}

static hf_op_spec spec_of_votes(const hf_op *op, hf_time now) {
    hf_op_spec spec = hf_ballot_spec(op->ballot, &op->spec);
    if (acquires(op) && spec.token_ttl_ms > 0) spec.token_floor = hf_quorum_propose(quorum_of(op), now);
    return spec;
}

static void ask_all(hf_op *op, hf_time now) {
    open_round(op, now);
    hf_op_spec spec = spec_of_votes(op, now);
    for (size_t i = 0; i < op->ballot->count; i++) {
        hf_vote *vote = &op->ballot->votes[i];
        const hf_client *member = quorum_of(op)->members[i];
        vote->spared = refused_lately(member, now);
        if (vote->spared) say_no(vote, HF_UNREACHABLE, member->first.links[HF_LINK_CALLS].reason);
        else ask(op, i, &spec, now);
    }
}

/* The others do not suffice. False when these would not either. */
static bool ask_spared(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    tally votes = count_votes(ballot);
    if (votes.spared == 0 || votes.yes + votes.pending + votes.spared < quorum_of(op)->majority) return false;
    hf_op_spec spec = spec_of_votes(op, now);
    for (size_t i = 0; i < ballot->count; i++) {
        hf_vote *vote = &ballot->votes[i];
        if (!vote->spared) continue;
        vote->spared = vote->counted = false;
        ask(op, i, &spec, now);
    }
    ballot->decide_by = now + op->client->config.session.command_timeout;
    return true;
}

/* The server said yes to an acquire, whether that was counted or came too late for it. */
static bool has_got(const hf_op *op, const hf_vote *vote) {
    if (HF_DEFECT(YES_UNCOUNTED) && !vote->yes) return false;
    return acquires(op) && vote->op && vote->op->done && vote->op->failure.code == HF_OK && !vote->left;
}

/* What is under way goes on in the background; what is done is done. */
static void end_votes(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    for (size_t i = 0; i < ballot->count; i++) {
        hf_vote *vote = &ballot->votes[i];
        if (vote->raise) hf_op_end(vote->raise, now);
        if (has_got(op, vote) && !vote->yes) hf_client_abandon(quorum_of(op)->members[i], vote->op->hold, 1, now);
        if (vote->op && vote->op->done) hf_op_end(vote->op, now);
        else if (vote->op) hf_quorum_leave_behind(op->client, ballot, i, vote->op, now);
        vote->op = vote->raise = NULL;
    }
}

/* An acquire without a majority leaves nothing: not what it got, nor what it may still get. */
static void give_back(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    for (size_t i = 0; i < ballot->count; i++) {
        hf_vote *vote = &ballot->votes[i];
        if (vote->raise) hf_op_end(vote->raise, now);
        if (has_got(op, vote) && !HF_DEFECT(MINORITY_KEPT))
            hf_client_abandon(quorum_of(op)->members[i], vote->op->hold, 1, now);
        if (vote->op) hf_op_end(vote->op, now);
        vote->op = vote->raise = NULL;
    }
}

/* ---- words ---- */

static void describe(const hf_op *op, char *text, size_t size) {
    const hf_ballot *ballot = op->ballot;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ballot->count && used < size; i++) {
        const hf_vote *vote = &ballot->votes[i];
        if (vote->yes || !vote->counted) continue;
        const char *label = op->client->config.servers[i].label;
        used += (size_t)snprintf(text + used, size - used, "%s %s %s", used ? "," : ":", label, vote->why);
    }
}

static void fail_with_votes(hf_op *op, hf_code code, const char *done) {
    char text[HF_FAILURE_TEXT];
    describe(op, text, sizeof text);
    tally votes = count_votes(op->ballot);
    char unheard[48] = "";
    if (votes.pending > 0) snprintf(unheard, sizeof unheard, ", %zu not heard yet", votes.pending);
    hf_op_fail(op, code, "%zu of %zu %s%s%s", votes.yes, op->ballot->count, done, unheard, text);
}

static void conclude(hf_op *op, hf_time now) {
    op->ballot->state = HF_BALLOT_DECIDED;
    if (op->ballot->hold) op->ballot->hold->busy = false;
    end_votes(op, now);
    if (op->ballot->hold) hf_client_hold_is_free(op->client, op->ballot->hold, now);
}

/* ---- acquire ---- */

static void forget_hold(hf_op *op) {
    hf_hold *hold = op->hold;
    if (hold && hold->in_table && hold->state == HF_HOLD_ACQUIRING) hf_holds_remove(&op->client->holds, hold);
}

static void fail_acquire(hf_op *op, hf_code code, hf_time now) {
    if (op->hold && op->hold->state == HF_HOLD_HELD) hf_quorum_look_at(op->client, op->hold, now);
    bool lost = op->hold && op->hold->state == HF_HOLD_LOST;
    fail_with_votes(op, lost ? HF_LOST : op->interrupted ? HF_INTERRUPTED : code, "taken");
    give_back(op, now);
    forget_hold(op);
    conclude(op, now);
}

/* A vote that settles the matter whatever the others say. */
static bool ends_at_once(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    for (size_t i = 0; i < ballot->count; i++) {
        hf_vote *vote = &ballot->votes[i];
        bool final = vote->code == HF_DUPLICATE || vote->code == HF_MISMATCH || vote->code == HF_CONFLICT;
        if (!vote->counted || vote->yes || !final) continue;
        op->record = vote->op->record;
        op->record_size = vote->op->record_size;
        vote->op->record = NULL;
        fail_acquire(op, vote->code, now);
        return true;
    }
    return false;
}

/* Who has not answered yet is not known to be away. */
static hf_code code_of_votes(const hf_op *op) {
    tally votes = count_votes(op->ballot);
    size_t majority = quorum_of(op)->majority;
    if (votes.busy > 0 && votes.yes + votes.busy + votes.pending >= majority) return HF_BUSY;
    if (votes.conflict > op->ballot->count - majority) return HF_CONFLICT;
    return votes.denied > op->ballot->count - majority ? HF_DENIED : HF_NO_QUORUM;
}

static void pause(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    uint32_t doublings = ballot->rounds < 5 ? ballot->rounds : 5;
    hf_time most = hf_time_min((FIRST_PAUSE << doublings) + 2 * (now - ballot->asked_at), MOST_PAUSE);
    ballot->state = HF_BALLOT_PAUSING;
    ballot->retry_at = now + HF_MS + hf_jitter(&op->client->random, most);
    ballot->decide_by = HF_NEVER;
    if (ballot->rounds == 1) op->client->stats.waits++;
}

/* Who waits goes on waiting, but not for servers that were not there from the beginning. */
static void on_no_majority(hf_op *op, hf_time now) {
    if (ends_at_once(op, now)) return;
    hf_code code = code_of_votes(op);
    bool may_change = code == HF_BUSY || (code == HF_NO_QUORUM && op->ballot->rounds > 1);
    bool gone = op->hold->state == HF_HOLD_LOST;
    if (!may_change || gone || op->interrupted || now >= op->wait_until) {
        fail_acquire(op, code, now);
        return;
    }
    give_back(op, now);
    pause(op, now);
}

static bool add_parts(hf_op *op) {
    for (size_t i = 0; i < op->ballot->count; i++) {
        const hf_vote *vote = &op->ballot->votes[i];
        if (vote->yes && !hf_quorum_add_part(op->client, op->hold, i, vote->op->hold)) return false;
    }
    return true;
}

static void take(hf_op *op, hf_time now) {
    hf_hold *hold = op->hold;
    hf_client *client = op->client;
    bool first = hold->state == HF_HOLD_ACQUIRING;
    bool usable = (first || hold->state == HF_HOLD_HELD) && add_parts(op);
    if (first) hold->count = 0;
    hold->state = usable ? HF_HOLD_HELD : hold->state;
    hold->renewed = op->spec.renewed || (!first && hold->renewed);
    hold->lease = first ? op->spec.lease : hf_time_max(hold->lease, op->spec.lease);
    hold->token_ttl_ms = op->spec.token_ttl_ms;
    hold->shared = op->spec.shared;
    if (first) hold->token = op->ballot->token;
    if (usable) hf_quorum_look_at(client, hold, now);
    if (hold->state != HF_HOLD_HELD) {
        hf_op_fail(op, HF_LOST, "the servers answered after the lease had ended");
        give_back(op, now);
        if (first && hold->in_table) hf_holds_remove(&client->holds, hold);
        conclude(op, now);
        return;
    }
    hold->count++;
    hold->reason = HF_LOST_NOT;
    if (first) client->stats.acquires++;
    else client->stats.reentries++;
    hf_op_succeed(op);
    conclude(op, now);
}

/* A yes whose lease has ended before the decision says nothing of who came in between. */
static bool still_counts(const hf_vote *vote, hf_time now) {
    return vote->yes && hf_part_is_held(vote->op->hold) && hf_hold_is_valid(vote->op->hold, now);
}

/* The majority-th smallest token among those given out, 0: too few of them count. A hold before this one was known to a
 * majority, so among any majority of yeses there is a token above its own. */
static uint64_t common_token(const hf_op *op, hf_time now) {
    const hf_ballot *ballot = op->ballot;
    uint64_t common = UINT64_MAX;
    for (size_t i = 0; i < ballot->count; i++) {
        size_t reach = 0;
        for (size_t j = 0; j < ballot->count; j++)
            reach += still_counts(&ballot->votes[j], now) && ballot->votes[j].token <= ballot->votes[i].token;
        bool enough =
            still_counts(&ballot->votes[i], now) && (reach >= quorum_of(op)->majority || HF_DEFECT(TOKEN_LOWEST));
        if (enough && ballot->votes[i].token < common) common = ballot->votes[i].token;
    }
    return common == UINT64_MAX ? 0 : common;
}

static size_t count_informed(const hf_ballot *ballot, hf_time now) {
    size_t informed = 0;
    for (size_t i = 0; i < ballot->count; i++)
        informed += still_counts(&ballot->votes[i], now) && ballot->votes[i].token >= ballot->token;
    return informed;
}

static void raise_tokens(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    ballot->state = HF_BALLOT_RAISING;
    ballot->decide_by = now + op->client->config.session.command_timeout;
    hf_op_spec spec = hf_ballot_spec(ballot, &op->spec);
    spec.kind = HF_OP_RAISE;
    spec.token_floor = ballot->token;
    for (size_t i = 0; i < ballot->count; i++) {
        hf_vote *vote = &ballot->votes[i];
        if (vote->raise) hf_op_end(vote->raise, now);
        vote->raise = NULL;
        if (vote->yes && vote->token < ballot->token)
            vote->raise = hf_client_begin(quorum_of(op)->members[i], &spec, now);
    }
}

static void on_majority(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    bool first = op->hold->state == HF_HOLD_ACQUIRING;
    quorum_of(op)->last_round = hf_time_min(now - ballot->asked_at, HF_SECOND);
    if (!first || op->spec.token_ttl_ms == 0) {
        take(op, now);
        return;
    }
    ballot->token = common_token(op, now);
    bool known = count_informed(ballot, now) >= quorum_of(op)->majority;
    if (known || ballot->token == 0 || HF_DEFECT(NO_WRITE_BACK)) {
        take(op, now);
        return;
    }
    raise_tokens(op, now);
    if (HF_DEFECT(RAISE_UNHEARD)) take(op, now);
}

static void look_at_raised(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    bool under_way = false;
    for (size_t i = 0; i < ballot->count; i++) {
        hf_vote *vote = &ballot->votes[i];
        if (!vote->raise) continue;
        under_way = under_way || !vote->raise->done;
        if (!vote->raise->done) continue;
        if (vote->raise->failure.code == HF_OK) vote->token = vote->raise->spec.token_floor;
        hf_op_end(vote->raise, now);
        vote->raise = NULL;
    }
    under_way = under_way || count_votes(ballot).pending > 0;
    bool over = !under_way || now >= ballot->decide_by, enough = count_informed(ballot, now) >= quorum_of(op)->majority;
    uint64_t common = common_token(op, now);
    if (common > ballot->token) { /* a yes came late, and others have ended */
        ballot->token = common;
        raise_tokens(op, now);
    } else if (enough || (over && common == 0)) {
        take(op, now);
    } else if (over) {
        on_no_majority(op, now);
    }
}

/* A majority has answered, but not with one voice: the rest is given as long again as that took, and some more. */
static void hurry(hf_op *op, const tally *votes, hf_time now) {
    hf_ballot *ballot = op->ballot;
    if (ballot->count - votes->pending < quorum_of(op)->majority) return;
    hf_time grace = hf_time_max(LEAST_GRACE, 10 * (now - ballot->asked_at));
    ballot->decide_by = hf_time_min(ballot->decide_by, now + grace);
}

static void look_at_acquire(hf_op *op, hf_time now) {
    size_t majority = quorum_of(op)->majority;
    count_done(op, now);
    if (op->ballot->state == HF_BALLOT_RAISING) {
        look_at_raised(op, now);
        return;
    }
    if (now >= op->ballot->decide_by) time_out(op);
    tally votes = count_votes(op->ballot);
    if (votes.yes >= majority) on_majority(op, now);
    else if (votes.yes + votes.pending >= majority) hurry(op, &votes, now);
    else if (op->interrupted || !ask_spared(op, now)) on_no_majority(op, now);
}

/* ---- on a hold ---- */

static void fail_lost(hf_op *op) {
    hf_op_fail(op, HF_LOST, "it is not held by a majority any more (%s)",
               hf_lost_reason_name(op->ballot->hold->reason));
}

/* Held by fewer than could make a majority together with those that said nothing. */
static bool is_gone(const hf_op *op) {
    return count_votes(op->ballot).lost > op->ballot->count - quorum_of(op)->majority;
}

static void finish_release(hf_op *op, bool done, hf_time now) {
    hf_hold *hold = op->ballot->hold;
    hf_client *client = op->client;
    bool last = hold->state == HF_HOLD_RELEASING;
    if (done) {
        client->stats.releases++;
        hf_op_succeed(op);
    } else if (is_gone(op)) {
        if (hold->in_table) hf_client_lose(client, hold, HF_LOST_DELETED);
        fail_lost(op);
    } else {
        fail_with_votes(op, HF_NO_QUORUM, "released, the release goes on in the background");
    }
    if (last) {
        if (op->spec.kind == HF_OP_RELEASE) hf_quorum_leave_parts(client, hold, 0, now);
        if (hold->in_table) hf_holds_remove(&client->holds, hold);
    } else {
        hold->count--;
        hf_quorum_look_at(client, hold, now);
    }
    conclude(op, now);
}

static void finish_extend(hf_op *op, bool done, hf_time now) {
    hf_hold *hold = op->ballot->hold;
    if (done && op->spec.kind == HF_OP_EXTEND) hold->lease = op->spec.lease;
    hf_holds_wake_at(&op->client->holds, hold, HF_NEVER);
    hf_quorum_look_at(op->client, hold, now);
    if (hold->state == HF_HOLD_LOST) fail_lost(op);
    else if (done) hf_op_succeed(op);
    else fail_with_votes(op, HF_NO_QUORUM, op->spec.kind == HF_OP_EXTEND ? "extended" : "confirmed");
    conclude(op, now);
}

static void finish_on_hold(hf_op *op, bool done, hf_time now) {
    if (lets_go(op)) finish_release(op, done, now);
    else finish_extend(op, done, now);
}

/* A part that is to keep what the owner keeps, or is not there, is let go of already; but a record cannot be left
 * there. */
static bool has_nothing_to_release(const hf_op *op, const hf_hold *part) {
    uint32_t keep = op->ballot->hold->count - 1;
    return (op->spec.kind == HF_OP_RELEASE || (lets_go(op) && HF_DEFECT(RECORD_UNTOLD))) &&
           (!hf_part_is_held(part) || part->count - part->base <= keep);
}

static void ask_parts(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    hf_op_spec spec = hf_ballot_spec(ballot, &op->spec);
    open_round(op, now);
    for (size_t i = 0; i < ballot->count; i++) {
        const hf_hold *part = ballot->hold->parts[i];
        if (has_nothing_to_release(op, part)) say_yes(&ballot->votes[i]);
        else if (!hf_part_is_held(part)) say_no(&ballot->votes[i], HF_NOT_HELD, "not held there");
        else ask(op, i, &spec, now);
    }
}

static void begin_on_hold(hf_op *op, hf_time now) {
    hf_client *client = op->client;
    if (op->spec.lost) {
        hf_call_begin_on_lost(op);
        return;
    }
    hf_hold *hold = hf_holds_find(&client->holds, op->spec.layout, op->spec.names->key, op->spec.owner);
    if (hold) hf_quorum_look_at(client, hold, now);
    if (!hold || (hold->state != HF_HOLD_HELD && hold->state != HF_HOLD_LOST)) {
        hf_op_fail(op, HF_NOT_HELD, "this owner does not hold it");
        return;
    }
    hf_hold_ref(hold);
    op->hold = hold;
    if (hold->state == HF_HOLD_HELD && hold->busy) {
        op->blocked = true;
        return;
    }
    hf_hold_ref(hold);
    op->ballot->hold = hold;
    if (hold->state == HF_HOLD_LOST) {
        fail_lost(op);
        if (lets_go(op)) hf_quorum_abandon(client, hold, hold->count, now);
        return;
    }
    hold->busy = true;
    bool last = lets_go(op) && (hold->count == 1 || op->spec.kind == HF_OP_COMPLETE);
    if (last) hf_quorum_end_stragglers(client, hold, now);
    ask_parts(op, now);
    if (last) hold->state = HF_HOLD_RELEASING;
}

/* ---- without a hold ---- */

static int compare_values(const void *a, const void *b) {
    long long left = *(const long long *)a, right = *(const long long *)b;
    return (left < right) - (left > right);
}

/* The value that a majority has at least. */
static void read_ttl(hf_op *op) {
    hf_ballot *ballot = op->ballot;
    long long values[HF_QUORUM_MAX] = {0};
    size_t count = 0;
    for (size_t i = 0; i < ballot->count; i++) values[count++] = ballot->votes[i].yes ? ballot->votes[i].op->value : -2;
    qsort(values, count, sizeof *values, compare_values);
    op->value = values[quorum_of(op)->majority - 1];
}

static bool same_owner(const hf_op *a, const hf_op *b) {
    return a->info.owner_size == b->info.owner_size && memcmp(a->info.owner, b->info.owner, a->info.owner_size) == 0;
}

/* What a majority says of one owner; without such an owner the lock is free, as far as a quorum can be. */
static void read_info(hf_op *op) {
    hf_ballot *ballot = op->ballot;
    op->info.ttl_ms = -2;
    op->info.ahead = -1;
    for (size_t i = 0; i < ballot->count; i++) {
        const hf_op *one = ballot->votes[i].yes ? ballot->votes[i].op : NULL;
        size_t agree = 0;
        if (!one || one->info.owner_size == 0) continue;
        for (size_t j = 0; j < ballot->count; j++)
            agree += ballot->votes[j].yes && same_owner(one, ballot->votes[j].op);
        if (agree < quorum_of(op)->majority) continue;
        uint64_t token = op->info.token > one->info.token ? op->info.token : one->info.token;
        op->info = one->info;
        op->info.token = token;
        op->info.waiters = 0;
    }
}

/* Was it locked for anybody to notice: on a majority. */
static void read_forced(hf_op *op) {
    hf_ballot *ballot = op->ballot;
    size_t locked = 0;
    for (size_t i = 0; i < ballot->count; i++) locked += ballot->votes[i].yes && ballot->votes[i].op->value > 0;
    op->value = locked > 0;
    hf_hold *hold = hf_holds_find(&op->client->holds, op->spec.layout, op->spec.names->key, op->spec.owner);
    if (hold && hold->state == HF_HOLD_HELD) hf_client_lose(op->client, hold, HF_LOST_DELETED);
}

static void finish_plain(hf_op *op, bool done, hf_time now) {
    if (!done) {
        fail_with_votes(op, code_of_votes(op), "answered");
    } else {
        if (op->spec.kind == HF_OP_TTL) read_ttl(op);
        if (op->spec.kind == HF_OP_INFO) read_info(op);
        if (op->spec.kind == HF_OP_FORCE) read_forced(op);
        hf_op_succeed(op);
    }
    conclude(op, now);
}

/* Reading wants every answer that is to be had soon, or a majority might not be seen; and so does bad news of a hold,
 * whose parts tell whether it is lost. */
static bool wants_all(const hf_op *op, bool done) {
    if (op->ballot->hold) return !done;
    return op->spec.kind == HF_OP_TTL || op->spec.kind == HF_OP_INFO || op->spec.kind == HF_OP_FORCE;
}

static void look_at_call(hf_op *op, hf_time now) {
    size_t majority = quorum_of(op)->majority;
    count_done(op, now);
    if (now >= op->ballot->decide_by) time_out(op);
    tally votes = count_votes(op->ballot);
    bool done = votes.yes >= majority, failed = votes.yes + votes.pending < majority;
    if (failed && ask_spared(op, now)) return;
    hurry(op, &votes, now);
    if (!done && !failed) return;
    if (votes.pending > 0 && wants_all(op, done)) return;
    if (op->ballot->hold) finish_on_hold(op, done, now);
    else finish_plain(op, done, now);
}

/* ---- the operation ---- */

static void begin_acquire(hf_op *op, hf_time now) {
    op->wait_until = hf_time_add(now, op->spec.wait);
    hf_hold *known = hf_holds_find(&op->client->holds, op->spec.layout, op->spec.names->key, op->spec.owner);
    if (known) hf_quorum_look_at(op->client, known, now);
    if (known && known->state == HF_HOLD_LOST) hf_quorum_abandon(op->client, known, known->count, now);
    if (!hf_acquire_choose_hold(op, now)) return;
    if (op->hold->busy) {
        op->blocked = true;
        return;
    }
    hf_hold_ref(op->hold);
    op->ballot->hold = op->hold;
    op->hold->busy = true;
    ask_all(op, now);
}

void hf_ballot_begin(hf_op *op, hf_time now) {
    if (!op->ballot) op->ballot = hf_ballot_new(&op->spec, quorum_of(op)->count);
    if (!op->ballot) {
        hf_op_fail(op, HF_NO_MEMORY, "out of memory");
        return;
    }
    switch (op->spec.kind) {
    case HF_OP_ACQUIRE: begin_acquire(op, now); break;
    case HF_OP_RELEASE:
    case HF_OP_COMPLETE:
    case HF_OP_EXTEND:
    case HF_OP_CHECK: begin_on_hold(op, now); break;
    case HF_OP_COMMAND: hf_op_fail(op, HF_SERVER, "a command goes to one server, not to a quorum"); break;
    default: ask_all(op, now);
    }
    if (!op->done && !op->blocked) hf_ballot_tick(op, now);
}

void hf_ballot_unblock(hf_op *op, hf_time now) {
    hf_hold_unref(op->hold);
    op->hold = NULL;
    hf_ballot_begin(op, now);
}

void hf_ballot_tick(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    if (op->done || op->blocked) return;
    if (ballot->state == HF_BALLOT_PAUSING) {
        if (now >= op->wait_until) fail_acquire(op, HF_BUSY, now);
        else if (now >= ballot->retry_at) ask_all(op, now);
    } else if (acquires(op)) {
        look_at_acquire(op, now);
    } else {
        look_at_call(op, now);
    }
}

static bool has_uncounted(const hf_ballot *ballot) {
    for (size_t i = 0; i < ballot->count; i++) {
        const hf_vote *vote = &ballot->votes[i];
        if (vote->op && !vote->counted && vote->op->done) return true;
        if (vote->raise && vote->raise->done) return true;
    }
    return false;
}

hf_time hf_ballot_deadline(const hf_op *op) {
    const hf_ballot *ballot = op->ballot;
    if (op->done || op->blocked || !ballot) return HF_NEVER;
    if (ballot->state == HF_BALLOT_PAUSING) return hf_time_min(op->wait_until, ballot->retry_at);
    return has_uncounted(ballot) ? 0 : ballot->decide_by;
}

void hf_ballot_interrupt(hf_op *op, hf_time now) {
    if (op->done || !acquires(op)) return;
    bool waits = op->blocked || op->ballot->state == HF_BALLOT_PAUSING;
    op->interrupted = true;
    op->blocked = false;
    if (waits) fail_acquire(op, HF_INTERRUPTED, now);
    else op->ballot->decide_by = hf_time_min(op->ballot->decide_by, now + LEAST_GRACE);
}

void hf_ballot_give_up(hf_op *op, hf_time now) {
    hf_ballot *ballot = op->ballot;
    if (!ballot || op->blocked) return;
    if (acquires(op)) {
        give_back(op, now);
        forget_hold(op);
    } else if (ballot->hold && ballot->hold->state == HF_HOLD_RELEASING) {
        hf_quorum_leave_parts(op->client, ballot->hold, 0, now);
        if (ballot->hold->in_table) hf_holds_remove(&op->client->holds, ballot->hold);
    } else if (ballot->hold && lets_go(op)) {
        ballot->hold->count--;
    }
    conclude(op, now);
}

void hf_ballot_end(hf_op *op, hf_time now) {
    if (!op->ballot) return;
    end_votes(op, now);
    hf_ballot_unref(op->ballot);
    op->ballot = NULL;
}
