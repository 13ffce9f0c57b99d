/* The hand-off of a lock from its holder to the first waiter that lives.
 *
 * What the programs of csrc/programs do in one piece is one step here: acquire, release, leave, and extend where it
 * confirms a grant. Each client has one owner and stands in the queue with one waiter. A command is under way before
 * it takes effect and its reply is under way after; a message is under way for as long as it likes, also longer than
 * any reply. Time has no length: a lease runs out at some moment, but never on the server before the owner, who
 * counts from an earlier moment, has stopped to believe in it.
 *
 * Two worlds:
 *   FAULTY  leases run out, one client crashes, one subscription breaks; waiters look again by the clock. Nobody ever
 *           holds the lock together with another, and every live waiter gets in.
 *   calm    no lease runs out and nobody looks by the clock; one waiter may crash, noticed by the server. Every live
 *           waiter gets in by hand-off alone, in the order of arrival.
 *
 * MUTANT_… switches break the protocol in one place each; docs/model/run shows that each break is found. */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifdef MUTANT_FORGET_EARLY
#define REMEMBERED false /* a grant that overtakes a reply is dropped */
#else
#define REMEMBERED true
#endif
#ifdef MUTANT_DEAF_PLACE
#define PLACE_NEEDS_EAR false /* takes its place before its subscription stands, and does not look after */
#else
#define PLACE_NEEDS_EAR true
#endif
#ifdef MUTANT_LATE_CLOCK
#define FROM_REPLY true /* counts leases from the reply */
#else
#define FROM_REPLY false
#endif
#define NOBODY 255
#define UNDER_WAY 2 /* the most messages to a client; further ones are lost */

mtype = { IDLE, ASKING, WAITING, HOLDING, LEAVING };
mtype = { NOTHING, LOOK, RELEASE, LEAVE, CONFIRM };
mtype = { TAKEN, BUSY, DONE, GONE };

/* ---- the server ---- */

byte owner = NOBODY;   /* who has the lock */
byte granted = NOBODY; /* score 0 in the queue: has it by a grant that is not confirmed */
byte queue[CLIENTS];
byte waiters;          /* in queue[0 ..] */
bool heard[CLIENTS];   /* the subscription to the client's grants stands */
bool kept[CLIENTS];    /* goes with the reply BUSY: the client stood in the queue before, and has missed no grant */
chan grants[CLIENTS] = [UNDER_WAY] of { byte }; /* under way: the round that is meant */

/* ---- the clients ---- */

mtype state[CLIENTS] = IDLE;
mtype command[CLIENTS] = NOTHING; /* under way to the server */
mtype reply[CLIENTS];
byte rounds[CLIENTS];
bool believes[CLIENTS]; /* it would do its protected work now */
bool fresh[CLIENTS];    /* a lease that began when the last look was sent would still run */
bool queued[CLIENTS];   /* asks for a place */
bool stood[CLIENTS];    /* has been told that it is in the queue */
bool displaced[CLIENTS]; /* may have missed a grant: from now on it asks before it believes one */
bool crashed[CLIENTS];

/* ---- what only the properties need ---- */

bool after[CLIENTS];  /* the lease that stands on the server began after the owner sent its last look */
byte arrival[CLIENTS]; /* the order in which waiters came, 0: not waiting */
byte arrivals;
bool short_of_memory; /* once */

byte i, head, place, about; /* zero between steps */

#define holders (believes[0] + believes[1] + believes[CLIENTS - 1] * (CLIENTS - 2))

inline clean() {
    i = 0; head = 0; place = 0; about = 0
}

/* ---- the queue ---- */

inline find(who) {
    place = 0;
    do
    :: place < waiters && queue[place] != who -> place++
    :: else -> break
    od
}

inline remove(who) {
    find(who);
    if
    :: place < waiters ->
        do
        :: place + 1 < waiters -> queue[place] = queue[place + 1]; place++
        :: else -> break
        od;
        waiters--;
        queue[waiters] = 0
    :: else
    fi
}

inline append(who) {
    queue[waiters] = who;
    waiters++
}

inline prepend(who) {
    i = waiters;
    do
    :: i > 0 -> queue[i] = queue[i - 1]; i--
    :: else -> break
    od;
    queue[0] = who;
    waiters++
}

inline forget(who) {
    remove(who);
    if
    :: granted == who -> granted = NOBODY
    :: else
    fi
}

/* ---- the programs ---- */

/* No live waiter came before: asserted where no fault excuses it. */
inline is_first(who) {
#ifndef FAULTY
    i = 0;
    do
    :: i < CLIENTS ->
        assert(i == who || arrival[i] == 0 || crashed[i] || (arrival[who] > 0 && arrival[who] < arrival[i]));
        i++
    :: else -> break
    od
#else
    skip
#endif
}

