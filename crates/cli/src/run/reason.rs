//! Why a program was not covered, as far as it is known: each state has its own words, and what is not known is said as that.

use std::io;
use std::path::Path;

use faultless_base::sys::raw::status_number;
use faultless_page::layout::Page;

use super::evidence::{End, Evidence, Look};
use super::launch;
use super::options::{self, Args};
use super::program::{self, Program};
use super::sys;
use faultless_measure::pages::{Counters, Dir};

/// What is known of a program that has no page with anything served.
pub struct Known<'a> {
    /// How it was started.
    pub args: &'a Args,
    /// Its page, if it left one.
    pub page: Option<&'a Counters>,
    /// What was seen of it.
    pub evidence: &'a Evidence,
    /// Where its page would be.
    pub dir: Result<&'a Dir, &'a io::Error>,
}

/// Why it was not covered, or that it is not known whether it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was not.
    Plain(String),
    /// It was, and its counters are lost.
    Lost(String),
    /// The reason is not known.
    Unknown(String),
}

impl Reason {
    /// Whether the program was covered; `None`: that is not known.
    pub fn is_covered(&self) -> Option<bool> {
        match self {
            Self::Plain(_) => Some(false),
            Self::Lost(_) => Some(true),
            Self::Unknown(_) => None,
        }
    }

    /// In words, of one who is called `what`: "Nothing", or "Of the program itself, nothing".
    pub fn text(&self, what: &str) -> String {
        match self {
            Self::Plain(why) => format!("{what} was covered: {why}."),
            Self::Lost(why) => format!("The program was covered, but what was done is not known: {why}."),
            Self::Unknown(why) => format!("Whether the program was covered is not known: {why}."),
        }
    }
}

/// An end of which nothing was seen.
static UNSEEN: End = End { name: String::new(), user: None, filters: 0, file_size: None };

/// The name that the kernel gives a program that was started by this word.
fn kernel_name(word: &Path) -> String {
    let name = word.file_name().unwrap_or_default().to_string_lossy().into_owned();
    String::from_utf8_lossy(&name.as_bytes()[..name.len().min(15)]).into_owned()
}

