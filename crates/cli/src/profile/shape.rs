//! The shape of a program's words: what of them says how much memory a run takes.
//!
//! A build names other files in each call and does the same. So a word counts by what it is:
//!
//! | word | counts |
//! |---|---|
//! | an output: behind `-o` and its like, or a new file's path | by its extension |
//! | a number, alone or behind `=` | by its length in binary, and its unit |
//! | a file with code or settings: executable, with such an extension, or the first one behind an interpreter or `-f` | by path, size and time of change |
//! | every other file: an input | by its extension, and what all of this extension hold, as a power of two |
//! | everything else | byte by byte |
//!
//! Where no word names an input, the directory is the input, and counts. Two uses that are taken for one cost speed only.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Words that are looked for in the file system.
const LOOKS: usize = 64;
/// Options, without their dashes, whose values name outputs.
const OUTPUTS: &[&[u8]] = &[
    b"o",
    b"of",
    b"out",
    b"output",
    b"outfile",
    b"out-file",
    b"output-file",
    b"outdir",
    b"out-dir",
    b"output-dir",
    b"MF",
    b"MJ",
    b"MQ",
    b"MT",
];
/// Programs that do what a file says, by the letters that their names begin with.
const INTERPRETERS: &[&[u8]] = &[
    b"bash", b"bun", b"dash", b"deno", b"fish", b"guile", b"java", b"julia", b"ksh", b"lua", b"luajit", b"node",
    b"nodejs", b"perl", b"php", b"pypy", b"python", b"Rscript", b"ruby", b"sh", b"tclsh", b"zsh",
];
/// Those that read it behind `-f`.
const READERS: &[&[u8]] = &[b"awk", b"gawk", b"gmake", b"make", b"mawk", b"ninja", b"sed"];
/// Extensions of code that other programs run, and of settings.
const CODE: &[&[u8]] = &[
    b"R", b"awk", b"bash", b"cfg", b"cjs", b"class", b"clj", b"cmake", b"conf", b"ex", b"exs", b"fish", b"groovy",
    b"ini", b"ipynb", b"jar", b"jl", b"js", b"kts", b"lua", b"mjs", b"mk", b"ninja", b"php", b"pl", b"pm", b"py",
    b"pyc", b"pyw", b"pyz", b"r", b"rb", b"sh", b"sql", b"tcl", b"toml", b"ts", b"tsx", b"war", b"wasm", b"xml",
    b"yaml", b"yml", b"zsh",
];

/// FNV-1a: the same in each build.
pub struct Sum(u64);

impl Sum {
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// With the length, so that words do not run into each other.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    pub const fn get(&self) -> u64 {
        self.0
    }
}

/// Adds the shape of `words` with which the program in `file` starts in `here`.
pub fn add(sum: &mut Sum, file: &Path, words: &[OsString], here: &Path) {
    let mut words = words.iter().map(|word| word.as_bytes());
    // A program may do something else under each of its names.
    let called = words.next().map_or(&b""[..], name);
    sum.add(called);
    let names = [called, name(file.as_os_str().as_bytes())];
    let is_any = |list| names.iter().any(|name| is_one_of(name, list));
    let (awaits_code, is_reader) = (is_any(INTERPRETERS), is_any(READERS));
    let mut shape = Shape { sum, here, looks: LOOKS, awaits_code, is_reader, inputs: BTreeMap::new() };
    let mut before = &b""[..];
    for word in words {
        shape.word(before, word);
        before = word;
    }
    shape.end();
}

