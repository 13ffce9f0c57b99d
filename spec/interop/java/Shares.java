// One Redisson process of bench/shares.lua: PORT KEY KIND [option=value ...]
//
// KIND: lock, fair_lock, write_lock, read_write_lock (every other turn reads), semaphore, plain_semaphore. From the key
// test:start on, it takes and gives back in a loop without a pause for `seconds`, and holds for `inside`; cluster=1: the port
// is that of a node of a cluster. It prints "ready", then "done <turns> <longest wait in ms>".

import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

public class Shares {
    // Gets a turn within 10 s. → whether it has
    private interface Turns {
        boolean take() throws InterruptedException;
        void end();
    }

    // The locks of the turns, one after the other.
    private static Turns of(RLock... locks) {
        return new Turns() {
            private int turn = 0;
            private RLock lock() { return locks[turn % locks.length]; }
            public boolean take() throws InterruptedException { return lock().tryLock(10, TimeUnit.SECONDS); }
            public void end() {
                lock().unlock();
                turn++;
            }
        };
    }

    private static Turns of(RPermitExpirableSemaphore semaphore) {
        return new Turns() {
            private String id;
            public boolean take() throws InterruptedException {
                id = semaphore.tryAcquire(10, 60, TimeUnit.SECONDS);
                return id != null;
            }
            public void end() { semaphore.release(id); }
        };
    }

    private static Turns of(RSemaphore semaphore) {
        return new Turns() {
            public boolean take() throws InterruptedException { return semaphore.tryAcquire(10, TimeUnit.SECONDS); }
            public void end() { semaphore.release(); }
        };
    }

    private static Turns of(RedissonClient client, String kind, String key) {
        RReadWriteLock both = client.getReadWriteLock(key);
        switch (kind) {
            case "lock": return of(client.getLock(key));
            case "fair_lock": return of(client.getFairLock(key));
            case "write_lock": return of(both.writeLock());
            case "read_write_lock": return of(both.writeLock(), both.readLock());
            case "semaphore": return of(client.getPermitExpirableSemaphore(key));
            case "plain_semaphore": return of(client.getSemaphore(key));
            default: throw new IllegalArgumentException(kind);
        }
    }

    public static void main(String[] args) throws Exception {
        Worker.readOptions(args, 3);
        RedissonClient client = Worker.connect(args[0]);
        Turns of = of(client, args[2], args[1]);
        System.out.println("ready");
        Worker.awaitKey(client, "test:start");
        long stop = Worker.end(1), turns = 0, longest = 0;
        for (long asked; (asked = System.nanoTime()) < stop; turns++) {
            boolean got = of.take();
            longest = Math.max(longest, System.nanoTime() - asked);
            if (!got) continue;
            Worker.sleep(Worker.option("inside", 0));
            of.end();
        }
        System.out.println("done " + turns + " " + longest / 1000000);
        client.shutdown();
    }
}
