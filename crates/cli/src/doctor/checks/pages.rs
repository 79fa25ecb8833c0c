//! Huge pages for anonymous and for shared memory.

use super::super::finding::{Finding, Level};
use super::super::root::Root;

const THP: &str = "sys/kernel/mm/transparent_hugepage";

fn set(path: &str, value: &str) -> String {
    format!("echo {value} | sudo tee /{path}")
}

/// All about them.
pub fn check(root: Root) -> Vec<Finding> {
    vec![enabled(root), defrag(root), sizes(root), khugepaged(root), shmem(root)]
}

/// A switch with modes: how good each is, what it means, and what to set it to instead if that is better. The last one is for those
/// that are not named.
struct Switch {
    id: &'static str,
    name: &'static str,
    modes: &'static [(&'static [&'static str], Level, &'static str, Option<&'static str>)],
}

impl Switch {
    fn finding(&self, mode: &str, path: &str) -> Finding {
        let named = self.modes.iter().find(|(modes, ..)| modes.contains(&mode));
        let (_, level, means, other) = named.unwrap_or(&self.modes[self.modes.len() - 1]);
        let finding = Finding::new(self.id, *level, format!("{}: {mode}", self.name), *means);
        other.map(|other| set(path, other)).into_iter().fold(finding, Finding::change)
    }
}

const ENABLED: Switch = Switch {
    id: "thp",
    name: "huge pages of anonymous memory",
    modes: &[
        (
            &["always"],
            Level::Good,
            "Large memory gets huge pages, asked for or not; sparse use of it takes more memory than it writes.",
            None,
        ),
        (
            &["madvise"],
            Level::Good,
            "Memory gets huge pages where a program, or faultless for it, asks for them.",
            None,
        ),
        (
            &[],
            Level::Limited,
            "First touches of large memory stay as dear as without faultless; only recycled memory gains.",
            Some("madvise"),
        ),
    ],
};

const DEFRAG: Switch = Switch {
    id: "thp_defrag",
    name: "a fault's effort for a huge page (defrag)",
    modes: &[
        (
            &["always", "madvise", "defer+madvise"],
            Level::Good,
            "A fault in memory for which huge pages were asked makes room for one if there is none.",
            None,
        ),
        (
            &[],
            Level::Note,
            "When memory is fragmented, faults take small pages even where huge ones were asked for.",
            Some("madvise"),
        ),
    ],
};

const SHMEM: Switch = Switch {
    id: "thp_shmem",
    name: "huge pages of shared memory",
    modes: &[
        (
            &["never", "deny"],
            Level::Note,
            "Shared anonymous memory and memfds get small pages. Programs under `faultless run` do not depend on it.",
            None,
        ),
        (&[], Level::Good, "Shared anonymous memory and memfds can have huge pages.", None),
    ],
};

fn enabled(root: Root) -> Finding {
    if root.field("proc/self/status", "THP_enabled").as_deref() == Some("0") {
        return Finding::new(
            ENABLED.id,
            Level::Limited,
            "huge pages are switched off for this process and those that it starts (PR_SET_THP_DISABLE)",
            "Whoever started the shell or service did that; first touches of large memory gain nothing here.",
        );
    }
    // The size of 2 MiB has a switch of its own, which normally says to do as the one for all sizes does.
    let (all, own) = (format!("{THP}/enabled"), format!("{THP}/hugepages-2048kB/enabled"));
    let own = root.choice(&own).filter(|mode| mode != "inherit").map(|mode| (mode, own));
    match own.or_else(|| Some((root.choice(&all)?, all))) {
        Some((mode, path)) => ENABLED.finding(&mode, &path),
        None => Finding::new(
            ENABLED.id,
            Level::Limited,
            "no transparent huge pages",
            "The kernel is built without them, or /sys is hidden here. Each fault then brings 4 KiB, and what \
             faultless touches ahead of a program costs as much as it saves.",
        ),
    }
}

fn defrag(root: Root) -> Finding {
    let path = format!("{THP}/defrag");
    let unknown = "It says how hard a fault tries for a huge page.";
    match root.choice(&path) {
        Some(mode) => DEFRAG.finding(&mode, &path),
        None => Finding::new(DEFRAG.id, Level::Note, "defrag mode unknown", unknown),
    }
}

fn sizes(root: Root) -> Finding {
    let id = "thp_sizes";
    let all = root.names(THP);
    let mut sizes: Vec<(u64, String)> = all
        .iter()
        .filter_map(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok())
        .filter(|kib| *kib < 2048)
        .filter_map(|kib| Some((kib, root.choice(&format!("{THP}/hugepages-{kib}kB/enabled"))?)))
        .collect();
    sizes.sort();
    if sizes.is_empty() {
        return Finding::new(
            id,
            Level::Note,
            "huge pages smaller than 2 MiB: not in this kernel",
            "They make small faults fewer from Linux 6.8 on.",
        );
    }
    let on: Vec<_> =
        sizes.iter().filter(|(_, mode)| mode != "never").map(|(kib, mode)| format!("{kib}K {mode}")).collect();
    let (found, means) = match on.is_empty() {
        true => ("none is on".into(), "What faultless does not serve is brought 4 KiB at a time."),
        false => (on.join(", "), "They make small faults fewer also where faultless does not help."),
    };
    let finding = Finding::new(id, Level::Note, format!("huge pages smaller than 2 MiB: {found}"), means);
    match on.is_empty() && root.has(&format!("{THP}/hugepages-64kB")) {
        true => finding.change(set(&format!("{THP}/hugepages-64kB/enabled"), "madvise")),
        false => finding,
    }
}

fn khugepaged(root: Root) -> Finding {
    let id = "khugepaged";
    let folder = format!("{THP}/khugepaged");
    let number = |name: &str| root.number(&format!("{folder}/{name}"));
    let (Some(pages), Some(pause)) = (number("pages_to_scan"), number("scan_sleep_millisecs")) else {
        return Finding::new(
            id,
            Level::Note,
            "khugepaged unknown",
            "It makes huge pages out of small ones, later.",
        );
    };
    let makes = if number("defrag") == Some(0) { "makes no" } else { "makes" };
    let finding = Finding::new(
        id,
        Level::Note,
        format!(
            "khugepaged looks at {pages} pages, then sleeps for {pause} ms; it {makes} room for huge pages (defrag)"
        ),
        "It makes huge pages out of small ones, later: too late for programs of some seconds.",
    );
    if pause > 1000 { finding.change(set(&format!("{folder}/scan_sleep_millisecs"), "1000")) } else { finding }
}

fn shmem(root: Root) -> Finding {
    let path = format!("{THP}/shmem_enabled");
    match root.choice(&path) {
        Some(mode) => SHMEM.finding(&mode, &path),
        None => Finding::new(
            SHMEM.id,
            Level::Note,
            "huge pages of shared memory unknown",
            "They concern tmpfs and memfd.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::root::fake::Fake;
    use super::*;

    fn with(files: &[(&str, &str)]) -> Fake {
        let files: Vec<_> = files.iter().map(|(name, text)| (format!("{THP}/{name}"), *text)).collect();
        Fake::new(&files.iter().map(|(name, text)| (name.as_str(), *text)).collect::<Vec<_>>())
    }

    #[test]
    fn modes_of_anonymous_memory() {
        let level = |files: &[(&str, &str)]| {
            let finding = enabled(with(files).root());
            (finding.level, finding.change)
        };
        assert_eq!(level(&[("enabled", "always [madvise] never")]).0, Level::Good);
        assert_eq!(level(&[("enabled", "[always] madvise never")]).0, Level::Good);
        let never = level(&[("enabled", "always madvise [never]")]);
        assert_eq!(never.0, Level::Limited);
        assert_eq!(never.1.unwrap(), "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
        assert_eq!(level(&[]).0, Level::Limited);
    }

    /// The size's own switch counts, unless it says to inherit.
    #[test]
    fn the_switch_of_the_size_decides() {
        let size = "hugepages-2048kB/enabled";
        let level = |own| {
            let fake = with(&[("enabled", "always [madvise] never"), (size, own)]);
            let finding = enabled(fake.root());
            (finding.level, finding.change.is_some_and(|change| change.contains("2048kB")))
        };
        assert_eq!(level("always [inherit] madvise never"), (Level::Good, false));
        assert_eq!(level("always inherit madvise [never]"), (Level::Limited, true));
    }

    #[test]
    fn a_process_may_be_without_huge_pages() {
        let mode = (&*format!("{THP}/enabled"), "[always] madvise never");
        let level = |status| enabled(Fake::new(&[mode, ("proc/self/status", status)]).root()).level;
        assert_eq!(level("Name:\tx\nTHP_enabled:\t1\n"), Level::Good);
        assert_eq!(level("Name:\tx\nTHP_enabled:\t0\n"), Level::Limited);
    }

    #[test]
    fn a_switch_names_what_to_set_it_to_instead() {
        let fake = with(&[
            ("defrag", "always defer defer+madvise madvise [never]"),
            ("shmem_enabled", "always within_size [advise] never deny force"),
        ]);
        let change = |finding: Finding| (finding.level, finding.change.unwrap_or_default());
        let set = |mode: &str, file: &str| format!("echo {mode} | sudo tee /{THP}/{file}");
        assert_eq!(change(defrag(fake.root())), (Level::Note, set("madvise", "defrag")));
        assert_eq!(change(shmem(fake.root())), (Level::Good, String::new()));
        for switch in [ENABLED, DEFRAG, SHMEM] {
            let last = switch.modes.last().unwrap();
            let is_better = |(modes, level, _, other): &(&[&str], Level, &str, Option<&str>)| {
                other.is_none_or(|other| !modes.contains(&other) && *level != Level::Good)
            };
            assert!(last.0.is_empty() && switch.modes.iter().all(is_better));
        }
    }

    #[test]
    fn smaller_sizes_are_listed_in_order() {
        let fake = with(&[
            ("hugepages-1024kB/enabled", "[always] never"),
            ("hugepages-64kB/enabled", "always [madvise] never"),
            ("hugepages-32kB/enabled", "always madvise [never]"),
            ("hugepages-2048kB/enabled", "[always] never"),
            ("hugepages-8kB/shmem_enabled", "[always]"),
            ("hugepages-xkB/enabled", "[always]"),
        ]);
        assert_eq!(sizes(fake.root()).found, "huge pages smaller than 2 MiB: 64K madvise, 1024K always");
    }

    #[test]
    fn an_empty_root_is_no_trouble() {
        let findings = check(with(&[]).root());
        assert_eq!(findings.len(), 5);
        assert!(findings.iter().all(|f| f.change.is_none()), "nothing to change where nothing is");
    }
}
