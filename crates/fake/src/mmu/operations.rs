//! What a region asks of its memory.

use faultless_base::sys::mmu::{Mmu, Protect, Rights, Source};
use faultless_base::sys::uffd::Stopped;
use faultless_base::{Errno, PAGE, SLOT, Span};

use super::{FakeMmu, Page, State, all_of, backing_byte, pages};

impl State {
    /// A page goes.
    pub(super) fn lose(&mut self, page: usize) {
        self.pages.remove(&page);
        self.protected.remove(&page);
        self.noted.remove(&page);
    }

    /// What is in a page of the region that may be read, or of reserved memory.
    pub(super) fn read(&self, page: usize, what: &str) -> Option<u8> {
        if let Some(bytes) = self.reserved.get(&(page * PAGE / SLOT)) {
            return Some(bytes.as_ref().map_or(0, |bytes| bytes[page % (SLOT / PAGE)]));
        }
        assert!(self.rights.get(page) > Some(Rights::None), "{what} without right");
        self.pages.get(&page).map(|page| page.byte())
    }

    pub(super) fn write_reserved(&mut self, page: usize, byte: u8) {
        let bytes = self.reserved.get_mut(&(page * PAGE / SLOT)).expect("memory that was not reserved");
        bytes.get_or_insert_with(|| vec![0; SLOT / PAGE])[page % (SLOT / PAGE)] = byte;
    }
}

impl Mmu for FakeMmu {
    fn install(&self, from: Source, to: Span) -> Result<(), Stopped> {
        let mut state = self.begin_bringing().map_err(|error| Stopped { done: 0, error })?;
        state.installs += 1;
        for (i, page) in pages(to).enumerate() {
            assert!(state.rights.get(page) > Some(Rights::None), "a page for nobody at {page:#x}");
            if state.pages.contains_key(&page) {
                return Err(Stopped { done: i * PAGE, error: Errno::EEXIST });
            }
            assert!(!state.given.contains(&page), "a page that is the kernel's to bring");
            let byte = match from {
                Source::Zeroes | Source::ZeroPage => 0,
                Source::Buffer(at) => {
                    let at = at + i * PAGE;
                    let buffer = state.reserved.get(&(at / SLOT)).expect("a buffer that is not there");
                    buffer.as_ref().expect("a buffer that was not filled")[at % SLOT / PAGE]
                }
            };
            let new = if from == Source::ZeroPage { Page::Zero } else { Page::Own(byte) };
            state.pages.insert(page, new);
            state.tables.insert(page * PAGE / SLOT);
        }
        state.note_most();
        Ok(())
    }

    fn frees_tables(&self) -> bool {
        !self.quietly().keeps_tables
    }

    fn leave_to_kernel(&self, span: Span) -> Result<(), Errno> {
        let mut state = self.begin()?;
        state.given.extend(pages(span));
        // What is not registered any more is not protected either.
        pages(span).for_each(|page| _ = state.protected.remove(&page));
        Ok(())
    }

    fn take_from_kernel(&self, span: Span) -> Result<(), Errno> {
        let mut state = self.begin()?;
        pages(span).for_each(|page| {
            state.given.remove(&page);
        });
        Ok(())
    }

    fn present(&self, span: Span) -> usize {
        let is_there = |(_, page): &(&usize, &Page)| !matches!(page, Page::Poison);
        self.quietly().pages.range(pages(span)).filter(is_there).count()
    }

    fn poison(&self, page: usize) -> Result<(), Errno> {
        let mut state = self.begin_bringing()?;
        if state.pages.contains_key(&(page / PAGE)) {
            return Err(Errno::EEXIST);
        }
        state.pages.insert(page / PAGE, Page::Poison);
        Ok(())
    }

