//! The choice of what a fault brings: a window, and where its bytes come from.

use faultless_base::sys::mmu::{Mmu, Rights, Source, Word};
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::predict::streams::{By, Seen};
use crate::predict::window::Window;
use crate::region::Region;
use crate::region::area::View;
use crate::region::frames::{FaultContext, NotReady, Version, Wait};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

/// What a fault brings.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    pub window: Window,
    pub source: Source,
}

impl<M: Mmu> Region<M> {
    /// Chooses for a fault on `page`, and reads the bytes that come from the backing; an error number if that fails.
    pub(crate) fn choose<'a>(
        &'a self,
        page: usize,
        wants: Rights,
        hint: usize,
        view: &View,
        version: Version,
        context: &mut FaultContext<'a>,
    ) -> Result<Result<Chosen, Errno>, NotReady> {
        let window = self.window(page, view, version.area, hint, context);
        context.without_pattern =
            !view.attributes.backed && !self.has_swap() && self.streams.is_without_pattern(version.area);
        if view.attributes.backed {
            let window = window.clip_to_slot(page);
            let mut chosen = self.read(view, version, window, context)?;
            if chosen.is_err() && window.pages() > 1 {
                // One page that cannot be read is no reason to have none of the others.
                context.window = Some((version.area, Window::page(page)));
                chosen = self.read(view, version, Window::page(page), context)?;
            }
            return Ok(chosen);
        }
        let source = if wants == Rights::Read && !self.is_written_behind(window, page, view) {
            Source::ZeroPage
        } else {
            Source::Zeroes
        };
        if window.span.bytes() >= SLOT && source == Source::Zeroes && view.attributes.huge && !window.is_apart() {
            self.ask_ahead(window);
        }
        Ok(Ok(Chosen { window, source }))
    }

    fn window(&self, page: usize, view: &View, id: usize, hint: usize, context: &mut FaultContext<'_>) -> Window {
        if view.attributes.random {
            return Window::page(page);
        }
        // Unless the area has lost a part of it since.
        if let Some((_, window)) =
            context.window.filter(|(of, window)| *of == id && view.span.clip(window.span) == window.span)
        {
            return window;
        }
        let by = By::of(self.knobs.get(Knob::PrefaultBy));
        let most = self.knobs.get(Knob::PrefaultMaxOrder) as u32;
        self.mmu.meets(Word::Streams(hint));
        let before = self.streams.spent(id);
        let prediction = self.streams.predict(Seen { page, area: view.span, id, hint }, by, most);
        if self.streams.spent(id) != before {
            self.mmu.meets(Word::Account);
        }
        let end = if prediction.follows { Counter::RegionWindowHits } else { Counter::RegionWindowMisses };
        context.stats.add(end, 1);
        context.ended_window = prediction.left.or(context.ended_window);
        context.window = Some((id, prediction.window));
        prediction.window
    }

    /// Whether the program has written where it came from. It reads each page before it writes to it, so it will
    /// write to this window, too.
    fn is_written_behind(&self, window: Window, page: usize, view: &View) -> bool {
        let before = page.wrapping_add_signed(-window.step);
        let is_written = || self.is_rewritten(page, before).unwrap_or_else(|| self.mmu.is_own(before));
        window.pages() > 1 && view.span.contains(before) && is_written()
    }

    /// Has another thread make huge pages meanwhile, for this window and the one after it.
    fn ask_ahead(&self, window: Window) {
        if let Some(store) = self.frames.store()
            && self.ahead > 0
        {
            store.ask((window.span.bytes() / SLOT * 2).min(self.ahead));
        }
    }

    /// The bytes of a window from the backing.
    fn read<'a>(
        &'a self,
        view: &View,
        version: Version,
        window: Window,
        context: &mut FaultContext<'a>,
    ) -> Result<Result<Chosen, Errno>, NotReady> {
        self.frames.take(context, Wait::No, &self.mmu)?;
        let offset = view.offset + (window.span.start - view.span.start);
        let at = self.fill(context, offset, window.span.bytes(), version);
        Ok(at.map(|at| Chosen { window, source: Source::Buffer(at) }))
    }

    /// Sees how much of a window was used that a stream has left behind.
    pub(crate) fn judge(&self, left: Span, cpu: usize) {
        let unused = self.mmu.unused(left);
        self.streams.judge(left.bytes() / PAGE, unused);
        self.count(Counter::RegionUnused, unused, cpu);
    }

    /// Whether windows that streams have left wait for a look: [`Self::look_back`].
    pub fn has_left_windows(&self) -> bool {
        self.pending.waiting() > 0
    }

    /// Sees how much was used of one of them; whether there was one. By a thread that may wait for a fault of this
    /// region.
    pub fn look_back(&self) -> bool {
        let left = self.pending.take();
        left.inspect(|left| self.judge(*left, 0)).is_some()
    }
}
