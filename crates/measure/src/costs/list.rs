//! The costs by name: what each is, and what was measured of it.

use std::collections::BTreeMap;

use faultless_base::zero::Engine;
use serde::Serialize;

/// Where a cost stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Faults, and what is done to pages instead.
    Pages,
    /// Zeroing of memory that the caches hold.
    ZeroInside,
    /// Zeroing of memory that they do not.
    ZeroBeyond,
}

/// Something that costs time.
pub struct Kind {
    /// Its name in JSON.
    pub id: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// What one of it is.
    pub per: &'static str,
    /// Where it stands.
    pub group: Group,
}

const fn pages(id: &'static str, name: &'static str, per: &'static str) -> Kind {
    Kind { id, name, per, group: Group::Pages }
}

const fn zeroing(id: &'static str, engine: Engine, group: Group) -> Kind {
    Kind { id, name: engine.name(), per: "4 KiB", group }
}

/// All of them, in the order of the table.
pub const COSTS: &[Kind] = &[
    pages("touch", "touch, page present", "4 KiB"),
    pages("small_fault", "fault, small page", "4 KiB"),
    pages("huge_fault", "fault, huge page", "2 MiB"),
    pages("deliver_signal", "fault by userfaultfd, signal", "4 KiB"),
    pages("deliver_thread", "fault by userfaultfd, thread", "4 KiB"),
    pages("move_page", "UFFDIO_MOVE, small page", "4 KiB"),
    pages("move_huge", "UFFDIO_MOVE, huge page", "2 MiB"),
    pages("mremap", "mremap, huge page", "2 MiB"),
    pages("move", "UFFDIO_MOVE of a huge page, registered for it", "2 MiB"),
    pages("discard_small", "MADV_DONTNEED, small page", "4 KiB"),
    pages("discard_huge", "MADV_DONTNEED, huge page", "2 MiB"),
    zeroing("zero_string_inside", Engine::StringStore, Group::ZeroInside),
    zeroing("zero_memset_inside", Engine::Memset, Group::ZeroInside),
    zeroing("zero_sse2_inside", Engine::Stream16, Group::ZeroInside),
    zeroing("zero_avx2_inside", Engine::Stream32, Group::ZeroInside),
    zeroing("zero_avx512_inside", Engine::Stream64, Group::ZeroInside),
    zeroing("zero_clzero_inside", Engine::LineZero, Group::ZeroInside),
    zeroing("zero_kernel_inside", Engine::Kernel, Group::ZeroInside),
    zeroing("zero_dsa_inside", Engine::Dsa, Group::ZeroInside),
    zeroing("zero_string_beyond", Engine::StringStore, Group::ZeroBeyond),
    zeroing("zero_memset_beyond", Engine::Memset, Group::ZeroBeyond),
    zeroing("zero_sse2_beyond", Engine::Stream16, Group::ZeroBeyond),
    zeroing("zero_avx2_beyond", Engine::Stream32, Group::ZeroBeyond),
    zeroing("zero_avx512_beyond", Engine::Stream64, Group::ZeroBeyond),
    zeroing("zero_clzero_beyond", Engine::LineZero, Group::ZeroBeyond),
    zeroing("zero_kernel_beyond", Engine::Kernel, Group::ZeroBeyond),
    zeroing("zero_dsa_beyond", Engine::Dsa, Group::ZeroBeyond),
];

/// What was measured of one.
#[derive(Serialize)]
pub struct Cost {
    /// Its name in JSON.
    pub id: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// What one of it is.
    pub per: &'static str,
    /// Where it stands.
    pub group: Group,
    /// Nanoseconds for one: a tenth of the samples are below.
    pub ns: Option<f64>,
    /// The fastest sample.
    pub fastest_ns: Option<f64>,
    /// The slowest sample.
    pub slowest_ns: Option<f64>,
    /// Why there is no figure.
    pub missing: Option<String>,
}

impl Cost {
    /// From its samples.
    pub fn new(
        kind: &Kind,
        samples: &BTreeMap<&'static str, Vec<f64>>,
        missing: &BTreeMap<&'static str, String>,
    ) -> Self {
        let mut sorted = samples.get(kind.id).cloned().unwrap_or_default();
        sorted.sort_by(f64::total_cmp);
        let why = || missing.get(kind.id).cloned().unwrap_or_else(|| "this processor does not have it".into());
        Self {
            id: kind.id,
            name: kind.name,
            per: kind.per,
            group: kind.group,
            ns: sorted.get(sorted.len() / 10).copied(),
            fastest_ns: sorted.first().copied(),
            slowest_ns: sorted.last().copied(),
            missing: sorted.is_empty().then(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_samples_is_below_the_cost() {
        let samples = BTreeMap::from([("touch", (1..=20).rev().map(f64::from).collect())]);
        let cost = |id| {
            let kind = COSTS.iter().find(|kind| kind.id == id).unwrap();
            Cost::new(kind, &samples, &BTreeMap::from([("move_page", "refused".to_owned())]))
        };
        let touch = cost("touch");
        assert_eq!((touch.ns, touch.fastest_ns, touch.slowest_ns), (Some(3.0), Some(1.0), Some(20.0)));
        assert_eq!(touch.missing, None);
        assert_eq!((cost("move_page").ns, cost("move_page").missing), (None, Some("refused".into())));
    }

    #[test]
    fn each_engine_has_its_rows() {
        for engine in Engine::ALL {
            let [inside, beyond] = super::super::zeroing::ids(engine);
            for (id, group) in [(inside, Group::ZeroInside), (beyond, Group::ZeroBeyond)] {
                let kind = COSTS.iter().find(|kind| kind.id == id).unwrap();
                assert_eq!((kind.name, kind.group), (engine.name(), group));
            }
        }
    }
}
