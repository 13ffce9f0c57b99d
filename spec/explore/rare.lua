-- Mutants for which random schedules need more than 300 seeds: docs/proof.md.

return {
  "blind_release", "head_left", "head_endless", "fair_turn_kept", "leave_deletes",
  "handed_endless", "handed_untold", "grant_endless", "complete_any", "print_lost",
  "complete_twice", "all_one", "release_any_hold", "mark_erased", "granted_kept",
  "renew_shortens", "permit_leave_keeps", "permit_untold", "permit_head_stood",
  "permit_handed_deaf", "wish_unsaid", "wish_late", "java_untold", "left_unserved",
  "readers_back_again", "permits_passed_untold", "fair_java_kept", "STALE_GRANT", "PUT_OFF",
  "DEAF_TO_JAVA", "FORGED_CLEANED", "EARLY_UNHEARD", "DEAF_TO_WORD", "DEAF_TO_ANSWER",
  "ALL_FROM_REPLY", "ALL_BEHIND", "NO_WRITE_BACK", "NO_GUARD", "YES_UNCOUNTED", "BUSY_ANYHOW",
  "LAST_ENTRY_KEPT", "MAX_HOLD_LENT", "STRAYS_FORGOTTEN", "RELEASE_UNNOTED", "DEAD_LINK_KEPT",
  "UNDO_REFUSED", "UNDO_DENIED", "CYCLE_ALL", "CYCLE_FOLLOWED", "undo_forgotten",
  "lead_by_lost_lock",
}
