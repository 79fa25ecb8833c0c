//! Which programs the knob `skip` means.
//!
//! A program has several names, and each of them counts. One is that of the file that was asked for: a script, a
//! link. One is that of the file that runs: the script's interpreter, the target of the link. One is the name that
//! it was told to have (`exec -a`). The last is its first argument that is no option, as for `env python3 SCRIPT`.

/// As much of a name as the kernel keeps, and shows.
pub const KERNEL_NAME: usize = 15;

/// What stands behind the last slash.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

/// The names in a list with commas; of a path its last part.
pub fn listed(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == b',').map(|entry| file_name(entry.trim_ascii())).filter(|entry| !entry.is_empty())
}

/// The first of a program's names, or paths, that `list` names; also by what the kernel shows of it.
pub fn named<'a>(list: &[u8], mut names: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let is_meant = |name: &[u8]| {
        let is_shown = |entry: &[u8]| entry.len() == KERNEL_NAME && name.starts_with(entry);
        listed(list).any(|entry| entry == name || is_shown(entry))
    };
    names.find(|name| is_meant(file_name(name)))
}

/// Whether `list` names the program of which the kernel shows this name.
pub fn shown(list: &[u8], name: &[u8]) -> bool {
    listed(list).any(|entry| &entry[..entry.len().min(KERNEL_NAME)] == name)
}

/// Of the words of a command, the first behind its name that is no option.
pub fn argument<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    words.skip(1).find(|word| !word.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn names_are_found_in_a_list() {
        let is = |list: &str, name: &str| named(list.as_bytes(), [name.as_bytes()].into_iter()).is_some();
        for (list, name) in [
            ("dd", "dd"),
            ("a,dd,b", "/bin/dd"),
            (" a , dd ", "dd"),
            ("./x/dd", "dd"),
            ("a_name_of_more_than_15", "a_name_of_more_than_15"),
            ("a_name_of_more_", "/x/a_name_of_more_than_15"),
        ] {
            assert!(is(list, name), "{list} {name}");
        }
        for (list, name) in [
            ("", ""),
            (",", ""),
            ("/", "/"),
            ("dd", "ddd"),
            ("ddd", "dd"),
            ("a_name_of_more_than_15", "a_name_of_more_than_16"),
            ("a_name_of_more", "a_name_of_more_than_15"),
        ] {
            assert!(!is(list, name), "{list} {name}");
        }
        assert!(shown(b"x,a_name_of_more_than_15", b"a_name_of_more_") && !shown(b"ab", b"a"));
        let words = |words: &'static [&'static str]| argument(words.iter().map(|word| word.as_bytes()));
        assert_eq!(words(&["python3", "-u", "a.py", "b"]), Some(&b"a.py"[..]));
        assert_eq!(words(&["a"]), None);
    }

    proptest! {
        #![proptest_config(cases())]

        /// A name that is found is one of those asked for, and stands in the list, if only as the kernel shows it.
        #[test]
        fn what_is_found_stands_in_the_list(
            list in garbled(&["dd,/bin/cat , a_name_of_more_", ",,"]),
            name in garbled(&["dd", "/usr/bin/cat", "a_name_of_more_than_15"]),
        ) {
            let entries: Vec<&[u8]> = list.split(|b| *b == b',').map(|e| file_name(e.trim_ascii())).collect();
            let own = file_name(&name);
            let is = !own.is_empty() && entries.iter().any(|e| *e == own || e.len() == 15 && own.starts_with(e));
            let names = [&name[..]];
            prop_assert_eq!(named(&list, names.into_iter()), is.then_some(&name[..]));
            let shown_is = entries.iter().any(|e| !e.is_empty() && e.iter().take(15).eq(name.iter()));
            prop_assert_eq!(shown(&list, &name), shown_is);
        }
    }
}
