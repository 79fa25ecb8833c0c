//! Printing what others may read only a part of.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::replaced::Replaced;
use crate::run::{End, print};

/// Where reports go.
pub enum Out {
    /// To the reader of this command's output. When that is gone, the command ends as by SIGPIPE.
    Stdout,
    /// Beside a program's own output; the command goes on when its reader is gone.
    Stderr,
    /// To a file.
    File(Replaced),
}

impl Out {
    /// A file, or what stands for it.
    pub fn new(path: Option<&Path>, otherwise: Self) -> Result<Self> {
        path.map_or(Ok(otherwise), |path| Replaced::open(path).map(Self::File))
    }

    /// Writes all of it at once.
    pub fn write(&mut self, text: &str) -> Result<()> {
        match self {
            Self::Stdout => match print(text) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => End::Signal(libc::SIGPIPE).copy(),
                result => result.context("cannot write to standard output"),
            },
            Self::Stderr => {
                let _ = io::stderr().write_all(text.as_bytes());
                Ok(())
            }
            Self::File(file) => {
                let written = file.write(text.as_bytes());
                written.with_context(|| format!("cannot write {}", file.path().display()))
            }
        }
    }

    /// Columns of the terminal that it goes to; $COLUMNS counts before it, and 80 where there is none.
    pub fn columns(&self) -> usize {
        let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = match self {
            Self::Stdout => terminal_size::terminal_size_of(io::stdout()),
            Self::Stderr => terminal_size::terminal_size_of(io::stderr()),
            Self::File(_) => None,
        };
        let columns = told.or_else(|| terminal.map(|(width, _)| width.0 as usize));
        columns.filter(|columns| *columns > 0).unwrap_or(80)
    }
}
