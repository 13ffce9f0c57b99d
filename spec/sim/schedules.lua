-- Schedules that are kept unchanged, whatever a seed stands for: each shows a mutant that once was
-- found.

local S = 1000000
local huge = math.huge

local function process(index, changes)
  local part = {
    what = "process", index = index, rate = 1, base = 1000, near = 200, far = 400, cuts = 0,
    half_open = 10000, renewer_link = true, connect_timeout = 0.5, command_timeout = 3,
    grant_lease = 2,
  }
  for name, value in pairs(changes or {}) do part[name] = value end
  return part
end

local function task(part)
  part.what = "task"
  for name, value in pairs {
    key = "a", kind = "lock", lease = 10, renewed = true, token_ttl = 600, rounds = 1,
    entries = 0, gap = 1000, finish = "release", naps = { 1000 },
  } do
    if part[name] == nil then part[name] = value end
  end
  if part.kind == "guard" then part.keep, part.print = part.keep or 0, "" end
  return part
end

local function fault(part)
  part.what, part.lag, part.key, part.duration = "fault", part.lag or 0, "a", part.duration or 0
  return part
end

local function plan(keys, parts, changes)
  local made = {
    seed = 1, calm = false, keys = keys, grant_lease = 2, network = { 200, 400 }, timeout = 3,
    rate = 1, scripts_known = true, parts = parts,
  }
  for name, value in pairs(changes or {}) do made[name] = value end
  return made
end

local LOCK = { { name = "a", kind = "lock" } }
local GUARD = { { name = "a", kind = "guard" }, { name = "b", kind = "lock" } }

-- A late grant: its waiter is stopped until it has run out and another client has the lock, and
-- asks for its place again just before the grant arrives.
local stale_grant = plan(LOCK, {
  process(1), process(2), process(3),
  task { process = 1, slot = 8, start = 0, wait = 0, naps = { S } },
  task { process = 2, slot = 7, start = 100000, wait = huge, naps = { S } },
  task { process = 3, slot = 6, start = 3100000, wait = huge, naps = { 5 * S } },
  fault { name = "stall_link", at = 500000, process = 2, link = "events", duration = 2900000 },
  fault { name = "pause", at = 900000, process = 2, link = "calls", duration = 2400000 },
})

-- A guard's wait ends at the moment of its grant, which arrives after that; the next run begins at
-- once. first: changes of the first process; last: one more part
local function stray_guard(first, last)
  return plan(GUARD, {
    process(1, first), process(2), process(3), process(4),
    task { kind = "guard", process = 2, slot = 8, start = 0, wait = 0, naps = { 397500 } },
    task { key = "b", process = 3, slot = 7, start = 0, wait = 0, naps = { 3 * S } },
    task { key = "b", process = 1, slot = 6, start = 10000, wait = huge },
    task {
      kind = "guard", process = 1, slot = 5, start = 100000, wait = 0.3, naps = { S }, rounds = 2,
      gap = 3000,
    },
    task {
      kind = "guard", process = 4, slot = 4, start = 420000, wait = huge, naps = { 500000 },
    },
    fault { name = "stall_link", at = 350000, process = 1, link = "events", duration = 53000 },
    last,
  })
end

-- A proxy holds a release that was given up, and delivers it while the same owner holds the lock
-- again.
local function late_release(kind)
  return plan({ { name = "a", kind = kind } }, {
    process(1, { command_timeout = 1 }), process(2),
    task { kind = kind, process = 1, slot = 8, start = 0, wait = 3, naps = { S }, rounds = 2 },
    task {
      kind = kind, process = 2, slot = 7, start = 1700000, wait = huge, naps = { 500000 },
    },
    fault {
      name = "stall_up", on = "release", nth = 1, at = 0, process = 1, link = "calls",
      duration = 1000000,
    },
  })
end

-- A proxy holds an acquire that was sent again, and delivers it when its hold has a longer lease.
local function late_acquire(kind, half)
  return plan({ { name = "a", kind = kind } }, {
    process(1), process(2),
    task {
      kind = half or kind, process = 1, slot = 8, start = 0, lease = 0.3, renewed = false,
      extend = 10, wait = 3, rounds = 2, stays = 3 * S,
    },
    task {
      kind = half and "write" or kind, process = 2, slot = 7, start = 3100000, wait = huge,
      naps = { 500000 },
    },
    fault {
      name = "stall_up", on = "acquire", nth = 2, at = 0, process = 1, link = "calls", duration = S,
    },
    fault { name = "drop", on = "acquire", nth = 2, at = 1000, process = 1, link = "calls" },
  }, { read_write = half and true or nil })
end

-- Two keys that once had the same queue.
local braces = plan({ { name = "a", kind = "lock" }, { name = "{a}", kind = "lock" } }, {
  process(1), process(2), process(3),
  task { key = "{a}", process = 1, slot = 8, start = 0, wait = 0, naps = { 3 * S } },
  task { key = "a", process = 2, slot = 7, start = 0, wait = 0, naps = { 500000 } },
  task { key = "{a}", process = 3, slot = 6, start = 100000, wait = 5 },
})

