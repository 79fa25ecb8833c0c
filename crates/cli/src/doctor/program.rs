//! What of a program can be covered, as far as can be told before it runs.

use std::ffi::{OsStr, OsString};
use std::io::Error;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use faultless_page::knobs::Knob;

use super::finding::{Finding, Level, word};
use super::libraries::{Allocator, allocators};
use crate::run;
use crate::run::program::{self, Kind, Program};
use faultless_measure::figures::size;

/// What `run` would be set to for it.
fn settings(command: &[OsString]) -> anyhow::Result<run::Args> {
    run::Args { program: command.to_vec(), ..run::Args::default() }.with_file()
}

/// Why `run` would not start it at all: settings that are wrong, or no such file.
pub fn refused(command: &[OsString]) -> anyhow::Result<()> {
    let Some(name) = command.first() else { return run::Args::default().with_file().map(drop) };
    settings(command)?;
    let found = program::search(name, std::env::var_os("PATH").as_deref()).and_then(|path| path.metadata());
    match found {
        Err(error) => Err(run::not_started(name, &error)),
        Ok(about) if about.is_dir() => Err(run::not_started(name, &Error::from_raw_os_error(libc::EACCES))),
        Ok(_) => Ok(()),
    }
}

/// All about it; the first word is the program, the others are its arguments.
pub fn check(command: &[OsString]) -> Vec<Finding> {
    let Some(name) = command.first() else { return Vec::new() };
    let mut findings = Vec::new();
    let Ok(args) = settings(command) else { return findings };
    let plain = |why| Finding::new("program_settings", Level::Cannot, why, "As set now, the program runs plain.");
    findings.extend(args.ruled_out().map(plain));
    let found =
        program::inspect(name, std::env::var_os("PATH").as_deref()).filter(|program| program.path.is_file());
    let Some(program) = found else {
        findings.push(Finding::new(
            "program",
            Level::Cannot,
            format!("{} is no file that can be run", name.display()),
            match program::find(name, std::env::var_os("PATH").as_deref()).is_some_and(|path| !path.is_file()) {
                true => "It is no regular file.",
                false => "The interpreter in its first line is missing.",
            },
        ));
        return findings;
    };
    findings.extend(not_executable(name));
    findings.push(kind(&program));
    if program.kind == Kind::Dynamic {
        let (found, lost) = allocators(&program.path);
        findings
            .push(served(&found, [Knob::MallocThreshold, Knob::MmapThreshold].map(|knob| threshold(&args, knob))));
        findings.extend((!lost.is_empty()).then(|| missing(&lost)));
        findings.push(later(&program));
    }
    findings
}

/// A file that was named by its path, and that this user may not run.
fn not_executable(name: &OsStr) -> Option<Finding> {
    let path = program::find(name, None)?;
    let mode = path.metadata().ok()?.permissions().mode();
    let finding = |found: String, means| Finding::new("program_mode", Level::Cannot, found, means);
    let shown = path.display();
    if mode & 0o111 == 0 {
        let finding = finding(format!("{shown} is not executable"), "The kernel refuses to run it.");
        return Some(finding.change(format!("chmod +x {}", word(&shown.to_string()))));
    }
    if run::may_run(&path) {
        return None;
    }
    Some(match run::runs_no_programs(&path) {
        true => finding(
            format!("{shown} is on a file system from which no program runs (mounted noexec)"),
            "The kernel refuses to run it. A copy elsewhere can be run.",
        ),
        false => finding(format!("this user may not run {shown}"), "The kernel refuses to run it."),
    })
}

fn kind(program: &Program) -> Finding {
    let (level, means) = match &program.kind {
        Kind::Dynamic => (Level::Good, "The preload library is loaded with it."),
        Kind::Static => (Level::Cannot, "It runs plain. Linked dynamically it would be covered."),
        Kind::Go => (Level::Cannot, "It runs plain, but programs in C that it starts are covered."),
        Kind::OtherMachine => {
            (Level::Cannot, "It runs plain: the library is built for 64 bits of this processor.")
        }
        Kind::OtherLoader(_) => (Level::Cannot, "It runs plain: the library needs the GNU C library."),
        Kind::Sanitizer => (Level::Cannot, "It runs plain. Built without the sanitizer it would be covered."),
        Kind::Privileged => {
            (Level::Cannot, "It runs plain, unless started by the user whose rights it has, without gaining any.")
        }
        Kind::Unknown => (
            Level::Limited,
            "Nothing can be said about it beforehand: `faultless run` says whether it was covered.",
        ),
    };
    let finding = Finding::new("program", level, program.to_string(), means);
    match program.kind {
        Kind::Privileged => finding.change(as_its_owner(&program.path)),
        _ => finding,
    }
}

/// The command that runs a set-uid or set-gid program, or one with capabilities, without it gaining rights.
fn as_its_owner(path: &Path) -> String {
    let (mode, user, group) = path.metadata().map_or((0, 0, 0), |about| (about.mode(), about.uid(), about.gid()));
    let user = if mode & libc::S_ISUID != 0 { format!(" -u '#{user}'") } else { String::new() };
    let group = if mode & libc::S_ISGID != 0 { format!(" -g '#{group}'") } else { String::new() };
    format!("sudo{user}{group} faultless run -- {}", word(&path.display().to_string()))
}

