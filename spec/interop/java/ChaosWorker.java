// A Redisson process of a chaos run: NAME=VALUE as those of spec/chaos/worker.lua, of which it knows
//
//   name, seed, file, stop, keys, timeout   the same
//   urls                                    the proxy
//   store                                   the port of the store
//
// Two threads take an RFencedLock in turns, with and without waiting, a lease or the watchdog. Each hold has a thread of
// its own, so that a command of Redisson that comes late concerns the hold that it was sent for, and nothing is sent twice.

import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;
import redis.clients.jedis.Jedis;

public class ChaosWorker {
    private static final int TURNS_AT_A_TIME = 2;
    private static final int WATCHDOG_MS = 1200;
    private static final double MARGIN = 0.003; // of a TTL in whole milliseconds
    private static final int[] WAITS = {0, 0, 20, 50, 100, 200, 400, 1000};
    private static final int[] LEASES = {300, 500, 900, 1500, 2000};
    private static final int[] KEPT = {2, 5, 10, 20, 60, 300, 2200}; // ms

    // What is left of the lock if its owner has it, in one look.
    private static final String LEFT =
        "return redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and redis.call('PTTL', KEYS[1]) or -2";
    private static final String STORE = "local last = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') "
        + "local accepted = tonumber(ARGV[1]) >= last and 1 or 0 "
        + "if accepted == 1 then redis.call('HSET', KEYS[1], 'token', ARGV[1]) end "
        + "redis.call('RPUSH', 'log', table.concat({ KEYS[1], ARGV[1], ARGV[2], accepted }, ' ')) "
        + "return accepted";

    private static final Map<String, String> options = new HashMap<>();
    private static RedissonClient client;
    private static Writer history;
    private static int last;

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static void sleep(long ms) {
        try {
            TimeUnit.MILLISECONDS.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static synchronized void write(String format, Object... values) {
        try {
            history.write(String.format(Locale.ROOT, format, values) + "\n");
            history.flush();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static synchronized int nextId() {
        return ++last;
    }

    private static RedissonClient connect() {
        int timeout = (int) (Double.parseDouble(options.get("timeout")) * 1000);
        Config config = new Config();
        config.useSingleServer().setAddress(options.get("urls"))
            .setConnectionMinimumIdleSize(1).setConnectionPoolSize(4)
            .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(2)
            .setTimeout(timeout).setConnectTimeout(timeout).setSubscriptionTimeout(timeout)
            .setRetryAttempts(0).setReconnectionDelay(new ConstantDelay(Duration.ofMillis(50)));
        config.setThreads(2).setNettyThreads(2).setLockWatchdogTimeout(WATCHDOG_MS);
        return Redisson.create(config);
    }

    /** The server may not be there yet. */
    private static RedissonClient connectAtLast(double stop) {
        while (now() < stop) {
            try {
                return connect();
            } catch (RedisException e) {
                sleep(20);
            }
        }
        return null;
    }

    /** One hold of a key, from before its acquire to its release, by a thread that has nothing else. */
    private static final class Hold implements Runnable {
        private final String key;
        private final Random random;
        private final Jedis store;
        private final RFencedLock lock;
        private String owner;
        private long token;

        Hold(String key, Random random, Jedis store) {
            this.key = key;
            this.random = random;
            this.store = store;
            this.lock = client.getFencedLock(key);
        }

        private int call(String what, int count, String more) {
            int id = nextId();
            write("call id=%d at=%.6f by=%s count=%d key=%s owner=%s what=%s%s", id, now(), options.get("name"), count, key,
                owner, what, more);
            return id;
        }

        private boolean acquire() {
            int wait = WAITS[random.nextInt(WAITS.length)];
            int lease = random.nextBoolean() ? LEASES[random.nextInt(LEASES.length)] : -1;
            int id = call("acquire", 0, String.format(Locale.ROOT, " wait=%.3f lease=%.3f", wait / 1e3,
                (lease < 0 ? WATCHDOG_MS : lease) / 1e3));
            Long drawn = null;
            String result = "busy";
            try {
                drawn = lock.tryLockAndGetToken(wait, lease, TimeUnit.MILLISECONDS);
            } catch (RedisException e) {
                result = "unreachable";
            }
            if (drawn == null) {
                write("done id=%d at=%.6f result=%s", id, now(), result);
                return false;
            }
            token = drawn;
            write("done id=%d at=%.6f holds=1 result=ok token=%d", id, now(), token);
            return true;
        }

        private boolean claim() {
            double from = now();
            Long left;
            try {
                left = client.getScript(StringCodec.INSTANCE).eval(RScript.Mode.READ_WRITE, LEFT, RScript.ReturnType.LONG,
                    Collections.singletonList(key), client.getId() + ":" + Thread.currentThread().getId());
            } catch (RedisException e) {
                return true;
            }
            if (left < 0) return false;
            write("seen id=%d from=%.6f at=%.6f by=%s holds=1 key=%s owner=%s token=%d valid=%.6f what=claim", nextId(), from,
                now(), options.get("name"), key, owner, token, from + left / 1e3 - MARGIN);
            return true;
        }

        private void writeToStore() {
            double from = now();
            Object accepted = store.eval(STORE, List.of(key), Arrays.asList(String.valueOf(token), owner));
            write("seen id=%d from=%.6f at=%.6f accepted=%s by=%s key=%s owner=%s token=%d what=write", nextId(), from, now(),
                accepted, options.get("name"), key, owner, token);
        }

        private void release() {
            int id = call("release", 1, "");
            String result = "true";
            try {
                lock.unlock();
            } catch (IllegalMonitorStateException e) {
                result = "lost";
            } catch (RedisException e) {
                result = "unreachable";
            }
            write("done id=%d at=%.6f result=%s", id, now(), result);
        }

        @Override
        public void run() {
            owner = options.get("name") + "." + Thread.currentThread().getId();
            if (!acquire()) return;
            double until = now() + KEPT[random.nextInt(KEPT.length)] / 1e3;
            boolean held = claim();
            while (held && now() < until) {
                writeToStore();
                held = claim();
                sleep(2 + random.nextInt(10));
            }
            release();
        }
    }

    private static void takeTurns(Random random, double stop) {
        String[] keys = options.get("keys").split(",");
        Jedis store = new Jedis("127.0.0.1", Integer.parseInt(options.get("store")));
        while (now() < stop) {
            Thread hold = new Thread(new Hold(keys[random.nextInt(keys.length)], random, store));
            hold.start();
            try {
                hold.join();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            sleep(1 + random.nextInt(10));
        }
    }

    public static void main(String[] args) throws Exception {
        for (String arg : args) options.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        Thread.setDefaultUncaughtExceptionHandler((thread, e) -> {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        history = new FileWriter(options.get("file"), true);
        double stop = Double.parseDouble(options.get("stop"));
        client = connectAtLast(stop);
        Thread[] all = new Thread[client == null ? 0 : TURNS_AT_A_TIME];
        for (int i = 0; i < all.length; i++) {
            Random random = new Random(Long.parseLong(options.get("seed")) * 10 + i);
            all[i] = new Thread(() -> takeTurns(random, stop));
            all[i].start();
        }
        for (Thread each : all) each.join();
        write("seen id=%d from=%.6f at=%.6f by=%s what=end", nextId(), now(), now(), options.get("name"));
        Runtime.getRuntime().halt(0); // connections end with the process
    }
}
