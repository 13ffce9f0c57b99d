// Where Jedis keeps each key of a file: FILE [NAME]:WEIGHT ..., the file with one key in hex a line. Prints the place of
// the shard in the list, a line for each key. Sharded is what ShardedJedis inherits; the shards here need no server.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import redis.clients.jedis.util.ShardInfo;
import redis.clients.jedis.util.Sharded;

public class Shards {
    private static final class Shard extends ShardInfo<Object> {
        private final int place;
        private final String name;

        Shard(int place, String name, int weight) {
            super(weight);
            this.place = place;
            this.name = name;
        }

        @Override
        protected Object createResource() {
            return this;
        }

        @Override
        public String getName() {
            return name;
        }
    }

    public static void main(String[] args) throws Exception {
        List<Shard> shards = new ArrayList<>();
        for (int i = 1; i < args.length; i++) {
            int colon = args[i].indexOf(':');
            String name = colon == 0 ? null : args[i].substring(0, colon);
            shards.add(new Shard(i - 1, name, Integer.parseInt(args[i].substring(colon + 1))));
        }
        Sharded<Object, Shard> sharded = new Sharded<>(shards);
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0])))
            out.append(sharded.getShardInfo(HexFormat.of().parseHex(line)).place).append('\n');
        System.out.print(out);
    }
}
