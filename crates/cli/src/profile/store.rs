//! Where profiles lie: a file for each program, in a directory of this user's alone. Whatever is wrong with one, it
//! counts as none.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::entry::{Entry, Key, VERSION};
use crate::own;

/// The longest file of a profile.
const LONGEST: u64 = 8 << 10;
/// Profiles that are kept. The oldest go for new ones.
const MOST: usize = 4096;
/// As many at once: to look for them takes long.
const AT_ONCE: usize = MOST / 8;

/// The directory.
pub struct Store(PathBuf);

impl Store {
    /// Below $XDG_CACHE_HOME, or ~/.cache.
    pub fn of_user() -> Option<Self> {
        let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let cache = dir("XDG_CACHE_HOME").or_else(|| Some(dir("HOME")?.join(".cache")))?;
        Some(Self::at(cache.join("faultless/profiles")))
    }

    /// This directory.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether it is a directory that none but this user may change.
    fn is_own(&self) -> bool {
        own::is_directory(&self.0)
    }

    /// Whether it is not there, and would lie in a directory of this user's. It does not lie in that of another user,
    /// whose HOME this process has, nor where there is no home.
    fn may_be_made(&self) -> bool {
        let about = |path: &&Path| path.symlink_metadata().is_ok();
        let above = self.0.ancestors().take(4).find(about);
        above.is_some_and(|dir| dir != self.0 && dir.metadata().is_ok_and(|about| about.uid() == own::user()))
    }

    /// What is noted of a program.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        if !self.is_own() {
            return None;
        }
        // Another program may have a file of the same name.
        self.read(&self.0.join(key.name())).filter(|entry| entry.key == *key)
    }

    /// A file that is no link, this user's alone, short, and holds a profile.
    fn read(&self, path: &Path) -> Option<Entry> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let about = file.metadata().ok()?;
        let is_sound =
            about.is_file() && about.uid() == own::user() && about.nlink() == 1 && about.mode() & 0o022 == 0;
        if !is_sound || about.len() > LONGEST {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let entry: Entry = serde_json::from_slice(&bytes).ok()?;
        (entry.version == VERSION).then_some(entry)
    }

    /// Notes what is known of a program. A reader finds the old or the new one, whatever happens meanwhile.
    pub fn put(&self, entry: &Entry) -> io::Result<()> {
        if self.may_be_made() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        }
        if !self.is_own() {
            return Err(io::Error::other(format!("{} is not a directory of this user's alone", self.0.display())));
        }
        let bytes = serde_json::to_vec(entry)?;
        if bytes.len() as u64 > LONGEST {
            return Err(io::Error::other(format!("{} has too long a profile", entry.key.path.display())));
        }
        let place = self.0.join(entry.key.name());
        if place.symlink_metadata().is_err() {
            self.make_room();
        }
        // Made for this user alone.
        let mut new = tempfile::NamedTempFile::with_prefix_in(".new-", &self.0)?;
        new.write_all(&bytes)?;
        new.persist(place)?;
        Ok(())
    }

    /// The files of profiles, and what others left half done.
    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
        files.sort();
        files
    }

    fn make_room(&self) {
        let files = self.files();
        if files.len() >= MOST {
            // Read once each, and for many new profiles.
            let changed = |path: &PathBuf| path.symlink_metadata().and_then(|about| about.modified()).ok();
            let mut files: Vec<_> = files.into_iter().map(|path| (changed(&path), path)).collect();
            files.sort();
            let most = files.len() - MOST + AT_ONCE;
            files.iter().take(most).for_each(|(_, path)| _ = std::fs::remove_file(path));
        }
    }

    /// All of them, by the program's path.
    pub fn all(&self) -> Vec<Entry> {
        if !self.is_own() {
            return Vec::new();
        }
        let named =
            |path: &PathBuf, entry: &Entry| path.file_name().is_some_and(|name| *name == *entry.key.name());
        let read = |path: PathBuf| self.read(&path).filter(|entry| named(&path, entry));
        let mut all: Vec<_> = self.files().into_iter().filter_map(read).collect();
        all.sort_by(|a, b| (&a.key.path, a.key.rest).cmp(&(&b.key.path, b.key.rest)));
        all
    }

    /// Removes those of programs for which `is_meant` holds, and what is no profile; how many profiles went.
    pub fn forget(&self, is_meant: impl Fn(Option<&Entry>) -> bool) -> usize {
        if !self.is_own() {
            return 0;
        }
        let mut forgotten = 0;
        for path in self.files() {
            let entry = self.read(&path);
            if is_meant(entry.as_ref()) && std::fs::remove_file(path).is_ok() {
                forgotten += entry.is_some() as usize;
            }
        }
        forgotten
    }
}

/// Profiles as they are carried from one machine to another.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let all: Vec<Entry> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match all.iter().find(|entry| entry.version != VERSION) {
        Some(other) => Err(format!("a profile of version {}, where this command has {VERSION}", other.version)),
        None => Ok(all),
    }
}

