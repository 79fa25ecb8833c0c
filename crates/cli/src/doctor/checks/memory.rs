//! How much memory there is, and what limits its use.

use std::path::Path;

use faultless_base::sys::cgroup;

use super::super::finding::{Finding, Level, word};
use super::super::root::Root;
use super::super::tried::{Limits, Tried};
use faultless_measure::figures::size;

/// Areas that a process may have, by the kernel's default.
const AREAS: i64 = 65_530;
/// Below this, the budget beyond a program's peak is a large part of all memory.
const LITTLE: u64 = 512 << 20;
/// What is taken to be left where a control group cannot be seen.
const HIDDEN: u64 = 256 << 20;

/// All about it.
pub fn check(root: Root, tried: &Tried) -> Vec<Finding> {
    let mut all = vec![total(root), overcommit(root), areas(root)];
    all.extend(limits(&tried.limits));
    all.extend([group(root, tried.group), pressure(root)]);
    all
}

/// What may be used for measuring: a quarter of what is left to this process.
pub fn spare(root: Root, tried: &Tried) -> u64 {
    let left = root.meminfo("MemAvailable").unwrap_or(1 << 30);
    let group = match tried.group {
        cgroup::Limit::None => None,
        cgroup::Limit::Bytes(bytes) => Some(bytes),
        cgroup::Limit::Hidden => Some(HIDDEN),
    };
    let limits = &tried.limits;
    let rest = [group, limits.address_space, limits.data].into_iter().flatten();
    rest.fold(left, u64::min) / 4
}

fn total(root: Root) -> Finding {
    let id = "memory";
    let swap =
        root.meminfo("SwapTotal").filter(|swap| *swap > 0).map_or("no swap".into(), |s| size(s) + " of swap");
    let Some(total) = root.meminfo("MemTotal") else {
        return Finding::new(id, Level::Note, "memory: cannot be told", "/proc/meminfo is hidden here.");
    };
    let available = root.meminfo("MemAvailable").map_or("unknown".into(), size);
    Finding::new(
        id,
        if total < LITTLE { Level::Limited } else { Level::Good },
        format!("memory: {}, available {available}, {swap}", size(total)),
        "A covered program keeps up to 5 % of it (64 MiB at least) beyond its own peak; --budget says otherwise.",
    )
}

fn overcommit(root: Root) -> Finding {
    let id = "overcommit";
    let means = "The kernel promises more memory than it has, which faultless needs: it reserves address space.";
    match root.number("proc/sys/vm/overcommit_memory") {
        Some(2) => Finding::new(
            id,
            Level::Cannot,
            "vm.overcommit_memory is 2: the kernel counts what is reserved",
            "Every program runs plain: memory kept ready would be counted twice.",
        )
        .change("sudo sysctl -w vm.overcommit_memory=0"),
        Some(mode) => Finding::new(id, Level::Good, format!("vm.overcommit_memory is {mode}"), means),
        None => Finding::new(id, Level::Note, "vm.overcommit_memory: cannot be told", means),
    }
}

fn areas(root: Root) -> Finding {
    let id = "max_map_count";
    let means = "How many areas a process may have. Programs with very many mappings reach it sooner when faultless \
                 gives parts of them attributes of their own.";
    match root.number("proc/sys/vm/max_map_count") {
        Some(n) => {
            let level = if n < AREAS { Level::Limited } else { Level::Good };
            Finding::new(id, level, format!("vm.max_map_count is {n}"), means)
                .change("sudo sysctl -w vm.max_map_count=1048576")
        }
        None => Finding::new(id, Level::Note, "vm.max_map_count: cannot be told", means),
    }
}

fn limits(limits: &Limits) -> [Finding; 3] {
    let plain = |id, name: &str, option, limit: Option<u64>| match limit {
        Some(bytes) => Finding::new(
            id,
            Level::Cannot,
            format!("{name} is limited to {}", size(bytes)),
            "Programs started from here run plain: memory kept ready would count.",
        )
        .change(format!("ulimit -S {option} unlimited")),
        None => Finding::new(
            id,
            Level::Good,
            format!("{name} is not limited"),
            "Memory can be reserved and kept ready.",
        ),
    };
    let locked = limits.locked.map_or("without limit".into(), |bytes| format!("up to {}", size(bytes)));
    [
        plain("limit_as", "address space (RLIMIT_AS)", "-v", limits.address_space),
        plain("limit_data", "data (RLIMIT_DATA)", "-d", limits.data),
        Finding::new(
            "limit_memlock",
            Level::Note,
            format!("memory can be locked {locked} (RLIMIT_MEMLOCK)"),
            "A program that locks all its memory runs plain from then on.",
        ),
    ]
}

