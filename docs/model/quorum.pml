/* The tokens of a quorum: docs/explanation/quorum.md, "Fencing".
 *
 * Three servers and two clients that acquire one after the other, ROUNDS times each. A server gives a free lock to any
 * client that asks, with a token above its counter: by one, or by more where its clock is ahead. With a majority of
 * parts that still count, the client takes the majority-th smallest of their tokens; servers that gave a smaller one
 * must raise their counters, and the hold is decided when a majority of them knows the token. Answers and raises are
 * under way for as long as they like. A part may end at any moment, for the client before it ends on the server.
 *
 * Two clients never hold the lock at one moment, and the token of each hold is above those of all holds decided before.
 *
 * Why that is so for any number of servers n, with a majority m, 2m > n. Hold A is decided at a time t, with token T,
 * and hold B of a different owner later, with token U.
 *
 *   K: at least m servers, each of which had a valid part for A at t and a counter of at least T, because a majority
 *       had to know T.
 *   V: at least m servers whose parts for B were valid when B was decided. U is the m-th smallest of their tokens.
 *
 * A server in both K and V held the lock for A at t. It did not say yes to B before t: it would have had to end that
 * part of B before it said yes to A, and the client, whose count ends before the server's, does not take a part for
 * valid that has ended. So it said yes to B after t, with a counter of at least T, and its token for B is at least T
 * + 1. The servers of V outside K are at most n - m, fewer than m. So one of the m smallest tokens of V is that of a
 * server in K, and U, the greatest of these m, is greater than T. The same holds for an owner that several processes
 * share: a process that joins later reads the counters, and gets T or more.
 *
 * MUTANT_… switches break it in one place each; docs/model/run shows that each break is found. */

#define SERVERS 3
#define CLIENTS 2
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifdef MUTANT_LESS_ONE
#define MAJORITY 1 /* one vote less than a majority is enough */
#else
#define MAJORITY 2
#endif
#ifdef MUTANT_LATE_PARTS
#define ENDS_FIRST(who, at) true /* a part may end on the server while the client still counts it */
#else
#define ENDS_FIRST(who, at) (!counts[PART(who, at)])
#endif
#ifndef MOST
#define MOST 4 /* a counter that has come so far gives no more */
#endif
#define NOBODY 255
/* Servers 0 and 2 are alike, and so are the clients: of the two servers 0 is the first to give, of the clients 0 is the
 * first to hold. */
#define gives(who, at) (state[who] == ASKING && !said[PART(who, at)] && owner[at] == NOBODY && \
                        (at != 2 || counter[0] + counter[2] > 0))
#define may_hold(who) (who == 0 || highest > 0)
#define PART(who, at) ((who) * SERVERS + (at))
#define VOTES(who) (counts[PART(who, 0)] + counts[PART(who, 1)] + counts[PART(who, 2)])

mtype = { ASKING, RAISING, HOLDING };

byte owner[SERVERS];
byte counter[SERVERS];
byte raise[CLIENTS * SERVERS];  /* under way to the server; 0: none */
bool counts[CLIENTS * SERVERS]; /* the client has a yes whose part has not ended */
bool said[CLIENTS * SERVERS];   /* the server has been asked in this round */
byte token[CLIENTS * SERVERS];  /* what the client knows the server to know */
mtype state[CLIENTS] = ASKING;

byte highest; /* the token of the last hold that was decided */
byte holders;

byte i, j, below, known, common; /* zero between steps */

inline clean() {
    i = 0; j = 0; below = 0; known = 0; common = 0
}

/* The majority-th smallest token among those that count. */
inline choose_token(who) {
    common = 0;
    i = 0;
    do
    :: i < SERVERS ->
        below = 0;
        j = 0;
        do
        :: j < SERVERS ->
            below = below + (counts[PART(who, j)] && token[PART(who, j)] <= token[PART(who, i)] -> 1 : 0);
            j++
        :: else -> break
        od;
        if
#ifdef MUTANT_LOWEST
        :: counts[PART(who, i)] && (common == 0 || token[PART(who, i)] < common) -> common = token[PART(who, i)]
#else
        :: counts[PART(who, i)] && below >= MAJORITY && (common == 0 || token[PART(who, i)] < common) ->
            common = token[PART(who, i)]
#endif
        :: else
        fi;
        i++
    :: else -> break
    od
}

