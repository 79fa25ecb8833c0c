//! Reads a file by mmap, in some order.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use clap::ValueEnum;

use super::Outcome;

const PAGE: usize = 4096;
const LINE: usize = 64;
/// What a walk takes at a time, and asks for if it gives advice.
const PIECE: usize = 4 << 20;
/// Of a strided walk: a piece of this size in each of those.
const STRIDE: (usize, usize) = (256 << 10, 1 << 20);
/// A random walk reads one page of this number.
const FEW: usize = 32;
const PARTS: usize = 4;

/// The order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// From the first page to the last.
    Forward,
    /// From the last to the first.
    Backward,
    /// The first quarter of each MiB.
    Strided,
    /// One page of 32, in no order.
    Random,
    /// Four threads, each a quarter from its begin to its end.
    Parts,
}

/// What to read, and how.
#[derive(clap::Args)]
pub struct Walk {
    #[arg(long)]
    order: Order,
    /// Give the kernel the best advice for it.
    #[arg(long)]
    advised: bool,
    file: PathBuf,
}

/// A file that is mapped to be read.
struct Mapped {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: memory that is only read.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(path: &std::path::Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len() as usize / PAGE * PAGE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { at, bytes }) }
    }

    fn advise(&self, from: usize, to: usize, advice: i32) {
        let to = to.min(self.bytes);
        if from < to {
            // SAFETY: a part of this mapping; the advice changes no byte.
            unsafe { libc::madvise(self.at.byte_add(from), to - from, advice) };
        }
    }

    /// A word of each line of a range.
    fn sum(&self, from: usize, to: usize) -> u64 {
        (from..to).step_by(LINE).fold(0, |sum, offset| {
            // SAFETY: within the mapping, aligned; the file is this bench's own, and stays as it is.
            sum.wrapping_add(unsafe { self.at.byte_add(offset).cast::<u64>().read_volatile() })
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this mapping, which is not used any more.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

/// Reads it once.
pub fn run(what: &Walk) -> io::Result<Outcome> {
    let start = Instant::now();
    let file = Mapped::new(&what.file)?;
    let whole = |advice| _ = what.advised.then(|| file.advise(0, file.bytes, advice));
    let next = |from: usize, to: usize| _ = what.advised.then(|| file.advise(from, to, libc::MADV_WILLNEED));
    let checksum = match what.order {
        Order::Forward => {
            whole(libc::MADV_SEQUENTIAL);
            file.sum(0, file.bytes)
        }
        Order::Backward => (0..file.bytes).step_by(PIECE).rev().fold(0u64, |sum, from| {
            next(from.saturating_sub(PIECE), from);
            let to = (from + PIECE).min(file.bytes);
            (from..to).step_by(PAGE).rev().fold(sum, |sum, page| sum.wrapping_add(file.sum(page, page + PAGE)))
        }),
        Order::Strided => (0..file.bytes).step_by(STRIDE.1).fold(0u64, |sum, from| {
            next(from + STRIDE.1, from + STRIDE.1 + STRIDE.0);
            sum.wrapping_add(file.sum(from, (from + STRIDE.0).min(file.bytes)))
        }),
        Order::Random => {
            whole(libc::MADV_RANDOM);
            let pages = file.bytes / PAGE;
            let mut state = 0x9E37_79B9_7F4A_7C15u64;
            (0..pages / FEW).fold(0u64, |sum, _| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let page = (state % pages as u64) as usize * PAGE;
                sum.wrapping_add(file.sum(page, page + PAGE))
            })
        }
        Order::Parts => {
            whole(libc::MADV_SEQUENTIAL);
            let part = (file.bytes / PARTS).next_multiple_of(PAGE);
            thread::scope(|scope| {
                let file = &file;
                let threads: Vec<_> = (0..PARTS)
                    .map(|i| (i * part, ((i + 1) * part).min(file.bytes)))
                    .map(|(from, to)| scope.spawn(move || file.sum(from, to)))
                    .collect();
                threads.into_iter().fold(0u64, |sum, part| sum.wrapping_add(part.join().expect("panics abort")))
            })
        }
    };
    Ok(Outcome { cost: start.elapsed().as_secs_f64(), checksum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_of_all_pages_read_the_same_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..9 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let sum = |order, advised| run(&Walk { order, advised, file: file.path().to_owned() }).unwrap().checksum;
        for advised in [false, true] {
            let forward = sum(Order::Forward, advised);
            assert_eq!(forward, sum(Order::Backward, advised));
            assert_eq!(forward, sum(Order::Parts, advised));
        }
        for order in [Order::Strided, Order::Random] {
            assert_eq!(sum(order, false), sum(order, true), "{order:?}");
        }
    }
}