/// What a control group limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resource {
    Memory,
    Cpu,
}

/// The lowest limit of a group and those above it, in CPUs, and the command that lifts it.
struct CpuLimit {
    value: f64,
    lift: String,
}

/// The files of this process's group and of those above it, for `resource`: those of version 2, or of version 1.
fn folders(root: Root, resource: Resource) -> Vec<(String, bool)> {
    let text = root.text("proc/self/cgroup").unwrap_or_default();
    let name = if resource == Resource::Memory { "memory" } else { "cpu" };
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(kinds), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let unified = id == "0" && kinds.is_empty();
        if !unified && !kinds.split(',').any(|kind| kind == name) {
            continue;
        }
        let mount = if unified { "sys/fs/cgroup".to_owned() } else { format!("sys/fs/cgroup/{kinds}") };
        // In a container the path may be that outside: then the mount's own root is the group.
        let path = Path::new(group.trim_start_matches('/'));
        found.extend(path.ancestors().map(|folder| {
            let folder = format!("{mount}/{}", folder.display());
            (folder.trim_end_matches('/').to_owned(), unified)
        }));
    }
    found
}

/// The file that has this limit of memory, and the command that lifts it.
fn memory_lift(root: Root, bytes: u64) -> Option<String> {
    let files = folders(root, Resource::Memory).into_iter().flat_map(|(folder, unified)| {
        let names: &[&str] = if unified { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
        names.iter().map(move |name| format!("{folder}/{name}")).collect::<Vec<_>>()
    });
    let mut files = files.filter(|file| root.number(file).and_then(|n| u64::try_from(n).ok()) == Some(bytes));
    let none = |file: &str| if file.ends_with("in_bytes") { "-1" } else { "max" };
    files.next().map(|file| format!("echo {} | sudo tee {}", none(&file), word(&format!("/{file}"))))
}

/// CPUs' worth of time that a group may use.
fn cpu_limit(root: Root) -> Option<CpuLimit> {
    let limits = folders(root, Resource::Cpu).into_iter().filter_map(|(folder, unified)| {
        let (quota, period, lift) = if unified {
            let file = format!("{folder}/cpu.max");
            let text = root.text(&file)?;
            let (quota, period) = text.split_once(' ')?;
            (
                quota.parse().ok()?,
                period.parse().ok()?,
                format!("echo max | sudo tee {}", word(&format!("/{file}"))),
            )
        } else {
            let number = |name| root.number(&format!("{folder}/{name}")).map(|n| n as f64);
            let lift = format!("echo -1 | sudo tee {}", word(&format!("/{folder}/cpu.cfs_quota_us")));
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?, lift)
        };
        (quota > 0.0 && period > 0.0).then(|| CpuLimit { value: quota / period, lift })
    });
    limits.min_by(|a, b| a.value.total_cmp(&b.value))
}

fn group(root: Root, memory: cgroup::Limit) -> Finding {
    let id = "cgroup";
    let version = match root.has("sys/fs/cgroup/cgroup.controllers") {
        true => "version 2",
        false if root.has("sys/fs/cgroup") => "version 1",
        false => "none",
    };
    if memory == cgroup::Limit::Hidden {
        return Finding::new(
            id,
            Level::Cannot,
            format!("control group ({version}): it cannot be read, and may have a limit"),
            "Programs started from here run plain: near a limit that faultless does not see, the kernel would kill them. \
             The group is not below what is mounted at /sys/fs/cgroup (/proc/self/cgroup and mountinfo tell).",
        );
    }
    let bytes = if let cgroup::Limit::Bytes(bytes) = memory { Some(bytes) } else { None };
    let cpu = cpu_limit(root);
    let limits = [
        bytes.map(|bytes| format!("memory up to {}", size(bytes))),
        cpu.as_ref().map(|limit| format!("{:.1} CPUs", limit.value)),
    ];
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    let found = match limits.is_empty() {
        true => format!("control group ({version}): no limit"),
        false => format!("control group ({version}): {}", limits.join(", ")),
    };
    let little = bytes.is_some_and(|bytes| bytes < cgroup::SMALLEST);
    let busy = cpu.as_ref().is_some_and(|limit| limit.value < 1.5) && !little;
    let (level, means) = match () {
        () if limits.is_empty() => (Level::Good, "Only the machine's own memory and CPUs limit a program."),
        () if little => (
            Level::Cannot,
            "Programs started from here run plain: below 1 GiB, faultless could not always give memory back in time.",
        ),
        () if busy => (
            Level::Limited,
            "The background thread takes CPU time that the program needs; --no-ahead and --no-scrub stop it.",
        ),
        () => (
            Level::Note,
            "faultless counts a limit on memory as the machine's memory. The guide says what holds then.",
        ),
    };
    let finding = Finding::new(id, level, found, means);
    // That of what is said above.
    let (memory, cpu) = (bytes.and_then(|bytes| memory_lift(root, bytes)), cpu.map(|limit| limit.lift));
    let lift = if busy { cpu } else { memory.or(cpu) };
    lift.into_iter().fold(finding, Finding::change)
}

