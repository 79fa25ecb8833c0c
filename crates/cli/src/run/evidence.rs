//! What is seen of a program from outside, which tells why it was not covered.
//!
//! A program leaves a page only when its library was asked for something large. Where there is none, these looks tell
//! the reasons apart. They are made while the program runs, ever more seldom, and once between its end and the wait
//! for it. At that time the kernel still has its name, user, filters and limits. A program that ends before the first
//! look is known by the last one alone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::options::LIBRARY;
use super::sys;
use faultless_measure::pages::{segment, variable};

/// A program as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// At the last look while it ran.
    pub running: Option<Look>,
    /// At its end.
    pub ended: Option<End>,
}

/// While it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The file that it runs; nothing where this user may not know.
    pub file: Option<PathBuf>,
    /// Whether the library is loaded; `None`: that cannot be told.
    pub loaded: Option<bool>,
    /// Whether it was started with LD_PRELOAD; `None`: that cannot be told.
    pub with_preload: Option<bool>,
    /// Whether valgrind runs it.
    pub in_valgrind: bool,
    /// Whether its root directory is another one.
    pub other_root: bool,
    /// Which of its namespaces are others.
    pub namespaces: Vec<&'static str>,
    /// Whether it made a segment of shared memory as the library does where it cannot leave its page.
    pub has_segment: bool,
}

/// At the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The name of the program that it was last.
    pub name: String,
    /// The user whose rights it had last.
    pub user: Option<u32>,
    /// System call filters.
    pub filters: u64,
    /// How long a file it could make.
    pub file_size: Option<u64>,
}

const NAMESPACES: [(&str, &str); 4] = [("pid", "PID"), ("ipc", "IPC"), ("mnt", "mount"), ("user", "user")];

fn link(pid: &str, name: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/{name}")).ok()
}

/// Whether the library is among the files in these areas. While a program is being loaded that cannot be told.
fn is_loaded(maps: &str) -> Option<bool> {
    let files =
        || maps.lines().filter_map(|line| line.split_once('/')).filter_map(|(_, path)| path.rsplit('/').next());
    let library = std::env::var_os("FAULTLESS_LIBRARY").and_then(|path| std::fs::canonicalize(path).ok());
    let library = library.as_deref().and_then(Path::file_name).map_or(LIBRARY.into(), OsString::from);
    // It may have been replaced since, as by an upgrade.
    let is_it = |file: &str| library == file.strip_suffix(" (deleted)").unwrap_or(file);
    // The C library is loaded behind it.
    match files().any(is_it) {
        true => Some(true),
        false => files().any(|file| file.starts_with("libc.so") || file.starts_with("libc-2.")).then_some(false),
    }
}

impl Look {
    fn at(pid: i32) -> Self {
        let process = pid.to_string();
        let differs = |name: &str| {
            let (theirs, ours) = (link(&process, name), link("self", name));
            theirs.is_some() && theirs != ours
        };
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        let namespaces = NAMESPACES.iter().filter(|(name, _)| differs(&format!("ns/{name}")));
        Self {
            file: link(&process, "exe"),
            loaded: is_loaded(&maps),
            with_preload: variable(pid as u32, "LD_PRELOAD")
                .ok()
                .map(|list| list.is_some_and(|list| !list.is_empty())),
            in_valgrind: maps.contains("/vgpreload_"),
            other_root: differs("root"),
            namespaces: namespaces.map(|(_, name)| *name).collect(),
            has_segment: segment::all().iter().any(|listed| listed.pid == pid as u32),
        }
    }
}

impl End {
    fn at(pid: i32) -> Option<Self> {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
        let (status, limits) = (read("status")?, read("limits").unwrap_or_default());
        Some(Self::parse(&String::from_utf8_lossy(&status), &String::from_utf8_lossy(&limits)))
    }

    fn parse(status: &str, limits: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        let limit =
            |name: &str| limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        Self {
            name: field("Name")
                .unwrap_or_default()
                .chars()
                .map(|c| if c.is_control() { '?' } else { c })
                .collect(),
            // Real, effective, saved, of files.
            user: field("Uid").and_then(|ids| ids.split_whitespace().nth(3)?.parse().ok()),
            filters: field("Seccomp_filters").and_then(|n| n.trim().parse().ok()).unwrap_or(0),
            file_size: limit("Max file size").and_then(|n| n.parse().ok()),
        }
    }
}

