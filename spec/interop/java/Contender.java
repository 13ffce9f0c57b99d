// One Redisson process of a crowd: PORT STORE_PORT KEY NAME [option=value ...], as spec/support/crowd_worker.lua.
//
// turns, seconds, endless, wait, inside, outside as there; fenced=1: an RFencedLock; fair=1: an RFairLock; spin=1: a SpinLock;
// holds: entries in each turn; cluster=1: the port is that of a node of a cluster; sharded=0:
// shardedSubscriptionMode OFF; force=1: only frees the lock by force, and says when it has.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RList;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

public class Contender {
    private static final Map<String, Double> options = new HashMap<>();
    private static RList<String> history;
    private static RBucket<String> counter;
    private static String name;

    private static double option(String option, double otherwise) {
        return options.getOrDefault(option, otherwise);
    }

    private static void sleep(double seconds) throws InterruptedException {
        if (seconds > 0) TimeUnit.NANOSECONDS.sleep((long) (seconds * 1e9));
    }

    private static RedissonClient connect(String port) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionMinimumIdleSize(1).setConnectionPoolSize(4);
        config.setThreads(2).setNettyThreads(2);
        return Redisson.create(config);
    }

    private static RedissonClient connectToCluster(String port) {
        Config config = new Config();
        config.useClusterServers().addNodeAddress("redis://127.0.0.1:" + port)
            .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(4)
            .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4)
            .setShardedSubscriptionMode(option("sharded", 1) == 1 ? ShardedSubscriptionMode.AUTO : ShardedSubscriptionMode.OFF);
        config.setThreads(2).setNettyThreads(2);
        return Redisson.create(config);
    }

    private static Long enter(RLock lock) throws InterruptedException {
        if (option("fenced", 0) == 1) return ((RFencedLock) lock).lockAndGetToken();
        return lock.tryLock((long) (option("wait", 30) * 1000), TimeUnit.MILLISECONDS) ? 0L : null;
    }

    private static void use(long token) throws InterruptedException {
        history.add("in " + name + " " + token);
        String value = counter.get();
        sleep(option("inside", 0));
        counter.set(String.valueOf(value == null ? 1 : Long.parseLong(value) + 1));
        history.add("out " + name);
    }

    private static boolean turn(RLock lock) throws InterruptedException {
        Long token = null;
        int holds = (int) option("holds", 1);
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

    public static void main(String[] args) throws Exception {
        name = args[3];
        for (int i = 4; i < args.length; i++) {
            String[] pair = args[i].split("=");
            options.put(pair[0], Double.parseDouble(pair[1]));
        }
        RedissonClient client = option("cluster", 0) == 1 ? connectToCluster(args[0]) : connect(args[0]);
        RedissonClient store = connect(args[1]);
        history = store.getList("crowd:history", StringCodec.INSTANCE);
        counter = store.getBucket("crowd:counter", StringCodec.INSTANCE);
        counter.get();
        RLock lock = option("fenced", 0) == 1 ? client.getFencedLock(args[2])
            : option("fair", 0) == 1 ? client.getFairLock(args[2])
            : option("spin", 0) == 1 ? client.getSpinLock(args[2]) : client.getLock(args[2]);
        lock.isLocked();
        System.out.println("ready");
        RBucket<String> start = store.getBucket("crowd:start", StringCodec.INSTANCE);
        while (option("together", 0) == 1 && start.get() == null) sleep(0.005);
        if (option("force", 0) == 1) {
            while (start.get() == null) sleep(0.002);
            System.out.println("forced " + lock.forceUnlock());
        }
        RBucket<String> calledOff = store.getBucket("crowd:stop", StringCodec.INSTANCE);
        boolean endless = option("endless", 0) == 1;
        long stop = System.nanoTime() + (long) (option("seconds", 1e9) * 1e9), taken = 0;
        long turns = endless || options.containsKey("seconds") ? Long.MAX_VALUE
            : (long) option("turns", option("force", 0) == 1 ? 0 : 1);
        for (long i = 0; i < turns && System.nanoTime() < stop; i++) {
            if (endless && calledOff.get() != null) break;
            if (turn(lock)) taken++;
            sleep(option("outside", 0));
        }
        client.shutdown();
        store.shutdown();
        System.out.println("done " + taken);
    }
}
