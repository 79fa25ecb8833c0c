//! userfaultfd: which way to it is open, and what it can do.

use std::io::Error;

use faultless_base::sys::uffd::{Way, feature};

use super::super::finding::{Finding, Level};
use super::super::root::Root;
use super::super::tried::Tried;

/// Bit of `CAP_SYS_PTRACE` in a set of capabilities.
const PTRACE: u32 = 19;

const ALLOW_ALL: &str = "sudo sysctl -w vm.unprivileged_userfaultfd=1";

/// The features that matter, by the kernel's names.
const FEATURES: [(&str, u64); 6] = [
    ("MOVE", feature::MOVE),
    ("WP", feature::WP),
    ("MISSING_SHMEM", feature::MISSING_SHMEM),
    ("MISSING_HUGETLBFS", feature::MISSING_HUGETLBFS),
    ("SIGBUS", feature::SIGBUS),
    ("POISON", feature::POISON),
];

/// All about it.
pub fn check(root: Root, tried: &Tried) -> Vec<Finding> {
    let [device, call, user_only] = &tried.uffd;
    let best = best(tried);
    // Where the best way is there, no other need be allowed.
    let enough = best.level == Level::Good;
    let others = vec![
        features(tried),
        moves(tried),
        way("uffd_device", "/dev/userfaultfd", device, "sees faults of the kernel, too")
            .change("sudo chmod a+rw /dev/userfaultfd"),
        way("uffd_syscall", "the system call", call, "sees faults of the kernel, too").change(ALLOW_ALL),
        way(
            "uffd_user_mode_only",
            "the system call with UFFD_USER_MODE_ONLY",
            user_only,
            "sees the program's own faults alone: a read() into a missing page fails with EFAULT",
        ),
        sysctl(root),
        ptrace(root),
        namespace(tried),
    ];
    let others = others.into_iter().map(|finding| if enough { finding.unchanged() } else { finding });
    [best].into_iter().chain(others).collect()
}

fn describe(number: i32) -> String {
    match number {
        libc::ENOSYS => "not in this kernel, or forbidden by a filter of system calls".into(),
        libc::ENOENT => "not there".into(),
        libc::EPERM | libc::EACCES => "not allowed for this user".into(),
        number => Error::from_raw_os_error(number).to_string(),
    }
}

fn way(id: &'static str, name: &str, tried: &Result<u64, i32>, sees: &str) -> Finding {
    match tried {
        Ok(_) => Finding::new(id, Level::Good, format!("{name} works"), format!("It {sees}.")),
        Err(number) => Finding::new(
            id,
            Level::Note,
            format!("{name}: {}", describe(*number)),
            format!("One of three ways to have page faults delivered; it {sees}."),
        ),
    }
}

/// The way that would be taken.
fn best(tried: &Tried) -> Finding {
    let id = "uffd";
    match Way::ALL.iter().zip(&tried.uffd).find(|(_, answer)| answer.is_ok()) {
        Some((way, _)) if way.sees_kernel_faults() => Finding::new(
            id,
            Level::Good,
            "userfaultfd sees the program's faults and the kernel's",
            "Memory that is filled on demand works everywhere, in system calls, too.",
        ),
        Some(_) => Finding::new(
            id,
            Level::Limited,
            "userfaultfd sees the program's faults alone, not the kernel's",
            "Programs are covered by recycled and advised memory. Memory that is filled on demand must not be \
             handed to system calls before it was touched.",
        )
        .change(ALLOW_ALL),
        None => Finding::new(
            id,
            Level::Limited,
            "userfaultfd cannot be had",
            "Programs are covered by recycled and advised memory; no memory can be filled on demand.",
        )
        .change(ALLOW_ALL),
    }
}

