//! Starting a program without a descriptor of this command's, so that `ulimit -n` is the program's alone.
//!
//! std's way takes a pipe for the error of exec. Here this process waits until the program has begun, and the error comes
//! back in a page that both share (`begin.rs`).

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::begin::{NoChild, Shared, Started};
use super::handed::{Handed, Left};
use super::locks;
use super::sys::Inherited;

/// What stands for standard input, output and error; `None`: as they are here.
pub type Files = [Option<RawFd>; 3];

/// What becomes of the files that this process inherited, and that the program inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// They are closed here before the program begins.
    Leave,
    /// They stay, for the next program.
    Keep,
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

fn pointers(strings: &[CString]) -> Vec<Pointer> {
    strings.iter().map(|s| s.as_ptr()).chain([null()]).collect()
}

/// The words and the environments of `command`, as exec takes them.
struct Image {
    words: Vec<CString>,
    /// Besides, where it differs, the environment as this process has it. Words and environment have a limit together,
    /// which the program may have used up.
    variables: Vec<Vec<CString>>,
}

impl Image {
    fn of(command: &Command) -> io::Result<Self> {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let mut variables = vec![environment(command)?, inherited_environment()];
        variables.dedup();
        Ok(Self { words: words.map(string).collect::<io::Result<_>>()?, variables })
    }

    /// Becomes the program, with the first environment that fits; else the error. `tries` says how many did not fit.
    fn exec(words: &[Pointer], variables: &[Vec<Pointer>], tries: &AtomicI32) -> i32 {
        let mut error = 0;
        for (i, variables) in variables.iter().enumerate() {
            tries.store(i as i32, Ordering::Relaxed);
            // SAFETY: lists of strings that end with a null pointer.
            unsafe {
                libc::execvpe(words[0], words.as_ptr(), variables.as_ptr());
                error = *libc::__errno_location();
            }
            if error != libc::E2BIG {
                break;
            }
        }
        error
    }
}

type Pointer = *const libc::c_char;

/// A program had no room for the variables that this command adds.
static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Whether a program was started without the variables that this command adds, for want of room.
pub fn had_no_room() -> bool {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// Has `command` take this process's place, with the signal state that this process inherited; returns only when that was not
/// possible.
pub fn replace(command: &Command, inherited: Inherited) -> io::Error {
    let image = match Image::of(command) {
        Ok(image) => image,
        Err(error) => return error,
    };
    let handed = Handed::read();
    // The program has the locks of this process, so it is their thread whose place it takes.
    locks::with(move || {
        handed.take_death();
        inherited.restore(0..3);
        let variables: Vec<_> = image.variables.iter().map(|variables| pointers(variables)).collect();
        io::Error::from_raw_os_error(Image::exec(&pointers(&image.words), &variables, &AtomicI32::new(0)))
    })
}

/// Starts `command` with these files and the signal state that this process inherited. It has begun when this returns.
pub fn start(command: &Command, files: Files, inherited: Inherited, own: Own) -> io::Result<Started> {
    let image = Image::of(command)?;
    let (words, variables) = (pointers(&image.words), image.variables.iter().map(|list| pointers(list)));
    let variables: Vec<_> = variables.collect();
    let shared = Shared::new()?;
    let handed = Handed::read();
    // In the child: it neither allocates nor takes locks. All signals are blocked, so that no handler runs in it.
    let exec = || {
        handed.take();
        inherited.restore((0..3).filter(|fd| files[*fd as usize].is_none()));
        // SAFETY: no memory is involved.
        let placed = (0..3).all(|fd| files[fd as usize].is_none_or(|file| unsafe { libc::dup2(file, fd) } >= 0));
        // SAFETY: this thread's own.
        let error = || unsafe { *libc::__errno_location() };
        let error = if placed { Image::exec(&words, &variables, &shared.tries) } else { error() };
        shared.error.store(error, Ordering::Relaxed);
    };
    let left = if own == Own::Leave { Left::find() } else { Left::default() };
    let started = shared.start(exec, left)?;
    match shared.error.load(Ordering::Relaxed) {
        0 => {
            handed.let_go();
            LEFT_OUT.fetch_or(shared.tries.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
            Ok(started)
        }
        error => {
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(started.pid, null_mut(), 0) };
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Whether a program could not be started because there could be no child: this user may have no more processes, the
/// machine can have none, or a filter of system calls refuses them. What exec answers is the program's.
pub fn is_no_process(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<NoChild>())
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
