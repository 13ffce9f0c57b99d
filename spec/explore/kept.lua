-- Paths that once broke a rule, or that show a mutant: { what happens, row, departures, mutant },
-- which is the name of one of spec/sim/mutants.lua, or a text of a program and what replaces it.
-- Without the mutant no rule may be broken.

return {
  { "a release whose reply is lost is sent again, and decrements the count twice",
    "lock enter: p1 holds 10 enters; p2 holds 1 | lose_reply p1",
    { "lose_reply p1 before s1 > p1 calls #4" }, "blind_release" },
  { "a release that is sent again hands out what Redisson gave back, and leaves Redisson's turn",
    "permit Redisson and a release sent again: p1 slow 2 holds 60; p2 holds 2 from 20; "
      .. "p3 holds 2 from 21; java holds 5 from 30; java holds 2 from 31 | lose_reply p1",
    { "lose_reply p1 before s1 > p1 calls #3" } },
  { "what was set aside for several becomes shorter, and Redisson sleeps until its old end",
    "permit Redisson waits for several: of 3 permits p1 holds 30 grants 2000; "
      .. "p3 holds 40 grants 2000; java holds 60; "
      .. "p2 permits 3 holds 3000 lease 300 fixed grants 2000; java permits 3 holds 2 from 12",
    {}, { "local last = #IDS > 1 and last_end_of(LEASES, IDS) or own_end or 0",
      "local last = own_end or 0" } },
  { "a wait in a quorum ends while the next call of its owner has just begun",
    "quorum lock shared owner, several calls: p2 from 1000 holds 980; "
      .. "p1 holds 20 from 1003 as x; p1 holds 2 from 1004 as x; p1 waits 1028 from 1005 as x",
    {} },
}
