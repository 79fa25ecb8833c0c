//! Pages that the kernel is about to bring: until a look finds them, they count as if they were there.

use faultless_base::Pages;

use crate::frame::count::PageCount;

/// What is promised. Any thread promises, and ends promises; the thread that looks has them age.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// In the present period, and in the one before.
    of: [PageCount; 2],
}

impl Promises {
    /// All that count.
    pub(super) fn all(&self) -> Pages {
        self.of.iter().map(PageCount::get).sum()
    }

    pub(super) fn add(&self, pages: Pages) {
        self.of[0].add(pages);
    }

    /// This many came back; the newest ones first.
    pub(super) fn end(&self, pages: Pages) {
        let mut left = pages;
        for promised in &self.of {
            left -= promised.sub_up_to(left);
        }
    }

    /// A period ends: promises of the one before are forgotten. Their memory is there by now, or will not come soon.
    pub(super) fn age(&self) {
        self.of[1].set(self.of[0].take());
    }

    /// In a forked child: nothing is promised.
    pub(super) fn forget(&self) {
        self.of.iter().for_each(|promised| promised.set(Pages::NONE));
    }
}
