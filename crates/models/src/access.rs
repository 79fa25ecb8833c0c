//! Accesses to a region over a simulated memory, as a processor makes them.

use faultless_base::sys::mmu::Rights;
use faultless_fake::mmu::{FakeMmu, Found};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::region::Region;

/// Reads or writes the byte at `addr` until its page is there, or may not be accessed. `hint` tells threads apart.
pub fn accessed(region: &Region<FakeMmu>, addr: usize, write: Option<u8>, hint: usize) -> Option<u8> {
    let wants = if write.is_some() { Rights::Write } else { Rights::Read };
    for _ in 0..100 {
        match write.map_or_else(|| region.read(addr), |byte| region.write(addr, byte)) {
            Found::Byte(byte) => return Some(byte),
            Found::Forbidden | Found::Poisoned => return None,
            Found::Missing => {
                let outcome = region.fault(Fault { addr, wants, hint, cpu: hint });
                assert!(!matches!(outcome, Outcome::Failed(_) | Outcome::Lost(_)), "{outcome:?}");
            }
        }
    }
    panic!("a page that does not come");
}
