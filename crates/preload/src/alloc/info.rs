//! What the C library tells of its blocks. Ours are added: as blocks with mappings of their own.

use core::ffi::c_int;

use faultless_mm::blocks::InUse;

use crate::kernel::behind::{Function, next};
use crate::runtime::engine;

/// `struct mallinfo`, or with larger numbers `struct mallinfo2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info<N> {
    arena: N,
    free_blocks: N,
    fast_blocks: N,
    mapped_blocks: N,
    mapped_bytes: N,
    most_bytes: N,
    fast_bytes: N,
    used_bytes: N,
    free_bytes: N,
    trimmable_bytes: N,
}

fn ask<N: Copy + Default>(function: Function) -> Info<N> {
    let next = next(function);
    if next == 0 {
        let none = N::default();
        return Info {
            arena: none,
            free_blocks: none,
            fast_blocks: none,
            mapped_blocks: none,
            mapped_bytes: none,
            most_bytes: none,
            fast_bytes: none,
            used_bytes: none,
            free_bytes: none,
            trimmable_bytes: none,
        };
    }
    // SAFETY: the function of that name, of which `N` is the kind of numbers.
    unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> Info<N>>(next)() }
}

/// Our blocks.
fn ours() -> InUse {
    engine::running().map(|engine| engine.space.blocks_in_use()).unwrap_or_default()
}

/// As mallinfo(3), of which the numbers overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo() -> Info<c_int> {
    let (mut info, ours) = (ask::<c_int>(Function::Mallinfo), ours());
    info.mapped_blocks = info.mapped_blocks.wrapping_add(ours.blocks as c_int);
    info.mapped_bytes = info.mapped_bytes.wrapping_add(ours.bytes as c_int);
    info
}

/// As mallinfo2(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo2() -> Info<usize> {
    let (mut info, ours) = (ask::<usize>(Function::Mallinfo2), ours());
    info.mapped_blocks += ours.blocks;
    info.mapped_bytes += ours.bytes;
    info
}
