//! Reclaim of pages that areas map: owners are found, and their entries go. The areas and their tables are this
//! program's own, of a word for each page: no call of the kernel hides what it costs to find owners.

use std::ops::ControlFlow;
use std::time::Instant;

use clap::ValueEnum;
use faultless_base::Span;
use faultless_mm::owner::Walks;
use faultless_mm::owner::spans::Spans;

use super::chains::{Chains, Counts};

/// How owners are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Computed when a page goes.
    Lazy,
    /// From a list for each page, kept up at each map and unmap.
    Eager,
}

/// Options of the program.
#[derive(clap::Args, Clone)]
pub struct Reclaim {
    #[arg(long)]
    known: Known,
    /// Areas, each of which maps all pages.
    #[arg(long)]
    areas: usize,
    #[arg(long)]
    pages: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Reclaimed {
    /// Seconds in which all areas came, and mapped all pages.
    pub mapped: f64,
    /// Seconds in which they all went again, before they came for the second time.
    pub unmapped: f64,
    /// Seconds in which all pages went.
    pub reclaimed: f64,
    /// Entries that went.
    pub entries: u64,
    /// Questions, areas looked at, stale ones.
    pub walks: [u64; 3],
    /// What was done to lists.
    pub chains: Counts,
}

/// Who knows the owners of the pages of an object. Areas are numbers from 1 on.
trait Owners {
    fn area_came(&mut self, area: usize, span: Span);
    fn area_went(&mut self, area: usize);
    fn page_came(&mut self, area: usize, page: usize);
    fn page_went(&mut self, area: usize, page: usize);
    /// The areas that map a page; `maps` looks into the table of one.
    fn of(&mut self, page: usize, maps: &dyn Fn(usize) -> bool, owners: &mut Vec<usize>);
}

struct Computed {
    spans: Spans,
    walks: Walks,
}

impl Owners for Computed {
    fn area_came(&mut self, area: usize, span: Span) {
        self.spans.insert(area, span);
    }
    fn area_went(&mut self, area: usize) {
        self.spans.remove(area);
    }
    fn page_came(&mut self, _area: usize, _page: usize) {}
    fn page_went(&mut self, _area: usize, _page: usize) {}
    fn of(&mut self, page: usize, maps: &dyn Fn(usize) -> bool, owners: &mut Vec<usize>) {
        let walks = &mut self.walks;
        walks.computed += 1;
        self.spans.covering(page, |area| {
            walks.walked += 1;
            if maps(area) {
                owners.push(area);
            } else {
                walks.stale += 1;
            }
            ControlFlow::Continue(())
        });
    }
}

impl Owners for Chains {
    fn area_came(&mut self, _area: usize, _span: Span) {}
    fn area_went(&mut self, _area: usize) {}
    fn page_came(&mut self, area: usize, page: usize) {
        self.add(page, area as u32);
    }
    fn page_went(&mut self, area: usize, page: usize) {
        self.remove(page, area as u32);
    }
    fn of(&mut self, page: usize, _maps: &dyn Fn(usize) -> bool, owners: &mut Vec<usize>) {
        self.owners(page, |owner| owners.push(owner as usize));
    }
}

/// An object's areas and their tables.
struct Object<O> {
    owners: O,
    spans: Vec<Option<Span>>,
    tables: Vec<Vec<u64>>,
    found: Vec<usize>,
}

impl<O: Owners> Object<O> {
    fn new(owners: O, areas: usize) -> Self {
        Self { owners, spans: vec![None; areas + 1], tables: vec![Vec::new(); areas + 1], found: Vec::new() }
    }

    fn maps(&self, area: usize, page: usize) -> bool {
        self.spans[area].is_some_and(|span| span.contains(page) && self.tables[area][page - span.start] != 0)
    }

    fn map(&mut self, area: usize, span: Span) {
        self.owners.area_came(area, span);
        (self.spans[area], self.tables[area]) = (Some(span), vec![0; span.bytes()]);
    }

    /// All areas come, and map all pages.
    fn map_all(&mut self, what: &Reclaim) {
        for area in 1..=what.areas {
            self.map(area, Span::new(0, what.pages));
            (0..what.pages).for_each(|page| self.touch(area, page));
        }
    }

    /// A fault: the area has the page from now on.
    fn touch(&mut self, area: usize, page: usize) {
        if let Some(span) = self.spans[area].filter(|span| span.contains(page))
            && self.tables[area][page - span.start] == 0
        {
            self.tables[area][page - span.start] = page as u64 + 1;
            self.owners.page_came(area, page);
        }
    }

