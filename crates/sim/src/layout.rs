//! Where blocks lie in an address space, and which of them are one area for the kernel. All blocks have one size.
//!
//! - A block gets the first free place, as mmap gives the highest gap that fits.
//! - Mapped places next to each other are one area. A block that comes changes the areas that it joins,
//!   and a block that goes the area that it is cut from. A block between two free places changes no other area.
//! - A page of a page table spans several places. It goes when its last place is unmapped. The first fault after that
//!   makes it again.

use std::ops::Range;

#[derive(Clone, Copy, Default)]
struct Place {
    mapped: bool,
    /// Changes of the area that this place was part of.
    version: u64,
    /// Changes of it that are under way.
    changing: u32,
}

/// What is one area for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Areas {
    /// All blocks are, wherever they lie.
    One,
    /// Those are that adjoin.
    Adjoining,
}

/// What becomes of a page of a page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// It was there from the start, and stays: something else lies below it.
    Stay,
    /// It goes with the last block below it.
    Go,
}

/// An address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its areas.
    pub areas: Areas,
    /// Its page tables.
    pub tables: Tables,
}

/// The places.
pub struct Layout {
    places: Vec<Place>,
    kind: Kind,
    tables: Vec<bool>,
    /// Places that a page of a page table spans.
    span: usize,
}

impl Layout {
    /// An address space for `blocks` blocks at a time, all of it free. A page of a page table spans `span` of them.
    pub fn new(blocks: usize, span: usize, kind: Kind) -> Self {
        let tables = vec![kind.tables == Tables::Stay; blocks.div_ceil(span)];
        Self { places: vec![Place::default(); blocks], kind, tables, span }
    }

    /// Maps a block at the first free place. What it changes is changing until [`changed`](Self::changed).
    pub fn map(&mut self) -> (usize, Range<usize>) {
        let at = self.places.iter().position(|place| !place.mapped).expect("a place for each thread's block");
        self.places[at] = Place { mapped: true, ..self.places[at] };
        (at, self.change(at))
    }

    /// Unmaps a block, and its page of a page table if it is the last there.
    pub fn unmap(&mut self, at: usize) -> Range<usize> {
        let area = self.change(at);
        self.places[at].mapped = false;
        let table = at / self.span;
        let others = self.places.iter().skip(table * self.span).take(self.span);
        let stays = self.kind.tables == Tables::Stay || others.into_iter().any(|place| place.mapped);
        self.tables[table] &= stays;
        area
    }

    fn change(&mut self, at: usize) -> Range<usize> {
        let area = self.area(at);
        for place in &mut self.places[area.clone()] {
            place.version += 1;
            place.changing += 1;
        }
        area
    }

    /// The change of these places is done.
    pub fn changed(&mut self, area: Range<usize>) {
        self.places[area].iter_mut().for_each(|place| place.changing -= 1);
    }

    /// The area that a mapped place is part of.
    pub fn area(&self, at: usize) -> Range<usize> {
        if self.kind.areas == Areas::One {
            return 0..self.places.len();
        }
        let run = |places: &mut dyn Iterator<Item = &Place>| places.take_while(|place| place.mapped).count();
        let before = run(&mut self.places[..at].iter().rev());
        at - before..at + 1 + run(&mut self.places[at + 1..].iter())
    }

    /// How often the area of a place changed, unless it is changing now.
    pub fn version(&self, at: usize) -> Option<u64> {
        let place = self.places[at];
        (place.changing == 0).then_some(place.version)
    }

    /// Whether the page of a page table is there that a place needs.
    pub fn has_table(&self, at: usize) -> bool {
        self.tables[at / self.span]
    }

    /// Makes it; whether it was missing.
    pub fn make_table(&mut self, at: usize) -> bool {
        !std::mem::replace(&mut self.tables[at / self.span], true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { areas: Areas::Adjoining, tables: Tables::Go };

    #[test]
    fn a_block_that_comes_or_goes_changes_the_areas_that_it_touches_alone() {
        let mut layout = Layout::new(8, 4, KIND);
        let at: Vec<_> = (0..5)
            .map(|_| {
                let (at, area) = layout.map();
                layout.changed(area);
                at
            })
            .collect();
        assert_eq!(at, [0, 1, 2, 3, 4]);
        let cut = layout.unmap(2);
        assert_eq!((cut.clone(), layout.version(0), layout.area(1), layout.area(4)), (0..5, None, 0..2, 3..5));
        layout.changed(cut);
        let before = [0, 3].map(|at| layout.version(at));
        let end = layout.unmap(4);
        layout.changed(end);
        assert_eq!(layout.version(0), before[0], "an area apart does not change");
        assert_ne!(layout.version(3), before[1]);
        let (place, joined) = layout.map();
        assert_eq!((place, joined), (2, 0..4), "the first gap, and both neighbours");
    }

    #[test]
    fn a_table_goes_with_the_last_block_below_it() {
        let mut layout = Layout::new(4, 2, KIND);
        for _ in 0..3 {
            layout.map();
        }
        assert!(layout.make_table(0) && !layout.make_table(1) && layout.make_table(2));
        layout.unmap(0);
        assert!(layout.has_table(1));
        layout.unmap(1);
        assert!(!layout.has_table(1) && layout.has_table(2));
        let mut stays = Layout::new(4, 2, Kind { tables: Tables::Stay, ..KIND });
        let (at, _) = stays.map();
        stays.unmap(at);
        assert!(stays.has_table(at) && !stays.make_table(at));
    }

    /// Beside a list of what was mapped, from which areas and tables follow anew each time.
    #[test]
    fn random_changes_do_what_a_plain_list_does() {
        let mut seed = 19u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let (mut layout, mut mapped, mut tables) = (Layout::new(24, 4, KIND), [false; 24], [false; 6]);
        for _ in 0..2000 {
            let before: Vec<_> = (0..24).map(|at| layout.version(at)).collect();
            let free = mapped.iter().position(|mapped| !mapped);
            let comes = free.is_some() && below(2) == 0;
            let at = if comes { free.unwrap() } else { below(24) as usize };
            if !comes && !mapped[at] {
                continue;
            }
            let area = if comes {
                let (place, area) = layout.map();
                assert_eq!(place, at, "the first free place");
                area
            } else {
                layout.unmap(at)
            };
            let was = |i: usize| mapped[i] || i == at;
            let changes = |i: usize| (i.min(at)..=i.max(at)).all(was);
            for (i, before) in before.into_iter().enumerate() {
                assert_eq!(area.contains(&i), changes(i), "{i} and {at}");
                assert_eq!(layout.version(i).is_none(), changes(i));
                assert!(changes(i) || layout.version(i) == before);
            }
            mapped[at] = comes;
            layout.changed(area);
            for (i, table) in tables.iter_mut().enumerate() {
                *table &= mapped[4 * i..][..4].iter().any(|mapped| *mapped);
                assert_eq!(layout.has_table(4 * i), *table);
            }
            if mapped[at] && below(2) == 0 {
                assert_eq!(layout.make_table(at), !tables[at / 4]);
                tables[at / 4] = true;
            }
        }
    }
}
