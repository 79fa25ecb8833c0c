//! Compilers: generated sources, the object code compared byte for byte.

use std::fmt::Write;

use faultless_e2e::{Case, Run, need, scratch, tests};

/// A C file of `n` functions that use each other and some tables.
fn c_source(n: usize) -> String {
    let mut text =
        String::from("#include <stdio.h>\n#include <string.h>\nstruct s { long a, b; char name[40]; };\n");
    for i in 0..n {
        let before = i.saturating_sub(1);
        write!(
            text,
            "static const struct s t{i}[] = {{ {{ {i}, {before}, \"entry {i}\" }}, {{ 2, 3, \"x\" }} }};\n\
             long f{i}(long n, const char *p) {{\n  long r = n * {i} + (long)strlen(p);\n\
             for (int k = 0; k < 10; k++) {{ r ^= t{i}[k % 2].a << (k % 7); if (r % 3 == k) r += t{before}[0].b; }}\n\
             switch (r % 5) {{ case 0: r += 11; break; case 1: r *= 3; break; case 2: r -= {i}; default: r ^= 5; }}\n"
        )
        .expect("a string takes everything");
        let call = if i == 0 { "r".to_owned() } else { format!("n > 0 ? f{before}(n - 1, t{i}[1].name) + r : r") };
        writeln!(text, "  return {call};\n}}").expect("a string takes everything");
    }
    text.push_str("int main(void) { printf(\"%ld\\n\", f0(3, \"x\")); }\n");
    text
}

/// A C++ file that instantiates templates of the standard library for `n` types.
fn cpp_source(n: usize) -> String {
    let mut text = String::from("#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n");
    for i in 0..n {
        writeln!(
            text,
            "struct T{i} {{ int a; std::string s; bool operator<(const T{i} &o) const {{ return a < o.a; }} }};\n\
             int g{i}(std::vector<T{i}> v) {{ std::sort(v.begin(), v.end()); std::map<T{i}, int> m; int r = 0;\n\
             for (auto &t : v) m[t] += t.a; for (auto &[k, x] : m) r += x + (int)k.s.size(); return r; }}"
        )
        .expect("a string takes everything");
    }
    text
}

fn compile(compiler: &str, file: &str, source: &str, args: &[&str]) -> Option<Run> {
    let compiler = need(compiler)?;
    let dir = scratch();
    std::fs::write(dir.path().join(file), source).expect("a file of our own");
    let case = Case::new(compiler).dir(dir.path()).args(args).args([file, "-o", "out.o"]).yields("out.o");
    let run = case.same();
    assert!(run.files[0].len() > 10_000, "an object file of {} bytes", run.files[0].len());
    Some(run)
}

/// The compiler proper maps its memory directly.
fn is_served(run: Option<Run>) {
    assert!(run.is_none_or(|run| run.counters.served() > 0), "nothing was served");
}

tests! {
    gcc: is_served(compile("gcc", "big.c", &c_source(700), &["-c", "-O1"]));
    gcc_through_the_assembler_and_the_linker: compile("gcc", "big.c", &c_source(800), &["-O0", "-g"]);
    gxx: is_served(compile("g++", "big.cc", &cpp_source(25), &["-c", "-O1", "-std=c++17"]));
    clang: compile("clang", "big.c", &c_source(600), &["-c", "-O1"]);
}

#[test]
fn rustc() {
    let Some(rustc) = need("rustc") else { return };
    let mut source = String::from("use std::collections::BTreeMap;\n");
    for i in 0..60 {
        writeln!(
            source,
            "pub fn f{i}(v: &[u64]) -> BTreeMap<u64, Vec<String>> {{ let mut m = BTreeMap::new();\n\
             for (i, x) in v.iter().enumerate() {{ m.entry(x % {}).or_insert_with(Vec::new).push(format!(\"{{i}}\")); }} m }}",
            i + 2
        )
        .expect("a string takes everything");
    }
    let dir = scratch();
    std::fs::write(dir.path().join("lib.rs"), source).expect("a file of our own");
    let args = [
        "--crate-type",
        "rlib",
        "--edition",
        "2021",
        "-Copt-level=1",
        "-Ccodegen-units=2",
        "lib.rs",
        "-o",
        "l.rlib",
    ];
    let home = std::env::var("RUSTUP_HOME").ok();
    let case = Case::new(rustc).dir(dir.path()).args(args).yields("l.rlib");
    let case = home.iter().fold(case, |case, home| case.env("RUSTUP_HOME", home));
    case.same();
}

#[test]
fn a_configure_script() {
    let (Some(sh), Some(_), Some(_)) = (need("sh"), need("cc"), need("sed")) else { return };
    let run = Case::new(sh).args([faultless_e2e::script("configure.sh")]).yields("config.h").same();
    let header = String::from_utf8_lossy(&run.files[0]).into_owned();
    assert!(
        header.contains("#define HAVE_STDIO_H 1") && header.contains("#undef HAVE_NO_SUCH_HEADER_H"),
        "{header}"
    );
}
