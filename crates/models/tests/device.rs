//! The driver of a device that zeroes by itself, in a random order: what it is given, what is called back from it,
//! and who has the memory afterwards. The device faults, fails, has no room and hangs, at random too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use faultless_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use faultless_base::zero::driver::{Driver, Poll};
use faultless_base::zero::dsa::{Descriptor, Dsa, Portal, Record, Sent};
use faultless_base::{PAGE, Span};
use faultless_models::check_runs;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const PAGES: usize = 3;
/// Bytes that the device writes between two steps of others.
const PART: usize = PAGE / 2;

struct Device {
    memory: &'static [AtomicU8],
    /// What it has to do. No lock of the model: nothing happens while it is held.
    request: Mutex<Option<Span>>,
    busy: AtomicBool,
    closed: AtomicBool,
    over: AtomicBool,
    now_ns: AtomicU64,
    record: Record,
}

impl Device {
    fn new() -> &'static Self {
        let memory: &'static [AtomicU8] = Box::leak((0..(PAGES + 1) * PAGE).map(|_| AtomicU8::new(7)).collect());
        Box::leak(Box::new(Self {
            memory,
            request: Mutex::default(),
            busy: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            now_ns: AtomicU64::new(0),
            record: Record::new(),
        }))
    }

    fn extent(&self) -> Span {
        Span::new((self.memory.as_ptr() as usize).next_multiple_of(PAGE), PAGES * PAGE)
    }

    fn bytes(&self, span: Span) -> &[AtomicU8] {
        let first = span.start - self.memory.as_ptr() as usize;
        &self.memory[first..first + span.bytes()]
    }

    fn work(&self) {
        while !self.over.load(SeqCst) {
            let request = self.request.lock().unwrap().take();
            match request {
                Some(span) => self.serve(span),
                None => thread::yield_now(),
            }
        }
    }

    fn serve(&self, span: Span) {
        let ends = thread_rng().gen_range(0..8);
        let (bytes, status) = match ends {
            0 => (thread_rng().gen_range(0..span.bytes()), 0x83),
            1 => (span.bytes() / 2, 0x1a),
            _ => (span.bytes(), 0x01),
        };
        let mut done = 0;
        while done < bytes {
            self.step();
            let part = Span::new(span.start + done, PART.min(bytes - done));
            self.bytes(part).iter().for_each(|byte| byte.store(0, Relaxed));
            done += part.bytes();
        }
        if ends == 2 {
            while !self.closed.load(SeqCst) {
                thread::yield_now();
            }
            return self.busy.store(false, SeqCst);
        }
        self.step();
        self.busy.store(false, SeqCst);
        self.record.complete(status, bytes as u32);
    }

    /// Others act.
    fn step(&self) {
        self.over.load(SeqCst);
    }
}

impl Portal for &'static Device {
    fn largest(&self) -> usize {
        PAGE
    }

    unsafe fn send(&self, request: &Descriptor) -> Sent {
        if self.closed.load(SeqCst) {
            return Sent::Refused;
        }
        if thread_rng().gen_range(0..8) == 0 {
            return Sent::Full;
        }
        assert!(!self.busy.swap(true, SeqCst), "it has a request already");
        *self.request.lock().unwrap() = Some(request.span());
        Sent::Taken
    }

    fn record(&self) -> &Record {
        self.step();
        &self.record
    }

    /// As the kernel does: when it returns, nothing is under way.
    fn close(&self) {
        self.closed.store(true, SeqCst);
        while self.busy.load(SeqCst) {
            thread::yield_now();
        }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(SeqCst)
    }

    fn relax(&self) {
        self.now_ns.fetch_add(1_000_000, SeqCst);
        thread::yield_now();
    }
}

/// Has the memory zeroed, and looks whether it is; or calls it back, and uses it for something else at once.
fn use_memory(device: &'static Device, driver: &mut Dsa<&'static Device>) {
    let extent = device.extent();
    device.bytes(extent).iter().for_each(|byte| byte.store(7, Relaxed));
    // SAFETY: the model's own memory, whole pages; no other code has it until the driver is idle.
    assert!(unsafe { driver.submit(extent) });
    let polls = if thread_rng().gen_bool(0.5) { thread_rng().gen_range(0..12) } else { usize::MAX };
    let mut end = Poll::Working;
    for _ in 0..polls {
        end = driver.poll();
        let zero = Span { start: extent.start, end: driver.rest().start.clamp(extent.start, extent.end) };
        assert!(device.bytes(zero).iter().all(|byte| byte.load(Relaxed) == 0), "not zero below {zero:x?}");
        if end != Poll::Working {
            break;
        }
        device.relax();
    }
    driver.cancel();
    assert!(!device.busy.load(SeqCst), "idle, and the device is not");
    if end == Poll::Done {
        assert!(device.bytes(extent).iter().all(|byte| byte.load(Relaxed) == 0), "promised as zero");
    }
    device.bytes(extent).iter().for_each(|byte| byte.store(9, Relaxed));
    (0..3).for_each(|_| device.step());
    assert!(device.bytes(extent).iter().all(|byte| byte.load(Relaxed) == 9), "written by the device");
}

#[test]
fn memory_has_one_owner_at_a_time() {
    check_runs(
        || {
            let device = Device::new();
            let thread = thread::spawn(move || device.work());
            let mut driver = Dsa::new(device);
            (0..3).for_each(|_| use_memory(device, &mut driver));
            device.over.store(true, SeqCst);
            thread.join().unwrap();
        },
        300,
    );
}
