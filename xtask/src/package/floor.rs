//! The oldest C library that packages ask for: this machine's. The newest symbol that programs need may be older, but no
//! older library was tried: the clean places in which packages are tried have this machine's, too.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};

use crate::shell::{command, output};

/// A version of the GNU C library, such as 2.34.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// Of the name of a version of symbols; `None`: it is another library's.
    fn of_symbols(name: &str) -> Option<Self> {
        let (major, rest) = name.strip_prefix("GLIBC_")?.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }

    /// Of what getconf says.
    fn told(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// What packages of `files` ask for.
pub fn claimed(files: &[&Path]) -> Result<Version> {
    let own = output(command("getconf").arg("GNU_LIBC_VERSION"))?;
    let own = Version::told(&own).with_context(|| format!("which C library is {own:?}?"))?;
    let needed = of(files)?;
    ensure!(needed <= own, "built for the C library {needed}, and this machine has {own}");
    Ok(own)
}

/// What all of `files` run with.
fn of(files: &[&Path]) -> Result<Version> {
    let mut newest = Version(2, 2);
    for file in files {
        let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
        for name in needed(&bytes).with_context(|| file.display().to_string())? {
            newest = newest.max(Version::of_symbols(&name).unwrap_or(newest));
        }
    }
    Ok(newest)
}

/// The names of the versions of symbols that a file needs.
fn needed(bytes: &[u8]) -> Result<Vec<String>> {
    let elf = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = elf.endian()?;
    let sections = elf.sections(endian, bytes)?;
    let mut names = Vec::new();
    for section in sections.iter() {
        let Some((mut libraries, strings)) = section.gnu_verneed(endian, bytes)? else { continue };
        let strings = sections.strings(endian, bytes, strings)?;
        while let Some((_, mut versions)) = libraries.next()? {
            while let Some(version) = versions.next()? {
                names.push(String::from_utf8_lossy(version.name(endian, strings)?).into_owned());
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        assert_eq!(Version::of_symbols("GLIBC_2.34"), Some(Version(2, 34)));
        assert_eq!(Version::of_symbols("GLIBC_2.2.5"), Some(Version(2, 2)));
        assert_eq!(["GCC_3.0", "GLIBC_PRIVATE", "GLIBC_x.1"].map(Version::of_symbols), [None; 3]);
        assert!(Version(2, 34) > Version(2, 4));
    }

    #[test]
    fn this_machines_is_claimed() {
        assert_eq!(Version::told("glibc 2.36\n"), Some(Version(2, 36)));
        assert_eq!(["", "glibc", "musl 1.2", "glibc 2.x"].map(Version::told), [None; 4]);
        let own = std::env::current_exe().unwrap();
        assert!(claimed(&[&own]).unwrap() >= of(&[&own]).unwrap());
    }

    /// This program itself needs something of the C library.
    #[test]
    fn a_programs_needs_are_read() {
        let own = std::env::current_exe().unwrap();
        assert!(needed(&std::fs::read(&own).unwrap()).unwrap().iter().any(|name| name.starts_with("GLIBC_2.")));
        assert!(of(&[&own]).unwrap() >= Version(2, 2));
        assert!(needed(b"#!/bin/sh\n").is_err());
    }
}
