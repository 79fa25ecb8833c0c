//! The Rust blocks of the pages, run as they stand there. A block that changes has to change here, too.
//!
//! They are no doc tests: pages have no hidden lines, and a doc test cannot say that it is unable to run.

#![allow(unused, reason = "blocks name what readers go on with")]

use std::error::Error;
use std::fs::File as StdFile;
use std::path::Path;

use faultless::region::{Delivery, Region};
use faultless_testkit::limit::limit;
use faultless_testkit::{alone, skip};
use tempfile::TempDir;

const PAGES: [(&str, &str); 5] = [
    ("README.md", include_str!("../../../README.md")),
    ("docs/files.md", include_str!("../../../docs/files.md")),
    ("docs/regions.md", include_str!("../../../docs/regions.md")),
    ("docs/snapshots.md", include_str!("../../../docs/snapshots.md")),
    ("docs/swap.md", include_str!("../../../docs/swap.md")),
];

/// The lines of a text that say something, without their indentation.
fn lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// The Rust blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let after = page.split("```rust\n").skip(1);
    after.map(|text| lines(text.split_once("\n```").expect("a block has an end").0)).collect()
}

#[test]
fn every_rust_block_is_run_here() {
    let here = lines(include_str!("pages.rs"));
    for (name, text) in PAGES {
        let blocks = blocks(text);
        assert!(!blocks.is_empty(), "{name} has no block: take it out here");
        for block in blocks {
            assert!(here.contains(&block), "{name} has a block that is not run here:\n{block}");
        }
    }
}

#[test]
fn blocks_are_found() {
    let page = "a\n```rust\nb\n\n    c\n```\nd\n```\ne\n```\n```rust\nf\n```\n";
    assert_eq!(blocks(page), ["b\nc\n", "f\n"]);
}

/// Runs a block in a directory of its own, in a process of its own: the block names files there. The directory has a
/// file `data` with as many bytes as `data` says.
fn run(data: u64, block: fn() -> Result<(), Box<dyn Error>>) {
    alone(|| {
        limit();
        let dir = TempDir::new().unwrap();
        std::env::set_current_dir(dir.path()).unwrap();
        StdFile::create("data").and_then(|file| file.set_len(data)).unwrap();
        block().unwrap();
    });
}

/// Whether regions of this kind can be had here, and what `is_so` asks of them.
fn can(delivery: Delivery, is_so: fn(&Region) -> bool) -> bool {
    let region = Region::builder(4 << 20).delivery(delivery).build();
    let can = region.as_ref().is_ok_and(is_so);
    if !can {
        skip(format_args!("{:?}", region.err()));
    }
    can
}

