//! The runs of a comparison: what each reads, what is done before it, and what comes of it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::output::{Captured, unnamed};
use crate::run::child::{End, Outcome, Running};
use crate::run::files::{Bringing, Files};
use crate::run::options::Args;
use crate::run::sys::{self, Inherited};
use crate::run::{NotStarted, Own, complain};
use faultless_measure::pages::Dir;

/// What every run reads on its standard input: the same, from the start.
struct Input {
    file: File,
    start: u64,
}

impl Input {
    /// This command's own: a file, or what came through a pipe, kept once. Of anything else, as a terminal, nothing.
    fn new() -> Result<Self> {
        let own = File::from(io::stdin().as_fd().try_clone_to_owned().context("standard input")?);
        let kind = own.metadata().context("standard input")?.file_type();
        if kind.is_file() {
            let start = (&own).stream_position().context("standard input")?;
            return Ok(Self { file: own, start });
        }
        if kind.is_fifo() || kind.is_socket() {
            if !sys::is_readable_within(&own, sys::A_SECOND) {
                complain("waiting for all of standard input, to give it to each run (</dev/null: nothing)");
            }
            let mut file = unnamed().context("no place for standard input (TMPDIR, /tmp, /dev/shm)")?;
            sys::with_long_files(|| io::copy(&mut &own, &mut file))
                .context("cannot keep standard input (ulimit -f?)")?;
            return Ok(Self { file, start: 0 });
        }
        Ok(Self { file: File::open("/dev/null").context("/dev/null")?, start: 0 })
    }

    fn rewind(&self) -> io::Result<()> {
        (&self.file).seek(SeekFrom::Start(self.start)).map(drop)
    }
}

/// Runs the program one way or the other.
pub struct Runner<'a> {
    args: &'a Args,
    library: std::path::PathBuf,
    inherited: Inherited,
    input: Input,
    null: File,
    files: Option<Files>,
    /// Where the pages of covered runs are; those of warming up go elsewhere.
    pub dir: io::Result<Dir>,
}

/// A run that was made.
pub enum Run {
    /// To its end.
    Done(Box<(i32, Outcome, Captured)>),
    /// This command was asked by a signal to end.
    Interrupted(i32),
}

/// One way of running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As without faultless.
    Plain,
    /// With it.
    Faultless,
}

impl Way {
    /// The first and the second of a pair: by turns, so that what the first leaves behind helps both alike.
    pub fn of_pair(pair: u32) -> [Self; 2] {
        if pair % 2 == 0 { [Self::Plain, Self::Faultless] } else { [Self::Faultless, Self::Plain] }
    }
}

impl<'a> Runner<'a> {
    /// Ready for the first run.
    pub fn new(args: &'a Args) -> Result<Self> {
        Ok(Self {
            args,
            library: crate::run::options::library()?,
            inherited: Inherited::read(),
            input: Input::new()?,
            null: File::options().read(true).write(true).open("/dev/null").context("/dev/null")?,
            files: Files::find(&args.files),
            dir: Dir::create(),
        })
    }

    /// Runs the program once, after what is to be done before.
    pub fn run(&self, way: Way) -> Result<Run> {
        if let Some(signal) = self.prepare()? {
            return Ok(Run::Interrupted(signal));
        }
        let command = match way {
            Way::Plain => self.args.command(),
            Way::Faultless => self.args.covered(&self.library, self.dir.as_ref().ok().map(Dir::path)),
        };
        // The page of the last run under faultless is looked at in the end: others make room when the next one begins.
        let fold = || self.dir.iter().filter(|_| way == Way::Faultless).for_each(Dir::fold);
        fold();
        self.input.rewind().context("cannot read standard input again")?;
        let captured = Captured::new()?;
        let [out, err] = captured.files();
        let files = [Some(self.input.file.as_raw_fd()), Some(out), Some(err)];
        let running = Running::start(&command, files, self.inherited, Own::Keep)
            .map_err(|error| NotStarted::new(self.args, &error))?;
        let pid = running.pid();
        let bringing = self.files.clone().filter(|_| way == Way::Faultless).map(Files::start);
        let outcome = running.wait(fold).context("lost sight of the program")?;
        bringing.map(Bringing::end);
        captured.had_room().context("no room for all of the program's output (TMPDIR, /tmp, /dev/shm)")?;
        Ok(match outcome.interrupted {
            Some(signal) => Run::Interrupted(signal),
            None => Run::Done(Box::new((pid, outcome, captured))),
        })
    }

    /// The command that is to run before: a signal, if one came meanwhile.
    fn prepare(&self) -> Result<Option<i32>> {
        let Some(text) = &self.args.prepare else { return Ok(None) };
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(text);
        let null = Some(self.null.as_raw_fd());
        let running =
            Running::start(&shell, [null, null, None], self.inherited, Own::Keep).context("cannot run /bin/sh")?;
        let outcome = running.wait(|| ()).context("lost sight of the command of --prepare")?;
        match outcome.end {
            _ if outcome.interrupted.is_some() => Ok(outcome.interrupted),
            End::Status(0) => Ok(None),
            end => bail!("the command of --prepare ended by {end}"),
        }
    }
}
