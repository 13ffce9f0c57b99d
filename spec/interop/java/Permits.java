// One Redisson process that takes permits: PORT KEY NAME [option=value ...]
//
// permits: set first if there are none; count: taken at once; seconds or turns; wait, lease, inside, outside in seconds;
// cluster=1: the port is that of a node of a cluster; after_start=1: waits for the key test:start; hold=1: takes once and
// keeps until it is killed. While it has permits they are counted in test:out, and the most at once of each turn is put into
// the list test:log.

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RList;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class Permits {
    private static final Map<String, Double> options = new HashMap<>();

    private static double option(String option, double otherwise) {
        return options.getOrDefault(option, otherwise);
    }

    private static long ms(String option, double otherwise) {
        return (long) (option(option, otherwise) * 1000);
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

    public static void main(String[] args) throws Exception {
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=");
            options.put(pair[0], Double.parseDouble(pair[1]));
        }
        RedissonClient client = connect(args[0]);
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(args[1]);
        RAtomicLong out = client.getAtomicLong("test:out");
        RList<String> log = client.getList("test:log", StringCodec.INSTANCE);
        if (option("permits", 0) > 0) semaphore.trySetPermits((int) option("permits", 0));
        semaphore.availablePermits();
        System.out.println("ready");
        while (option("after_start", 0) == 1 && !client.getBucket("test:start", StringCodec.INSTANCE).isExists()) sleep(0.005);
        int count = (int) option("count", 1);
        long stop = System.nanoTime() + (long) (option("seconds", 1e9) * 1e9), taken = 0;
        long turns = options.containsKey("seconds") ? Long.MAX_VALUE : (long) option("turns", 1);
        for (long i = 0; i < turns && System.nanoTime() < stop; i++) {
            List<String> ids = semaphore.tryAcquire(count, ms("wait", 10), ms("lease", 30), TimeUnit.MILLISECONDS);
            if (ids.isEmpty()) {
                System.out.println("failed busy");
                continue;
            }
            System.out.println("in");
            log.add(args[2] + " " + out.addAndGet(count));
            taken++;
            if (option("hold", 0) == 1) sleep(3600);
            sleep(option("inside", 0));
            out.addAndGet(-count);
            semaphore.release(ids);
            sleep(option("outside", 0));
        }
        client.shutdown();
        System.out.println("done " + taken);
    }
}
