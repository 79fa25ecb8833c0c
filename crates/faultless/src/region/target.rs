//! The file that a snapshot is saved to, under another name until all of it is there.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use faultless_base::sys::descriptor::Descriptor;
use faultless_base::sys::limits;
use faultless_base::sys::raw;

use crate::error::Error;
use crate::process::owner::Owner;

/// How a new file and a directory are opened.
const NEW: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOCTTY;
const DIRECTORY: i32 = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;

/// The longest name.
const NAME_MAX: usize = 255;
/// How many names are tried.
const TRIES: usize = 100;

/// A file that is being written. It lies where the path led to when it was made: the program may change its working
/// directory, and others may rename a directory on the way.
pub(crate) struct Target {
    directory: Descriptor,
    file: Descriptor,
    /// To write past the page cache.
    direct: Option<Descriptor>,
    partial: CString,
    /// Where that was made, for when the program has closed the directory.
    whole_path: Option<CString>,
    name: CString,
    owner: Owner,
}

impl Target {
    /// Makes the file.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let (directory, name) = split(path.as_os_str().as_bytes()).map_err(kernel)?;
        let directory = open_directory(&directory).map_err(kernel)?;
        match number_of(&directory).and_then(|number| kind(number, &name)).map_err(kernel)? {
            // A symbolic link is replaced, as by a file that is renamed.
            0 | libc::S_IFREG | libc::S_IFLNK => Self::make(directory, name).map_err(kernel),
            libc::S_IFDIR => Err(Error::Kernel(libc::EISDIR)),
            _ => Err(Error::NoFile),
        }
    }

    fn make(directory: Descriptor, name: CString) -> io::Result<Self> {
        let number = number_of(&directory)?;
        let (file, partial) = make_new(number, name.as_bytes())?;
        let whole_path = std::fs::read_link(format!("/proc/self/fd/{number}")).ok().and_then(|directory| {
            CString::new([directory.as_os_str().as_bytes(), b"/", partial.as_bytes()].concat()).ok()
        });
        Ok(Self { directory, file, direct: None, partial, whole_path, name, owner: Owner::here() })
    }

    /// Its length, as far as it is not written.
    pub fn set_length(&self, bytes: usize) -> Result<(), Error> {
        check_length(bytes)?;
        self.file().and_then(|file| file.set_len(bytes as u64)).map_err(kernel)
    }

    /// Writes a part.
    pub fn write(&self, bytes: &[u8], at: usize) -> Result<(), Error> {
        check_length(at + bytes.len())?;
        self.file().and_then(|file| file.write_all_at(bytes, at as u64)).map_err(kernel)
    }

    /// Lets [`Target::write_direct`] write past the page cache, where the file system is known to do that well. A thread
    /// sleeps then while the device works. To copy to the cache, and to write that back, takes a processor from the
    /// program.
    pub fn open_direct(&mut self) {
        self.direct = number_of(&self.file).ok().filter(|number| writes_past_cache(*number)).and_then(|number| {
            let path = CString::new(format!("/proc/self/fd/{number}")).ok()?;
            open(libc::AT_FDCWD, &path, libc::O_WRONLY | libc::O_DIRECT | libc::O_CLOEXEC).ok()
        });
    }

    /// Writes a part, past the page cache if that was asked for and the file system does it: a part that does not end with
    /// a block it refuses.
    pub fn write_direct(&self, bytes: &[u8], at: usize) -> Result<(), Error> {
        if let Some(number) = self.direct.as_ref().and_then(|direct| number_of(direct).ok()) {
            check_length(at + bytes.len())?;
            // Several threads at a time write to blocks that are there. What fails here fails as it is written, too.
            // SAFETY: no memory is given.
            unsafe { libc::fallocate(number, libc::FALLOC_FL_KEEP_SIZE, at as i64, bytes.len() as i64) };
            match file_of(number).write_all_at(bytes, at as u64) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                written => return written.map_err(kernel),
            }
        }
        self.write(bytes, at)
    }

    /// All of it was written: it gets its name when it is durable.
    pub fn end(&self) -> Result<(), Error> {
        self.name_it().map_err(kernel)
    }

    fn name_it(&self) -> io::Result<()> {
        self.file()?.sync_all()?;
        let directory = number_of(&self.directory)?;
        // SAFETY: both names end with a zero byte.
        tried(|| unsafe { libc::renameat(directory, self.partial.as_ptr(), directory, self.name.as_ptr()) })?;
        // SAFETY: no memory is given.
        match tried(|| unsafe { libc::fsync(directory) }) {
            // It could not be opened for reading, or its file system does not do that: the whole file system is synced.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL)) => {
                let file = number_of(&self.file)?;
                // SAFETY: as above.
                tried(|| unsafe { libc::syncfs(file) }).map(drop)
            }
            synced => synced.map(drop),
        }
    }

    fn file(&self) -> io::Result<ManuallyDrop<File>> {
        number_of(&self.file).map(file_of)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // In a child it is the parent's.
        if !self.owner.is_here() {
            return;
        }
        // It is gone if it has got its name. No other file has this one.
        match (number_of(&self.directory), &self.whole_path) {
            // SAFETY: the name ends with a zero byte.
            (Ok(directory), _) => _ = unsafe { libc::unlinkat(directory, self.partial.as_ptr(), 0) },
            // SAFETY: as above.
            (Err(_), Some(path)) => _ = unsafe { libc::unlink(path.as_ptr()) },
            (Err(_), None) => {}
        }
    }
}

/// To go beyond the limit on files ends the program.
fn check_length(bytes: usize) -> Result<(), Error> {
    limits::check_file(bytes).map_err(|error| Error::Kernel(error.number()))
}

