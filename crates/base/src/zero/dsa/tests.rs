//! A device that is a thread: it reads requests from a page, byte by byte as they are specified, and writes records
//! where they say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::vec::Vec;
use std::{boxed::Box, vec};

use super::queue::find;
use super::*;

/// What the device does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// What it is asked to.
    Fill,
    /// This many bytes, and then a page is missing.
    Fault(usize),
    /// It has this status.
    Status(u8),
    /// It says nothing, until the portal is closed; then it has written nothing for good.
    Hang,
}

/// A page that requests are stored to, and what stands beside it.
#[derive(Debug)]
struct Page {
    request: [AtomicU64; 8],
    /// Whether there is a request on the page.
    full: AtomicBool,
    /// How often there is no room.
    refuses: AtomicU32,
    closed: AtomicBool,
    requests: AtomicU32,
    record: Record,
    clock_ns: AtomicU64,
}

#[derive(Clone, Debug)]
struct Fake(Arc<Page>);

impl Portal for Fake {
    fn largest(&self) -> usize {
        2 * PAGE
    }

    unsafe fn send(&self, request: &Descriptor) -> Sent {
        let page = &self.0;
        if page.closed.load(SeqCst) {
            return Sent::Refused;
        }
        if page.refuses.load(SeqCst) > 0 {
            page.refuses.fetch_sub(1, SeqCst);
            return Sent::Full;
        }
        // SAFETY: 64 bytes without padding.
        let words = unsafe { core::mem::transmute::<Descriptor, [u64; 8]>(*request) };
        page.request.iter().zip(words).for_each(|(to, word)| to.store(word, SeqCst));
        assert!(!page.full.swap(true, SeqCst), "one request at a time");
        Sent::Taken
    }

    fn record(&self) -> &Record {
        &self.0.record
    }

    fn close(&self) {
        self.0.closed.store(true, SeqCst);
        while self.0.full.load(SeqCst) {
            thread::yield_now();
        }
    }

    fn now_ns(&self) -> u64 {
        self.0.clock_ns.load(SeqCst)
    }

    fn relax(&self) {
        self.0.clock_ns.fetch_add(HUNG_NS / 10, SeqCst);
        thread::yield_now();
    }
}

/// The device, at work until it is dropped.
struct Device {
    fake: Fake,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    /// One that does this with one request after the other, and fills memory afterwards.
    fn new(does: impl Into<Vec<Does>>) -> Self {
        faultless_testkit::limit::limit();
        let page = Page {
            request: Default::default(),
            full: AtomicBool::new(false),
            refuses: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            record: Record::new(),
            clock_ns: AtomicU64::new(0),
        };
        let (fake, stop) = (Fake(Arc::new(page)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (page, stop, mut does) = (fake.0.clone(), stop.clone(), does.into().into_iter());
            thread::spawn(move || {
                while !stop.load(SeqCst) {
                    if page.full.load(SeqCst) {
                        serve(&page, does.next().unwrap_or(Does::Fill));
                    }
                    thread::yield_now();
                }
            })
        };
        Self { fake, stop, thread: Some(thread) }
    }

    fn driver(&self) -> Dsa<Fake> {
        Dsa::new(self.fake.clone())
    }

    fn requests(&self) -> u32 {
        self.fake.0.requests.load(SeqCst)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        // A test that has failed is reported as such.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(page: &Page, does: Does) {
    let bytes: Vec<u8> = page.request.iter().flat_map(|word| word.load(SeqCst).to_le_bytes()).collect();
    let number = |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0u64, |sum, b| sum << 8 | *b as u64);
    assert_eq!(
        (number(0, 4), number(4, 3), number(7, 1)),
        (0, 0b1100, 4),
        "a fill with a record, and nothing else"
    );
    assert_eq!((number(16, 8), number(36, 28)), (0, 0), "zeroes, and what is reserved");
    let (record, to, length) = (number(8, 8) as usize, number(24, 8) as usize, number(32, 4) as usize);
    assert!(record % 32 == 0 && record == &raw const page.record as usize);
    assert!(length > 0 && length <= 2 * PAGE);
    page.requests.fetch_add(1, SeqCst);
    let (filled, status) = match does {
        Does::Fill => (length, 1),
        Does::Fault(bytes) => (bytes.min(length - 1), 0x83),
        Does::Status(status) => (length / 2, status),
        Does::Hang => {
            while !page.closed.load(SeqCst) {
                thread::yield_now();
            }
            page.full.store(false, SeqCst);
            return;
        }
    };
    // SAFETY: the test's own memory, which is the device's until it says so.
    unsafe { core::ptr::write_bytes(to as *mut u8, 0, filled) };
    page.full.store(false, SeqCst);
    let completed = if status == 0x83 { filled as u64 } else { 0 };
    // SAFETY: the record lives as long as the page.
    let first = unsafe { &*(record as *const AtomicU64) };
    first.store(completed << 32 | status as u64, SeqCst);
}

/// Memory of `pages` pages that is not zero, with a page on either side.
struct Memory {
    bytes: Box<[u8]>,
    extent: Span,
}

impl Memory {
    fn new(pages: usize) -> Self {
        let mut bytes = vec![7u8; (pages + 3) * PAGE].into_boxed_slice();
        let start = (bytes.as_mut_ptr() as usize).next_multiple_of(PAGE) + PAGE;
        Self { bytes, extent: Span::new(start, pages * PAGE) }
    }