/// From what size on something is served, as set now.
fn threshold(args: &run::Args, knob: Knob) -> u64 {
    knob.declared().nearest(args.value(knob).as_encoded_bytes()).or(knob.default()).unwrap_or(0)
}

/// The library that answers its malloc; `from` these sizes on, blocks and mappings are served.
fn served(found: &[Allocator], from: [u64; 2]) -> Finding {
    let id = "program_allocator";
    let [blocks, mappings] = from.map(size);
    if found.is_empty() {
        return Finding::new(
            id,
            Level::Good,
            "the C library's malloc",
            format!("Blocks from {blocks} and mappings from {mappings} are served."),
        );
    }
    let names: Vec<_> = found
        .iter()
        .map(|allocator| {
            let file = allocator.file.file_name().unwrap_or_default().display().to_string();
            match allocator.name {
                Some(name) => format!("{name} in {file}"),
                None => format!("an allocator in {file}"),
            }
        })
        .collect();
    let (level, means) = match found.iter().all(|allocator| allocator.exports_malloc && !allocator.in_program) {
        true => {
            (Level::Note, format!("Blocks from {blocks} are served before it is asked; smaller ones are its own."))
        }
        false => (
            Level::Limited,
            format!(
                "Its blocks are its own; what it maps for them, from {mappings} at a time, is served or advised."
            ),
        ),
    };
    Finding::new(id, level, names.join(", "), means)
}

fn missing(lost: &[String]) -> Finding {
    Finding::new(
        "program_libraries",
        Level::Note,
        format!("libraries not found: {}", lost.join(", ")),
        "What they bring along cannot be told; the program may not start.",
    )
}

/// What the file alone does not show.
fn later(program: &Program) -> Finding {
    let what = if program.is_script { "The script's" } else { "The program's" };
    Finding::new(
        "program_later",
        Level::Note,
        "only the file and the libraries it is linked with were looked at",
        format!(
            "{what} modules and plug-ins may bring allocators of their own, and whether it confines itself or locks \
             its memory shows when it runs: `faultless run` says so at the end."
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn allocator(name: Option<&'static str>, exports_malloc: bool, in_program: bool) -> Allocator {
        Allocator { name, file: PathBuf::from("/x/libx.so"), exports_malloc, in_program }
    }

    #[test]
    fn who_answers_malloc_is_told_apart() {
        let served = |list: &[Allocator]| served(list, [256 << 10, 2 << 20]);
        let means = |list: &[Allocator]| served(list).means;
        assert!(means(&[]).starts_with("Blocks from 256 KiB and mappings from 2 MiB"));
        assert!(means(&[allocator(Some("tcmalloc"), true, false)]).contains("before it is asked"));
        for own in [allocator(Some("jemalloc"), true, true), allocator(Some("jemalloc"), false, false)] {
            assert!(means(std::slice::from_ref(&own)).starts_with("Its blocks are its own"));
            assert_eq!(served(&[own]).level, Level::Limited);
        }
        let both = [allocator(Some("jemalloc"), true, false), allocator(None, true, false)];
        assert_eq!(served(&both).found, "jemalloc in libx.so, an allocator in libx.so");
    }

    #[test]
    fn who_has_its_rights_can_run_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (path, user) = (file.path(), file.as_file().metadata().unwrap().uid());
        let command = |mode| {
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            as_its_owner(path)
        };
        assert_eq!(command(0o755), format!("sudo faultless run -- {}", path.display()));
        assert_eq!(command(0o4755), format!("sudo -u '#{user}' faultless run -- {}", path.display()));
    }

    #[test]
    fn what_cannot_run_is_said() {
        let status = |name: &str| refused(&[name.into()]).map_err(|error| run::status_of(&error));
        assert_eq!(status("/nonexistent/x"), Err(127));
        assert_eq!(status("faultless-no-such-command"), Err(127));
        assert_eq!([status("/"), status("."), status("./.")], [Err(126), Err(126), Err(126)]);
        assert_eq!(status(""), Err(127));
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("round", dir.path().join("round")).unwrap();
        let round = refused(&[dir.path().join("round").into()]).unwrap_err();
        assert_eq!(run::status_of(&round), 126);
        assert!(round.to_string().ends_with("round: Too many levels of symbolic links"), "{round}");
        assert_eq!(status("sh"), Ok(()));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let level = |id| check(&[file.path().into()]).iter().find(|finding| finding.id == id).map(|f| f.level);
        assert_eq!(level("program_mode"), Some(Level::Cannot));
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!((level("program_mode"), level("program")), (None, Some(Level::Good)));
        // The loader knows more than a look at the file.
        std::fs::write(file.path(), "").unwrap();
        assert_eq!(level("program"), Some(Level::Limited));
        let means = |name: &str| check(&[name.into()]).iter().find(|f| f.id == "program").map(|f| f.means.clone());
        assert_eq!(means("/dev/null").as_deref(), Some("It is no regular file."));
    }
}
