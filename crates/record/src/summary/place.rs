//! What an address belongs to, and what kind of fault it was.

use serde::{Deserialize, Serialize};

use crate::pairs::Ended;
use crate::space::{Area, Process};
use crate::wire::Sample;

/// Kinds of faults, as far as they can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// First touch of anonymous memory: a small page.
    FirstTouch,
    /// First touch of anonymous memory: a huge page.
    Huge,
    /// A page was there, and could not be written to: a copy is made, of a page that a fork shares, of a file's, or of
    /// zeroes that were read.
    Copy,
    /// A page of a file that is in memory.
    File,
    /// Memory that processes share.
    Shared,
    /// Waited for input: a page of a file, or from swap.
    Input,
    /// Its mapping is not known.
    Unknown,
}

impl Kind {
    /// All of them, in their order.
    pub const ALL: [Self; 7] =
        [Self::FirstTouch, Self::Huge, Self::Copy, Self::File, Self::Shared, Self::Input, Self::Unknown];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::FirstTouch => "first touch of anonymous memory",
            Self::Huge => "first touch, a huge page",
            Self::Copy => "copy on write",
            Self::File => "page of a file, in memory",
            Self::Shared => "shared memory",
            Self::Input => "waited for input",
            Self::Unknown => "mapping not known",
        }
    }

    /// Whether faultless can take such faults off a program.
    pub fn is_new_memory(self) -> bool {
        matches!(self, Self::FirstTouch | Self::Huge)
    }
}

/// The least that counts as a huge page.
const HUGE: u64 = 2 << 20;

/// What an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Anonymous,
    Heap,
    Stack,
    File,
    Shared,
    Unknown,
}

/// What names of memory without a file begin with.
const ANONYMOUS: [&str; 4] = ["//anon", "[anon", "/dev/zero", "/anon_hugepage"];

impl Class {
    pub fn of(area: Option<&Area>) -> Self {
        let Some(area) = area else { return Self::Unknown };
        let is_shared = area.flags & libc::MAP_SHARED as u32 != 0;
        match &*area.name {
            "[heap]" => Self::Heap,
            name if name.starts_with("[stack") => Self::Stack,
            // Of a private mapping of these, what is read are the file's pages.
            name if is_shared && ["/memfd:", "/SYSV", "/dev/shm/"].iter().any(|start| name.starts_with(start)) => {
                Self::Shared
            }
            // A private mapping of /dev/zero is new memory, and so is what the kernel calls /anon_hugepage.
            name if name.is_empty() || ANONYMOUS.iter().any(|start| name.starts_with(start)) => {
                if is_shared {
                    Self::Shared
                } else {
                    Self::Anonymous
                }
            }
            // Files, and what the kernel maps itself ([vdso]).
            _ => Self::File,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Heap => "heap",
            Self::Stack => "stack",
            Self::File => "file",
            Self::Shared => "shared",
            Self::Unknown => "unknown",
        }
    }
}

/// The kind of a fault in an area.
pub fn kind(class: Class, begin: &Sample, ended: Option<Ended>) -> Kind {
    if ended.is_some_and(|ended| ended.major) {
        return Kind::Input;
    }
    let is_private = matches!(class, Class::Anonymous | Class::Heap | Class::Stack);
    match class {
        Class::Unknown => Kind::Unknown,
        Class::Shared => Kind::Shared,
        _ if begin.page != 0 => Kind::Copy,
        _ if is_private && ended.is_some_and(|ended| ended.page >= HUGE) => Kind::Huge,
        _ if is_private => Kind::FirstTouch,
        _ => Kind::File,
    }
}

/// What mappings are added up under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    pub name: String,
    pub class: &'static str,
    pub allocator: Option<&'static str>,
}

/// Libraries that stand for an allocator: a part of their names, and what they are called.
const ALLOCATORS: &[(&str, &str)] = &[
    ("libfaultless_preload", "faultless"),
    ("jemalloc", "jemalloc"),
    ("tcmalloc", "tcmalloc"),
    ("mimalloc", "mimalloc"),
    ("libhoard", "Hoard"),
    ("snmalloc", "snmalloc"),
    ("libasan", "AddressSanitizer"),
];

/// Whether a mapping with this name may say another allocator.
pub fn may_be_allocator(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    is_glibc(name) || ALLOCATORS.iter().any(|(part, _)| name.contains(part))
}

fn is_glibc(name: &str) -> bool {
    name.starts_with("libc.so") || name.starts_with("libc-2")
}

/// The allocator that a process probably uses.
pub fn allocator(process: &Process) -> Option<&'static str> {
    let mut has_glibc = false;
    for area in process.areas() {
        let name = area.name.rsplit('/').next().unwrap_or_default();
        if let Some((_, allocator)) = ALLOCATORS.iter().find(|(part, _)| name.contains(part)) {
            return Some(allocator);
        }
        has_glibc |= is_glibc(name);
    }
    has_glibc.then_some("glibc")
}