-- One check after another, from the grant on.
local checks = plan(LOCK, {
  process(1, { near = 1000, far = 8000, grant_lease = 0.2 }), process(2, { grant_lease = 0.2 }),
  task { process = 2, slot = 8, start = 0, wait = 0, naps = { 100000 } },
  task { process = 1, slot = 7, start = 20000, wait = huge, checks = 60 },
}, { calm = true, grant_lease = 0.2, network = { 1000, 8000 } })

-- A process joins a shared owner while another process of that owner has not received its grant.
local shared_mark = plan(LOCK, {
  process(1, { grant_lease = 0.5 }), process(2, { grant_lease = 0.5 }),
  process(3, { grant_lease = 0.5 }),
  task { process = 3, slot = 8, start = 0, wait = 0, naps = { 1140000 }, lease = 1 },
  task { process = 2, slot = 7, start = 44000, wait = huge, owner = "svc-1", lease = 1 },
  task { process = 1, slot = 6, start = 300000, wait = huge, owner = "svc-1", lease = 1 },
  fault { name = "stall_link", at = 443000, process = 2, link = "events", duration = 1900000 },
}, { grant_lease = 0.5 })

-- A process joins a shared owner with a hold that it was granted itself meanwhile.
local shared_join = plan({ { name = "b", kind = "lock" } }, {
  process(2, {
    near = 1000, far = 8000, base = 25854, renewer_link = false, command_timeout = 0.4,
    grant_lease = 0.5,
  }),
  process(3, {
    near = 1000, far = 8000, base = 98284, renewer_link = false, command_timeout = 0.4,
    grant_lease = 0.5,
  }),
  process(4, { near = 1000, far = 8000, base = 97280, command_timeout = 0.4, grant_lease = 0.5 }),
  task { key = "b", process = 4, slot = 5, start = 0, wait = 0, naps = { 1337479 }, lease = 0.5 },
  task { key = "b", process = 3, slot = 4, start = 47541, wait = huge, owner = "svc-1", lease = 3 },
  task { key = "b", process = 2, slot = 3, start = 32123, wait = huge, owner = "svc-1", lease = 3 },
}, { seed = 2, grant_lease = 0.5, network = { 1000, 8000 }, timeout = 0.4, rate = 1.0027 })

-- A server of a quorum is out of reach and forgets its part. The undo of the attempts to restore it
-- arrives with the attempt that succeeds.
local late_leave_of_a_part = plan({ GUARD[1] }, {
  process(1, { servers = 5, restart_guard = 0, renewer_link = false, command_timeout = 0.4,
    base = 73837, near = 100 }),
  process(2, { servers = 5, restart_guard = 0, renewer_link = false, command_timeout = 0.4,
    base = 83189, near = 100 }),
  task {
    kind = "guard", process = 1, slot = 8, start = 10779, lease = 0.3, renewed = false,
    wait = 0.3,
    naps = { 2500704 },
  },
  task {
    kind = "guard", process = 2, slot = 7, start = 46018, lease = 0.3, wait = 0.3, rounds = 2,
    gap = 0, keep = 1,
    naps = { 2531187, 3421 },
  },
  fault { name = "cut_up", at = 500303, process = 2, link = "renewer", server = 5,
    duration = 1689829 },
}, {
  quorum = true, kind = "majority", faulty = {}, network = { 100, 400 }, restart_guard = 0,
  timeout = 0.4, skew = 1000,
  offsets = { 509, 619, 154, -650, -917 }, rates = { 1.00048, 1.00262, 1.00123, 1.00107, 0.99784 },
    seed = 3158581,
})

-- The waiter of a shared owner is granted the lock, and loses it before it could confirm the grant.
-- The client is alive, so the server grants it the lock again and again.
local shared_grant_lost = plan({ LOCK[1] }, {
  process(1, { renewer_link = false, far = 2000, base = 86371, command_timeout = 1,
    grant_lease = 0.5 }),
  process(2, {
    renewer_link = false, far = 2000, base = 10564, command_timeout = 1, grant_lease = 0.5,
    half_open = 8 * S,
  }),
  task {
    process = 2, slot = 7, start = 45983, lease = 3, wait = 8, owner = "svc-1", gap = 0,
    naps = { 91, 2538139 },
  },
  task { process = 2, slot = 6, start = 2817, wait = huge, renewed = false, rounds = 3, gap = 0,
    naps = { 80813 } },
  fault { name = "busy", at = 109345, process = 1, link = "calls", duration = 3673165 },
}, { grant_lease = 0.5, network = { 200, 2000 }, rate = 1.00299, sharing = true, timeout = 1,
  seed = 3233644 })

-- A server of a quorum cannot be reached for the acquire, and another one not for the release. The
-- second run reaches these two.
local record_of_two = plan({ GUARD[1] }, {
  process(1, { servers = 3, restart_guard = 0, near = 100, far = 400, command_timeout = 0.4 }),
  process(2, { servers = 3, restart_guard = 0, near = 100, far = 400, command_timeout = 0.4 }),
  task {
    kind = "guard", process = 1, slot = 8, start = 10000, lease = 0.3, renewed = false, wait = 1,
    keep = 5, naps = { 50000 }, finish = "complete",
  },
  task {
    kind = "guard", process = 2, slot = 7, start = S, lease = 0.3, renewed = false, wait = 1,
    keep = 5, finish = "complete",
  },
  fault { name = "cut_up", at = 0, process = 1, link = "calls", server = 1, duration = 80000 },
  fault { name = "cut_up", at = 40000, process = 1, link = "calls", server = 3, duration = 9 * S },
  fault { name = "cut_up", at = 900000, process = 2, link = "calls", server = 2, duration = 9 * S },
}, {
  quorum = true, kind = "majority", faulty = {}, network = { 100, 400 }, restart_guard = 0,
  timeout = 0.4, skew = 0, offsets = { 0, 0, 0 }, rates = { 1, 1, 1 },
})

