/* Locks that a client keeps for its callers: docs/explanation/keep.md.
 *
 * Clients with callers of their own want one lock again and again, and both keep it. A program on the server is
 * one step. Commands, replies, grants and wishes take any time; the return of a lock may be carried out again after
 * its reply. Time has no length: a lease ends at some moment, but never on the server before the client, which counts
 * from an earlier moment, has stopped to believe in it. handoff.pml has the waiters that die, and the places of grants.
 *
 * Three worlds:
 *   calm    no fault, no clock, and a kept lock may be kept for ever: everybody gets in by the wish alone.
 *   LOSSY   messages are lost and the first client crashes; waiters ask again by the clock, and the time of a kept
 *           lock is over at some moment. The second client's callers get in.
 *   FAULTY  leases end as well, the key is deleted, a shortening has no reply, a return is carried out twice. No two
 *           callers hold the lock at one moment, and nothing is lent that the client knows to be gone.
 * TOKENS counts them, up to MOST: each caller has a higher one than all callers before it.
 *
 * MUTANT_… switches break the protocol in one place each; docs/model/run shows that each break is found. */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef CALLERS
#define CALLERS 2 /* of each client */
#endif
#ifdef FAULTY
#define LOSSY
#ifndef ENDS
#define ENDS 1 /* how many leases of each client may end before it has used them */
#endif
#endif
#ifdef MUTANT_WISH_UNHEARD
#define HEARS_WISH false /* a client that keeps the lock does not hear that others want it */
#else
#define HEARS_WISH true
#endif
#ifdef MUTANT_LATER_FIRST
#define COMES_BEFORE(c) true /* callers that ask after the wish go before those elsewhere */
#else
#define COMES_BEFORE(c) (!wished[c] || before[c] > 0)
#endif
#ifdef MUTANT_KEEPS_ON
#define IN_TIME(c) true /* a kept lock is not returned while it is used */
#else
#define IN_TIME(c) (!over[c])
#endif
#ifdef MUTANT_LENT_AFTER_END
#define LASTS(c) true /* it is lent after its lease, for a new one */
#else
#define LASTS(c) (valid[c])
#endif
#ifdef MUTANT_SAME_OWNER
#define IS_CURRENT(c) true /* all holds of a client have one owner */
#else
#define IS_CURRENT(c) (!old[c])
#endif
#ifdef TOKENS
#ifndef MOST
#define MOST 8 /* a counter that has come so far gives no more */
#endif
#define SPAN 2 /* the tokens of a range */
#define ROOM (counter + SPAN <= MOST)
#define HAS_TOKEN(c) (next_token[c] <= last_token[c])
#else
#define ROOM true
#define HAS_TOKEN(c) true
#endif
#ifdef MUTANT_RANGE_EXCEEDED
#undef HAS_TOKEN
#define HAS_TOKEN(c) true
#endif
#define NOBODY 255
#define ID(c, k) ((c) * CALLERS + (k))
#define BELIEVES(i) (caller[i] == HOLDING && valid[(i) / CALLERS] && !deleted[(i) / CALLERS])

mtype = { AWAY, QUEUED, HOLDING };             /* a caller */
mtype = { NONE, ASKING, WAITING, LENT, IDLE }; /* what a client has */
mtype = { NOTHING, LOOK, SHORTEN };            /* a command under way to the server */
mtype = { TAKEN, BUSY, DONE, GONE };

/* ---- the server ---- */

byte owner = NOBODY;
bool old[CLIENTS];    /* the owner's hold is one that its client has returned */
bool cut[CLIENTS];    /* the owner's lease ends before that in which its client believes */
byte queue[CLIENTS];
byte waiters;         /* in queue[0 ..] */
bool granted[CLIENTS]; /* a grant is under way to the client */
bool wish[CLIENTS];    /* a wish is under way to the client, for its present hold */

/* ---- the clients ---- */

