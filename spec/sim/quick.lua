-- Mutants that are found within a few seeds: make test looks for these, make check for all.

local quick = {}

quick.single = {
  "blind_count", "plain_delete", "token_kept", "mark_kept", "tail", "tail_behind", "last_first",
  "take_any", "renew_creates", "take_endless", "short_lease", "done_again", "done_short",
  "record_empty", "all_some", "all_any", "mutex_any", "mutex_grows", "place_follows",
  "grant_kind", "token_equal", "permit_lost", "permit_short", "joins_own_grant", "reader_draws",
  "reentry_blind", "fair_long", "fair_tail", "fair_unordered", "fair_scoreless", "fair_taken",
  "NO_DRIFT", "SAME_OWNER", "BUSY_LOOK", "DEAF", "NO_UNDO", "NO_END_OF_WAIT", "RENEWAL_AFTER",
  "NO_RENEWAL", "MAX_HOLD_IGNORED", "MAX_HOLD_ANEW", "COUNT_TWICE",
  "NO_LOGOUT", "QUORUM_LESS_ONE", "MINORITY_KEPT", "REPLICA_FINAL",
}

-- The same for systems: each with its kind of system.
quick.systems = {
  "crash CRASH_UNPROVED", "crash CRASH_UNHEEDED", "crash CRASH_NESTED",
  "sync UNCONFIRMED", "sync permit_renew_silent", "sentinel MINORITY_MOVES",
  "cluster CLUSTER_RELEASE_DROPPED", "cluster CLUSTER_UNDO_ONCE", "clock token_clock",
  "addresses STRANGER_SERVED", "addresses VERSION_ONCE", "threads SAME_OWNER", "latch latch_early", "latch open_silent", "latch LATCH_BELIEVES",
  "latch LATCH_DEAF", "latch NO_LAST_LOOK", "plain_semaphore acquire_note_unread",
  "plain_semaphore give_silent", "plain_semaphore give_no_turn", "plain_semaphore NO_UNDO", "plain_semaphore RELEASE_DROPPED",
  "plain_semaphore NOTE_FORGOTTEN", "plain_semaphore LATCH_BELIEVES",
  "plain_semaphore LATCH_DEAF", "plain_semaphore NO_LAST_LOOK", "leader leads_any",
  "leader term_forever", "leader term_by_lock", "leader term_untold", "leader term_no_reason",
  "leader term_unnumbered", "leader lead_once", "leader lead_unresigned",
}

-- → the mutants of the list that have these names
function quick.choose(list, names)
  local wanted, chosen = {}, {}
  for _, name in ipairs(names) do wanted[name] = true end
  for _, mutant in ipairs(list) do
    local name = mutant.kind and mutant.kind .. " " .. mutant.name or mutant.name
    if wanted[name] then chosen[#chosen + 1] = mutant end
  end
  return chosen
end

return quick
