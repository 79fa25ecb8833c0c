import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Allocates from several threads: short-lived objects, a live set, large arrays, direct buffers. */
public class Allocate {
    static long work(int seed) {
        Map<Integer, List<byte[]>> live = new HashMap<>();
        long sum = 0;
        for (int i = 0; i < 60_000; i++) {
            byte[] block = new byte[200 + (i * 31 + seed) % 3000];
            for (byte b : block) sum += b;
            block[i % block.length] = (byte) i;
            live.computeIfAbsent(i % 500, k -> new ArrayList<>()).add(block);
            if (i % 4 == 0) live.get(i % 500).clear();
            if (i % 10_000 == 0) {
                int[] large = new int[2_000_000];
                for (int v : large) sum += v;
                large[i % 1000] = i;
                sum += large[i % 1000];
            }
        }
        for (List<byte[]> blocks : live.values()) for (byte[] block : blocks) for (byte b : block) sum = sum * 31 + b;
        return sum;
    }

    public static void main(String[] args) throws Exception {
        long[] sums = new long[3];
        Thread[] threads = new Thread[sums.length];
        for (int t = 0; t < sums.length; t++) {
            int seed = t;
            threads[t] = new Thread(() -> sums[seed] = work(seed));
            threads[t].setUncaughtExceptionHandler((thread, error) -> System.exit(3));
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        for (int i = 0; i < 4; i++) {
            ByteBuffer direct = ByteBuffer.allocateDirect(16 << 20);
            for (int at = 0; at < direct.capacity(); at += 512) if (direct.get(at) != 0) throw new Error("not zero");
            direct.putInt(4096, i);
            sums[0] += direct.getInt(4096);
        }
        System.out.println(sums[0] + " " + sums[1] + " " + sums[2]);
    }
}
