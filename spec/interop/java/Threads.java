// Threads of one Redisson client that contend for one lock each: PORT KIND THREADS INSIDE_MS KEY...
//
// KIND: lock, fair, read, write, permit. For each key there are THREADS threads; each takes the lock, sleeps and releases it
// again without a pause. Prints "ready" when each thread has had its lock once.

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Threads {
    interface Turn {
        void take(long insideMs) throws InterruptedException;
    }

    private static Turn turnOf(RLock lock) {
        return insideMs -> {
            lock.lock();
            TimeUnit.MILLISECONDS.sleep(insideMs);
            lock.unlock();
        };
    }

    private static Turn turnOf(RPermitExpirableSemaphore semaphore) {
        semaphore.trySetPermits(1);
        return insideMs -> {
            String id = semaphore.acquire(30, TimeUnit.SECONDS);
            TimeUnit.MILLISECONDS.sleep(insideMs);
            semaphore.release(id);
        };
    }

    private static Turn turnOf(RedissonClient client, String kind, String key) {
        switch (kind) {
        case "lock": return turnOf(client.getLock(key));
        case "fair": return turnOf(client.getFairLock(key));
        case "read": return turnOf(client.getReadWriteLock(key).readLock());
        case "write": return turnOf(client.getReadWriteLock(key).writeLock());
        case "permit": return turnOf(client.getPermitExpirableSemaphore(key));
        default: throw new IllegalArgumentException(kind);
        }
    }

    private static void goOn(Turn turn, long insideMs, CountDownLatch started) {
        try {
            while (true) {
                turn.take(insideMs);
                started.countDown();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[2]), keys = args.length - 4;
        long insideMs = Long.parseLong(args[3]);
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]).setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(threads * keys + 1);
        config.setThreads(2).setNettyThreads(2);
        RedissonClient client = Redisson.create(config);
        CountDownLatch started = new CountDownLatch(threads * keys);
        for (int i = 0; i < threads * keys; i++) {
            Turn turn = turnOf(client, args[1], args[4 + i % keys]);
            new Thread(() -> goOn(turn, insideMs, started)).start();
        }
        started.await();
        System.out.println("ready");
    }
}
