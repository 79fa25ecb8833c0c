import java.util.ArrayList;
import java.util.List;

/** Short-lived objects by the million, some of which live on for a while. */
public class Allocate {
    record Item(int id, Item other, long[] values) {}

    public static void main(String[] args) {
        int count = Integer.parseInt(args[0]);
        Item[] kept = new Item[1 << 16];
        List<byte[]> large = new ArrayList<>();
        long sum = 0;
        for (int i = 0; i < count; i++) {
            int place = (int) ((i * 2654435761L >>> 7) & (kept.length - 1));
            Item old = kept[place];
            sum = sum * 31 + (old == null ? i : old.id() + old.values()[0]);
            kept[place] = new Item(i, null, new long[] {i, place});
            if (i % 100_000 == 0) {
                large.add(new byte[1 << 20]);
                if (large.size() > 64) {
                    large.clear();
                }
            }
        }
        System.out.println(sum + " " + large.size());
    }
}