/// The directory of a path, and the name there.
fn split(path: &[u8]) -> io::Result<(CString, CString)> {
    if path.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => path.split_at(slash + 1),
        None => (&b"."[..], path),
    };
    if name.is_empty() || name == b"." || name == b".." {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    Ok((CString::new(directory)?, CString::new(name)?))
}

/// Opens a directory to have files in it. One may be written to and not read: that suffices but for `fsync`.
fn open_directory(path: &CString) -> io::Result<Descriptor> {
    open(libc::AT_FDCWD, path, DIRECTORY).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => open(libc::AT_FDCWD, path, DIRECTORY | libc::O_PATH),
        _ => Err(error),
    })
}

/// What a name in a directory stands for, as `S_IFMT` has it; 0: for nothing.
fn kind(directory: i32, name: &CString) -> io::Result<u32> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the name ends with a zero byte, and there is room for the answer.
    let looked =
        tried(|| unsafe { libc::fstatat(directory, name.as_ptr(), stat.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) });
    match looked {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        // SAFETY: numbers, for which zeroes are values.
        _ => Ok(unsafe { stat.assume_init() }.st_mode & libc::S_IFMT),
    }
}

/// Makes a file beside that of a name, under another name that no file has.
fn make_new(directory: i32, name: &[u8]) -> io::Result<(Descriptor, CString)> {
    let mut tries = 0;
    loop {
        let partial = CString::new(partial_name(name, random()))?;
        match open(directory, &partial, NEW) {
            Ok(file) => return Ok((file, partial)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// As much of a name as there is room for, and what tells the file from all others with the name. A number of the
/// process would not: in a container the next one has the same.
fn partial_name(name: &[u8], random: u64) -> Vec<u8> {
    let end = format!(".partial-{random:016x}");
    let mut kept = name.len().min(NAME_MAX - end.len());
    // Some file systems take whole characters alone.
    while kept < name.len() && name[kept] & 0xC0 == 0x80 && kept > 0 {
        kept -= 1;
    }
    [&name[..kept], end.as_bytes()].concat()
}

/// A number that is unlikely to come again. Where the kernel gives none, the time is.
fn random() -> u64 {
    let mut number = raw::now_ns();
    // SAFETY: room for as many bytes.
    unsafe { libc::getrandom((&raw mut number).cast(), size_of_val(&number), libc::GRND_NONBLOCK) };
    number
}

/// Opens a file; the directory is one that a relative path begins at.
fn open(directory: i32, path: &CString, flags: i32) -> io::Result<Descriptor> {
    // SAFETY: the path ends with a zero byte.
    let opened = tried(|| unsafe { libc::openat(directory, path.as_ptr(), flags, 0o666) })?;
    Ok(Descriptor::new(opened as usize))
}

/// A number to use at once. If the program has closed it, what it opened since under the same number is left alone.
fn number_of(descriptor: &Descriptor) -> io::Result<i32> {
    match descriptor.is_open() {
        true => Ok(descriptor.number() as i32),
        false => Err(io::Error::from_raw_os_error(libc::EBADF)),
    }
}

/// A file that is open now, and is closed by its descriptor.
fn file_of(number: i32) -> ManuallyDrop<File> {
    // SAFETY: this value does not close it.
    ManuallyDrop::new(unsafe { File::from_raw_fd(number) })
}

/// Whether a file lies in a file system that writes past the page cache as fast as through it.
fn writes_past_cache(number: i32) -> bool {
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: room for the answer, which is numbers.
    let answer = tried(|| unsafe { libc::fstatfs(number, about.as_mut_ptr()) });
    // SAFETY: as above; all zero before the call.
    let kind = unsafe { about.assume_init() }.f_type;
    answer.is_ok() && [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC].contains(&kind)
}

/// What a call answers when no signal interrupts it.
fn tried(mut call: impl FnMut() -> i32) -> io::Result<i32> {
    loop {
        match call() {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            answer => return Ok(answer),
        }
    }
}

fn kernel(error: io::Error) -> Error {
    // A zero byte in a path is the only one that the kernel has not said.
    Error::Kernel(error.raw_os_error().unwrap_or(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_name_is_never_too_long() {
        assert_eq!(partial_name(b"state.bin", 0x1F), b"state.bin.partial-000000000000001f");
        for (byte, bytes) in [("a", 230), ("é", 230), ("語", 228), ("😀", 228)] {
            let name = byte.repeat(NAME_MAX / byte.len());
            let partial = String::from_utf8(partial_name(name.as_bytes(), u64::MAX)).unwrap();
            assert_eq!(partial.find(".partial-"), Some(bytes), "{partial}");
        }
        assert_eq!(partial_name(&[0x80; NAME_MAX], 1).len(), 25);
    }

    #[test]
    fn a_path_has_a_directory_and_a_name() {
        let split =
            |path: &str| split(path.as_bytes()).map(|(a, b)| [a, b].map(|part| part.into_string().unwrap()));
        assert_eq!(split("state").unwrap(), [".", "state"]);
        assert_eq!(split("/state").unwrap(), ["/", "state"]);
        assert_eq!(split("a//state").unwrap(), ["a//", "state"]);
        for (path, error) in [
            ("", libc::ENOENT),
            ("/", libc::EISDIR),
            ("a/", libc::EISDIR),
            ("a/.", libc::EISDIR),
            ("..", libc::EISDIR),
        ] {
            assert_eq!(split(path).unwrap_err().raw_os_error(), Some(error), "{path}");
        }
        assert_eq!(kernel(super::split(b"a\0b").unwrap_err()), Error::Kernel(libc::EINVAL));
    }
}
