---@meta holdfast.types
-- Types for editors and checkers; nothing requires this file. spec/types_spec.lua compares them
-- with the code. Enumerations are tables with a key for each value, because checkers do not report
-- a comparison of an alias with a wrong value.

--- The third value of a failure. docs/reference/api/errors.md says what each means.
---@enum (key) holdfast.code
local _ = {
  busy = 1, -- taken until the end of the wait, or too many waiters
  unreachable = 1, -- no usable reply in time
  lost = 1, -- the lock was held, but no longer is
  not_held = 1, -- this owner does not hold the lock
  interrupted = 1, -- a signal ended the wait
  conflict = 1, -- the key holds something else
  denied = 1, -- wrong password, missing right, or a read-only replica
  no_quorum = 1, -- too few servers of a quorum replied or have a vote
  duplicate = 1, -- the call or the job is already running or done
  mismatch = 1, -- the key belongs to a request with a different fingerprint
  closed = 1, -- the client was closed
  server = 1, -- any other error reply
  deadlock = 1, -- the holder is waiting for a lock of this caller
  timeout = 1, -- the wait ended before the latch opened
  stale = 1, -- a later holder of the lock has written
}

--- Why a lock was lost.
---@enum (key) holdfast.lost_reason
local _ = {
  expired = 1, -- its lease ended before a renewal
  taken = 1, -- another owner holds the lock
  deleted = 1, -- the key was removed
  unreachable = 1, -- no server confirmed a renewal in time
  max_hold = 1, -- it was held for as long as its option max_hold allows
}

--- How the option `servers` is used.
---@alias holdfast.mode
---| "quorum" a majority of the servers holds each lock
---| "shards" each server has its own keys

---@enum (key) holdfast.event_name
local _ = {
  acquired = 1, -- a hold began
  busy = 1, -- an acquire failed because another owner holds the lock
  released = 1, -- a hold ended
  lost = 1, -- a hold ended before its owner released it
  at_risk = 1, -- a renewal failed for the first time
  renewed_late = 1, -- a renewal succeeded after one or more had failed
  opened = 1, -- a connection was opened
  closed = 1, -- a connection was closed
  failed = 1, -- an acquire failed for a reason other than busy
  crash_released = 1, -- the hold of a crashed process was freed
  crash_release_off = 1, -- crash_release does not work here
  tenant_exposed = 1, -- other users of the server can act with this client's rights
  cut_off = 1, -- a wait continues while its server does not reply
  resumed = 1, -- after cut_off: the server replies to the wait again
}

--- The functions that `with_lock` and similar methods call.
---@alias holdfast.callback fun(...: any): any...
---@alias holdfast.lock_callback fun(lock: holdfast.lock, ...: any): any...
---@alias holdfast.term_callback fun(term: holdfast.term, ...: any): any...
---@alias holdfast.permit_callback fun(permit: holdfast.permit, ...: any): any...

--- The argument of client:lead's `on_change`.
---@class holdfast.leader
---@field host? string nil if the holder has not published its identity
---@field pid? integer
---@field name? string
---@field token? integer nil if its lock has none
---@field since number when its term began: seconds since the epoch, by the server's clock

--- The argument of `on_event`. docs/reference/api/events.md lists the fields of each event.
---@class holdfast.event
---@field event holdfast.event_name
---@field key? string
---@field owner? string of the hold, or of the caller
---@field class string "" for the client's own events
---@field token? number
---@field seconds? number
---@field code? holdfast.code | holdfast.lost_reason | "unsupported"
---@field message? string
---@field server? string
---@field host? string of the holder
---@field pid? integer
---@field name? string

--- The result of `client:stats()`. docs/reference/api/metrics.md#clientstats explains each counter.
---@class holdfast.stats
---@field acquires integer
---@field reentries integer
---@field releases integer
---@field waits integer
---@field grants integer
---@field rechecks integer
---@field renewals integer
---@field renew_batches integer
---@field redirects integer
---@field late_renewals integer
---@field failures table<holdfast.code, integer>
---@field losses integer
---@field undone integer
---@field connections integer
---@field watchdog_wakes integer
---@field holds integer
---@field round_trips integer
---@field reconnects integer
---@field classes table<string, table>

--- A wait found by `client:deadlocks()`.
---@class holdfast.wait
---@field key string
---@field kind string
---@field owner string the waiter
---@field host? string of the waiter
---@field pid? integer
---@field name? string
---@field holder? string
---@field holder_host? string
---@field holder_pid? integer
---@field holder_name? string
---@field holds string[] the owners of everything that the waiting caller holds
