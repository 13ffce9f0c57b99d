// One node-redisson process of a crowd: PORT STORE_PORT KEY NAME [option=value ...], as spec/support/crowd_worker.lua.
//
// turns, seconds, wait, inside, outside as there; holds: entries in each turn.

const Redis = require("ioredis");
const { Redisson } = require("node-redisson");

const [port, storePort, key, name, ...rest] = process.argv.slice(2);
const options = { turns: 1, wait: 30, inside: 0, outside: 0, holds: 1 };
for (const pair of rest) options[pair.split("=")[0]] = Number(pair.split("=")[1]);

const store = new Redis(Number(storePort), "127.0.0.1");
const client = new Redisson({ redis: { options: { host: "127.0.0.1", port: Number(port) } }, lockWatchdogTimeout: 3000n });

const sleep = (seconds) => (seconds > 0 ? new Promise((resolve) => setTimeout(resolve, seconds * 1000)) : undefined);

async function use() {
  await store.rpush("crowd:history", `in ${name} 0`);
  const count = Number((await store.get("crowd:counter")) ?? 0);
  await sleep(options.inside);
  await store.set("crowd:counter", count + 1);
  await store.rpush("crowd:history", `out ${name}`);
}

async function turn(lock) {
  for (let i = 0; i < options.holds; i++) {
    // Its lease is an option: true renews it.
    if (!(await lock.tryLock(BigInt(Math.round(options.wait * 1000)), true))) {
      console.log("failed busy");
      return false;
    }
  }
  console.log("in");
  await use();
  for (let i = 0; i < options.holds; i++) await lock.unlock();
  return true;
}

async function main() {
  const lock = client.getLock(key);
  await lock.isLocked();
  await store.ping();
  console.log("ready");
  while (options.together && !(await store.get("crowd:start"))) await sleep(0.005);
  const stop = Date.now() + (options.seconds ?? 1e9) * 1000;
  const turns = options.seconds ? Infinity : options.turns;
  let taken = 0;
  for (let i = 0; i < turns && Date.now() < stop; i++) {
    if (await turn(lock)) taken++;
    await sleep(options.outside);
  }
  console.log(`done ${taken}`);
  process.exit(0);
}

main().catch((error) => {
  console.log(error);
  process.exit(1);
});
