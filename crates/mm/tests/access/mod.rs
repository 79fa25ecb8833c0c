//! Accesses to a region over a simulated memory, as a processor makes them.

use faultless_base::sys::mmu::Rights;
use faultless_base::{PAGE, Span};
use faultless_fake::mmu::{FakeMmu, Found};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::region::Region;

use crate::made::BASE;

/// Some of its pages.
pub fn span(first: usize, pages: usize) -> Span {
    Span::new(BASE + first * PAGE, pages * PAGE)
}

/// Reads or writes the first byte of a page, faulting as often as it takes. Returns the byte that was there and the spans
/// that the faults said they brought, or how the last fault ended.
pub fn access(region: &Region<FakeMmu>, page: usize, write: Option<u8>) -> Result<(u8, Vec<Span>), Outcome> {
    let addr = span(page, 1).start;
    let wants = if write.is_some() { Rights::Write } else { Rights::Read };
    let mut brought = Vec::new();
    for _ in 0..3 {
        match write.map_or_else(|| region.read(addr), |byte| region.write(addr, byte)) {
            Found::Byte(byte) => return Ok((byte, brought)),
            Found::Forbidden => return Err(Outcome::Forbidden),
            Found::Poisoned => panic!("an error at {addr:#x}"),
            Found::Missing => match region.fault(Fault { addr, wants, hint: 1, cpu: 1 }) {
                Outcome::Installed(there) => brought.push(there),
                other => return Err(other),
            },
        }
    }
    panic!("a page that does not come");
}