impl Known<'_> {
    /// The reason.
    pub fn reason(&self) -> Reason {
        let run = program::inspect(&self.args.program[0], std::env::var_os("PATH").as_deref());
        // In the order of how sure they are.
        self.told()
            .or_else(|| self.seen())
            .or_else(|| self.kind(run.as_ref()))
            .or_else(|| self.not_seen(run.as_ref()))
            .unwrap_or_else(|| {
                Reason::Plain(
                    "it made no large request that can be served (private memory: malloc from 256K, mmap from 2M, \
                     unless set otherwise)"
                        .into(),
                )
            })
    }

    /// What the settings or the library itself say.
    fn told(&self) -> Option<Reason> {
        if let Some(why) = self.args.ruled_out() {
            return Some(Reason::Plain(why));
        }
        if launch::had_no_room() {
            let why = "its arguments and environment leave no room for the variables of the library (ARG_MAX)";
            return Some(match options::is_below_another() {
                true => Reason::Lost(format!("{why}; it counts for the `faultless run` around this one")),
                false => Reason::Plain(why.into()),
            });
        }
        // The library could not know why its engine got no memory there.
        if self.evidence.running.as_ref().is_some_and(|look| look.in_valgrind) {
            return Some(Reason::Plain("valgrind runs it, and answers its malloc".into()));
        }
        let Some(page) = self.page else {
            let last = self.evidence.ended.as_ref().map(|end| end.name.as_str())?;
            return self.args.skips(last).then(|| Reason::Plain(format!("{last} is to be skipped")));
        };
        match page.plain() {
            Some(why) => Some(Reason::Plain(why.into())),
            // It says nothing: a look may.
            None if page.left().is_empty() => None,
            None => Some(Reason::Plain("all its requests were left to the kernel".into())),
        }
    }

    /// What was seen while it ran and at its end.
    fn seen(&self) -> Option<Reason> {
        let Evidence { running, ended } = self.evidence;
        let lost = self.dir.ok().filter(|dir| dir.has_lost());
        if let Some(Look { file, loaded, with_preload, other_root, namespaces, has_segment, .. }) = running {
            let of_kind = file.as_deref().and_then(|path| Self::of_kind(path, false));
            let file = file.as_deref().unwrap_or(Path::new("a program")).display();
            // Programs have such segments of their own, too.
            if *has_segment && lost.is_some() {
                return Some(Reason::Lost("it could not leave its counters where this command reads them".into()));
            }
            if *loaded == Some(false) {
                return Some(Reason::Plain(match () {
                    () if *with_preload == Some(false) => {
                        format!("{file} was started without LD_PRELOAD (no_children, env -i, or who drops it)")
                    }
                    () if *other_root => {
                        format!("the library is not in the root directory that {file} has (chroot)")
                    }
                    () if namespaces.contains(&"mount") => {
                        format!(
                            "the library could not be loaded into {file}, which has other files (a mount namespace)"
                        )
                    }
                    () => match of_kind {
                        Some(program) => program.to_string(),
                        None => format!("the library could not be loaded into {file}"),
                    },
                }));
            }
            if *loaded == Some(true) && (*other_root || namespaces.contains(&"mount")) && lost.is_none() {
                return Some(Reason::Unknown(
                    "it has other files than this command (chroot, or a container)".into(),
                ));
            }
        }
        let End { user, filters, file_size, .. } = ended.as_ref().unwrap_or(&UNSEEN);
        if *filters > status_number("Seccomp_filters").unwrap_or(0) as u64 {
            return Some(Reason::Plain(
                "its system calls are filtered (seccomp), and it runs plain where they are".into(),
            ));
        }
        // Whose counters are lost: its own, or those of a program that it started.
        let room = lost?.room();
        Some(Reason::Unknown(match user.filter(|user| *user != sys::ids().0) {
            Some(user) => format!("it ran as another user ({user}), who may not leave counters here"),
            None if file_size.is_some_and(|most| most < size_of::<Page>() as u64) => {
                "it may not make a file for its counters (ulimit -f)".into()
            }
            None if room.is_err() => format!("there is no room for its counters: {}", room.unwrap_err()),
            None => "a process was covered that could not leave its counters here, and it may have been this one"
                .into(),
        }))
    }

    /// A file, if what it is explains that nothing was served. `loaded`: the library was seen in it.
    fn of_kind(path: &Path, loaded: bool) -> Option<Program> {
        let program = Program { path: path.into(), is_script: false, kind: program::kind(path) };
        program.kind.explains(loaded).then_some(program)
    }

    /// What its file says.
    fn kind(&self, run: Option<&Program>) -> Option<Reason> {
        let look = self.evidence.running.as_ref();
        let loaded = look.is_some_and(|look| look.loaded == Some(true));
        let became = look.and_then(|look| Self::of_kind(look.file.as_deref()?, loaded));
        let found = became.or_else(|| run.filter(|program| program.kind.explains(loaded)).cloned())?;
        Some(Reason::Plain(found.to_string()))
    }

    /// What keeps one from knowing.
    fn not_seen(&self, run: Option<&Program>) -> Option<Reason> {
        if let Err(error) = self.dir {
            return Some(Reason::Unknown(format!("there is no place for counters: {error}")));
        }
        let look = self.evidence.running.as_ref();
        let Some(End { name: last, .. }) = &self.evidence.ended else {
            return Some(Reason::Unknown("/proc does not show it".into()));
        };
        let started = run.map(|program| kernel_name(&program.path));
        let named = kernel_name(Path::new(&self.args.program[0]));
        let is_same = *last == named || started.is_some_and(|name| name == *last);
        let was_seen = look.is_some_and(|look| {
            look.loaded == Some(true) && look.file.as_deref().is_some_and(|file| kernel_name(file) == *last)
        });
        // A name that it was given (`exec -a`) is not to be seen.
        let or = if self.args.has_skips() { ", or is to be skipped" } else { "" };
        (!is_same && !was_seen).then(|| {
            Reason::Unknown(format!(
                "it was {last} in the end, of which nothing was seen; if the library was loaded there, it made no large request{or}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(evidence: &Evidence, page: Option<&Counters>) -> Reason {
        let args = Args { program: vec!["true".into()], ..Args::default() };
        let dir = Dir::create().unwrap();
        Known { args: &args, page, evidence, dir: Ok(&dir) }.reason()
    }

    fn look() -> Look {
        let file = Some("/bin/true".into());
        let namespaces = Vec::new();
        Look {
            file,
            loaded: Some(true),
            with_preload: Some(true),
            in_valgrind: false,
            other_root: false,
            namespaces,
            has_segment: false,
        }
    }

    /// The low byte of this machine's number in a header.
    const MACHINE: u8 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

    fn end(name: &str) -> End {
        let filters = status_number("Seccomp_filters").unwrap_or(0) as u64;
        End { name: name.into(), user: Some(sys::ids().0), filters, file_size: None }
    }

    #[test]
    fn each_state_has_its_own_words() {
        let of = |look: Look, end: End| reason(&Evidence { running: Some(look), ended: Some(end) }, None);
        let plain = |look: Look| match of(look, end("true")) {
            Reason::Plain(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(plain(look()).starts_with("it made no large request"));
        assert!(
            plain(Look { loaded: Some(false), ..look() })
                .starts_with("the library could not be loaded into /bin/true")
        );
        assert!(plain(Look { loaded: Some(false), other_root: true, ..look() }).contains("chroot"));
        assert!(
            plain(Look { loaded: Some(false), namespaces: vec!["mount"], ..look() }).contains("mount namespace")
        );
        assert!(plain(Look { in_valgrind: true, loaded: None, ..look() }).contains("valgrind"));
        let dropped = Look { loaded: Some(false), with_preload: Some(false), ..look() };
        assert!(plain(dropped).contains("without LD_PRELOAD"));
        // A segment of the program's own is no page of the library's.
        assert!(plain(Look { has_segment: true, ..look() }).starts_with("it made no large request"));
        assert!(matches!(of(Look { other_root: true, ..look() }, end("true")), Reason::Unknown(_)));
        let filtered = End { filters: u64::MAX, ..end("true") };
        assert!(matches!(of(look(), filtered), Reason::Plain(why) if why.contains("seccomp")));
    }

    /// What was seen counts for more than what the file is.
    #[test]
    fn the_kind_of_a_file_is_no_reason_where_the_library_was_seen() {
        let of = |look: Look| reason(&Evidence { running: Some(look), ended: Some(end("static")) }, None);
        let path = std::env::temp_dir().join(format!("faultless-reason-{}", std::process::id())).join("static");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Without an interpreter.
        let mut header = [0u8; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (header[16], header[18], header[20], header[52], header[54], header[58]) = (2, MACHINE, 1, 64, 56, 64);
        std::fs::write(&path, header).unwrap();
        let file = Some(path.clone());
        let plain = |look: Look| match of(look) {
            Reason::Plain(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(plain(Look { file: file.clone(), ..look() }).starts_with("it made no large request"));
        let unloaded = Look { file, loaded: Some(false), ..look() };
        assert!(plain(unloaded).contains("statically linked"));
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    /// What was not seen is not said to have made no large request.
    #[test]
    fn what_was_not_seen_is_not_known() {
        let of = |running: Option<Look>, end: End| reason(&Evidence { running, ended: Some(end) }, None);
        assert!(matches!(of(None, end("true")), Reason::Plain(_)));
        assert!(matches!(reason(&Evidence::default(), None), Reason::Unknown(_)));
        assert!(matches!(of(None, end("other")), Reason::Unknown(why) if why.contains("it was other in the end")));
        assert!(matches!(of(Some(look()), end("other")), Reason::Unknown(_)));
        let other = Look { file: Some("/bin/other".into()), ..look() };
        assert!(matches!(of(Some(other), end("other")), Reason::Plain(_)));
        let reason = Reason::Unknown("who knows".into());
        assert_eq!(
            (reason.is_covered(), reason.text("Nothing")),
            (None, "Whether the program was covered is not known: who knows.".into())
        );
    }

    /// What the library found itself comes before what was seen.
    #[test]
    fn a_page_tells_more_than_a_look() {
        let page = |left: u64| {
            let mut values = [0; faultless_page::stats::COUNT];
            values[faultless_page::stats::Counter::KernelFlags as usize] = left;
            Counters::from_values(7, values.into_iter())
        };
        let evidence = Evidence { running: Some(look()), ended: Some(end("true")) };
        assert_eq!(
            reason(&evidence, Some(&page(3))),
            Reason::Plain("all its requests were left to the kernel".into())
        );
        // One that says nothing does not.
        let in_valgrind = Look { in_valgrind: true, loaded: None, ..look() };
        let evidence = Evidence { running: Some(in_valgrind), ended: Some(end("true")) };
        assert!(matches!(reason(&evidence, Some(&page(0))), Reason::Plain(why) if why.contains("valgrind")));
    }
}
