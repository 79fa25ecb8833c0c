//! mmap and munmap as the program makes them: the kernel's part and the engine's.

use faultless_base::Span;
use faultless_fake::Fake;
use faultless_mm::Space;

/// A fresh mapping of `bytes` bytes, at a multiple of the slot size.
pub fn map(space: &Space<Fake>, fake: &Fake, bytes: usize) -> Span {
    let span = fake.map(bytes);
    space.mapped(0, span);
    span
}

/// Unmaps a range of mappings.
pub fn unmap(space: &Space<Fake>, fake: &Fake, span: Span) {
    let by_kernel = || {
        fake.unmap(span);
        true
    };
    if !space.unmap(0, span, by_kernel) {
        fake.unmap(span);
    }
}