    fn move_huge(&self, frame: usize, to: usize) -> bool {
        let Ok(mut state) = self.begin_bringing() else { return false };
        let span = Span::new(to, SLOT);
        for page in pages(span) {
            assert!(state.rights.get(page) > Some(Rights::None), "a page for nobody at {page:#x}");
        }
        if pages(span).any(|page| state.pages.contains_key(&page)) {
            return false;
        }
        state.splits += state.tables.contains(&(to / SLOT)) as usize;
        let frame = Span::new(frame, SLOT);
        let own = pages(frame).map(|page| {
            let page = self.frames.page(page * PAGE);
            assert!(page.open && page.present, "a frame that is not there");
            Page::Own(page.byte)
        });
        state.pages.extend(pages(span).zip(own));
        self.frames.empty(frame);
        true
    }

    fn take_huge(&self, slot: usize, frame: usize) -> bool {
        let Ok(mut state) = self.begin() else { return false };
        let pages = pages(Span::new(slot, SLOT));
        let own = |page| match state.pages.get(&page) {
            Some(Page::Own(byte)) if state.rights.get(page) == Some(Rights::Write) => Some(*byte),
            _ => None,
        };
        let Some(bytes) = pages.clone().map(own).collect::<Option<Vec<u8>>>() else { return false };
        let is_used = |i: usize| self.frames.page(frame + i * PAGE).present;
        assert!(!(0..bytes.len()).any(is_used), "a frame that is in use");
        bytes.into_iter().enumerate().for_each(|(i, b)| self.frames.write(Span::new(frame + i * PAGE, PAGE), b));
        pages.for_each(|page| state.lose(page));
        true
    }

    fn is_own(&self, page: usize) -> bool {
        matches!(self.quietly().pages.get(&(page / PAGE)), Some(Page::Own(_)))
    }

    fn unused(&self, span: Span) -> usize {
        let state = self.quietly();
        let is_unused = |page: &usize| !matches!(state.pages.get(page), Some(Page::Own(1..)));
        pages(span).filter(is_unused).count()
    }

    fn looks_in_faults(&self) -> bool {
        self.looks_in_faults
    }

    fn wake(&self, _span: Span) {
        (self.step)();
    }

    fn protect(&self, span: Span, rights: Rights) -> Result<(), Errno> {
        let mut state = self.begin()?;
        state.rights.set(pages(span), rights);
        Ok(())
    }

    fn discard(&self, span: Span) -> Result<(), Errno> {
        let mut state = self.begin()?;
        pages(span).for_each(|page| state.lose(page));
        if !state.keeps_tables {
            let whole = span.aligned_inside(SLOT);
            state.tables.retain(|slot| !whole.contains(slot * SLOT));
        }
        self.tell(state);
        Ok(())
    }

    fn relocate(&self, from: Span, to: usize) -> Result<(), Errno> {
        let mut state = self.begin()?;
        for (i, page) in pages(from).enumerate() {
            let target = to / PAGE + i;
            let rights = state.rights.get(page);
            assert!(rights.is_none_or(|rights| rights == Rights::None), "moved while it may be accessed");
            assert!(!state.pages.contains_key(&target), "moved over a page");
            state.protected.remove(&page);
            if let Some(byte) = state.pages.remove(&page) {
                state.pages.insert(target, byte);
                state.tables.insert(target * PAGE / SLOT);
            }
        }
        self.tell(state);
        Ok(())
    }

    fn fills_at_any_time(&self) -> bool {
        self.at_any_time
    }

    fn fill(&self, offset: u64, buffer: Span) -> Result<(), Errno> {
        let mut state = self.begin()?;
        state.fills += 1;
        let end = state.end.unwrap_or(usize::MAX);
        let bytes = state.reserved.get_mut(&(buffer.start / SLOT)).expect("a buffer that is not there");
        let bytes = bytes.get_or_insert_with(|| vec![0xA5; SLOT / PAGE]);
        let first = buffer.start % SLOT / PAGE;
        let zeroed = bytes[first..first + buffer.bytes() / PAGE].contains(&0);
        for (i, byte) in bytes[first..first + buffer.bytes() / PAGE].iter_mut().enumerate() {
            let offset = offset as usize + i * PAGE;
            *byte = if offset < end { backing_byte(offset) } else { 0 };
        }
        state.zeroed_fills += zeroed as usize;
        Ok(())
    }