inline count_known(who) {
    known = 0;
    i = 0;
    do
    :: i < SERVERS -> known = known + (counts[PART(who, i)] && token[PART(who, i)] >= common -> 1 : 0); i++
    :: else -> break
    od
}

inline send_raises(who) {
    i = 0;
    do
    :: i < SERVERS ->
        if
        :: counts[PART(who, i)] && token[PART(who, i)] < common ->
            raise[PART(who, i)] = common;
#ifdef MUTANT_SENT_IS_KNOWN
            token[PART(who, i)] = common
#endif
        :: else
        fi;
        i++
    :: else -> break
    od
}

inline let_go(who) {
    i = 0;
    do
    :: i < SERVERS ->
        counts[PART(who, i)] = false;
        said[PART(who, i)] = false;
        token[PART(who, i)] = 0;
        i++
    :: else -> break
    od
}

inline give(who, at, more) {
    owner[at] = who;
    counter[at] = counter[at] + more;
    token[PART(who, at)] = counter[at];
    counts[PART(who, at)] = true
}

/* What reaches one server from one client. */
proctype server(byte who; byte at) {
end:
    do
    :: d_step { gives(who, at) && counter[at] + 1 <= MOST -> said[PART(who, at)] = true; give(who, at, 1) }
    :: d_step { gives(who, at) && counter[at] + 2 <= MOST -> said[PART(who, at)] = true; give(who, at, 2) } /* its clock
        is ahead */
    :: d_step { raise[PART(who, at)] > 0 ->
#ifdef MUTANT_LOWERS
        counter[at] = raise[PART(who, at)];
#else
        counter[at] = (counter[at] < raise[PART(who, at)] -> raise[PART(who, at)] : counter[at]);
#endif
        if
        :: counts[PART(who, at)] && token[PART(who, at)] < raise[PART(who, at)] ->
            token[PART(who, at)] = raise[PART(who, at)]
        :: else
        fi;
        raise[PART(who, at)] = 0 }
    :: d_step { counts[PART(who, at)] && state[who] != HOLDING -> /* its lease has ended */
        counts[PART(who, at)] = false; token[PART(who, at)] = 0 }
    :: d_step { owner[at] == who && ENDS_FIRST(who, at) -> owner[at] = NOBODY }
    od
}

proctype client(byte who) {
    byte round = 0;
    do
    :: round == ROUNDS -> break
    :: else ->
        /* too few have said yes, or their parts have ended: from the beginning */
        do
        :: d_step { state[who] != HOLDING -> let_go(who); state[who] = ASKING; clean() }
        :: atomic {
            VOTES(who) >= MAJORITY ->
            choose_token(who);
            count_known(who);
            if
            :: common > 0 && may_hold(who) && (known >= MAJORITY
#ifdef MUTANT_NO_RAISE
                || true
#endif
                ) ->
                assert(common > highest);
                assert(holders == 0);
                highest = common;
                holders++;
                state[who] = HOLDING;
                clean();
                break
            :: else ->
                send_raises(who);
                state[who] = RAISING;
                clean()
            fi
        }
        od;
        atomic { holders--; let_go(who); state[who] = ASKING; clean() };
        round++
    od
}

init {
    atomic {
        owner[0] = NOBODY; owner[1] = NOBODY; owner[2] = NOBODY;
        counter[1] = 1; /* they have not given out the same number of tokens */
        run client(0); run client(1);
        run server(0, 0); run server(0, 1); run server(0, 2);
        run server(1, 0); run server(1, 1); run server(1, 2)
    }
}
