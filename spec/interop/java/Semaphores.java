// One Redisson process at a plain semaphore: PORT KEY WHAT [option=value ...]
//
// WHAT: set, acquire, release, add, drain, available, delete, or work. count: of permits; wait: in seconds, none: without
// end; cluster=1: the port is that of a node of a cluster. work: takes and gives back for `seconds`, holds for `inside`,
// and counts in test:out, from test:start on. It prints "ready" before and "done <result>" behind it.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RList;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class Semaphores {
    private static final Map<String, Double> options = new HashMap<>();

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

    private static long work(RedissonClient client, RSemaphore semaphore, int count) throws InterruptedException {
        RAtomicLong out = client.getAtomicLong("test:out");
        RList<String> log = client.getList("test:log", StringCodec.INSTANCE);
        while (!client.getBucket("test:start", StringCodec.INSTANCE).isExists()) sleep(0.005);
        long stop = System.nanoTime() + (long) (option("seconds", 1) * 1e9), taken = 0;
        while (System.nanoTime() < stop) {
            if (!semaphore.tryAcquire(count, 10, TimeUnit.SECONDS)) continue;
            log.add("java " + out.addAndGet(count));
            sleep(option("inside", 0));
            out.addAndGet(-count);
            semaphore.release(count);
            sleep(option("outside", 0));
            taken++;
        }
        return taken;
    }

    private static Object carryOut(RedissonClient client, RSemaphore semaphore, String what) throws InterruptedException {
        int count = (int) option("count", 1);
        switch (what) {
            case "set": return semaphore.trySetPermits(count);
            case "acquire":
                if (options.containsKey("wait")) return semaphore.tryAcquire(count, (long) (option("wait", 0) * 1000), TimeUnit.MILLISECONDS);
                semaphore.acquire(count);
                return true;
            case "release": semaphore.release(count); return true;
            case "add": semaphore.addPermits(count); return true;
            case "drain": return semaphore.drainPermits();
            case "delete": return semaphore.delete();
            case "work": return work(client, semaphore, count);
            default: return semaphore.availablePermits();
        }
    }

    public static void main(String[] args) throws Exception {
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=");
            options.put(pair[0], Double.parseDouble(pair[1]));
        }
        RedissonClient client = connect(args[0]);
        RSemaphore semaphore = client.getSemaphore(args[1]);
        semaphore.availablePermits();
        System.out.println("ready");
        System.out.println("done " + carryOut(client, semaphore, args[2]));
        client.shutdown();
    }
}