    fn raises_faults(&self) -> bool {
        true
    }

    fn touch(&self, span: Span) -> Result<(), Errno> {
        let mut state = self.quietly();
        pages(span).for_each(|page| {
            state.pages.entry(page).or_insert(Page::Own(0));
        });
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Option<usize> {
        let mut state = self.begin().ok()?;
        let at = state.next.max(1 << 44);
        state.next = at + bytes;
        state.reserved.extend((at / SLOT..(at + bytes) / SLOT).map(|slot| (slot, None)));
        Some(at)
    }

    fn release(&self, span: Span) {
        let mut state = self.quietly();
        for slot in span.start / SLOT..span.end / SLOT {
            assert!(state.reserved.remove(&slot).is_some(), "released twice");
            state.aside.retain(|page| page * PAGE / SLOT != slot);
        }
    }

    fn make_huge(&self, frame: usize) -> bool {
        let Ok(mut state) = self.begin() else { return false };
        if state.no_huge {
            return false;
        }
        self.frames.write(Span::new(frame, SLOT), 0);
        state.zeroed_frames += 1;
        true
    }

    fn drop_unless_whole(&self, frame: usize) -> bool {
        let frame = Span::new(frame, SLOT);
        let is_whole = pages(frame).all(|page| self.frames.page(page * PAGE).present);
        if !is_whole {
            self.frames.empty(frame);
        }
        is_whole
    }

    fn protect_writes(&self, span: Span, protect: Protect) -> Result<(), Errno> {
        // The kernel goes through a span piece by piece; what is missing when it comes there stays as it is.
        let there: Vec<usize> = self.begin()?.pages.range(pages(span)).map(|(page, _)| *page).collect();
        for page in there {
            let mut state = self.when(|_| false);
            match protect {
                Protect::All | Protect::Rest if state.pages.contains_key(&page) => {
                    _ = state.protected.insert(page)
                }
                _ => _ = state.protected.remove(&page),
            }
        }
        Ok(())
    }

    fn first_there(&self, span: Span) -> Option<Span> {
        let state = self.begin().ok()?;
        let mut all = pages(span);
        // Of memory that was reserved a page of zeroes is as if it had never come, unless it has moved there.
        let is_there = |page: &usize| match state.reserved.get(&(page * PAGE / SLOT)) {
            Some(_) => state.aside.contains(page) || state.read(*page, "looked at") != Some(0),
            None => matches!(state.pages.get(page), Some(Page::Zero | Page::Own(_))),
        };
        let first = all.find(is_there).unwrap_or(pages(span).end);
        let end = (first..pages(span).end).find(|page| !is_there(page)).unwrap_or(pages(span).end);
        Some(Span { start: first * PAGE, end: end * PAGE })
    }

    fn copy_pages(&self, from: Span, to: usize) -> bool {
        let mut state = self.begin().expect("a copy that fails");
        if state.no_copies > 0 {
            state.no_copies -= 1;
            return false;
        }
        for (i, page) in pages(from).enumerate() {
            let byte = state.read(page, "copied").expect("a page that is not there is copied");
            state.write_reserved(to / PAGE + i, byte);
        }
        true
    }

    fn read_bytes(&self, from: usize, buffer: &mut [u8]) -> bool {
        let state = self.begin().expect("a read that fails");
        for (i, part) in buffer.chunks_mut(PAGE).enumerate() {
            // It may have gone by a call of the program's own.
            all_of(part, state.read(from / PAGE + i, "read").unwrap_or(0));
        }
        true
    }

    fn drop_reserved(&self, span: Span) {
        let mut state = self.quietly();
        for page in pages(span) {
            state.aside.remove(&page);
            state.write_reserved(page, 0);
        }
    }

    fn relax(&self, _turn: u32) {
        (self.step)();
        std::thread::yield_now();
    }
}
