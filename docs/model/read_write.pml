/* The queue of a read/write lock: docs/how-to/read_write.md.
 *
 * Clients come again and again, some to read, some to write. A program on the server and its reply are one step; a
 * grant takes any time. Time has no length: a lease ends at some moment, but never on the server before the client,
 * which counts from an earlier moment, has stopped to believe in it. A grant names its place, so a look makes the
 * messages that were under way worthless; handoff.pml has that, and replies that take their time.
 *
 * Two worlds:
 *   calm    no lease ends and nobody looks by the clock; one waiter may die, noticed by the server. Nobody passes a
 *           writer that waits, all readers before the next writer come in together, and every waiter gets in.
 *   FAULTY  leases end, a grant is lost, one client dies, noticed or not; waiters look again by the clock. A writer is
 *           alone, dead readers keep nobody out once somebody looks, and a writer that waits gets in.
 *
 * MUTANT_… switches break the protocol in one place each; docs/model/run shows that each break is found. */

#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef ENDS
#define ENDS 1 /* how many leases of each client may end before it has used them */
#endif
#define WRITES(c) ((c) == 0 || (c) == 3)
#define NOBODY 255
#define BIT(c) (1 << (c))

mtype = { AWAY, WAITING, HOLDING, ENDING };

/* ---- the server ---- */

bool counted[CLIENTS]; /* the lock's hash has its field */
bool leased[CLIENTS];  /* and its lease runs: a reader without one is dead */
bool granted[CLIENTS]; /* its mark in the queue: it came in by a grant that is not confirmed */
byte queue[CLIENTS];
byte waiters;          /* in queue[0 ..] */
bool heard[CLIENTS];   /* its subscription stands */
bool told[CLIENTS];    /* a grant is under way to it */

/* ---- the clients ---- */

mtype state[CLIENTS] = AWAY;
bool fresh[CLIENTS]; /* the lease that it counts from its last look still runs */
bool crashed[CLIENTS];
bool taken;          /* the reply of the step */

/* ---- what only the properties need ---- */

byte earlier[CLIENTS]; /* the clients that waited when it took its place, and still do */
byte waiting;          /* those that wait and live */

byte i, place, live, first; /* zero between steps */
bool in_use, open, mine;

#define believes(c) (state[c] == HOLDING && fresh[c])

inline clean() {
    taken = false; i = 0; place = 0; live = 0; first = 0; in_use = false; open = false; mine = false
}

/* ---- properties ---- */

/* Somebody begins to believe: a writer has nobody beside it. */
inline check_alone(who) {
    i = 0;
    do
    :: i < CLIENTS ->
        assert(i == who || !believes(i) || (!WRITES(i) && !WRITES(who)));
        i++
    :: else -> break
    od
}

/* It comes in: no writer that lives waits before it; before a writer nobody does. */
inline check_order(who) {
#ifndef FAULTY
    i = 0;
    do
    :: i < CLIENTS ->
        assert(i == who || !(waiting & BIT(i)) || !(WRITES(i) || WRITES(who)) ||
            ((waiting & BIT(who)) && !(earlier[who] & BIT(i))));
        i++
    :: else -> break
    od
#else
    skip
#endif
}

/* After a step that serves the queue: who could come in has come in, and no lock is kept by dead readers alone. */
inline check_served() {
    look_at_lock();
    assert(!in_use || live > 0);
#ifndef FAULTY
    assert(waiters == 0 || !heard[queue[0]] || (in_use && (WRITES(queue[0]) || WRITES(first))))
#endif
}

