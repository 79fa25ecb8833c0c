//! What a preload library can reach: which file runs in the end, and what kind of program that is.
//!
//! Looked at only when a program turns out not to have been covered, and only as far as the headers.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, elf};

use super::sys;
use crate::replaced::has_attribute;

/// What kind of program a file is, as far as it matters to a preload library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loads shared libraries: covered.
    Dynamic,
    /// Contains its own C library.
    Static,
    /// Asks the kernel for memory without a C library.
    Go,
    /// For another processor, or for 32 bits.
    OtherMachine,
    /// Loaded by something other than the GNU C library's loader.
    OtherLoader(String),
    /// Brings a memory map of its own.
    Sanitizer,
    /// Runs with another user's or more rights, for which the loader ignores preload libraries.
    Privileged,
    /// Neither an ELF file nor a script, or not readable.
    Unknown,
}

impl Kind {
    /// Whether a program of this kind runs plain under faultless, as far as can be told before it runs.
    pub fn is_plain(&self) -> bool {
        !matches!(self, Self::Dynamic | Self::Unknown)
    }

    /// Whether this is why nothing was served. `loaded`: the library was seen in the program.
    pub fn explains(&self, loaded: bool) -> bool {
        match self {
            Self::Dynamic | Self::Unknown => false,
            Self::Go | Self::Sanitizer => true,
            Self::Static | Self::OtherMachine | Self::OtherLoader(_) | Self::Privileged => !loaded,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dynamic => "is dynamically linked",
            Self::Static => "is statically linked, so that no library can be preloaded",
            Self::Go => "is a Go program, which asks the kernel for memory without the C library",
            Self::OtherMachine => "is built for another processor or for 32 bits",
            Self::OtherLoader(name) => return write!(f, "is loaded by {name}, not by the GNU C library"),
            Self::Sanitizer => "is built with a sanitizer, which lays memory out itself",
            Self::Privileged => "is set-uid, set-gid or has capabilities, which rules preload libraries out",
            Self::Unknown => "is of an unknown kind or cannot be read",
        })
    }
}

/// The named program, and the file that runs in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file; of a script, its interpreter.
    pub path: PathBuf,
    /// Whether a script was named.
    pub is_script: bool,
    /// What it is.
    pub kind: Kind,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interpreter = if self.is_script { "the script's interpreter " } else { "" };
        write!(f, "{interpreter}{} {}", self.path.display(), self.kind)
    }
}

/// Finds a command as execvp does; one that is named by its path need not be there.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    search(name, path).ok()
}

/// The same, with the error of execvp where the search finds nothing.
pub fn search(name: &OsStr, path: Option<&OsStr>) -> io::Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let mut error = io::Error::from_raw_os_error(libc::ENOENT);
    if name.is_empty() {
        return Err(error);
    }
    for file in std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))).map(|dir| dir.join(name)) {
        let is_one = |about: &Metadata| about.is_file() && about.permissions().mode() & 0o111 != 0;
        match std::fs::metadata(&file) {
            Ok(about) if is_one(&about) => return Ok(file),
            Ok(_) => error = io::Error::from_raw_os_error(libc::EACCES),
            Err(other) => match other.raw_os_error() {
                Some(libc::EACCES) => error = other,
                Some(libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT) => {}
                _ => return Err(other),
            },
        }
    }
    Err(error)
}

/// Finds out what a command runs.
pub fn inspect(name: &OsStr, search: Option<&OsStr>) -> Option<Program> {
    let mut program = Program { path: find(name, search)?, is_script: false, kind: Kind::Unknown };
    // The kernel follows four interpreters at most; `env` is one more step each.
    for _ in 0..8 {
        let Some((interpreter, argument)) = head(&program.path).and_then(|head| interpreter(&head)) else {
            break;
        };
        program.is_script = true;
        program.path = match argument.filter(|_| Path::new(&interpreter).file_name() == Some(OsStr::new("env"))) {
            Some(command) => find(&command, search)?,
            None => interpreter.into(),
        };
    }
    program.kind = if is_loader(&program.path) { Kind::Unknown } else { kind(&program.path) };
    Some(program)
}