fn pressure(root: Root) -> Finding {
    let id = "psi";
    match root.read("proc/pressure/memory") {
        Ok(text) if text.contains("total=") => Finding::new(
            id,
            Level::Good,
            "pressure stall information is there",
            "Memory kept ready is given back as soon as programs wait for memory.",
        ),
        Ok(_) | Err(_) => Finding::new(
            id,
            Level::Limited,
            "no pressure stall information",
            "Memory kept ready is given back only when little is left of the machine's or the group's.",
        )
        .change("sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&psi=1 /' /etc/default/grub && sudo update-grub"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::root::fake::Fake;
    use super::*;

    #[test]
    fn strict_accounting_and_limits_rule_programs_out() {
        let overcommit = |text| overcommit(Fake::new(&[("proc/sys/vm/overcommit_memory", text)]).root()).level;
        assert_eq!(["0\n", "1\n", "2\n"].map(overcommit), [Level::Good, Level::Good, Level::Cannot]);
        let levels = |given: Limits| limits(&given).map(|finding| finding.level);
        assert_eq!(levels(Limits::default()), [Level::Good, Level::Good, Level::Note]);
        let some = Some(1 << 30);
        let all = Limits { address_space: some, data: some, locked: some };
        assert_eq!(levels(all), [Level::Cannot, Level::Cannot, Level::Note]);
    }

    #[test]
    fn the_lowest_limit_of_all_groups_above_counts() {
        let fake = Fake::new(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory cpu"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.high", "2147483648\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
        ]);
        let finding = group(fake.root(), cgroup::Limit::Bytes(1 << 30));
        assert_eq!(finding.level, Level::Note);
        assert_eq!(finding.found, "control group (version 2): memory up to 1 GiB, 2.5 CPUs");
        assert_eq!(finding.change.unwrap(), "echo max | sudo tee /sys/fs/cgroup/a/memory.max");
    }

    #[test]
    fn version_1_and_a_path_from_outside() {
        let fake = Fake::new(&[
            ("proc/self/cgroup", "4:memory:/outside/x\n1:cpu,cpuacct:/\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let finding = group(fake.root(), cgroup::Limit::Bytes(256 << 20));
        assert_eq!(
            (finding.level, finding.found.as_str()),
            (Level::Cannot, "control group (version 1): memory up to 256 MiB")
        );
        let unlimited = [
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(group(Fake::new(&unlimited).root(), cgroup::Limit::None).level, Level::Good);
        let hidden = group(fake.root(), cgroup::Limit::Hidden);
        assert!(hidden.level == Level::Cannot && hidden.found.contains("cannot be read"), "{}", hidden.found);
    }

    #[test]
    fn a_share_of_one_cpu_limits_and_is_what_the_command_lifts() {
        let fake = |cpu| {
            group(
                Fake::new(&[
                    ("proc/self/cgroup", "0::/a\n"),
                    ("sys/fs/cgroup/a/cpu.max", cpu),
                    ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
                ])
                .root(),
                cgroup::Limit::Bytes(1 << 30),
            )
        };
        let (busy, idle) = (fake("100000 100000\n"), fake("400000 100000\n"));
        assert_eq!((busy.level, idle.level), (Level::Limited, Level::Note));
        assert_eq!(busy.change.unwrap(), "echo max | sudo tee /sys/fs/cgroup/a/cpu.max");
        assert_eq!(idle.change.unwrap(), "echo max | sudo tee /sys/fs/cgroup/a/memory.max");
        let alone = Fake::new(&[
            ("proc/self/cgroup", "1:cpu,cpuacct:/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let change = group(alone.root(), cgroup::Limit::None).change.unwrap();
        assert_eq!(change, "echo -1 | sudo tee /sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us");
    }

    #[test]
    fn odd_texts_are_no_trouble() {
        for text in ["", "0", "::::", "0::", "4:memory", "0::/../..", "\u{0}\n\n"] {
            let fake = Fake::new(&[("proc/self/cgroup", text), ("sys/fs/cgroup/cpu.max", "x y")]);
            assert_eq!(group(fake.root(), cgroup::Limit::None).level, Level::Good, "{text:?}");
        }
    }
}
