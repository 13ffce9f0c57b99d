# One worker: counts under redis-py's Lock. Arguments: port, name, ms between two tries, ms inside, ms between two turns.
# Prints "ready", waits for the key "start", and goes on until there is a key "stop".
import sys
import time

import redis

port, name, poll, inside = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) / 1000, int(sys.argv[4]) / 1000
outside = int(sys.argv[5]) / 1000 if len(sys.argv) > 5 else 0
client = redis.Redis(port=port)
lock = client.lock("shared", timeout=10, sleep=poll)
client.ping()
print("ready", flush=True)
while not client.get("start"):
    time.sleep(0.005)
while not client.get("stop"):
    if lock.acquire(blocking_timeout=2):
        count = int(client.get("count") or 0)
        time.sleep(inside)
        client.set("count", count + 1)
        client.rpush("turns", name)
        lock.release()
        time.sleep(outside)
