//! Records and a recording, made by hand.
#![allow(dead_code, reason = "no test uses all of it")]

pub mod large;

use faultless_record::file::{COUNTED_VERSION, Cost, Counted, End, Head, Program, Usage, Writer};
use faultless_record::sys::event::What;
use faultless_record::wire::{COMM_EXEC, Source, kind};

/// An address in the anonymous mapping, in the heap, in the C library, and in the program's code.
pub const ANONYMOUS: u64 = 0x7f00_0000_0000;
pub const HEAP: u64 = 0x5600_0000_0000;
pub const LIBRARY: u64 = 0x7f80_0000_0000;
pub const CODE: u64 = 0x5500_0000_0000;
/// A function that the program made itself.
pub const MADE: u64 = 0x7f40_0000_0000;
/// A piece of code that enters a function of Python's.
pub const INTERPRETED: u64 = MADE + 0x200;

/// Processes of larger numbers are children with one thread.
pub const CHILDREN: u32 = 1000;

/// The events that these records come from.
pub fn sources() -> Vec<Source> {
    vec![
        Source { id: 1, what: What::Begin, period: 50, stacks: true, memory: true },
        Source { id: 2, what: What::Minor, period: 1, stacks: false, memory: false },
        Source { id: 3, what: What::Major, period: 1, stacks: false, memory: false },
    ]
}

/// Records in a row.
#[derive(Default)]
pub struct Parts {
    pub bytes: Vec<u8>,
    /// The time of the next one.
    pub time: u64,
    /// Whether there is no memory of stacks.
    pub is_without_memory: bool,
}

impl Parts {
    fn record(&mut self, kind: u32, flags: u16, body: &[u8]) {
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(flags.to_le_bytes());
        self.bytes.extend((body.len() as u16 + 8).to_le_bytes());
        self.bytes.extend(body);
    }

    /// One that is no sample: with who and when at its end.
    fn other(&mut self, kind: u32, flags: u16, (pid, tid): (u32, u32), body: Vec<u8>) {
        self.time += 1;
        let trailer = [pid.to_le_bytes(), tid.to_le_bytes()].concat();
        let times = [self.time.to_le_bytes(), 1u64.to_le_bytes()].concat();
        self.record(kind, flags, &[body, trailer, times].concat());
    }

    fn padded(name: &str) -> Vec<u8> {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize((name.len() / 8 + 1) * 8, 0);
        bytes
    }

