# One worker: counts under redis-py's Lock. Arguments: port, seconds. Prints how often it got in.
import sys
import time

import redis

client = redis.Redis(port=int(sys.argv[1]))
lock = client.lock("shared", timeout=10, sleep=0.005)
stop = time.monotonic() + float(sys.argv[2])
turns = 0
while time.monotonic() < stop:
    if lock.acquire(blocking_timeout=5):
        count = int(client.get("count") or 0)
        time.sleep(0.001)
        client.set("count", count + 1)
        lock.release()
        turns += 1
print(turns)
