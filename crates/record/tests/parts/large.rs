//! A recording as large as one likes, of a program with many functions, mappings, threads and children.

use std::io::{self, Write};

use faultless_record::file::{Cost, End, Head, Program, Usage, Writer};
use faultless_record::wire::Source;

use super::{ANONYMOUS, CHILDREN, Parts, sources};

/// What is in it.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Faults that have a record. One of twenty has its end, too.
    pub faults: u64,
    /// Children, one after the other, each with at least one fault.
    pub children: u32,
    /// Whether it has rounds, as each recording of the kernel's has.
    pub has_rounds: bool,
}

/// Code that the program made itself, and its functions.
const CODE: u64 = 0x7e00_0000_0000;
const FUNCTIONS: u64 = 4096;
const FUNCTION: u64 = 0x100;
/// Mappings of several sizes.
const MAPPINGS: u64 = 64;
/// Ways through the program.
const WAYS: u64 = 20_000;
/// Records of a round.
const ROUND: u64 = 4096;

/// The same numbers each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Small ones are more frequent.
    fn often_small(&mut self, limit: u64) -> u64 {
        self.below(limit).min(self.below(limit)).min(self.below(limit))
    }
}

/// Where a mapping lies, and its bytes.
fn mapping(number: u64) -> (u64, u64) {
    (ANONYMOUS + (number << 30), 1 << (20 + number % 8))
}

/// A call stack, the innermost first: ways that are near to each other have the same callers.
fn stack(way: u64, into: &mut Vec<u64>) {
    into.clear();
    let depth = 4 + way % 13;
    let function = |level: u64| {
        let common = way >> level;
        (common.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (depth - level)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 40
    };
    into.extend((0..depth).map(|level| CODE + function(level) % FUNCTIONS * FUNCTION + 16));
}

/// Writes it.
pub fn write(to: impl Write, shape: Shape) -> io::Result<()> {
    let mut writer = Writer::new(to)?;
    let sources: Vec<_> = sources().into_iter().map(|source| Source { memory: false, ..source }).collect();
    let cost = Some(Cost { fault_ns: 500.0, between_records_ns: 800.0 });
    let program = Program { command: vec!["large".into()], ..Program::default() };
    writer.head(&Head { program, period: 50, system_calls: true, cost, sources, ..Head::default() })?;
    let mut cpus = [0; 2].map(|_| Parts { is_without_memory: true, ..Parts::default() });
    cpus[0].program();
    cpus[0].map(CODE, FUNCTIONS * FUNCTION, 5, "//anon");
    for number in 0..MAPPINGS {
        let (start, bytes) = mapping(number);
        cpus[0].map(start, bytes, 3, if number % 4 == 3 { "/var/lib/data" } else { "//anon" });
    }
    let (mut numbers, mut calls, mut children) = (Numbers(1), Vec::new(), 0);
    for number in 0..shape.faults {
        let [one, two] = &mut cpus;
        let (cpu, other) = if numbers.below(2) == 0 { (one, two) } else { (two, one) };
        cpu.time = cpu.time.max(other.time);
        let mut tid = 10 + numbers.often_small(10) as u32;
        let (start, bytes) = mapping(numbers.often_small(MAPPINGS));
        let is_childs = number * u64::from(shape.children) / shape.faults >= u64::from(children);
        if is_childs && children < shape.children {
            tid = CHILDREN + children;
            children += 1;
            cpu.fork((tid, tid), (10, 10));
        }
        stack(numbers.often_small(WAYS), &mut calls);
        cpu.touch(tid, start + numbers.below(bytes / 4096) * 4096, &calls, number % 20 == 0);
        if tid >= CHILDREN {
            cpu.exit(tid);
        }
        if number % ROUND == ROUND - 1 {
            for (number, cpu) in cpus.iter_mut().enumerate() {
                writer.records(number, &cpu.bytes, &[])?;
                cpu.bytes.clear();
            }
            if shape.has_rounds {
                writer.round()?;
            }
        }
    }
    for (number, cpu) in cpus.iter().enumerate() {
        writer.records(number, &cpu.bytes, &[])?;
    }
    let names: String =
        (0..FUNCTIONS).map(|i| format!("{:x} {FUNCTION:x} function_{i}\n", CODE + i * FUNCTION)).collect();
    writer.names(10, names.as_bytes())?;
    let wall_ns = cpus[0].time.max(cpus[1].time);
    let faults = shape.faults * 50;
    let usage = Usage { user_s: wall_ns as f64 / 1e9, minor: faults, ..Usage::default() };
    writer.end(&End { wall_ns, begun: faults, usage: Some(usage), ..End::default() })
}
