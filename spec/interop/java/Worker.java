// What the Redisson processes of this folder share: their options, and how they connect.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

final class Worker {
    private static final Map<String, Double> options = new HashMap<>();

    private Worker() {
    }

    /** Reads the arguments from the one at `first` on: each is option=number. */
    static void readOptions(String[] args, int first) {
        for (int i = first; i < args.length; i++) {
            String[] pair = args[i].split("=");
            options.put(pair[0], Double.parseDouble(pair[1]));
        }
    }

    static boolean has(String option) {
        return options.containsKey(option);
    }

    static double option(String option, double otherwise) {
        return options.getOrDefault(option, otherwise);
    }

    static int count(String option, int otherwise) {
        return (int) option(option, otherwise);
    }

    /** An option in seconds. → milliseconds */
    static long ms(String option, double otherwise) {
        return (long) (option(option, otherwise) * 1000);
    }

    static void sleep(double seconds) throws InterruptedException {
        if (seconds > 0) TimeUnit.NANOSECONDS.sleep((long) (seconds * 1e9));
    }

    /** With cluster=1 the port is that of a node of a cluster; sharded=0: shardedSubscriptionMode OFF. */
    static RedissonClient connect(String port) {
        if (option("cluster", 0) != 1) return connectToServer(port);
        Config config = new Config();
        config.useClusterServers().addNodeAddress("redis://127.0.0.1:" + port)
            .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(4)
            .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4)
            .setShardedSubscriptionMode(option("sharded", 1) == 1 ? ShardedSubscriptionMode.AUTO : ShardedSubscriptionMode.OFF);
        return create(config);
    }

    static RedissonClient connectToServer(String port) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionMinimumIdleSize(1).setConnectionPoolSize(4);
        return create(config);
    }

    private static RedissonClient create(Config config) {
        config.setThreads(2).setNettyThreads(2);
        return Redisson.create(config);
    }

    static void awaitKey(RedissonClient client, String key) throws InterruptedException {
        while (!client.getBucket(key, StringCodec.INSTANCE).isExists()) sleep(0.005);
    }

    /** When a loop that runs for the option `seconds` ends, by System.nanoTime(). */
    static long end(double otherwise) {
        return System.nanoTime() + (long) (option("seconds", otherwise) * 1e9);
    }
}
