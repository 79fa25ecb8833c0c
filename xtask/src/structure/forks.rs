//! The library of regions bears a fork at any moment: nothing of `std` that a fork copies half made or locked is a
//! value of the process.

use super::{Source, code, words};

/// Where that counts.
const FOLDERS: &[&str] = &["crates/faultless/src/", "crates/capi/src/", "python/src/"];

/// What makes a value once, with a lock inside.
const ONCE: &[&str] = &["LazyLock", "OnceLock", "PyOnceLock"];
/// What a value of the process must not be.
const LOCKS: &[&str] = &["Mutex", "RwLock", "Condvar"];
/// How `std` starts a thread.
const THREADS: &[&str] = &["thread::spawn", "thread::Builder", "thread::scope"];

/// Files that may have a lock as a value of the process, and why.
const ALLOWED: &[(&str, &str)] =
    &[("python/src/block.rs", "held with the interpreter's lock, which a fork of Python's has")];

/// Such values and threads elsewhere.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let counts = |path: &str| path.ends_with(".rs") && FOLDERS.iter().any(|folder| path.starts_with(folder));
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| counts(&source.path)) {
        let is_allowed = ALLOWED.iter().any(|(file, _)| source.path == *file);
        // The tests of a file come last.
        let lines = source.text.lines().take_while(|line| *line != "#[cfg(test)]");
        for (number, line) in lines.enumerate() {
            let line = code(line);
            let mut violation = |why| found.push(format!("{}:{}: {why}", source.path, number + 1));
            if words(&line).any(|word| ONCE.contains(&word)) {
                violation("a child of a fork would wait for it: use process::once, or an AtomicPtr");
            }
            if is_locked_static(&line) && !is_allowed {
                violation("a child of a fork may find it locked: use process::owner::OfProcess");
            }
            if THREADS.iter().any(|thread| line.contains(thread)) {
                violation("a thread that does not hold back signals: use process::thread");
            }
        }
    }
    found
}

fn is_locked_static(line: &str) -> bool {
    let mut words = words(line).skip_while(|word| *word != "static");
    // `static`, its name, and what it is.
    line.contains(':') && words.nth(2).is_some_and(|word| LOCKS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn check(path: &str, text: &str) -> usize {
        violations(&[source(path, text)]).len()
    }

    #[test]
    fn values_that_a_fork_breaks_are_found() {
        let path = "crates/faultless/src/page.rs";
        assert_eq!(check(path, "static PAGE: LazyLock<Page> = LazyLock::new(make);"), 1);
        assert_eq!(check(path, "pub static ALL: Mutex<Vec<u8>> = Mutex::new(Vec::new());"), 1);
        assert_eq!(check(path, "    std::thread::spawn(work);"), 1);
        assert_eq!(check(path, "static ALL: OfProcess<Mutex<u8>> = OfProcess::new();"), 0);
        assert_eq!(check(path, "    state: Mutex<State>, // no static Mutex"), 0);
        assert_eq!(check("crates/cli/src/main.rs", "std::thread::spawn(work);"), 0);
    }

    #[test]
    fn tests_may_start_threads() {
        assert_eq!(
            check("crates/faultless/src/page.rs", "fn f() {}\n#[cfg(test)]\nmod tests { thread::spawn(f) }"),
            0
        );
    }
}
