//! Places where perf and bpftrace can look on (USDT), under the provider `pagefault`: how each fault of a region
//! ended that was tried speculatively. The argument is the address. Each is a `nop`, and a note in the file of the
//! program that says where.

use probe::probe;

/// How a speculative fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Spf {
    Success,
    VmaChanged,
    VmaNoanon,
    VmaNotsup,
    VmaAccess,
    PmdChanged,
}

/// Fires the probe of this outcome.
#[inline]
pub fn spf(end: Spf, addr: usize) {
    match end {
        Spf::Success => probe!(pagefault, spf_success, addr),
        Spf::VmaChanged => probe!(pagefault, spf_vma_changed, addr),
        Spf::VmaNoanon => probe!(pagefault, spf_vma_noanon, addr),
        Spf::VmaNotsup => probe!(pagefault, spf_vma_notsup, addr),
        Spf::VmaAccess => probe!(pagefault, spf_vma_access, addr),
        Spf::PmdChanged => probe!(pagefault, spf_pmd_changed, addr),
    }
}