-- Two servers of a quorum forget a shared owner's hold, and another process of the owner tries
-- there while it is renewed.
local function forgotten(renewer_link)
  local function member(index, changes)
    changes.servers, changes.restart_guard, changes.near, changes.far = 3, 3, 1000, 8000
    changes.command_timeout, changes.half_open = 0.4, changes.half_open or 8 * S
    return process(index, changes)
  end
  return plan({ LOCK[1] }, {
    member(1, { base = 74369, rate = 1.00209 }),
    member(2, { base = 98197, renewer_link = false }),
    member(3, { base = 55602, renewer_link = renewer_link, half_open = 10000 }),
    task { process = 1, slot = 8, start = 196081, lease = 1, renewed = false, wait = 1, gap = 0 },
    task { process = 1, slot = 7, start = 232719, lease = 0.3, renewed = false, wait = 1,
      owner = "svc-1", gap = 0 },
    task { process = 2, slot = 6, start = 184060, lease = 0.3, renewed = false, wait = 1,
      owner = "svc-1", gap = 0 },
    task {
      process = 3, slot = 3, start = 94740, lease = 3, wait = huge, owner = "svc-1", extend = 3,
      gap = 0,
      naps = { 1386092 },
    },
    fault { name = "lose", at = 226635, process = 1, link = "renewer", server = 1,
      duration = 4519 },
    fault { name = "lose", at = 204706, process = 3, link = "calls", server = 2, duration = 5631 },
  }, {
    quorum = true, kind = "majority", faulty = {}, network = { 1000, 8000 }, restart_guard = 3,
    timeout = 0.4,
    skew = 0, sharing = true, offsets = { 0, 0, 0 }, rates = { 0.99983, 1.00207, 1.00368 },
      seed = 3232581,
  })
end

-- A shared owner's hold is released while the server is busy, and its lease ends meanwhile: another
-- process has the lock as that owner when the server replies.
local shared_leave = plan({ { name = "a", kind = "lock" } }, {
  process(1),
  process(2),
  task { process = 2, slot = 6, start = 0, wait = 0, naps = { 300000 } },
  task { process = 1, slot = 5, start = 50000, lease = 3, renewed = false, wait = huge,
    owner = "svc-1",
    naps = { 380000 }, finish = "drop" },
  task { process = 2, slot = 1, start = 2405500, renewed = false, wait = 8, owner = "svc-1",
    naps = { 1500000 } },
  task { process = 1, slot = 3, start = 2410000, lease = 1, wait = 8, naps = { 1000 } },
  fault { name = "busy", at = 650000, process = 1, link = "calls", duration = 1755000 },
})

-- A handle of a shared owner is collected while another one of the same process enters the quorum's
-- hold.
local shared_entry = plan({ LOCK[1] }, {
  process(1, { servers = 3, restart_guard = 0, near = 100, far = 400, command_timeout = 0.4,
    half_open = 8 * S }),
  task {
    process = 1, slot = 8, start = 1000, wait = 1, owner = "svc-1", naps = { 600 }, gap = 0,
    finish = "drop",
  },
  task { process = 1, slot = 7, start = 3100, wait = 1, owner = "svc-1", naps = { 300 },
    gap = 250 },
}, {
  quorum = true, kind = "calm", calm = true, faulty = {}, network = { 100, 400 },
  restart_guard = 0, timeout = 0.4, skew = 0,
  sharing = true, offsets = { 0, 0, 0 }, rates = { 1, 1, 1 }, seed = 1,
})

-- A lock that was entered three times is released without waiting, the last two releases are given
-- up, and no reply comes for longer than the lease.
local lost_entry = plan({ { name = "a", kind = "lock" } }, {
  process(1, { renewer_link = false }),
  task {
    process = 1, slot = 4, start = 0, lease = 3, wait = 0, entries = 2, naps = { 100000 },
    async = true, hasty = true,
  },
  fault { name = "cut_down", at = 50000, process = 1, link = "calls", duration = 3400000 },
})

-- The same, and the reply to the first release arrives after the end of the lease.
local late_entry = plan({ { name = "a", kind = "lock" } }, {
  process(1, { renewer_link = false, near = 20000, far = 20000 }),
  task {
    process = 1, slot = 4, start = 0, lease = 0.2, wait = 0, entries = 2, naps = { 140000 },
    async = true, hasty = true, renewed = false,
  },
})

-- An acquire of two locks is given up before its reply: what it may have acquired is undone.
local lost_answer = plan({ { name = "a", kind = "lock" }, { name = "b", kind = "lock" } }, {
  process(1),
  task {
    process = 1, slot = 1, start = 1000, lease = 10, wait = 0, several = { "a", "b" },
    together = true, patience = 1300,
  },
})

