//! The symbols of a loaded library, as its own tables have them.
//!
//! They are read without the dynamic linker. Its `dlsym` takes a lock that another thread may hold while it waits for
//! this one, allocates where it finds nothing, and other libraries stand before it. What is found here is what
//! `dlsym(RTLD_NEXT, …)` would find in the one library.

use core::ffi::{CStr, c_char, c_int};

/// The dynamic linker's entry for a library (`struct link_map`).
#[repr(C)]
pub struct Map {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
    next: *const Map,
}

/// The beginning of `struct r_debug`.
#[repr(C)]
pub struct Debug {
    _version: c_int,
    pub first: *const Map,
}

#[repr(C)]
struct Entry {
    tag: isize,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    bytes: usize,
}

/// `Elf64_Verdef`.
#[repr(C)]
struct Definition {
    _version: u16,
    _flags: u16,
    index: u16,
    _names: u16,
    _hash: u32,
    first_name: u32,
    next: u32,
}

const DT_HASH: isize = 4;
const DT_STRTAB: isize = 5;
const DT_SYMTAB: isize = 6;
const DT_SONAME: isize = 14;
const DT_GNU_HASH: isize = 0x6fff_fef5;
const DT_VERSYM: isize = 0x6fff_fff0;
const DT_VERDEF: isize = 0x6fff_fffc;

/// The bit of a symbol's version that hides it from look-ups without a version.
const HIDDEN: u16 = 0x8000;
/// Versions from this one on are defined by the library.
const FIRST_DEFINED: u16 = 2;
const SHN_ABS: u16 = 0xfff1;

/// A name with its hash.
pub struct Name {
    text: &'static CStr,
    hash: u32,
}

impl Name {
    pub const fn new(text: &'static CStr) -> Self {
        let (bytes, mut hash, mut i) = (text.to_bytes(), 5381u32, 0);
        while i < bytes.len() {
            hash = hash.wrapping_mul(33).wrapping_add(bytes[i] as u32);
            i += 1;
        }
        Self { text, hash }
    }

    pub fn text(&self) -> &'static CStr {
        self.text
    }

    /// Its hash in tables of the older kind.
    fn old_hash(&self) -> u32 {
        self.text.to_bytes().iter().fold(0u32, |hash, byte| {
            let hash = hash.wrapping_shl(4).wrapping_add(u32::from(*byte));
            let top = hash & 0xf000_0000;
            (hash ^ top >> 24) & !top
        })
    }
}

/// Which version of a symbol counts.
#[derive(Clone, Copy)]
pub enum Version {
    /// The default one.
    Default,
    /// The one of this name, hidden or not.
    Named(&'static CStr),
}

impl Map {
    /// The library behind it in the dynamic linker's list.
    ///
    /// # Safety
    /// It is loaded, and so is the next one.
    pub unsafe fn next<'a>(&self) -> Option<&'a Self> {
        // SAFETY: by contract.
        unsafe { self.next.as_ref() }
    }

