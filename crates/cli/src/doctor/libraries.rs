//! The shared libraries that a program is linked with, found as its loader finds them, and allocators inside.
//!
//! Nothing is run for that. What a program loads later, by dlopen, is not seen.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, elf};

use crate::run::program;

/// Libraries that are followed at most.
const MOST: usize = 500;
/// Read-only data that is searched at most.
const MOST_TEXT: u64 = 64 << 20;
/// Where the loader looks in the end.
const FOLDERS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const CACHE: &str = "/etc/ld.so.cache";

/// Allocators that programs bring along, with functions that only they have.
const ALLOCATORS: [(&str, &[&str]); 3] = [
    ("jemalloc", &["mallocx", "mallctl", "je_malloc", "je_mallocx", "_rjem_malloc", "_rjem_mallocx"]),
    ("mimalloc", &["mi_malloc", "mi_version", "_mi_malloc_generic"]),
    ("tcmalloc", &["tc_malloc", "tc_version", "TCMallocInternalMalloc", "TCMallocInternalCalloc"]),
];

/// What a file says about allocators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Its name; `None`: one that is not known.
    pub name: Option<&'static str>,
    /// The program, or a library.
    pub file: PathBuf,
    /// Whether the file defines `malloc` for others.
    pub exports_malloc: bool,
    /// Whether it is the program itself, whose functions come before those of any library.
    pub in_program: bool,
}

/// The allocators in a program and the libraries that it is linked with, and the names of those not found.
pub fn allocators(program: &Path) -> (Vec<Allocator>, Vec<String>) {
    let mut queue = VecDeque::from([program.to_owned()]);
    let (mut seen, mut found, mut lost) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut cache = None;
    while let Some(path) = queue.pop_front() {
        if seen.len() == MOST || !seen.insert(path.canonicalize().unwrap_or(path.clone())) {
            continue;
        }
        let in_program = seen.len() == 1;
        let Some(content) = read(&path) else { continue };
        let is_libc = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libc.so"));
        if !is_libc && (content.allocator.is_some() || content.exports_malloc) {
            let Content { allocator, exports_malloc, .. } = content;
            found.push(Allocator { name: allocator, file: path.clone(), exports_malloc, in_program });
        }
        for name in content.needed {
            let cache = cache.get_or_insert_with(|| std::fs::read(CACHE).unwrap_or_default());
            match resolve(&name, &content.search, &path, cache) {
                Some(path) => queue.push_back(path),
                None => lost.push(name),
            }
        }
    }
    lost.sort();
    lost.dedup();
    (found, lost)
}

/// What is needed of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    needed: Vec<String>,
    search: Vec<String>,
    allocator: Option<&'static str>,
    exports_malloc: bool,
}

fn read(path: &Path) -> Option<Content> {
    content(&ReadCache::new(program::open(path)?))
}

/// The same of what is in a file.
fn content<'data>(data: impl ReadRef<'data>) -> Option<Content> {
    let file = ElfFile64::<LittleEndian, _>::parse(data).ok()?;
    let mut content = Content::default();
    let (endian, sections) = (LittleEndian, file.elf_section_table());
    if let Ok(Some((entries, strings))) = sections.dynamic(endian, data)
        && let Ok(strings) = sections.strings(endian, data, strings)
    {
        for entry in entries {
            let text = || {
                let at = u32::try_from(entry.d_val.get(endian)).ok()?;
                Some(String::from_utf8_lossy(strings.get(at).ok()?).into_owned())
            };
            match entry.d_tag.get(endian) as u32 {
                elf::DT_NEEDED => content.needed.extend(text()),
                elf::DT_RPATH | elf::DT_RUNPATH => {
                    content.search.extend(text().iter().flat_map(|list| list.split(':')).map(str::to_owned));
                }
                _ => {}
            }
        }
    }
    let defined = |symbol: &dyn Fn(&str)| {
        let all = file.dynamic_symbols().chain(file.symbols()).filter(|s| s.is_definition());
        all.filter_map(|s| s.name().ok()).for_each(symbol);
    };
    let known = std::cell::Cell::new(None);
    defined(&|name| {
        if let Some((allocator, _)) = ALLOCATORS.iter().find(|(_, functions)| functions.contains(&name)) {
            known.set(Some(*allocator));
        }
    });
    content.allocator = known.get().or_else(|| {
        let text = file.section_by_name(".rodata").filter(|section| section.size() <= MOST_TEXT)?;
        ALLOCATORS.map(|(name, _)| name).into_iter().find(|name| speaks(text.data().unwrap_or_default(), name))
    });
    let is_malloc = |name: Result<&str, _>| name.is_ok_and(|name| name == "malloc");
    content.exports_malloc =
        file.dynamic_symbols().any(|symbol| symbol.is_definition() && is_malloc(symbol.name()));
    Some(content)
}

/// Whether a text is one by which an allocator begins its messages: what is left of it when symbols are stripped.
fn speaks(text: &[u8], allocator: &str) -> bool {
    let phrase = match allocator {
        "jemalloc" => format!("<{allocator}>: "),
        _ => format!("{allocator}: "),
    };
    let phrase = phrase.as_bytes();
    let starts = text.iter().enumerate().filter(|(_, byte)| **byte == phrase[0]);
    starts.map(|(at, _)| &text[at..]).any(|rest| rest.starts_with(phrase))
}

