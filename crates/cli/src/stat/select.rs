//! Which counters are shown, and under which names: their own, or those that `perf stat` would have for them.

use anyhow::{Result, bail};
use faultless_page::stats::{COUNTERS, Counter, Declared};
use glob::Pattern;

use crate::settings::suggestion;

/// Names of events for counters, besides those of trace events, which the table of counters has itself.
const EVENTS: [(&str, Counter); 4] = [
    (FAULTS, Counter::RegionPgfault),
    (FAULTS_OF_REGIONS, Counter::RegionPgfault),
    ("spf", Counter::SpeculativePgfault),
    ("pagefault:spf_success", Counter::SpeculativePgfault),
];
/// The event of all page faults of a process. The kernel counts its own, and regions those that they resolve; each
/// has a line.
pub const FAULTS: &str = "faults";
const FAULTS_OF_REGIONS: &str = "faults_regions";
/// What names of trace events begin with.
const TRACE: &str = "pagefault:";
/// The event that comes with the reasons why it did not happen.
const GROUP: (&str, &str) = ("spf", "spf_*");

/// Counters, in the order of their table, as places in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    places: Vec<usize>,
    /// As what each was asked for.
    labels: Vec<&'static str>,
    /// Whether they were asked for by name.
    pub is_named: bool,
    /// Whether the kernel's page faults are shown before them.
    pub has_faults: bool,
}

impl Selection {
    /// Those that one of `patterns` names, a list with commas each; all but details if there is none. A counter is called
    /// what it was first asked for as.
    pub fn new(patterns: &[String]) -> Result<Self> {
        let mut labels: Vec<Option<&'static str>> = vec![None; COUNTERS.len()];
        let (mut has_group, mut has_faults) = (false, false);
        for text in patterns.iter().flat_map(|list| list.split(',')).filter(|text| !text.is_empty()) {
            let Ok(pattern) = Pattern::new(text) else { bail!("{text:?} is no pattern") };
            let named: Vec<_> = names().filter(|(name, _)| pattern.matches(name)).collect();
            if named.is_empty() {
                bail!("there is no counter {text:?}{}", suggestion(text, names().map(|(name, _)| name)));
            }
            for (name, counter) in named {
                // A pattern of its own name names it, whatever else does.
                let own = COUNTERS[counter].name;
                has_faults |= name == FAULTS;
                let name = if name == FAULTS { FAULTS_OF_REGIONS } else { name };
                labels[counter].get_or_insert(if pattern.matches(own) { own } else { name });
            }
            has_group |= text == GROUP.0;
        }
        // Last: counters that the user names himself keep the names that he used.
        let reasons = Pattern::new(GROUP.1)?;
        for (label, counter) in labels.iter_mut().zip(COUNTERS) {
            if has_group && reasons.matches(counter.name) {
                label.get_or_insert(counter.name);
            }
        }
        if patterns.is_empty() {
            let usual = COUNTERS.iter().map(|counter| (!counter.is_detail).then_some(counter.name));
            labels = usual.collect();
        }
        if labels.iter().all(Option::is_none) {
            bail!("no counter is named");
        }
        let (places, labels) = labels.iter().enumerate().filter_map(|(i, label)| Some((i, (*label)?))).unzip();
        Ok(Self { places, labels, is_named: !patterns.is_empty(), has_faults })
    }

    /// These.
    pub fn of(counters: &[Counter]) -> Self {
        let places = counters.iter().map(|counter| *counter as usize).collect();
        let labels = counters.iter().map(|counter| counter.declared().name).collect();
        Self { places, labels, is_named: true, has_faults: false }
    }

    /// Whether regions are shown one by one: unless others were asked for.
    pub fn wants_regions(&self) -> bool {
        !self.is_named || self.labels.iter().any(|label| label.starts_with("region_"))
    }

    /// What they are called.
    pub fn labels(&self) -> impl Iterator<Item = &'static str> + Clone + '_ {
        self.labels.iter().copied()
    }

    /// Their places in the table.
    pub fn places(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.places.iter().copied()
    }

    /// How they show themselves.
    pub fn declared(&self) -> impl Iterator<Item = &'static Declared> + Clone + '_ {
        self.places.iter().map(|place| &COUNTERS[*place])
    }
}

/// Every name, with the place of its counter.
fn names() -> impl Iterator<Item = (&'static str, usize)> {
    let own = COUNTERS.iter().enumerate().map(|(i, counter)| (counter.name, i));
    let traced = COUNTERS.iter().enumerate().map(|(i, counter)| (counter.linux, i));
    let traced = traced.filter(|(name, _)| name.starts_with(TRACE));
    own.chain(EVENTS.map(|(name, counter)| (name, counter as usize))).chain(traced)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &[&str]) -> Result<Vec<&'static str>> {
        let patterns: Vec<_> = patterns.iter().map(|p| p.to_string()).collect();
        Ok(Selection::new(&patterns)?.declared().map(|counter| counter.name).collect())
    }

    #[test]
    fn names_and_patterns_choose_counters() {
        assert_eq!(names(&["malloc_served,mmap_*"]).unwrap(), ["mmap_served", "mmap_bytes", "malloc_served"]);
        assert_eq!(names(&["*"]).unwrap().len(), COUNTERS.len());
        let usual = names(&[]).unwrap();
        assert!(usual.contains(&"mmap_served") && !usual.contains(&"worker_starts"));
        assert_eq!(names(&["worker_starts"]).unwrap(), ["worker_starts"]);
    }

    /// The line that the patches of 2019 measure with, and the names that they print.
    #[test]
    fn events_are_called_what_they_were_asked_for_as() {
        let labels = |text: &str| Selection::new(&[text.to_owned()]).unwrap().labels().collect::<Vec<_>>();
        let reasons = ["vma_changed", "vma_noanon", "vma_notsup", "vma_access", "pmd_changed"];
        let expect = |first: &[&str], prefix: &str| {
            let reasons = reasons.iter().map(|reason| format!("{prefix}spf_{reason}"));
            first.iter().map(|name| name.to_string()).chain(reasons).collect::<Vec<_>>()
        };
        assert_eq!(labels("faults,spf"), expect(&["faults_regions", "spf"], ""));
        assert_eq!(labels("faults,spf,pagefault:*"), expect(&["faults_regions", "spf"], "pagefault:"));
        assert_eq!(labels("pagefault:*"), expect(&["pagefault:spf_success"], "pagefault:"));
        assert_eq!(labels("pagefault:spf_vma_changed"), ["pagefault:spf_vma_changed"]);
        assert_eq!(labels("spf_vma_changed,pagefault:*")[1], "spf_vma_changed");
        assert_eq!(labels("*").len(), COUNTERS.len());
        assert!(labels("*").iter().zip(COUNTERS).all(|(label, counter)| *label == counter.name));
    }

    #[test]
    fn the_kernels_page_faults_are_shown_where_they_are_asked_for() {
        let has = |text: &str| Selection::new(&[text.to_owned()]).unwrap().has_faults;
        assert!(["faults", "faults,spf", "*"].into_iter().all(has));
        assert!(!["spf", "faults_regions", "region_pgfault", "pagefault:*"].into_iter().any(has));
        assert!(!Selection::new(&[]).unwrap().has_faults);
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = |pattern: &str| names(&[pattern]).unwrap_err().to_string();
        assert_eq!(error("maloc_served"), "there is no counter \"maloc_served\"; did you mean malloc_served?");
        assert_eq!(error("q*"), "there is no counter \"q*\"");
        assert_eq!(error("[a"), "\"[a\" is no pattern");
        assert_eq!(error(","), "no counter is named");
    }
}
