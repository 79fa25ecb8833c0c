//! The background thread has the processor.

use faultless_fake::Fake;
use faultless_mm::{Progress, Space};

/// Background steps until there is nothing to do for some time. The budget, in slots, is kept after each.
pub fn rest(space: &Space<Fake>, limit: usize) {
    let mut waits = 0;
    while waits < 4 {
        match space.step() {
            Progress::Worked => {}
            Progress::Wait(_) => waits += 1,
            Progress::Idle => return,
        }
        let (idle, charged) = (space.budget().idle(), space.budget().charged());
        assert!(idle + charged <= limit, "{idle} idle, {charged} charged");
    }
}