    pub fn map(&mut self, start: u64, bytes: u64, access: u32, name: &str) {
        let numbers = [start, bytes, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
        let body = [
            [10u32, 10].map(u32::to_le_bytes).concat(),
            numbers,
            [access, 2].map(u32::to_le_bytes).concat(),
            Self::padded(name),
        ];
        self.other(kind::MMAP2, 0, (10, 10), body.concat());
    }

    pub fn name(&mut self, pid: u32, tid: u32, name: &str, exec: bool) {
        let body = [[pid, tid].map(u32::to_le_bytes).concat(), Self::padded(name)].concat();
        self.other(kind::COMM, if exec { COMM_EXEC } else { 0 }, (pid, tid), body);
    }

    pub fn fork(&mut self, (pid, tid): (u32, u32), (parent, parent_tid): (u32, u32)) {
        let numbers = [pid, parent, tid, parent_tid].map(u32::to_le_bytes).concat();
        self.other(kind::FORK, 0, (parent, parent_tid), [numbers, self.time.to_le_bytes().to_vec()].concat());
    }

    pub fn exit(&mut self, pid: u32) {
        let numbers = [pid, 10, pid, 10].map(u32::to_le_bytes).concat();
        self.other(kind::EXIT, 0, (pid, pid), [numbers, self.time.to_le_bytes().to_vec()].concat());
    }

    pub fn lost(&mut self, records: u64) {
        self.other(kind::LOST, 0, (10, 10), [1, records].map(u64::to_le_bytes).concat());
    }

    /// A program with its mappings.
    pub fn program(&mut self) {
        self.name(10, 10, "program", true);
        self.map(CODE, 0x10000, 5, "/nowhere/program");
        self.map(LIBRARY, 0x200000, 5, "/usr/lib/libc.so.6");
        self.map(HEAP, 0x100000, 3, "[heap]");
        self.map(ANONYMOUS, 8 << 20, 3, "//anon");
        self.map(MADE, 0x1000, 5, "//anon");
    }

    fn sample(&mut self, id: u64, ip: u64, tid: u32, address: u64, stack: Option<&[u64]>, page: u64) {
        // Of the program's own threads all but one belong to its first process.
        let pid = if tid == 20 || tid >= CHILDREN { tid } else { 10u32 };
        let mut body = [id, ip].map(u64::to_le_bytes).concat();
        body.extend([pid, tid].map(u32::to_le_bytes).concat());
        body.extend([self.time, address].map(u64::to_le_bytes).concat());
        if let Some(stack) = stack {
            body.extend((stack.len() as u64 + 1).to_le_bytes());
            // The mark of the user's part.
            body.extend((-512i64).to_le_bytes());
            body.extend(stack.iter().flat_map(|frame| frame.to_le_bytes()));
            // Memory of the stack, of which the last number is not filled. The first thread calls a function of
            // Python's.
            if !self.is_without_memory {
                let call = if tid == 10 { INTERPRETED + 6 } else { HEAP };
                body.extend([40, HEAP, call, 0, CODE + 0x10, 0, 32].map(u64::to_le_bytes).concat());
            }
        }
        body.extend(page.to_le_bytes());
        self.record(kind::SAMPLE, 0, &body);
    }

    /// A fault that has no end; the end of another one follows.
    pub fn failing(&mut self, tid: u32, after: u64, address: u64) {
        self.fault(tid, after, address, None);
        self.time += after;
        self.sample(2, CODE, tid, address + (1 << 20), None, 4096);
    }

    /// A first touch with that call stack, and its end if it is to have one.
    pub fn touch(&mut self, tid: u32, address: u64, stack: &[u64], has_end: bool) {
        self.time += 500;
        self.sample(1, stack[0], tid, address, Some(stack), 0);
        if has_end {
            self.time += 700;
            self.sample(2, stack[0], tid, address, None, 4096);
        }
    }

    /// A fault that waits for input: how long.
    pub fn waiting(&mut self, tid: u32, address: u64, ns: u64) {
        self.fault(tid, 1000, address, None);
        self.time += ns;
        self.sample(3, CODE, tid, address, None, 4096);
    }

    /// A fault after that many nanoseconds, and its end: how long after that, with what page.
    pub fn fault(&mut self, tid: u32, after: u64, address: u64, end: Option<(u64, u64)>) {
        self.time += after;
        let is_worker = tid == 11;
        // The walk ends at an address that is no code.
        let stack = if is_worker { vec![MADE + 8, CODE + 0x100, HEAP] } else { vec![CODE + 0x200] };
        let is_copy = (HEAP..HEAP + 0x100000).contains(&address);
        self.sample(1, stack[0], tid, address, Some(&stack), if is_copy { 4096 } else { 0 });
        if let Some((ns, page)) = end {
            self.time += ns;
            self.sample(2, stack[0], tid, address, None, page);
        }
    }
}

/// A whole recording: a program with a thread and a child, 20 faults that have records, 1000 that were counted.
pub fn recording() -> Vec<u8> {
    recorded(End { minor: 1000, ..End::default() })
}

/// The same with other counts.
pub fn recorded(end: End) -> Vec<u8> {
    let head = Head {
        program: Program { command: vec!["program".into(), "its argument".into()], ..Program::default() },
        period: 50,
        system_calls: true,
        cost: Some(Cost { fault_ns: 500.0, between_records_ns: 800.0 }),
        sources: sources(),
        ..Head::default()
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    writer.head(&head).unwrap();
    let (mut one, mut two) = (Parts::default(), Parts::default());
    one.program();
    one.fork((10, 11), (10, 10));
    one.name(10, 11, "worker", false);
    one.fork((20, 20), (10, 10));
    for i in 0..12 {
        one.fault(11, 10_000, ANONYMOUS + i * 4096, Some((1000, 4096)));
    }
    for i in 0..4 {
        one.fault(11, 10_000, ANONYMOUS + (4 << 20) + i * 4096, Some((90_000 + i / 3 * 1_000_000, 2 << 20)));
    }
    // The other CPU's records are younger than the first ones of this one, and older than its last ones.
    two.time = 50_000;
    two.fault(10, 0, HEAP, None);
    two.fault(10, 10, LIBRARY, None);
    two.fault(20, 20, HEAP + 4096, None);
    two.fault(20, 20, LIBRARY + 4096, None);
    two.lost(7);
    writer.records(0, &one.bytes[..100], &one.bytes[100..]).unwrap();
    writer.records(1, &two.bytes, &[]).unwrap();
    // What is older than the round before is added up now, before the names are known.
    writer.round().unwrap();
    writer.round().unwrap();
    let names = format!("{MADE:x} 100 made_here\n{INTERPRETED:x} 10 py::work:a.py\n");
    writer.names(10, names.as_bytes()).unwrap();
    let usage = Usage { user_s: 0.5, system_s: 0.5, minor: 1010, major: 0, peak: 8 << 20 };
    let end = End { wall_ns: 2_000_000_000, usage: end.usage.or(Some(usage)), ..end };
    writer.counted(&counted()).unwrap();
    writer.end(&end).unwrap();
    bytes
}

/// What faultless counted in it.
pub fn counted() -> Counted {
    let counters = [("mmap_served", 3), ("mmap_bytes", 8 << 20), ("bytes_zeroed", 6 << 20)];
    let counters = counters.map(|(name, value)| (name.to_owned(), value)).into();
    Counted { version: COUNTED_VERSION, processes: 2, served: 1, counters, ..Counted::default() }
}
