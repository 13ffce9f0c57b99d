// One Redisson process of a crowd: PORT STORE_PORT KEY NAME [option=value ...], as spec/support/crowd_worker.lua.
//
// turns, seconds, endless, wait, inside, outside as there; fenced=1: an RFencedLock; fair=1: an RFairLock; spin=1: a SpinLock;
// multi=1: a MultiLock of the keys, which commas separate;
// holds: entries in each turn; cluster=1: the port is that of a node of a cluster; sharded=0:
// shardedSubscriptionMode OFF; force=1: only frees the lock by force, and says when it has.

import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RList;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

public class Contender {
    private static RList<String> history;
    private static RBucket<String> counter;
    private static String name;

    private static Long enter(RLock lock) throws InterruptedException {
        if (Worker.option("fenced", 0) == 1) return ((RFencedLock) lock).lockAndGetToken();
        return lock.tryLock(Worker.ms("wait", 30), TimeUnit.MILLISECONDS) ? 0L : null;
    }

    private static void use(long token) throws InterruptedException {
        history.add("in " + name + " " + token);
        String value = counter.get();
        Worker.sleep(Worker.option("inside", 0));
        counter.set(String.valueOf(value == null ? 1 : Long.parseLong(value) + 1));
        history.add("out " + name);
    }

    private static boolean turn(RLock lock) throws InterruptedException {
        Long token = null;
        int holds = Worker.count("holds", 1);
        for (int i = 0; i < holds; i++) {
            token = enter(lock);
            if (token == null) {
                System.out.println("failed busy");
                return false;
            }
        }
        System.out.println("in");
        use(token);
        for (int i = 0; i < holds; i++) lock.unlock();
        return true;
    }

    private static RLock multiLock(RedissonClient client, String[] keys) {
        return client.getMultiLock(Arrays.stream(keys).map(client::getLock).toArray(RLock[]::new));
    }

    public static void main(String[] args) throws Exception {
        name = args[3];
        Worker.readOptions(args, 4);
        RedissonClient client = Worker.connect(args[0]);
        RedissonClient store = Worker.connectToServer(args[1]);
        history = store.getList("crowd:history", StringCodec.INSTANCE);
        counter = store.getBucket("crowd:counter", StringCodec.INSTANCE);
        counter.get();
        RLock lock = Worker.option("multi", 0) == 1 ? multiLock(client, args[2].split(","))
            : Worker.option("fenced", 0) == 1 ? client.getFencedLock(args[2])
            : Worker.option("fair", 0) == 1 ? client.getFairLock(args[2])
            : Worker.option("spin", 0) == 1 ? client.getSpinLock(args[2]) : client.getLock(args[2]);
        if (Worker.option("multi", 0) == 0) lock.isLocked();
        System.out.println("ready");
        RBucket<String> start = store.getBucket("crowd:start", StringCodec.INSTANCE);
        while (Worker.option("together", 0) == 1 && start.get() == null) Worker.sleep(0.005);
        if (Worker.option("force", 0) == 1) {
            while (start.get() == null) Worker.sleep(0.002);
            System.out.println("forced " + lock.forceUnlock());
        }
        RBucket<String> calledOff = store.getBucket("crowd:stop", StringCodec.INSTANCE);
        boolean endless = Worker.option("endless", 0) == 1;
        long stop = Worker.end(1e9), taken = 0;
        long turns = endless || Worker.has("seconds") ? Long.MAX_VALUE
            : (long) Worker.option("turns", Worker.option("force", 0) == 1 ? 0 : 1);
        for (long i = 0; i < turns && System.nanoTime() < stop; i++) {
            if (endless && calledOff.get() != null) break;
            if (turn(lock)) taken++;
            Worker.sleep(Worker.option("outside", 0));
        }
        client.shutdown();
        store.shutdown();
        System.out.println("done " + taken);
    }
}