mtype caller[CLIENTS * CALLERS] = AWAY;
mtype state[CLIENTS] = NONE;
byte line[CLIENTS * CALLERS]; /* the callers of a client that wait, in order; the first one asks the server */
byte length[CLIENTS];
mtype command[CLIENTS] = NOTHING;
mtype reply[CLIENTS];
bool returning[CLIENTS]; /* the return of a hold is under way */
bool valid[CLIENTS];     /* its lease runs, by the client's clock */
bool fresh[CLIENTS];     /* a lease that began when the last look was sent would still run */
bool after[CLIENTS];     /* the lease on the server began after that */
bool wished[CLIENTS];
byte before[CLIENTS];    /* how many callers asked before the wish */
bool over[CLIENTS];      /* its lease has ended */
bool is_short[CLIENTS];  /* it was shortened since it is idle */
bool late[CLIENTS];      /* a shortening of the present hold that nobody waits for is under way */
bool crashed[CLIENTS];

/* ---- what only the properties need ---- */

bool deleted[CLIENTS]; /* somebody deleted the key: no client can know that at once */
bool told[CLIENTS];    /* the client was told that its hold is gone */

#ifdef TOKENS
byte counter;
byte next_token[CLIENTS];
byte last_token[CLIENTS];
byte sent_token[CLIENTS]; /* the first of the range that is under way to the client */
byte highest;
#endif

byte i, head, ends[CLIENTS]; /* i, head: zero between steps */

/* ---- the server's programs ---- */

inline in_queue(c) {
    i = 0;
    do
    :: i < waiters && queue[i] != c -> i++
    :: else -> break
    od
}

inline leave_queue(c) {
    in_queue(c);
    if
    :: i < waiters ->
        do
        :: i + 1 < waiters -> queue[i] = queue[i + 1]; i++
        :: else -> break
        od;
        waiters--;
        queue[waiters] = 0
    :: else
    fi;
    i = 0
}

inline say_wish(c) {
    wish[c] = !crashed[c]
}

inline own(c) {
    owner = c;
    old[c] = false;
    cut[c] = false;
    after[c] = true;
    deleted[c] = false;
    leave_queue(c);
#ifdef TOKENS
    sent_token[c] = counter + 1;
#ifdef MUTANT_RANGE_UNRESERVED
    counter = counter + 1;
#else
    counter = counter + SPAN;
#endif
#endif
#ifndef MUTANT_WISH_ONCE /* a client that gets the lock is not told that others wait */
    if
    :: waiters > 0 -> say_wish(c)
    :: else
    fi
#endif
}

inline hand_over() {
    head = queue[0];
    own(head);
    granted[head] = true;
    head = 0
}

inline busy(c) {
    reply[c] = BUSY;
    in_queue(c);
    if
    :: i == waiters ->
        granted[c] = false; /* one for an earlier place */
        queue[waiters] = c;
        waiters++
    :: else
    fi;
    if
    :: queue[0] == c && owner != c && !old[owner] -> say_wish(owner)
    :: else
    fi;
    i = 0
}

inline look(c) {
    if
    :: owner == NOBODY && waiters > 0 && queue[0] != c -> hand_over()
    :: else
    fi;
    if
    :: owner == NOBODY || (owner == c && IS_CURRENT(c)) -> own(c); granted[c] = false; reply[c] = TAKEN
    :: else -> busy(c)
    fi
}

inline shorten(c) {
    if
    :: owner == c && IS_CURRENT(c) -> cut[c] = true; reply[c] = DONE
    :: else -> reply[c] = GONE
    fi
}

inline free(c) {
    if
#ifdef MUTANT_SAME_OWNER
    :: owner == c ->
#else
    :: owner == c && old[c] ->
#endif
        owner = NOBODY;
        cut[c] = false;
        if
        :: waiters > 0 -> hand_over()
        :: else
        fi
    :: else
    fi
}

/* ---- a client ---- */

inline end_hold(c) {
    state[c] = NONE;
    old[c] = true;
    valid[c] = false;
    wish[c] = false;
    wished[c] = false;
    before[c] = 0;
    over[c] = false;
    is_short[c] = false;
    told[c] = false;
#ifndef MUTANT_SAME_OWNER
    late[c] = false
#endif
}

inline release_kept(c) {
    end_hold(c);
    returning[c] = true
}

