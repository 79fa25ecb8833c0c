//! The loops: small programs of our own, each run as a process (`faultless bench loop NAME`) under each contender.
//! A loop prints its cost and a checksum of what it computed, as one line of JSON.

mod areas;
mod blocks;
mod cached;
mod faults;
mod first;
mod memory;
mod misses;
mod neighbour;
mod rmap;
mod rows;
mod spf;
mod storms;
mod touch;
mod walk;

use std::io;
use std::process::ExitCode;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use clap::Subcommand;

pub use areas::By;
pub use cached::{Met, RECORD, Route, Set, Timed, Way as CacheWay, Work, make_file};
pub use faults::Taken;
pub use first::{Memory, Touched};
pub use neighbour::Steps;
pub use rmap::{Kept, Known, Pages, Reclaimed, Stormed, Swapped, Swapper, Times, Uses, Way as RmapWay};
pub use rows::rows;
pub use spf::{EDGES, ENDS, Latency, Reached, Way as SpfWay};
pub use walk::Order;

/// The loops.
#[derive(Subcommand)]
pub enum Loop {
    /// Maps, touches one byte a page, unmaps.
    Touch {
        /// Bytes of the mapping.
        #[arg(long)]
        size: usize,
        #[command(flatten)]
        pace: Pace,
    },
    /// Maps and unmaps.
    Untouched {
        /// Bytes of the mapping.
        #[arg(long)]
        size: usize,
        #[command(flatten)]
        pace: Pace,
    },
    /// Maps a file, touches one byte a page if asked to, unmaps.
    OfFile {
        /// Bytes of the file.
        #[arg(long)]
        size: usize,
        /// Touch it.
        #[arg(long)]
        touched: bool,
        /// Changes go to the file.
        #[arg(long)]
        shared: bool,
        #[command(flatten)]
        pace: Pace,
    },
    /// A zeroed block, one byte a page touched.
    Zeroed {
        /// Bytes of the block.
        #[arg(long)]
        size: usize,
        #[command(flatten)]
        pace: Pace,
    },
    /// A block of calloc, or of malloc, of which one byte a page is written and none is read.
    Marked {
        /// Bytes of the block.
        #[arg(long)]
        size: usize,
        /// By malloc.
        #[arg(long)]
        by_malloc: bool,
        #[command(flatten)]
        pace: Pace,
    },
    /// A block, written through.
    Temporaries {
        /// Bytes of the block.
        #[arg(long)]
        size: usize,
        /// Report what is resident a second after the last free instead of the time.
        #[arg(long)]
        resident: bool,
        #[command(flatten)]
        pace: Pace,
    },
    /// Blocks written, summed and freed in random order by many threads.
    Blocks {
        /// Bytes of a block.
        #[arg(long)]
        size: usize,
        /// Blocks that each thread holds.
        #[arg(long)]
        held: usize,
        #[command(flatten)]
        pace: Pace,
    },
    /// Copies chunks to new blocks, and looks for a key in each.
    Searches {
        /// Bytes of a chunk.
        #[arg(long)]
        size: usize,
        /// Chunks.
        #[arg(long)]
        chunks: usize,
        /// The C library maps each block on its own.
        #[arg(long)]
        mapped: bool,
        #[command(flatten)]
        pace: Pace,
    },
    /// Touches one mapping for the first time.
    First {
        /// Bytes of the mapping.
        #[arg(long)]
        size: usize,
        /// Processes that keep CPUs busy meanwhile.
        #[arg(long, default_value_t = 0)]
        busy: usize,
    },
    /// Touches one byte of each piece of a large mapping.
    Sparse {
        /// Bytes of the mapping.
        #[arg(long)]
        size: usize,
        /// Bytes of a piece.
        #[arg(long)]
        step: usize,
    },
    /// Touches memory by huge pages, so that it is warm.
    Warm {
        /// How many bytes.
        #[arg(long)]
        size: usize,
    },
    /// A small block allocated and freed.
    Pairs {
        /// Bytes of the block.
        #[arg(long)]
        size: usize,
        /// How often.
        #[arg(long)]
        count: u64,
    },
    /// Forks children that end at once.
    Forks {
        /// Bytes that the parent has touched.
        #[arg(long)]
        size: usize,
        /// How many.
        #[arg(long)]
        count: u64,
    },
    /// Starts a program again and again.
    Spawns {
        /// How often.
        #[arg(long)]
        count: u64,
        /// The program.
        program: String,
    },
    /// Reads a file into fresh memory.
    Read {
        /// The file.
        file: String,
    },
    /// Keeps a CPU busy until the standard input ends.
    Spin,
    /// Touches memory for the first time in some order, and says what processor time that took.
    FirstTouch(first::First),
    /// Maps, touches lines of each page, unmaps, and says what processor time that took.
    Faults(faults::Faults),
    /// Uses and gives back memory with rests between, for some seconds.
    Releases {
        /// Bytes that it uses each time.
        #[arg(long)]
        size: usize,
        /// Milliseconds of rest.
        #[arg(long)]
        rest: u64,
        /// For how long.
        #[arg(long)]
        seconds: f64,
    },
    /// Computes in the caches of one CPU for some seconds.
    Neighbour {
        /// For how long.
        #[arg(long)]
        seconds: f64,
    },
    /// Threads that fault, beside one that changes the address space.
    Spf(spf::Spf),
    /// Keeps a moment of memory, or saves it beside a writer.
    Rmap(rmap::Rmap),
    /// Pages go from all areas.
    Reclaim(rmap::reclaim::Reclaim),
    /// Keeps moments of memory of many areas without a pause.
    Storm(rmap::storm::Storm),
    /// Uses more memory than it may have.
    Swap(rmap::swap::Swap),
    /// Reads a file by mmap.
    Walk(walk::Walk),
    /// Files in memory, used as IOzone uses them.
    Inside(cached::Inside),
    /// A file larger than the memory allowed.
    Beyond(cached::Beyond),
}

