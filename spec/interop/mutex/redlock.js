// One worker: counts under node-redlock. Arguments: port, name, ms between two tries, ms inside.
// Prints "ready", waits for the key "start", and goes on until there is a key "stop".
const Redis = require('ioredis')
const Redlock = require('redlock')

const [port, name, poll, inside] = process.argv.slice(2)
const client = new Redis(Number(port), '127.0.0.1')
const redlock = new Redlock([client], { retryCount: 1000, retryDelay: Number(poll), retryJitter: 0 })
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function run() {
  await client.ping()
  console.log('ready')
  while (!(await client.get('start'))) await sleep(5)
  while (!(await client.get('stop'))) {
    const lock = await redlock.lock('shared', 10000)
    const count = Number(await client.get('count'))
    await sleep(Number(inside))
    await client.set('count', count + 1)
    await client.rpush('turns', name)
    await lock.unlock()
  }
  client.disconnect()
}

run().catch((err) => {
  console.error(err)
  process.exit(1)
})
