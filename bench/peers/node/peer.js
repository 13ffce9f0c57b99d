// node-redlock and redis-semaphore as two of bench/peers: peer.js redlock|semaphore crowd|held ...
// An owner is a chain of promises with a connection of its own.

const Redis = require("ioredis");

const [library, mode, port, key, ...rest] = process.argv.slice(2);
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const now = () => (performance.timeOrigin + performance.now()) / 1000;

// -> { acquire() -> { release() } }
function redlock(client, name, lease) {
  const Redlock = require("redlock");
  const locks = new Redlock([client], { retryCount: 1e9, retryDelay: 1, retryJitter: 0 });
  return {
    renews: false,
    async acquire() {
      const lock = await locks.lock(name, lease * 1000);
      return { release: () => lock.unlock() };
    },
  };
}

function semaphore(client, name, lease) {
  const { Mutex } = require("redis-semaphore");
  return {
    renews: true,
    async acquire() {
      const mutex = new Mutex(client, name, {
        lockTimeout: lease * 1000, acquireTimeout: 60000, retryInterval: 1, refreshInterval: (lease * 1000) / 3,
      });
      await mutex.acquire();
      return { release: () => mutex.release(), isHeld: () => mutex.isAcquired };
    },
  };
}

const lockOf = { redlock, semaphore }[library];

class Waits {
  counts = new Map();
  add(seconds) {
    const bucket = Math.max(0, Math.floor(Math.log2(Math.max(seconds * 1e6, 1)) * 4));
    this.counts.set(bucket, (this.counts.get(bucket) || 0) + 1);
  }
  text() {
    return [...this.counts].map(([bucket, count]) => `${bucket}:${count}`).join(" ");
  }
}

async function own(start, stop, section) {
  const client = new Redis(Number(port), "127.0.0.1");
  const lock = lockOf(client, key, 30);
  const waits = new Waits();
  let cycles = 0;
  await client.ping();
  await sleep(Math.max(0, start - now()));
  while (now() < stop) {
    const begun = now();
    const held = await lock.acquire();
    waits.add(now() - begun);
    if (section > 0) await sleep(section);
    if (now() < stop) cycles++;
    await held.release();
  }
  client.disconnect();
  console.log(`owner ${cycles}\nwaits ${waits.text()}`);
}

// So that the code is compiled, as in a server that has run for a while.
async function warmUp(until) {
  const client = new Redis(Number(port), "127.0.0.1");
  const lock = lockOf(client, `${key}:warm:${Math.random()}`, 30);
  while (now() < until) await (await lock.acquire()).release();
  client.disconnect();
}

async function crowd([owners, start, stop, section]) {
  await warmUp(start - 0.3);
  await Promise.all(Array.from({ length: owners }, () => own(start, stop, section)));
}

async function held([count, seconds, lease]) {
  const client = new Redis(Number(port), "127.0.0.1");
  const begun = now();
  const locks = [];
  let renews;
  for (let i = 0; i < count; i++) {
    const lock = lockOf(client, key + i, lease);
    renews = lock.renews;
    locks.push(await lock.acquire());
  }
  console.log(`taken ${now() - begun} ${renews ? "renewed" : "alone"}`);
  await sleep(seconds);
  console.log(`lost ${renews ? locks.filter((lock) => !lock.isHeld()).length : 0}`);
  process.exit(0);
}

(mode === "crowd" ? crowd : held)(rest.map(Number)).catch((error) => {
  console.error(error);
  process.exit(1);
});