-- Two locks without a watchdog: the first is renewed until the second is acquired, too.
local held_meanwhile = plan({ { name = "a", kind = "lock" }, { name = "b", kind = "lock" } }, {
  process(1), process(2),
  task { key = "b", process = 2, slot = 8, start = 0, wait = 0, naps = { 2 * S } },
  task {
    process = 1, slot = 7, start = 10000, lease = 0.3, renewed = false, wait = huge,
    several = { "a", "b" },
  },
}, { calm = true })

-- The handles of two locks are collected while their release is under way, and one of them is gone.
local forsaken = plan({ { name = "a", kind = "lock" }, { name = "b", kind = "lock" } }, {
  process(1),
  task {
    process = 1, slot = 1, start = 1000, lease = 10, wait = 0, several = { "a", "b" },
    together = true, naps = { 40000 }, forsaken = 50,
  },
  fault { name = "delete", at = 10000, process = 1 },
})

local TWO = { { name = "a", kind = "lock" }, { name = "b", kind = "lock" } }
local CALM = { calm = true, scripts_known = false }

-- Two locks that are entered by two handles each, of which one is collected while all are released,
-- or while the other one enters.
local function collected(at)
  return plan(TWO, {
    process(1),
    task {
      process = 1, slot = 8, start = 1000, wait = 0, several = { "a", "b" }, together = true,
      twice = at, forsaken = 50,
    },
  }, CALM)
end

-- Two locks whose releases are under way while both are acquired again atomically.
local released_both = plan(TWO, {
  process(1),
  task {
    process = 1, slot = 8, start = 1000, wait = 0, several = { "a", "b" }, async = true,
    alone = true, rounds = 2, gap = 0,
  },
}, CALM)

-- A writer reads while the release of its write lock, which goes out twice, is on its way.
local released_half = plan({ { name = "a", kind = "read" } }, {
  process(1),
  task {
    process = 1, slot = 8, kind = "read", start = 1000, wait = 0, swaps = true, async = true,
    alone = true, rounds = 3, gap = 0,
  },
}, { calm = true, scripts_known = false, read_write = true })

-- A semaphore's only permit, acquired again while its release, which goes out twice, is on its way.
local released_permit = plan({ { name = "a", kind = "permit", permits = 1 } }, {
  process(1),
  task {
    process = 1, slot = 8, kind = "permit", start = 1000, wait = 0, swaps = true, async = true,
    alone = true, rounds = 3, gap = 0, permits = 1, initial_permits = 1,
  },
}, { calm = true, scripts_known = false, pool = true })

-- A reader enters again what was granted to it a moment before, and another one stays.
local marked_grant = plan({ { name = "a", kind = "read" } }, {
  process(1), process(2), process(3),
  task { process = 1, slot = 8, kind = "write", start = 1000, wait = 0, naps = { 50000 } },
  task { process = 2, slot = 7, kind = "read", start = 10000, wait = 5, naps = { S } },
  task {
    process = 3, slot = 6, kind = "read", start = 20000, wait = 5, entries = 1,
    naps = { 20000 },
  },
}, { calm = true, read_write = true })

local function fair(parts, changes)
  changes = changes or {}
  changes.fair = true
  for i, part in ipairs(parts) do
    if part.what == "task" then part.kind = "fair" end
    if part.what == "java_fair" then
      part.key, part.slot, part.lease, part.rounds = "a", 8 + i, 10, part.rounds or 1
      part.wait, part.nap, part.gap = part.wait or 120, part.nap or 1000, part.gap or 1000
    end
  end
  return plan({ { name = "a", kind = "fair" } }, parts, changes)
end

-- A thread of Java dies in the list of a fair lock before it has subscribed, and a holdfast task
-- waits behind it.
local fair_dead_java = fair({
  { what = "java_fair", start = 50000, dies = "deaf" },
  process(1), process(2),
  task { process = 1, slot = 8, start = 0, wait = 0, naps = { 300000 } },
  task { process = 2, slot = 7, start = 100000, wait = huge },
}, { calm = true })

-- A process dies at the head of the list.
local fair_dead = fair {
  process(1), process(2), process(3),
  task { process = 1, slot = 8, start = 0, wait = 0, naps = { S } },
  task { process = 2, slot = 7, start = 100000, wait = huge },
  task { process = 3, slot = 6, start = 200000, wait = huge },
  fault { name = "crash", at = 500000, process = 2 },
}

-- A long hold. Then a thread of Java gets the lock and subtracts its timeout from that of the
-- waiter after it, before that waiter asks again.
local fair_long_hold = fair({
  { what = "java_fair", start = 50000, wait = 120 },
  { what = "java_fair", start = 200000, wait = 120 },
  process(1), process(2),
  task { process = 1, slot = 8, start = 0, wait = 0, naps = { 45 * S } },
  task { process = 2, slot = 7, start = 100000, wait = huge },
}, { calm = true })

-- A thread of Java waits after a holdfast task, which waits after another with a short timeout.
local fair_behind = fair({
  { what = "java_fair", start = 50000, wait = 5, nap = 3 * S },
  { what = "java_fair", start = 200000, wait = 120 },
  process(1), process(2),
  task { process = 1, slot = 8, start = 0, wait = 0, naps = { 400000 } },
  task { process = 2, slot = 7, start = 100000, wait = huge },
}, { calm = true })

