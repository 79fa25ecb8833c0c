//! What faultless counted in the processes of a program that ran under it.

use std::io;

use faultless_measure::pages::Dir;
use faultless_page::stats::COUNTERS;

use crate::file::{COUNTED_VERSION, Counted};

/// Pages that could not be read, of which each is named.
const MOST_NAMED: usize = 10;

/// Adds up what the processes have left in a directory, when they have ended.
pub fn counted(dir: &io::Result<Dir>) -> Counted {
    let read = dir.as_ref().map_err(ToString::to_string).and_then(|dir| dir.read().map_err(|e| e.to_string()));
    let (pages, mut unreadable) =
        read.unwrap_or_else(|error| (Vec::new(), vec![format!("no place for counters: {error}")]));
    let folded = dir.as_ref().map(Dir::folded).unwrap_or_default();
    let sum = folded.with(&pages);
    let served = pages.iter().filter(|page| page.is_served()).count() + folded.served();
    unreadable.truncate(MOST_NAMED);
    let named = COUNTERS.iter().zip(sum.values()).filter(|(_, value)| **value > 0);
    Counted {
        version: COUNTED_VERSION,
        processes: (pages.len() + folded.processes()) as u64,
        served: served as u64,
        lost: dir.as_ref().is_ok_and(Dir::has_lost),
        unreadable,
        counters: named.map(|(declared, value)| (declared.name.to_owned(), *value)).collect(),
    }
}