impl Evidence {
    /// While it runs.
    pub fn look(&mut self, pid: i32) {
        let look = Look::at(pid);
        // Before it becomes the program, the process is a copy of this one: that tells nothing.
        if !sys::has_ended(pid) && (look.file.is_none() || look.file != link("self", "exe")) {
            self.running = Some(look);
        }
    }

    /// When it has ended and was not waited for.
    pub fn last_look(&mut self, pid: i32) {
        self.ended = End::at(pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn a_process_that_is_no_program_yet_tells_nothing() {
        let mut evidence = Evidence::default();
        evidence.look(std::process::id() as i32);
        assert_eq!(evidence.running, None);
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let is_other = || link(&other.id().to_string(), "exe") != link("self", "exe");
        while !is_other() {
            std::thread::yield_now();
        }
        evidence.look(other.id() as i32);
        assert!(evidence.running.is_some());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_library_that_was_replaced_is_loaded_all_the_same() {
        let maps =
            |file: &str| format!("7f00-7f01 r-xp 0 08:01 5   {file}\n7f02-7f03 r-xp 0 08:01 6   /lib/libc.so.6\n");
        let library = format!("/usr/lib/{LIBRARY}");
        assert_eq!(is_loaded(&maps(&library)), Some(true));
        assert_eq!(is_loaded(&maps(&format!("{library} (deleted)"))), Some(true));
        assert_eq!(is_loaded(&maps("/usr/lib/other.so (deleted)")), Some(false));
        assert_eq!(is_loaded("7f00-7f01 r-xp 0 08:01 5   /lib64/ld-linux-x86-64.so.2\n"), None);
    }

    #[test]
    fn what_the_kernel_has_of_an_ended_program_is_read() {
        let status = "Name:\tsleep\nState:\tZ (zombie)\nUid:\t0\t0\t0\t65534\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max file size             4096                 unlimited            bytes\n";
        let end = End { name: "sleep".into(), user: Some(65534), filters: 1, file_size: Some(4096) };
        assert_eq!(End::parse(status, limits), end);
        assert_eq!(End::parse("", "Max file size   unlimited unlimited bytes\n").file_size, None);
    }

    #[test]
    fn a_library_that_is_not_there_is_told_from_one_that_is_not_there_yet() {
        let line = |file: &str| format!("7f0000000000-7f0000001000 r-xp 00000000 08:01 1    {file}\n");
        let loading = line("/bin/x y") + &line("/lib64/ld-linux-x86-64.so.2");
        assert_eq!(is_loaded(&loading), None);
        assert_eq!(is_loaded(&(loading.clone() + &line("/lib/libc.so.6"))), Some(false));
        assert_eq!(is_loaded(&(loading + &line("/a b/libfaultless_preload.so"))), Some(true));
    }

    const STATUS: &str = "Name:\tsleep\nState:\tZ (zombie)\nUid:\t0\t0\t0\t65534\nSeccomp_filters:\t1\n";
    const LIMITS: &str = "Max file size             4096                 unlimited            bytes\n";
    const MAPS: &str =
        "7f00-7f10 r-xp 00000000 08:01 1    /lib/libc.so.6\n7f20-7f30 r-xp 0 0:0 1 /a/libfaultless_preload.so\n";

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_text_is_borne(status in garbled(&[STATUS]), limits in garbled(&[LIMITS]), maps in garbled(&[MAPS])) {
            let [status, limits, maps] = [&status, &limits, &maps].map(|text| String::from_utf8_lossy(text));
            let end = End::parse(&status, &limits);
            prop_assert!(!end.name.chars().any(char::is_control));
            let stands = |number: u64, text: &str| number == 0 || text.contains(&number.to_string());
            prop_assert!(stands(end.user.unwrap_or(0).into(), &status) && stands(end.filters, &status));
            prop_assert!(stands(end.file_size.unwrap_or(0), &limits));
            let has = |name: &str| maps.contains(&format!("/{name}"));
            match is_loaded(&maps) {
                Some(true) => prop_assert!(has(LIBRARY)),
                Some(false) => prop_assert!(has("libc")),
                None => {}
            }
        }
    }
}
