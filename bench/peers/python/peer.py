"""redis-py as one of bench/peers: an owner is a thread with a client of its own."""

import math
import sys
import threading
import time

import redis


class Waits:
    def __init__(self):
        self.counts = {}

    def add(self, seconds):
        bucket = max(0, int(math.log2(max(seconds * 1e6, 1)) * 4))
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def text(self):
        return " ".join(f"{bucket}:{count}" for bucket, count in self.counts.items())


def own(port, key, start, stop, section, said):
    client = redis.Redis(host="127.0.0.1", port=port)
    lock = client.lock(key, timeout=30, sleep=0.001, blocking_timeout=60, thread_local=False)
    waits, cycles = Waits(), 0
    client.ping()
    time.sleep(max(0, start - time.time()))
    while time.time() < stop:
        begun = time.time()
        if not lock.acquire():
            raise RuntimeError("not acquired")
        waits.add(time.time() - begun)
        if section > 0:
            time.sleep(section)
        if time.time() < stop:
            cycles += 1
        lock.release()
    said.append(f"owner {cycles}\nwaits {waits.text()}")


def crowd(port, key, owners, start, stop, section):
    said = []
    threads = [threading.Thread(target=own, args=(port, key, start, stop, section, said)) for _ in range(owners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(said))


def held(port, key, count, seconds, lease):
    client = redis.Redis(host="127.0.0.1", port=port)
    begun = time.time()
    locks = [client.lock(f"{key}{i}", timeout=lease) for i in range(count)]
    for lock in locks:
        lock.acquire()
    print(f"taken {time.time() - begun:.6f} alone", flush=True)
    time.sleep(seconds)
    print("lost", sum(not lock.owned() for lock in locks), flush=True)


mode, port, key = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if mode == "crowd":
    crowd(port, key, int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]), float(sys.argv[7]))
else:
    held(port, key, int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