    /// Nothing beside the extent was written, and of the extent its first bytes are zero.
    fn check(&self, zero: usize) {
        let first = self.extent.start - self.bytes.as_ptr() as usize;
        for (i, byte) in self.bytes.iter().enumerate() {
            let offset = i.wrapping_sub(first);
            if offset < zero {
                assert_eq!(*byte, 0, "byte {offset}");
            } else if offset >= self.extent.bytes() {
                assert_eq!(*byte, 7, "byte {offset}");
            }
        }
    }
}

fn run(driver: &mut Dsa<Fake>, memory: &Memory) -> Poll {
    // SAFETY: the test's own memory, whole pages.
    assert!(unsafe { driver.submit(memory.extent) });
    loop {
        match driver.poll() {
            Poll::Working => thread::yield_now(),
            other => break other,
        }
    }
}

#[test]
fn an_extent_is_zeroed_in_pieces_of_what_the_queue_takes() {
    let (device, memory) = (Device::new([]), Memory::new(5));
    let mut driver = device.driver();
    for _ in 0..2 {
        assert_eq!(run(&mut driver, &memory), Poll::Done);
        memory.check(5 * PAGE);
    }
    assert_eq!(device.requests(), 6, "2, 2 and 1 page, twice");
}

#[test]
fn behind_a_page_fault_it_goes_on() {
    for completed in [0, 64, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE] {
        let (device, memory) = (Device::new([Does::Fill, Does::Fault(completed)]), Memory::new(6));
        assert_eq!(run(&mut device.driver(), &memory), Poll::Done);
        memory.check(6 * PAGE);
        // The processor zeroes the rest of one page; what is left of the extent begins a new piece.
        assert_eq!(device.requests(), if completed < PAGE { 4 } else { 3 }, "{completed}");
    }
}

#[test]
fn where_faults_are_many_the_processor_does_the_rest() {
    let (device, memory) = (Device::new([Does::Fault(0); FAULTS as usize]), Memory::new(40));
    let mut driver = device.driver();
    assert_eq!(run(&mut driver, &memory), Poll::Done);
    memory.check(40 * PAGE);
    assert_eq!(device.requests(), FAULTS);
    // The next extent is the device's again.
    let next = Memory::new(2);
    assert_eq!(run(&mut driver, &next), Poll::Done);
    assert_eq!(device.requests(), FAULTS + 1);
}

#[test]
fn a_full_queue_is_asked_again_and_not_for_ever() {
    let (device, memory) = (Device::new([]), Memory::new(4));
    device.fake.0.refuses.store(FULL - 1, SeqCst);
    assert_eq!(run(&mut device.driver(), &memory), Poll::Done);
    assert_eq!(device.requests(), 2);
    device.fake.0.refuses.store(u32::MAX, SeqCst);
    let memory = Memory::new(4);
    assert_eq!(run(&mut device.driver(), &memory), Poll::Done);
    memory.check(4 * PAGE);
    assert_eq!(device.requests(), 2, "all by the processor");
}

#[test]
fn another_status_is_a_failure() {
    for status in [0x02, 0x04, 0x11, 0x1a, 0x3f] {
        let (device, memory) = (Device::new([Does::Fill, Does::Status(status)]), Memory::new(6));
        let mut driver = device.driver();
        assert_eq!(run(&mut driver, &memory), Poll::Failed, "{status:#x}");
        memory.check(2 * PAGE);
        assert!(driver.rest().is_empty() && !device.fake.0.closed.load(SeqCst));
    }
}

#[test]
fn a_device_that_hangs_loses_its_queue() {
    let (device, memory) = (Device::new([Does::Hang]), Memory::new(2));
    let mut driver = device.driver();
    // SAFETY: the test's own memory.
    assert!(unsafe { driver.submit(memory.extent) });
    assert_eq!((driver.poll(), driver.poll()), (Poll::Working, Poll::Working));
    device.fake.0.clock_ns.store(HUNG_NS + 1, SeqCst);
    assert_eq!(driver.poll(), Poll::Failed);
    assert!(device.fake.0.closed.load(SeqCst));
    assert_eq!(run(&mut driver, &memory), Poll::Failed, "there is no queue any more");
}

/// After a cancel nothing is written any more: the memory has another use at once.
#[test]
fn to_cancel_is_to_wait_for_what_is_under_way() {
    for hangs in [false, true] {
        for _ in 0..50 {
            let device = Device::new(if hangs { vec![Does::Hang] } else { vec![] });
            let mut memory = Memory::new(2);
            let mut driver = device.driver();
            // SAFETY: the test's own memory.
            assert!(unsafe { driver.submit(memory.extent) });
            assert_eq!(driver.poll(), Poll::Working);
            driver.cancel();
            assert!(!device.fake.0.full.load(SeqCst), "the request is under way");
            memory.bytes.fill(9);
            thread::yield_now();
            assert!(memory.bytes.iter().all(|byte| *byte == 9));
            assert!(driver.rest().is_empty());
        }
    }
}

/// Queues as sysfs shows them: of another kind, not enabled, without what has to be known, and two that are usable.
#[test]
fn usable_queues_are_found() {
    let folder = std::env::temp_dir().join(std::format!("faultless-dsa-{}", std::process::id()));
    let queue = |name: &str, attributes: [&str; 4]| {
        let queue = folder.join(name);
        std::fs::create_dir_all(&queue).unwrap();
        for (file, value) in ["type", "state", "mode", "max_transfer_size"].iter().zip(attributes) {
            std::fs::write(queue.join(file), std::format!("{value}\n")).unwrap();
        }
    };
    queue("dsa0", ["user", "enabled", "shared", "4096"]);
    queue("wq0.0", ["kernel", "enabled", "shared", "2097152"]);
    queue("wq0.1", ["user", "disabled", "shared", "2097152"]);
    queue("wq0.2", ["user", "enabled", "other", "2097152"]);
    queue("wq0.3", ["user", "enabled", "shared", ""]);
    queue("wq0.4", ["user", "enabled", "shared", "4095"]);
    queue("wq0.5", ["user", "enabled", "dedicated", "2097153"]);
    queue("wq1.0", ["user", "enabled", "shared", "4294967296"]);
    let mut found = Vec::new();
    let path = folder.to_str().unwrap().as_bytes();
    let end = find(path, |queue| {
        found.push((queue.name().to_vec(), queue.shared, queue.largest));
        None::<()>
    });
    found.sort();
    assert_eq!((end, found.len()), (None, 2));
    assert_eq!(found[0], (b"wq0.5".to_vec(), false, 2 << 20));
    assert_eq!(found[1], (b"wq1.0".to_vec(), true, 2 << 30));
    assert_eq!(find(path, |queue| Some(queue.largest)).map(|largest| largest >= 2 << 20), Some(true), "the first");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(find(path, |_| Some(())), None, "no such bus");
}

/// A machine without a device, or with one that this process may not use, says so.
#[test]
fn there_may_be_no_device() {
    let there = open();
    assert_eq!((is_open(), super::super::Engine::Dsa.is_available()), (there, there));
    close();
    assert!(!is_open());
}
