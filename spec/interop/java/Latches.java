// One Redisson process at a latch: PORT KEY WHAT [option=value ...]
//
// WHAT: set, down, wait, delete or get. count: to set, or how often to count down; wait: in seconds, none: without end;
// threads: that wait, 1; cluster=1: the port is that of a node of a cluster. It prints "ready" before and
// "done <result>" behind it, for each thread that waited.

import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

public class Latches {
    private static Object carryOut(RCountDownLatch latch, String what) throws InterruptedException {
        int count = Worker.count("count", 1);
        switch (what) {
            case "set": return latch.trySetCount(count);
            case "down":
                for (int i = 0; i < count; i++) latch.countDown();
                return latch.getCount();
            case "wait":
                if (Worker.has("wait")) return latch.await(Worker.ms("wait", 0), TimeUnit.MILLISECONDS);
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
        Worker.readOptions(args, 3);
        RedissonClient client = Worker.connect(args[0]);
        RCountDownLatch latch = client.getCountDownLatch(args[1]);
        latch.getCount();
        System.out.println("ready");
        Thread[] threads = new Thread[Worker.count("threads", 1)];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> tell(latch, args[2]));
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        client.shutdown();
    }
}
