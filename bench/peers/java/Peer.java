import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson as one of bench/peers: an owner is a thread; all threads of a process have one client, as its users do. */
public final class Peer {
    private static double now() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9;
    }

    private static void sleep(double seconds) throws InterruptedException {
        if (seconds > 0) TimeUnit.NANOSECONDS.sleep((long) (seconds * 1e9));
    }

    private static String own(RLock lock, double start, double stop, double section) throws Exception {
        TreeMap<Integer, Integer> waits = new TreeMap<>();
        int cycles = 0;
        sleep(start - now());
        while (now() < stop) {
            double begun = now();
            lock.lock();
            double microseconds = Math.max((now() - begun) * 1e6, 1);
            waits.merge((int) (Math.log(microseconds) / Math.log(2) * 4), 1, Integer::sum);
            sleep(section);
            if (now() < stop) cycles++;
            lock.unlock();
        }
        StringBuilder text = new StringBuilder("owner " + cycles + "\nwaits");
        waits.forEach((bucket, count) -> text.append(' ').append(bucket).append(':').append(count));
        return text.toString();
    }

    private static void crowd(RedissonClient client, String key, int owners, double start, double stop, double section)
            throws Exception {
        RLock lock = client.getLock(key), warm = client.getLock(key + ":warm:" + Math.random());
        while (now() < start - 0.3) { /* compiled code, as in a server that has run for a while */
            warm.lock();
            warm.unlock();
        }
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < owners; i++) {
            Thread thread = new Thread(() -> {
                try {
                    String said = own(lock, start, stop, section);
                    synchronized (Peer.class) {
                        System.out.println(said);
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
    }

    private static void held(RedissonClient client, String key, int count, double seconds) throws Exception {
        double begun = now();
        List<RLock> locks = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            RLock lock = client.getLock(key + i);
            lock.lock();
            locks.add(lock);
        }
        System.out.println("taken " + (now() - begun) + " renewed");
        System.out.flush();
        sleep(seconds);
        int lost = 0;
        for (RLock lock : locks) lost += lock.isHeldByCurrentThread() ? 0 : 1;
        System.out.println("lost " + lost);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        if (args[0].equals("held")) config.setLockWatchdogTimeout((long) (Double.parseDouble(args[5]) * 1000));
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[1]);
        RedissonClient client = Redisson.create(config);
        if (args[0].equals("crowd")) {
            crowd(client, args[2], Integer.parseInt(args[3]), Double.parseDouble(args[4]), Double.parseDouble(args[5]),
                    Double.parseDouble(args[6]));
        } else {
            held(client, args[2], Integer.parseInt(args[3]), Double.parseDouble(args[4]));
        }
        System.exit(0);
    }
}
