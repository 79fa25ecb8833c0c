//! Starting a program without a descriptor of this command's, so that `ulimit -n` is the program's alone.
//!
//! std's way takes a pipe for the error of exec. Here this process waits until the program has begun, as after `vfork`,
//! but on memory of its own; the error comes back in a page that both share.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::filters;
use super::handed::Handed;
use super::sys::Inherited;

/// What stands for standard input, output and error; `None`: as they are here.
pub type Files = [Option<RawFd>; 3];

struct Shared(*mut AtomicI32);

const BYTES: usize = 4096;

impl Shared {
    fn new() -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let map = unsafe { libc::mmap(null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(map.cast())) }
    }

    fn error(&self) -> &AtomicI32 {
        // SAFETY: zeroes at first, mapped until this is dropped, and an atomic.
        unsafe { &*self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: made by `new`; there is no reference.
        unsafe { libc::munmap(self.0.cast(), BYTES) };
    }
}

fn string(text: impl Into<OsString>) -> io::Result<CString> {
    Ok(CString::new(text.into().into_vec())?)
}

/// The environment that `command` has: this process's, entry by entry, as it changes it. An entry may lack a name or an
/// equals sign, which std would leave out.
fn environment(command: &Command) -> io::Result<Vec<CString>> {
    let changes: Vec<_> = command.get_envs().collect();
    let is_changed = |entry: &CString| {
        let name = entry.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        changes.iter().any(|(changed, _)| changed.as_encoded_bytes() == name)
    };
    let kept = inherited_environment().into_iter().filter(|entry| !is_changed(entry)).map(Ok);
    let set = changes.iter().filter_map(|(name, value)| {
        let mut entry = name.to_os_string();
        entry.push("=");
        entry.push((*value)?);
        Some(string(entry))
    });
    kept.chain(set).collect()
}

/// The entries of this process's environment as they are.
fn inherited_environment() -> Vec<CString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: a list that ends with a null pointer; this command changes its own environment nowhere.
    unsafe {
        let entry = |i| *environ.add(i);
        let n = if environ.is_null() { 0 } else { (0..).take_while(|i| !entry(*i).is_null()).count() };
        (0..n).map(|i| CStr::from_ptr(entry(i)).to_owned()).collect()
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([null()]).collect()
}

/// The words and the environment of `command`, as exec takes them.
struct Image {
    words: Vec<CString>,
    variables: Vec<CString>,
}

impl Image {
    fn of(command: &Command) -> io::Result<Self> {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        Ok(Self { words: words.map(string).collect::<io::Result<_>>()?, variables: environment(command)? })
    }

    /// After it did not fit: whether it is another one now, with the environment as this process has it. Words and
    /// environment have a limit together, which the program may have used up.
    fn leave_out_changes(&mut self, error: &io::Error) -> bool {
        let plain = inherited_environment();
        let is_shorter = error.raw_os_error() == Some(libc::E2BIG) && plain != self.variables;
        if is_shorter {
            self.variables = plain;
            LEFT_OUT.store(true, Ordering::Relaxed);
        }
        is_shorter
    }
}

/// A program had no room for the variables that this command adds.
static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Whether a program was started without the variables that this command adds, for want of room.
pub fn had_no_room() -> bool {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// Has `command` take this process's place, with the signal state that this process inherited; returns only when that was not
/// possible.
pub fn replace(command: &Command, inherited: Inherited) -> io::Error {
    let mut image = match Image::of(command) {
        Ok(image) => image,
        Err(error) => return error,
    };
    inherited.restore(0..3);
    loop {
        let (words, variables) = (pointers(&image.words), pointers(&image.variables));
        // SAFETY: lists of strings that end with a null pointer.
        unsafe { libc::execvpe(words[0], words.as_ptr(), variables.as_ptr()) };
        let error = io::Error::last_os_error();
        if !image.leave_out_changes(&error) {
            return error;
        }
    }
}

/// Starts `command` with these files and the signal state that this process inherited. It has begun when this returns.
pub fn start(command: &Command, files: Files, inherited: Inherited) -> io::Result<i32> {
    let mut image = Image::of(command)?;
    match start_image(&image, files, inherited) {
        Err(error) if image.leave_out_changes(&error) => start_image(&image, files, inherited),
        result => result,
    }
}

fn start_image(image: &Image, files: Files, inherited: Inherited) -> io::Result<i32> {
    let (words, variables) = (pointers(&image.words), pointers(&image.variables));
    let shared = Shared::new()?;
    let handed = Handed::read();
    // SAFETY: a child with a copy of this memory, which does only what is allowed after a fork: it neither allocates nor
    // takes locks. All signals are blocked, so that no handler runs in it.
    unsafe {
        let flags = (libc::CLONE_VFORK | libc::SIGCHLD) as usize;
        let pid = libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize);
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            handed.take();
            inherited.restore((0..3).filter(|fd| files[*fd as usize].is_none()));
            let placed = (0..3).all(|fd| files[fd as usize].is_none_or(|file| libc::dup2(file, fd) >= 0));
            if placed {
                libc::execvpe(words[0], words.as_ptr(), variables.as_ptr());
            }
            shared.error().store(*libc::__errno_location(), Ordering::Relaxed);
            libc::_exit(127);
        }
        match shared.error().load(Ordering::Relaxed) {
            0 => {
                handed.let_go();
                Ok(pid as i32)
            }
            error => {
                libc::waitpid(pid as i32, null_mut(), 0);
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }
}

/// Whether a program could not be started because this user may have no more processes, the machine can have none, or a
/// filter of system calls refuses them.
pub fn is_no_process(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) || filters::refuse_children()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_the_changed_one() {
        let mut command = Command::new("x");
        command.env("FAULTLESS_TEST_LAUNCH", "a=b").env_remove("PATH");
        let all: Vec<_> = environment(&command).unwrap().into_iter().map(|s| s.into_bytes()).collect();
        assert!(all.contains(&b"FAULTLESS_TEST_LAUNCH=a=b".to_vec()));
        assert!(!all.iter().any(|entry| entry.starts_with(b"PATH=")));
        assert_eq!(all.len() + 1, std::env::vars_os().filter(|(name, _)| name != "PATH").count() + 2);
        assert!(string("a\0b").is_err());
    }
}
