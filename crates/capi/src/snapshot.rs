//! Snapshots of regions, and what can be done with those of files.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use faultless::Background;
use faultless::region::{Region, Save, Snapshot};

use crate::call::Call;
use crate::error::{ARGUMENT, answer, mistake, number};
use crate::{end, make_of, range};

/// Takes a snapshot of a part of a region.
///
/// # Safety
/// `region` is null, or one that was made here and not freed; `snapshot` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_snapshot_take(
    region: *const Region,
    offset: usize,
    length: usize,
    snapshot: *mut *mut Snapshot,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { make_of(region, snapshot, |region| region.snapshot_of(range(offset, length)).map_err(number)) }
}

values! {
    Snapshot;
    /// How many bytes it has.
    faultless_snapshot_length: usize, 0, |snapshot| snapshot.len();
    /// How many bytes of copies it has.
    faultless_snapshot_held: usize, 0, |snapshot| snapshot.held();
}

/// Reads bytes of it.
///
/// # Safety
/// `snapshot` is null, or one that was given here and not freed; `buffer` is writable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_snapshot_read(
    snapshot: *const Snapshot,
    offset: usize,
    buffer: *mut u8,
    length: usize,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    let Some(snapshot) = (unsafe { snapshot.as_ref() }) else { return mistake(ARGUMENT) };
    if buffer.is_null() || length > isize::MAX as usize {
        return mistake(ARGUMENT);
    }
    // SAFETY: by contract.
    answer(snapshot.read_at(offset, unsafe { std::slice::from_raw_parts_mut(buffer, length) }))
}

/// Writes it to a file in the background.
///
/// # Safety
/// `snapshot` is null, or one that was given here and not freed; `path` is null, or text that ends with a zero byte;
/// `background` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_snapshot_save(
    snapshot: *const Snapshot,
    path: *const c_char,
    rate: u64,
    background: *mut *mut Background,
) -> c_int {
    let _call = Call::begin();
    let save = |snapshot: &Snapshot| {
        if path.is_null() {
            return Err(mistake(ARGUMENT));
        }
        let save = if rate > 0 { Save::new().rate(rate) } else { Save::new() };
        // SAFETY: by contract.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        save.start(snapshot, path).map_err(number)
    };
    // SAFETY: by contract.
    unsafe { make_of(snapshot, background, save) }
}

/// Drops it.
///
/// # Safety
/// Null, or what was given here, not freed, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_snapshot_free(snapshot: *mut Snapshot) {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { end(snapshot) };
}
