//! Which counters are shown.

use anyhow::{Result, bail};
use faultless_mm::stats::{COUNTERS, Counter, Declared};
use glob::Pattern;

use crate::settings::suggestion;

/// Counters, in the order of their table, as places in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    places: Vec<usize>,
    /// Whether they were asked for by name.
    pub is_named: bool,
}

impl Selection {
    /// Those that one of `patterns` names, a list with commas each; all but details if there is none.
    pub fn new(patterns: &[String]) -> Result<Self> {
        let mut chosen = vec![patterns.is_empty(); COUNTERS.len()];
        for text in patterns.iter().flat_map(|list| list.split(',')).filter(|text| !text.is_empty()) {
            let Ok(pattern) = Pattern::new(text) else { bail!("{text:?} is no pattern") };
            let mut found = false;
            for (chosen, counter) in chosen.iter_mut().zip(COUNTERS) {
                let named = pattern.matches(counter.name);
                *chosen |= named;
                found |= named;
            }
            if !found {
                let names = COUNTERS.iter().map(|counter| counter.name);
                bail!("there is no counter {text:?}{}", suggestion(text, names));
            }
        }
        if !chosen.contains(&true) {
            bail!("no counter is named");
        }
        let is_named = chosen.contains(&false);
        let wanted = |i: &usize| chosen[*i] && (is_named || !COUNTERS[*i].is_detail || !patterns.is_empty());
        Ok(Self { places: (0..COUNTERS.len()).filter(wanted).collect(), is_named: !patterns.is_empty() })
    }

    /// These.
    pub fn of(counters: &[Counter]) -> Self {
        Self { places: counters.iter().map(|counter| *counter as usize).collect(), is_named: true }
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

    #[test]
    fn unknown_names_are_refused() {
        let error = |pattern: &str| names(&[pattern]).unwrap_err().to_string();
        assert_eq!(error("maloc_served"), "there is no counter \"maloc_served\"; did you mean malloc_served?");
        assert_eq!(error("q*"), "there is no counter \"q*\"");
        assert_eq!(error("[a"), "\"[a\" is no pattern");
        assert_eq!(error(","), "no counter is named");
    }
}
