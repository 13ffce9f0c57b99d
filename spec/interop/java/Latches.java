// One Redisson process at a latch: PORT KEY WHAT [option=value ...]
//
// WHAT: set, down, wait, delete or get. count: to set, or how often to count down; wait: in seconds, none: without end;
// threads: that wait, 1; cluster=1: the port is that of a node of a cluster. It prints "ready" before and
// "done <result>" behind it, for each thread that waited.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Latches {
    private static final Map<String, Double> options = new HashMap<>();

    private static RedissonClient connect(String port) {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2);
        String address = "redis://127.0.0.1:" + port;
        if (options.getOrDefault("cluster", 0.0) == 1) {
            config.useClusterServers().addNodeAddress(address).setMasterConnectionMinimumIdleSize(1)
                .setMasterConnectionPoolSize(4).setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4);
        } else {
            config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(1).setConnectionPoolSize(4);
        }
        return Redisson.create(config);
    }

    private static Object carryOut(RCountDownLatch latch, String what) throws InterruptedException {
        int count = options.getOrDefault("count", 1.0).intValue();
        switch (what) {
            case "set": return latch.trySetCount(count);
            case "down":
                for (int i = 0; i < count; i++) latch.countDown();
                return latch.getCount();
            case "wait":
                if (options.containsKey("wait")) return latch.await((long) (options.get("wait") * 1000), TimeUnit.MILLISECONDS);
                latch.await();
                return true;
            case "delete": return latch.delete();
            default: return latch.getCount();
        }
    }

    private static void tell(RCountDownLatch latch, String what) {
        try {
            System.out.println("done " + carryOut(latch, what));
        } catch (InterruptedException e) {
            System.out.println("done interrupted");
        }
    }

    public static void main(String[] args) throws Exception {
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=");
            options.put(pair[0], Double.parseDouble(pair[1]));
        }
        RedissonClient client = connect(args[0]);
        RCountDownLatch latch = client.getCountDownLatch(args[1]);
        latch.getCount();
        System.out.println("ready");
        Thread[] threads = new Thread[options.getOrDefault("threads", 1.0).intValue()];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> tell(latch, args[2]));
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        client.shutdown();
    }
}
