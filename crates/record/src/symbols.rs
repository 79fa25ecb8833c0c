//! Names of functions: from the symbol tables of files, and from what processes say of code that they made.
//!
//! A file is opened when a function of it is asked for, and only its tables are read. One that is not the file that was
//! mapped, or that has no table, gives no names: the function is then called by its file and place.

use std::collections::HashMap;
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

/// Functions in the order of their addresses.
#[derive(Default)]
struct Table(Vec<Function>);

impl Table {
    /// Sorts them. Of several at the same address the first counts; one without a length ends where the next begins.
    fn new(mut functions: Vec<Function>) -> Self {
        functions.sort_by(|a, b| (a.start, b.end).cmp(&(b.start, a.end)));
        functions.dedup_by_key(|function| function.start);
        for i in 0..functions.len() {
            if functions[i].end <= functions[i].start {
                functions[i].end = functions.get(i + 1).map_or(functions[i].start + 1, |next| next.start);
            }
        }
        Self(functions)
    }

    fn find(&self, address: u64) -> Option<&Rc<str>> {
        let behind = self.0.partition_point(|function| function.start <= address);
        let function = self.0.get(behind.checked_sub(1)?)?;
        (address < function.end).then_some(&function.name)
    }
}

/// A name as it stands in the program's source.
fn readable(name: &str) -> Rc<str> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}").into();
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(readable) = symbol.demangle()
    {
        return readable.into();
    }
    name.into()
}

/// What is known of one file.
#[derive(Default)]
struct Image {
    /// Parts of the file: place, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    table: Table,
}

impl Image {
    fn read(path: &str, inode: u64) -> Option<Self> {
        // Another file may be there by now: a pipe or a device is not waited for, nor does opening one act on it.
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
        if file.metadata().is_ok_and(|data| !data.is_file() || (inode != 0 && data.ino() != inode)) {
            return None;
        }
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache).ok()?;
        let segments = object.segments().map(|segment| {
            let (place, bytes) = segment.file_range();
            (place, bytes, segment.address())
        });
        let symbols = object.symbols().chain(object.dynamic_symbols());
        let is_function = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown);
        let symbols = symbols.filter(|symbol| is_function(symbol.kind()) && symbol.is_definition());
        let functions = symbols.filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            let start = symbol.address();
            Some(Function { start, end: start.saturating_add(symbol.size()), name: name.into() })
        });
        Some(Self { segments: segments.collect(), table: Table::new(functions.collect()) })
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
    images: HashMap<(Rc<str>, u64), Option<Image>>,
    made: HashMap<u32, Table>,
}

impl Symbols {
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
        let Some(area) = area else { return "[unknown]".into() };
        if !area.name.starts_with('/') || area.name.starts_with("//") {
            return if area.name.starts_with('[') {
                Rc::clone(&area.name)
            } else {
                "[code made at run time]".into()
            };
        }
        let place = (address - area.start).wrapping_add(area.offset);
        let image = self.images.entry((Rc::clone(&area.name), area.inode));
        let image = image.or_insert_with(|| Image::read(&area.name, area.inode));
        match image.as_ref().and_then(|image| image.find(place)) {
            Some(name) => readable(name),
            None => format!("[{}]", area.name.rsplit('/').next().unwrap_or_default()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_an_address_in_it() {
        let function = |start, end, name: &str| Function { start, end, name: name.into() };
        let table = Table::new(vec![function(30, 30, "c"), function(10, 20, "a"), function(10, 10, "alias")]);
        let names = [9, 10, 19, 20, 30, 31].map(|at| table.find(at).map_or("-", |name| name));
        assert_eq!(names, ["-", "a", "a", "-", "c", "-"]);
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
        let name = Symbols::default().name(1, here, area.as_deref());
        assert!(name.ends_with("own_functions_have_their_names"), "{name}");
    }
}