-- A request vanishes with the lock that it was granted, while another request of the same client
-- waits. The client must remove the mark of that grant from the queue.
local WORKER = { needs_approval = true, grant_lease = 0.5, command_timeout = 0.4 }
local vanished = plan(LOCK, {
  process(1, WORKER), process(2, WORKER),
  task { process = 2, slot = 8, start = 1000, lease = 0.3, wait = 8, naps = { 240000 } },
  task {
    process = 1, slot = 7, start = 2000, lease = 3, wait = 8, finish = "vanish", noticed = 2 * S,
  },
  task { process = 1, slot = 6, start = 43000, renewed = false, wait = 3 },
}, { calm = true, grant_lease = 0.5, timeout = 0.4 })

-- Three times the server does not reply when a kept lock is returned; before the next attempt, the
-- client holds the lock again.
local returned_late = plan(LOCK, {
  process(1),
  task { process = 1, slot = 8, start = 1000, lease = 1, keep = 0.1, wait = 3 },
  task { process = 1, slot = 7, start = 4132000, lease = 1, keep = 0.1, wait = 3 },
  fault { name = "stall_up", at = 103100, process = 1, link = "renewer", duration = 4 * S },
  fault { name = "stall_up", at = 609000, process = 1, link = "renewer", duration = 4 * S },
  fault { name = "stall_up", at = 1128000, process = 1, link = "renewer", duration = 4 * S },
})

-- A caller enters by two handles, releases by a third one, and drops the second.
local strays = plan(LOCK, {
  process(1),
  task {
    process = 1, slot = 8, start = 1000, wait = 0,
    steps = { { "acquire", 1 }, { "acquire", 2 }, { "release", 3 }, { "drop", 2 } },
  },
}, CALM)

-- A handle is dropped while some servers of a quorum have not replied to the release through
-- another one.
local FIVE = { servers = 5, restart_guard = 0, near = 100, far = 400, command_timeout = 0.4 }
local dropped_meanwhile = plan(LOCK, {
  process(1, FIVE),
  task {
    process = 1, slot = 5, start = 2000, wait = 1, lease = 3,
    steps = { { "acquire", 1 }, { "acquire", 1 }, { "acquire", 3 }, { "release", 2 }, { "drop", 1 },
      { "nap", 2000 } },
  },
}, {
  quorum = true, kind = "calm", calm = true, faulty = {}, network = { 100, 400 },
  restart_guard = 0, timeout = 0.4, skew = 0, offsets = { 0, 0, 0, 0, 0 },
  rates = { 1, 1, 1, 1, 1 },
})

-- Two of three servers say yes, and one of them gets no renewals. The question to the third one is
-- under way for so long that another owner comes and goes; its yes is read by a process that was
-- stopped when its majority ended.
local yes_over_a_gap = plan(LOCK, {
  process(1, { servers = 3, restart_guard = 0, near = 100, far = 400, command_timeout = 8,
    busy = true }),
  process(2, { servers = 3, restart_guard = 0, near = 100, far = 400, command_timeout = 8 }),
  task { process = 1, slot = 6, start = 0, wait = 0, lease = 1, naps = { 340000 } }, -- opens links
  task { process = 1, slot = 8, start = 400000, wait = 1, lease = 1, naps = { 3 * S } },
  task { process = 2, slot = 7, start = 900000, wait = 3, lease = 1, naps = { 20000 } },
  fault { name = "lose", at = 600000, process = 1, server = 1, duration = 1000 },
  fault { name = "stall_up", at = 1400800, process = 1, link = "calls", server = 1,
    duration = 440000 },
  fault { name = "cut_up", at = 800000, process = 1, link = "renewer", server = 2,
    duration = 3 * S },
  fault { name = "pause", at = 1500000, process = 1, duration = 400000 },
}, {
  quorum = true, kind = "majority", faulty = {}, network = { 100, 400 }, restart_guard = 0,
  timeout = 8, skew = 0, offsets = { 0, 0, 0 }, rates = { 1, 1, 1 }, seed = 5,
})

-- A server learns of waiters before it learns of the hold, and later another server hangs.
local QUORUM_OF_3 = { servers = 3, restart_guard = 0, near = 100, far = 400, command_timeout = 1 }
local repair_beside_waiters = plan(LOCK, {
  process(1, QUORUM_OF_3), process(2, QUORUM_OF_3), process(3, QUORUM_OF_3),
  task { process = 1, slot = 3, start = 200000, wait = 0, lease = 3 }, -- opens links
  task { process = 2, slot = 6, start = 0, wait = 0, lease = 3 },
  task { process = 3, slot = 5, start = 100000, wait = 0, lease = 3 },
  task { process = 1, slot = 8, start = 400000, wait = 0, lease = 3, naps = { 8 * S } },
  task { process = 2, slot = 7, start = 405000, wait = 10, lease = 3 },
  task { process = 3, slot = 4, start = 405000, wait = 10, lease = 3 },
  fault { name = "stall_up", at = 399000, process = 1, link = "calls", server = 1,
    duration = 60000 },
  fault { name = "stall", at = 403000, process = 1, server = 2, duration = 7 * S },
}, {
  quorum = true, kind = "minority", faulty = { 2 }, calm = true, network = { 100, 400 },
  restart_guard = 0, timeout = 1, skew = 0, offsets = { 0, 0, 0 }, rates = { 1, 1, 1 }, seed = 5,
})