inline enter(who) {
    if
    :: owner != who -> is_first(who)
    :: else
    fi;
    owner = who;
    after[who] = true;
    arrival[who] = 0
}

inline tell(who) {
    if
    :: heard[who] && len(grants[who]) < UNDER_WAY -> grants[who] ! rounds[who]
    :: else
    fi
}

/* The lock is free and goes to the first waiter that is heard, unless that is `me`. A script that stops for want of
 * memory stops at its first write. */
inline hand_over(me, stops) {
    granted = NOBODY;
    do
    :: waiters == 0 || queue[0] == me -> break
    :: else ->
#ifdef MUTANT_LAST_FIRST
        head = queue[waiters - 1];
#else
        head = queue[0];
#endif
        remove(head);
        if
#ifdef MUTANT_NO_SKIP
        :: true ->
#else
        :: heard[head] ->
#endif
#ifdef MUTANT_TELL_FIRST
            tell(head);
            if
            :: stops -> prepend(head)
            :: else -> enter(head); granted = head
            fi;
#else
            if
            :: stops -> prepend(head)
            :: else -> enter(head); granted = head; tell(head)
            fi;
#endif
            break
#ifndef MUTANT_NO_SKIP
        :: else -> arrival[head] = 0
#endif
        fi
    od
}

inline enqueue(who) {
    if
    :: granted == who -> granted = NOBODY; kept[who] = false; prepend(who)
    :: else ->
        find(who);
        kept[who] = (place < waiters);
        if
        :: place == waiters ->
            append(who);
#ifndef FAULTY
            arrivals++;
            arrival[who] = arrivals
#endif
        :: else
        fi
    fi
}

inline take(who) {
    enter(who);
    forget(who);
    reply[who] = TAKEN
}

inline busy(who) {
    if
    :: queued[who] -> enqueue(who)
    :: else
    fi;
    reply[who] = BUSY
}

inline acquire(who, stops) {
    if
    :: owner == who || (owner == NOBODY && granted == who) -> take(who)
    :: owner != who && owner != NOBODY -> busy(who)
    :: owner == NOBODY && granted != who ->
        if
        :: granted != NOBODY -> forget(granted)
        :: else
        fi;
        hand_over(who, stops);
        if
        :: owner == NOBODY && !stops -> take(who)
        :: else -> busy(who)
        fi
    fi
}

inline let_go(who) {
    if
    :: owner == who -> owner = NOBODY; after[who] = false; hand_over(NOBODY, false); reply[who] = DONE
    :: else -> reply[who] = GONE
    fi
}

inline leave(who) {
    forget(who);
    arrival[who] = 0;
#ifdef MUTANT_LEAVE_KEEPS
    reply[who] = DONE
#else
    let_go(who)
#endif
}

inline confirm(who) {
    if
    :: owner == who -> granted = NOBODY; reply[who] = DONE
    :: else -> reply[who] = GONE
    fi
}

/* What is under way from this client takes effect. */
inline serve(who) {
    atomic {
        if
        :: stops = false
#ifdef FAULTY
        :: command[who] == LOOK && !short_of_memory -> stops = true; short_of_memory = true
#endif
        fi;
        d_step {
            if
            :: command[who] == LOOK -> acquire(who, stops)
            :: command[who] == RELEASE -> let_go(who)
            :: command[who] == LEAVE -> leave(who)
            :: command[who] == CONFIRM -> confirm(who)
            fi;
            command[who] = NOTHING;
            stops = false;
            clean()
        }
    }
}

/* ---- a client ---- */

#define heard_reply(kind) atomic { reply[me] == kind -> reply[me] = 0; fresh[me] = (fresh[me] || FROM_REPLY) }

/* Whether a grant may be believed without asking: it is for this wait, its lease still runs for sure, and there is no
 * older one for the same wait that it could be. */
#ifdef MUTANT_STALE_GRANT
#define ACCEPTED (about == rounds[me] && fresh[me])
#else
#ifdef MUTANT_NO_BOUND
#define ACCEPTED (about == rounds[me] && !displaced[me])
#else
#define ACCEPTED (about == rounds[me] && fresh[me] && !displaced[me])
#endif
#endif

/* After the answer "busy" to a client that had asked for a place. */
inline note_place() {
    displaced[me] = (displaced[me] || (stood[me] && !kept[me]));
    stood[me] = queued[me];
    kept[me] = false
}

inline hold() {
    believes[me] = true;
    state[me] = HOLDING;
    assert(holders <= 1)
}

