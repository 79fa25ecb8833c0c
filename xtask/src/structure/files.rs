//! Files stay small and know nothing of the machine they were written on.

use super::Source;

/// Lines of a source file at most.
const MOST_LINES: usize = 500;
/// Lines above which it is pointed out.
const MANY_LINES: usize = 400;
/// Extensions of source files.
const SOURCES: &[&str] = &[".rs", ".c", ".h", ".cc", ".py", ".js", ".java", ".sh"];
/// Folders that differ from machine to machine, below `/`.
const MACHINE: &[&str] = &["work", "root", "opt", "home"];

/// Files that are too long, and absolute paths of one machine.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let mut found = long(sources, MOST_LINES + 1..usize::MAX);
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(folder) = MACHINE.iter().find(|folder| names_folder(line, folder)) {
                found.push(format!("{}:{}: a path below /{folder}", source.path, number + 1));
            }
        }
    }
    found
}

/// Files that are nearly too long.
pub fn warnings(sources: &[Source]) -> Vec<String> {
    long(sources, MANY_LINES + 1..MOST_LINES + 1)
}

fn long(sources: &[Source], range: std::ops::Range<usize>) -> Vec<String> {
    let is_source = |s: &&Source| SOURCES.iter().any(|end| s.path.ends_with(end));
    let lines = |s: &Source| s.text.lines().count();
    let found = sources.iter().filter(is_source).filter(|s| range.contains(&lines(s)));
    found.map(|s| format!("{}: {} lines", s.path, lines(s))).collect()
}

/// Whether the line holds the absolute path `/folder`, alone or with more after it.
fn names_folder(line: &str, folder: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || "._-~*/}$".contains(c);
    let path = format!("/{folder}");
    line.match_indices(&path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        !before.is_some_and(is_path) && !after.is_some_and(|c| is_path(c) && c != '/')
    })
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn a_long_file_is_found() {
        let file = |lines: usize| [source("crates/mm/src/space/mod.rs", &"x\n".repeat(lines))];
        assert_eq!(violations(&file(501)), ["crates/mm/src/space/mod.rs: 501 lines"]);
        assert!(violations(&file(500)).is_empty());
        assert_eq!(warnings(&file(500)).len(), 1);
        assert!(warnings(&file(400)).is_empty());
        assert!(violations(&[source("Cargo.lock", &"x\n".repeat(501))]).is_empty());
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        for folder in MACHINE {
            let check = |text: &str| violations(&[source("docs/a.md", &text.replace('@', folder))]).len();
            assert_eq!(check("see /@/x"), 1);
            assert_eq!(check("cd '/@'"), 1);
            assert_eq!(check("see a/@/x and /@ing and $HOME/@"), 0);
        }
    }
}
