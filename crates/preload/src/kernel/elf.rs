//! The symbols of a loaded library, as its own tables have them.
//!
//! They are read without the dynamic linker. Its `dlsym` takes a lock that another thread may hold while it waits for
//! this one, allocates where it finds nothing, and other libraries stand before it. What is found here is what
//! `dlsym(RTLD_NEXT, …)` would find in the one library.
//!
//! Whatever the tables say, nothing outside of the library's [`Image`] is read, and each walk ends: tables that are
//! wrong have no such symbol.

use core::ffi::{CStr, c_char, c_int};

/// The dynamic linker's entry for a library (`struct link_map`).
#[repr(C)]
pub struct Map {
    pub base: usize,
    pub name: *const c_char,
    /// Where its dynamic section is.
    pub dynamic: usize,
    pub next: *const Map,
}

/// The beginning of `struct r_debug`.
#[repr(C)]
pub struct Debug {
    _version: c_int,
    pub first: *const Map,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    tag: isize,
    value: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
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
#[derive(Clone, Copy)]
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
        self.dynamic == at
    }
}

/// What may be read at any place: numbers alone.
trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for usize {}
impl Plain for Entry {}
impl Plain for Symbol {}
impl Plain for Definition {}

/// The memory of a library.
#[derive(Clone, Copy)]
pub struct Image {
    start: usize,
    end: usize,
}

impl Image {
    /// From `start` to `end`.
    ///
    /// # Safety
    /// That can be read while the result is used, or at least what the library's tables name of it.
    pub const unsafe fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    fn contains(self, at: usize) -> bool {
        self.start <= at && at < self.end
    }

    fn read<T: Plain>(self, at: usize) -> Option<T> {
        let fits = self.start <= at && at.checked_add(size_of::<T>())? <= self.end;
        // SAFETY: by contract of `new`.
        fits.then(|| unsafe { (at as *const T).read_unaligned() })
    }

    /// Number `i` of a table.
    fn item<T: Plain>(self, table: usize, i: usize) -> Option<T> {
        self.read(table.checked_add(i.checked_mul(size_of::<T>())?)?)
    }

    /// Whether this text stands there, with the zero at its end.
    fn has_text(self, at: Option<usize>, text: &CStr) -> bool {
        let is_there = |(i, byte): (usize, &u8)| self.read(at?.checked_add(i)?).map(|read: u8| read == *byte);
        text.to_bytes_with_nul().iter().enumerate().all(|place| is_there(place) == Some(true))
    }
}

/// The tables of a library, by their addresses; 0: there is none.
pub struct Library {
    image: Image,
    base: usize,
    symbols: usize,
    strings: usize,
    gnu_hash: usize,
    old_hash: usize,
    versions: usize,
    definitions: usize,
    own_name: Option<usize>,
}

/// What was found of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its address.
    Direct(usize),
    /// That of a function without arguments, which returns its address.
    Indirect(usize),
}

impl Library {
    /// The tables of `map`, whose memory is `image`; `None` where it has no symbols.
    pub fn of(map: &Map, image: Image) -> Option<Self> {
        let mut tables = [0; 5];
        let [strings, symbols, gnu_hash, old_hash, versions] = &mut tables;
        let (mut definitions, mut own_name, mut i) = (0, None, 0);
        // A list that ends with a tag of 0.
        loop {
            let Entry { tag, value } = image.item(map.dynamic, i)?;
            match tag {
                0 => break,
                DT_STRTAB => *strings = value,
                DT_SYMTAB => *symbols = value,
                DT_GNU_HASH => *gnu_hash = value,
                DT_HASH => *old_hash = value,
                DT_VERSYM => *versions = value,
                DT_VERDEF => definitions = value,
                DT_SONAME => own_name = Some(value),
                _ => {}
            }
            i += 1;
        }
        if tables[0] == 0 || tables[1] == 0 {
            return None;
        }
        // The dynamic linker turns these addresses into real ones where it may write to them. A library is much smaller
        // than the distance to its addresses in the file: which of the two lie near this section tells.
        let far = |value: usize| value.abs_diff(map.dynamic);
        let add = if far(tables[0]) <= far(tables[0].wrapping_add(map.base)) { 0 } else { map.base };
        let real = |value: usize, add| if value == 0 { 0 } else { value.wrapping_add(add) };
        let [strings, symbols, gnu_hash, old_hash, versions] = tables.map(|value| real(value, add));
        // It never does so with this one.
        let definitions = real(definitions, map.base);
        Some(Self { image, base: map.base, symbols, strings, gnu_hash, old_hash, versions, definitions, own_name })
    }

    /// Whether it calls itself so (`DT_SONAME`).
    pub fn is_called(&self, name: &CStr) -> bool {
        self.own_name.is_some_and(|own| self.is_string(own, name))
    }