-- A caller enters by two handles, abandons its release through a third one, and drops the first
-- one.
local abandoned_release = plan(LOCK, {
  process(1),
  task {
    process = 1, slot = 8, start = 1000, wait = 0,
    steps = { { "acquire", 1 }, { "acquire", 2 }, { "abandon", 3, 100 }, { "drop", 1 } },
  },
}, CALM)

-- Two callers read by one handle, and one of them vanishes.
local one_handle = plan({ { name = "a", kind = "read" } }, {
  process(1),
  task { process = 1, slot = 8, kind = "read", start = 1000, wait = 0, common = true,
    naps = { 50000 } },
  task {
    process = 1, slot = 7, kind = "read", start = 2000, wait = 0, common = true,
    finish = "vanish", noticed = 10000,
  },
}, { calm = true, scripts_known = false, read_write = true })

-- A caller reads by three handles, the third one with a long lease. Two are dropped, and it enters
-- again with a short lease.
local longest_lease = plan({ { name = "a", kind = "read" } }, {
  process(1), process(2),
  task {
    process = 1, slot = 8, kind = "read", start = 1000, wait = 0, lease = 3,
    leases = { 0.3, 0.3, 3 },
    steps = { { "acquire", 1 }, { "acquire", 2 }, { "acquire", 3 }, { "drop", 2 }, { "drop", 3 },
      { "acquire", 1 }, { "nap", 900000 } },
  },
  task { process = 2, slot = 7, kind = "write", start = 600000, wait = 0 },
}, { calm = true, scripts_known = false, read_write = true })

local READ = { { name = "a", kind = "read" } }
local CALM_READ = { calm = true, read_write = true }

-- A reader's lease ends after another reader, which had a longer lease, is gone.
local dead_reader = plan(READ, {
  process(1, { needs_approval = true, near = 1000, far = 8000, renewer_link = false }),
  process(2, { near = 1000, far = 8000, renewer_link = false, half_open = 8 * S }),
  task { process = 1, slot = 8, kind = "write", start = 47000, wait = 0.3, lease = 1,
    renewed = false, reads = "within", rounds = 3, gap = 0 },
  task { process = 1, slot = 7, kind = "read", start = 3000, wait = huge, lease = 0.3,
    renewed = false, naps = { 604, 38354 }, noticed = 87551 },
  task { process = 1, slot = 6, kind = "read", start = 69000, wait = 8, lease = 0.3,
    renewed = false, naps = { 1196377, 4731 }, noticed = 134 },
  task { process = 2, slot = 5, kind = "read", start = 248000, wait = huge, lease = 0.3,
    renewed = false, check = true },
}, { calm = true, read_write = true, network = { 1000, 8000 }, rate = 0.99813 })

local function java_reads(start, nap, rounds)
  return {
    what = "java_read_write", slot = 9, key = "a", kind = "read", lease = 10, rounds = rounds,
    gap = 0, start = start, nap = nap,
  }
end

-- A thread of Java waits to read while a writer continues as a reader.
local java_reads_along = plan(READ, {
  process(1), java_reads(100000, 1000, 1),
  task {
    process = 1, slot = 8, kind = "write", reads = "after", start = 0, wait = 0,
    naps = { 300000, 6 * S },
  },
}, CALM_READ)

-- The same thread reads, and may not enter again while a writer waits after it, which gives up.
local java_kept_out = plan(READ, {
  process(1), process(2), java_reads(20000, 60000, 2),
  task { process = 1, slot = 8, kind = "read", start = 0, wait = 0, naps = { 6 * S } },
  task {
    process = 2, slot = 7, kind = "write", start = 50000, wait = huge, patience = 150000,
  },
}, CALM_READ)

-- The same, but the writer dies, and a holdfast reader waits after it.
local java_kept_out_by_dead = plan(READ, {
  process(1), process(2), java_reads(0, 4 * S, 1),
  task { process = 2, slot = 7, kind = "write", start = 50000, wait = huge },
  task { process = 1, slot = 8, kind = "read", start = 500000, wait = 0 },
  fault { name = "crash", at = 80000, process = 2 },
}, { read_write = true })

local function permits(total, parts, calm)
  return plan({ { name = "a", kind = "permit", permits = total } }, parts,
    { calm = calm ~= false, pool = true })
end

local function permit(part)
  part.kind, part.permits, part.initial_permits = "permit", 1, part.total
  return task(part)
end

local function java_takes(start, nap)
  return {
    what = "java_permits", slot = 9, key = "a", permits = 1, lease = 10, rounds = 1, gap = 0,
    start = start, nap = nap,
  }
end

-- A thread of Java waits for permits that do not exist yet.
local java_is_early = permits(3, {
  process(1), java_takes(0, 1000),
  permit { total = 3, process = 1, slot = 8, start = 100000, wait = 0, naps = { 6 * S } },
})

-- Two wait. A permit that comes back is the first one's; the next permit is Java's.
local java_goes_last = permits(2, {
  process(1), process(2), process(3), java_takes(10000, 900000),
  permit { total = 2, process = 1, slot = 8, start = 0, wait = 0, naps = { 300000 } },
  permit { total = 2, process = 2, slot = 7, start = 50000, wait = huge, naps = { 3 * S } },
  permit { total = 2, process = 3, slot = 6, start = 100000, wait = huge },
})

