//! Files of /proc and /sys, below a root that tests can put elsewhere.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The most of a file that is read.
const MOST: u64 = 1 << 20;

/// Where /proc, /sys and /dev are.
#[derive(Clone, Copy)]
pub struct Root<'a>(pub &'a Path);

impl Root<'_> {
    /// What a file says, without the white space around it; or why that cannot be told.
    pub fn read(self, path: &str) -> Result<String, &'static str> {
        let mut bytes = Vec::new();
        let read = File::open(self.0.join(path)).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) => Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => "not there",
                ErrorKind::PermissionDenied => "not readable for this user",
                _ => "not readable",
            }),
        }
    }

    /// What it says, if it can be read.
    pub fn text(self, path: &str) -> Option<String> {
        self.read(path).ok()
    }

    /// The number in it.
    pub fn number(self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// The word in brackets, as of a choice: `always [madvise] never`.
    pub fn choice(self, path: &str) -> Option<String> {
        Some(self.text(path)?.split_once('[')?.1.split_once(']')?.0.to_owned())
    }

    /// What stands behind `name:` at the beginning of a line.
    pub fn field(self, path: &str, name: &str) -> Option<String> {
        self.text(path)?.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    }

    /// Bytes of a line of /proc/meminfo.
    pub fn meminfo(self, name: &str) -> Option<u64> {
        let value = self.field("proc/meminfo", name)?;
        value.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The names in a directory, in order; empty when it cannot be read.
    pub fn names(self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether there is such a file or directory.
    pub fn has(self, path: &str) -> bool {
        self.0.join(path).exists()
    }
}

#[cfg(test)]
pub mod fake {
    //! A root with files of a test's own.

    use super::Root;

    /// A directory that is removed at the end.
    pub struct Fake(tempfile::TempDir);

    impl Fake {
        /// With these files.
        pub fn new(files: &[(&str, &str)]) -> Self {
            let fake = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let file = fake.0.path().join(path);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
            fake
        }

        /// To read from.
        pub fn root(&self) -> Root<'_> {
            Root(self.0.path())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Fake;

    #[test]
    fn files_in_the_kernels_formats() {
        let fake = Fake::new(&[
            ("a/enabled", "always [madvise] never\n"),
            ("a/number", "-1\n"),
            ("a/odd", "\u{1}\u{fffd}"),
            ("proc/meminfo", "MemTotal:       24 kB\nMemAvailable: 99999999999999999999 kB\nMemFree: x\n"),
        ]);
        let root = fake.root();
        assert_eq!(root.choice("a/enabled").as_deref(), Some("madvise"));
        assert_eq!(root.choice("a/number"), None);
        assert_eq!(root.number("a/number"), Some(-1));
        assert_eq!(root.number("a/enabled"), None);
        assert_eq!((root.meminfo("MemTotal"), root.meminfo("MemAvailable")), (Some(24 << 10), None));
        assert_eq!((root.meminfo("MemFree"), root.meminfo("Mem")), (None, None));
        assert_eq!(root.names("a"), ["enabled", "number", "odd"]);
        assert!(root.names("b").is_empty());
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let fake = Fake::new(&[("file", "")]);
        assert_eq!(fake.root().read("nothing"), Err("not there"));
        assert_eq!(fake.root().read("file/below"), Err("not there"));
        assert_eq!(fake.root().read(""), Err("not readable"));
    }
}