/// Reads a file of such profiles.
pub fn read(path: &Path) -> Result<Vec<Entry>, String> {
    const LONGEST: u64 = 64 << 20;
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    read.map_err(|error| error.to_string()).and_then(|_| parse(&text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    use super::*;

    fn entry(rest: u64) -> Entry {
        let key = Key { path: "/bin/a".into(), size: 1, changed: -2, rest };
        Entry {
            version: VERSION,
            key,
            is_large: false,
            small: 1,
            cpu: None,
            plain_cpu: None,
            peak: 7,
            covered: 1,
            plain: 0,
        }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path().join("a/profiles"));
        (dir, store)
    }

    #[test]
    fn what_is_noted_is_found_and_forgotten() {
        let (_dir, store) = store();
        assert_eq!(store.get(&entry(1).key), None);
        (1..=3).for_each(|rest| store.put(&entry(rest)).unwrap());
        let changed = Entry { peak: 8, ..entry(1) };
        store.put(&changed).unwrap();
        assert_eq!((store.get(&entry(1).key), store.all().len()), (Some(changed), 3));
        let mode = |path: &Path| path.symlink_metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(store.path()), mode(&store.files()[0])), (0o700, 0o600));
        assert_eq!(store.forget(|entry| entry.is_some_and(|entry| entry.key.rest == 2)), 1);
        assert_eq!(store.all().len(), 2);
    }

    #[test]
    fn what_could_not_be_read_again_is_refused() {
        let (_dir, store) = store();
        let mut long = entry(1);
        long.key.path = "\u{1}".repeat(LONGEST as usize / 4).into();
        assert!(store.put(&long).is_err());
        assert_eq!(store.files().len(), 0);
    }

    #[test]
    fn the_oldest_make_room_for_many() {
        let (_dir, store) = store();
        store.put(&entry(1)).unwrap();
        let old = |i: usize| store.path().join(format!("old-{i}"));
        for i in 1..MOST {
            let file = File::create(old(i)).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(i as u64)).unwrap();
        }
        store.put(&entry(1)).unwrap();
        assert_eq!(store.files().len(), MOST, "a program that is known needs no room");
        store.put(&entry(2)).unwrap();
        assert_eq!(store.files().len(), MOST - AT_ONCE + 1);
        assert!(!old(AT_ONCE).exists() && old(AT_ONCE + 1).exists());
        assert_eq!(store.all().len(), 2);
    }

    #[test]
    fn links_and_files_of_others_are_left_alone() {
        let (dir, store) = store();
        store.put(&entry(1)).unwrap();
        let place = store.path().join(entry(1).key.name());
        let aside = dir.path().join("aside");
        std::fs::rename(&place, &aside).unwrap();
        symlink(&aside, &place).unwrap();
        assert_eq!(store.get(&entry(1).key), None, "a link");
        store.put(&entry(1)).unwrap();
        assert!(
            place.symlink_metadata().unwrap().is_file() && aside.exists(),
            "the link is replaced, not followed"
        );
        std::fs::hard_link(&place, dir.path().join("other")).unwrap();
        assert_eq!(store.get(&entry(1).key), None, "a file with another name");
        std::fs::remove_file(dir.path().join("other")).unwrap();
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o622)).unwrap();
        assert_eq!(store.get(&entry(1).key), None, "others may write to it");
        std::fs::remove_file(&place).unwrap();
        std::fs::create_dir(&place).unwrap();
        assert!(store.get(&entry(1).key).is_none() && store.put(&entry(1)).is_err());
        std::fs::set_permissions(store.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(store.put(&entry(2)).is_err() && store.all().is_empty());
    }

    #[test]
    fn a_file_of_another_program_or_version_is_none() {
        let (_dir, store) = store();
        store.put(&entry(1)).unwrap();
        let place = |rest| store.path().join(entry(rest).key.name());
        std::fs::rename(place(1), place(2)).unwrap();
        assert!(store.get(&entry(2).key).is_none() && store.all().is_empty());
        store.put(&Entry { version: VERSION + 1, ..entry(3) }).unwrap();
        assert_eq!(store.get(&entry(3).key), None);
    }

    proptest! {
        #![proptest_config(cases())]

        /// Any bytes are a profile or none, and a profile is written as it was read.
        #[test]
        fn any_file_is_borne(bytes in garbled(&[r#"{"version":3,"key":{"path":"/bin/a","size":1,"changed":-2,"rest":1},"is_large":false,"small":1,"cpu":5,"plain_cpu":null,"peak":7,"covered":1,"plain":0}"#])) {
            let (_dir, store) = store();
            store.put(&entry(1)).unwrap();
            let place = store.path().join(entry(1).key.name());
            std::fs::write(&place, &bytes).unwrap();
            if let Some(read) = store.get(&entry(1).key) {
                prop_assert_eq!(&read.key, &entry(1).key);
                store.put(&read).unwrap();
                prop_assert_eq!(store.get(&entry(1).key), Some(read));
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let _ = parse(&text).is_ok_and(|all| all.iter().any(Entry::is_plain));
        }
    }
}
