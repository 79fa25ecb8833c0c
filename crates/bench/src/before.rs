//! The library before: another build of the preload library, which runs beside this one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use faultless_measure::library::LIBRARY;
use faultless_page::knobs::Knob;

/// A path by which the loader takes the library at `path`: a link in `dir`, which has the library's own name and no
/// blanks. The error says what is wrong with it.
pub fn loadable(path: &Path, dir: &Path) -> Result<PathBuf, String> {
    let wrong = |reason: &str| format!("{}: {reason}", path.display());
    let bytes = fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    // Each build has had the names of its variables in it.
    let name = Knob::Budget.declared().variable.as_bytes();
    if !bytes.starts_with(b"\x7fELF") || !bytes.windows(name.len()).any(|window| window == name) {
        return Err(wrong("not a build of libfaultless_preload.so"));
    }
    let folder = dir.join("before");
    let link = folder.join(LIBRARY);
    let made = fs::create_dir_all(&folder).and_then(|()| symlink(absolute(path)?, &link));
    made.map_err(|error| format!("{}: {error}", link.display()))?;
    try_out(&link).map_err(|reason| wrong(&reason))?;
    Ok(link)
}

/// Whether the loader takes it: if not, it says why and goes on without.
fn try_out(library: &Path) -> Result<(), String> {
    let run = Command::new("/bin/true").env("LD_PRELOAD", library).env("LC_ALL", "C").output();
    let run = run.map_err(|error| format!("/bin/true: {error}"))?;
    match String::from_utf8_lossy(&run.stderr).lines().next() {
        Some(complaint) => Err(complaint.to_owned()),
        None if !run.status.success() => Err(format!("/bin/true with it: {}", run.status)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_of_ours_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| loadable(path, dir.path()).unwrap_err();
        let path = dir.path().join("none.so");
        assert!(error(&path).contains("none.so: No such file"), "{}", error(&path));
        let path = dir.path().join("text.so");
        fs::write(&path, "FAULTLESS_BUDGET").unwrap();
        assert!(error(&path).contains("text.so: not a build of libfaultless_preload.so"), "{}", error(&path));
        // A program, not a library of ours.
        assert!(error(Path::new("/bin/true")).starts_with("/bin/true: not a build"));
        assert!(error(dir.path()).contains("directory"));
    }

    /// Its head is right, and the loader does not take it.
    #[test]
    fn a_library_that_cannot_be_loaded_is_an_error_that_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broken.so");
        fs::write(&path, b"\x7fELF FAULTLESS_BUDGET").unwrap();
        let error = loadable(&path, dir.path()).unwrap_err();
        assert!(error.contains("broken.so: ERROR: ld.so") && error.contains("cannot be preloaded"), "{error}");
    }
}
