// One Redisson process that reads or writes under an RReadWriteLock: PORT STORE_PORT KEY NAME [option=value ...], as
// spec/support/read_write_worker.lua.
//
// turns, seconds, wait, inside, outside as there; role: 0 reads, 1 writes, 2 writes and goes on as a reader; holds: a reader's
// entries in each turn, with `inside` between two; lease: seconds, without the watchdog; cluster=1: the port is that
// of a node of a cluster.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RList;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class ReadWriter {
    private static final Map<String, Double> options = new HashMap<>();
    private static RList<String> history;
    private static RBucket<String> x, y;
    private static RAtomicLong torn;
    private static String name;
    private static RReadWriteLock lock;

    private static double option(String option, double otherwise) {
        return options.getOrDefault(option, otherwise);
    }

    private static void sleep(double seconds) throws InterruptedException {
        if (seconds > 0) TimeUnit.NANOSECONDS.sleep((long) (seconds * 1e9));
    }

    private static RedissonClient connect(String port, boolean cluster) {
        Config config = new Config();
        if (cluster)
            config.useClusterServers().addNodeAddress("redis://127.0.0.1:" + port)
                .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(4)
                .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4);
        else
            config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4);
        config.setThreads(2).setNettyThreads(2);
        return Redisson.create(config);
    }

    private static boolean enter(RLock half) throws InterruptedException {
        long wait = (long) (option("wait", 30) * 1000), lease = (long) (option("lease", -0.001) * 1000);
        if (half.tryLock(wait, lease, TimeUnit.MILLISECONDS)) return true;
        System.out.println("failed busy");
        return false;
    }

    private static void read(int holds) throws InterruptedException {
        history.add("r+ " + name);
        String before = x.get();
        sleep(option("inside", 0));
        for (int i = 1; i < holds; i++) {
            if (!enter(lock.readLock())) throw new IllegalStateException("a reader could not enter again");
            sleep(option("inside", 0));
        }
        String after = y.get();
        if (before == null ? after != null : !before.equals(after)) torn.incrementAndGet();
        history.add("r- " + name);
        for (int i = 1; i < holds; i++) lock.readLock().unlock();
    }

    private static void write() throws InterruptedException {
        String value = name + System.nanoTime();
        history.add("w+ " + name);
        x.set(value);
        sleep(option("inside", 0));
        y.set(value);
        history.add("w- " + name);
    }

    private static boolean turn() throws InterruptedException {
        int role = (int) option("role", 0);
        if (!enter(role == 0 ? lock.readLock() : lock.writeLock())) return false;
        System.out.println("in");
        if (role == 0) read((int) option("holds", 1));
        else write();
        if (role == 2) {
            lock.readLock().lock();
            lock.writeLock().unlock();
            read(1);
        }
        (role == 1 ? lock.writeLock() : lock.readLock()).unlock();
        return true;
    }

    public static void main(String[] args) throws Exception {
        name = args[3];
        for (int i = 4; i < args.length; i++) {
            String[] pair = args[i].split("=");
            options.put(pair[0], Double.parseDouble(pair[1]));
        }
        RedissonClient client = connect(args[0], option("cluster", 0) == 1), store = connect(args[1], false);
        history = store.getList("crowd:history", StringCodec.INSTANCE);
        x = store.getBucket("pair:x", StringCodec.INSTANCE);
        y = store.getBucket("pair:y", StringCodec.INSTANCE);
        torn = store.getAtomicLong("pair:torn");
        x.get();
        lock = client.getReadWriteLock(args[2]);
        lock.readLock().isLocked();
        System.out.println("ready");
        RBucket<String> start = store.getBucket("crowd:start", StringCodec.INSTANCE);
        while (option("together", 0) == 1 && start.get() == null) sleep(0.005);
        long stop = System.nanoTime() + (long) (option("seconds", 1e9) * 1e9), taken = 0;
        long turns = options.containsKey("seconds") ? Long.MAX_VALUE : (long) option("turns", 1);
        for (long i = 0; i < turns && System.nanoTime() < stop; i++) {
            if (turn()) taken++;
            sleep(option("outside", 0));
        }
        client.shutdown();
        store.shutdown();
        System.out.println("done " + taken);
    }
}