    /// Whether this is the library that has this dynamic section.
    pub fn has_dynamic_section(&self, at: usize) -> bool {
        self.dynamic as usize == at
    }
}

/// The tables of a library.
pub struct Library {
    base: usize,
    symbols: *const Symbol,
    strings: *const c_char,
    gnu_hash: *const u32,
    old_hash: *const u32,
    versions: *const u16,
    definitions: *const Definition,
    own_name: Option<usize>,
}

impl Library {
    /// The tables of `map`; `None` where it has no symbols.
    ///
    /// # Safety
    /// It stays loaded while the result is used.
    pub unsafe fn of(map: &Map) -> Option<Self> {
        let mut tables = [0; 5];
        let [strings, symbols, gnu_hash, old_hash, versions] = &mut tables;
        let (mut definitions, mut own_name, mut entry) = (0, None, map.dynamic);
        // SAFETY: by contract; a list that ends with a tag of 0.
        while let Some(Entry { tag, value }) = unsafe { entry.as_ref() }.filter(|entry| entry.tag != 0) {
            match *tag {
                DT_STRTAB => *strings = *value,
                DT_SYMTAB => *symbols = *value,
                DT_GNU_HASH => *gnu_hash = *value,
                DT_HASH => *old_hash = *value,
                DT_VERSYM => *versions = *value,
                DT_VERDEF => definitions = *value,
                DT_SONAME => own_name = Some(*value),
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        if tables[0] == 0 || tables[1] == 0 {
            return None;
        }
        // The dynamic linker turns these addresses into real ones where it may write to them. A library is much smaller
        // than the distance to its addresses in the file: which of the two lie near this section tells.
        let far = |value: usize| value.abs_diff(map.dynamic as usize);
        let add = if far(tables[0]) <= far(tables[0].wrapping_add(map.base)) { 0 } else { map.base };
        let real = |value: usize, add| if value == 0 { 0 } else { value.wrapping_add(add) };
        let [strings, symbols, gnu_hash, old_hash, versions] = tables.map(|value| real(value, add));
        // It never does so with this one.
        let definitions = real(definitions, map.base);
        Some(Self {
            base: map.base,
            symbols: symbols as *const Symbol,
            strings: strings as *const c_char,
            gnu_hash: gnu_hash as *const u32,
            old_hash: old_hash as *const u32,
            versions: versions as *const u16,
            definitions: definitions as *const Definition,
            own_name,
        })
    }

    /// Whether it calls itself so (`DT_SONAME`).
    pub fn is_called(&self, name: &CStr) -> bool {
        self.own_name.is_some_and(|own| self.string(own) == name)
    }

    fn string(&self, at: usize) -> &CStr {
        // SAFETY: a place in the table of strings, each of which ends with zero.
        unsafe { CStr::from_ptr(self.strings.add(at)) }
    }

    /// The address of a function that it defines. An indirect one is asked for it.
    pub fn find(&self, name: &Name, version: Version) -> Option<usize> {
        let symbol = match self.gnu_hash.is_null() {
            false => self.find_by_gnu_hash(name, version),
            true => self.find_by_old_hash(name, version),
        }?;
        let base = if symbol.section == SHN_ABS { 0 } else { self.base };
        let at = base.wrapping_add(symbol.value);
        const STT_GNU_IFUNC: u8 = 10;
        if symbol.info & 0xF != STT_GNU_IFUNC {
            return Some(at);
        }
        // SAFETY: a function without arguments, of a library that the dynamic linker has linked: it links those behind
        // ours first.
        Some(unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(at)() })
    }

    /// Takes the first symbol of a chain that fits, or else the only one with a version that is not hidden.
    fn choose(&self, chain: impl Iterator<Item = usize>, name: &Name, version: Version) -> Option<&Symbol> {
        let mut default = None;
        for i in chain {
            // SAFETY: the tables of hashes name no other symbols.
            let symbol = unsafe { &*self.symbols.add(i) };
            if !symbol.is_defined_function() || self.string(symbol.name as usize) != name.text {
                continue;
            }
            // SAFETY: one number for each symbol, where there are any.
            let number = (!self.versions.is_null()).then(|| unsafe { *self.versions.add(i) });
            match (version, number) {
                (_, None) => return Some(symbol),
                (Version::Default, Some(number)) if number & !HIDDEN < FIRST_DEFINED => return Some(symbol),
                (Version::Default, Some(number)) if number & HIDDEN == 0 => default = default.or(Some(symbol)),
                (Version::Named(wanted), Some(number)) if self.is_version(number & !HIDDEN, wanted) => {
                    return Some(symbol);
                }
                _ => {}
            }
        }
        default
    }

    /// Whether version `index` has this name.
    fn is_version(&self, index: u16, name: &CStr) -> bool {
        let mut at = self.definitions;
        // SAFETY: the library's list of its versions.
        while let Some(definition) = unsafe { at.as_ref() } {
            if definition.index == index {
                let first = at.wrapping_byte_add(definition.first_name as usize).cast::<u32>();
                // SAFETY: the first name is the version's own.
                return self.string(unsafe { *first } as usize) == name;
            }
            if definition.next == 0 {
                break;
            }
            at = at.wrapping_byte_add(definition.next as usize);
        }
        false
    }

    fn find_by_gnu_hash(&self, name: &Name, version: Version) -> Option<&Symbol> {
        // SAFETY: the table as the linker makes it: four numbers, a filter, buckets, hashes.
        unsafe {
            let word = |i: usize| *self.gnu_hash.add(i);
            let (buckets, first, filter_words, shift) = (word(0), word(1), word(2) as usize, word(3));
            if buckets == 0 || !filter_words.is_power_of_two() {
                return None;
            }
            let filter = self.gnu_hash.add(4).cast::<usize>();
            let bit = |hash: u32| 1usize << (hash % usize::BITS);
            let bits = bit(name.hash) | bit(name.hash.checked_shr(shift).unwrap_or(0));
            let word = *filter.add((name.hash / usize::BITS) as usize & (filter_words - 1));
            if word & bits != bits {
                return None;
            }
            let all = filter.add(filter_words).cast::<u32>();
            let start = *all.add((name.hash % buckets) as usize);
            if start < first {
                return None;
            }
            let hashes = all.add(buckets as usize);
            let hash_of = |i: usize| *hashes.add(i - first as usize);
            // The last one of a chain has its lowest bit set.
            let mut ended = false;
            let chain = (start as usize..)
                .take_while(|i| !core::mem::replace(&mut ended, hash_of(*i) & 1 != 0))
                .filter(|i| hash_of(*i) | 1 == name.hash | 1);
            self.choose(chain, name, version)
        }
    }

    fn find_by_old_hash(&self, name: &Name, version: Version) -> Option<&Symbol> {
        // SAFETY: the table as the linker makes it: two numbers, buckets, chains.
        unsafe {
            if self.old_hash.is_null() || *self.old_hash == 0 {
                return None;
            }
            let buckets = *self.old_hash;
            let (heads, links) = (self.old_hash.add(2), self.old_hash.add(2 + buckets as usize));
            let mut at = *heads.add((name.old_hash() % buckets) as usize) as usize;
            let chain = core::iter::from_fn(|| {
                let here = at;
                (here != 0).then(|| {
                    at = *links.add(here) as usize;
                    here
                })
            });
            self.choose(chain, name, version)
        }
    }
}

impl Symbol {
    /// Whether it is one that another library may call: as the dynamic linker sees it.
    fn is_defined_function(&self) -> bool {
        // No type, object, function, common, indirect function.
        const TYPES: u16 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 10;
        // Global, weak, unique.
        const BINDINGS: u16 = 1 << 1 | 1 << 2 | 1 << 10;
        // Internal, hidden.
        let is_local = matches!(self.other & 3, 1 | 2);
        self.section != 0
            && self.value != 0
            && !is_local
            && TYPES & 1 << (self.info & 0xF) != 0
            && BINDINGS & 1 << (self.info >> 4) != 0
    }
}

const _: () = assert!(size_of::<Symbol>() == 24 && core::mem::offset_of!(Symbol, bytes) == 16);
