//! Patterns of paths, for the knob `files`: separated by colons.
//!
//! `*` stands for any bytes but `/`, `?` for one of them, and `**` between slashes for any number of directories. A pattern
//! that begins with `/` is of the whole path. Any other one may begin at any directory: `*.gguf` is `/**/*.gguf`.

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is empty.
    Empty,
    /// It ends with a slash: files are meant, not directories.
    Directory,
    /// A part is `.` or `..`, or nothing: no path has such parts.
    Part,
    /// `**` is only a part of a part.
    Stars,
    /// All of them together are longer than a path may be.
    Long,
}

impl Bad {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Bad::Empty => "a pattern is empty",
            Bad::Directory => "a pattern ends with a slash, and files are meant",
            Bad::Part => "paths have no `.`, `..` or double slashes",
            Bad::Stars => "`**` stands alone between slashes",
            Bad::Long => "the patterns are longer than 4095 bytes",
        }
    }
}

/// The most bytes that patterns take.
pub const MOST: usize = 4095;

/// Whether each of the patterns in `list` could match a path.
pub fn check(list: &[u8]) -> Result<(), Bad> {
    if list.len() > MOST {
        return Err(Bad::Long);
    }
    list.split(|byte| *byte == b':').try_for_each(check_one)
}

fn check_one(pattern: &[u8]) -> Result<(), Bad> {
    let rest = pattern.strip_prefix(b"/").unwrap_or(pattern);
    match rest.last() {
        None => return Err(Bad::Empty),
        Some(b'/') => return Err(Bad::Directory),
        _ => {}
    }
    rest.split(|byte| *byte == b'/').try_for_each(|part| match part {
        b"" | b"." | b".." => Err(Bad::Part),
        b"**" => Ok(()),
        _ if part.windows(2).any(|two| two == b"**") => Err(Bad::Stars),
        _ => Ok(()),
    })
}

/// Whether one of the patterns in `list` matches `path`, which begins with a slash. Bad patterns match nothing.
pub fn is_match(list: &[u8], path: &[u8]) -> bool {
    let Some(path) = path.strip_prefix(b"/") else { return false };
    let mut patterns = list.split(|byte| *byte == b':').filter(|pattern| check_one(pattern).is_ok());
    patterns.any(|pattern| match pattern.strip_prefix(b"/") {
        Some(pattern) => is_path(pattern, path),
        None => starts(path).any(|from| is_path(pattern, &path[from..])),
    })
}

/// Where the parts of a path begin.
fn starts(path: &[u8]) -> impl Iterator<Item = usize> + '_ {
    (0..path.len()).filter(|&i| i == 0 || path[i - 1] == b'/')
}

/// Goes back to the last `**` alone: what an earlier one stands for need not grow, then.
fn is_path(mut pattern: &[u8], mut path: &[u8]) -> bool {
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        let (part, more_pattern) = cut(pattern);
        if part == Some(b"**") {
            again = Some((more_pattern, path));
            if more_pattern.is_empty() {
                return !path.is_empty();
            }
            pattern = more_pattern;
            continue;
        }
        let (name, more_path) = cut(path);
        match (part, name) {
            (None, None) => return true,
            (Some(part), Some(name)) if is_part(part, name) => (pattern, path) = (more_pattern, more_path),
            _ => {
                let Some((after, from)) = again else { return false };
                let (Some(_), later) = cut(from) else { return false };
                again = Some((after, later));
                (pattern, path) = (after, later);
            }
        }
    }
}

/// The first part, and what follows.
fn cut(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    if path.is_empty() {
        return (None, path);
    }
    match path.iter().position(|byte| *byte == b'/') {
        Some(at) => (Some(&path[..at]), &path[at + 1..]),
        None => (Some(path), &[]),
    }
}

/// Without a slash in either.
fn is_part(mut pattern: &[u8], mut name: &[u8]) -> bool {
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern, name) {
            ([], []) => return true,
            ([b'*', after @ ..], _) => {
                again = Some((after, name));
                pattern = after;
            }
            ([p, more @ ..], [n, rest @ ..]) if *p == b'?' || p == n => (pattern, name) = (more, rest),
            _ => {
                let Some((after, [_, later @ ..])) = again else { return false };
                again = Some((after, later));
                (pattern, name) = (after, later);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use faultless_testkit::foreign::cases;
    use proptest::prelude::*;

    #[test]
    fn paths_match() {
        for (pattern, path) in [
            ("*.gguf", "/a/b/c.gguf"),
            ("*.gguf", "/c.gguf"),
            ("b/*.gguf", "/a/b/c.gguf"),
            ("/a/*/c.gguf", "/a/b/c.gguf"),
            ("/a/**/c.gguf", "/a/c.gguf"),
            ("/a/**/c.gguf", "/a/x/y/c.gguf"),
            ("/**", "/a/b"),
            ("?.npy:*.gguf", "/x.gguf"),
            ("a?c*e", "/abcde"),
            ("/**/b/**/d", "/a/b/c/b/x/d"),
        ] {
            assert!(
                check(pattern.as_bytes()).is_ok() && is_match(pattern.as_bytes(), path.as_bytes()),
                "{pattern} {path}"
            );
        }
        for (pattern, path) in [
            ("*.gguf", "/a/c.gguf/d"),
            ("/*.gguf", "/a/c.gguf"),
            ("/a/*/c", "/a/c"),
            ("/a/*", "/a/b/c"),
            ("?", "/ab"),
            ("b/c", "/ab/c"),
            ("/a/**", "/a"),
            ("*.gguf", "a.gguf"),
        ] {
            assert!(!is_match(pattern.as_bytes(), path.as_bytes()), "{pattern} {path}");
        }
    }

    #[test]
    fn what_can_match_nothing_is_an_error() {
        for (pattern, bad) in [
            ("", Bad::Empty),
            ("/", Bad::Empty),
            ("a::b", Bad::Empty),
            ("a/", Bad::Directory),
            ("./a", Bad::Part),
            ("/a/../b", Bad::Part),
            ("a//b", Bad::Part),
            ("a**", Bad::Stars),
        ] {
            assert_eq!(check(pattern.as_bytes()), Err(bad), "{pattern}");
        }
        assert_eq!(check(&[b'a'; MOST + 1]), Err(Bad::Long));
    }

    /// The obvious way: every way to divide the path.
    fn by_trial(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => path.is_empty(),
            [b'*', b'*', b'/', rest @ ..] => {
                by_trial(rest, path) || starts(path).skip(1).any(|at| by_trial(rest, &path[at..]))
            }
            b"**" => !path.is_empty(),
            [b'*', rest @ ..] => {
                let most = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
                (0..=most).any(|n| by_trial(rest, &path[n..]))
            }
            [p, rest @ ..] => {
                path.first().is_some_and(|n| *p == *n || *p == b'?' && *n != b'/') && by_trial(rest, &path[1..])
            }
        }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn matches_are_those_by_trial(
            pattern in proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("*"), Just("?"), Just("**"), Just("a*"), Just("*b*")], 1..6),
            path in proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("ab"), Just("ba"), Just("aab")], 1..6),
        ) {
            let pattern: Vec<u8> = pattern.join("/").into();
            let path: Vec<u8> = path.join("/").into();
            prop_assert_eq!(is_path(&pattern, &path), by_trial(&pattern, &path));
        }
    }
}
