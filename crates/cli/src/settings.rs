//! What a program that is started will be set to, and where that comes from.
//!
//! The first of these that sets a knob wins: a flag, the environment, the user's file, the default. The file is
//! `faultless/settings` in the user's configuration directory, a line for each knob, as the one of sysctl:
//!
//! ```text
//! # what a hash begins is a comment
//! budget = 256M
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use faultless_page::knobs::{Kind, Knob};

use crate::own;
use crate::replaced::keep;

/// A knob and what it is to be set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which.
    pub knob: Knob,
    /// To what, as it was written; sound.
    pub value: String,
}

/// Where a knob's setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The user's file.
    File,
    /// It was not set.
    Default,
}

impl Origin {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// The name most like `name` among `names`, if one is.
pub fn suggestion<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let likeness = |other: &str| strsim::jaro_winkler(name, other);
    let best = names.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|best| likeness(best) > 0.7).map_or_else(String::new, |best| format!("; did you mean {best}?"))
}

/// The knob of this name.
pub fn knob(name: &str) -> Result<Knob, String> {
    let found = Knob::ALL.iter().find(|knob| knob.declared().name == name);
    let names = || Knob::ALL.iter().map(|knob| knob.declared().name);
    found.copied().ok_or_else(|| format!("there is no knob {name:?}{}", suggestion(name, names())))
}

/// A sound setting of `knob`.
pub fn setting(knob: Knob, value: &str) -> Result<Setting, String> {
    let declared = knob.declared();
    if value.chars().any(char::is_control) {
        return Err(format!("{}: a value holds no control characters", declared.name));
    }
    match declared.parse(value.as_bytes()) {
        Ok(_) => Ok(Setting { knob, value: value.to_owned() }),
        Err(bad) => Err(format!("{}: {value:?} is {bad}", declared.name)),
    }
}

/// `NAME=VALUE`.
pub fn assignment(text: &str) -> Result<Setting, String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    setting(knob(name.trim())?, value.trim())
}

/// Where the user's file is: below $XDG_CONFIG_HOME, or ~/.config.
pub fn path() -> Option<PathBuf> {
    let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let config = dir("XDG_CONFIG_HOME").or_else(|| Some(dir("HOME")?.join(".config")))?;
    Some(config.join("faultless/settings"))
}

/// The settings in the user's file; none if there is no file.
pub fn file() -> Result<Vec<Setting>> {
    let Some(path) = path() else { return Ok(Vec::new()) };
    // Also where this user may not look: HOME is another user's then, as after a change of user.
    let is_none = |error: &Error| {
        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
    };
    match path.canonicalize().and_then(|place| Ok((place, path.metadata()?))) {
        Err(error) if is_none(&error) => Ok(Vec::new()),
        // The kernel's own, which people put in place of a file that is to say nothing.
        Ok((place, _)) if place == Path::new("/dev/null") => Ok(Vec::new()),
        found => {
            match found.and_then(|(_, about)| regular(&about)).and_then(|()| std::fs::read_to_string(&path)) {
                Err(error) if is_none(&error) => Ok(Vec::new()),
                text => parse(&text.with_context(|| path.display().to_string())?, &path),
            }
        }
    }
}

/// Settings are no longer than this.
const MOST: u64 = 1 << 20;

/// A pipe without a writer would hold up the program for ever, and a device may have no end.
fn regular(metadata: &Metadata) -> std::io::Result<()> {
    let kind = metadata.file_type();
    let why = match () {
        () if kind.is_dir() => "settings are read from a file, and this is a directory: remove it",
        () if kind.is_fifo() => "settings are read from a file, and this is a pipe: remove it",
        () if !kind.is_file() => "settings are read from a file, and this is none: remove it",
        () if metadata.len() > MOST => "settings are no longer than 1 MiB",
        () => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidInput, why))
}

fn parse(text: &str, path: &Path) -> Result<Vec<Setting>> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let at = |number: usize, error| anyhow!("{}:{}: {error}", path.display(), number + 1);
    lines.map(|(number, line)| assignment(line).map_err(|error| at(number, error))).collect()
}

