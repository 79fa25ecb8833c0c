//! The machine: CPUs, their instructions, and what is below.

use faultless_base::zero::Features;

use super::super::finding::{Finding, Level};
use super::super::root::Root;
use crate::warm::need::Balloon;

/// All about it.
pub fn check(root: Root, features: Features, cpus: &[usize]) -> Vec<Finding> {
    vec![processors(root, cpus), nodes(root), instructions(root, features), host(root), reporting(root)]
}

fn processors(root: Root, allowed: &[usize]) -> Finding {
    let id = "cpus";
    let model = root.field("proc/cpuinfo", "model name").unwrap_or("processor of unknown model".into());
    let list = root.field("proc/self/status", "Cpus_allowed_list");
    let list = list.filter(|_| !allowed.is_empty()).map_or(String::new(), |list| format!(" (number {list})"));
    let online = root.text("sys/devices/system/cpu/online").unwrap_or("unknown".into());
    let found = |n: usize| format!("{model}, usable CPUs: {n}{list}, online: {online}");
    match allowed.len() {
        0 => Finding::new(
            id,
            Level::Note,
            format!("{model}, CPUs online: {online}"),
            "Their number cannot be told.",
        ),
        1 => Finding::new(
            id,
            Level::Limited,
            found(1),
            "The background thread has only the program's own CPU, and works when the program waits.",
        )
        .change(format!("taskset -pc {} $$", root.text("sys/devices/system/cpu/online").unwrap_or("0-1".into()))),
        n => Finding::new(id, Level::Good, found(n), "The background thread zeroes and touches on an idle one."),
    }
}

fn nodes(root: Root) -> Finding {
    let is_node = |name: &&String| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    match root.names("sys/devices/system/node").iter().filter(is_node).count() {
        0 | 1 => Finding::new("numa", Level::Good, "one NUMA node", "All memory is equally near to every CPU."),
        n => Finding::new(
            "numa",
            Level::Note,
            format!("{n} NUMA nodes"),
            "Memory is kept by node, and nothing is touched ahead: bind the program to one node, and it is.",
        )
        .change("numactl --cpunodebind=0 --membind=0 faultless run -- PROGRAM"),
    }
}

fn instructions(root: Root, features: Features) -> Finding {
    // The others are of use to devices alone.
    let all = Features::NAMES.into_iter().filter(|(bit, _)| bit & (Features::MOVDIR64B | Features::ENQCMD) == 0);
    let (has, lacks): (Vec<_>, Vec<_>) = all.partition(|(bit, _)| features.has(*bit));
    let names = |list: Vec<(u8, &str)>| match list.is_empty() {
        true => "none".to_owned(),
        false => list.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", "),
    };
    let (level, means) = match features.has(Features::ERMS) {
        true => (Level::Good, "`rep stosb` zeroes memory as fast as the caches take it."),
        false if root.field("proc/cpuinfo", "flags").is_none() => (Level::Note, "Memory is zeroed by memset."),
        false => {
            (Level::Note, "Without erms `rep stosb` is slow: zeroing at the hand-out costs more than it could.")
        }
    };
    Finding::new(
        "zeroing",
        level,
        format!("zeroing instructions: {}; without: {}", names(has), names(lacks)),
        means,
    )
}

fn host(root: Root) -> Finding {
    let id = "hypervisor";
    let is_guest =
        root.field("proc/cpuinfo", "flags").is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor"));
    let names = ["sys/hypervisor/type", "sys/class/dmi/id/sys_vendor"];
    let name = names.into_iter().find_map(|path| root.text(path)).filter(|name| !name.is_empty());
    match (is_guest, name) {
        (false, _) => Finding::new(id, Level::Good, "no hypervisor seen", "A fault costs what the kernel needs."),
        (true, name) => Finding::new(
            id,
            Level::Note,
            format!("virtual machine{}", name.map_or(String::new(), |name| format!(" ({name})"))),
            "A fault also walks the hypervisor's page tables, and wakes between CPUs are dear.",
        ),
    }
}

fn reporting(root: Root) -> Finding {
    let id = "free_page_reporting";
    match Balloon::below(root.0) {
        Balloon::None => Finding::new(
            id,
            Level::Good,
            "no virtio balloon",
            "No idle memory is seen to go back to a host; hypervisors of other makes have ways of their own.",
        ),
        Balloon::Reporting(balloon) => Finding::new(
            id,
            Level::Note,
            format!("idle memory goes back to the host (free page reporting, {balloon})"),
            "The first touch of memory that was idle costs several times more. Memory that faultless keeps is not \
             idle.",
        ),
        Balloon::Silent(balloon) => Finding::new(
            id,
            Level::Good,
            format!("a virtio balloon without free page reporting ({balloon})"),
            "Idle memory stays with this machine unless the host asks for it.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::root::fake::Fake;
    use super::*;

    #[test]
    fn reporting_is_a_bit_of_the_balloon() {
        let find = |features: &str| {
            let fake = Fake::new(&[
                ("sys/bus/virtio/devices/virtio0/modalias", "virtio:d00000002v00001AF4\n"),
                ("sys/bus/virtio/devices/virtio0/features", "1111111111\n"),
                ("sys/bus/virtio/devices/virtio3/modalias", "virtio:d00000005v00001AF4\n"),
                ("sys/bus/virtio/devices/virtio3/features", features),
            ]);
            let finding = reporting(fake.root());
            (finding.level, finding.change)
        };
        // To end that would be the host's loss.
        assert_eq!(find("0000010000\n"), (Level::Note, None));
        assert_eq!(find("1111101111\n").0, Level::Good);
        assert_eq!(find("").0, Level::Good);
        assert_eq!(reporting(Fake::new(&[]).root()).found, "no virtio balloon");
    }

    #[test]
    fn one_cpu_limits() {
        let fake = Fake::new(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("proc/self/status", "Cpus_allowed_list:\t2\n"),
            ("proc/cpuinfo", "model name\t: A\nflags\t: fpu hypervisor\n"),
        ]);
        let one = processors(fake.root(), &[2]);
        assert_eq!((one.level, one.found.as_str()), (Level::Limited, "A, usable CPUs: 1 (number 2), online: 0-3"));
        assert_eq!(one.change.unwrap(), "taskset -pc 0-3 $$");
        assert_eq!(processors(fake.root(), &[0, 2]).level, Level::Good);
        assert_eq!(processors(Fake::new(&[]).root(), &[]).level, Level::Note);
        assert_eq!(host(fake.root()).level, Level::Note);
    }

    #[test]
    fn nodes_are_counted_by_name() {
        let fake = Fake::new(&[
            ("sys/devices/system/node/node0/x", ""),
            ("sys/devices/system/node/node1/x", ""),
            ("sys/devices/system/node/has_cpu", "0"),
            ("sys/devices/system/node/nodes", "0"),
        ]);
        assert_eq!(nodes(fake.root()).found, "2 NUMA nodes");
    }
}