/// How long and by how many a loop is run.
#[derive(clap::Args, Clone, Copy)]
pub struct Pace {
    /// Seconds that each thread measures.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Milliseconds between rounds, not measured.
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Rounds at most.
    #[arg(long, default_value_t = u64::MAX)]
    most: u64,
}

/// What a loop prints.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// Seconds a round, or bytes.
    pub cost: f64,
    /// Of what was computed.
    pub checksum: u64,
}

/// Runs a loop.
pub fn main(which: Loop) -> ExitCode {
    let outcome = match which {
        Loop::Faults(what) => return print(faults::run(what)),
        Loop::FirstTouch(what) => return print(first::run(what)),
        Loop::Spf(what) => return print(spf::run(what)),
        Loop::Rmap(what) => return print(rmap::run(&what)),
        Loop::Reclaim(what) => return print(rmap::reclaim::run(&what)),
        Loop::Storm(what) => return print(rmap::storm::run(&what)),
        Loop::Swap(what) => return print(rmap::swap::run(&what)),
        Loop::Inside(what) => return print(cached::run_inside(&what)),
        Loop::Beyond(what) => return print(cached::run_beyond(&what)),
        Loop::Walk(what) => return print(walk::run(&what)),
        Loop::Releases { size, rest, seconds } => neighbour::releases(size, rest, seconds),
        Loop::Neighbour { seconds } => return print(neighbour::compute(seconds)),
        Loop::Touch { size, pace } => touch::rounds(size, pace),
        Loop::Untouched { size, pace } => touch::untouched(size, pace),
        Loop::OfFile { size, touched, shared, pace } => touch::of_file(size, touched, shared, pace),
        Loop::Searches { size, chunks, mapped, pace } => blocks::searches(size, chunks, mapped, pace),
        Loop::Zeroed { size, pace } => blocks::zeroed(size, pace),
        Loop::Marked { size, by_malloc, pace } => blocks::marked(size, by_malloc, pace),
        Loop::Temporaries { size, resident, pace } if resident => blocks::left(size, pace),
        Loop::Temporaries { size, pace, .. } => blocks::temporaries(size, pace),
        Loop::Blocks { size, held, pace } => blocks::many(size, held, pace),
        Loop::First { size, busy } => touch::first(size, busy),
        Loop::Sparse { size, step } => touch::sparse(size, step),
        Loop::Warm { size } => touch::warm(size),
        Loop::Pairs { size, count } => blocks::pairs(size, count),
        Loop::Forks { size, count } => storms::forks(size, count),
        Loop::Spawns { count, program } => storms::spawns(&program, count),
        Loop::Read { file } => blocks::read(&file),
        Loop::Spin => storms::spin(),
    };
    print(outcome)
}

fn print(outcome: io::Result<impl serde::Serialize>) -> ExitCode {
    match outcome.and_then(|outcome| Ok(serde_json::to_string(&outcome)?)) {
        Ok(line) => println!("{line}"),
        Err(error) => return fail(&error.to_string()),
    }
    ExitCode::SUCCESS
}

fn fail(error: &str) -> ExitCode {
    eprintln!("faultless: {error}");
    ExitCode::FAILURE
}

struct Share {
    begin: Instant,
    end: Instant,
    /// Time within rounds.
    measured: Duration,
    rounds: u64,
    checksum: u64,
}

