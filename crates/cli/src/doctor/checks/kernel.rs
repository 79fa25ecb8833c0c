//! The kernel, and what it lets users do.

use std::io::Error;

use super::super::finding::{Finding, Level};
use super::super::root::Root;
use super::super::tried::Tried;

const WANTED: (u32, u32) = (6, 8);

/// All about it.
pub fn check(root: Root, tried: &Tried) -> Vec<Finding> {
    vec![version(root), machine(), namespaces(root, tried), io_uring(root, tried), filter(root), perf(root, tried)]
}

fn version(root: Root) -> Finding {
    let id = "kernel";
    let (release, means) = match root.text("proc/sys/kernel/osrelease") {
        Some(release) => (release, "Older ones than 6.8 were not tried, and cannot move pages by userfaultfd."),
        None => ("of unknown version".into(), "/proc is hidden here; 6.8 or newer is wanted."),
    };
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let level = match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= WANTED => Level::Good,
        _ => Level::Limited,
    };
    let found = format!("Linux {release}");
    match level {
        Level::Good => Finding::new(id, level, found, "6.8 or newer is wanted."),
        _ => Finding::new(id, level, found, means),
    }
}

fn machine() -> Finding {
    let arch = std::env::consts::ARCH;
    let found = format!("processor of kind {arch}");
    match arch {
        "x86_64" => Finding::new("machine", Level::Good, found, "This is what faultless is made for."),
        _ => Finding::new("machine", Level::Limited, found, "faultless was not tried on it."),
    }
}

fn namespaces(root: Root, tried: &Tried) -> Finding {
    let id = "user_namespaces";
    let Err(number) = tried.namespace else {
        return Finding::new(
            id,
            Level::Good,
            "user namespaces can be made",
            "A program that makes one runs plain from then on; the others are covered.",
        );
    };
    let switches = [
        ("user.max_user_namespaces", "0"),
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ];
    let is_off = |(name, off): &&(&str, &str)| {
        root.text(&format!("proc/sys/{}", name.replace('.', "/"))).as_deref() == Some(*off)
    };
    // faultless needs none: no command loosens what an administrator has closed.
    let because = switches.iter().find(is_off).map(|(name, off)| format!(" ({name} is {off})"));
    let because = because.unwrap_or_default();
    Finding::new(
        id,
        Level::Note,
        format!("user namespaces cannot be made: {}", Error::from_raw_os_error(number)),
        format!("Containers without privileges do not work here{because}; faultless needs none."),
    )
}

fn io_uring(root: Root, tried: &Tried) -> Finding {
    let (id, file) = ("io_uring", "proc/sys/kernel/io_uring_disabled");
    let switch = root.number(file);
    match (tried.io_uring, switch) {
        (Ok(()), _) => Finding::new(
            id,
            Level::Good,
            "io_uring works",
            "Programs with buffers registered there are recognised when they call through the C library.",
        ),
        (Err(_), Some(1 | 2)) => Finding::new(
            id,
            Level::Note,
            "io_uring is switched off (kernel.io_uring_disabled)",
            "Programs read files in other ways; nothing that is covered depends on it.",
        ),
        (Err(libc::ENOSYS), _) => Finding::new(
            id,
            Level::Note,
            "io_uring is not in this kernel, or hidden by a filter of system calls",
            "Nothing that is covered depends on it.",
        ),
        (Err(number), _) => Finding::new(
            id,
            Level::Note,
            format!("io_uring is refused: {}", Error::from_raw_os_error(number)),
            "Mostly a container's filter of system calls; nothing that is covered depends on it.",
        ),
    }
}

fn filter(root: Root) -> Finding {
    let id = "seccomp";
    match root.field("proc/self/status", "Seccomp").as_deref() {
        Some("0") => Finding::new(
            id,
            Level::Good,
            "no filter of system calls",
            "All that faultless asks for reaches the kernel.",
        ),
        Some(_) => Finding::new(
            id,
            Level::Note,
            "system calls are filtered (seccomp)",
            "As in a container; what the filter forbids shows above and below as not there or not allowed.",
        ),
        None => Finding::new(id, Level::Note, "filter of system calls: cannot be told", "/proc is hidden here."),
    }
}

fn perf(root: Root, tried: &Tried) -> Finding {
    let id = "perf";
    let command = "sudo sysctl -w kernel.perf_event_paranoid=2";
    match root.number("proc/sys/kernel/perf_event_paranoid") {
        None => Finding::new(
            id,
            Level::Note,
            "perf events: not there",
            "`perf stat -e faults` does not work; `faultless run` counts by itself.",
        ),
        Some(level) if level <= 2 => Finding::new(
            id,
            Level::Good,
            format!("kernel.perf_event_paranoid is {level}"),
            "Every user can count page faults with `perf stat -e faults`.",
        ),
        Some(level) if tried.user == 0 => Finding::new(
            id,
            Level::Note,
            format!("kernel.perf_event_paranoid is {level}"),
            "Only root can count page faults with `perf stat -e faults`.",
        )
        .change(command),
        Some(level) => Finding::new(
            id,
            Level::Note,
            format!("kernel.perf_event_paranoid is {level}"),
            "`perf stat -e faults` is refused; `faultless run` counts by itself.",
        )
        .change(command),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::root::fake::Fake;
    use super::super::tests::tried;
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let level = |release| version(Fake::new(&[("proc/sys/kernel/osrelease", release)]).root()).level;
        for new in ["6.8.0-31-generic\n", "6.18.44-x", "7.0", "6.10-rc1", "10.0.0"] {
            assert_eq!(level(new), Level::Good, "{new}");
        }
        for old in ["6.7.12", "5.15.0", "6", "", "x.y", "4294967296.0"] {
            assert_eq!(level(old), Level::Limited, "{old}");
        }
        assert_eq!(version(Fake::new(&[]).root()).level, Level::Limited);
    }

    #[test]
    fn the_switch_that_is_off_is_named() {
        let fake = Fake::new(&[
            ("proc/sys/user/max_user_namespaces", "1000\n"),
            ("proc/sys/kernel/unprivileged_userns_clone", "0\n"),
        ]);
        let mut tried = tried();
        assert_eq!(namespaces(fake.root(), &tried).level, Level::Good);
        tried.namespace = Err(libc::EPERM);
        assert!(namespaces(fake.root(), &tried).means.contains("kernel.unprivileged_userns_clone is 0"));
        assert!(!namespaces(Fake::new(&[]).root(), &tried).means.contains(" is 0"));
    }

    #[test]
    fn io_uring_off_by_switch_by_kernel_and_by_filter() {
        let off = Fake::new(&[("proc/sys/kernel/io_uring_disabled", "2\n")]);
        let on = Fake::new(&[("proc/sys/kernel/io_uring_disabled", "0\n")]);
        let mut tried = tried();
        assert_eq!(io_uring(off.root(), &tried).level, Level::Good, "it works");
        tried.io_uring = Err(libc::EPERM);
        assert!(io_uring(off.root(), &tried).found.contains("switched off"));
        assert!(io_uring(on.root(), &tried).found.starts_with("io_uring is refused"));
        tried.io_uring = Err(libc::ENOSYS);
        assert!(io_uring(Fake::new(&[]).root(), &tried).found.contains("not in this kernel"));
    }
}
