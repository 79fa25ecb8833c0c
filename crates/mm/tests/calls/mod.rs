//! mmap and munmap as the program makes them, on some processor: the kernel's part and the engine's.

use faultless_base::Span;
use faultless_fake::Fake;
use faultless_mm::Space;

/// A fresh mapping of `bytes` bytes, at a multiple of the slot size.
pub fn map(space: &Space<Fake>, fake: &Fake, cpu: usize, bytes: usize) -> Span {
    let span = fake.map(bytes);
    space.mapped(cpu, span);
    span
}

/// Unmaps a range of mappings.
pub fn unmap(space: &Space<Fake>, fake: &Fake, cpu: usize, span: Span) {
    let by_kernel = || {
        fake.unmap(span);
        true
    };
    if !space.unmap(cpu, span, by_kernel) {
        fake.unmap(span);
        space.forget(span);
    }
}
