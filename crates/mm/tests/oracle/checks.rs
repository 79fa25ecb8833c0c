//! What must hold, after each call and at the end.

use faultless_base::{SLOT, SLOT_PAGES};

use super::{Oracle, pages};
use crate::calls;

impl Oracle {
    /// What must hold after every call, as far as it is quick to see.
    pub fn check(&mut self) {
        self.things.retain(|t| pages(t.at, t.pages).any(|p| self.mine.get(&p).is_some_and(|m| m.owner == t.id)));
        for (page, mine) in self.mine.iter().step_by(7) {
            let expected = mine.open.then_some(mine.byte);
            assert_eq!(self.fake.read(*page), expected, "page {page:#x}, {mine:?}");
        }
        for page in self.closed.iter().step_by(7) {
            assert_eq!(self.fake.read(*page), None, "page {page:#x} is unmapped, but open");
        }
    }

    /// What must hold, page by page; and free memory is no more than the account says.
    pub fn check_all(&mut self) {
        for (page, mine) in &self.mine {
            assert_eq!(self.fake.read(*page), mine.open.then_some(mine.byte), "page {page:#x}, {mine:?}");
        }
        for page in &self.closed {
            assert_eq!(self.fake.read(*page), None, "page {page:#x} is unmapped, but open");
        }
        let arena = self.space.span();
        let slots = (arena.start..arena.end).step_by(SLOT);
        let free = slots.filter(|slot| self.mine.range(*slot..slot + SLOT).next().is_none());
        let resident = free.filter(|slot| pages(*slot, SLOT_PAGES).any(|p| self.fake.page(p).present)).count();
        let idle = self.space.budget().idle();
        assert!(resident <= idle + self.spare, "{resident} free slots have memory, {idle} are accounted for");
    }

    /// The program gives everything back, and the engine too: nothing is left, and the account is even.
    pub fn end(&mut self) {
        self.heal();
        for thing in std::mem::take(&mut self.things) {
            if thing.block {
                assert!(self.space.free(thing.at));
                self.lose(thing.at, thing.pages, false);
            } else {
                let span = faultless_base::Span::new(thing.at, thing.pages * faultless_base::PAGE);
                calls::unmap(&self.space, &self.fake, 0, span);
                self.lose(thing.at, thing.pages, true);
            }
        }
        // What was unmapped without notice stays on the account until a look.
        std::mem::take(&mut self.unseen).into_iter().for_each(|span| self.space.forget(span));
        assert!(!self.space.is_noted(super::ALL), "a slot of a mapping that is gone is noted");
        self.mine.clear();
        self.check_all();
        self.space.press();
        assert_eq!(self.space.budget().idle(), 0);
        assert!(self.fake.resident() <= self.spare * SLOT_PAGES, "{} pages are left", self.fake.resident());
        let (charged, used) = (self.account("charged"), self.account("used"));
        assert!(charged + used <= self.spare, "{charged} slots are charged, {used} counted as used");
    }

    /// The engine gives its free addresses back; the program keeps what it has, and may give it back in turn.
    pub fn retire(&mut self) {
        self.heal();
        self.space.retire();
        for (page, mine) in &self.mine {
            assert_eq!(self.fake.read(*page), mine.open.then_some(mine.byte), "page {page:#x}, {mine:?}");
        }
        self.check_released();
        for thing in std::mem::take(&mut self.things).into_iter().filter(|thing| thing.block) {
            assert!(self.space.free(thing.at));
            self.lose(thing.at, thing.pages, false);
        }
        self.check_released();
        let arena = self.space.span();
        let block = (arena.start..arena.end).step_by(SLOT).filter(|slot| self.space.holds_block(*slot));
        assert!(block.count() <= self.spare, "addresses given back pass for a block");
    }

    /// Nothing is reserved that the program does not have.
    fn check_released(&self) {
        let arena = self.space.span();
        let kept = (arena.start..arena.end).step_by(SLOT).filter(|slot| {
            let in_block = pages(*slot, SLOT_PAGES).any(|p| self.is_in_block(p));
            let reserved = |p: &usize| !self.fake.page(*p).released && !self.mine.contains_key(p);
            !in_block && pages(*slot, SLOT_PAGES).any(|p| reserved(&p))
        });
        let kept = kept.count();
        assert!(kept <= self.spare, "{kept} slots that the program does not have are still reserved");
    }

    /// An entry of the engine's account.
    fn account(&self, name: &str) -> usize {
        let account = format!("{:?}", self.space.budget());
        let (_, rest) = account.split_once(&format!(" {name}: ")).expect("an entry of that name");
        rest.split([',', ' ']).next().and_then(|n| n.parse().ok()).expect("a number")
    }
}