/// Whether a file is the C library's loader, which runs another program.
fn is_loader(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld-linux") || name == b"ld.so"
}

/// A file that can be read to its end: to open a pipe would wait for who writes to it, and a device may do anything.
pub fn open(path: &Path) -> Option<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|about| about.is_file()).then_some(file)
}

/// The beginning of a file, as much as the kernel looks at.
fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    open(path)?.take(256).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The interpreter in a script's first line, with the command that follows it: `env`'s options left out.
fn interpreter(head: &[u8]) -> Option<(OsString, Option<OsString>)> {
    if head.starts_with(elf::ELFMAG.as_slice()) {
        return None;
    }
    let Some(line) = head.strip_prefix(b"#!") else {
        // What the kernel refuses, execvp gives to the shell; a text, if it has no zero byte.
        return (!head.is_empty() && !head.contains(&0)).then(|| ("/bin/sh".into(), None));
    };
    let line = line.split(|b| *b == b'\n').next()?;
    let words: Vec<&[u8]> = line.split(|b| b" \t".contains(b)).filter(|word| !word.is_empty()).collect();
    let (first, rest) = words.split_first()?;
    let command = rest.iter().find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    let owned = |word: &[u8]| OsString::from_vec(word.to_vec());
    Some((owned(first), command.map(|word| owned(word))))
}

/// What kind of program a file is.
pub fn kind(path: &Path) -> Kind {
    let Some(file) = open(path) else { return Kind::Unknown };
    if is_privileged(path) {
        return Kind::Privileged;
    }
    kind_in(&ReadCache::new(file))
}

/// The same by what is in it.
fn kind_in<'data>(data: impl ReadRef<'data>) -> Kind {
    let Ok(ident) = data.read_bytes_at(0, 20) else { return Kind::Unknown };
    if !ident.starts_with(elf::ELFMAG.as_slice()) {
        return Kind::Unknown;
    }
    let machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    if ident[4] != elf::ELFCLASS64 || u16::from_le_bytes([ident[18], ident[19]]) != machine {
        return Kind::OtherMachine;
    }
    elf_kind(data).unwrap_or(Kind::Unknown)
}

fn elf_kind<'data>(data: impl ReadRef<'data>) -> object::Result<Kind> {
    let elf = ElfFile64::<LittleEndian, _>::parse(data)?;
    let go = [".go.buildinfo", ".note.go.buildid"];
    if elf.sections().any(|section| section.name().is_ok_and(|name| go.contains(&name))) {
        return Ok(Kind::Go);
    }
    let endian = LittleEndian;
    let header = elf.elf_header();
    let mut loader = None;
    for segment in header.program_headers(endian, data)? {
        loader = loader.or(segment.interpreter(endian, data)?);
    }
    let Some(loader) = loader else { return Ok(Kind::Static) };
    let loader = String::from_utf8_lossy(loader);
    let name = loader.rsplit('/').next().unwrap_or_default();
    if !name.starts_with("ld-linux") {
        return Ok(Kind::OtherLoader(name.to_owned()));
    }
    let sanitizers = ["__asan_init", "__tsan_init", "__msan_init", "__hwasan_init"];
    let is_sanitizer = |name: &str| sanitizers.contains(&name);
    // A program that only asks whether there is one has none.
    let mut symbols = elf.dynamic_symbols().filter(|symbol| !(symbol.is_weak() && symbol.is_undefined()));
    Ok(if symbols.any(|symbol| symbol.name().is_ok_and(is_sanitizer)) { Kind::Sanitizer } else { Kind::Dynamic })
}

