//! Files.

use std::ffi::{c_int, c_void};
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::ptr::null_mut;

use faultless::file::{Advice, CacheGroup, Delivery, File, Mapping, MappingMut, Snapshot, sync_all};

use crate::call::Call;
use crate::error::{ARGUMENT, io_answer, io_number, mistake};
use crate::{end, hand_out, make_of};

/// `faultless_part`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Part {
    offset: u64,
    length: u64,
}

/// A part that is mapped.
pub enum Mapped {
    /// For reading.
    Read(Mapping),
    /// For both.
    Write(MappingMut),
}

impl Mapped {
    fn part(&self) -> &Mapping {
        match self {
            Self::Read(part) => part,
            Self::Write(part) => part,
        }
    }
}

fn range(offset: u64, length: u64) -> Range<u64> {
    offset..offset.saturating_add(length)
}

/// Gives a number to the caller; 0 with an error.
///
/// # Safety
/// `to` is null or writable.
unsafe fn tell(done: io::Result<usize>, to: *mut usize) -> c_int {
    let bytes = *done.as_ref().unwrap_or(&0);
    // SAFETY: by contract.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = bytes;
    }
    io_answer(done.map(drop))
}

/// The end of a call that was given a null pointer: nothing was done.
///
/// # Safety
/// `to` is null or writable.
unsafe fn nothing(to: *mut usize) -> c_int {
    // SAFETY: by contract.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = 0;
    }
    mistake(ARGUMENT)
}

/// A descriptor of the caller's.
fn borrowed(fd: c_int) -> io::Result<ManuallyDrop<fs::File>> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not closed here. Of a number that is no descriptor the kernel says so.
    Ok(ManuallyDrop::new(unsafe { fs::File::from_raw_fd(fd) }))
}

/// The cache of an open file.
///
/// # Safety
/// `file` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_new(fd: c_int, small_pages: c_int, file: *mut *mut File) -> c_int {
    let _call = Call::begin();
    if file.is_null() {
        return mistake(ARGUMENT);
    }
    let open = |of: ManuallyDrop<fs::File>| match small_pages {
        0 => File::new(&of),
        _ => File::with_small_pages(&of),
    };
    // SAFETY: by contract.
    unsafe { hand_out(borrowed(fd).and_then(open).map_err(io_number), file) }
}

/// Ends a handle.
///
/// # Safety
/// Null, or a file that was made here, not freed, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_free(file: *mut File) {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { end(file) };
}

values! {
    File;
    /// Its length.
    faultless_file_length: u64, 0, File::len;
    /// How many bytes of it are in memory.
    faultless_file_present: usize, 0, File::present;
    /// Whether it is read past the kernel's page cache.
    faultless_file_is_direct: c_int, 0, |file| file.is_direct() as c_int;
}

/// Reads bytes.
///
/// # Safety
/// `file` is null, or one that was made here and not freed; `buffer` is writable for that many bytes, `done` null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_read(
    file: *const File,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    done: *mut usize,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    let Some(file) = (unsafe { file.as_ref() }).filter(|_| !buffer.is_null() || length == 0) else {
        // SAFETY: by contract.
        return unsafe { nothing(done) };
    };
    let buffer = match length {
        0 => &mut [],
        // SAFETY: by contract.
        _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) },
    };
    // SAFETY: by contract.
    unsafe { tell(file.read_at(buffer, offset), done) }
}

/// What the caller gives; none of it may be at null. `None`: some of it is.
///
/// # Safety
/// `at` is null, or readable for that many.
unsafe fn slice<'a, T>(at: *const T, count: usize) -> Option<&'a [T]> {
    match count {
        0 => Some(&[]),
        // SAFETY: the caller's promise.
        _ => (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, count) }),
    }
}

/// Writes bytes.
///
/// # Safety
/// As [`faultless_file_read`]; `bytes` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_write(
    file: *const File,
    offset: u64,
    bytes: *const c_void,
    length: usize,
    done: *mut usize,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe {
        let (Some(file), Some(bytes)) = (file.as_ref(), slice(bytes.cast(), length)) else {
            return nothing(done);
        };
        tell(file.write_at(bytes, offset), done)
    }
}