    fn unmap(&mut self, area: usize) {
        let Some(span) = self.spans[area].take() else { return };
        for page in span.start..span.end {
            if self.tables[area][page - span.start] != 0 {
                self.owners.page_went(area, page);
            }
        }
        self.owners.area_went(area);
    }

    /// The areas that map a page, in `found`.
    fn find(&mut self, page: usize) {
        self.found.clear();
        let (spans, tables) = (&self.spans, &self.tables);
        let maps = |area: usize| spans[area].is_some_and(|span| tables[area][page - span.start] != 0);
        self.owners.of(page, &maps, &mut self.found);
    }

    /// A page goes from all areas; how many had it.
    fn reclaim(&mut self, page: usize) -> usize {
        self.find(page);
        let found = std::mem::take(&mut self.found);
        for area in &found {
            debug_assert!(self.maps(*area, page));
            if let Some(span) = self.spans[*area] {
                self.tables[*area][page - span.start] = 0;
                self.owners.page_went(*area, page);
            }
        }
        self.found = found;
        self.found.len()
    }
}

fn measure<O: Owners>(what: &Reclaim, owners: O) -> (Reclaimed, O) {
    let mut object = Object::new(owners, what.areas);
    let begun = Instant::now();
    object.map_all(what);
    let mapped = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    (1..=what.areas).for_each(|area| object.unmap(area));
    let unmapped = begun.elapsed().as_secs_f64();
    object.map_all(what);
    let begun = Instant::now();
    let entries = (0..what.pages).map(|page| object.reclaim(page) as u64).sum();
    let reclaimed = begun.elapsed().as_secs_f64();
    (Reclaimed { mapped, unmapped, reclaimed, entries, ..Reclaimed::default() }, object.owners)
}

/// Runs it.
pub fn run(what: &Reclaim) -> std::io::Result<Reclaimed> {
    Ok(match what.known {
        Known::Lazy => {
            let spans = Spans::new(what.areas).ok_or(std::io::ErrorKind::OutOfMemory)?;
            let (all, Computed { walks, .. }) = measure(what, Computed { spans, walks: Walks::default() });
            Reclaimed { walks: [walks.computed, walks.walked, walks.stale], ..all }
        }
        Known::Eager => {
            let (all, chains) = measure(what, Chains::empty(what.pages));
            Reclaimed { chains: chains.counts, ..all }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREAS: usize = 12;
    const PAGES: usize = 20;

    /// Owners found are those that a walk through all tables finds, after each of many steps.
    fn walk_all_tables<O: Owners>(owners: O) -> O {
        let mut object = Object::new(owners, AREAS);
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) as usize % below
        };
        for step in 0..4000 {
            let (area, page) = (1 + next(AREAS), next(PAGES));
            match next(12) {
                0 => object.unmap(area),
                1 => assert!(object.reclaim(page) <= AREAS),
                2..5 if object.spans[area].is_none() => {
                    object.map(area, Span::new(page, 1 + next(PAGES - page)));
                }
                _ => object.touch(area, page),
            }
            for page in 0..PAGES {
                object.find(page);
                let mut found = object.found.clone();
                found.sort_unstable();
                let naive = (1..=AREAS).filter(|area| object.maps(*area, page));
                assert!(found.iter().copied().eq(naive), "{step}: page {page}: {found:?}");
            }
        }
        object.owners
    }

    #[test]
    fn owners_found_are_owners_that_exist() {
        let walks = walk_all_tables(Computed { spans: Spans::new(AREAS).unwrap(), walks: Walks::default() }).walks;
        assert!(walks.stale > 0 && walks.walked > walks.stale, "{walks:?}");
        let counts = walk_all_tables(Chains::empty(PAGES)).counts;
        assert!(counts.added.iter().all(|n| *n > 0) && counts.removed.iter().all(|n| *n > 0), "{counts:?}");
    }

    #[test]
    fn computed_owners_do_nothing_for_a_page_before_it_goes() {
        let what = |known| Reclaim { known, areas: 3, pages: 50 };
        let lazy = run(&what(Known::Lazy)).unwrap();
        assert_eq!((lazy.entries, lazy.walks, lazy.chains.locked), (150, [50, 150, 0], 0));
        let eager = run(&what(Known::Eager)).unwrap();
        assert_eq!((eager.entries, eager.walks, eager.chains.added), (150, [0; 3], [100, 100, 100]));
        // Once for each owner that came, once for each that went, once for each question.
        assert_eq!(eager.chains.locked, 2 * (150 + 150) + 50);
    }
}
