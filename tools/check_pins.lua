-- Checks that all downloaded programs are pinned: each action in the workflows to a commit's hash,
-- each pip package in tools to its SHA-256.

local tools = dofile "tools/files.lua"

local function check(pattern, holds, what)
  for _, line in ipairs(tools.lines_of("grep -rnE '" .. pattern .. "' .github tools --exclude=check_pins.lua")) do
    if not line:find(holds) then tools.fail("%s: %s", line, what) end
  end
end

check("uses: ", "@" .. ("%x"):rep(40) .. " # v[%d.]+$", "name the commit, and the version behind it")
check("ref: ", "matrix%.commit", "name the commit")
check("^[A-Z0-9_]+=.*==[0-9]", "%-%-hash=sha256:" .. ("%x"):rep(64), "give the digest")
check("pip (download|install)", "pip download .*\\$", "require hashes on the next line")
tools.finish()