-- A caller takes by force what its client keeps and has lent to another caller without a watchdog.
local taken_by_force = plan({ { name = "a", kind = "lock" } }, {
  process(1),
  task {
    process = 1, slot = 8, start = 0, wait = 0, naps = { 50000 }, keep = 5, rounds = 2,
    renewed = false,
  },
  task { process = 1, slot = 7, start = 10000, wait = 0, keep = 5, breaks = true },
})

-- The same, but no caller holds it, and its lease is being shortened.
local taken_while_idle = plan({ { name = "a", kind = "lock" } }, {
  process(1),
  task { process = 1, slot = 8, start = 0, wait = 0, naps = { 1000 }, keep = 5 },
  task { process = 1, slot = 7, start = 680000, wait = 0, keep = 5, breaks = true },
  task { process = 1, slot = 6, start = 720000, wait = 0, keep = 5 },
  fault { name = "stall_link", at = 671200, process = 1, link = "renewer", duration = 100000 },
})

-- A client keeps a lock before it is subscribed, and a subscribed client has wanted it since before
-- that.
local kept_deaf = plan({ { name = "a", kind = "mutex" }, { name = "b", kind = "mutex" } }, {
  process(1), process(2), process(3),
  task { kind = "mutex", key = "b", process = 3, slot = 8, start = 0, wait = 0, naps = { S } },
  task { kind = "mutex", key = "b", process = 2, slot = 7, start = 10000, wait = huge },
  task {
    kind = "mutex", process = 1, slot = 6, start = 499000, wait = 0, naps = { 1000 }, keep = 5,
  },
  task { kind = "mutex", process = 2, slot = 5, start = 505000, wait = huge },
  fault { name = "stall_link", at = 500000, process = 1, link = "events", duration = 100000 },
}, { calm = true })

-- Two processes stop, and are granted permits together. A third one waits after them.
local stopped_together = permits(2, {
  process(1), process(2), process(3),
  permit { total = 2, process = 1, slot = 8, start = 0, wait = 0, naps = { S } },
  permit { total = 2, process = 1, slot = 7, start = 0, wait = 0, naps = { S } },
  permit { total = 2, process = 2, slot = 6, start = 100000, wait = huge },
  permit { total = 2, process = 3, slot = 5, start = 150000, wait = huge },
  permit { total = 2, process = 1, slot = 4, start = 200000, wait = huge },
  fault { name = "pause", at = 500000, process = 2, duration = 10 * S },
  fault { name = "pause", at = 500000, process = 3, duration = 10 * S },
}, false)

-- A replica refuses an acquire, whose client connects again. The connection hangs until the next
-- acquire, which was never sent, has waited long enough.
local hangs_behind_replica = plan(LOCK, {
  process(1), process(2, { command_timeout = 0.4 }),
  task { process = 2, slot = 8, start = 3000, wait = 3 },
  task { process = 2, slot = 7, start = 6000, wait = huge },
  fault { name = "readonly", at = 2000, process = 1, link = "calls", duration = S },
  fault { name = "cut_down", at = 5000, process = 2, link = "calls", duration = 3 * S },
}, { timeout = 0.4 })

-- Two processes share an owner. One gives up an acquire before its reply, and then takes the lock
-- for a moment, while the other one may hold it. A third process waits.
local function given_up(nap, patience, ...)
  return plan(LOCK, {
    process(1), process(2), process(3),
    task { process = 2, slot = 8, owner = "job", start = 0, wait = 0, naps = { nap } },
    task { process = 1, slot = 4, owner = "job", start = 20000, wait = 0 },
    task { process = 1, slot = 7, owner = "job", start = 100000, wait = 3, patience = patience },
    task { process = 1, slot = 6, owner = "job", start = 200000, wait = 0 },
    task { process = 3, slot = 5, start = 150000, wait = huge, in_by = 2 * S },
    ...
  })
end

-- The owner's first command takes the free lock, or learns how often the lock is held; the second
-- one joins.
local given_up_free, given_up_counting = given_up(1000, 10), given_up(S, 10)
local given_up_joining = given_up(S, 900)
local given_up_refused = given_up(S, 900, fault {
  name = "oom", at = 90000, process = 1, link = "calls", duration = 50000,
})

-- A shared owner's release is given up, and the server has forgotten its program.
local release_forgotten = plan(LOCK, {
  process(1), process(2),
  task { process = 1, slot = 8, owner = "job", hurry = 10, start = 0, wait = 0,
    naps = { 100000 } },
  task { process = 2, slot = 7, start = 50000, wait = huge, in_by = S },
  fault { name = "forget_scripts", at = 90000, process = 1, link = "calls" },
})

-- An extend to a shorter lease is given up before its reply, and reaches the server late, after a
-- renewal. Another process waits.
local extend_given_up = plan(LOCK, {
  process(1), process(2),
  task {
    process = 1, slot = 8, start = 0, wait = 0, naps = { 100000 }, extend = 0.5, hurry = 10,
    stays = 3 * S,
  },
  task { process = 2, slot = 7, start = 50000, wait = huge },
  fault { name = "stall_up", at = 90000, process = 1, link = "calls", duration = S },
})