/* To the first in line. */
inline lend(c) {
    head = line[ID(c, 0)];
    i = 0;
    do
    :: i + 1 < length[c] -> line[ID(c, i)] = line[ID(c, i + 1)]; i++
    :: else -> break
    od;
    length[c] = length[c] - 1;
    line[ID(c, length[c])] = 0;
    i = 0;
    before[c] = (before[c] > 0 -> before[c] - 1 : 0);
    state[c] = LENT;
    is_short[c] = false;
    caller[head] = HOLDING;
    head = 0;
#ifdef MUTANT_LENT_AFTER_END
    valid[c] = true;
#endif
    assert(!told[c]);
#ifdef TOKENS
    assert(deleted[c] || next_token[c] > highest);
    highest = next_token[c];
#ifndef MUTANT_TOKEN_AGAIN
    next_token[c] = next_token[c] + 1;
#endif
#endif
    check()
}

inline check() {
    i = 0;
    do
    :: i < CLIENTS * CALLERS -> head = head + (BELIEVES(i) -> 1 : 0); i++
    :: else -> break
    od;
    assert(head <= 1);
    i = 0;
    head = 0
}

inline took(c) {
    valid[c] = true;
#ifdef TOKENS
    next_token[c] = sent_token[c];
    last_token[c] = sent_token[c] + SPAN - 1;
#endif
#ifdef MUTANT_EARLY_WISH
    wished[c] = false; /* a wish that overtakes the reply is not heard */
#endif
    before[c] = (wished[c] -> length[c] : 0);
    lend(c)
}

#define MAY_LEND(c) (length[c] > 0 && COMES_BEFORE(c) && IN_TIME(c) && HAS_TOKEN(c) && LASTS(c))

inline release(c) {
    if
    :: MAY_LEND(c) -> lend(c)
    :: length[c] == 0 && !wished[c] && IN_TIME(c) && LASTS(c) -> state[c] = IDLE
    :: else -> release_kept(c)
    fi
}

inline send_look(c) {
    command[c] = LOOK;
    fresh[c] = true;
    after[c] = false;
    state[c] = ASKING
}

inline read(c) {
    if
    :: reply[c] == TAKEN && fresh[c] -> took(c)
    :: reply[c] == TAKEN && !fresh[c] -> release_kept(c)
    :: reply[c] == BUSY -> state[c] = WAITING
    :: reply[c] == DONE ->
        is_short[c] = true;
#ifndef MUTANT_SHORT_UNNOTICED
        /* by the clock: the short lease that began when the command was sent ends here before it ends there */
        valid[c] = (valid[c] && (owner == c || deleted[c]));
        cut[c] = false
#endif
#ifdef MUTANT_GONE_UNHEARD
    :: reply[c] == GONE -> told[c] = true; is_short[c] = true
#else
    :: reply[c] == GONE -> end_hold(c)
#endif
    fi;
    reply[c] = 0
}

proctype Caller(byte c; byte k) {
end_caller:
    do
    :: d_step { caller[ID(c, k)] == AWAY && !crashed[c] ->
        caller[ID(c, k)] = QUEUED;
        line[ID(c, length[c])] = ID(c, k);
        length[c] = length[c] + 1 }
    :: d_step { caller[ID(c, k)] == HOLDING && !crashed[c] ->
        caller[ID(c, k)] = AWAY;
        release(c) }
    od
}

/* What the client does without a caller or a message. */
proctype Client(byte c) {
end_client:
    do
    :: d_step { state[c] == NONE && length[c] > 0 && !crashed[c] -> send_look(c) }
    :: d_step { state[c] == IDLE && command[c] == NOTHING && reply[c] == 0 && MAY_LEND(c) && !crashed[c] -> lend(c) }
    :: d_step {
        state[c] == IDLE && command[c] == NOTHING && reply[c] == 0 && !MAY_LEND(c) && !crashed[c] &&
        (wished[c] || !IN_TIME(c) || !LASTS(c) || length[c] > 0) ->
        release_kept(c) }
    od
}

/* What is under way to the server and back. */
proctype Server(byte c) {
end_server:
    do
    :: d_step { command[c] == LOOK && ROOM -> look(c); command[c] = NOTHING }
    :: d_step { command[c] == SHORTEN -> shorten(c); command[c] = NOTHING }
    :: d_step { reply[c] != 0 && !crashed[c] -> read(c) }
    od
}

proctype Return(byte c) {
end_return:
    do
    :: d_step { returning[c] && ROOM -> free(c); returning[c] = false }
#ifdef FAULTY
    :: d_step { returning[c] && ROOM -> free(c) }
#endif
    od
}