/// Runs `round` in each thread for the time of the pace, and at least twice. The cost is that of one round at the
/// rate of all threads together; each round must give the same checksum.
fn repeat(pace: Pace, batch: u32, round: impl Fn(usize) -> io::Result<u64> + Sync) -> io::Result<Outcome> {
    let barrier = Barrier::new(pace.threads);
    let started = OnceLock::new();
    let one = |index: usize| -> io::Result<Share> {
        let warmed = round(index);
        barrier.wait();
        let checksum = warmed?;
        let begin = Instant::now();
        let common = *started.get_or_init(|| begin);
        let (mut measured, mut rounds) = (Duration::ZERO, 0);
        // Threads that run through end together, however many share a CPU; those that pause count rounds only.
        let is_running = |measured: Duration, rounds: u64| {
            let spent = if pace.pause == 0 { common.elapsed() } else { measured };
            rounds < 2 || (spent.as_secs_f64() < pace.seconds && rounds < pace.most)
        };
        while is_running(measured, rounds) {
            if pace.pause > 0 {
                thread::sleep(Duration::from_millis(pace.pause));
            }
            let start = Instant::now();
            for _ in 0..batch {
                if round(index)? != checksum {
                    return Err(io::Error::other("a round computed something else than the first"));
                }
            }
            measured += start.elapsed();
            rounds += u64::from(batch);
        }
        Ok(Share { begin, end: Instant::now(), measured, rounds, checksum })
    };
    let shares: io::Result<Vec<Share>> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (1..pace.threads).map(|index| scope.spawn(move || one(index))).collect();
        let own = one(0);
        let others = threads.into_iter().map(|thread| thread.join().expect("panics abort"));
        std::iter::once(own).chain(others).collect()
    });
    let shares = shares?;
    let checksum = shares.iter().fold(0u64, |all, share| all.wrapping_mul(31).wrapping_add(share.checksum));
    Ok(Outcome { cost: 1.0 / rate(&shares, pace), checksum })
}

/// Rounds a second of all threads together.
fn rate(shares: &[Share], pace: Pace) -> f64 {
    if pace.pause > 0 {
        return shares.iter().map(|share| share.rounds as f64 / share.measured.as_secs_f64()).sum();
    }
    let begin = shares.iter().map(|share| share.begin).min().expect("there is a thread");
    let end = shares.iter().map(|share| share.end).max().expect("there is a thread");
    shares.iter().map(|share| share.rounds).sum::<u64>() as f64 / (end - begin).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { seconds: 0.0, threads: 2, pause: 0, most: 9 };

    #[test]
    fn rounds_that_differ_are_an_error() {
        use std::sync::atomic::{AtomicU64, Ordering};
        let count = AtomicU64::new(0);
        let one = Pace { threads: 1, ..PACE };
        assert!(repeat(one, 1, |_| Ok(count.fetch_add(1, Ordering::Relaxed))).is_err());
        assert!(repeat(PACE, 1, |_| Err(io::Error::other("no memory"))).is_err());
    }

    #[test]
    fn threads_that_share_a_cpu_do_not_count_its_time_twice() {
        let begin = Instant::now();
        let share = |from: u64, to: u64| Share {
            begin: begin + Duration::from_secs(from),
            end: begin + Duration::from_secs(to),
            measured: Duration::from_secs(1),
            rounds: 10,
            checksum: 0,
        };
        let shares = [share(0, 2), share(2, 4)];
        assert_eq!(rate(&shares, PACE), 5.0);
        assert_eq!(rate(&shares, Pace { pause: 1, ..PACE }), 20.0);
    }

    #[test]
    fn the_checksum_depends_on_what_each_thread_computed_and_not_on_time() {
        let run = |add| repeat(PACE, 3, |index| Ok(index as u64 + add)).unwrap().checksum;
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn each_loop_gives_the_same_checksum_twice() {
        let pace = Pace { seconds: 0.001, threads: 2, pause: 0, most: 9 };
        let size = 1 << 20;
        let all: [fn(usize, Pace) -> io::Result<Outcome>; 9] = [
            touch::rounds,
            touch::untouched,
            blocks::zeroed,
            blocks::temporaries,
            |size, pace| blocks::marked(size, true, pace),
            |size, pace| blocks::many(size, 3, pace),
            |size, pace| blocks::searches(size, 3, false, pace),
            |size, pace| touch::of_file(size, true, false, pace),
            |size, pace| touch::of_file(size, false, true, pace),
        ];
        for (index, run) in all.iter().enumerate() {
            let (first, second) = (run(size, pace).unwrap(), run(size, pace).unwrap());
            assert_eq!(first.checksum, second.checksum, "loop {index}");
            assert!(first.cost > 0.0);
        }
    }
}
