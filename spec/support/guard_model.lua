-- A model of the idempotent guard: what a call returns, and what the server stores during and after
-- it. No time passes.
--
-- A key holds nothing, another owner's lock ("lock"), a run ("run") or a run's record ("done").
-- `print`: the fingerprint of its request; "" matches any.

local guard_model = {}

local Guard = {}
Guard.__index = Guard

function guard_model.new() return setmetatable({ key = { is = "nothing" } }, Guard) end

-- Another client deletes the key on the server, or takes it for `lease` seconds.
function Guard:disturb(lease)
  self.key = lease and { is = "lock", ttl = lease } or { is = "nothing" }
end

-- A call begins. → the run | nil, a code or "replay", the replayed results
function Guard:begin(options)
  local key, print = self.key, options.fingerprint or ""
  if key.is == "lock" then return nil, "conflict" end
  if key.is ~= "nothing" then
    local is_another = key.print ~= "" and print ~= "" and key.print ~= print
    if is_another then return nil, "mismatch" end
    if key.results and options.replay then return nil, "replay", key.results end
    return nil, "duplicate"
  end
  self.key = { is = "run", print = print, ttl = options.lease }
  return self.key
end

-- The function has returned these results, or raised an error (nil). → true or a code
function Guard:finish(options, run, results)
  local is_lost = self.key ~= run
  local is_kept = options.keep_on_error
  if results then is_kept = not options.delete_key end
  if is_lost then return "lost" end
  self.key = { is = "nothing" }
  if is_kept then
    self.key = {
      is = "done", print = run.print, ttl = options.expire,
      results = options.replay and results or nil,
    }
  end
  return true
end

return guard_model
