//! Names of functions: from the symbol tables of files, and from what processes say of code that they made.
//!
//! A file is opened when a function of it is asked for, and only its tables are read. One that is not the file that was
//! mapped, that was changed since, or that has no table, gives no names: the function is then called by its file and
//! place. What a file may take is bounded by its own length, and names by 4 KiB each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::rc::Rc;

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::space::Area;

/// What names of Python's functions begin with.
pub const PYTHON: &str = "py::";

/// A function: from its first address to behind its last one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    name: Rc<str>,
}

/// Functions in the order of their addresses, of which none overlap.
#[derive(Default)]
struct Table(Vec<Function>);

impl Table {
    /// Of several functions at an address the last one counts.
    fn new(functions: Vec<Function>) -> Self {
        let mut order: Vec<usize> = (0..functions.len()).collect();
        order.sort_by_key(|i| functions[*i].start);
        let mut table: Vec<Function> = Vec::with_capacity(functions.len());
        // Those that have begun, the one that counts on top; up to where the table is complete.
        let (mut begun, mut done) = (BinaryHeap::<usize>::new(), 0);
        let mut fill = |begun: &mut BinaryHeap<usize>, done: &mut u64, to: u64| {
            while let Some(top) = begun.peek().map(|i| &functions[*i]).filter(|_| *done < to) {
                let end = top.end.min(to);
                if end <= *done {
                    begun.pop();
                    continue;
                }
                match table.last_mut() {
                    Some(last) if last.end == *done && Rc::ptr_eq(&last.name, &top.name) => last.end = end,
                    _ => table.push(Function { start: *done, end, name: Rc::clone(&top.name) }),
                }
                *done = end;
            }
            *done = to;
        };
        for i in order {
            fill(&mut begun, &mut done, functions[i].start);
            begun.push(i);
        }
        fill(&mut begun, &mut done, u64::MAX);
        Self(table)
    }

    /// Those of a file. Of several that begin at an address the longest counts, of others the innermost. One without a
    /// length ends where the next begins.
    fn of_file(mut functions: Vec<Function>) -> Self {
        functions.sort_by_key(|function| (function.start, Reverse(function.end)));
        functions.dedup_by_key(|function| function.start);
        for i in 0..functions.len() {
            if functions[i].end <= functions[i].start {
                functions[i].end = functions.get(i + 1).map_or(functions[i].start + 1, |next| next.start);
            }
        }
        Self::new(functions)
    }

    fn find(&self, address: u64) -> Option<&Rc<str>> {
        let behind = self.0.partition_point(|function| function.start <= address);
        let function = self.0.get(behind.checked_sub(1)?)?;
        (address < function.end).then_some(&function.name)
    }
}

/// Bytes of a name at most. A short one in a file may stand for a very long one.
const MOST_NAME: usize = 4096;
/// Bytes of readable names from which on there are no more.
const MOST_BYTES: usize = 64 << 20;

/// A name that is being written.
struct Name(String);

impl fmt::Write for Name {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let fits = self.0.len() + more.len() <= MOST_NAME;
        if fits {
            self.0.push_str(more);
        }
        if fits { Ok(()) } else { Err(fmt::Error) }
    }
}

/// A name as it stands in the program's source; as it stands in the file, where that would be too long.
fn readable(name: &str) -> Rc<str> {
    let mut readable = Name(String::new());
    let is_readable = if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(readable, "{rust:#}").is_ok()
    } else {
        name.starts_with("_Z")
            && cpp_demangle::Symbol::new(name)
                .is_ok_and(|symbol| symbol.structured_demangle(&mut readable, &Default::default()).is_ok())
    };
    if is_readable { readable.0.into() } else { name.into() }
}

/// What is known of one file.
#[derive(Default)]
struct Image {
    /// Parts of the file: place, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    table: Table,
    /// When the file was last changed, in ns since 1970.
    changed: u64,
}

