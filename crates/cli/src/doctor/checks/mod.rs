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
}