inline no_longer_waits(who) {
    waiting = waiting & ~BIT(who);
    earlier[who] = 0;
    i = 0;
    do
    :: i < CLIENTS -> earlier[i] = earlier[i] & ~BIT(who); i++
    :: else -> break
    od
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

inline enqueue(who) {
    find(who);
    if
    :: place == waiters ->
        queue[waiters] = who;
        waiters++;
        earlier[who] = waiting;
        waiting = waiting | BIT(who)
    :: else
    fi
}

/* ---- the lock ---- */

/* in_use: the hash exists; live: its holders whose leases run; first: one of its holders */
inline look_at_lock() {
    in_use = false; live = 0; i = 0;
    do
    :: i < CLIENTS ->
        if
        :: counted[i] -> in_use = true; first = i; live = live + leased[i]
        :: else
        fi;
        i++
    :: else -> break
    od
}

inline delete_lock() {
    i = 0;
    do
    :: i < CLIENTS -> counted[i] = false; leased[i] = false; i++
    :: else -> break
    od
}

/* Readers whose leases have ended are forgotten; with the last one the lock is free. */
inline forget_dead() {
    look_at_lock();
#ifndef MUTANT_DEAD_COUNT
    if
    :: in_use && live == 0 -> delete_lock(); look_at_lock()
    :: else
    fi
#endif
}

/* A mark without a hold: its client has missed the grant. */
inline settle() {
    i = 0;
    do
    :: i < CLIENTS -> granted[i] = granted[i] && counted[i]; i++
    :: else -> break
    od
}

inline enter(who) {
    check_order(who);
    counted[who] = true;
    leased[who] = true;
    no_longer_waits(who)
}

inline admit(who) {
    remove(who);
    enter(who);
    granted[who] = true;
    told[who] = true
}

#ifdef MUTANT_WRITER_JOINS
#define WRITER_MAY true
#else
#define WRITER_MAY (!in_use)
#endif
#ifdef MUTANT_NO_SKIP
#define IS_DEAD(c) false
#else
#define IS_DEAD(c) (!heard[c])
#endif

/* From the first waiter on: the writer that finds the lock free, or all readers before the next writer. in_use says
 * whether readers have the lock. mine: `me`, which comes in by itself, may. */
inline serve(me) {
    open = true; mine = false;
    do
    :: open && waiters > 0 && queue[0] == me ->
        mine = (!WRITES(me) || WRITER_MAY);
        break
    :: open && waiters > 0 && queue[0] != me && IS_DEAD(queue[0]) -> remove(queue[0])
    :: open && waiters > 0 && queue[0] != me && !IS_DEAD(queue[0]) && WRITES(queue[0]) ->
        open = false;
        if
        :: WRITER_MAY -> first = queue[0]; admit(first); in_use = true
        :: else
        fi
    :: open && waiters > 0 && queue[0] != me && !IS_DEAD(queue[0]) && !WRITES(queue[0]) ->
        first = queue[0]; admit(first); in_use = true;
#ifdef MUTANT_ONE_READER
        open = false
#endif
    :: else -> break
    od;
    if
    :: me != NOBODY && open && waiters == 0 && (!WRITES(me) || WRITER_MAY) -> mine = true /* it has no place */
    :: else
    fi
}

#ifdef MUTANT_BATCH_PASSES
/* Readers behind the writer come in with those before it. */
inline serve_rest() {
    place = 0;
    do
    :: place < waiters && !WRITES(queue[place]) && heard[queue[place]] && in_use && !WRITES(first) ->
        first = queue[place]; admit(first); place = 0
    :: place < waiters && !(!WRITES(queue[place]) && heard[queue[place]] && in_use && !WRITES(first)) -> place++
    :: else -> break
    od
}
#else
#define serve_rest()
#endif

inline take(who) {
    remove(who);
    enter(who);
    granted[who] = false;
    taken = true
}

/* Readers behind one that comes in by itself come in with it. */
inline take_with_others(who) {
    take(who);
    if
    :: !WRITES(who) -> in_use = true; first = who; serve(NOBODY)
    :: else
    fi
}

#define NO_QUEUE (waiters == 0 && !granted[0] && !granted[1] && !granted[2] && !granted[CLIENTS - 1])
#ifdef MUTANT_READER_PASSES
#define MAY_JOIN(c) (!WRITES(c))
#else
#define MAY_JOIN(c) (!WRITES(c) && NO_QUEUE)
#endif

/* ---- the programs ---- */

inline acquire(who, stands) {
    taken = false; told[who] = false;
    look_at_lock();
    if
    :: counted[who] -> take(who)
    :: !counted[who] && !in_use && NO_QUEUE -> take(who)
    :: !counted[who] && in_use && !WRITES(first) && MAY_JOIN(who) -> take(who)
    :: else ->
        if
        :: stands -> enqueue(who)
        :: else
        fi;
        forget_dead();
        if
        :: !(in_use && WRITES(first)) -> settle(); serve(who); serve_rest()
        :: else -> mine = false
        fi;
        if
        :: mine -> take_with_others(who)
        :: else
        fi;
        check_served()
    fi
}

/* It is the lock's holder no more. */
inline let_go(who) {
    counted[who] = false; leased[who] = false; granted[who] = false;
#ifdef MUTANT_RELEASE_FREES
    delete_lock();
#endif
    forget_dead();
    if
    :: !in_use -> settle(); serve(NOBODY); serve_rest()
    :: else
    fi;
    check_served()
}

inline release(who) {
    if
    :: counted[who] -> let_go(who)
    :: else
    fi
}

/* A wait ends; the waiters behind it may get the lock. */
inline leave(who) {
    remove(who);
    no_longer_waits(who);
    told[who] = false; granted[who] = false;
    if
    :: counted[who] -> let_go(who)
    :: else ->
#ifndef MUTANT_LEAVE_SILENT
        forget_dead();
        if
        :: !(in_use && WRITES(first)) -> settle(); serve(NOBODY); serve_rest()
        :: else
        fi;
#endif
        check_served()
    fi
}

/* ---- a client ---- */

#ifdef MUTANT_NO_BOUND
#define ACCEPTED true /* a grant is believed however old the last look is */
#else
#define ACCEPTED (fresh[me])
#endif
#if defined(FAULTY) && !defined(MUTANT_NO_RECHECK)
#define RECHECKS true
#else
#define RECHECKS false
#endif

inline hold(who) {
    state[who] = HOLDING;
    fresh[who] = true;
    check_alone(who)
}

inline look(who, stands) {
    acquire(who, stands);
    fresh[who] = true;
    if
    :: taken -> hold(who)
    :: !taken && stands -> state[who] = WAITING
    :: else
    fi;
    clean()
}

proctype Client(byte me) {
    {
        goto begin;
begin:
        atomic { look(me, false) };
        if
        :: state[me] == HOLDING -> goto work
        :: else
        fi;
again:
        atomic { heard[me] = true; look(me, true) };
        if
        :: state[me] == HOLDING -> goto work
        :: else
        fi;
        if
        :: d_step { told[me] && ACCEPTED -> told[me] = false; hold(me); clean() }
        :: told[me] && !ACCEPTED -> goto again
        :: RECHECKS -> goto again
        :: me > 0 -> /* the first client waits for ever */
            d_step { fresh[me] = false; state[me] = ENDING; leave(me); clean() };
            goto ended
        fi;
work:
        if
        :: d_step { granted[me] && fresh[me] -> granted[me] = false } /* the confirmation */
        :: true
        fi;
        d_step { state[me] = ENDING; fresh[me] = false };
        d_step { release(me); clean() };
ended:
        atomic { state[me] = AWAY; heard[me] = false };
        goto begin
    } unless { crashed[me] }
}

/* ---- the rest of the world ---- */

inline crash(who) {
    crashed[who] = true; fresh[who] = false; state[who] = AWAY; no_longer_waits(who)
}

#ifdef FAULTY

/* The time of client `who` goes on, then that of the server. */
proctype Clock(byte who) {
    byte ends;
end_clock:
    do
    :: d_step { fresh[who] && ends < ENDS -> fresh[who] = false; ends++ }
    :: d_step {
            leased[who] && !fresh[who] ->
            leased[who] = false;
            counted[who] = counted[who] && !WRITES(who)
        }
    od
}

/* The hash lives for as long as one of its leases at least. */
proctype Expiry() {
end_expiry:
    do
    :: d_step {
            (counted[0] || counted[1] || counted[2] || counted[CLIENTS - 1]) &&
            !leased[0] && !leased[1] && !leased[2] && !leased[CLIENTS - 1] ->
            delete_lock();
            clean()
        }
    od
}

proctype World() {
    byte who;
    if
    :: who = 0
    :: who = 1
    :: who = 2
    :: who = CLIENTS - 1
    fi;
    if
    :: d_step { crash(who); heard[who] = false; clean() }
    :: d_step { crash(who); clean() }
    :: d_step { heard[who] = false; told[who] = false } /* its subscription ends */
    :: d_step { told[who] -> told[who] = false }
    fi
}

#else

/* One waiter dies, and the server notices. */
proctype World() {
    byte who;
    if
    :: who = 0
    :: who = 1
    :: who = 2
    :: who = CLIENTS - 1
    fi;
end_world:
    d_step {
        state[who] == WAITING && !counted[who] -> crash(who); heard[who] = false; clean()
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

/* The first client, which writes and never gives up, gets in. */
ltl gets_in { [] (state[0] == WAITING -> <> (state[0] != WAITING)) }