impl Image {
    fn read(path: &str, inode: u64) -> Option<Self> {
        // Another file may be there by now: a pipe or a device is not waited for, nor does opening one act on it.
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
        let data = file.metadata().ok().filter(|data| data.is_file() && (inode == 0 || data.ino() == inode))?;
        let changed = u64::try_from(data.ctime()).unwrap_or(0) * 1_000_000_000 + data.ctime_nsec() as u64;
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache).ok()?;
        let segments = object.segments().map(|segment| {
            let (place, bytes) = segment.file_range();
            (place, bytes, segment.address())
        });
        let symbols = object.symbols().chain(object.dynamic_symbols());
        let is_function = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown);
        let symbols = symbols.filter(|symbol| is_function(symbol.kind()) && symbol.is_definition());
        // Linkers write each name once. Where it is not so, the others have none.
        let mut room = 2 * data.len();
        let functions = symbols.filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            room = room.checked_sub(name.len() as u64)?;
            let start = symbol.address();
            Some(Function { start, end: start.saturating_add(symbol.size()), name: name.into() })
        });
        Some(Self { segments: segments.collect(), table: Table::of_file(functions.collect()), changed })
    }

    /// The function at a place in the file.
    fn find(&self, place: u64) -> Option<&Rc<str>> {
        let segment = self.segments.iter().find(|(from, bytes, _)| place.wrapping_sub(*from) < *bytes)?;
        self.table.find((place - segment.0).wrapping_add(segment.2))
    }
}

/// Names of functions in files and processes.
#[derive(Default)]
pub struct Symbols {
    /// When the recording began, by the clock of the records and in ns since 1970.
    began: (u64, u64),
    images: HashMap<(Rc<str>, u64), Option<Image>>,
    made: HashMap<u32, Table>,
    /// Readable names by those in files, and their bytes.
    readable: (HashMap<Rc<str>, Rc<str>>, usize),
    /// Other names, each once.
    others: HashSet<Rc<str>>,
}

impl Symbols {
    /// For a recording that began at `start_ns` by the clock of its records, and at `unix_ns` since 1970.
    pub fn new(start_ns: u64, unix_ns: u64) -> Self {
        Self { began: (start_ns, unix_ns), ..Self::default() }
    }

    /// What a process says of its own functions, in the form of `perf-PID.map`: start, bytes (both hexadecimal), name.
    pub fn add_made(&mut self, pid: u32, text: &str) {
        let function = |line: &str| {
            let (start, rest) = line.split_once(' ')?;
            let (bytes, name) = rest.split_once(' ')?;
            let start = u64::from_str_radix(start.trim_start_matches("0x"), 16).ok()?;
            let bytes = u64::from_str_radix(bytes.trim_start_matches("0x"), 16).ok()?;
            Some(Function { start, end: start.saturating_add(bytes), name: name.trim_end().into() })
        };
        self.made.insert(pid, Table::new(text.lines().filter_map(function).collect()));
    }

    /// The function of Python's that goes on at an address of a process. Where it begins, nothing goes on.
    pub fn python(&self, pid: u32, address: u64) -> Option<&Rc<str>> {
        let table = self.made.get(&pid)?;
        let name = table.find(address).filter(|name| name.starts_with(PYTHON))?;
        let before = table.find(address.checked_sub(1)?)?;
        Rc::ptr_eq(name, before).then_some(name)
    }

    /// Whether a process has named functions of Python's.
    pub fn has_python(&self) -> bool {
        let mut functions = self.made.values().flat_map(|table| &table.0);
        functions.any(|function| function.name.starts_with(PYTHON))
    }

    /// The function at an address of a process, which lies in `area`.
    pub fn name(&mut self, pid: u32, address: u64, area: Option<&Area>) -> Rc<str> {
        if let Some(name) = self.made.get(&pid).and_then(|table| table.find(address)) {
            return Rc::clone(name);
        }
        let Some(area) = area else { return self.once("[unknown]") };
        if !area.name.starts_with('/') || area.name.starts_with("//") {
            return if area.name.starts_with('[') {
                Rc::clone(&area.name)
            } else {
                self.once("[code made at run time]")
            };
        }
        let place = (address - area.start).wrapping_add(area.offset);
        let image = self.images.entry((Rc::clone(&area.name), area.inode));
        let image = image.or_insert_with(|| Image::read(&area.name, area.inode));
        let (start_ns, unix_ns) = self.began;
        let mapped = unix_ns.saturating_add(area.since.saturating_sub(start_ns));
        match image.as_ref().filter(|image| image.changed <= mapped).and_then(|image| image.find(place)) {
            Some(name) => {
                let name = Rc::clone(name);
                self.readable(name)
            }
            None => self.once(&format!("[{}]", area.name.rsplit('/').next().unwrap_or_default())),
        }
    }

    /// A name of a file's as it stands in the program's source, made once; as it stands in the file, where all together
    /// have become too long.
    fn readable(&mut self, name: Rc<str>) -> Rc<str> {
        let (known, bytes) = &mut self.readable;
        if let Some(readable) = known.get(&name) {
            return Rc::clone(readable);
        }
        if *bytes > MOST_BYTES {
            return name;
        }
        let readable = readable(&name);
        *bytes += readable.len();
        known.insert(name, Rc::clone(&readable));
        readable
    }

