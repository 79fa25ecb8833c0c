//! Moments are kept and let go without a pause, of memory of few and of many areas. Where processor time goes meanwhile is
//! looked at once more.

use crate::aims::Aims;
use crate::loops::{RmapWay as Way, Stormed};
use crate::profile;
use crate::table::{self, NOTHING};
use crate::turns::ratio;
use faultless_measure::paired::{Spread, median};

use super::runs::Runs;

const ROUNDS: usize = 7;
/// Bytes of all areas together, and numbers of areas.
const SIZE: u64 = 64 << 20;
const AREAS: [usize; 3] = [1, 64, 4096];
/// How much faster a storm is without lists.
const GAIN: f64 = 1.15;

/// Runs them and prints the table.
pub fn table(runs: &mut Runs, aims: &mut Aims) {
    let size = runs.context.size(SIZE);
    println!(
        "**Storms** of snapshots, of {} in 4 KiB pages. While each is kept, 16 pages are written, and an area is \
         unmapped, mapped and written\n",
        table::bytes(size as f64)
    );
    let mut rows = table::new_table(&[
        "areas, way",
        "moments a second",
        "to lists of owners",
        "to fork",
        "owners added to a page, each moment",
        "removed",
        "of pages without a list",
        "locks taken",
    ]);
    for areas in AREAS {
        let rounds = runs.storms(areas, size, ROUNDS);
        for (way, all) in &rounds {
            let Some(rate) = Spread::of(&all.iter().map(|storm| storm.rate).collect::<Vec<_>>()) else { continue };
            let to = |other: Way| match ratio(&rounds, way, &other, |storm: &Stormed| storm.rate) {
                Ok(ratio) if *way != other => table::interval(&ratio),
                _ => NOTHING.into(),
            };
            let each = |count: fn(&Stormed) -> u64| {
                let all: Vec<_> = all.iter().map(|storm| count(storm) as f64 / storm.rounds as f64).collect();
                format!("{:.0}", median(&all).unwrap_or(0.0))
            };
            rows.add_row([
                format!("{areas}, {}", way.name()),
                format!("{:.0} ({:.0}..{:.0})", rate.median, rate.min, rate.max),
                to(Way::Eager),
                to(Way::Fork),
                each(|storm| storm.chains.added.iter().sum()),
                each(|storm| storm.chains.removed.iter().sum()),
                each(|storm| storm.chains.nope.iter().sum()),
                each(|storm| storm.chains.locked),
            ]);
        }
        let gain = ratio(&rounds, &Way::Lazy, &Way::Eager, |storm: &Stormed| storm.rate);
        aims.at_least(&format!("a storm of snapshots of {areas} areas, beside lists of owners"), GAIN, gain);
    }
    println!("{rows}\n");
    let looked_at = if runs.context.full { &AREAS[..] } else { &AREAS[1..2] };
    for areas in looked_at.iter().copied() {
        let functions = runs.functions_of_storms(areas, size);
        profile::print(&format!("a storm of {areas} areas"), functions);
    }
}
