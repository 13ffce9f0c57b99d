-- The rights that docs/redis.md says a user needs.

local pages = require "spec.support.pages"

local rights = {}

local function words_of(text)
  local words = {}
  for word in text:gmatch("%S+") do words[#words + 1] = word end
  return words
end

-- → the words of the documented rule, name, then rights; the shorter form of its end, as a text
function rights.documented()
  local text = pages.read("docs/redis.md")
  return words_of(text:match("\n    ACL SETUSER (.-)\n\n")), text:match("or, shorter: `(.-)`")
end

-- The words that a kind of lock needs beside them, by the page that it has.
function rights.documented_for(page)
  local text = pages.read("docs/redis.md")
  return words_of(text:match("%(" .. page .. "%) also needs%s+`([^`]+)`"))
end

-- The words that the command needs beside them, without the name.
function rights.documented_for_command()
  return words_of(pages.read("docs/redis.md"):match("\n    ACL SETUSER locks (~holdfast_once[^\n]+)\n"))
end

-- The words of a user of the kind with this page, without the name.
function rights.documented_with(page)
  local words = rights.documented()
  table.remove(words, 1)
  for _, word in ipairs(rights.documented_for(page)) do words[#words + 1] = word end
  return words
end

-- What the server has refused, without the one thing that may be: a waiter that has waited for a
-- while listens to Redisson by a pattern.
function rights.refused(server)
  local list = {}
  for _, entry in ipairs(server:cli("ACL", "LOG")) do
    local listens = false
    for i = 1, #entry, 2 do
      listens = listens or entry[i] == "client-info" and entry[i + 1]:find("cmd=psubscribe", 1, true)
    end
    if not listens then list[#list + 1] = entry end
  end
  return list
end

return rights
