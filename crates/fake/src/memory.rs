//! The address space as tests see and change it, without the engine.

use faultless_base::sys::Usage;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};

use crate::{Failing, Fake, Page};

impl Fake {
    pub(crate) fn looks_ended(&self) -> bool {
        self.state.lock().unwrap().looks_ended
    }

    pub(crate) fn nonzero(&self, span: Span, samples: usize) -> usize {
        let pages = span.bytes() / PAGE;
        let step = (pages / samples.max(1)).max(1);
        (0..pages).step_by(step).filter(|i| self.page(span.start + i * PAGE).byte != 0).count()
    }

    /// What is known of the page at `addr`.
    pub fn page(&self, addr: usize) -> Page {
        let state = self.state.lock().unwrap();
        state.slots.get(&(addr / SLOT)).map_or(Page::default(), |pages| pages[addr / PAGE % SLOT_PAGES])
    }

    /// The program writes `byte` all over a span.
    pub fn write(&self, span: Span, byte: u8) {
        (span.start..span.end).step_by(PAGE).for_each(|addr| self.fault(addr));
        self.each(span, |addr, page| {
            assert!(page.open, "write to closed memory at {addr:#x}");
            page.present = true;
            page.byte = byte;
        });
    }

    /// Has this happen when memory is touched for the program the next time, before it is.
    pub fn at_next_touch(&self, event: impl FnOnce() + Send + 'static) {
        *self.at_touch.lock().unwrap() = Some(Box::new(event));
    }

    /// The program reads the page at `addr`; `None` is a SIGSEGV.
    pub fn read(&self, addr: usize) -> Option<u8> {
        let page = self.page(addr);
        page.open.then_some(page.byte)
    }

    /// The kernel maps `bytes` bytes for the program, at a multiple of the slot size.
    pub fn map(&self, bytes: usize) -> Span {
        let mut state = self.state.lock().unwrap();
        let start = state.next.max(1 << 40).next_multiple_of(SLOT);
        state.next = start + bytes.next_multiple_of(SLOT);
        drop(state);
        let span = Span::new(start, bytes);
        self.each(span, |_, page| *page = Page { open: true, ..Page::default() });
        span
    }

    /// The kernel unmaps it.
    pub fn unmap(&self, span: Span) {
        self.each(span, |_, page| *page = Page::default());
    }

    /// The program may access a span from now on.
    pub fn open(&self, span: Span) {
        self.each(span, |_, page| page.open = true);
    }

    /// The program may not access it any more.
    pub fn close(&self, span: Span) {
        self.each(span, |_, page| page.open = false);
    }

    /// The program changes attributes of a span by a call that is not seen.
    pub fn alter(&self, span: Span) {
        self.each(span, |_, page| page.altered = true);
    }

    /// Pins a page, or lets go of it.
    pub fn pin(&self, addr: usize, pinned: bool) {
        self.each(Span::new(addr & !(PAGE - 1), PAGE), |_, page| page.pinned = pinned);
    }

    pub(crate) fn all(&self, span: Span, what: impl Fn(Page) -> bool) -> bool {
        let mut all = true;
        self.each(span, |_, page| all &= what(*page));
        all
    }

    /// The program drops the content of pages.
    pub fn empty(&self, span: Span) {
        self.each(span, |_, page| {
            page.present = false;
            page.byte = 0;
        });
    }

    /// Makes an operation fail until [`Fake::heal`].
    pub fn fail(&self, what: Failing) {
        self.state.lock().unwrap().failing.push(what);
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        self.state.lock().unwrap().failing.clear();
    }

    /// Lets time pass.
    pub fn advance_ms(&self, ms: u64) {
        self.state.lock().unwrap().now_ns += ms * 1_000_000;
    }

    /// The first touch of a huge page takes so long from now on, as where the host has to find the memory.
    pub fn set_huge_ns(&self, ns: u64) {
        self.state.lock().unwrap().huge_ns = ns;
    }

    /// Bytes that the warm reserve was told.
    pub fn announced(&self) -> usize {
        self.state.lock().unwrap().announced
    }

    /// What the kernel counts of the program from now on.
    pub fn set_usage(&self, usage: Usage) {
        self.state.lock().unwrap().usage = Some(usage);
    }

    /// The machine has several nodes; said before there is an engine.
    pub fn set_nodes(&self, nodes: usize) {
        self.state.lock().unwrap().nodes = nodes;
    }

    /// What happens from now on happens in a thread on this node, from which its memory comes. With `has_policy` the
    /// program has said so, and not only the place where the thread runs.
    pub fn run_on(&self, node: usize, has_policy: bool) {
        let mut state = self.state.lock().unwrap();
        (state.here, state.has_policy) = (node, has_policy);
    }

    /// Other processes keep `load` processors busy.
    pub fn set_load(&self, load: u64) {
        self.state.lock().unwrap().load = load;
    }

    /// Pages that have memory.
    pub fn resident(&self) -> usize {
        self.state.lock().unwrap().slots.values().flat_map(|pages| pages.iter()).filter(|p| p.present).count()
    }

    /// Makes a page present: with all of its slot, if that is empty and huge pages are advised throughout.
    pub(crate) fn fault(&self, addr: usize) {
        let slot = Span::new(addr & !(SLOT - 1), SLOT);
        let page = self.page(addr);
        if page.present {
            return;
        }
        let whole = page.huge && {
            let mut all = true;
            self.each(slot, |_, p| all &= p.huge && p.open && !p.present);
            all
        };
        let unit = if whole { slot } else { Span::new(addr & !(PAGE - 1), PAGE) };
        let mut state = self.state.lock().unwrap();
        state.now_ns += if whole { state.huge_ns } else { 0 };
        let here = state.preferred.unwrap_or(state.here);
        drop(state);
        self.each(unit, |_, p| (p.present, p.node) = (true, here));
    }

    pub(crate) fn each(&self, span: Span, mut f: impl FnMut(usize, &mut Page)) {
        assert!(span.start % PAGE == 0 && span.end % PAGE == 0, "{span:x?} is not page-aligned");
        let mut state = self.state.lock().unwrap();
        for slot in span.start / SLOT..span.end.div_ceil(SLOT) {
            let pages = state.slots.entry(slot).or_insert_with(|| Box::new([Page::default(); SLOT_PAGES]));
            let part = Span::new(slot * SLOT, SLOT).clip(span);
            for addr in (part.start..part.end).step_by(PAGE) {
                let page = &mut pages[addr / PAGE % SLOT_PAGES];
                assert!(!page.released, "{addr:#x} was given back");
                f(addr, page);
            }
        }
    }

    pub(crate) fn fails(&self, what: Failing) -> bool {
        self.state.lock().unwrap().failing.contains(&what)
    }
}
