//! What this machine allows.

mod kernel;
mod machine;
mod memory;
mod pages;
mod uffd;

use faultless_base::zero::Features;

pub use memory::spare;

use super::finding::Finding;
use super::root::Root;
use super::tried::Tried;

/// A heading, and what belongs below it.
pub type Topic = (&'static str, Vec<Finding>);

/// Everything, by topic.
pub fn all(root: Root, tried: &Tried, features: Features, cpus: &[usize]) -> Vec<Topic> {
    vec![
        ("Kernel", kernel::check(root, tried)),
        ("Memory", memory::check(root, tried)),
        ("Huge pages", pages::check(root)),
        ("Faults delivered to programs", uffd::check(root, tried)),
        ("Machine", machine::check(root, features, cpus)),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    use super::super::finding::{Level, Verdict};
    use super::super::root::fake::Fake;
    use super::super::tried::Limits;
    use super::*;

    /// A machine on which everything works.
    pub fn tried() -> Tried {
        Tried {
            uffd: [Ok(u64::MAX); 3],
            namespace: Ok([true; 3]),
            io_uring: Ok(()),
            group: faultless_base::sys::cgroup::Limit::None,
            limits: Limits::default(),
            user: 1000,
        }
    }

    fn everything(fake: &Fake, tried: &Tried) -> Vec<Finding> {
        all(fake.root(), tried, Features::detect(), &[0, 1]).into_iter().flat_map(|(_, list)| list).collect()
    }

    #[test]
    fn a_machine_that_shows_nothing_is_limited_and_each_thing_is_explained() {
        let mut tried = tried();
        tried.uffd = [Err(libc::ENOENT), Err(libc::EPERM), Err(libc::ENOSYS)];
        let findings = everything(&Fake::new(&[]), &tried);
        assert_eq!(Verdict::of(&findings), Verdict::Limited);
        let names: BTreeSet<_> = findings.iter().map(|finding| finding.id).collect();
        assert_eq!(names.len(), findings.len(), "each name once");
        assert!(findings.iter().all(|f| !f.found.is_empty() && f.means.ends_with('.')));
    }

    #[test]
    fn the_best_way_of_userfaultfd_decides() {
        let fake = Fake::new(&[]);
        let level = |uffd: [Result<u64, i32>; 3]| {
            let findings = everything(&fake, &Tried { uffd, ..tried() });
            findings.into_iter().find(|finding| finding.id == "uffd").unwrap().level
        };
        let no = Err(libc::EPERM);
        assert_eq!(level([no, Ok(0), Ok(0)]), Level::Good);
        assert_eq!(level([Ok(0), no, Ok(0)]), Level::Good);
        assert_eq!(level([no, no, Ok(0)]), Level::Limited);
        assert_eq!(level([no, no, no]), Level::Limited);
    }

    /// Files of the kernel's, each with what may stand there.
    const FILES: [(&str, &str); 14] = [
        ("proc/meminfo", "MemTotal:       24683520 kB\nMemAvailable:     500000 kB\nSwapTotal: 1 kB\n"),
        ("proc/cpuinfo", "model name\t: A\nflags\t: fpu hypervisor\n"),
        ("proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t2\nCpus_allowed_list:\t0-3\nTHP_enabled:\t1\n"),
        ("proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/\n0::/a\n"),
        ("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
        ("proc/sys/kernel/osrelease", "6.18.44-x\n"),
        ("proc/sys/vm/overcommit_memory", "2\n"),
        ("proc/sys/vm/max_map_count", "65530\n"),
        ("proc/sys/kernel/perf_event_paranoid", "4\n"),
        ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "10000\n"),
        ("sys/bus/virtio/devices/virtio0/features", "1111111111\n"),
    ];
    const TEXTS: &[&str] = &{
        let mut texts = [""; FILES.len()];
        let mut i = 0;
        while i < FILES.len() {
            texts[i] = FILES[i].1;
            i += 1;
        }
        texts
    };

    proptest! {
        #![proptest_config(cases())]

        /// Each finding says something, in one line, whatever the kernel says.
        #[test]
        fn any_machine_is_explained(texts in prop::collection::vec((any::<bool>(), garbled(TEXTS)), FILES.len())) {
            let text = |i: usize| match &texts[i] {
                (true, text) => String::from_utf8_lossy(text).into_owned(),
                (false, _) => FILES[i].1.to_owned(),
            };
            let texts: Vec<_> = (0..FILES.len()).map(text).collect();
            let files: Vec<_> = FILES.iter().zip(&texts).map(|((path, _), text)| (*path, text.as_str())).collect();
            let fake = Fake::new(&files);
            for finding in everything(&fake, &tried()) {
                let said = [Some(&finding.found), Some(&finding.means), finding.change.as_ref()];
                prop_assert!(!said.into_iter().flatten().any(|text| text.is_empty() || text.contains(char::is_control)));
            }
            let _ = spare(fake.root(), &tried());
        }
    }
}
