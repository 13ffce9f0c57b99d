-- The shell completions, with keys that anyone may have written to the server.

local command = require "spec.support.command"
local complete = require "holdfast.command.complete"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local hostile = require "spec.support.hostile"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local PATIENCE = 60

local write = files.write

-- What a shell reads at its start. An entered line is not executed; its words are recorded.
local COMMON = [[
%s
PS1='> '
HISTFILE=
entered() { shift; if [ "$1" = -- ]; then shift; fi; printf '%%s\0' "$1" >>'%s/words'; }
%s
]]
local AT_START = {
  bash = [[
    real=$(declare -f holdfast)
    eval "real_$real"
    holdfast() { if [ "$1" = complete ]; then real_holdfast "$@"; else entered "$@"; fi; }
    . completions/holdfast.bash
  ]],
  zsh = [=[
    functions[real_holdfast]=$functions[holdfast]
    holdfast() { if [[ $1 == complete ]]; then real_holdfast "$@"; else entered "$@"; fi; }
    fpath=($PWD/completions $fpath)
    autoload -Uz compinit
    compinit -u -D
    compdef _holdfast holdfast
  ]=],
}
local START = { bash = "bash --noprofile --rcfile %s/.zshrc -i", zsh = "ZDOTDIR=%s zsh -d -i" }