fn features(tried: &Tried) -> Finding {
    let id = "uffd_features";
    let Some(all) = tried.uffd.iter().find_map(|answer| answer.as_ref().ok()) else {
        return Finding::new(
            id,
            Level::Note,
            "features unknown",
            "Without a userfaultfd they cannot be asked for.",
        );
    };
    let (has, lacks): (Vec<_>, Vec<_>) = FEATURES.iter().partition(|(_, bit)| all & bit != 0);
    let names = |list: Vec<&(&str, u64)>| list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let moves = all & feature::MOVE != 0;
    let found = match lacks.len() {
        0 => format!("features {}", names(has)),
        _ => format!("features {}; without {}", names(has), names(lacks)),
    };
    let means = if moves {
        "Pages can be moved into place instead of copied (MOVE), whole huge pages among them."
    } else {
        "Pages cannot be moved into place, only copied: that takes Linux 6.8 on x86-64 or arm64."
    };
    Finding::new(id, if moves { Level::Good } else { Level::Limited }, found, means)
}

/// What the knob `mapped` needs. No fault is delivered for it, so the humblest way does.
fn moves(tried: &Tried) -> Finding {
    let (id, name) = ("uffd_moves", "huge pages zeroed ahead can move to where a program needs them");
    match &tried.uffd[Way::ALL.len() - 1] {
        Ok(features) if features & feature::MOVE != 0 => {
            Finding::new(id, Level::Good, name, "The knob mapped (off by default) works.")
        }
        Ok(_) => Finding::new(
            id,
            Level::Note,
            format!("not: {name}"),
            "The knob mapped changes nothing here: that takes Linux 6.8 on x86-64 or arm64.",
        ),
        Err(number) => Finding::new(
            id,
            Level::Note,
            format!("not: {name} (userfaultfd: {})", describe(*number)),
            "The knob mapped changes nothing here. Every user may have a userfaultfd for that, unless the kernel is \
             built without or a filter (of a container) forbids the call: let the filter pass userfaultfd.",
        ),
    }
}

fn sysctl(root: Root) -> Finding {
    let (id, file) = ("uffd_sysctl", "proc/sys/vm/unprivileged_userfaultfd");
    match root.read(file) {
        Ok(value) if value == "1" => Finding::new(
            id,
            Level::Good,
            "vm.unprivileged_userfaultfd is 1",
            "Every user may have the kernel's own faults delivered.",
        ),
        Ok(value) => Finding::new(
            id,
            Level::Note,
            format!("vm.unprivileged_userfaultfd is {value}"),
            "Users without CAP_SYS_PTRACE and without access to the device get their own faults alone.",
        )
        .change(ALLOW_ALL),
        Err(why) => Finding::new(
            id,
            Level::Note,
            format!("vm.unprivileged_userfaultfd is {why}"),
            "The kernel has no userfaultfd, or /proc/sys is hidden here.",
        ),
    }
}

fn ptrace(root: Root) -> Finding {
    let set = root.field("proc/self/status", "CapEff").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
    let means = "With it the system call gives a full userfaultfd whatever the sysctl says.";
    let (level, found) = match set {
        Some(set) if set >> PTRACE & 1 == 1 => (Level::Good, "CAP_SYS_PTRACE is there"),
        Some(_) => (Level::Note, "CAP_SYS_PTRACE is not there"),
        None => (Level::Note, "CAP_SYS_PTRACE: cannot be told"),
    };
    let finding = Finding::new("uffd_ptrace", level, found, means);
    finding.change("sudo faultless doctor")
}

fn namespace(tried: &Tried) -> Finding {
    let id = "uffd_namespace";
    let means = "What a program in a container without privileges gets. Rights over the namespace do not count \
                 there, only the device and the sysctl.";
    let level = |ways: &[bool; 3]| match ways {
        [true, ..] | [_, true, _] => (Level::Good, "in a user namespace: sees all faults"),
        [.., true] => (Level::Note, "in a user namespace: sees the program's faults alone"),
        _ => (Level::Note, "in a user namespace: not available"),
    };
    match &tried.namespace {
        Ok(ways) => {
            let (level, found) = level(ways);
            Finding::new(id, level, found, means).change(ALLOW_ALL)
        }
        Err(_) => Finding::new(id, Level::Note, "in a user namespace: cannot be tried", means),
    }
}