/// What a word is.
enum Word<'a> {
    Text(&'a [u8]),
    Number(u32, &'a [u8]),
    Code(PathBuf, Metadata),
    Input(&'a [u8], u64),
    Output(&'a [u8]),
}

struct Shape<'a> {
    sum: &'a mut Sum,
    here: &'a Path,
    /// How many words may still be looked for.
    looks: usize,
    /// The next file is code.
    awaits_code: bool,
    /// So is the one behind `-f`.
    is_reader: bool,
    /// Bytes of the inputs of each extension.
    inputs: BTreeMap<Vec<u8>, u64>,
}

impl Shape<'_> {
    /// The next word, with the one before it.
    fn word(&mut self, before: &[u8], word: &[u8]) {
        self.awaits_code |= self.is_reader && before == b"-f";
        let is_option = word.len() > 1 && word[0] == b'-';
        let (key, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) if at > 0 && word[..at].iter().all(is_of_key) => word.split_at(at + 1),
            _ => word.split_at(0),
        };
        let attached = word.strip_prefix(b"-o").filter(|name| !name.is_empty() && is_new_name(name));
        let names_output = before.strip_prefix(b"-").is_some_and(is_output);
        let what = match (key, attached) {
            (_, Some(name)) if key.is_empty() => Word::Output(extension(name)),
            ([key @ .., b'='], _) if is_output(key) => Word::Output(extension(value)),
            ([], _) if is_option => Word::Text(word),
            ([], _) if names_output => Word::Output(extension(word)),
            _ => self.what(value, key.is_empty()),
        };
        self.sum.add(key);
        self.add(what);
    }

    /// What a word is that is no option, or the value of one.
    fn what<'a>(&mut self, word: &'a [u8], is_operand: bool) -> Word<'a> {
        if let Some((size, unit)) = number(word) {
            return Word::Number(size, unit);
        }
        let place = self.here.join(OsStr::from_bytes(word.strip_prefix(b"@").unwrap_or(word)));
        let ending = extension(word);
        match self.look(&place) {
            Some(about) if about.is_file() && self.is_code(word, &about) => Word::Code(place, about),
            Some(about) if about.is_file() => Word::Input(ending, about.len()),
            Some(_) => Word::Text(word),
            // Behind an input a name of no file is that of an output.
            None if is_operand && !self.inputs.is_empty() && !ending.is_empty() && is_new_name(word) => {
                Word::Output(ending)
            }
            None if is_new_path(word) && place.parent().and_then(|above| self.look(above)).is_some() => {
                Word::Output(ending)
            }
            None => Word::Text(word),
        }
    }

    fn look(&mut self, place: &Path) -> Option<Metadata> {
        self.looks = self.looks.checked_sub(1)?;
        place.metadata().ok()
    }

    fn is_code(&self, word: &[u8], about: &Metadata) -> bool {
        let is_executable = about.mode() & 0o111 != 0 && !word.windows(3).any(|part| part == b".so");
        self.awaits_code || is_executable || CODE.contains(&extension(word))
    }

    fn add(&mut self, word: Word) {
        match word {
            Word::Text(text) => {
                self.awaits_code |= is_one_of(name(text), INTERPRETERS);
                self.kind(0, text);
            }
            Word::Number(size, unit) => {
                self.kind(1, unit);
                self.sum.add(&size.to_le_bytes());
            }
            // One that was edited is another program.
            Word::Code(place, about) => {
                let place = place.canonicalize().unwrap_or(place);
                let path = place.as_os_str().as_bytes();
                self.awaits_code = is_one_of(name(path), INTERPRETERS);
                self.kind(2, path);
                self.sum.add(&about.len().to_le_bytes());
                self.sum.add(&about.mtime().to_le_bytes());
            }
            Word::Input(ending, bytes) => {
                let all = self.inputs.entry(ending.to_vec()).or_default();
                *all = all.saturating_add(bytes);
            }
            Word::Output(ending) => self.kind(3, ending),
        }
    }

    fn kind(&mut self, kind: u8, bytes: &[u8]) {
        self.sum.add(&[kind]);
        self.sum.add(bytes);
    }

    fn end(mut self) {
        if self.inputs.is_empty() {
            return self.kind(4, self.here.as_os_str().as_bytes());
        }
        for (ending, bytes) in std::mem::take(&mut self.inputs) {
            self.kind(5, &ending);
            self.sum.add(&length(bytes).to_le_bytes());
        }
    }
}

