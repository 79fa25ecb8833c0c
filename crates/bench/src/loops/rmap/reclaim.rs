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
    /// Computed when they are first asked for; from then on, from a list.
    Kept,
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
    /// Seconds in which all pages were looked at: whether an owner had used them since the last look.
    pub looked: f64,
    /// Seconds in which all pages went.
    pub reclaimed: f64,
    /// Entries that went.
    pub entries: u64,
    /// Questions, areas looked at, stale ones.
    pub walks: [u64; 3],
    /// What was done to lists.
    pub chains: Counts,
    /// Owners added to lists by faults and by looks, and removed by unmapping and by reclaim.
    pub callers: [u64; 4],
}

/// Who knows the owners of the pages of an object. Areas are numbers from 1 on.
trait Owners {
    fn area_came(&mut self, area: usize, span: Span);
    fn area_went(&mut self, area: usize);
    fn page_came(&mut self, area: usize, page: usize);
    fn page_went(&mut self, area: usize, page: usize);
    /// The areas that map a page; `maps` looks into the table of one.
    fn of(&mut self, page: usize, maps: &dyn Fn(usize) -> bool, owners: &mut Vec<usize>);
    /// What was done to lists so far.
    fn counts(&self) -> Counts {
        Counts::default()
    }
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
    fn counts(&self) -> Counts {
        self.counts
    }
}

/// Lists that begin when owners are asked for.
struct Begun {
    computed: Computed,
    chains: Chains,
}

impl Owners for Begun {
    fn area_came(&mut self, area: usize, span: Span) {
        self.computed.area_came(area, span);
    }
    fn area_went(&mut self, area: usize) {
        self.computed.area_went(area);
    }
    fn page_came(&mut self, area: usize, page: usize) {
        self.chains.page_came(area, page);
    }
    fn page_went(&mut self, area: usize, page: usize) {
        self.chains.page_went(area, page);
    }
    fn of(&mut self, page: usize, maps: &dyn Fn(usize) -> bool, owners: &mut Vec<usize>) {
        if self.chains.has_list(page) {
            return self.chains.of(page, maps, owners);
        }
        self.computed.of(page, maps, owners);
        self.chains.begin(page, owners.iter().map(|area| *area as u32));
    }
    fn counts(&self) -> Counts {
        self.chains.counts
    }
}

/// Of an entry: the owner has used the page since the last look.
const USED: u64 = 1 << 63;

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
            self.tables[area][page - span.start] = USED | (page as u64 + 1);
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

    /// Whether an owner has used a page since the last look: what second chance asks before a page goes.
    fn look(&mut self, page: usize) -> bool {
        self.find(page);
        let mut was_used = false;
        for area in &self.found {
            if let Some(span) = self.spans[*area] {
                let entry = &mut self.tables[*area][page - span.start];
                was_used |= *entry & USED != 0;
                *entry &= !USED;
            }
        }
        was_used
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
    let sums = |counts: Counts| (counts.added.iter().sum::<u64>(), counts.removed.iter().sum::<u64>());
    let timed = |object: &mut Object<O>, work: &mut dyn FnMut(&mut Object<O>)| {
        let before = object.owners.counts();
        let begun = Instant::now();
        work(object);
        let seconds = begun.elapsed().as_secs_f64();
        (seconds, sums(object.owners.counts().since(&before)))
    };
    let (mapped, (added, _)) = timed(&mut object, &mut |object| object.map_all(what));
    let (unmapped, (_, removed)) =
        timed(&mut object, &mut |object| (1..=what.areas).for_each(|area| object.unmap(area)));
    let (_, (added_again, _)) = timed(&mut object, &mut |object| object.map_all(what));
    let mut used = 0;
    let (looked, (begun, _)) = timed(&mut object, &mut |object| {
        used = (0..what.pages).filter(|page| object.look(*page)).count();
    });
    debug_assert_eq!(used, what.pages);
    let mut entries = 0;
    let (reclaimed, (_, taken)) = timed(&mut object, &mut |object| {
        entries = (0..what.pages).map(|page| object.reclaim(page) as u64).sum();
    });
    let (callers, chains) = ([added + added_again, begun, removed, taken], object.owners.counts());
    let all = Reclaimed { mapped, unmapped, looked, reclaimed, entries, callers, chains, walks: [0; 3] };
    (all, object.owners)
}

/// Runs it.
pub fn run(what: &Reclaim) -> std::io::Result<Reclaimed> {
    let computed = || -> std::io::Result<Computed> {
        let spans = Spans::new(what.areas).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Computed { spans, walks: Walks::default() })
    };
    let with_walks = |all: Reclaimed, walks: Walks| {
        let walks = [walks.computed, walks.walked, walks.stale];
        Reclaimed { walks, ..all }
    };
    Ok(match what.known {
        Known::Lazy => {
            let (all, owners) = measure(what, computed()?);
            with_walks(all, owners.walks)
        }
        Known::Eager => measure(what, Chains::empty(what.pages)).0,
        Known::Kept => {
            let owners = Begun { computed: computed()?, chains: Chains::without_lists(what.pages) };
            let (all, owners) = measure(what, owners);
            with_walks(all, owners.computed.walks)
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
        let computed = || Computed { spans: Spans::new(AREAS).unwrap(), walks: Walks::default() };
        let walks = walk_all_tables(computed()).walks;
        assert!(walks.stale > 0 && walks.walked > walks.stale, "{walks:?}");
        let counts = walk_all_tables(Chains::empty(PAGES)).counts;
        assert!(counts.added.iter().all(|n| *n > 0) && counts.removed.iter().all(|n| *n > 0), "{counts:?}");
        let begun = Begun { computed: computed(), chains: Chains::without_lists(PAGES) };
        let begun = walk_all_tables(begun);
        // Each page was asked for once without a list: after the first step, before most areas came.
        assert_eq!(begun.computed.walks.computed, PAGES as u64);
        assert!(begun.chains.counts.added.iter().all(|n| *n > 0), "{:?}", begun.chains.counts);
    }

    #[test]
    fn computed_owners_do_nothing_for_a_page_before_it_goes() {
        let what = |known| Reclaim { known, areas: 3, pages: 50 };
        // Each page is looked at, and then goes.
        let lazy = run(&what(Known::Lazy)).unwrap();
        assert_eq!((lazy.entries, lazy.walks, lazy.chains.locked), (150, [100, 300, 0], 0));
        assert_eq!(lazy.callers, [0; 4]);
        let eager = run(&what(Known::Eager)).unwrap();
        assert_eq!((eager.entries, eager.walks, eager.chains.added), (150, [0; 3], [100, 100, 100]));
        assert_eq!(eager.callers, [300, 0, 150, 150]);
        // Once for each owner that came, once for each that went, once for each question.
        assert_eq!(eager.chains.locked, 2 * (150 + 150) + 2 * 50);
        let kept = run(&what(Known::Kept)).unwrap();
        // Nothing was kept up before the look, which made the lists.
        assert_eq!((kept.entries, kept.walks, kept.chains.nope), (150, [50, 150, 0], [300, 150]));
        assert_eq!((kept.callers, kept.chains.locked), ([0, 150, 0, 150], 150 + 50 + 150));
    }

    #[test]
    fn a_page_that_was_looked_at_is_used_no_more() {
        let mut object = Object::new(Chains::empty(2), 2);
        (1..=2).for_each(|area| object.map(area, Span::new(0, 2)));
        object.touch(2, 1);
        assert!(!object.look(0) && object.look(1) && !object.look(1));
        object.touch(1, 1);
        assert!(object.look(1) && object.reclaim(1) == 2);
    }
}
