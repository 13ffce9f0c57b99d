// One Redisson process at a plain semaphore: PORT KEY WHAT [option=value ...]
//
// WHAT: set, acquire, release, add, drain, available, delete, or work. count: of permits; wait: in seconds, none: without
// end; cluster=1: the port is that of a node of a cluster. work: takes and gives back for `seconds`, holds for `inside`,
// and counts in test:out, from test:start on. It prints "ready" before and "done <result>" behind it.

import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RList;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

public class Semaphores {
    private static long work(RedissonClient client, RSemaphore semaphore, int count) throws InterruptedException {
        RAtomicLong out = client.getAtomicLong("test:out");
        RList<String> log = client.getList("test:log", StringCodec.INSTANCE);
        Worker.awaitKey(client, "test:start");
        long stop = Worker.end(1), taken = 0;
        while (System.nanoTime() < stop) {
            if (!semaphore.tryAcquire(count, 10, TimeUnit.SECONDS)) continue;
            log.add("java " + out.addAndGet(count));
            Worker.sleep(Worker.option("inside", 0));
            out.addAndGet(-count);
            semaphore.release(count);
            Worker.sleep(Worker.option("outside", 0));
            taken++;
        }
        return taken;
    }

    private static Object carryOut(RedissonClient client, RSemaphore semaphore, String what) throws InterruptedException {
        int count = Worker.count("count", 1);
        switch (what) {
            case "set": return semaphore.trySetPermits(count);
            case "acquire":
                if (Worker.has("wait")) return semaphore.tryAcquire(count, Worker.ms("wait", 0), TimeUnit.MILLISECONDS);
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
        Worker.readOptions(args, 3);
        RedissonClient client = Worker.connect(args[0]);
        RSemaphore semaphore = client.getSemaphore(args[1]);
        semaphore.availablePermits();
        System.out.println("ready");
        System.out.println("done " + carryOut(client, semaphore, args[2]));
        client.shutdown();
    }
}