-- Somebody waits for a permit of a semaphore whose slot moves before the permit comes back.
local function in_cluster(index) return process(index, { system = "cluster", sync = false }) end
local function takes(part)
  part.kind, part.calls, part.amount, part.permits = "plain_semaphore", "take", 1, 1
  return task(part)
end
local moved_channel = plan({ { name = "a", kind = "plain_semaphore" } }, {
  in_cluster(1), in_cluster(2), in_cluster(3),
  task {
    kind = "plain_semaphore", calls = "set_count", amount = 1, process = 1, slot = 8, start = 0,
    wait = 3,
  },
  takes { process = 2, slot = 7, start = 50000, wait = 0, naps = { 400000 } },
  takes { process = 3, slot = 6, start = 100000, wait = 10 },
  fault { name = "move_slot", at = 250000, process = 1, link = "calls", duration = 30000 },
}, {
  system = "cluster", plain = true, slow = false, rates = { 1, 1, 1 }, offsets = { 0, 0, 0 },
  replication = { 1000, 100000 },
})

-- { name, plan, a mutant (mutants.lua) with which it breaks a rule | nil }
return {
  { "stale_grant", stale_grant, "STALE_GRANT" },
  { "stray_guard", stray_guard(), "SAME_OWNER" },
  { "stray_guard_needs_approval", stray_guard({ needs_approval = true, renewer_link = false },
    fault { name = "busy", at = 403100, process = 1, link = "calls", duration = 3000 }),
      "SAME_OWNER" },
  { "late_release", late_release("lock"), "release_any_hold" },
  { "late_mutex_release", late_release("mutex"), "release_any_hold" },
  { "late_guard_release", late_release("guard"), "complete_any_hold" },
  { "late_mutex_acquire", late_acquire("mutex"), "mutex_shortened" },
  { "late_read_acquire", late_acquire("read_write", "read"), "reader_shortened" },
  { "braces", braces, "queue_shared" },
  { "checks", checks, "PUT_OFF" },
  { "shared_mark", shared_mark, "mark_erased" },
  { "shared_join", shared_join, "joins_own_grant" },
  { "shared_grant_lost", shared_grant_lost },
  { "forgotten", forgotten(false), "NO_GUARD" },
  { "forgotten_by_the_other_link", forgotten(true), "NO_GUARD" },
  { "late_leave_of_a_part", late_leave_of_a_part },
  { "shared_leave", shared_leave },
  { "shared_entry", shared_entry, "ENTRY_ABANDONED" },
  { "lost_entry", lost_entry, "LOST_ENTRY_KEPT" },
  { "late_entry", late_entry, "LATE_ENTRY_KEPT" },
  { "lost_answer", lost_answer, "ALL_NO_UNDO" },
  { "held_meanwhile", held_meanwhile, "COLLECTED_ENDS" },
  { "record_of_two", record_of_two, "RECORD_UNTOLD" },
  { "forsaken", forsaken },
  { "collected_at_release", collected("release") },
  { "collected_at_entry", collected("enter") },
  { "released_both", released_both },
  { "released_half", released_half },
  { "released_permit", released_permit },
  { "marked_grant", marked_grant },
  { "vanished", vanished },
  { "returned_late", returned_late },
  { "kept_deaf", kept_deaf, "wish_unheard" },
  { "strays", strays, "STRAYS_FORGOTTEN" },
  { "dropped_meanwhile", dropped_meanwhile, "RELEASES_UNCOUNTED" },
  { "yes_over_a_gap", yes_over_a_gap, "GAP_UNSEEN" },
  { "repair_beside_waiters", repair_beside_waiters, "REFUSAL_UNNOTED" },
  { "abandoned_release", abandoned_release, "RELEASE_UNNOTED" },
  { "one_handle", one_handle, "ALL_ABANDONED" },
  { "longest_lease", longest_lease, "leases_forgotten" },
  { "fair_dead_java", fair_dead_java, "fair_java_kept" },
  { "fair_dead", fair_dead, "fair_dead_kept" },
  { "fair_long_hold", fair_long_hold, "fair_short" },
  { "fair_behind", fair_behind, "fair_high" },
  { "java_reads_along", java_reads_along, "java_readers_untold" },
  { "java_kept_out", java_kept_out, "java_drained" },
  { "java_let_in", java_kept_out, "java_kept_out" },
  { "java_kept_out_by_dead", java_kept_out_by_dead, "java_undrained" },
  { "java_is_early", java_is_early, "permits_untold" },
  { "java_goes_last", java_goes_last, "permits_unseen" },
  { "dead_reader", dead_reader, "dead_readers" },
  { "taken_by_force", taken_by_force, "FORCED_LENT" },
  { "taken_while_idle", taken_while_idle, "FORCED_LENT" },
  { "hangs_behind_replica", hangs_behind_replica },
  { "given_up_free", given_up_free, "LATE_TOKEN" },
  { "given_up_counting", given_up_counting, "LATE_BUSY" },
  { "given_up_joining", given_up_joining, "LATE_LIST" },
  { "given_up_refused", given_up_refused, "LATE_ERROR" },
  { "release_forgotten", release_forgotten, "SEEN_NOT_THROUGH" },
  { "extend_given_up", extend_given_up, "EXTEND_GIVEN_UP" },
  { "moved_channel", moved_channel, "MOVE_UNHEARD" },
  { "stopped_together", stopped_together, "permit_one_settled" },
}
