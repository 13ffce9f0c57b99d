// One Redisson process that takes permits: PORT KEY NAME [option=value ...]
//
// permits: set first if there are none; count: taken at once; seconds or turns; wait, lease, inside, outside in seconds;
// cluster=1: the port is that of a node of a cluster; after_start=1: waits for the key test:start; hold=1: takes once and
// keeps until it is killed. While it has permits they are counted in test:out, and the most at once of each turn is put into
// the list test:log.

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RList;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

public class Permits {
    public static void main(String[] args) throws Exception {
        Worker.readOptions(args, 3);
        RedissonClient client = Worker.connect(args[0]);
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(args[1]);
        RAtomicLong out = client.getAtomicLong("test:out");
        RList<String> log = client.getList("test:log", StringCodec.INSTANCE);
        if (Worker.option("permits", 0) > 0) semaphore.trySetPermits(Worker.count("permits", 0));
        semaphore.availablePermits();
        System.out.println("ready");
        if (Worker.option("after_start", 0) == 1) Worker.awaitKey(client, "test:start");
        int count = Worker.count("count", 1);
        long stop = Worker.end(1e9), taken = 0;
        long turns = Worker.has("seconds") ? Long.MAX_VALUE : (long) Worker.option("turns", 1);
        for (long i = 0; i < turns && System.nanoTime() < stop; i++) {
            List<String> ids = semaphore.tryAcquire(count, Worker.ms("wait", 10), Worker.ms("lease", 30), TimeUnit.MILLISECONDS);
            if (ids.isEmpty()) {
                System.out.println("failed busy");
                continue;
            }
            System.out.println("in");
            log.add(args[2] + " " + out.addAndGet(count));
            taken++;
            if (Worker.option("hold", 0) == 1) Worker.sleep(3600);
            Worker.sleep(Worker.option("inside", 0));
            out.addAndGet(-count);
            semaphore.release(ids);
            Worker.sleep(Worker.option("outside", 0));
        }
        client.shutdown();
        System.out.println("done " + taken);
    }
}
