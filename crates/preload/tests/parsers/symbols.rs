//! Symbols of made-up libraries, sound and not, and of the C library.

use std::ffi::{CStr, c_void};

use faultless_testkit::foreign::{Guarded, cases, changed, changes};
use proptest::prelude::*;

use crate::elf::{Image, Library, Map, Name, Place, Version};
use crate::tables::{Hashes, Made, OWN_NAME, VERSIONS, library};

const NAMES: [&CStr; 12] = [
    c"malloc",
    c"free",
    c"calloc",
    c"mmap",
    c"munmap",
    c"a",
    c"",
    c"malloc_usable_size",
    c"reallocarray",
    c"x_y_z_a_name_that_is_long_enough_to_have_all_bits_of_the_older_hash",
    c"mallo",
    c"mallocx",
];
const HIDDEN: u16 = 0x8000;
const FUNCTION: u8 = 1 << 4 | 2;
const INDIRECT: u8 = 1 << 4 | 10;
const ABSOLUTE: u16 = 0xfff1;

/// Calls `f` with the tables in `bytes`, which nothing readable follows, if they are found.
fn with<R>(bytes: &[u8], f: impl FnOnce(&Library, &Guarded) -> R) -> Option<R> {
    let memory = Guarded::new(bytes);
    let start = memory.start();
    let map = Map { base: start, name: std::ptr::null(), dynamic: start, next: std::ptr::null() };
    // SAFETY: the memory lives as long as this.
    let image = unsafe { Image::new(start, start + bytes.len()) };
    Library::of(&map, image).map(|library| f(&library, &memory))
}

/// Symbols, each name at most once, and some a second time with another version that is hidden.
fn symbols() -> impl Strategy<Value = Vec<Made>> {
    let kinds = [(FUNCTION, 1), (INDIRECT, 1), (FUNCTION, ABSOLUTE), (FUNCTION, 0), (2, 1)];
    let one = (prop::sample::select(kinds.to_vec()), 1u64..100, any::<bool>(), 1u16..4);
    prop::collection::vec(prop::option::of(one), NAMES.len()).prop_map(|all| {
        let mut symbols = Vec::new();
        for (name, one) in NAMES.into_iter().zip(all) {
            let Some(((info, section), value, twice, version)) = one else { continue };
            symbols.push(Made { name, value, info, section, version });
            if twice && version == 2 {
                symbols.push(Made { name, value: value + 1, info, section, version: 3 | HIDDEN });
            }
        }
        symbols
    })
}

/// The same by looking at one symbol after the other.
fn naive(symbols: &[Made], name: &CStr, version: Version, base: usize) -> Option<Place> {
    let is = |symbol: &&Made| match version {
        Version::Default => symbol.version & HIDDEN == 0,
        Version::Named(name) => VERSIONS.get((symbol.version & !HIDDEN) as usize - 2) == Some(&name),
    };
    let is_function = |symbol: &&Made| symbol.section != 0 && symbol.info >> 4 != 0;
    let found = symbols.iter().filter(|symbol| symbol.name == name).filter(is_function).find(is)?;
    let at = found.value as usize + if found.section == ABSOLUTE { 0 } else { base };
    Some(if found.info == INDIRECT { Place::Indirect(at) } else { Place::Direct(at) })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn what_a_library_has_is_found(mut symbols in symbols(), gnu in any::<bool>()) {
        let hashes = if gnu { Hashes::Gnu } else { Hashes::Old };
        let bytes = library(&mut symbols, hashes, true);
        with(&bytes, |library, memory| {
            prop_assert!(library.is_called(OWN_NAME) && !library.is_called(c"libmade.so"));
            for name in NAMES {
                for version in [Version::Default, Version::Named(VERSIONS[0]), Version::Named(VERSIONS[1])] {
                    // A symbol of the base version has none of these names.
                    if matches!(version, Version::Named(_)) && symbols.iter().any(|s| s.name == name && s.version == 1) {
                        continue;
                    }
                    prop_assert_eq!(
                        library.find(&Name::new(name), version),
                        naive(&symbols, name, version, memory.start())
                    );
                }
            }
            Ok(())
        }).expect("tables")?;
    }

    /// Tables that are cut or changed are read no further than they go, and each look-up ends.
    #[test]
    fn what_is_wrong_is_not_found(
        mut symbols in symbols(),
        gnu in any::<bool>(),
        versioned in any::<bool>(),
        changes in changes(),
        cut in prop::option::of(any::<usize>()),
    ) {
        let bytes = library(&mut symbols, if gnu { Hashes::Gnu } else { Hashes::Old }, versioned);
        let bytes = changed(bytes, changes, cut);
        with(&bytes, |library, memory| {
            let _ = library.is_called(OWN_NAME);
            let inside = memory.start()..memory.start() + bytes.len();
            for name in NAMES {
                for version in [Version::Default, Version::Named(VERSIONS[0]), Version::Named(c"none")] {
                    if let Some(Place::Direct(at) | Place::Indirect(at)) = library.find(&Name::new(name), version) {
                        // An absolute one may be anywhere.
                        prop_assert!(inside.contains(&at) || bytes.windows(2).any(|two| two == ABSOLUTE.to_le_bytes()));
                    }
                }
            }
            Ok(())
        }).unwrap_or(Ok(()))?;
    }
}

