//! The three tables of the patches, and the same for a real program. Columns as there: Gb, repetitions, threads,
//! lines touched in each page. Then seconds in user mode, in the kernel, and on the clock. Then pages touched for the
//! first time in a second of processor time, and in a second.

use super::runs::{Runs, Way};
use crate::aims::Aims;
use crate::loops::Taken;
use crate::programs::find;
use crate::rule::Found;
use crate::turns::{self, Same, Turns, ratio};
use faultless_measure::paired::{Ratio, median};

/// Bytes of a mapping, as in the patches' tables.
const SIZE: u64 = 256 << 20;

/// What is run: one line for each way in a table.
struct Case {
    threads: usize,
    reps: u64,
    lines: usize,
    bursts: u64,
    rest: u64,
}

/// The runs of a case.
type Rounds = turns::Rounds<Way, Taken>;

fn run(runs: &mut Runs, name: &str, case: &Case, ways: &[Way], rounds: usize) -> Rounds {
    let size = runs.context.size(SIZE);
    let Case { threads, reps, lines, bursts, rest } = case;
    let launch = runs.looping(&format!(
        "faults --size {size} --threads {threads} --reps {reps} --lines {lines} --bursts {bursts} --rest {rest}"
    ));
    in_turns(runs, ways, rounds, |runs, way| runs.taken(name, &launch, way))
}

/// The ways in turns; they must compute the same.
fn in_turns(
    runs: &mut Runs,
    ways: &[Way],
    rounds: usize,
    mut once: impl FnMut(&mut Runs, Way) -> Result<Taken, String>,
) -> Rounds {
    let ways: Vec<Way> = ways.iter().copied().filter(|way| runs.has(*way)).collect();
    let turns = Turns { rounds: if runs.context.quick { 1 } else { rounds }, deadline: runs.deadline() };
    let mut computed = Same::default();
    let once = |way| {
        let taken = once(runs, way)?;
        computed.check(taken.checksum).map(|()| taken)
    };
    turns.run(&ways, |way| way.name().into(), once)
}

/// How many times faster `way` was than `other`, round by round.
fn speed(rounds: &Rounds, way: Way, other: Way) -> Found<Ratio> {
    ratio(rounds, &way, &other, |taken| taken.wall).map(Ratio::inverse)
}

