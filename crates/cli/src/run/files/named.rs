//! Which files patterns name: regular ones, each once, in the order of the patterns.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use glob::MatchOptions;

/// As in a shell: `*` and `?` stand for no dot at the beginning of a name. Of such a name a pattern holds all or nothing.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// A path, or a pattern of paths.
#[derive(Clone, Debug)]
pub struct Pattern(String);

/// Reads one.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    let pattern = Pattern(text.to_owned());
    match glob::Pattern::new(text) {
        _ if text.is_empty() => Err("an empty pattern names nothing".into()),
        Err(error) if !pattern.is_path() => Err(format!("{} (at character {})", error.msg, error.pos + 1)),
        _ => Ok(pattern),
    }
}

impl Pattern {
    /// Whether there is a file of just this name.
    fn is_path(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok()
    }

    fn paths(&self) -> Vec<PathBuf> {
        if self.is_path() { vec![self.0.clone().into()] } else { self.walk() }
    }

    /// The paths that it names; none of which a part is not UTF-8. `**` stands for no link to a directory, as in a shell:
    /// links may form circles. What is below a directory that may not be read does not exist for this user.
    fn walk(&self) -> Vec<PathBuf> {
        let parts: Vec<Component<'_>> = Path::new(&self.0).components().collect();
        // Paths are made of its parts, so they have neither `//` nor `/./`. Of what a path has to match to go on there
        // is one for each length, but for `**`.
        let first = |n: usize| parts[..n].iter().collect::<PathBuf>();
        let matching = |n: usize| glob::Pattern::new(&first(n).to_string_lossy());
        let Ok(all) = matching(parts.len()) else { return Vec::new() };
        let is_deep = self.0.contains("**");
        let goes_on = |path: &Path, n: usize| match is_deep {
            true => fs::symlink_metadata(path).is_ok_and(|about| about.is_dir()),
            false => {
                n < parts.len()
                    && matching(n).is_ok_and(|some| some.matches_path_with(path, OPTIONS))
                    && path.is_dir()
            }
        };
        let is_plain =
            |part: &&Component<'_>| !part.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?[".contains(byte));
        let begin = first(parts.iter().take_while(is_plain).count());
        let (mut left, mut found) = (vec![begin.clone()], Vec::new());
        while let Some(path) = left.pop() {
            if all.matches_path_with(&path, OPTIONS) {
                found.push(path.clone());
            }
            let here = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            if path == begin && here.is_dir() || goes_on(&path, path.components().count()) {
                let entries = fs::read_dir(here).into_iter().flatten().flatten();
                left.extend(entries.map(|entry| path.join(entry.file_name())));
            }
        }
        found.sort();
        found.retain(|path| !(is_deep && path.is_symlink() && path.is_dir()));
        found
    }
}

/// The files that were named.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// In the order in which they are brought.
    pub files: Vec<PathBuf>,
    /// What they hold.
    pub bytes: u64,
    /// Patterns that name nothing.
    pub warnings: Vec<String>,
    /// Files and directories that were met, by device and inode.
    met: HashSet<(u64, u64)>,
}

impl Named {
    /// Those that `patterns` name now.
    pub fn by(patterns: &[Pattern]) -> Self {
        let mut named = Self::default();
        for pattern in patterns {
            let paths = pattern.paths();
            let has_file = paths.iter().map(|path| named.add(path)).reduce(|one, other| one | other);
            let what = match has_file {
                Some(true) => continue,
                Some(false) => "no regular file",
                None => "nothing",
            };
            named.warnings.push(format!("--files {}: it names {what}, so nothing of it is brought", pattern.0));
        }
        named
    }

    /// Adds a file, or those below a directory; whether there is one.
    fn add(&mut self, path: &Path) -> bool {
        // Links are followed here, and not below.
        let Ok(about) = fs::metadata(path) else { return false };
        if about.is_file() {
            self.add_file(path, &about);
        }
        about.is_file() || about.is_dir() && self.add_directory(path, &about)
    }

    fn add_file(&mut self, path: &Path, about: &Metadata) {
        if self.met.insert((about.dev(), about.ino())) {
            self.files.push(path.to_owned());
            self.bytes = self.bytes.saturating_add(about.len());
        }
    }

    /// The same of all below it, by name. Links to directories are not followed.
    fn add_directory(&mut self, path: &Path, about: &Metadata) -> bool {
        if !self.met.insert((about.dev(), about.ino())) {
            return true;
        }
        let mut entries: Vec<_> = fs::read_dir(path).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let is_link = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        entries.iter().fold(false, |has_file, entry| {
            let path = entry.path();
            let is_led_away = is_link(entry) && path.is_dir();
            (!is_led_away && self.add(&path)) | has_file
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    fn names(dir: &Path, patterns: &[&str]) -> (Vec<String>, usize) {
        let patterns: Vec<_> =
            patterns.iter().map(|text| pattern(&dir.join(text).display().to_string()).unwrap()).collect();
        let named = Named::by(&patterns);
        let name = |path: &PathBuf| path.strip_prefix(dir).unwrap().display().to_string();
        assert_eq!(named.bytes, named.files.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>());
        (named.files.iter().map(name).collect(), named.warnings.len())
    }

    #[test]
    fn each_regular_file_comes_once_in_the_order_of_the_patterns() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir_all(dir.join("sub/deep")).unwrap();
        for (name, bytes) in [("b", 1), ("a", 2), ("sub/c", 3), ("sub/deep/d", 4), (".hidden", 5), ("x[1]", 6)] {
            fs::write(dir.join(name), vec![0; bytes]).unwrap();
        }
        fs::write(dir.join(OsStr::from_bytes(b"\xff")), "no UTF-8").unwrap();
        symlink("a", dir.join("link")).unwrap();
        symlink("gone", dir.join("dangling")).unwrap();
        // A circle.
        symlink("..", dir.join("sub/up")).unwrap();
        symlink(".", dir.join("sub/here")).unwrap();
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(dir, &["b", "*"]), (owned(&["b", "a", "sub/c", "sub/deep/d", "x[1]"]), 0));
        assert_eq!(names(dir, &["link", "a", "[ab]"]), (owned(&["link", "b"]), 0));
        assert_eq!(
            names(dir, &["x[1]", "**/d", "?idden", ".hidden"]),
            (owned(&["x[1]", "sub/deep/d", ".hidden"]), 1)
        );
        assert_eq!(names(dir, &["sub", "sub/**"]), (owned(&["sub/c", "sub/deep/d"]), 0));
        assert_eq!(names(dir, &["sub//**/d", "./sub/./**/c"]), (owned(&["sub/deep/d", "sub/c"]), 0));
        assert_eq!(names(dir, &["s*/d*/?", "*/up/sub/h*/c"]), (owned(&["sub/deep/d", "sub/up/sub/here/c"]), 0));
        assert_eq!(names(dir, &["dangling", "none*"]), (Vec::new(), 2));
    }

    #[test]
    fn what_is_no_pattern_is_an_error_unless_it_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a[b").display().to_string();
        assert!(pattern("").is_err() && pattern(&odd).is_err() && pattern("a***").is_err());
        fs::write(&odd, "x").unwrap();
        assert_eq!(Named::by(&[pattern(&odd).unwrap()]).files.len(), 1);
    }

    #[test]
    fn what_is_no_regular_file_is_left_out() {
        let named = Named::by(&[pattern("/dev/null").unwrap(), pattern("/dev/nul?").unwrap()]);
        assert!(named.files.is_empty() && named.warnings.iter().all(|text| text.contains("no regular file")));
        assert_eq!(named.warnings.len(), 2);
    }
}