/// What an area is called: files by their paths, anonymous ones by their sizes, from one power of two to the next.
pub fn label(class: Class, area: Option<&Area>, allocator: Option<&'static str>) -> Label {
    let Some(area) = area else {
        return Label { name: "[unknown]".into(), class: class.text(), allocator: None };
    };
    let (name, allocator) = match class {
        Class::Anonymous => (sizes(area.bytes), allocator),
        Class::Heap => (area.name.to_string(), allocator),
        // As the kernel calls it.
        Class::Shared if area.name.starts_with("/dev/zero") => (format!("shared {}", sizes(area.bytes)), None),
        _ => (area.name.to_string(), None),
    };
    Label { name, class: class.text(), allocator }
}

fn sizes(bytes: u64) -> String {
    use faultless_measure::figures::size;
    let bytes = bytes.max(1);
    let from = 1u64 << bytes.ilog2();
    if from == bytes {
        return format!("anonymous, {}", size(bytes));
    }
    match from.checked_mul(2) {
        Some(to) => format!("anonymous, {} to {}", size(from), size(to)),
        None => "anonymous".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::event::What;

    fn area(name: &str, flags: i32, bytes: u64) -> Area {
        Area {
            start: 0,
            bytes,
            since: 0,
            piece: bytes,
            was_closed: false,
            offset: 0,
            inode: 0,
            flags: flags as u32,
            access: 3,
            name: name.into(),
        }
    }

    #[test]
    fn areas_have_their_classes_and_names() {
        let class = |name, flags| Class::of(Some(&area(name, flags, 4096)));
        assert_eq!(class("//anon", libc::MAP_PRIVATE), Class::Anonymous);
        assert_eq!(class("/dev/zero (deleted)", libc::MAP_SHARED), Class::Shared);
        let (shared, private) = (libc::MAP_SHARED, libc::MAP_PRIVATE);
        for name in ["/memfd:x (deleted)", "/dev/shm/x", "/SYSV00000000"] {
            assert_eq!((class(name, shared), class(name, private)), (Class::Shared, Class::File), "{name}");
        }
        for name in ["/anon_hugepage (deleted)", "/dev/zero", "[anon:x]"] {
            assert_eq!((class(name, shared), class(name, private)), (Class::Shared, Class::Anonymous), "{name}");
        }
        assert_eq!(class("/usr/lib/libc.so.6", libc::MAP_PRIVATE), Class::File);
        assert_eq!(
            (class("[heap]", 2), class("[stack]", 2), class("[vdso]", 2)),
            (Class::Heap, Class::Stack, Class::File)
        );
        assert_eq!(Class::of(None), Class::Unknown);
        let shared = area("/dev/zero (deleted)", libc::MAP_SHARED, 8 << 20);
        assert_eq!(label(Class::Shared, Some(&shared), Some("glibc")).name, "shared anonymous, 8 MiB");
        assert_eq!(sizes(3 << 20), "anonymous, 2 MiB to 4 MiB");
        assert_eq!(sizes(2 << 20), "anonymous, 2 MiB");
        assert_eq!(sizes(0), "anonymous, 1 bytes");
        assert_eq!(sizes(u64::MAX), "anonymous");
    }

    #[test]
    fn only_libraries_with_an_allocator_change_it() {
        let may = |name| may_be_allocator(name);
        assert!(may("/usr/lib/libc.so.6") && may("/lib/libc-2.31.so") && may("/usr/local/lib/libjemalloc.so.2"));
        assert!(!["//anon", "[heap]", "/usr/lib/libm.so.6", "/x/jemalloc/data", ""].map(may).contains(&true));
    }

    #[test]
    fn a_fault_has_the_kind_that_its_records_tell() {
        let begin = |page| Sample {
            what: What::Begin,
            ip: 0,
            pid: 1,
            tid: 1,
            time: 0,
            address: 0,
            period: 1,
            stack: Vec::new(),
            memory: Vec::new(),
            page,
        };
        let end = |page, major| Some(Ended { ns: 1, page, major });
        assert_eq!(kind(Class::Anonymous, &begin(0), None), Kind::FirstTouch);
        assert_eq!(kind(Class::Anonymous, &begin(0), end(4096, false)), Kind::FirstTouch);
        assert_eq!(kind(Class::Heap, &begin(0), end(2 << 20, false)), Kind::Huge);
        assert_eq!(kind(Class::Heap, &begin(4096), end(4096, false)), Kind::Copy);
        assert_eq!(kind(Class::File, &begin(0), None), Kind::File);
        assert_eq!(kind(Class::File, &begin(0), end(4096, true)), Kind::Input);
        assert_eq!(kind(Class::Shared, &begin(4096), None), Kind::Shared);
        assert_eq!(kind(Class::Unknown, &begin(0), None), Kind::Unknown);
    }
}