/// Brings parts into memory.
///
/// # Safety
/// `file` is null, or one that was made here and not freed; `parts` is readable for that many, `done` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_prefetch(
    file: *const File,
    parts: *const Part,
    count: usize,
    done: *mut usize,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe {
        let (Some(file), Some(parts)) = (file.as_ref(), slice(parts, count)) else { return nothing(done) };
        let parts: Vec<_> = parts.iter().map(|part| range(part.offset, part.length)).collect();
        tell(file.prefetch(&parts), done)
    }
}

/// Functions of a file that answer with an error.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*), |$file:ident| $call:expr;)+) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// Null, or a file that was made here and not freed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(file: *const File, $($arg: $type),*) -> c_int {
            let _call = Call::begin();
            // SAFETY: by contract.
            let Some($file) = (unsafe { file.as_ref() }) else { return mistake(ARGUMENT) };
            io_answer($call)
        })+
    };
}

calls! {
    /// Makes it longer or shorter.
    faultless_file_set_length(length: u64), |file| file.set_len(length);
    /// Has a part read as zero.
    faultless_file_punch(offset: u64, length: u64), |file| file.punch_hole(range(offset, length));
    /// Writes a part back.
    faultless_file_sync(offset: u64, length: u64), |file| file.sync_range(range(offset, length));
}

/// `enum faultless_advice`, which regions know some of.
fn file_advice(number: c_int) -> Option<Advice> {
    use Advice::*;
    let all = [Normal, Random, Huge, NoHuge, DontNeed, Sequential, WillNeed];
    all.get(usize::try_from(number).ok()?).copied()
}

/// Takes advice about a part.
///
/// # Safety
/// Null, or a file that was made here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_advise(
    file: *const File,
    offset: u64,
    length: u64,
    advice: c_int,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    match (unsafe { file.as_ref() }, file_advice(advice)) {
        (Some(file), Some(advice)) => io_answer(file.advise(range(offset, length), advice)),
        _ => mistake(ARGUMENT),
    }
}

/// Takes advice about a part of a mapping.
///
/// # Safety
/// Null, or one that was made here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_mapping_advise(
    mapping: *const Mapped,
    offset: usize,
    length: usize,
    advice: c_int,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    match (unsafe { mapping.as_ref() }, file_advice(advice)) {
        (Some(mapped), Some(advice)) => io_answer(mapped.part().advise(crate::range(offset, length), advice)),
        _ => mistake(ARGUMENT),
    }
}

/// Makes a group of files.
///
/// # Safety
/// `group` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_cache_group_new(bytes: usize, group: *mut *mut CacheGroup) -> c_int {
    let _call = Call::begin();
    if group.is_null() {
        return mistake(ARGUMENT);
    }
    // SAFETY: by contract.
    unsafe { hand_out(CacheGroup::new(bytes).map_err(|_| mistake(ARGUMENT)), group) }
}

/// Ends a use of it.
///
/// # Safety
/// Null, or a group that was made here, not freed, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_cache_group_free(group: *mut CacheGroup) {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { end(group) };
}

/// The cache of an open file, in a group.
///
/// # Safety
/// `group` is null, or one that was made here and not freed; `file` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_cache_group_file(
    group: *const CacheGroup,
    fd: c_int,
    small_pages: c_int,
    file: *mut *mut File,
) -> c_int {
    let _call = Call::begin();
    let open = |group: &CacheGroup| {
        let made = borrowed(fd).and_then(|of| match small_pages {
            0 => group.file(&of),
            _ => group.file_with_small_pages(&of),
        });
        made.map_err(io_number)
    };
    // SAFETY: by contract.
    unsafe { make_of(group, file, open) }
}

values! {
    CacheGroup;
    /// What is in use of its budget.
    faultless_cache_group_used: usize, 0, CacheGroup::used;
    /// What mappings keep of it.
    faultless_cache_group_mapped: usize, 0, CacheGroup::mapped;
}

/// Gives memory back.
///
/// # Safety
/// Null, or a file that was made here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_drop(file: *const File, offset: u64, length: u64) -> usize {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { file.as_ref() }.map_or(0, |file| file.drop_range(range(offset, length)))
}