fn heading(title: &str, what: &str) {
    println!("**{title}** ({what})\n");
    println!("| | Gb | Rep | Threads | CLine | User | System | Wall | flt/cpu/s | fault/wsec |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
}

/// One line: medians, per burst.
fn line(way: Way, size: u64, case: &Case, taken: &[Taken]) {
    let middle = |figure: fn(&Taken) -> f64| median(&taken.iter().map(figure).collect::<Vec<_>>()).unwrap_or(0.0);
    let bursts = case.bursts as f64;
    println!(
        "| {} | {:.2} | {} | {} | {} | {:.4} s | {:.4} s | {:.4} s | {:.0} | {:.0} |",
        way.name(),
        size as f64 / (1 << 30) as f64,
        case.reps,
        case.threads,
        case.lines,
        middle(|taken| taken.user) / bursts,
        middle(|taken| taken.system) / bursts,
        middle(|taken| taken.wall) / bursts,
        middle(Taken::per_cpu_second),
        middle(Taken::per_second),
    );
}

fn lines_of(rounds: &Rounds, size: u64, case: &Case) {
    rounds.iter().for_each(|(way, taken)| line(*way, size, case, taken));
}

fn rounds(runs: &Runs, usual: usize) -> usize {
    if runs.context.full { usual * 3 } else { usual }
}

/// A case by one thread and by two, with the usual number of rounds of each. The aims are for one thread: beside
/// plain, beside huge pages always, and beside recycling alone, which shows what zeroing ahead adds.
fn by_threads(runs: &mut Runs, aims: &mut Aims, name: &str, usual: [usize; 2], case: &Case, aimed: [f64; 3]) {
    for (threads, usual) in [1, 2].into_iter().zip(usual) {
        let case = Case { threads, ..*case };
        let n = rounds(runs, usual);
        let rounds = run(runs, name, &case, &Way::ALL, n);
        lines_of(&rounds, runs.context.size(SIZE), &case);
        if threads == 1 {
            let others = [(Way::Plain, "plain"), (Way::Huge, "huge pages always"), (Way::Hot, "scrub=0")];
            for ((way, of), least) in others.into_iter().zip(aimed) {
                aims.at_least(&format!("{name}, beside {of}"), least, speed(&rounds, Way::Faultless, way));
            }
        }
    }
    println!();
}

/// Memory that lay free for long enough to be zeroed.
pub fn burst(runs: &mut Runs, aims: &mut Aims) {
    heading("Burst", "one mapping, after memory of its size was given back 300 ms before");
    let case = Case { threads: 1, reps: 1, lines: 1, bursts: 4, rest: 300 };
    // The interval of what is aimed at is to be narrower than its range.
    by_threads(runs, aims, "burst", [12, 6], &case, [60.0, 12.0, 2.1]);
}

/// Ten mappings without a rest.
pub fn sustained(runs: &mut Runs, aims: &mut Aims) {
    heading("Sustained", "ten mappings in rapid succession");
    let case = Case { threads: 1, reps: 10, lines: 1, bursts: 1, rest: 300 };
    by_threads(runs, aims, "sustained", [10, 6], &case, [22.0, 4.0, 1.0]);
}

/// The more lines of a page are touched, the less prezeroing is worth.
pub fn lines(runs: &mut Runs, aims: &mut Aims) {
    heading("Lines", "as the burst; lines of 64 bytes touched in each page, of 64");
    for touched in [1, 2, 4, 8, 16, 32, 64] {
        let case = Case { threads: 1, reps: 1, lines: touched, bursts: 3, rest: 200 };
        // The last is compared closely.
        let usual = if touched == 64 { 8 } else { 3 };
        let n = rounds(runs, usual);
        let rounds = run(runs, "lines", &case, &Way::ALL, n);
        lines_of(&rounds, runs.context.size(SIZE), &case);
        if touched == 64 {
            let slower = speed(&rounds, Way::Faultless, Way::Hot).map(Ratio::inverse);
            aims.at_most("all lines touched, beside hot zeroing", 1.0, slower);
        }
    }
    println!();
}

/// Allocates zeroes, uses a little of them, works, again and again; times the allocation and its use.
const SCRIPT: &str = "\
import json, resource, sys, time
import numpy as np

size, reps = int(sys.argv[1]), int(sys.argv[2])
work = np.arange(1 << 16, dtype=np.float64)
taken = dict(user=0.0, system=0.0, wall=0.0, faults=0, checksum=0)

def once():
    a = np.zeros(size, dtype=np.uint8)
    a[::4096] = 1
    return int(a[8::4096].sum()) + int(a[::4096].sum())

once()
for _ in range(reps):
    end = time.monotonic() + 0.03
    while time.monotonic() < end:
        work = np.sqrt(work * work + 1.0)
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    taken['checksum'] += once()
    taken['wall'] += time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    taken['user'] += after.ru_utime - before.ru_utime
    taken['system'] += after.ru_stime - before.ru_stime
    taken['faults'] += size // 4096
print(json.dumps(taken))
";

/// The same for NumPy.
pub fn program(runs: &mut Runs) {
    let size = runs.context.size(SIZE / 4);
    let case = Case { threads: 1, reps: runs.context.count(20), lines: 1, bursts: 1, rest: 0 };
    let args = [size.to_string(), case.reps.to_string()];
    match find::python(&runs.context, "numpy", SCRIPT, &args) {
        Ok(launch) => {
            heading(
                "NumPy",
                "np.zeros and a byte of each page, 30 ms of other work between; that is not measured",
            );
            let n = rounds(runs, 5);
            let rounds = in_turns(runs, &Way::ALL, n, |runs, way| runs.taken("NumPy", &launch, way));
            lines_of(&rounds, size, &case);
            println!();
        }
        Err(missing) => println!("**NumPy**: {missing}\n"),
    }
}
