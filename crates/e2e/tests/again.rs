//! Programs that `faultless run` has seen before: a later run gets what the first one got. Counted in faults and bytes.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use faultless_e2e::{command, need, scratch};
use faultless_page::stats::Counter;
use serde_json::Value;
use tempfile::TempDir;

/// What the faults of two runs may differ by: addresses, and what files are in memory.
const SHARE: u64 = 10;
const FEW: u64 = 500;

/// A program, and where the notes on it lie.
struct Program {
    dir: TempDir,
    words: Vec<String>,
}

/// What is counted of a run.
#[derive(Clone, Copy, Debug)]
struct Counted {
    faults: u64,
    handed: u64,
}

impl Program {
    fn new(program: PathBuf, args: &[&str]) -> Self {
        let program = program.to_str().expect("a readable path");
        Self { dir: scratch(), words: [program].iter().chain(args).map(|word| (*word).into()).collect() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, ahead: &str) -> Counted {
        let json = self.file("run.json");
        let mut command = command(["run", "--quiet", "--json"]);
        command.arg(&json).arg("--").args(&self.words).current_dir(self.dir.path()).env("LC_ALL", "C");
        command.env_remove("FAULTLESS_PROFILE").env("XDG_CACHE_HOME", self.file(ahead));
        let out = command.env("FAULTLESS_AHEAD", ahead).output().expect("it runs");
        assert!(out.status.success(), "{:?}: {out:?}", self.words);
        let said: Value = serde_json::from_slice(&std::fs::read(json).expect("JSON")).expect("JSON");
        let number = |value: &Value| value.as_u64().expect("a number");
        let counted = |counter: Counter| number(&said["totals"][counter.declared().name]);
        Counted {
            faults: number(&said["minor_faults"]),
            handed: counted(Counter::MmapBytes) + counted(Counter::MallocBytes),
        }
    }

    /// Runs it three times. Where nothing is brought ahead, memory that is cold by chance changes no count of faults.
    fn again(&self) -> Counted {
        let [first, later @ ..] = [(); 3].map(|()| self.run("0"));
        for run in later {
            assert!(
                run.faults <= first.faults + first.faults / SHARE + FEW,
                "{:?}: {first:?}, {run:?}",
                self.words
            );
            same(first, run);
        }
        for _ in 0..2 {
            same(first, self.run("1"));
        }
        first
    }

    fn notes(&self) -> usize {
        let notes = std::fs::read_dir(self.file("0/faultless/profiles"));
        notes.map_or(0, Iterator::count)
    }
}

fn same(first: Counted, run: Counted) {
    assert!(run.handed.abs_diff(first.handed) * SHARE <= first.handed, "{first:?}, {run:?}");
}

fn is_served(program: &Program) {
    assert!(program.again().handed > 16 << 20);
    assert_eq!(program.notes(), 1, "a note on it, and on nothing else");
}

/// A C file of so many functions.
fn source(functions: usize) -> String {
    let mut text = String::new();
    for i in 0..functions {
        write!(
            text,
            "static const char t{i}[] = \"entry {i}\";\n\
             long f{i}(long n) {{\n  long r = n * {i};\n\
             for (int k = 0; k < 10; k++) {{ r ^= t{i}[k % 5] << (k % 7); if (r % 3 == k) r += {i}; }}\n\
             switch (r % 5) {{ case 0: r += 11; break; case 1: r *= 3; break; case 2: r -= {i}; default: r ^= 5; }}\n\
             return r;\n}}\n"
        )
        .expect("a string takes everything");
    }
    text
}

/// The compiler proper is a child of the program. The words do not name the object file: it is new after each run.
#[test]
fn a_compiler_gets_what_it_got_the_first_time() {
    let (Some(gcc), Some(ld)) = (need("gcc"), need("ld")) else { return };
    let gcc = Program::new(gcc, &["-O0", "-c", "big.c"]);
    std::fs::write(gcc.file("big.c"), source(2000)).expect("a file of our own");
    is_served(&gcc);
    let ld = Program::new(ld, &["-r", "big.o"]);
    let copy = |to: &Path| std::fs::copy(gcc.file("big.o"), to).expect("an object file");
    copy(&ld.file("big.o"));
    ld.again();
}

/// Each compile of a build names other files.
#[test]
fn a_compile_of_other_files_finds_the_notes_of_the_last() {
    let Some(gcc) = need("gcc") else { return };
    let mut gcc = Program::new(gcc, &[]);
    let words = gcc.words.clone();
    for (run, name) in ["one", "two", "three"].into_iter().enumerate() {
        std::fs::write(gcc.file(&format!("{name}.c")), source(2000 + run)).expect("a file of our own");
        let (source, object) = (format!("{name}.c"), format!("{name}-{run}.o"));
        gcc.words =
            words.iter().cloned().chain(["-O0".into(), "-c".into(), source, "-o".into(), object]).collect();
        assert!(gcc.run("0").handed > 16 << 20);
        assert_eq!(gcc.notes(), 1, "{name}");
    }
    std::fs::write(gcc.file("three.c"), source(1)).expect("a file of our own");
    gcc.run("0");
    assert_eq!(gcc.notes(), 2, "much less to compile");
}

#[test]
fn python_gets_what_it_got_the_first_time() {
    let Some(python) = need("python3") else { return };
    let words = "kept = [bytearray(3 << 20) for i in range(20)]\n\
                 for i in range(50): one = bytearray(b'x') * (5 << 20)";
    is_served(&Program::new(python, &["-c", words]));
}
