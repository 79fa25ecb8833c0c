//! Reading a large recording: memory is bounded, and the report says what it leaves out. It is the only test of its
//! process, because it looks at the memory of the process.

mod parts;

use std::io::{BufReader, BufWriter};
use std::thread;

use faultless_record::summary::{self, Summary};
use faultless_record::view::text::{Style, report};
use faultless_record::view::{html, trace};
use parts::large::{Shape, write};

/// What was read of one that is made meanwhile, so that it needs no memory itself.
fn read(shape: Shape) -> Summary {
    let (reader, writer) = std::io::pipe().unwrap();
    let writing = thread::spawn(move || write(BufWriter::with_capacity(1 << 20, writer), shape).unwrap());
    let summary = summary::read(BufReader::with_capacity(1 << 20, reader)).unwrap();
    writing.join().unwrap();
    summary
}

/// Bytes that this process has had at once.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn what_is_kept_is_bounded_and_what_is_left_out_is_said() {
    // More than are kept of single faults, than tables have rows, and than wait for their order: there are no rounds.
    let shape = Shape { faults: 1_050_000, children: 5000, has_rounds: false };
    let all = read(shape);
    assert_eq!((all.recording.samples, all.faults.exceptions), (shape.faults, shape.faults * 50));
    assert_eq!(all.recording.processes, 5001);
    let notes = all.notes.join("; ");
    assert!(notes.contains("too many records at once"), "{notes}");
    // Single faults: one of sixteen, and evenly.
    assert_eq!(all.samples_one_of, 16);
    assert!((50_000..=100_000).contains(&all.samples.len()), "{}", all.samples.len());
    let (half, end) = (all.samples.len() / 2, all.samples.last().unwrap().time_ns);
    let at_half = all.samples[half].time_ns as f64 / end as f64;
    assert!((at_half - 0.5).abs() < 0.02, "{at_half}");
    assert_eq!(trace::trace(&all)["otherData"]["faults"]["one_of"], 16);
    // Rows: those with the most faults, and a note of the others.
    assert_eq!((all.processes.len(), all.left_out.processes), (1000, 4001));
    assert!(
        notes.contains("5001 processes had records: their table has the 1000 with the most faults"),
        "{notes}"
    );
    let text = report(&all, Style { columns: 120, rows: 5 });
    assert!(text.contains(" 4 996 more\n"), "{text}");
    assert_eq!(all.stacks.len(), 10_001);
    assert_eq!(all.stacks.last().unwrap().frames, ["[other stacks]".into()]);
    assert!(
        all.left_out.stacks > 0 && notes.contains("call stacks with the fewest faults are one row"),
        "{notes}"
    );
    let shares: f64 = all.stacks.iter().map(|by| by.part.share).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    let page = html::html(&all).unwrap();
    assert!(page.len() < 4 << 20, "{}", page.len());
    drop((all, page));
    // With rounds, all come in their order.
    let ordered = read(Shape { faults: 100_000, has_rounds: true, ..shape });
    assert!(!ordered.notes.join("; ").contains("too many records"), "{:?}", ordered.notes);
    // A record of the kernel's that waits takes 300 bytes with its stack.
    let bytes = peak();
    assert!(bytes < 1 << 30, "{bytes}");
}
