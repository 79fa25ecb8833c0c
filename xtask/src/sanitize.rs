//! The unsafe code of `faultless-base` and the C API under AddressSanitizer and ThreadSanitizer, and an example under
//! valgrind.
//!
//! `-Zsanitizer` is a feature of nightly compilers. `RUSTC_BOOTSTRAP=1` lets the stable one have it. That is fine for a
//! check: nothing that is built so is shipped. The standard library is built along (`-Zbuild-std`): a checker of races
//! sees no order by locks that it was not built into. C programs are linked with the run-time of Rust's sanitizers,
//! because that of the C compiler is older, and lacks functions.
//!
//! Before anything counts, each sanitizer has to notice a mistake, in Rust and in C.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::check;
use crate::shell::{self, cargo, command, is_installed, output, root, show, target};

struct Sanitizer {
    name: &'static str,
    /// The name of its run-time.
    runtime: &'static str,
    /// How its reports begin.
    report: &'static str,
    /// A C program with a mistake that it has to notice.
    mistake: &'static str,
    /// What its run-time must not do, as a variable of the environment.
    options: (&'static str, &'static str),
    /// What it cannot run of the C programs, as a macro.
    without: Option<&'static str>,
}

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer {
        name: "address",
        runtime: "asan",
        report: "AddressSanitizer",
        mistake: "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(9); free((void *)p); return p[1]; }\n",
        // Places on its own stack tell the library threads apart, and which thread faults one after the other.
        options: ("ASAN_OPTIONS", "detect_stack_use_after_return=0"),
        without: None,
    },
    Sanitizer {
        name: "thread",
        runtime: "tsan",
        report: "ThreadSanitizer",
        mistake: "#include <pthread.h>\nint n;\nstatic void *add(void *x) { n++; return x; }\nint main(void) {\n\
                  pthread_t t; pthread_create(&t, 0, add, 0); n++; return pthread_join(t, 0); }\n",
        options: ("TSAN_OPTIONS", "halt_on_error=1"),
        // A region with events has a process that shares its memory. The run-time takes it for a fork, and gives up.
        without: Some("-DWITHOUT_EVENTS"),
    },
];

/// Runs all of it, to the end even if something fails.
pub fn run() -> Result<()> {
    let tools = Tools::find()?;
    let mut steps: Vec<(String, Result<()>)> = Vec::new();
    for sanitizer in &SANITIZERS {
        steps.push((format!("{}, base", sanitizer.name), tools.base(sanitizer)));
        steps.push((format!("{}, C", sanitizer.name), tools.c_programs(sanitizer)));
    }
    steps.push(("valgrind".into(), valgrind()));
    check::conclude(&steps)
}

/// What the compiler has.
struct Tools {
    host: String,
    libraries: PathBuf,
}

impl Tools {
    fn find() -> Result<Self> {
        let rustc = |args: &[&str]| output(command(env::var_os("RUSTC").unwrap_or("rustc".into())).args(args));
        let about = rustc(&["-vV"])?;
        let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV has no host")?;
        let root = PathBuf::from(rustc(&["--print", "sysroot"])?.trim()).join("lib/rustlib");
        if !root.join("src/rust/library/std").exists() {
            shell::run(command("rustup").args(["component", "add", "rust-src"]))
                .context("the sources of the standard library are needed: rustup component add rust-src")?;
        }
        Ok(Self { host: host.to_owned(), libraries: root.join(host).join("lib") })
    }

    fn dir(&self, sanitizer: &Sanitizer) -> PathBuf {
        target().join("sanitize").join(sanitizer.name)
    }

    /// cargo with the sanitizer in all that is built.
    fn cargo(&self, task: &str, sanitizer: &Sanitizer, args: &str) -> Command {
        let mut cargo = cargo(&format!("{task} -Zbuild-std --target {}", self.host));
        cargo.arg("--target-dir").arg(self.dir(sanitizer)).args(args.split_whitespace());
        let (variable, options) = sanitizer.options;
        cargo
            .env(variable, options)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", format!("-Zsanitizer={}", sanitizer.name));
        // The standard library is built once for all then.
        cargo.env("CARGO_PROFILE_DEV_PANIC", "unwind");
        cargo
    }