local function words_of(text)
  local list = {}
  for word in text:gmatch "([^%z]*)%z" do list[#list + 1] = word end
  return list
end

describe("completion", function()
  local server, client, directory, locks

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    directory, client, locks = process.directory(), holdfast.new(server:url()), {}
  end)
  after_each(function()
    client:close()
    process.remove(directory)
  end)

  local function lock(keys)
    for _, key in ipairs(keys) do locks[#locks + 1] = assert(client:lock(key):acquire()) end
  end

  -- Types these lines on a terminal, each with a tab at its end.
  -- → the word after the subcommand of each line
  local function typed(shell, lines)
    write(directory .. "/.zshrc",
      COMMON:format(command.shell_prelude(server), directory, AT_START[shell]))
    write(directory .. "/typed", table.concat(lines, "\t\n") .. "\t\nexit\n")
    local child = command.other { "sh", "-c", ([[cat "$0" | LC_ALL=C.UTF-8 script -qec '%s' /dev/null]]):format(
      START[shell]:format(directory)), directory .. "/typed" }
    assert.same({ "exit" }, { (child:wait(PATIENCE)) }, child:output())
    return words_of(files.read(directory .. "/words"))
  end

  local function each_key_is_itself(shell)
    local keys, lines, expected = hostile.keys(directory .. "/evil"), {}, {}
    lock(keys)
    for i, key in ipairs(keys) do lines[i], expected[i] = "holdfast show " .. key:sub(1, 2), key end
    for i, start in ipairs { "ka:b", "'k1", '"k1', "'kc'\\'" } do
      lines[#keys + i] = "holdfast show " .. start
      expected[#keys + i] = i == 1 and hostile.key(keys, "ka") or i == 4 and hostile.key(keys, "kc")
        or hostile.key(keys, "k1")
    end
    assert.same(expected, typed(shell, lines))
    assert.is_nil(io.open(directory .. "/evil"))
  end

  it("inserts each key as one literal word in bash, and executes nothing", function()
    each_key_is_itself "bash"
  end)

  it("inserts each key as one literal word in zsh, and executes nothing", function()
    if not process.succeeds "command -v zsh >/dev/null" then return pending("there is no zsh") end
    each_key_is_itself "zsh"
  end)

  for _, shell in ipairs { "bash", "zsh" } do
    it(("inserts a key that starts with - after -- in %s"):format(shell), function()
      if not process.succeeds("command -v " .. shell .. " >/dev/null") then return pending("there is no " .. shell) end
      lock { "-kill" }
      assert.same({ "-kill", "" }, typed(shell, { "holdfast break -- -k", "holdfast break " }))
    end)
  end

  it("executes nothing in bash when other code calls the completion function", function()
    local keys = hostile.keys(directory .. "/evil")
    lock(keys)
    local script = command.shell_prelude(server) .. [[

      . completions/holdfast.bash
      for subcommand in show break hold wait lead; do
        COMP_LINE="holdfast $subcommand " COMP_POINT=${#COMP_LINE} COMP_WORDS=(holdfast $subcommand "") COMP_CWORD=2
        _holdfast holdfast "" "$subcommand"
        echo ${#COMPREPLY[@]}
      done
    ]]
    local child = command.other { "bash", "-c", script }
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    assert.equal((#keys .. "\n"):rep(5), child:output())
    assert.is_nil(io.open(directory .. "/evil"))
  end)

  it("offers subcommands and options in bash one by one, whatever IFS is set to", function()
    local script = command.shell_prelude(server) .. [[

      . completions/holdfast.bash
      tab() {
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMPREPLY=()
        _holdfast holdfast "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s;' "${COMPREPLY[@]}"
      }
      for each in $'\n' : a ''; do
        IFS=$each
        tab holdfast ru; tab holdfast latch se; tab holdfast help lea; tab holdfast run --max-
        [ "$IFS" = "$each" ] || echo changed
      done
    ]]
    local child = command.other { "bash", "-c", script }
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    assert.equal(("run;set;lead;--max-runtime;"):rep(4), child:output())
  end)

  it("offers a key once even if it has a lock and a record, and no key with a zero byte", function()
    lock { "a'b", "a\0b" }
    server:cli("HSET", "holdfast_once:a'b", "done", 1)
    server:cli("PEXPIRE", "holdfast_once:a'b", 60000)
    assert.same({ 0, "a'b\0a'b\0" }, { command.run(server, { "complete", "--", "zsh" }) })
    assert.same({ 0, "'a'\\''b'\n" },
      { command.run(server, { "complete", "--", "bash", "holdfast show a", "a" }) })
  end)

  it("offers nothing in the middle of a line, or for a word that bash would expand", function()
    assert.same({ "k1", "k2" }, complete.bash({ "k1", "k2", "l" }, "holdfast show k", "k"))
    assert.same({}, complete.bash({ "k1" }, "holdfast show k", "x"))
    assert.same({}, complete.bash({ "k1" }, "holdfast show $k", "$k"))
    assert.same({}, complete.bash({ "k1" }, "holdfast show l", "l"))
    assert.same({ "-k" }, complete.bash({ "-k", "k" }, "holdfast show -- -", "-"))
    assert.same({}, complete.bash({ "-k" }, "holdfast show -", "-"))
  end)

  local SHELLS = { "sh", "bash", "zsh", "ksh", "fish --no-config", "csh -f", "tcsh -f" }

  -- Checks what each installed shell makes of the line: the arguments of a program, or nil if it
  -- refuses the line.
  local function each_shell(line, check)
    for _, shell in ipairs(SHELLS) do
      if process.succeeds("command -v " .. shell:match("%S+") .. " >/dev/null") then
        local words = { "/usr/bin/env" }
        for word in shell:gmatch("%S+") do words[#words + 1] = word end
        words[#words + 1], words[#words + 2] = "-c", "printf '%s\\n' " .. line
        local child = command.other(words)
        local how, code = child:wait(PATIENCE)
        check(shell, how == "exit" and code == 0 and child:output() or nil)
      end
    end
  end

  it("quotes a key so that no shell executes any part of it", function()
    local quote = require("holdfast.command.shell").quote
    local made = directory .. "/made"
    for _, key in ipairs {
      "a b", "x\\'; touch " .. made .. " #", "\\", "'", "\\'", "'\\", "''", "\\\\'", "!!", "a'b", "'x", "x'",
      "$(touch " .. made .. ")", "`touch " .. made .. "`", "(touch " .. made .. ")", '"', "a\\", "中 文",
      "{a,b}", "~", "*", "#", "^a^b", "%1", "=ls",
    } do
      each_shell(quote(key), function(shell, output)
        assert.equal(key .. "\n", output, shell .. ": " .. quote(key))
      end)
    end
    for _, key in ipairs {
      "x\n\\'; touch " .. made .. " #", "'\27;touch " .. made, "a\226\128\139'(touch " .. made .. ")",
    } do
      each_shell(quote(key), function(shell, output)
        local can, cannot = shell:find("^[bzk].*sh") ~= nil, shell:find("fish") ~= nil
        if can then assert.equal(key .. "\n", output, shell) end
        local refusal = "fish: Expected a variable name"
        if cannot then assert.matches("^" .. refusal, output or refusal) end
      end)
    end
    assert.is_false(process.succeeds("test -e " .. made))
    assert.equal("''", quote "")
  end)

  it("quotes arbitrary bytes correctly, with or without an open quote", function()
    local random = hostile.random(tonumber(os.getenv("HOLDFAST_HOSTILE_SEED")) or 1)
    local lines, expected = { "printf '%s\\0'" }, {}
    for _ = 1, tonumber(os.getenv("HOLDFAST_HOSTILE_KEYS")) or 500 do
      local key = random:text(12):gsub("%z", "x")
      for _, open in ipairs { "", "'", '"' } do
        local start = "holdfast show -- " .. open
        local list = complete.bash({ key }, start, "")
        assert.equal(1, #list)
        assert.is_nil(list[1]:find("[%c\127]"))
        -- readline keeps one of two quotes
        local word = list[1]
        if open ~= "" and word:sub(1, 1) == open then word = word:sub(2) end
        lines[#lines + 1], expected[#expected + 1] = open .. word, key
      end
    end
    write(directory .. "/words.sh", table.concat(lines, " \\\n") .. "\n")
    local child = command.other { "bash", directory .. "/words.sh" }
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    assert.same(expected, words_of(child:output()))
  end)
end)
