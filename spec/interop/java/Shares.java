// One Redisson process of bench/shares.lua: PORT KEY KIND [option=value ...]
//
// KIND: lock, fair_lock, write_lock, read_write_lock (every other turn reads), semaphore, plain_semaphore. From the key
// test:start on, it takes and gives back in a loop without a pause for `seconds`, and holds for `inside`; cluster=1: the port
// is that of a node of a cluster. It prints "ready", then "done <turns> <longest wait in ms>".

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class Shares {
    private static final Map<String, Double> options = new HashMap<>();

    // Gets a turn within 10 s. → whether it has
    private interface Turns {
        boolean take() throws InterruptedException;
        void end();
    }

    private static double option(String name, double otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    private static void sleep(double seconds) throws InterruptedException {
        if (seconds > 0) TimeUnit.NANOSECONDS.sleep((long) (seconds * 1e9));
    }

    private static RedissonClient connect(String port) {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2);
        String address = "redis://127.0.0.1:" + port;
        if (option("cluster", 0) == 1) {
            config.useClusterServers().addNodeAddress(address).setMasterConnectionMinimumIdleSize(1)
                .setMasterConnectionPoolSize(4).setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4);
        } else {
            config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(1).setConnectionPoolSize(4);
        }
        return Redisson.create(config);
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
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=");
            options.put(pair[0], Double.parseDouble(pair[1]));
        }
        RedissonClient client = connect(args[0]);
        Turns of = of(client, args[2], args[1]);
        System.out.println("ready");
        while (!client.getBucket("test:start", StringCodec.INSTANCE).isExists()) sleep(0.005);
        long stop = System.nanoTime() + (long) (option("seconds", 1) * 1e9), turns = 0, longest = 0;
        for (long asked; (asked = System.nanoTime()) < stop; turns++) {
            boolean got = of.take();
            longest = Math.max(longest, System.nanoTime() - asked);
            if (!got) continue;
            sleep(option("inside", 0));
            of.end();
        }
        System.out.println("done " + turns + " " + longest / 1000000);
        client.shutdown();
    }
}