/// Maps a part.
///
/// # Safety
/// `file` is null, or one that was made here and not freed; `mapping` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_map(
    file: *const File,
    offset: u64,
    length: usize,
    writable: c_int,
    mapping: *mut *mut Mapped,
) -> c_int {
    let _call = Call::begin();
    let map = |file: &File| match writable {
        0 => file.map(offset, length).map(Mapped::Read).map_err(io_number),
        _ => file.map_mut(offset, length).map(Mapped::Write).map_err(io_number),
    };
    // SAFETY: by contract.
    unsafe { make_of(file, mapping, map) }
}

/// `enum faultless_access`.
const READ: c_int = 0;
const WRITE: c_int = 1;
const PRIVATE: c_int = 2;

/// Maps a part whose pages come when they are touched.
///
/// # Safety
/// As [`faultless_file_map`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_map_lazy(
    file: *const File,
    offset: u64,
    length: usize,
    access: c_int,
    mapping: *mut *mut Mapped,
) -> c_int {
    let _call = Call::begin();
    let map = |file: &File| {
        let made = match access {
            READ => file.map_lazy(offset, length).map(Mapped::Read),
            WRITE => file.map_lazy_mut(offset, length).map(Mapped::Write),
            PRIVATE => file.map_private(offset, length).map(Mapped::Write),
            _ => return Err(mistake(ARGUMENT)),
        };
        made.map_err(io_number)
    };
    // SAFETY: by contract.
    unsafe { make_of(file, mapping, map) }
}

/// Has writes to lazy mappings wait for snapshots.
///
/// # Safety
/// Null, or a file that was made here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_allow_snapshots(file: *const File) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    let Some(file) = (unsafe { file.as_ref() }) else { return mistake(ARGUMENT) };
    io_answer(file.allow_snapshots())
}

/// Takes a snapshot of a file.
///
/// # Safety
/// `file` is null, or one that was made here and not freed; `snapshot` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_snapshot(file: *const File, snapshot: *mut *mut Snapshot) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { make_of(file, snapshot, |file| file.snapshot().map_err(io_number)) }
}

/// Takes a snapshot of what is mapped.
///
/// # Safety
/// `mapping` is null, or one that was made here and not freed; `snapshot` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_mapping_snapshot(
    mapping: *const Mapped,
    snapshot: *mut *mut Snapshot,
) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { make_of(mapping, snapshot, |mapping| mapping.part().snapshot().map_err(io_number)) }
}

/// Says how faults of lazy mappings are delivered.
///
/// # Safety
/// Null, or a file that was made here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_deliver(file: *const File, delivery: c_int) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    let Some(file) = (unsafe { file.as_ref() }) else { return mistake(ARGUMENT) };
    // Numbers of `enum faultless_delivery`; a file knows no others.
    let delivery = match delivery {
        0 => Delivery::Best,
        2 => Delivery::Thread,
        3 => Delivery::Signal,
        _ => return mistake(ARGUMENT),
    };
    io_answer(file.deliver(delivery))
}

values! {
    Mapped;
    /// Its first byte.
    faultless_mapping_data: *mut c_void, null_mut(), |mapped| mapped.part().as_ptr().cast_mut().cast();
    /// Whether a system call may be given memory of it that was not touched yet.
    faultless_mapping_serves_system_calls: c_int, 0, |mapped| mapped.part().serves_system_calls() as c_int;
    /// Its length.
    faultless_mapping_length: usize, 0, |mapped| mapped.part().len();
    /// Writes it back.
    faultless_mapping_sync: c_int, mistake(ARGUMENT), |mapped| match mapped {
        Mapped::Read(_) => 0,
        Mapped::Write(part) => io_answer(part.sync()),
    };
}

/// Ends a mapping.
///
/// # Safety
/// Null, or one that was made here, not freed, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_mapping_free(mapping: *mut Mapped) {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { end(mapping) };
}

/// Writes back all files.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_files_sync() -> c_int {
    let _call = Call::begin();
    io_answer(sync_all())
}