/// `text` with these settings: lines of the same knobs are replaced, everything else stays.
fn change(text: &str, settings: &[Setting]) -> String {
    let is_of = |line: &str, setting: &Setting| {
        line.split_once('=').is_some_and(|(name, _)| name.trim() == setting.knob.declared().name)
    };
    let kept = text.lines().filter(|line| !settings.iter().any(|setting| is_of(line, setting)));
    let new = settings.iter().map(|setting| format!("{} = {}", setting.knob.declared().name, setting.value));
    kept.map(str::to_owned).chain(new).map(|line| line + "\n").collect()
}

/// The file that is meant by a path. A link stays one, also one that leads nowhere yet: people keep such files elsewhere.
fn target(path: &Path) -> PathBuf {
    let mut place = path.to_owned();
    // The kernel follows as many.
    for _ in 0..40 {
        let Ok(to) = place.read_link() else { break };
        place = place.parent().unwrap_or(Path::new("/")).join(to);
    }
    place.canonicalize().unwrap_or(place)
}

/// Puts these settings into the user's file, which is replaced as a whole or not at all.
pub fn save(settings: &[Setting]) -> Result<PathBuf> {
    let path = path().context("neither XDG_CONFIG_HOME nor HOME says where settings are")?;
    let write = || -> Result<()> {
        let dir = path.parent().context("no directory")?;
        std::fs::create_dir_all(dir)?;
        // Of two commands at once, the second finds what the first has set.
        let _lock = own::lock(&dir.join(".settings.lock"))?;
        file()?;
        let place = target(&path);
        let about = place.metadata();
        let text = match &about {
            // It would be replaced, and others need it: /dev/null.
            Ok(metadata) if !metadata.is_file() => return Err(anyhow!("{} is no file", place.display())),
            Ok(_) => std::fs::read_to_string(&place)?,
            Err(_) => String::new(),
        };
        let mut new = tempfile::NamedTempFile::new_in(place.parent().context("no directory")?)?;
        if let Ok(about) = about {
            keep(new.as_file(), &about)?;
        }
        new.write_all(change(&text, settings).as_bytes())?;
        new.persist(&place)?;
        Ok(())
    };
    write().with_context(|| format!("cannot change {}", path.display()))?;
    Ok(path)
}

/// The variable that was probably meant, if this one names no knob but nearly does.
fn misspelt(variable: &str) -> Option<&'static str> {
    const PREFIX: &str = "FAULTLESS_";
    let name = variable.strip_prefix(PREFIX)?;
    let known = || Knob::ALL.iter().map(|knob| knob.declared().variable);
    let is_near = |known: &&str| strsim::jaro_winkler(name, known.trim_start_matches(PREFIX)) > 0.9;
    if known().any(|known| known == variable) { None } else { known().find(is_near) }
}

/// Whether the environment can be understood. The library, which cannot complain to the user, takes the nearest
/// values.
pub fn check_environment() -> Result<(), String> {
    for (variable, _) in std::env::vars_os() {
        if let Some(meant) = variable.to_str().and_then(misspelt) {
            return Err(format!("{} names no knob; did you mean {meant}?", variable.display()));
        }
    }
    Knob::ALL.iter().map(|knob| (*knob, knob.declared().variable)).try_for_each(|(knob, variable)| {
        let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else { return Ok(()) };
        let understood = knob.declared().parse(value.as_encoded_bytes());
        understood.map(|_| ()).map_err(|bad| format!("{variable}: {value:?} is {bad}"))
    })
}

/// What `knob` is set to for a program started now with `flags`, and where that comes from; the default may depend on
/// the machine and is in words then.
pub fn resolve(knob: Knob, flags: &[Setting], file: &[Setting]) -> (OsString, Origin) {
    let of = |settings: &[Setting]| settings.iter().rev().find(|s| s.knob == knob).map(|s| s.value.clone().into());
    let declared = knob.declared();
    let environment = || std::env::var_os(declared.variable).filter(|value| !value.is_empty());
    of(flags)
        .map(|value| (value, Origin::Flag))
        .or_else(|| Some((environment()?, Origin::Environment)))
        .or_else(|| Some((of(file)?, Origin::File)))
        .unwrap_or_else(|| (declared.default.into(), Origin::Default))
}

