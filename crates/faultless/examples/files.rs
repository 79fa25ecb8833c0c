//! A file written and read in records of 4 KiB by memory: the kernel's page cache and that of the library, by turns.
//!
//! `cargo run --release -p faultless --example files [DIRECTORY]`

use std::fs;
use std::path::Path;
use std::time::Instant;

use chance::Chance;
use faultless::file::File;

#[path = "../tests/chance/mod.rs"]
mod chance;

const BYTES: usize = 512 << 20;
const RECORD: usize = 4096;
const ROUNDS: usize = 11;
const ROWS: [&str; 8] = [
    "initial write, frames ready",
    "flush",
    "rewrite after the flush",
    "flush again",
    "first random read in a new mapping",
    "everything mapped: random read",
    "first random write in a new mapping",
    "everything mapped: random write",
];

type Times = [f64; ROWS.len()];

fn ms(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

/// Writes each record once.
fn write(at: *mut u8, order: &[u32], record: &[u8; RECORD]) {
    for i in order {
        // SAFETY: a record inside the mapping, which no other thread uses.
        unsafe { at.add(*i as usize * RECORD).cast::<[u8; RECORD]>().write(*record) };
    }
}

/// Reads each record once.
fn read(at: *const u8, order: &[u32]) {
    for i in order {
        // SAFETY: as above.
        std::hint::black_box(unsafe { at.add(*i as usize * RECORD).cast::<[u8; RECORD]>().read() });
    }
}

/// The numbers of all records, in an order that repeats.
fn random_order() -> Vec<u32> {
    let mut order: Vec<u32> = (0..(BYTES / RECORD) as u32).collect();
    let mut chance = Chance(88_172_645_463_325_252);
    for i in (1..order.len()).rev() {
        order.swap(i, chance.below(i + 1));
    }
    order
}

fn fresh(path: &Path) -> fs::File {
    let _ = fs::remove_file(path);
    let file = fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(BYTES as u64).unwrap();
    file
}

/// A shared mapping of the kernel's.
struct Kernel(*mut u8);

impl Kernel {
    fn new(file: &fs::File) -> Self {
        use std::os::fd::AsRawFd;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn flush(&self) {
        // SAFETY: the mapping.
        assert_eq!(unsafe { libc::msync(self.0.cast(), BYTES, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the mapping, which is not used any more.
        unsafe { libc::munmap(self.0.cast(), BYTES) };
    }
}

fn by_kernel(path: &Path, order: &[u32], random: &[u32]) -> Times {
    let file = fresh(path);
    let record = [7; RECORD];
    let mut mapping = None;
    let initial = ms(|| write(mapping.insert(Kernel::new(&file)).0, order, &record));
    let mapping = mapping.unwrap();
    let flush = ms(|| mapping.flush());
    let rewrite = ms(|| write(mapping.0, order, &[8; RECORD]));
    let again = ms(|| mapping.flush());
    drop(mapping);
    let mut mapping = None;
    let first_read = ms(|| read(mapping.insert(Kernel::new(&file)).0, random));
    let all_read = ms(|| read(mapping.as_ref().unwrap().0, random));
    drop(mapping.take());
    let first_write = ms(|| write(mapping.insert(Kernel::new(&file)).0, random, &record));
    let all_written = ms(|| write(mapping.as_ref().unwrap().0, random, &record));
    [initial, flush, rewrite, again, first_read, all_read, first_write, all_written]
}

fn by_library(path: &Path, order: &[u32], random: &[u32]) -> Times {
    drop(fresh(path));
    let ready = faultless::reserve(BYTES).unwrap().wait().unwrap();
    assert_eq!(ready, BYTES, "no memory");
    let file = File::open_writable(path).unwrap();
    let record = [7; RECORD];
    let mut mapping = None;
    let initial = ms(|| write(mapping.insert(file.map_mut(0, BYTES).unwrap()).as_mut_ptr(), order, &record));
    let mut mapping = mapping.unwrap();
    let flush = ms(|| mapping.sync().unwrap());
    let rewrite = ms(|| write(mapping.as_mut_ptr(), order, &[8; RECORD]));
    let again = ms(|| mapping.sync().unwrap());
    drop(mapping);
    let mut mapping = None;
    let first_read = ms(|| read(mapping.insert(file.map(0, BYTES).unwrap()).as_ptr(), random));
    let all_read = ms(|| read(mapping.as_ref().unwrap().as_ptr(), random));
    drop(mapping);
    let mut mapping = None;
    let first_write = ms(|| write(mapping.insert(file.map_mut(0, BYTES).unwrap()).as_mut_ptr(), random, &record));
    let all_written = ms(|| write(mapping.as_mut().unwrap().as_mut_ptr(), random, &record));
    drop(mapping);
    drop(file);
    faultless::release_reserved();
    [initial, flush, rewrite, again, first_read, all_read, first_write, all_written]
}

/// The least and the median.
fn of_row(times: &[Times], row: usize) -> (f64, f64) {
    let mut row: Vec<f64> = times.iter().map(|times| times[row]).collect();
    row.sort_by(f64::total_cmp);
    (row[0], row[row.len() / 2])
}

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let path = Path::new(&directory).join(format!("faultless-example-{}", std::process::id()));
    let order: Vec<u32> = (0..(BYTES / RECORD) as u32).collect();
    let random = random_order();
    let (mut kernel, mut library) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let times = (by_kernel(&path, &order, &random), by_library(&path, &order, &random));
        // The first one warms the machine's memory.
        if round > 0 {
            kernel.push(times.0);
            library.push(times.1);
        }
    }
    fs::remove_file(&path).unwrap();
    println!("512 MiB in records of 4 KiB, 1 thread, ms, least and median of {ROUNDS} rounds by turns");
    println!("| | kernel | faultless | ratio of least | of medians |\n|---|---|---|---|---|");
    for (row, name) in ROWS.iter().enumerate() {
        let ((k, kernel), (l, library)) = (of_row(&kernel, row), of_row(&library, row));
        let (least, ratio) = (k / l, kernel / library);
        println!("| {name} | {k:.1}, {kernel:.1} | {l:.1}, {library:.1} | {least:.2} | {ratio:.2} |");
    }
}
