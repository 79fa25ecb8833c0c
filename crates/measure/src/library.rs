//! The preload library, where cargo's builds and packages have it: told from where a program of ours is.

use std::fmt;
use std::path::{Path, PathBuf};

/// The name of its file, by which it also finds itself in `LD_PRELOAD`.
pub const LIBRARY: &str = "libfaultless_preload.so";

/// It is in neither of these places.
#[derive(Debug)]
pub struct NotThere {
    places: [PathBuf; 2],
}

impl fmt::Display for NotThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [beside, below] = &self.places;
        write!(f, "there is neither {} nor {}", beside.display(), below.display())
    }
}

impl std::error::Error for NotThere {}

/// The library of the program `own`: beside it, as cargo builds both, or in lib/faultless below the same prefix, as
/// packages have them.
pub fn of(own: &Path) -> Result<PathBuf, NotThere> {
    let dir = own.parent().unwrap_or(Path::new("/"));
    let prefix = dir.parent().unwrap_or(dir);
    let places = [dir.join(LIBRARY), prefix.join("lib/faultless").join(LIBRARY)];
    let found = places.iter().find(|path| path.is_file()).cloned();
    found.ok_or(NotThere { places })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_by_the_place_of_the_program_alone() {
        let prefix = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = prefix.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let own = make("bin/faultless");
        let error = of(&own).unwrap_err().to_string();
        assert!(error.contains("bin/libfaultless_preload.so nor"), "{error}");
        assert!(error.contains("lib/faultless/libfaultless_preload.so") && !error.contains(".."), "{error}");
        let below = make("lib/faultless/libfaultless_preload.so");
        assert_eq!(of(&own).unwrap(), below);
        let beside = make("bin/libfaultless_preload.so");
        assert_eq!(of(&own).unwrap(), beside);
    }
}
