// One Redisson process that reads or writes under an RReadWriteLock: PORT STORE_PORT KEY NAME [option=value ...], as
// spec/support/read_write_worker.lua.
//
// turns, seconds, wait, inside, outside as there; role: 0 reads, 1 writes, 2 writes and goes on as a reader; holds: a reader's
// entries in each turn, with `inside` between two; lease: seconds, without the watchdog; cluster=1: the port is that
// of a node of a cluster.

import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RList;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

public class ReadWriter {
    private static RList<String> history;
    private static RBucket<String> x, y;
    private static RAtomicLong torn;
    private static String name;
    private static RReadWriteLock lock;

    private static boolean enter(RLock half) throws InterruptedException {
        long wait = Worker.ms("wait", 30), lease = Worker.ms("lease", -0.001);
        if (half.tryLock(wait, lease, TimeUnit.MILLISECONDS)) return true;
        System.out.println("failed busy");
        return false;
    }

    private static void read(int holds) throws InterruptedException {
        history.add("r+ " + name);
        String before = x.get();
        Worker.sleep(Worker.option("inside", 0));
        for (int i = 1; i < holds; i++) {
            if (!enter(lock.readLock())) throw new IllegalStateException("a reader could not enter again");
            Worker.sleep(Worker.option("inside", 0));
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
        Worker.sleep(Worker.option("inside", 0));
        y.set(value);
        history.add("w- " + name);
    }

    private static boolean turn() throws InterruptedException {
        int role = Worker.count("role", 0);
        if (!enter(role == 0 ? lock.readLock() : lock.writeLock())) return false;
        System.out.println("in");
        if (role == 0) read(Worker.count("holds", 1));
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
        Worker.readOptions(args, 4);
        RedissonClient client = Worker.connect(args[0]), store = Worker.connectToServer(args[1]);
        history = store.getList("crowd:history", StringCodec.INSTANCE);
        x = store.getBucket("pair:x", StringCodec.INSTANCE);
        y = store.getBucket("pair:y", StringCodec.INSTANCE);
        torn = store.getAtomicLong("pair:torn");
        x.get();
        lock = client.getReadWriteLock(args[2]);
        lock.readLock().isLocked();
        System.out.println("ready");
        RBucket<String> start = store.getBucket("crowd:start", StringCodec.INSTANCE);
        while (Worker.option("together", 0) == 1 && start.get() == null) Worker.sleep(0.005);
        long stop = Worker.end(1e9), taken = 0;
        long turns = Worker.has("seconds") ? Long.MAX_VALUE : (long) Worker.option("turns", 1);
        for (long i = 0; i < turns && System.nanoTime() < stop; i++) {
            if (turn()) taken++;
            Worker.sleep(Worker.option("outside", 0));
        }
        client.shutdown();
        store.shutdown();
        System.out.println("done " + taken);
    }
}
