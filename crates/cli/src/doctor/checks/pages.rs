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

fn enabled(root: Root) -> Finding {
    let (id, path) = ("thp", format!("{THP}/enabled"));
    if root.field("proc/self/status", "THP_enabled").as_deref() == Some("0") {
        return Finding::new(
            id,
            Level::Limited,
            "huge pages are switched off for this process and those that it starts (PR_SET_THP_DISABLE)",
            "Whoever started the shell or service did that; first touches of large memory gain nothing here.",
        );
    }
    // The size of 2 MiB has a switch of its own, which normally says to do as this one does.
    let own = root.choice(&format!("{THP}/hugepages-2048kB/enabled")).filter(|mode| mode != "inherit");
    let (mode, path) = match own {
        Some(own) => (Some(own), format!("{THP}/hugepages-2048kB/enabled")),
        None => (root.choice(&path), path),
    };
    let Some(mode) = mode else {
        return Finding::new(
            id,
            Level::Limited,
            "no transparent huge pages",
            "The kernel is built without them, or /sys is hidden here. Each fault then brings 4 KiB, and what \
             faultless touches ahead of a program costs as much as it saves.",
        );
    };
    let found = format!("huge pages of anonymous memory: {mode}");
    match mode.as_str() {
        "always" => Finding::new(
            id,
            Level::Good,
            found,
            "Large memory gets huge pages, asked for or not; sparse use of it takes more memory than it writes.",
        )
        .change(set(&path, "madvise")),
        "madvise" => Finding::new(
            id,
            Level::Good,
            found,
            "Memory gets huge pages where a program, or faultless for it, asks for them.",
        )
        .change(set(&path, "always")),
        _ => Finding::new(
            id,
            Level::Limited,
            found,
            "First touches of large memory stay as dear as without faultless; only recycled memory gains.",
        )
        .change(set(&path, "madvise")),
    }
}

fn defrag(root: Root) -> Finding {
    let (id, path) = ("thp_defrag", format!("{THP}/defrag"));
    let Some(mode) = root.choice(&path) else {
        return Finding::new(
            id,
            Level::Note,
            "defrag mode unknown",
            "It says how hard a fault tries for a huge page.",
        );
    };
    let found = format!("a fault's effort for a huge page (defrag): {mode}");
    match mode.as_str() {
        "always" | "madvise" | "defer+madvise" => Finding::new(
            id,
            Level::Good,
            found,
            "A fault in memory for which huge pages were asked makes room for one if there is none.",
        ),
        _ => Finding::new(
            id,
            Level::Note,
            found,
            "When memory is fragmented, faults take small pages even where huge ones were asked for.",
        )
        .change(set(&path, "madvise")),
    }
}

/// Sizes between a page and 2 MiB.
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
    Finding::new(
        id,
        Level::Note,
        format!("khugepaged looks at {pages} pages, then sleeps for {pause} ms"),
        "It makes huge pages out of small ones, later: too late for programs of some seconds.",
    )
    .change(set(&format!("{folder}/scan_sleep_millisecs"), "1000"))
}

fn shmem(root: Root) -> Finding {
    let (id, path) = ("thp_shmem", format!("{THP}/shmem_enabled"));
    let Some(mode) = root.choice(&path) else {
        return Finding::new(
            id,
            Level::Note,
            "huge pages of shared memory unknown",
            "They concern tmpfs and memfd.",
        );
    };
    let found = format!("huge pages of shared memory: {mode}");
    match mode.as_str() {
        "never" | "deny" => Finding::new(
            id,
            Level::Note,
            found,
            "Shared anonymous memory and memfds get small pages. Programs under `faultless run` do not depend on it.",
        )
        .change(set(&path, "advise")),
        _ => Finding::new(id, Level::Good, found, "Shared anonymous memory and memfds can have huge pages."),
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
            (finding.level, finding.change.unwrap().contains("2048kB"))
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
