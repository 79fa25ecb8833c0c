//! How much stack a fault by signal takes: it may be on an alternate one of 8 KiB, as Rust's threads have.

use std::fs::File;
use std::io::Write;
use std::ptr::null_mut;

use faultless::region::{Advice, Builder, Delivery, Error, FileBacking, Region, Rights, set_speculative};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const STACK: usize = 64 << 10;
const FILL: u8 = 0xA5;

/// Bytes of this thread's alternate stack that `f` makes signal handlers use, without what the kernel puts there.
fn used(f: impl FnOnce()) -> usize {
    let stack = Box::leak(vec![FILL; STACK].into_boxed_slice());
    let new = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: zero bytes are a value; the new stack is never freed, the old one comes back.
    let frame = unsafe {
        let mut old = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(&new, &mut old), 0);
        f();
        assert_eq!(libc::sigaltstack(&old, null_mut()), 0);
        libc::getauxval(libc::AT_MINSIGSTKSZ) as usize
    };
    let untouched = stack.iter().position(|byte| *byte != FILL).unwrap_or(STACK);
    (STACK - untouched).saturating_sub(frame)
}

fn region(choose: impl FnOnce(Builder) -> Builder) -> Option<Region> {
    match choose(Region::builder(64 * MIB).delivery(Delivery::Signal)).build() {
        Ok(region) => Some(region),
        Err(Error::NoUserfaultfd(error)) => {
            faultless_testkit::skip(format_args!("error {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn touch(region: &Region, pages: impl Iterator<Item = usize>) {
    for page in pages {
        // SAFETY: mapped for writing.
        unsafe { region.as_ptr().add(page * PAGE).write_volatile(1) };
    }
}

#[test]
fn a_fault_by_signal_needs_little_stack() {
    limit();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![1; 8 * MIB]).unwrap();
    let in_order = |region: Region| touch(&region, 0..64 * MIB / PAGE);
    let backed = |file: &File| {
        let backing = FileBacking::new(file.try_clone().unwrap());
        region(|builder| builder.backing(backing)).map(|region| used(|| touch(&region, 0..4 * MIB / PAGE)))
    };
    let Some(first) = region(|builder| builder) else { return };
    let mut most = vec![("huge pages", used(|| in_order(first)))];
    let mut add = |what, region: Option<Region>, f: fn(Region)| {
        most.push((what, region.map_or(0, |region| used(|| f(region)))));
    };
    add("small pages", region(|builder| builder.huge_pages(false)), in_order);
    add("no order", region(|builder| builder), |region| touch(&region, (0..2000).map(|i| i * i * 7919 % 16000)));
    add("windows that are left", region(|builder| builder), |region| {
        (0..16).for_each(|part| touch(&region, part * 1000..part * 1000 + 70));
    });
    add("many areas", region(|builder| builder), |region| {
        (0..500).for_each(|i| region.protect(i * 2 * PAGE..(i * 2 + 1) * PAGE, Rights::Read).unwrap());
        region.advise(0..MIB, Advice::Random).unwrap();
        touch(&region, (0..500).map(|i| i * 2 + 1));
    });
    set_speculative(false);
    add("classic", region(|builder| builder), in_order);
    add("classic, no order", region(|builder| builder), |region| {
        touch(&region, (0..2000).map(|i| i * i * 7919 % 16000));
    });
    most.push(("a file, classic", backed(&file).unwrap_or(0)));
    set_speculative(true);
    most.push(("a file", backed(&file).unwrap_or(0)));
    println!("{most:?}");
    let (what, bytes) = most.into_iter().max_by_key(|(_, bytes)| *bytes).unwrap();
    assert!(bytes < 3072, "{bytes} bytes: {what}");
}
