-- The statements of docs/explanation/fencing.md, each as it stands there, on real servers: make
-- fencing.

local databases = require "spec.support.databases"
local statements = require "spec.fencing.statements"

for _, database in ipairs(databases.names) do
  describe("the documented SQL statements on " .. database, function()
    local server, connection, all, missing

    setup(function()
      server, missing = databases.start(database)
      if not server then return end
      connection, all = databases.connect(server.place), statements.of(database)
      statements.prepare(connection, all)
    end)

    teardown(function()
      if not server then return end
      connection:close()
      server.stop()
    end)

    local function has_server()
      if missing and os.getenv "HOLDFAST_DATABASES" then error(missing) end
      if missing then pending(missing) end
      return server ~= nil
    end

    local function run(name, values) return statements.run(connection, all, name, values) end

    local function rows(query) return databases.rows(connection, query) end

    local function write(statement) assert(databases.run(connection, statement)) end

    for _, name in ipairs { "update", "insert or update" } do
      it(name .. " one row, unless a later holder has written it", function()
        if not has_server() then return end
        local id = #name
        if name == "update" then
          write(("INSERT INTO price (id, amount) VALUES (%d, 0)"):format(id))
        end
        local function put(amount, token)
          return run(name, { id = id, amount = amount, token = token })
        end
        assert.is_true(put(1, 1795716210854056) > 0)
        assert.is_true(put(1, 1795716210854056) > 0) -- sent twice
        assert.is_true(put(2, 1795716210854064) > 0)
        assert.equal(0, put(3, 1795716210854056))
        local query = "SELECT amount FROM price WHERE id = %d AND fence = 1795716210854064"
        assert.same({ { 2 } }, rows(query:format(id)))
      end)
    end

    -- → whether the entry is committed
    local function enter(number, token)
      write(database == "sqlite" and "BEGIN IMMEDIATE" or "BEGIN")
      local admitted = run("raise the token", { resource = "r", token = token }) > 0
      run("insert", { resource = "r", token = token, number = number, entry = "e" .. number })
      write(admitted and "COMMIT" or "ROLLBACK")
      return admitted
    end

    it("write each ledger entry once, and none of an earlier holder", function()
      if not has_server() then return end
      assert.is_true(enter(1, 16))
      assert.is_true(enter(1, 16))
      assert.is_true(enter(2, 16))
      assert.is_true(enter(1, 24))
      assert.is_false(enter(3, 16))
      assert.same({ { 16, 1 }, { 16, 2 }, { 24, 1 } },
        rows "SELECT token, number FROM ledger ORDER BY token, number")
      assert.same({ { 24 } }, rows "SELECT token FROM fence")
    end)

    it("refuse a lower token even in a statement that does not compare tokens", function()
      if not has_server() then return end
      write "INSERT INTO price (id, amount, fence) VALUES (99, 5, 24)"
      local done, message = databases.run(connection, "UPDATE price SET amount = 6, fence = 16 WHERE id = 99")
      assert.is_nil(done)
      assert.matches("stale", message)
      assert(databases.run(connection, "UPDATE price SET amount = 7, fence = 24 WHERE id = 99"))
      assert.same({ { 7, 24 } }, rows "SELECT amount, fence FROM price WHERE id = 99")
    end)
  end)
end