/// Whether a program runs with other rights than those of its caller, as the kernel sees it.
fn is_privileged(path: &Path) -> bool {
    let Ok(meta) = path.metadata() else { return false };
    let (user, group) = sys::ids();
    let mode = meta.mode();
    let set_user = mode & libc::S_ISUID != 0 && meta.uid() != user;
    let set_group =
        mode & (libc::S_ISGID | libc::S_IXGRP) == (libc::S_ISGID | libc::S_IXGRP) && meta.gid() != group;
    // Without new privileges the kernel ignores them.
    if sys::has_no_new_privileges() {
        return false;
    }
    set_user || set_group || user != 0 && has_attribute(path, c"security.capability")
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{Guarded, cases, changed, changes, garbled};
    use proptest::prelude::*;

    fn scratch(name: &str, content: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("faultless-program-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    /// An ELF header alone: no program headers, no sections.
    fn header(class: u8, machine: u16) -> Vec<u8> {
        let mut h = vec![0u8; 64];
        h[..4].copy_from_slice(b"\x7fELF");
        (h[4], h[5], h[6]) = (class, elf::ELFDATA2LSB, 1);
        h[16..18].copy_from_slice(&elf::ET_EXEC.to_le_bytes());
        h[18..20].copy_from_slice(&machine.to_le_bytes());
        h[20] = 1;
        (h[52], h[54], h[58]) = (64, 56, 64);
        h
    }

    /// The pipe has no writer.
    #[test]
    fn a_pipe_is_of_no_kind_also_as_an_interpreter() {
        let pipe = scratch("pipe", b"");
        std::fs::remove_file(&pipe).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let script = scratch("of-pipe", format!("#!{}\n", pipe.display()).as_bytes());
        let found = [&pipe, &script].map(|path| inspect(path.as_os_str(), None).unwrap());
        assert!(found.iter().all(|found| found.kind == Kind::Unknown && found.path == pipe), "{found:?}");
        assert_eq!(found.map(|found| found.is_script), [false, true]);
        [pipe, script].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    fn kind_of(name: &str, content: &[u8]) -> Kind {
        let path = scratch(name, content);
        let kind = kind(&path);
        std::fs::remove_file(path).unwrap();
        kind
    }

    #[test]
    fn a_program_of_the_system_is_dynamic() {
        let program = inspect(OsStr::new("true"), std::env::var_os("PATH").as_deref()).unwrap();
        assert_eq!((program.kind, program.is_script), (Kind::Dynamic, false));
        assert_eq!(kind(&std::env::current_exe().unwrap()), Kind::Dynamic);
    }

    #[test]
    fn headers_tell_static_and_foreign_programs() {
        let here = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
        assert_eq!(kind_of("static", &header(2, here)), Kind::Static);
        assert_eq!(kind_of("bits", &header(1, here)), Kind::OtherMachine);
        assert_eq!(kind_of("machine", &header(2, elf::EM_S390)), Kind::OtherMachine);
        assert_eq!(kind_of("short", b"\x7fELF"), Kind::Unknown);
        assert_eq!(kind_of("cut", &header(2, here)[..40]), Kind::Unknown);
        assert_eq!(kind(Path::new("/nonexistent")), Kind::Unknown);
    }

    #[test]
    fn sections_tell_a_go_program() {
        let mut go = header(2, if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 });
        let names = b"\0.go.buildinfo\0.shstrtab\0";
        let table = go.len() + names.len();
        go.extend_from_slice(names);
        // Three section headers: the empty one, Go's, and the names.
        for (name, kind, offset, size) in [(0u32, 0u32, 0u64, 0u64), (1, 1, 0, 0), (15, 3, 64, names.len() as u64)]
        {
            let mut section = [0u8; 64];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&offset.to_le_bytes());
            section[32..40].copy_from_slice(&size.to_le_bytes());
            go.extend_from_slice(&section);
        }
        go[40..48].copy_from_slice(&(table as u64).to_le_bytes());
        (go[60], go[62]) = (3, 2);
        assert_eq!(kind_of("go", &go), Kind::Go);
    }

    /// As `execvp` and thus `env` have it.
    #[test]
    fn a_name_is_looked_for_until_something_is_wrong() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        [&first, &second].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        symlink("round", first.join("round")).unwrap();
        symlink("/bin/true", second.join("round")).unwrap();
        std::fs::create_dir(first.join("both")).unwrap();
        symlink("/bin/true", second.join("both")).unwrap();
        std::fs::write(first.join("text"), "").unwrap();
        std::fs::set_permissions(first.join("text"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let path = std::env::join_paths([dir.path().join("none"), first, second.clone()]).unwrap();
        let search =
            |name: &str| search(OsStr::new(name), Some(&path)).map_err(|error| error.raw_os_error().unwrap());
        assert_eq!(search("both"), Ok(second.join("both")));
        let errors = [("round", libc::ELOOP), (".", libc::EACCES), ("..", libc::EACCES), ("text", libc::EACCES)];
        errors.iter().for_each(|(name, error)| assert_eq!(search(name), Err(*error), "{name}"));
        assert_eq!([search("none"), search("")], [Err(libc::ENOENT), Err(libc::ENOENT)]);
    }

    #[test]
    fn scripts_lead_to_their_interpreters() {
        let path = std::env::var_os("PATH");
        let inspect = |content: &[u8], name| {
            let script = scratch(name, content);
            let program = inspect(script.as_os_str(), path.as_deref());
            std::fs::remove_file(script).unwrap();
            program.unwrap()
        };
        let env = inspect(b"#! /usr/bin/env -S A=1 cat -u\n", "env");
        assert_eq!(env.path, find(OsStr::new("cat"), path.as_deref()).unwrap());
        assert_eq!((env.kind, env.is_script), (Kind::Dynamic, true));
        assert_eq!(inspect(b"#!/bin/cat -u\nx", "direct").path, Path::new("/bin/cat"));
        assert_eq!(inspect(b"echo no first line\n", "bare").path, Path::new("/bin/sh"));
    }

    #[test]
    fn programs_with_rights_of_their_own_are_told() {
        let path = scratch("setuid", &header(2, elf::EM_X86_64));
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o4755);
        // Set-uid to the caller's own user changes nothing.
        assert!(!is_privileged(&path));
        match std::os::unix::fs::chown(&path, Some(12345), None) {
            Ok(()) => {
                set(0o4755);
                assert_eq!(kind(&path), Kind::Privileged);
            }
            Err(error) => faultless_testkit::skip(format_args!("no file can be another user's: {error}")),
        }
        std::fs::remove_file(path).unwrap();
    }

    const SCRIPTS: &[&str] = &["#! /usr/bin/env -S A=1 cat -u\n", "#!/bin/cat -u\nx", "echo no first line\n"];

    proptest! {
        #![proptest_config(cases())]

        /// An interpreter is a word of the first line.
        #[test]
        fn any_beginning_is_borne(head in garbled(SCRIPTS)) {
            if let Some((name, argument)) = interpreter(&head) {
                let line = head.split(|b| *b == b'\n').next().unwrap();
                let has = |word: &OsString| line.windows(word.len().max(1)).any(|part| part == word.as_bytes());
                prop_assert!(!name.is_empty() && (has(&name) || !head.starts_with(b"#!") && name == "/bin/sh"));
                prop_assert!(argument.is_none_or(|argument| has(&argument) && !argument.as_bytes().starts_with(b"-")));
            }
        }

        /// A program that is changed or cut is of some kind. As bytes in memory it may be refused besides: what lies at
        /// odd places.
        #[test]
        fn any_program_is_of_some_kind(changes in changes(), cut in prop::option::of(any::<usize>())) {
            let is_whole = changes.is_empty() && cut.is_none();
            let bytes = changed(std::fs::read("/bin/true").unwrap(), changes, cut);
            let kind = kind_in(&ReadCache::new(std::io::Cursor::new(&bytes[..])));
            prop_assert!(!kind.to_string().is_empty() && (kind == Kind::Dynamic || !is_whole));
            let other = kind_in(&Guarded::new(&bytes)[..]);
            prop_assert!(other == kind || other == Kind::Unknown);
        }
    }
}