/// Whether a switch is on, as the library would read it.
pub fn is_on(knob: Knob, value: &OsStr) -> bool {
    debug_assert_eq!(knob.declared().kind, Kind::Switch);
    knob.declared().nearest(value.as_encoded_bytes()) == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<Setting>> {
        parse(text, Path::new("/a/settings"))
    }

    #[test]
    fn a_file_is_read_and_its_mistakes_have_a_place() {
        let settings = read("# comment\n\n budget=1G\nprefault_by = thread\nskip = a,b=c\n").unwrap();
        let set = |knob, value: &str| Setting { knob, value: value.into() };
        assert_eq!(settings, [set(Knob::Budget, "1G"), set(Knob::PrefaultBy, "thread"), set(Knob::Skip, "a,b=c")]);
        let table = [
            ("scrub\n", "/a/settings:1: \"scrub\" is not NAME=VALUE"),
            ("\nbugdet = 1\n", "/a/settings:2: there is no knob \"bugdet\"; did you mean budget?"),
            ("zzz = 1", "/a/settings:1: there is no knob \"zzz\""),
            ("mmap_threshold = 1M", "/a/settings:1: mmap_threshold: \"1M\" is less than 2M"),
            ("prefault_by = lax", "/a/settings:1: prefault_by: \"lax\" is not one of area thread one"),
        ];
        for (text, error) in table {
            assert_eq!(read(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn changing_a_file_keeps_what_else_is_in_it() {
        let before = "# mine\nbudget = 1G\nscrub=0\nbudget=2G";
        let new = [assignment("budget=3G").unwrap(), assignment("ahead=0").unwrap()];
        assert_eq!(change(before, &new), "# mine\nscrub=0\nbudget = 3G\nahead = 0\n");
    }

    #[test]
    fn variables_that_are_nearly_ours_are_told() {
        assert_eq!(misspelt("FAULTLESS_BUGDET"), Some("FAULTLESS_BUDGET"));
        assert_eq!(misspelt("FAULTLESS_MMAP_TRESHOLD"), Some("FAULTLESS_MMAP_THRESHOLD"));
        for fine in [
            "FAULTLESS_BUDGET",
            "FAULTLESS_LIBRARY",
            "FAULTLESS_STATS",
            "FAULTLESS_FILTERS",
            "FAULTLESS_PYTHON",
            "FAULTLESS_SEEDS",
            "BUGDET",
        ] {
            assert_eq!(misspelt(fine), None, "{fine}");
        }
    }

    #[test]
    fn a_flag_comes_before_the_file() {
        let (flag, file) = (assignment("check=1").unwrap(), assignment("check=0").unwrap());
        let flags = [assignment("check=0").unwrap(), flag];
        assert_eq!(resolve(Knob::Check, &flags, std::slice::from_ref(&file)), ("1".into(), Origin::Flag));
        assert_eq!(resolve(Knob::Check, &[], &[file]), ("0".into(), Origin::File));
        assert_eq!(resolve(Knob::Check, &[], &[]), ("0".into(), Origin::Default));
    }

    const FILE: &str = "# mine\n\n budget=1G\nprefault_by = thread\nskip = a,b=c\nscrub=0\nmmap_threshold = 4M\n";

    proptest! {
        #![proptest_config(cases())]

        /// A file that can be read is sound. A change is read as it was written, and the rest stays.
        #[test]
        fn any_file_is_read_or_refused(text in garbled(&[FILE]), value in garbled(&["a,b", "x = # y"])) {
            let text = String::from_utf8_lossy(&text);
            match read(&text) {
                Ok(settings) => {
                    prop_assert!(settings.iter().all(|s| s.knob.declared().parse(s.value.as_bytes()).is_ok()));
                    let value = String::from_utf8_lossy(&value);
                    let new = assignment(&format!("skip={value}")).unwrap_or(assignment("skip=").unwrap());
                    let mut expected: Vec<_> = settings.into_iter().filter(|s| s.knob != Knob::Skip).collect();
                    expected.push(new.clone());
                    prop_assert_eq!(read(&change(&text, &[new])).map_err(|error| error.to_string()), Ok(expected));
                }
                Err(error) => prop_assert!(error.to_string().starts_with("/a/settings:")),
            }
        }
    }
}