proctype Client(byte me) {
    bool stops, early;
    {
        goto begin;
begin:
        rounds[me]++;

again:  /* a look; its lease counts from here */
        atomic {
            state[me] = ASKING; command[me] = LOOK; fresh[me] = true; after[me] = false; early = false;
            queued[me] = (queued[me] || heard[me] || !PLACE_NEEDS_EAR)
        };
        serve(me);
        do
        :: atomic { /* a grant overtook the reply */
                grants[me] ? about -> early = REMEMBERED && (early || about == rounds[me]); clean()
            }
        :: heard_reply(TAKEN) -> goto taken
        :: atomic { reply[me] == BUSY -> heard_reply(BUSY); note_place() }; break
        od;
        if
        :: early -> goto again
        :: !early && !heard[me] && PLACE_NEEDS_EAR -> heard[me] = true; goto again /* subscribe, then ask for a place */
        :: !early && !heard[me] && !PLACE_NEEDS_EAR -> heard[me] = true; state[me] = WAITING
        :: !early && heard[me] -> state[me] = WAITING
        fi;

        if
        :: atomic { grants[me] ? about ->
            if
            :: ACCEPTED -> clean(); hold(); goto confirming
            :: else -> clean(); goto again
            fi
        }
#ifdef FAULTY
#ifndef MUTANT_NO_LOOK
        :: goto again
#else
        :: !heard[me] -> goto again /* at least when the subscription comes back */
#endif
#endif
        :: me > 0 -> goto leaving /* the first client waits for ever */
        fi;

taken:
        if
        :: atomic { fresh[me] -> hold() }; goto work
        :: !fresh[me] -> goto leaving
        fi;

confirming:
        if
        :: goto work /* short work needs no confirmation */
        :: command[me] = CONFIRM;
            serve(me);
            if
            :: atomic { reply[me] == DONE && believes[me] -> fresh[me] = true; reply[me] = 0 }
            :: else -> goto leaving
            fi
        fi;

work:
        atomic { believes[me] = false; fresh[me] = false; command[me] = RELEASE };
        serve(me);
        goto ended;

leaving:
        atomic { believes[me] = false; fresh[me] = false; state[me] = LEAVING; command[me] = LEAVE };
        serve(me);
        assert(owner != me);

ended:
        atomic {
            state[me] = IDLE; reply[me] = 0;
            queued[me] = false; stood[me] = false; displaced[me] = false; kept[me] = false
        };
        if
        :: rounds[me] < ROUNDS -> goto begin
        :: rounds[me] == ROUNDS -> heard[me] = false
        fi;
end_of_it:
        do
        :: atomic { grants[me] ? about -> clean(); command[me] = LEAVE }; /* a wait that has ended: it is passed on */
            serve(me);
            reply[me] = 0
        od
    } unless { crashed[me] };

    /* what was under way may still arrive */
    if
    :: command[me] != NOTHING -> serve(me)
    :: atomic { command[me] = NOTHING; stops = false; early = false; reply[me] = 0 }
    fi
}

/* ---- the rest of the world ---- */

#ifdef FAULTY

/* The time of client `who` goes on. */
proctype Clock(byte who) {
end_clock:
    do
    :: d_step { fresh[who] -> fresh[who] = false; believes[who] = false }
    od
}

proctype Expiry() {
end_expiry:
    do
    :: d_step {
            owner != NOBODY && !believes[owner] && !(fresh[owner] && after[owner]) -> after[owner] = false; owner = NOBODY
        }
    od
}

/* Client `who` dies; the server notices the end of its connection at once, later, or never. */
inline crash(who) {
    d_step {
        crashed[who] = true; believes[who] = false; fresh[who] = false; state[who] = IDLE
    }
}

/* A subscription ends, and what was under way in it is lost. */
inline break_off(who) {
    d_step {
        heard[who] = false;
        do
        :: nempty(grants[who]) -> grants[who] ? about
        :: empty(grants[who]) -> break
        od;
        clean()
    }
}

proctype World() {
    byte who;
    if
    :: who = 0
    :: who = 1
    :: who = CLIENTS - 1
    fi;
    if
    :: crash(who); break_off(who)
    :: crash(who)
    :: break_off(who)
    fi
}

#else

/* One waiter dies, and the server notices. */
proctype World() {
    byte who;
    if
    :: who = 0
    :: who = 1
    :: who = CLIENTS - 1
    fi;
end_world:
    d_step {
        state[who] == WAITING && owner != who -> crashed[who] = true; state[who] = IDLE; heard[who] = false
    }
}

#endif

init {
    byte who;
    atomic {
        do
        :: who < CLIENTS ->
            run Client(who);
#ifdef FAULTY
            run Clock(who);
#endif
            who++
        :: else -> break
        od;
#ifdef FAULTY
        run Expiry();
#endif
        run World();
        who = 0
    }
}

/* The first client, which never gives up, gets in. */
ltl gets_in { [] ((state[0] == ASKING || state[0] == WAITING) -> <> (state[0] != ASKING && state[0] != WAITING)) }
