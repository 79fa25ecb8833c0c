//! The rows of the tables that our own loops fill.

use crate::plan::{Against, Bound, Context, Field, Metric, Row, Section};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const NO_SCRUB: &[(&str, &str)] = &[("FAULTLESS_SCRUB", "0")];

/// All of them.
pub fn rows(context: &Context) -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(touched());
    rows.extend(untouched());
    rows.extend(of_files());
    rows.extend(blocks());
    rows.extend(searches());
    rows.extend(first_touch(context));
    rows.extend(costs());
    rows.extend(sparse(context));
    rows
}

fn touch(id: &'static str, group: &'static str, size: u64, threads: u32, title: &str, extra: &'static str) -> Row {
    Row::new(id, Section::Loops, format!("map, touch, unmap {} MiB, {title}", size / MIB))
        .group(group)
        .rounds(5, 6.0)
        .warm(GIB)
        .looping(move |c| {
            let size = if size > 4 * MIB { c.size(size) } else { size };
            format!("touch --size {size} --threads {threads} --seconds {} {extra}", c.seconds(0.2))
        })
}

fn touched() -> Vec<Row> {
    const GROUP: &str = "touch-128m";
    const PAUSED: &str = "--pause 60 --most 8";
    let large = |id, threads, title, extra| touch(id, GROUP, 128 * MIB, threads, title, extra);
    let small = |id, threads, title, extra| touch(id, "touch-1m", MIB, threads, title, extra);
    let speed = |plain, huge| [(Bound::Speed(plain), Against::PLAIN), (Bound::Speed(huge), Against::HUGE)];
    let scale = |id| [(Bound::Speed(1.8), Against::Row(id, "its own 1 thread"))];
    vec![
        large("touch-128m-1", 1, "1 thread", "").line(Metric::Cost, &speed(22.0, 4.0)),
        large("touch-128m-2", 2, "2 threads", "").line(Metric::Cost, &[]),
        large("touch-128m-1-paused", 1, "1 thread, 60 ms between rounds", PAUSED)
            .line(Metric::Cost, &speed(60.0, 12.0)),
        large("touch-128m-2-paused", 2, "2 threads, 60 ms between rounds", PAUSED).line(Metric::Cost, &[]),
        large("touch-128m-1-noscrub", 1, "1 thread, scrubber off", "")
            .field(Field::Own)
            .env(NO_SCRUB)
            .line(Metric::Cost, &[]),
        large("touch-128m-2-noscrub", 2, "2 threads, scrubber off", "")
            .field(Field::Own)
            .env(NO_SCRUB)
            .line(Metric::Cost, &scale("touch-128m-1-noscrub")),
        small("touch-1m-1", 1, "1 thread", "").line(Metric::Cost, &[]),
        small("touch-1m-2", 2, "2 threads", "").line(Metric::Cost, &[]),
        small("touch-1m-1-paused", 1, "1 thread, 60 ms between rounds", PAUSED).line(Metric::Cost, &[]),
    ]
}

fn untouched() -> Vec<Row> {
    let row = |id, threads: u32, title: &str| {
        Row::new(id, Section::Loops, format!("map, unmap 128 MiB untouched, {title}"))
            .group("untouched")
            .rounds(5, 3.0)
            .looping(move |c| {
                let (size, seconds) = (c.size(128 * MIB), c.seconds(0.2));
                format!("untouched --size {size} --threads {threads} --seconds {seconds}")
            })
    };
    vec![
        row("untouched-1", 1, "1 thread").line(Metric::Cost, &[]),
        row("untouched-2", 2, "2 threads").line(Metric::Cost, &[]),
    ]
}

/// Of the tests of will-it-scale: page_fault1 is the first of [`touched`], mmap1 of [`untouched`]. These map files,
/// which are left to the kernel.
fn of_files() -> Vec<Row> {
    let row = |id, title: &str, what: &'static str| {
        Row::new(id, Section::Quiet, format!("{title}, 128 MiB of a file"))
            .field(Field::Kernel)
            .rounds(6, 8.0)
            .looping(move |c| format!("of-file {what} --size {} --seconds {}", c.size(128 * MIB), c.seconds(0.3)))
            .line(Metric::Cost, &[(Bound::Share(1.01), Against::PLAIN)])
    };
    vec![
        row("page-fault2", "map, touch, unmap (page_fault2), private", "--touched"),
        row("page-fault3", "map, touch, unmap (page_fault3), shared", "--touched --shared"),
        row("mmap2", "map, unmap untouched (mmap2), shared", "--shared"),
    ]
}

/// ebizzy with the numbers of its authors: ten chunks of 512 KiB, two threads a CPU.
fn searches() -> Vec<Row> {
    let retaining = (Bound::Share(1.01), Against::BestRetaining);
    let row = |id, title: &str, how: &'static str, targets: &[_]| {
        Row::new(id, Section::Loops, format!("copy 512 KiB to a new block and search it, {title}"))
            .field(Field::Malloc)
            .rounds(6, 16.0)
            .warm(GIB)
            .looping(move |c| {
                let (threads, seconds) = (2 * c.cpus, c.seconds(0.4));
                format!("searches {how} --size 524288 --chunks 10 --threads {threads} --seconds {seconds}")
            })
            .line(Metric::Cost, targets)
    };
    let plain = (Bound::Speed(30.0), Against::PLAIN);
    vec![
        row("ebizzy", "2 threads a CPU (as `ebizzy`)", "", &[retaining]),
        row("ebizzy-m", "each block mapped on its own (as `ebizzy -m`)", "--mapped", &[plain, retaining]),
    ]
}

