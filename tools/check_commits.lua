-- Checks that each commit message describes the change: lua5.4 tools/check_commits.lua
--
-- Checks the commits after the one that added this file. A subject has at most 72 characters,
-- begins with its scope, and is unique in the history. A large change needs a body that gives the
-- reason. A merge's message says what it merges. Outside a repository, there is nothing to check.

local MAX_LETTERS = 72
local MAX_LINES = 200 -- maximum changed lines in a commit without a body
local times = {} -- subject → the number of commits with this subject

local tools = dofile "tools/files.lua"

local function lines_of(command) return tools.lines_of(command .. " 2>/dev/null || :") end

local function lines_changed(id)
  local sum = 0
  for _, line in ipairs(lines_of("git show --numstat --format= " .. id)) do
    local added, removed = line:match "^(%d+)%s(%d+)"
    sum = sum + (added or 0) + (removed or 0)
  end
  return sum
end

-- → the problem with a commit, or nil
local function find_problem(id, is_merge, subject)
  if utf8.len(subject) > MAX_LETTERS then
    return ("its subject has more than %d characters"):format(MAX_LETTERS)
  elseif subject:find "^Merge " then
    return "a merge is named after what it brings"
  elseif not subject:find "^[%w][%w_%-., /]*: %S" then
    return 'its subject does not begin with a scope, as in "sim: cover draining"'
  elseif times[subject] > 1 then
    return "another commit has the same subject"
  elseif not is_merge and #lines_of("git log -1 --format=%b " .. id) == 0
    and lines_changed(id) > MAX_LINES then
    return ("it changes more than %d lines and has no body that says why"):format(MAX_LINES)
  end
end

for _, subject in ipairs(lines_of "git log --format=%s") do
  times[subject] = (times[subject] or 0) + 1
end
local since = lines_of("git log --diff-filter=A --format=%H -- " .. arg[0])[1]
for _, commit in ipairs(since and lines_of("git log --format='%h %p|%s' " .. since .. "..HEAD") or {}) do
  local id, parents, subject = commit:match "^(%x+) ([%x ]*)|(.*)$"
  local fault = find_problem(id, parents:find " ", subject)
  if fault then tools.fail("%s %s\n  %s", id, subject, fault) end
end
tools.finish()