    fn base(&self, sanitizer: &Sanitizer) -> Result<()> {
        let test = |args: &str| self.cargo("test", sanitizer, &format!("-p faultless-base {args}"));
        notices(sanitizer, &mut test(&format!("--test mistakes -- --ignored --exact {}", sanitizer.name)))?;
        shell::run(&mut test("--lib --tests"))
    }

    fn c_programs(&self, sanitizer: &Sanitizer) -> Result<()> {
        shell::run(&mut self.cargo("build", sanitizer, "-p faultless-capi"))?;
        let dir = self.dir(sanitizer).join("c");
        fs::create_dir_all(&dir)?;
        let mistake = dir.join("mistake.c");
        fs::write(&mistake, sanitizer.mistake)?;
        notices(sanitizer, &mut command(self.compile(sanitizer, &mistake)?))?;
        for source in sources(&dir)? {
            let program = self.compile(sanitizer, &source)?;
            let (variable, options) = sanitizer.options;
            shell::run(command(program).env(variable, options)).with_context(|| source.display().to_string())?;
        }
        Ok(())
    }

    /// The program of a source, linked with the library.
    fn compile(&self, sanitizer: &Sanitizer, source: &Path) -> Result<PathBuf> {
        let program = self.dir(sanitizer).join("c").join(source.file_stem().context("a name")?);
        let object = program.with_extension("o");
        let built = self.dir(sanitizer).join(&self.host).join("debug");
        let runtime = self.libraries.join(format!("librustc-stable_rt.{}.a", sanitizer.runtime));
        ensure!(runtime.exists(), "the compiler has no run-time of its own: {}", runtime.display());
        let mut compile = c_compiler();
        compile
            .arg(format!("-fsanitize={}", sanitizer.name))
            .args(sanitizer.without)
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(&object);
        shell::run(&mut compile)?;
        let mut link = command("cc");
        link.arg(&object).arg("-o").arg(&program).args(["-rdynamic", "-Wl,--whole-archive"]).arg(runtime);
        link.arg("-Wl,--no-whole-archive").args(with_library(&built)).args(["-lpthread", "-ldl", "-lm", "-lrt"]);
        shell::run(&mut link)?;
        Ok(program)
    }
}

fn c_compiler() -> Command {
    let mut cc = command("cc");
    cc.args(["-g", "-std=gnu11", "-I"]).arg(root().join("crates/capi/include"));
    cc
}

fn with_library(dir: &Path) -> [String; 3] {
    [format!("-L{}", dir.display()), "-lfaultless_c".into(), format!("-Wl,-rpath,{}", dir.display())]
}

/// The C programs: the example of the documentation, and the tests of the C API.
fn sources(dir: &Path) -> Result<[PathBuf; 3]> {
    let tests = root().join("crates/capi/tests");
    Ok([example(dir)?, tests.join("api.c"), tests.join("tls.c")])
}

fn example(dir: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(root().join("docs/c.md"))?;
    let code = text.split_once("```c\n").and_then(|(_, rest)| rest.split_once("```"));
    let path = dir.join("example.c");
    fs::write(&path, code.context("docs/c.md has no example")?.0)?;
    Ok(path)
}

/// Fails if the command ends well, or for another reason than the sanitizer's.
fn notices(sanitizer: &Sanitizer, command: &mut Command) -> Result<()> {
    let words = show(command);
    let ended = command.output().with_context(|| words.clone())?;
    let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    if ended.status.success() || !said.contains(sanitizer.report) {
        bail!("{words}: {} did not notice a mistake: {said}", sanitizer.report);
    }
    Ok(())
}

/// One program runs under valgrind: there a thread that faults keeps the one from running that would serve it, so
/// threads that serve faults are refused.
fn valgrind() -> Result<()> {
    ensure!(is_installed("valgrind"), "valgrind is missing: cargo xtask setup");
    shell::run(&mut cargo("build -p faultless-capi"))?;
    let dir = target().join("sanitize/valgrind");
    fs::create_dir_all(&dir)?;
    let (source, program) = (example(&dir)?, dir.join("example"));
    shell::run(c_compiler().arg(source).arg("-o").arg(&program).args(with_library(&target().join("debug"))))?;
    let mut valgrind = command("valgrind");
    valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]);
    shell::run(valgrind.arg(program))
}
