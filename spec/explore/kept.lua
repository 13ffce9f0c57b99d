-- Paths that once broke a rule, or that show a mutant: { what happens, row, departures, mutant }.
-- Without the mutant no rule may be broken.

return {
  { "a release whose reply is lost is sent again, and decrements the count twice",
    "lock enter: p1 holds 2 enters; p2 holds 1 | lose_reply p1",
    { "lose_reply p1 before s1 > p1 calls #4" }, "blind_release" },
}
