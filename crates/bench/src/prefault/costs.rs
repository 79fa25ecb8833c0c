//! What operations cost on this machine, measured one by one; none of the runs that the simulation is compared with is used.
//!
//! Each is made by as many threads at once as those runs have, each in memory of its own. Processors may share a
//! core, and all share memory and the kernel's locks of one address space. All of it goes through more memory than
//! caches hold, as the runs do.

use std::hint;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use faultless_base::sys::linux::Linux;
use faultless_base::sys::uffd::{Uffd, feature};
use faultless_base::sys::{Huge, Sys, frames, raw};
use faultless_base::{PAGE, SLOT, Span};
use faultless_sim::costs::Costs;
use faultless_sim::seed;

use faultless_measure::costs::{Area, serving};

const SAMPLES: usize = 9;
/// Bytes of a thread in a sample.
const BYTES: usize = 32 * SLOT;
const PASSES: usize = 20_000;
/// Looks at it after which another thread is let run.
const MANY: usize = 4096;

/// Measures them with `threads` threads at once. The error says what this machine does not allow.
pub fn measure(threads: usize) -> Result<Costs, String> {
    let small = Small::new(threads)?;
    let (signal, touch) = small.by_signal();
    let (single, batched) = (small.copied(PAGE)?, small.copied(SLOT)?);
    let install = moved(threads, Huge::Refused)? * (PAGE as f64 / SLOT as f64);
    let transfer = fastest(|| passed(2));
    let clear = (batched - install).max(0.0);
    Ok(Costs {
        page: PAGE as f64,
        touch,
        entry: (signal - single).max(0.0),
        call: (single - batched).max(0.0),
        install,
        clear_near: clear,
        clear_far: clear,
        near: f64::MAX,
        make_huge: made(threads)?,
        move_huge: moved(threads, Huge::Advised)?,
        local: fastest(|| passed(1)),
        transfer,
        // Two processors do not show it: in proportion to a transfer, as on the machine of 2004.
        waiter: transfer * seed::MACHINE.waiter / seed::MACHINE.transfer,
        serial: 0.0,
        // The kernel counts the users of its own area at each fault and call.
        kernel_words: 2,
        line: 64,
    })
}

/// The fastest of the samples: what others do on the machine only adds to them.
fn fastest(sample: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(sample).take(SAMPLES).fold(f64::MAX, f64::min)
}

/// Has threads do the same at once, and says what the slowest took, in ns of processor time: others may want processors.
fn at_once(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let line_up = Barrier::new(threads);
    let each = |i: usize| {
        line_up.wait();
        let start = raw::thread_ns();
        work(i);
        (raw::thread_ns() - start) as f64
    };
    thread::scope(|scope| {
        let each = &each;
        let all: Vec<_> = (0..threads).map(|i| scope.spawn(move || each(i))).collect();
        all.into_iter().map(|one| one.join().expect("it does not panic")).fold(0.0, f64::max)
    })
}

/// The pieces of a thread's part of an area.
fn pieces(area: &Area, thread: usize, bytes: usize) -> impl Iterator<Item = Span> {
    let each = BYTES / bytes;
    (0..each).map(move |i| area.piece(thread * each + i, bytes))
}

fn open(features: u64) -> Result<Uffd, String> {
    let (uffd, _) = Uffd::open_best().map_err(|error| format!("userfaultfd: error {error}"))?;
    uffd.enable(features).map_err(|error| format!("userfaultfd features: error {error}"))?;
    Ok(uffd)
}

/// Memory of small pages whose faults are delivered by signals, a part for each thread, and zeroes to fill it with.
struct Small {
    threads: usize,
    uffd: Uffd,
    area: Area,
    zeroes: Area,
}

impl Small {
    fn new(threads: usize) -> Result<Self, String> {
        let uffd = open(feature::SIGBUS)?;
        let (area, zeroes) = (Area::new(threads * BYTES, Huge::Refused)?, Area::new(SLOT, Huge::Refused)?);
        area.register(&uffd)?;
        zeroes.read();
        Ok(Self { threads, uffd, area, zeroes })
    }

    fn pages() -> f64 {
        (BYTES / PAGE) as f64
    }

    /// A page that a signal handler brings, which does nothing else; and a page that is there.
    fn by_signal(&self) -> (f64, f64) {
        let touch =
            || at_once(self.threads, |i| pieces(&self.area, i, BYTES).for_each(|part| self.area.touch(part)));
        let (mut brought, mut there) = (f64::MAX, f64::MAX);
        serving(&self.uffd, self.area.span(), || {
            for _ in 0..SAMPLES {
                Linux.discard(self.area.span());
                brought = touch().min(brought);
                there = touch().min(there);
            }
        });
        ((brought - there).max(0.0) / Self::pages(), there / Self::pages())
    }

    /// A page brought by a copy, `bytes` in one call.
    fn copied(&self, bytes: usize) -> Result<f64, String> {
        let failed = AtomicBool::new(false);
        let ns = fastest(|| {
            Linux.discard(self.area.span());
            at_once(self.threads, |i| {
                for to in pieces(&self.area, i, bytes) {
                    failed.fetch_or(self.zeroes.copy_to(&self.uffd, &self.area, to).is_err(), Ordering::Relaxed);
                }
            })
        });
        if failed.into_inner() { Err("UFFDIO_COPY fails".into()) } else { Ok(ns / Self::pages()) }
    }
}

/// 2 MiB moved in one call, as small pages or as a huge one.
fn moved(threads: usize, huge: Huge) -> Result<f64, String> {
    let uffd = open(feature::MOVE)?;
    let (here, there) = (Area::new(threads * BYTES, huge)?, Area::new(threads * BYTES, Huge::Refused)?);
    there.register(&uffd)?;
    let failed = AtomicBool::new(false);
    let ns = fastest(|| {
        Linux.discard(there.span());
        here.touch(here.span());
        at_once(threads, |i| {
            for (from, to) in pieces(&here, i, SLOT).zip(pieces(&there, i, SLOT)) {
                failed.fetch_or(here.move_to(&uffd, from, &there, to).is_err(), Ordering::Relaxed);
            }
        })
    });
    if failed.into_inner() { Err("UFFDIO_MOVE fails".into()) } else { Ok(ns / (BYTES / SLOT) as f64) }
}

/// A huge page made, as a fault makes one for which none was ready.
fn made(threads: usize) -> Result<f64, String> {
    let area = Area::new(threads * BYTES, Huge::Advised)?;
    let failed = AtomicBool::new(false);
    let ns = fastest(|| {
        Linux.discard(area.span());
        at_once(threads, |i| {
            for slot in pieces(&area, i, SLOT) {
                failed.fetch_or(!frames::fill(slot.start), Ordering::Relaxed);
            }
        })
    });
    if failed.into_inner() {
        Err("the kernel gives no huge pages here".into())
    } else {
        Ok(ns / (BYTES / SLOT) as f64)
    }
}

/// An operation on a word that `threads` threads pass on from one to the next.
fn passed(threads: usize) -> f64 {
    let turn = AtomicUsize::new(0);
    let pass_on = |i: usize| {
        for turn_of in (i..PASSES).step_by(threads) {
            let mut looked = 0;
            while turn.load(Ordering::Acquire) != turn_of {
                looked += 1;
                // The other one may have no processor.
                if looked % MANY == 0 { thread::yield_now() } else { hint::spin_loop() }
            }
            turn.fetch_add(1, Ordering::AcqRel);
        }
    };
    at_once(threads, pass_on) / PASSES as f64
}
