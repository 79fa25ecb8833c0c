//! What several areas of the kernel's are to the program: perhaps only advice of the engine's divides a mapping.

use faultless_base::Span;
use faultless_base::sys::open;

use crate::kernel::dispatch;
use crate::kernel::smaps::{self, Mapping};
use crate::runtime::{engine, seen};

/// What `span` is to the program, as far as the kernel tells.
pub fn look_up(span: Span) -> Mapping {
    // A program that has confined itself may not be allowed a thread.
    match engine::is_retired() || dispatch::has_begun() {
        true => smaps::look_up(span, seen::watches()),
        false => open::apart(|| smaps::look_up(span, seen::watches())).unwrap_or(Mapping::One),
    }
}