fn blocks() -> Vec<Row> {
    let within = |share| (Bound::Share(share), Against::BestRetaining);
    let large = |id, section, title: &str, what: &'static str| {
        Row::new(id, section, title)
            .field(Field::Malloc)
            .rounds(5, 12.0)
            .warm(GIB)
            .looping(move |c| format!("{what} --size {} --seconds {}", c.size(64 * MIB), c.seconds(0.3)))
    };
    vec![
        large("zeroed-64m", Section::Loops, "zeroed 64 MiB (calloc), touched, freed", "zeroed")
            .line(Metric::Cost, &[(Bound::Speed(4.0), Against::PLAIN), within(1.10)]),
        large("malloc-64m", Section::Loops, "64 MiB (malloc), written through, freed", "temporaries")
            .line(Metric::Cost, &[within(1.05)]),
        large(
            "malloc-64m-left",
            Section::Memory,
            "64 MiB temporaries: resident 1 s after the last free",
            "temporaries --resident",
        )
        .rounds(1, 8.0)
        .line(Metric::Bytes, &[(Bound::Budget, Against::PLAIN)]),
        Row::new("blocks-512k", Section::Loops, "512 KiB blocks from 8 threads a CPU, random order (`ebizzy -m`)")
            .field(Field::Malloc)
            .rounds(5, 14.0)
            .warm(GIB)
            .looping(|c| {
                let (threads, seconds) = (8 * c.cpus, c.seconds(0.4));
                format!("blocks --size 524288 --held 8 --threads {threads} --seconds {seconds}")
            })
            .line(Metric::Cost, &[(Bound::Speed(5.0), Against::PLAIN), (Bound::Speed(1.3), Against::BestKernel)]),
    ]
}

fn first_touch(context: &Context) -> Vec<Row> {
    let size = context.size(1536 * MIB).min(context.memory / 3);
    let title = format!("first touch of {}", crate::format::bytes(size as f64));
    let row = |id, how: &str, busy: usize| {
        Row::new(id, Section::Loops, format!("{title}, {how}"))
            .warm(size)
            .looping(move |_| format!("first --size {size} --busy {busy}"))
    };
    let others = context.cpus - 1;
    vec![
        row("first-touch", "a CPU idle", 0)
            .rounds(3, 12.0)
            .line(Metric::Cost, &[(Bound::Speed(15.0), Against::PLAIN), (Bound::Speed(1.6), Against::HUGE)]),
        row("first-touch-busy", "no CPU idle", others)
            .rounds(6, 24.0)
            .line(Metric::Cost, &[(Bound::Share(1.01), Against::HUGE)]),
        row("first-touch-cold", "a CPU idle, cold", 0).cold().warm(0).rounds(2, 60.0).line(Metric::Cost, &[]),
    ]
}

fn costs() -> Vec<Row> {
    let calls = |id, title: &str, group, field| Row::new(id, Section::Costs, title).group(group).field(field);
    let small = |id, size: u64, title: &str| {
        calls(id, title, "pairs", Field::Malloc)
            .rounds(10, 6.0)
            .looping(move |c| format!("pairs --size {size} --count {}", c.count(5_000_000)))
            .line(Metric::Cost, &[(Bound::Extra(3e-9), Against::PLAIN)])
    };
    let fork = |id, size: u64, title: &str| {
        calls(id, title, "forks", Field::Empty)
            .rounds(12, 8.0)
            .looping(move |c| format!("forks --size {size} --count {}", c.count(300)))
    };
    let empty = &[(Bound::Share(1.01), Against::EMPTY)];
    vec![
        small("pair-64", 64, "malloc and free of 64 bytes"),
        small("pair-1k", 1024, "malloc and free of 1 KiB"),
        fork("fork", 4096, "fork, exit and wait, small parent").line(Metric::Cost, empty),
        fork("fork-64m", 64 * MIB, "fork, exit and wait, parent with 64 MiB").line(Metric::Cost, empty),
        Row::new("exec", Section::Costs, "a short program started and waited for (`/bin/true`)")
            .field(Field::Empty)
            .rounds(20, 14.0)
            .looping(|c| format!("spawns --count {} /bin/true", c.count(200)))
            .line(Metric::Cost, empty),
    ]
}

fn sparse(context: &Context) -> Vec<Row> {
    let size = (8 * GIB).min(context.memory / 3);
    let title = format!("one byte per 2 MiB of {}: peak", crate::format::bytes(size as f64));
    vec![
        Row::new("sparse", Section::Memory, title)
            .rounds(2, 6.0)
            .looping(move |c| format!("sparse --size {} --step {}", c.size(size), 2 * MIB))
            .line(Metric::Peak, &[(Bound::Budget, Against::PLAIN)]),
    ]
}