#[test]
#[rustfmt::skip]
fn readme_arena() {
    run(0, || {
        let arena = faultless::Arena::new(1 << 30)?;
        let mut block = arena.zeroed(64 << 20)?;   // no page fault if its memory was used before
        block[12345] = 1;
        drop(block);                               // stays ready for the next block
        arena.work();                              // zeroes in the background: call it when idle
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn readme_region() {
    run(0, || {
        faultless::reserve(2 << 30)?;              // in the background: huge pages of zeroes, which faults move to where they are needed
        let mut region = faultless::region::Region::anonymous(64 << 30)?;
        region.as_mut_slice()?[12345] = 1;
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn readme_file() {
    if !can(Delivery::Thread, |_| true) {
        return;
    }
    run(128 << 20, || {
        let file = faultless::file::File::open_writable("data")?;
        file.prefetch(&[0..4096, 90 << 20..91 << 20])?;   // many requests at a time
        let mapping = file.map_mut(0, 64 << 20)?;
        mapping.write(10, b"bytes")?;
        file.sync()?;
        let all = file.map_lazy(0, file.len() as usize)?;   // larger than memory: pages come when they are touched, and go
        let mut bytes = [0; 5];
        all.read(10, &mut bytes)?;
        assert_eq!((&bytes, std::fs::read("data")?.get(10..15)), (b"bytes", Some(&b"bytes"[..])));
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn readme_snapshot() {
    if !can(Delivery::Thread, Region::serves_system_calls) {
        return;
    }
    run(0, || {
        let mut region = faultless::region::Region::anonymous(8 << 20)?;
        region.as_mut_slice()?[5] = 1;
        let snapshot = region.snapshot()?;
        faultless::region::Save::new().start(&snapshot, "state.bin".as_ref())?.wait()?;
        let saved = std::fs::read("state.bin")?;
        assert_eq!((saved.len(), saved[5]), (8 << 20, 1));
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn files_mapped() {
    run(64 << 20, || {
        use faultless::file::File;

        let file = File::open_writable("data")?;      // or File::new(&std_file): also a file without a name
        file.write_at(b"bytes", 4096)?;
        let mapping = file.map_mut(0, 64 << 20)?;     // in memory when this returns
        mapping.write(10, b"more")?;                  // or by as_mut_ptr, as_mut_slice
        file.sync()?;
        let held = std::fs::read("data")?;
        assert_eq!((&held[10..14], &held[4096..4101]), (&b"more"[..], &b"bytes"[..]));
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
#[expect(clippy::undocumented_unsafe_blocks, reason = "the page says it once, for all")]
fn files_lazy() {
    if !can(Delivery::Thread, |_| true) {
        return;
    }
    run(1 << 40, || {
        let file = faultless::file::File::open_writable("data")?;
        let mut mapping = file.map_lazy_mut(0, 1 << 40)?;   // nothing is read
        let bytes = unsafe { mapping.as_mut_slice() };
        bytes[700 << 30] += 1;                              // its page comes
        file.sync()?;                                       // that page alone is written
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&StdFile::open("data")?, &mut byte, 700 << 30)?;
        assert_eq!(byte, [1]);
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
#[expect(clippy::undocumented_unsafe_blocks, reason = "the page says it once, for all")]
fn files_private() {
    if !can(Delivery::Thread, |_| true) {
        return;
    }
    run(4 << 20, || {
        use faultless::file::File;
        let file = File::open("data")?;
        let mut mapping = file.map_private(0, file.len() as usize)?;
        let bytes = unsafe { mapping.as_mut_slice() };
        bytes[10] = 1;                                      // no other mapping sees it, and no sync writes it
        drop(mapping);
        assert_eq!(std::fs::read("data")?[10], 0);
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn regions_builder() {
    if !can(Delivery::Signal, |_| true) {
        return;
    }
    run(0, || {
        let region = Region::builder(1 << 30)
            .delivery(Delivery::Signal)      // how a missing page is noticed
            .windows(4096, 8 << 20)          // what a fault brings: at first, and at most
            .build()?;
        assert_eq!(region.delivery(), Delivery::Signal);
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn snapshots() {
    if !can(Delivery::Thread, Region::serves_system_calls) {
        return;
    }
    run(0, || {
        use faultless::region::{Region, Save};

        let mut region = Region::anonymous(256 << 20)?;
        region.as_mut_slice()?[5] = 1;
        let snapshot = region.snapshot()?;                     // few calls of the kernel
        region.as_mut_slice()?[5] = 2;                         // copies a few pages first
        let mut byte = [0];
        snapshot.read_at(5, &mut byte)?;                       // 1
        let saving = Save::new().rate(200 << 20).start(&snapshot, "state.bin".as_ref())?;
        println!("{} of {}", saving.ready(), saving.bytes());
        saving.wait()?;
        assert_eq!(byte, [1]);
        let mut saved = [0; 6];
        std::os::unix::fs::FileExt::read_exact_at(&StdFile::open("state.bin")?, &mut saved, 0)?;
        assert_eq!(saved, [0, 0, 0, 0, 0, 1]);
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
#[allow(clippy::undocumented_unsafe_blocks)]
fn snapshots_of_files() {
    if !can(Delivery::Thread, Region::serves_system_calls) {
        return;
    }
    run(16 << 20, || {
        use faultless::file::File;
        use faultless::region::Save;

        let file = File::open_writable("data")?;
        file.allow_snapshots()?;                               // before the first lazy mapping
        let mut mapping = file.map_lazy_mut(0, 16 << 20)?;
        let snapshot = file.snapshot()?;                       // or mapping.snapshot(), of its part
        unsafe { mapping.as_mut_slice()[7] = 1 };              // copies a page first
        Save::new().start(&snapshot, "before.bin".as_ref())?;
        let mut byte = [1];
        snapshot.read_at(7, &mut byte)?;
        assert_eq!((byte, unsafe { mapping.as_slice() }[7]), ([0], 1));
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn swap() {
    if !can(Delivery::Thread, Region::serves_system_calls) {
        return;
    }
    run(0, || {
        use faultless::region::{Region, Swap};

        // 1 GiB of addresses, of which 256 MiB are in memory at most.
        let mut region = Region::builder(1 << 30).swap(Swap::new(256 << 20).directory("/var/tmp")).build()?;
        region.as_mut_slice()?[5] = 1;
        println!("{} bytes in memory", region.in_memory());
        assert_eq!((region.in_memory(), region.as_mut_slice()?[5]), (4096, 1));
        Ok(())
    });
}

#[test]
#[rustfmt::skip]
fn files_group() {
    if !can(Delivery::Thread, |_| true) {
        return;
    }
    run(1 << 20, || {
        std::fs::write("weights", vec![7; 5 << 20])?;
        std::fs::write("index", [1, 2, 3])?;
        use faultless::file::CacheGroup;
        let group = CacheGroup::new(512 << 20)?;      // 2 MiB at least
        let weights = group.open("weights")?;         // or group.file(&std_file)
        let index = group.open_writable("index")?;    // shares the budget
        println!("{} of {} bytes", group.used(), group.budget());
        let mut byte = [0];
        weights.read_at(&mut byte, 4 << 20)?;
        index.write_at(&byte, 3)?;
        index.sync()?;
        assert_eq!((std::fs::read("index")?, group.budget()), (vec![1, 2, 3, 7], 512 << 20));
        Ok(())
    });
}
