//! What is to be undone however a bench ends: folders, control groups, processes, a daemon.
//!
//! Each is undone when its value goes. A signal that ends the bench undoes all that are left, the last one first, so
//! that a process goes before the folder that it writes to. One lock protects them. The signal's thread never lets go
//! of it, so nothing new comes meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

type Left = Vec<(u64, Box<dyn FnOnce() + Send>)>;

static LEFT: Mutex<Left> = Mutex::new(Vec::new());

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something to be undone when this goes.
pub struct Undo(u64);

impl Undo {
    /// By this, which must not make or drop another one.
    pub fn by(undo: impl FnOnce() + Send + 'static) -> Self {
        Self::add(&mut left(), undo)
    }

    /// By this, once `make` has made it: a signal does not come in between.
    pub fn of<E>(make: impl FnOnce() -> Result<(), E>, undo: impl FnOnce() + Send + 'static) -> Result<Self, E> {
        let mut left = left();
        make()?;
        Ok(Self::add(&mut left, undo))
    }

    fn add(left: &mut Left, undo: impl FnOnce() + Send + 'static) -> Self {
        let number = left.last().map_or(0, |(number, _)| number + 1);
        left.push((number, Box::new(undo)));
        Self(number)
    }

    /// By removing a folder with all that is in it.
    pub fn folder(path: &Path) -> Self {
        let path = path.to_owned();
        Self::by(move || match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("faultless: {}: {error}", path.display());
            }
            _ => {}
        })
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let mut left = left();
        if let Some(at) = left.iter().position(|(number, _)| *number == self.0) {
            left.remove(at).1();
        }
    }
}

/// A folder that goes with its value.
pub struct Folder {
    path: PathBuf,
    _undo: Undo,
}

impl Folder {
    /// Takes over a folder.
    pub fn of(folder: TempDir) -> Self {
        let path = folder.keep();
        let _undo = Undo::folder(&path);
        Self { path, _undo }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn undo_all(left: &mut Left) {
    while let Some((_, undo)) = left.pop() {
        undo();
    }
}

/// From now on a signal that ends the bench undoes all.
pub fn on_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let mut left = left();
            undo_all(&mut left);
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[test]
    fn the_last_is_undone_first() {
        let (sender, done) = mpsc::channel();
        let mut all = Left::new();
        for number in 0..3 {
            let sender = sender.clone();
            all.push((number, Box::new(move || sender.send(number).expect("it is looked at"))));
        }
        undo_all(&mut all);
        drop((all, sender));
        assert_eq!(done.iter().collect::<Vec<_>>(), [2, 1, 0]);
    }

    #[test]
    fn each_is_undone_once_with_its_value_and_no_other() {
        let counts = [0, 1].map(|_| Arc::new(Mutex::new(0)));
        let of = |i: usize| {
            let count = Arc::clone(&counts[i]);
            Undo::by(move || *count.lock().expect("no panic") += 1)
        };
        let (first, second) = (of(0), of(1));
        let now = || [0, 1].map(|i| *counts[i].lock().expect("no panic"));
        drop(first);
        assert_eq!(now(), [1, 0]);
        drop(second);
        assert_eq!(now(), [1, 1]);
    }

    #[test]
    fn what_was_not_made_is_not_undone() {
        let (sender, done) = mpsc::channel();
        let of = |made: Result<(), i32>| {
            let sender = sender.clone();
            Undo::of(|| made, move || sender.send(made).expect("it is looked at"))
        };
        assert_eq!(of(Err(5)).err(), Some(5));
        drop(of(Ok(())));
        drop(sender);
        assert_eq!(done.iter().collect::<Vec<_>>(), [Ok(())]);
    }

    #[test]
    fn a_folder_goes_with_all_that_is_in_it() {
        let folder = Folder::of(tempfile::tempdir().unwrap());
        let path = folder.path().to_owned();
        fs::write(path.join("file"), "text").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