/// In binary.
const fn length(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// The last part of a path.
fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Whether a program is one of these, in whatever version.
fn is_one_of(name: &[u8], programs: &[&[u8]]) -> bool {
    let letters = name.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    programs.contains(&&name[..letters]) && name[letters..].iter().all(is_version)
}

/// Of an option, or of a variable.
const fn is_of_key(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Whether an option's value names an output; one dash may be off already.
fn is_output(option: &[u8]) -> bool {
    let bare = option.iter().position(|byte| *byte != b'-').map_or(&b""[..], |at| &option[at..]);
    OUTPUTS.contains(&bare)
}

/// The extension of a file's name, if it tells a kind: short letters, not what makes a name another one.
fn extension(path: &[u8]) -> &[u8] {
    let name = name(path);
    let ending = match name.iter().rposition(|byte| *byte == b'.') {
        Some(at) if at > 0 => &name[at + 1..],
        _ => b"",
    };
    let is_small = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match ending {
        [only] if only.is_ascii_alphabetic() => ending,
        [first, ..] if first.is_ascii_lowercase() && ending.len() <= 7 && ending.iter().all(is_small) => ending,
        _ => b"",
    }
}

/// Whether a program may give a file such a name.
fn is_new_name(path: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+~/".contains(byte);
    path.iter().all(is_plain) && (!extension(path).is_empty() || path.contains(&b'/'))
}

fn is_new_path(path: &[u8]) -> bool {
    path.contains(&b'/') && is_new_name(path)
}

/// The length of a number in binary, and its unit: `64M`, `0.5`, `90%`.
fn number(word: &[u8]) -> Option<(u32, &[u8])> {
    let digits = |from: &[u8]| from.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(word);
    let part = match &word[whole..] {
        [b'.', rest @ ..] if digits(rest) > 0 => 1 + digits(rest),
        _ => 0,
    };
    let unit = &word[whole + part..];
    let is_unit = unit == b"%" || unit.len() <= 3 && unit.iter().all(u8::is_ascii_alphabetic);
    let value = std::str::from_utf8(&word[..whole]).ok().filter(|digits| !digits.is_empty() && is_unit)?;
    Some((length(value.parse().unwrap_or(u64::MAX)), unit))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use faultless_testkit::foreign::cases;
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn shape(text: &str, here: &Path) -> u64 {
        let words = words(text);
        let mut sum = Sum::new();
        add(&mut sum, Path::new(&words[0]), &words, here);
        sum.get()
    }

    /// Two directories with the same files.
    fn places() -> [tempfile::TempDir; 2] {
        [(); 2].map(|()| {
            let dir = tempfile::tempdir().unwrap();
            let file = |name: &str, bytes: usize| fs::write(dir.path().join(name), vec![b'x'; bytes]).unwrap();
            for (name, bytes) in [
                ("a.c", 1100),
                ("b.c", 1900),
                ("large.c", 300_000),
                ("a.o", 5000),
                ("b.o", 6000),
                ("a.py", 100),
                ("b.py", 100),
                ("a.jar", 100),
                ("b.jar", 100),
                ("a.csv", 4000),
                ("b.csv", 4090),
                ("a.json", 4000),
                ("one", 100),
                ("two", 100),
                ("tool1", 100),
                ("tool2", 100),
                ("lib.so", 100),
                ("there.o", 5000),
                ("Makefile", 100),
            ] {
                file(name, bytes);
            }
            for name in ["tool1", "tool2", "lib.so"] {
                fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
            }
            fs::create_dir(dir.path().join("dir")).unwrap();
            dir
        })
    }

    #[test]
    fn names_of_inputs_and_outputs_make_no_other_program() {
        let [here, other] = places();
        for (one, another) in [
            ("gcc -c a.c -o out17.o", "gcc -c a.c -o out18.o"),
            ("gcc -c a.c -o out17.o", "gcc -c b.c -o out17.o"),
            ("gcc -c a.c -o new.o", "gcc -c a.c -o there.o"),
            ("gcc -c a.c -oout17.o", "gcc -c a.c -oout18.o"),
            ("gcc -c a.c -o new.o", "/usr/bin/gcc -c a.c -o new.o"),
            ("gcc -MD -MF dir/a.d -c a.c -o dir/a.o", "gcc -MD -MF b.d -c b.c -o b.o"),
            ("gcc a.c -o prog17", "gcc a.c -o prog18"),
            ("ld -o one17 a.o b.o", "ld -o one18 b.o a.o"),
            ("cc a.c @a.json -o a", "cc b.c @a.json -o b"),
            ("tool a.csv --output=x1.json", "tool b.csv --output=x2.json"),
            ("tool --input=a.csv", "tool --input=b.csv"),
            ("tool --input=a.csv --log=dir/x1.log", "tool --input=a.csv --log=dir/x2.log"),
            ("dd if=a.csv of=x1 bs=4000", "dd if=b.csv of=x2 bs=4001"),
            ("tool a.csv --seed=1000 900", "tool a.csv --seed=1001 901"),
            ("convert a.csv x1.png", "convert b.csv x2.png"),
            ("python3 a.py a.csv", "python3 a.py b.csv"),
            ("awk 1 a.csv", "awk 1 b.csv"),
            ("python3 a.py a.csv dir/tmp.Ab3dE9", "python3 a.py b.csv dir/tmp.Xb3dE9"),
        ] {
            assert_eq!(shape(one, here.path()), shape(another, here.path()), "{one}, {another}");
        }
        for same in ["gcc -c a.c -o out17.o", "ld -o one a.o b.o", "dd if=a.csv of=b.csv"] {
            assert_eq!(shape(same, here.path()), shape(same, other.path()), "{same}");
        }
    }

    #[test]
    fn code_options_and_sizes_make_another_program() {
        let [here, other] = places();
        for (one, another) in [
            ("python3 a.py", "python3 b.py"),
            ("python3.11 one", "python3.11 two"),
            ("perl -w one a.csv", "perl -w two a.csv"),
            ("env X=1 python3 one", "env X=1 python3 two"),
            ("java -jar a.jar", "java -jar b.jar"),
            ("make -f one", "make -f two"),
            ("java -cp a.jar com.a.Main", "java -cp a.jar com.b.Main"),
            ("python3 -m json.tool", "python3 -m zip.tool"),
            ("nice -n 5 ./tool1 a.csv", "nice -n 5 ./tool2 a.csv"),
            ("sh -c echo", "sh -c true"),
            ("gcc -O0 -c a.c", "gcc -O2 -c a.c"),
            ("gcc -c a.c", "gcc -c large.c"),
            ("gcc -c a.c", "gcc -c a.c -o a.o"),
            ("gcc -c a.c", "g++ -c a.c"),
            ("gcc a.c -o a.o", "gcc a.c -o a.s"),
            ("gcc -c a.c", "gcc -c a.c b.c large.c"),
            ("tool a.csv", "tool a.json"),
            ("tool --mode=fast a.csv", "tool --mode=exact a.csv"),
            ("tool --rows=1000 a.csv", "tool --rows=100000 a.csv"),
            ("tool 64M a.csv", "tool 64G a.csv"),
            ("tool dir a.csv", "tool other a.csv"),
            ("git status", "git clone"),
            ("du dir", "du ."),
            ("tool ab", "tool a b"),
        ] {
            assert_ne!(shape(one, here.path()), shape(another, here.path()), "{one}, {another}");
        }
        for same in ["make -j8", "make -f Makefile", "python3 a.py", "du .", "tool"] {
            assert_eq!(shape(same, here.path()), shape(same, here.path()), "{same}");
            assert_ne!(shape(same, here.path()), shape(same, other.path()), "{same}");
        }
        let before = shape("python3 a.py a.csv", here.path());
        fs::write(here.path().join("a.py"), "edited").unwrap();
        assert_ne!(shape("python3 a.py a.csv", here.path()), before);
    }

    /// A library that was built anew is an input, however executable its file is.
    #[test]
    fn libraries_are_inputs() {
        let [here, other] = places();
        assert_eq!(shape("ld a.o lib.so", here.path()), shape("ld a.o lib.so", other.path()));
    }

    #[test]
    fn many_words_are_told_apart_without_a_look_at_each() {
        let [here, _] = places();
        let many = |last: &str| shape(&format!("ld{} {last}", " a.o".repeat(2 * LOOKS)), here.path());
        assert_ne!(many("--gc-sections"), many("-r"));
    }

    #[test]
    fn numbers_and_extensions_are_what_they_look_like() {
        let of = |text: &'static str| number(text.as_bytes());
        assert_eq!(of("0"), Some((0, &b""[..])));
        assert_eq!(of("64M"), Some((7, &b"M"[..])));
        assert_eq!(of("1.5GiB"), Some((1, &b"GiB"[..])));
        assert_eq!(of("90%"), Some((7, &b"%"[..])));
        assert_eq!(of("99999999999999999999999"), Some((64, &b""[..])));
        for text in ["", "M", "-5", "1.", "1.2.3", "12abcd", "0x10", "1e6"] {
            assert_eq!(of(text), None, "{text}");
        }
        let kind = |text: &'static str| extension(text.as_bytes());
        assert_eq!(
            [kind("a/b.c"), kind("x.parquet"), kind("x.R"), kind("a.tar.gz")],
            [&b"c"[..], b"parquet", b"R", b"gz"]
        );
        for text in ["", "a", ".profile", "a.b/c", "log.17", "tmp.Ab3dE9", "com.a.Main", "x.", "a.1c"] {
            assert_eq!(kind(text), b"", "{text}");
        }
    }

    proptest! {
        #![proptest_config(cases())]

        /// Any words have a shape, and the same one each time.
        #[test]
        fn any_words_are_borne(
            words in prop::collection::vec(prop_oneof![
                prop::collection::vec(any::<u8>(), 0..12),
                "[-=@o./a-c0-9]{0,8}".prop_map(String::into_bytes),
            ], 0..80),
        ) {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("a"), "1").unwrap();
            let words: Vec<_> = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
            let of = || {
                let mut sum = Sum::new();
                add(&mut sum, Path::new("/bin/a"), &words, dir.path());
                sum.get()
            };
            prop_assert_eq!(of(), of());
        }
    }
}
