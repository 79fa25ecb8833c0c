//! Running what may fail in the middle of thousands of lines: what tells of failures is kept, to be said again at the end.

use std::fmt;
use std::io::{self, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::shell::show;

/// A command that failed.
#[derive(Debug)]
pub struct Failed {
    what: String,
    /// What it said of failures.
    pub said: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failed {}

/// How long what a command left behind may keep its output open.
const PATIENCE: Duration = Duration::from_secs(5);

type Output = Box<dyn Write + Send>;

/// Shows a command, runs it, lets through what it writes, and fails with a [`Failed`] if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let words = show(command);
    if io::stderr().is_terminal() {
        // It does not see the terminal any more.
        command.env("CARGO_TERM_COLOR", "always").env("PY_COLORS", "1");
    }
    run_into(command, words, Box::new(io::stdout()), Box::new(io::stderr()))
}

fn run_into(command: &mut Command, words: String, stdout: Output, stderr: Output) -> Result<()> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| words.clone())?;
    let tee = |from: Option<Box<dyn Read + Send>>, to: Output| {
        let (ended, end) = channel();
        thread::spawn(move || {
            let mut tee = Tee { to, line: Vec::new(), failures: Failures::default() };
            let _ = io::copy(&mut from.expect("a pipe"), &mut tee);
            let _ = ended.send(tee.failures.text);
        });
        end
    };
    let stdout = tee(child.stdout.take().map(|pipe| Box::new(pipe) as _), stdout);
    let stderr = tee(child.stderr.take().map(|pipe| Box::new(pipe) as _), stderr);
    let status = child.wait().with_context(|| words.clone())?;
    let said = [stdout, stderr].iter().filter_map(|end| end.recv_timeout(PATIENCE).ok()).collect();
    if status.success() { Ok(()) } else { Err(Failed { what: format!("{words}: {status}"), said }.into()) }
}

/// Passes everything on as it comes, and looks at each line.
struct Tee<W> {
    to: W,
    line: Vec<u8>,
    failures: Failures,
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write_all(bytes)?;
        self.to.flush()?;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(part);
            if part.ends_with(b"\n") {
                self.failures.look_at(&String::from_utf8_lossy(&self.line));
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The lines that tell of failures.
#[derive(Default)]
struct Failures {
    text: String,
    inside: bool,
}

impl Failures {
    fn look_at(&mut self, line: &str) {
        let plain = without_colour(line);
        let ends = plain.starts_with("test result:") || is_progress(&plain);
        self.inside = !ends && (self.inside || begins(&plain));
        // A test that hangs is never heard of again.
        if self.inside || plain.contains("has been running for over") {
            self.text += line;
        }
    }
}

/// Tests' own section of failures, pytest's, a Python that hangs, what is not formatted, and whatever cargo and compilers call an error.
fn begins(line: &str) -> bool {
    line.trim_end() == "failures:"
        || ["error", "Diff in "].iter().any(|head| line.starts_with(head))
        || line.contains("Timeout (0:")
        || line.starts_with("===") && [" FAILURES ", " ERRORS "].iter().any(|head| line.contains(head))
}

/// Cargo goes on: a verb that ends in column 12.
fn is_progress(line: &str) -> bool {
    let verb =
        line.split_at_checked(12).filter(|(_, rest)| rest.starts_with(' ')).map(|(verb, _)| verb.trim_start());
    verb.is_some_and(|verb| {
        verb.starts_with(char::is_uppercase) && verb.chars().all(|c| c.is_alphabetic() || c == '-')
    })
}

fn without_colour(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    parts.fold(first.to_owned(), |plain, part| plain + part.split_once('m').map_or(part, |(_, text)| text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test good ... ok
test slow has been running for over 60 seconds
test bad ... FAILED

failures:

---- bad stdout ----
thread 'bad' panicked at x.rs:1:1:
no

failures:
    bad

test result: FAILED. 2 passed; 1 failed
running 1 test
test other ... ok
";

    const PROGRESS: &str = "   Compiling faultless v0.1.0
\x1b[1m\x1b[32m     Running\x1b[0m tests/x.rs (target/debug/x)
\x1b[1m\x1b[91merror\x1b[0m: test failed, to rerun pass `-p x --test x`

Caused by:
  killed
   Doc-tests faultless
error: 1 target failed:
    `-p x --test x`
";

    fn kept(output: &str) -> (String, Vec<u8>) {
        let mut tee = Tee { to: Vec::new(), line: Vec::new(), failures: Failures::default() };
        // In pieces, as pipes give them.
        output.as_bytes().chunks(7).for_each(|piece| tee.write_all(piece).unwrap());
        (without_colour(&tee.failures.text), tee.to)
    }

    #[test]
    fn failures_are_kept_and_everything_is_passed_on() {
        let (said, passed) = kept(OUTPUT);
        assert_eq!(passed, OUTPUT.as_bytes());
        let section = OUTPUT.split_once("\nfailures:").unwrap().1.split_once("test result").unwrap().0;
        assert_eq!(said, format!("test slow has been running for over 60 seconds\nfailures:{section}"));
        let (said, passed) = kept(PROGRESS);
        assert_eq!(passed, PROGRESS.as_bytes());
        let expected = "error: test failed, to rerun pass `-p x --test x`\n\nCaused by:\n  killed\n\
                        error: 1 target failed:\n    `-p x --test x`\n";
        assert_eq!(said, expected);
    }

    #[test]
    fn only_a_command_that_fails_says_so() {
        let script = |status: u32| format!("echo error: one; echo two; echo failures: >&2; exit {status}");
        let end = |status| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script(status)]);
            run_into(&mut shell, "a script".into(), Box::new(io::sink()), Box::new(io::sink()))
        };
        assert!(end(0).is_ok());
        let error = end(3).unwrap_err();
        let failed = error.downcast_ref::<Failed>().expect("its own error");
        assert_eq!(failed.to_string(), "a script: exit status: 3");
        assert_eq!(failed.said, "error: one\ntwo\nfailures:\n");
    }
}
