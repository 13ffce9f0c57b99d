// One worker: counts under node-redlock. Arguments: port, seconds. Prints how often it got in.
const Redis = require('ioredis')
const Redlock = require('redlock')

const client = new Redis(Number(process.argv[2]), '127.0.0.1')
const redlock = new Redlock([client], { retryCount: 1000, retryDelay: 5, retryJitter: 5 })
const stop = Date.now() + Number(process.argv[3]) * 1000

async function run() {
  let turns = 0
  while (Date.now() < stop) {
    const lock = await redlock.lock('shared', 10000)
    const count = Number(await client.get('count'))
    await new Promise((resolve) => setTimeout(resolve, 1))
    await client.set('count', count + 1)
    await lock.unlock()
    turns++
  }
  console.log(turns)
  client.disconnect()
}

run().catch((err) => {
  console.error(err)
  process.exit(1)
})