    /// Whether at this place of the table of strings stands `text`.
    fn is_string(&self, at: usize, text: &CStr) -> bool {
        self.image.has_text(self.strings.checked_add(at), text)
    }

    /// Where a function is that it defines.
    pub fn find(&self, name: &Name, version: Version) -> Option<Place> {
        let symbol = match self.gnu_hash {
            0 => self.find_by_old_hash(name, version),
            _ => self.find_by_gnu_hash(name, version),
        }?;
        let at = match symbol.section {
            SHN_ABS => Some(symbol.value),
            _ => Some(self.base.wrapping_add(symbol.value)).filter(|at| self.image.contains(*at)),
        }?;
        const STT_GNU_IFUNC: u8 = 10;
        Some(if symbol.info & 0xF == STT_GNU_IFUNC { Place::Indirect(at) } else { Place::Direct(at) })
    }

    /// Takes the first symbol of a chain that fits, or else the only one with a version that is not hidden.
    fn choose(&self, chain: impl Iterator<Item = usize>, name: &Name, version: Version) -> Option<Symbol> {
        let mut default = None;
        for i in chain {
            let symbol: Symbol = self.image.item(self.symbols, i)?;
            if !symbol.is_defined_function() || !self.is_string(symbol.name as usize, name.text) {
                continue;
            }
            // One number for each symbol, where there are any.
            let number = match self.versions {
                0 => None,
                versions => Some(self.image.item::<u16>(versions, i)?),
            };
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
        let first_name = || {
            let mut at = Some(self.definitions).filter(|at| *at != 0)?;
            loop {
                let definition: Definition = self.image.read(at)?;
                if definition.index == index {
                    // The first name is the version's own.
                    return self.image.read::<u32>(at.checked_add(definition.first_name as usize)?);
                }
                // Each lies behind the one before.
                let next = Some(definition.next as usize).filter(|next| *next != 0)?;
                at = at.checked_add(next)?;
            }
        };
        first_name().is_some_and(|at| self.is_string(at as usize, name))
    }

    /// The table has four numbers, a filter, buckets, hashes.
    fn find_by_gnu_hash(&self, name: &Name, version: Version) -> Option<Symbol> {
        let number = |i: usize| self.image.item::<u32>(self.gnu_hash, i);
        let (buckets, first, filter_words, shift) = (number(0)?, number(1)?, number(2)? as usize, number(3)?);
        if buckets == 0 || !filter_words.is_power_of_two() {
            return None;
        }
        let filter = self.gnu_hash.checked_add(4 * size_of::<u32>())?;
        let bit = |hash: u32| 1usize << (hash % usize::BITS);
        let bits = bit(name.hash) | bit(name.hash.checked_shr(shift).unwrap_or(0));
        let word: usize = self.image.item(filter, (name.hash / usize::BITS) as usize & (filter_words - 1))?;
        if word & bits != bits {
            return None;
        }
        let all = filter.checked_add(filter_words.checked_mul(size_of::<usize>())?)?;
        let start: u32 = self.image.item(all, (name.hash % buckets) as usize)?;
        if start < first {
            return None;
        }
        let hashes = all.checked_add(buckets as usize * size_of::<u32>())?;
        let hash_of = |i: usize| self.image.item::<u32>(hashes, i - first as usize);
        // The last one of a chain has its lowest bit set.
        let mut next = Some(start as usize);
        let chain = core::iter::from_fn(|| {
            let i = next?;
            let hash = hash_of(i)?;
            next = (hash & 1 == 0).then_some(i + 1);
            Some((i, hash))
        });
        let chain = chain.filter(|(_, hash)| hash | 1 == name.hash | 1).map(|(i, _)| i);
        self.choose(chain, name, version)
    }

    /// The table has two numbers, buckets, and a link for each symbol.
    fn find_by_old_hash(&self, name: &Name, version: Version) -> Option<Symbol> {
        let number = |i: usize| self.image.item::<u32>(self.old_hash, i);
        if self.old_hash == 0 {
            return None;
        }
        let (buckets, symbols) = (number(0)?, number(1)?);
        if buckets == 0 {
            return None;
        }
        // All of it is there.
        number((1 + buckets as usize).checked_add(symbols as usize)?)?;
        let head = number(2 + (name.old_hash() % buckets) as usize)?;
        let link = |i: usize| number(2 + buckets as usize + i).map(|i| i as usize);
        // A chain passes each symbol once at most.
        let chain = core::iter::successors(Some(head as usize), |i| link(*i));
        let chain = chain.take_while(|i| *i != 0).take(symbols as usize);
        self.choose(chain, name, version)
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
