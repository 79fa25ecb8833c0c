//! What the doctor finds: one thing, what it means, and what would change it.

use serde::Serialize;

/// How far something lets faultless do its work, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// Something is not available, or slower.
    Limited,
    /// Programs run plain.
    Cannot,
}

impl Level {
    /// A word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Limited => "limited",
            Self::Cannot => "cannot",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name in JSON.
    pub id: &'static str,
    /// How it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What that means for the user.
    pub means: String,
    /// The command that would make it better.
    pub change: Option<String>,
}

/// A text without what would disturb a terminal: what others named may hold anything.
fn shown(text: String) -> String {
    faultless_measure::pages::shown(&text)
}

/// A word of a command: in quotes, if the shell would not read it as it stands.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

impl Finding {
    /// Without a command.
    pub fn new(id: &'static str, level: Level, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self { id, level, found: shown(found.into()), means: shown(means.into()), change: None }
    }

    /// With the command that would make it better. A good finding has none.
    pub fn change(mut self, command: impl Into<String>) -> Self {
        self.change = (self.level != Level::Good).then(|| shown(command.into()));
        self
    }

    /// Without one: there is no need.
    pub fn unchanged(self) -> Self {
        Self { change: None, ..self }
    }
}

/// The verdict on all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything is as it should be.
    Good,
    /// Something is limited.
    Limited,
    /// Programs, or the named one, run plain.
    Cannot,
}

impl Verdict {
    /// Of these findings.
    pub fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        match findings.into_iter().map(|finding| finding.level).max() {
            None | Some(Level::Good | Level::Note) => Self::Good,
            Some(Level::Limited) => Self::Limited,
            Some(Level::Cannot) => Self::Cannot,
        }
    }

    /// The exit status that says so.
    pub const fn status(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_named_disturbs_neither_terminal_nor_shell() {
        let finding = Finding::new("program", Level::Note, "a\x1b[31mb", "c\n").change("d\r");
        assert_eq!((finding.found.as_str(), finding.means.as_str()), ("a?[31mb", "c?"));
        assert_eq!(finding.change.as_deref(), Some("d?"));
        let words = [("/a/b-1.c", "/a/b-1.c"), ("", "''"), ("a b", "'a b'"), ("$(x);y", "'$(x);y'")];
        assert!(words.iter().all(|(text, shown)| word(text) == *shown));
        assert_eq!(word("it's"), r"'it'\''s'");
    }

    #[test]
    fn what_is_good_is_left_as_it_is() {
        let change = |level| Finding::new("kernel", level, "", "").change("x").change;
        assert_eq!(change(Level::Good), None);
        assert!([Level::Note, Level::Limited, Level::Cannot].into_iter().all(|level| change(level).is_some()));
    }

    #[test]
    fn the_worst_finding_decides() {
        let findings = |levels: &[Level]| -> Vec<_> {
            levels.iter().map(|level| Finding::new("kernel", *level, "", "")).collect()
        };
        let verdict = |levels| Verdict::of(&findings(levels));
        assert_eq!(verdict(&[]), Verdict::Good);
        assert_eq!(verdict(&[Level::Good, Level::Note]), Verdict::Good);
        assert_eq!(verdict(&[Level::Limited, Level::Note]), Verdict::Limited);
        assert_eq!(verdict(&[Level::Cannot, Level::Limited]), Verdict::Cannot);
        assert_eq!([Verdict::Good, Verdict::Limited, Verdict::Cannot].map(Verdict::status), [0, 1, 2]);
    }
}