/// Lists that lead back to themselves end.
#[test]
fn a_circle_of_links_ends() {
    let made = |name, value| Made { name, value, info: FUNCTION, section: 1, version: 2 };
    let mut symbols: Vec<_> = NAMES.into_iter().zip(1..).map(|(name, i)| made(name, i)).collect();
    let bytes = library(&mut symbols, Hashes::Old, true);
    let place = bytes.windows(8).position(|w| w == [3, 0, 0, 0, NAMES.len() as u8 + 1, 0, 0, 0]).unwrap();
    for i in 0..NAMES.len() + 4 {
        let mut bytes = bytes.clone();
        // Every link leads to one symbol.
        for link in 0..NAMES.len() + 4 {
            bytes[place + 8 + 4 * link..][..4].copy_from_slice(&(i.min(NAMES.len()) as u32).to_le_bytes());
        }
        with(&bytes, |library, _| assert_eq!(library.find(&Name::new(c"missing"), Version::Default), None));
        bytes[place + 4..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        with(&bytes, |library, _| assert_eq!(library.find(&Name::new(c"malloc"), Version::Default), None));
    }
}

/// The C library, as it lies in this process: the parser finds what the dynamic linker finds.
#[test]
fn the_c_library_has_what_the_dynamic_linker_finds() {
    // SAFETY: it is loaded, and stays; the linker's entry for it has the layout that is declared.
    unsafe {
        let handle = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW);
        let mut map: *const Map = std::ptr::null();
        assert_eq!(libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast::<c_void>()), 0);
        let map = &*map;
        let mut bounds = Bounds { dynamic: map.dynamic, start: 0, end: 0 };
        libc::dl_iterate_phdr(Some(note_bounds), (&raw mut bounds).cast());
        assert!((bounds.start..bounds.end).contains(&map.dynamic));
        let library = Library::of(map, Image::new(bounds.start, bounds.end)).unwrap();
        assert!(library.is_called(c"libc.so.6"));
        for name in
            [c"malloc", c"free", c"mmap", c"pthread_create", c"prctl", c"clock_gettime", c"__register_atfork"]
        {
            let expected = libc::dlsym(handle, name.as_ptr()) as usize;
            assert_ne!(expected, 0, "{name:?}");
            match library.find(&Name::new(name), Version::Default) {
                Some(Place::Direct(at)) => assert_eq!(at, expected, "{name:?}"),
                found => assert!(matches!(found, Some(Place::Indirect(_))), "{name:?} {found:?}"),
            }
        }
        assert_eq!(library.find(&Name::new(c"no_function_of_this_name"), Version::Default), None);
    }
}

struct Bounds {
    dynamic: usize,
    start: usize,
    end: usize,
}

/// Notes where the library of this dynamic section lies.
unsafe extern "C" fn note_bounds(info: *mut libc::dl_phdr_info, _: usize, bounds: *mut c_void) -> i32 {
    // SAFETY: what the C library hands over, and the bounds of the caller.
    unsafe {
        let (info, bounds) = (&*info, &mut *bounds.cast::<Bounds>());
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let base = info.dlpi_addr as usize;
        let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let start = base + loaded().map(|header| header.p_vaddr as usize).min().unwrap_or(0);
        let end = base + loaded().map(|header| (header.p_vaddr + header.p_memsz) as usize).max().unwrap_or(0);
        if (start..end).contains(&bounds.dynamic) {
            (bounds.start, bounds.end) = (start, end);
        }
    }
    0
}
