//! Writes to pages that a snapshot has protected.

use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::{PAGE, Span};

use super::{Fault, Outcome};
use crate::region::Region;
use crate::region::snapshot::Needed;
use faultless_page::stats::Counter;

impl<M: Mmu> Region<M> {
    /// Lets a write to a protected page through, after a copy of the page if a snapshot needs one. `None`: that is not
    /// what the write waits for.
    ///
    /// It takes no range: a thread that has one may write to its stack in the region, and wait here.
    pub(crate) fn let_write_through(&self, fault: Fault) -> Option<Outcome> {
        let page = fault.addr & !(PAGE - 1);
        if fault.wants != Rights::Write {
            return None;
        }
        let chain = self.snapshots.get()?;
        let mut turn = 0;
        let (view, let_through) = loop {
            {
                let area = self.areas.find_locked(page)?;
                if let Some((view, sequence)) = area.read().filter(|(view, _)| view.span.contains(page)) {
                    if view.attributes.rights != Rights::Write || view.attributes.kernel {
                        return None;
                    }
                    let _entry = self.entries.lock(page, |turn| self.mmu.relax(turn));
                    if area.sequence() == sequence {
                        break (view, self.let_through(chain, page, &view)?);
                    }
                }
            }
            // A change, or a snapshot that is being taken.
            self.mmu.relax(turn);
            turn += 1;
        };
        if let Ok((part, Needed::No)) = let_through {
            self.let_more_through(chain, page, Span { start: part.end, ..view.span });
        }
        self.count(Counter::SnapshotFault, 1, fault.cpu);
        Some(match let_through {
            Ok((part, _)) => Outcome::Installed(part),
            Err(error) => Outcome::Failed(error),
        })
    }
}