proctype Grant(byte c) {
end_grant:
    do
    :: d_step { granted[c] && state[c] == WAITING && !crashed[c] ->
        granted[c] = false;
        if
        :: fresh[c] -> took(c)
        :: else -> send_look(c)
        fi }
    :: d_step { granted[c] && state[c] != WAITING && state[c] != ASKING -> granted[c] = false }
    od
}

proctype Wish(byte c) {
end_wish:
    do
    :: d_step { wish[c] ->
        wish[c] = false;
        before[c] = (!wished[c] && state[c] == LENT -> length[c] : before[c]);
        wished[c] = (state[c] != NONE && HEARS_WISH) }
    od
}

/* ---- clocks and faults ---- */

#ifdef LOSSY

#ifdef FAULTY
#define IS_BELIEVED(c) (valid[c] || (fresh[c] && after[c] && (state[c] == ASKING || state[c] == WAITING)))
#else
#define IS_BELIEVED(c) (!crashed[c])
#endif

/* A lease ends on the server. */
proctype Expiry() {
end_expiry:
    do
    :: d_step { owner != NOBODY && (old[owner] || cut[owner] || !IS_BELIEVED(owner)) -> owner = NOBODY }
    od
}

/* The time of a kept lock is over. */
proctype Keep(byte c) {
end_keep:
    do
    :: d_step { (state[c] == LENT || state[c] == IDLE) && !over[c] -> over[c] = true }
    od
}

/* A waiter asks again by the clock. */
proctype Recheck(byte c) {
end_recheck:
    do
#ifndef MUTANT_NO_RECHECK
    :: d_step { state[c] == WAITING && !granted[c] && !crashed[c] -> send_look(c) }
#else
    :: false
#endif
    od
}

proctype Loss() {
end_loss:
    do
    :: d_step { granted[0] -> granted[0] = false }
    :: d_step { granted[1] -> granted[1] = false }
    :: d_step { wish[0] -> wish[0] = false }
    :: d_step { wish[1] -> wish[1] = false }
    :: d_step { !crashed[0] -> crashed[0] = true; valid[0] = false; fresh[0] = false; granted[0] = false;
        wish[0] = false }
    od
}

#endif

#ifdef FAULTY

/* A lease ends by the client's clock; a caller that has the lock learns of it. */
proctype Clock(byte c) {
end_clock:
    do
    :: d_step { ends[c] < ENDS && fresh[c] && (state[c] == ASKING || state[c] == WAITING) ->
        fresh[c] = false; ends[c]++ }
    :: d_step { ends[c] < ENDS && valid[c] -> valid[c] = false; ends[c]++ }
    od
}

/* An idle lock gets a short lease, so that a crash costs little. */
proctype Shortening(byte c) {
end_shortening:
    do
    :: d_step {
        state[c] == IDLE && command[c] == NOTHING && reply[c] == 0 && !is_short[c] && !wished[c] && !over[c] &&
        length[c] == 0 && !crashed[c] ->
        command[c] = SHORTEN }
    od
}

proctype Faults() {
end_faults:
    do
    :: d_step { owner == 0 && (state[0] == LENT || state[0] == IDLE) && !old[0] && !deleted[0] ->
        deleted[0] = true; owner = NOBODY }
    /* a shortening has no reply in time: it may still be carried out */
    :: d_step { command[0] == SHORTEN -> command[0] = NOTHING; late[0] = true;
#ifndef MUTANT_DOUBT_UNHEARD
        release_kept(0)
#endif
        }
    :: d_step { late[0] -> late[0] = false;
        cut[0] = (cut[0] || (owner == 0 && IS_CURRENT(0))) }
    od
}

#endif

init {
    byte c, k;
    atomic {
        do
        :: c < CLIENTS ->
            run Client(c); run Server(c); run Return(c); run Grant(c); run Wish(c);
#ifdef LOSSY
            run Keep(c); run Recheck(c);
#endif
#ifdef FAULTY
            run Clock(c); run Shortening(c);
#endif
            k = 0;
            do
            :: k < CALLERS -> run Caller(c, k); k++
            :: else -> break
            od;
            c++
        :: else -> break
        od;
#ifdef LOSSY
        run Expiry(); run Loss();
#endif
#ifdef FAULTY
        run Faults();
#endif
        c = 0;
        k = 0
    }
}

ltl gets_in { [] (caller[ID(1, 0)] == QUEUED -> <> (caller[ID(1, 0)] == HOLDING)) }
