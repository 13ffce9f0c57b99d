-- Checks that each commit says what it changes: lua5.4 tools/check_commits.lua [SINCE]
--
-- SINCE: a commit whose successors are checked; by default the one that added this file. A subject
-- has at most 72 characters, names its scope and is unique in the history. Many changed lines need
-- a body that says why. A merge says what it brings. Outside a repository nothing is checked.

local MOST_LETTERS = 72
local MOST_LINES = 200 -- the most changed lines without a body

local function lines_of(command)
  local pipe = assert(io.popen(command .. " 2>/dev/null"))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  return lines, pipe:close()
end

-- → subject -> how many commits have it
local function count_subjects()
  local times = {}
  for _, subject in ipairs(lines_of "git log --format=%s") do
    times[subject] = (times[subject] or 0) + 1
  end
  return times
end

local function lines_changed(id)
  local sum = 0
  for _, line in ipairs(lines_of("git show --numstat --format= " .. id)) do
    local added, removed = line:match "^(%d+)%s(%d+)"
    sum = sum + (added or 0) + (removed or 0)
  end
  return sum
end

-- → what is wrong with a commit, or nil
local function fault_of(id, is_merge, subject, times)
  if utf8.len(subject) > MOST_LETTERS then
    return ("its subject has more than %d characters"):format(MOST_LETTERS)
  elseif subject:find "^Merge " then
    return "a merge is named after what it brings"
  elseif not subject:find "^[%w][%w_%-., /]*: %S" then
    return 'its subject does not begin with a scope, as in "sim: cover draining"'
  elseif times[subject] > 1 then
    return "another commit has the same subject"
  elseif not is_merge and #lines_of("git log -1 --format=%b " .. id) == 0
    and lines_changed(id) > MOST_LINES then
    return ("it changes more than %d lines and has no body that says why"):format(MOST_LINES)
  end
end

local since = arg[1] or lines_of("git log --diff-filter=A --format=%H -- " .. arg[0])[1]
local commits, is_there = {}, since
if since then commits, is_there = lines_of("git log --format='%h %p|%s' " .. since .. "..HEAD") end
if arg[1] and not is_there then
  io.stderr:write(("no commit is called %s\n"):format(arg[1]))
  os.exit(2)
end

local times, failed = count_subjects(), false
for _, commit in ipairs(commits) do
  local id, parents, subject = commit:match "^(%x+) ([%x ]*)|(.*)$"
  local fault = fault_of(id, parents:find " ", subject, times)
  if fault then
    print(("%s %s\n  %s"):format(id, subject, fault))
    failed = true
  end
end
if failed then os.exit(1) end
print(("%d commits say what they change"):format(#commits))