    fn once(&mut self, name: &str) -> Rc<str> {
        if let Some(name) = self.others.get(name) {
            return Rc::clone(name);
        }
        let name: Rc<str> = name.into();
        self.others.insert(Rc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_an_address_in_it() {
        let function = |start, end, name: &str| Function { start, end, name: name.into() };
        let table = Table::of_file(vec![function(30, 30, "c"), function(10, 20, "a"), function(10, 10, "alias")]);
        let names = [9, 10, 19, 20, 30, 31].map(|at| table.find(at).map_or("-", |name| name));
        assert_eq!(names, ["-", "a", "a", "-", "c", "-"]);
        let table =
            Table::of_file(vec![function(10, 50, "outer"), function(20, 30, "inner"), function(25, 60, "last")]);
        let names = [19, 20, 25, 40, 59, 60].map(|at| table.find(at).map_or("-", |name| name));
        assert_eq!(names, ["outer", "inner", "last", "last", "last", "-"]);
    }

    #[test]
    fn code_that_was_made_later_counts() {
        let mut symbols = Symbols::default();
        symbols.add_made(7, "1000 400 old\n2000 100 outer\n1000 17 new\n2010 10 inner\n");
        let names = [0x1000, 0x1017, 0x13ff, 0x1400, 0x2000, 0x2010, 0x2020, 0x20ff, 0x2100];
        let names = names.map(|at| symbols.name(7, at, None).to_string());
        let none = "[unknown]";
        assert_eq!(names, ["new", "old", "old", none, "outer", "inner", "outer", "outer", none]);
    }

    /// Each part of such a name stands for twice what the one before stands for.
    #[test]
    fn a_name_that_would_be_too_long_stays_as_it_is() {
        let parts: String = (0..40).map(|part| format!("IS{}_S{0}_E", char::from(b'A' + part % 20))).collect();
        for name in [format!("_Z1fN1a1bE1cIS_S_E{parts}"), format!("_Z{}{}", 5000, "f".repeat(5000))] {
            assert!(readable(&name).len() <= name.len().max(MOST_NAME));
        }
    }

    #[test]
    fn names_are_those_of_the_source() {
        let names =
            ["_Z4fillPcl", "_RNvCskwGfYPst2Cb_3foo4fill", "_ZN3foo4fill17h0123456789abcdefE", "fill", "_Zx"];
        assert_eq!(
            names.map(|name| readable(name).to_string()),
            ["fill(char*, long)", "foo::fill", "foo::fill", "fill", "_Zx"]
        );
    }

    #[test]
    fn what_a_process_says_of_its_functions_counts() {
        let mut symbols = Symbols::default();
        symbols.add_made(7, "7f0010 10 py::work:/a b.py\nnonsense\n7f0020 zz x\n");
        assert_eq!(&*symbols.name(7, 0x7f0018, None), "py::work:/a b.py");
        assert_eq!(&*symbols.name(7, 0x7f0020, None), "[unknown]");
    }

    #[test]
    fn a_function_of_pythons_goes_on_behind_its_beginning() {
        let mut symbols = Symbols::default();
        symbols.add_made(7, "1000 10 py::outer:a.py\n1010 10 py::inner:a.py\n1020 10 other\n");
        let names = [0xfff, 0x1000, 0x1006, 0x1010, 0x1016, 0x1020, 0x1026, 0x1030]
            .map(|at| symbols.python(7, at).map_or("-", |name| name));
        assert_eq!(names, ["-", "-", "py::outer:a.py", "-", "py::inner:a.py", "-", "-", "-"]);
        assert!(symbols.python(8, 0x1006).is_none() && symbols.has_python());
    }

    #[test]
    fn what_is_no_file_any_more_has_no_names_and_is_not_waited_for() {
        let dir = std::env::temp_dir().join(format!("faultless-symbols-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let pipe = dir.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let found =
            [pipe.to_str().unwrap(), "/dev/zero", "/dev/tty", "/"].map(|path| Image::read(path, 0).is_none());
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, [true; 4]);
    }

    #[test]
    fn own_functions_have_their_names() {
        let here = own_functions_have_their_names as fn() as usize as u64;
        let mut space = crate::space::Space::default();
        space.maps(1, &std::fs::read_to_string("/proc/self/maps").unwrap());
        let area = space.process(1).area(here).cloned();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let name = |began| Symbols::new(0, began).name(1, here, area.as_deref());
        assert!(name(now).ends_with("own_functions_have_their_names"), "{}", name(now));
        // The file was written after that, and it may have been another one then.
        assert!(name(1).starts_with("[faultless_record-"), "{}", name(1));
    }
}