fn resolve(name: &str, search: &[String], user: &Path, cache: &[u8]) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let origin = user.canonicalize().ok();
    let origin = origin.as_deref().and_then(Path::parent).unwrap_or(Path::new("/")).to_string_lossy();
    let expand = |folder: &str| folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    let given = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = search.iter().map(|folder| expand(folder));
    let folders = folders.chain(given.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned));
    let at = |folder: &str| Some(Path::new(folder).join(name)).filter(|path| path.is_file());
    let first = folders.into_iter().find_map(|folder| at(&folder));
    // The same name may stand for 32 bits.
    let cached = || cached(cache, name, |path| read(path).is_some());
    first.or_else(cached).or_else(|| FOLDERS.into_iter().find_map(at))
}

/// The loader's cache: a magic text, and the number of entries (four bytes at 20). From 48 on there are entries of 24
/// bytes, whose second and third word are the places of name and path.
fn cached(cache: &[u8], name: &str, is_fit: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let start = cache.windows(20).position(|w| w == b"glibc-ld.so.cache1.1")?;
    let cache = &cache[start..];
    let word = |at: usize| Some(u32::from_le_bytes(cache.get(at..at + 4)?.try_into().ok()?) as usize);
    let text = |at: usize| {
        let rest = cache.get(at..)?;
        std::str::from_utf8(&rest[..rest.iter().position(|b| *b == 0)?]).ok()
    };
    (0..word(20)?).map_while(|i| Some((word(52 + 24 * i)?, word(56 + 24 * i)?))).find_map(|(key, value)| {
        (text(key)? == name).then(|| text(value))?.map(PathBuf::from).filter(|path| is_fit(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{Guarded, cases, changed, changes};
    use proptest::prelude::*;

    #[test]
    fn libraries_of_this_program_are_found() {
        let own = std::env::current_exe().unwrap();
        let content = read(&own).unwrap();
        assert!(content.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", content.needed);
        let (_, lost) = allocators(&own);
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn a_cut_cache_and_odd_files_are_no_trouble() {
        let cache = std::fs::read(CACHE).unwrap_or_default();
        for end in [0, 19, 21, 40, 49, 60, cache.len() / 2] {
            assert_eq!(cached(&cache[..end.min(cache.len())], "libnothing.so.1", |_| true), None);
        }
        assert_eq!(allocators(Path::new("/nonexistent")), (Vec::new(), Vec::new()));
        assert!(read(Path::new("/etc/passwd")).is_none());
    }

    #[test]
    fn messages_tell_an_allocator() {
        let text = |name: &str| format!("abc\0<{name}>: no memory\0");
        assert!(speaks(text("jemalloc").as_bytes(), "jemalloc"));
        assert!(!speaks(b"jemalloc", "jemalloc") && !speaks(b"", "mimalloc") && !speaks(b"mimalloc:", "mimalloc"));
        assert!(speaks(b"xmimalloc: y", "mimalloc"));
    }

    /// A cache with these names, each with its path.
    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut cache = b"glibc-ld.so.cache1.1".to_vec();
        cache.extend((entries.len() as u32).to_le_bytes());
        cache.resize(48, 0);
        let mut texts = Vec::new();
        for (name, path) in entries {
            let first = 48 + 24 * entries.len() + texts.len();
            let words = [1, first, first + name.len() + 1, 0, 0, 0];
            cache.extend(words.iter().flat_map(|word| (*word as u32).to_le_bytes()));
            texts.extend(format!("{name}\0{path}\0").bytes());
        }
        [cache, texts].concat()
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_cache_is_borne(changes in changes(), cut in prop::option::of(any::<usize>())) {
            let entries = [("liba.so.1", "/lib/liba.so.1"), ("libb.so.1", "/lib32/libb.so.1"), ("libb.so.1", "/lib/b")];
            let whole = cache(&entries);
            let is_fit = |path: &Path| !path.starts_with("/lib32");
            prop_assert_eq!(cached(&whole, "libb.so.1", is_fit), Some("/lib/b".into()));
            let bytes = Guarded::new(&changed(whole, changes, cut));
            if let Some(path) = cached(&bytes, "libb.so.1", is_fit) {
                let path = path.into_os_string().into_encoded_bytes();
                prop_assert!(path.is_empty() || bytes.windows(path.len()).any(|part| part == path));
            }
        }

        /// Of a library that is changed or cut, each name stands in the file.
        #[test]
        fn any_library_is_borne(changes in changes(), cut in prop::option::of(any::<usize>())) {
            let is_whole = changes.is_empty() && cut.is_none();
            let bytes = changed(std::fs::read("/bin/true").unwrap(), changes, cut);
            let found = content(&ReadCache::new(std::io::Cursor::new(&bytes[..]))).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            prop_assert!(found.needed.iter().chain(&found.search).all(|name| text.contains(name)));
            prop_assert!(found.needed.iter().any(|name| name.starts_with("libc.so")) || !is_whole);
            let other = content(&Guarded::new(&bytes)[..]).unwrap_or_default();
            prop_assert!(other.needed.iter().all(|name| text.contains(name)));
        }
    }
}
