//! A path of the library that the loader can read: `LD_PRELOAD` is split at spaces and colons, and has no way to quote them.
//!
//! Where the path has any, a link in a directory of the user's own stands for it. It stays: programs that go on when the command has
//! ended start others, which the loader would otherwise complain about.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::options::LIBRARY;
use crate::own;

/// Whether the loader reads all of it as one name.
fn is_one_name(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().iter().any(|b| b.is_ascii_whitespace() || matches!(b, b':' | b'$'))
}

/// The library by a path that the loader can read.
pub fn loadable(library: PathBuf) -> Result<PathBuf> {
    if is_one_name(&library) {
        return Ok(library);
    }
    let temporary =
        std::env::var_os("TMPDIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && is_one_name(dir));
    let places = temporary.into_iter().chain(["/tmp".into(), "/dev/shm".into()]);
    let mut result = Err(anyhow::anyhow!("no place for a link"));
    for place in places {
        result = link_in(&place, &library);
        if result.is_ok() {
            break;
        }
    }
    result.with_context(|| {
        format!("{}: the loader takes no path with a space, a colon or a dollar", library.display())
    })
}

/// A link to it in this user's directory in `place`. Others may follow it, and none but this user change it.
fn link_in(place: &Path, library: &Path) -> Result<PathBuf> {
    let user = own::user();
    let mut name = DefaultHasher::new();
    library.hash(&mut name);
    let dir = place.join(format!("faultless-library-{user}-{:016x}", name.finish()));
    own::make_directory(&dir, 0o755)?;
    let link = dir.join(LIBRARY);
    match symlink(library, &link) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| link.display().to_string())
        }
        _ => {
            ensure!(link.read_link().is_ok_and(|to| to == library), "{} is something else", link.display());
            Ok(link)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_path_that_cannot_be_read_is_linked_to() {
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join("a: b").join("lib.so");
        let link = link_in(place.path(), &library).unwrap();
        assert!(is_one_name(&link) && link.read_link().unwrap() == library);
        assert_eq!(link_in(place.path(), &library).unwrap(), link);
        assert_eq!(loadable("/a/lib.so".into()).unwrap(), Path::new("/a/lib.so"));
        // What others may change is not followed.
        std::fs::set_permissions(link.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        assert!(link_in(place.path(), &library).is_err());
    }
}
