//! Files.

use std::ffi::{c_int, c_void};
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::ptr::null_mut;

use faultless::file::{File, Mapping, MappingMut, sync_all};

use crate::end;
use crate::error::{ARGUMENT, io_answer, io_number, mistake};

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

/// Gives what was made to the caller, or null and the number of the error.
///
/// # Safety
/// `to` is writable.
unsafe fn hand_out<T>(made: io::Result<T>, to: *mut *mut T) -> c_int {
    let (made, answer) = match made {
        Ok(made) => (Box::into_raw(Box::new(made)), 0),
        Err(error) => (null_mut(), io_number(&error)),
    };
    // SAFETY: by contract.
    unsafe { to.write(made) };
    answer
}

/// The same for a number; 0 with an error.
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

/// The cache of an open file.
///
/// # Safety
/// `file` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_new(fd: c_int, small_pages: c_int, file: *mut *mut File) -> c_int {
    if file.is_null() {
        return mistake(ARGUMENT);
    }
    let made = || {
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: not closed here. Of a number that is no descriptor the kernel says so.
        let of = ManuallyDrop::new(unsafe { fs::File::from_raw_fd(fd) });
        if small_pages == 0 { File::new(&of) } else { File::with_small_pages(&of) }
    };
    // SAFETY: by contract.
    unsafe { hand_out(made(), file) }
}

/// Ends a handle.
///
/// # Safety
/// Null, or a file that was made here, not freed, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_free(file: *mut File) {
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
/// `file` is null, or one that was made here and not freed; `buffer` is writable for so many bytes, `done` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_read(
    file: *const File,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    done: *mut usize,
) -> c_int {
    // SAFETY: by contract.
    let Some(file) = (unsafe { file.as_ref() }).filter(|_| !buffer.is_null() || length == 0) else {
        return mistake(ARGUMENT);
    };
    let buffer = match length {
        0 => &mut [],
        // SAFETY: by contract.
        _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) },
    };
    // SAFETY: by contract.
    unsafe { tell(file.read_at(buffer, offset), done) }
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
    // SAFETY: by contract.
    let Some(file) = (unsafe { file.as_ref() }).filter(|_| !bytes.is_null() || length == 0) else {
        return mistake(ARGUMENT);
    };
    let bytes = match length {
        0 => &[],
        // SAFETY: by contract.
        _ => unsafe { std::slice::from_raw_parts(bytes.cast(), length) },
    };
    // SAFETY: by contract.
    unsafe { tell(file.write_at(bytes, offset), done) }
}

/// Brings parts into memory.
///
/// # Safety
/// `file` is null, or one that was made here and not freed; `parts` is readable for so many, `done` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_prefetch(
    file: *const File,
    parts: *const Part,
    count: usize,
    done: *mut usize,
) -> c_int {
    // SAFETY: by contract.
    let Some(file) = (unsafe { file.as_ref() }).filter(|_| !parts.is_null() || count == 0) else {
        return mistake(ARGUMENT);
    };
    let parts = match count {
        0 => &[],
        // SAFETY: by contract.
        _ => unsafe { std::slice::from_raw_parts(parts, count) },
    };
    let parts: Vec<_> = parts.iter().map(|part| range(part.offset, part.length)).collect();
    // SAFETY: by contract.
    unsafe { tell(file.prefetch(&parts), done) }
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

/// Gives memory back.
///
/// # Safety
/// Null, or a file that was made here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_file_drop(file: *const File, offset: u64, length: u64) -> usize {
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
    if mapping.is_null() {
        return mistake(ARGUMENT);
    }
    // SAFETY: by contract.
    unsafe {
        mapping.write(null_mut());
        let Some(file) = file.as_ref() else { return mistake(ARGUMENT) };
        let made = match writable {
            0 => file.map(offset, length).map(Mapped::Read),
            _ => file.map_mut(offset, length).map(Mapped::Write),
        };
        hand_out(made, mapping)
    }
}

values! {
    Mapped;
    /// Its first byte.
    faultless_mapping_data: *mut c_void, null_mut(), |mapped| mapped.part().as_ptr().cast_mut().cast();
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
    // SAFETY: by contract.
    unsafe { end(mapping) };
}

/// Writes back all files.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_files_sync() -> c_int {
    io_answer(sync_all())
}
