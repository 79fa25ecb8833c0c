//! A program that closes all descriptors that it does not know, and opens files of its own under those numbers.

mod apart;

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use apart::{apart, passes_apart};
use faultless::region::{Backing, Builder, Delivery, Error, Region};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

struct Ones;

impl Backing for Ones {
    fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), i32> {
        buffer.fill(1);
        Ok(())
    }
}

/// Its name, what regions are made with, and whether missing pages of them are zero.
type Kind = (&'static str, fn(Builder) -> Builder, bool);

fn kinds() -> [Kind; 5] {
    [
        ("thread", |builder| builder.delivery(Delivery::Thread), true),
        ("thread with a backing", |builder| builder.delivery(Delivery::Thread).handlers(2).backing(Ones), false),
        ("signal", |builder| builder.delivery(Delivery::Signal), true),
        ("signal with a backing", |builder| builder.delivery(Delivery::Signal).backing(Ones), false),
        ("events and a backing", |builder| builder.delivery(Delivery::Thread).events(true).backing(Ones), false),
    ]
}

fn build(choose: fn(Builder) -> Builder) -> Option<Region> {
    match choose(Region::builder(8 * MIB)).build() {
        Ok(region) => Some(region),
        Err(error @ (Error::NoUserfaultfd(_) | Error::NoEvents(_))) => {
            faultless_testkit::skip(format_args!("{error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Closes all but the standard ones, and has pipes with something in them under their numbers.
fn take_all_numbers() -> Vec<[i32; 2]> {
    // SAFETY: what a program may do that is not aware of libraries.
    unsafe {
        assert_eq!(libc::close_range(3, u32::MAX, 0), 0);
        let pipes: Vec<_> = (0..20)
            .map(|_| {
                let mut ends = [0; 2];
                assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
                assert_eq!(libc::write(ends[1], [7u8; 64].as_ptr().cast(), 64), 64);
                ends
            })
            .collect();
        pipes
    }
}

/// Nothing was read from them, or written to them, and none was closed.
fn check(pipes: &[[i32; 2]]) {
    for [read, write] in pipes {
        let mut there = 0;
        // SAFETY: this program's own descriptors, and a number.
        unsafe {
            assert!(libc::fcntl(*write, libc::F_GETFD) >= 0, "{write} was closed");
            assert_eq!(libc::ioctl(*read, libc::FIONREAD, &mut there), 0, "{read} was closed");
        }
        assert_eq!(there, 64, "{read} was read from or written to");
    }
}

#[test]
fn files_of_the_program_are_left_alone() {
    for (kind, choose, _) in kinds() {
        println!("{kind}");
        passes_apart(|| {
            let Some(region) = build(choose) else { return };
            // SAFETY: mapped for writing.
            unsafe { region.as_ptr().write_volatile(1) };
            let pipes = take_all_numbers();
            // The serving thread looks up once a second.
            std::thread::sleep(std::time::Duration::from_millis(1200));
            check(&pipes);
            let _ =
                (region.populate(4 * MIB..5 * MIB), region.remap(0..MIB, 6 * MIB), region.unmap(7 * MIB..8 * MIB));
            drop(region);
            check(&pipes);
        });
    }
}

/// A missing page has its old bytes or is an error, whenever it is accessed.
#[test]
fn nothing_is_zero_that_was_not() {
    for (kind, choose, is_zero) in kinds() {
        let status = apart(|| {
            static PAGES: AtomicUsize = AtomicUsize::new(0);
            let Some(region) = build(choose) else { return };
            take_all_numbers();
            for at in (0..8 * MIB).step_by(PAGE) {
                // SAFETY: mapped, or an error.
                let byte = unsafe { region.as_ptr().add(at).read_volatile() };
                assert_eq!(byte, !is_zero as u8, "{kind}, page {}", PAGES.fetch_add(1, Ordering::Relaxed));
                if at % MIB == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(200));
                }
            }
        });
        assert!(status.success() || status.signal() == Some(libc::SIGSEGV), "{kind}: {status}");
        assert!(status.success() || !is_zero || kind == "thread", "{kind}: {status}");
    }
}
