//! Faults by mapping, function and call stack.
//!
//! Names are made once for each area and each stack of addresses. An area is found again by its place in memory, which
//! it keeps as long as it is held here. A stack is found by its addresses and the code of its process.

use std::collections::HashSet;
use std::hash::Hash;
use std::rc::Rc;

use super::place::{self, Class, Label};
use super::weight::{MOST_ROWS, Scale, Weight, rows};
use super::{ByFunction, ByMapping, ByStack, Kind, OTHERS};
use crate::interpreted::{Made, joined};
use crate::map::{HashMap, Mark, Numbers};
use crate::space::{Area, Process};
use crate::symbols::{PYTHON, Symbols};
use crate::wire::Sample;

/// Call stacks that are told apart.
const MOST_STACKS: usize = 200_000;
/// Call stacks that are given, with the most faults; the others are one row.
const MOST_STACKS_GIVEN: usize = 10_000;
/// What code is called that lies in no mapping.
const UNKNOWN: &str = "[unknown]";
/// Areas of a label that are told apart.
const MOST_AREAS: usize = 100_000;
/// What is found again at most.
const MOST_KNOWN: usize = 100_000;

/// Rows, found by their keys.
struct Rows<K, V> {
    places: HashMap<K, usize>,
    values: Vec<V>,
}

impl<K: Hash + Eq, V: Default> Rows<K, V> {
    fn new() -> Self {
        Self { places: HashMap::default(), values: Vec::new() }
    }

    fn place(&mut self, key: K) -> usize {
        let next = self.values.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.values.push(V::default());
        }
        place
    }

    fn into_map(mut self) -> HashMap<K, V> {
        let values = &mut self.values;
        self.places.into_iter().map(|(key, place)| (key, std::mem::take(&mut values[place]))).collect()
    }
}

/// Names of functions and files, each with a number. They may be long, and a stack has many: so stacks are compared and
/// kept by numbers.
#[derive(Default)]
struct Names {
    all: Vec<Rc<str>>,
    by_text: HashMap<Rc<str>, u32>,
    /// The same by the place in memory, with what is held so that it stays there.
    by_place: HashMap<usize, (Rc<str>, u32)>,
}

impl Names {
    fn number(&mut self, name: &Rc<str>) -> u32 {
        let place = Rc::as_ptr(name).cast::<u8>() as usize;
        if let Some((_, number)) = self.by_place.get(&place) {
            return *number;
        }
        let next = self.all.len() as u32;
        let number = *self.by_text.entry(Rc::clone(name)).or_insert(next);
        if number == next {
            self.all.push(Rc::clone(name));
        }
        self.by_place.insert(place, (Rc::clone(name), number));
        number
    }

    fn get(&self, number: u32) -> &Rc<str> {
        &self.all[number as usize]
    }

    /// By their numbers, where each stands in the order of texts.
    fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        order.sort_by_key(|number| self.get(*number));
        let mut ranks = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(number, rank)| ranks[*number as usize] = rank);
        ranks
    }
}

/// Areas of a label.
#[derive(Default)]
struct Areas {
    weight: Weight,
    seen: HashSet<(u32, u64)>,
    largest: u64,
}

/// A call stack of addresses, the innermost first, each with the area that it lay in.
struct Stack {
    pid: u32,
    frames: Vec<(u64, Option<Rc<Area>>)>,
    found: Vec<u64>,
    weight: Weight,
}

/// The frames of a stack.
fn walked(addresses: &[u64], process: &Process) -> Vec<(u64, Option<Rc<Area>>)> {
    let frame = |(depth, address): (usize, &u64)| {
        // Return addresses lie behind their calls.
        let address = address.saturating_sub(u64::from(depth > 0));
        let area = process.area(address);
        // Code without frame pointers leads the kernel astray: from data on, it is no call stack.
        let is_code = area.is_some_and(|area| area.is_code());
        (depth == 0 || is_code).then(|| (address, area.cloned()))
    };
    addresses.iter().enumerate().map_while(frame).collect()
}

/// The tables.
pub struct Tables {
    mappings: Rows<Label, Areas>,
    labels: HashMap<usize, (Option<Rc<Area>>, usize)>,
    names: Names,
    functions: Rows<(u32, u32), Weight>,
    stacks: Rows<Vec<u32>, Weight>,
    /// Stacks that have no names yet, and where they are among them.
    unnamed: Vec<Stack>,
    /// Where a stack is among them: by its process, its code, its addresses, and the calls found in its memory.
    calls: HashMap<Mark, usize>,
    marks: Numbers,
    made: Made,
    /// The functions of those that have names, in the order in which they came.
    named: Vec<Rc<str>>,
}

/// The tables as rows.
pub struct Finished {
    pub mappings: Vec<ByMapping>,
    pub functions: Vec<ByFunction>,
    pub stacks: Vec<ByStack>,
    pub named: Vec<Rc<str>>,
    /// Rows that there were beyond the most: of mappings, of functions.
    pub left_out: (u64, u64),
    /// Call stacks that are one row.
    pub stacks_left_out: u64,
}

impl Tables {
    pub fn new() -> Self {
        Self {
            mappings: Rows::new(),
            labels: HashMap::default(),
            names: Names::default(),
            functions: Rows::new(),
            stacks: Rows::new(),
            unnamed: Vec::new(),
            calls: HashMap::default(),
            marks: Numbers::default(),
            made: Made::default(),
            named: Vec::new(),
        }
    }

    /// A fault in an area. `allocator` is asked for where the area is new.
    pub fn area(
        &mut self,
        (pid, class, kind): (u32, Class, Kind),
        area: Option<&Rc<Area>>,
        faults: u64,
        allocator: impl FnOnce() -> Option<&'static str>,
    ) {
        let known = area.map_or(0, |area| Rc::as_ptr(area) as usize);
        let place = match self.labels.get(&known) {
            Some((_, place)) => *place,
            None => {
                if self.labels.len() >= MOST_KNOWN {
                    self.labels.clear();
                }
                let place = self.mappings.place(place::label(class, area.map(Rc::as_ref), allocator()));
                self.labels.insert(known, (area.cloned(), place));
                place
            }
        };
        let areas = &mut self.mappings.values[place];
        areas.weight.add(kind, faults);
        if let Some(area) = area {
            areas.largest = areas.largest.max(area.bytes);
            if areas.seen.len() < MOST_AREAS {
                areas.seen.insert((pid, area.start));
            }
        }
    }

    /// The call stack of a fault. Gives back a number, by which [`Tables::finish`] names its function.
    pub fn calls(&mut self, begin: Sample, kind: Kind, process: &Process, symbols: &mut Symbols) -> usize {
        // A stack that could not be walked has at least the instruction.
        let addresses = if begin.stack.is_empty() { vec![begin.ip] } else { begin.stack };
        let found = self.made.calls(begin.pid, process, &begin.memory);
        let about = [begin.pid.into(), process.code, addresses.len() as u64];
        let mark = self.marks.mark(about.into_iter().chain(addresses.iter().chain(&found).copied()));
        let place = match self.calls.get(&mark) {
            Some(place) => *place,
            None => {
                if self.unnamed.len() >= MOST_KNOWN {
                    self.name_all(symbols);
                }
                let frames = walked(&addresses, process);
                self.unnamed.push(Stack { pid: begin.pid, frames, found, weight: Weight::default() });
                self.calls.insert(mark, self.unnamed.len() - 1);
                self.unnamed.len() - 1
            }
        };
        self.unnamed[place].weight.add(kind, begin.period);
        self.named.len() + place
    }

    /// Names stacks. Names that processes made come at the end of a recording, so that this is done as late as it can.
    fn name_all(&mut self, symbols: &mut Symbols) {
        self.calls.clear();
        let (unknown, others): (Rc<str>, Rc<str>) = (UNKNOWN.into(), OTHERS.into());
        for Stack { pid, frames, found, weight } in std::mem::take(&mut self.unnamed) {
            let names = frames
                .iter()
                .map(|(address, area)| symbols.name(pid, *address, area.as_ref().map(Rc::as_ref)))
                .collect();
            let found = found.iter().filter_map(|address| symbols.python(pid, *address).cloned()).collect();
            let names = joined(names, found, |name: &Rc<str>| name.starts_with(PYTHON));
            let first: Rc<str> = Rc::clone(names.first().unwrap_or(&unknown));
            let file = frames.first().and_then(|(_, area)| area.as_ref());
            let file = Rc::clone(file.map_or(&unknown, |area| &area.name));
            self.named.push(Rc::clone(&first));
            let place = self.functions.place((self.names.number(&first), self.names.number(&file)));
            self.functions.values[place].merge(&weight);
            let mut numbers: Vec<_> = names.iter().rev().map(|name| self.names.number(name)).collect();
            if self.stacks.values.len() >= MOST_STACKS && !self.stacks.places.contains_key(&numbers) {
                numbers = vec![self.names.number(&others)];
            }
            let place = self.stacks.place(numbers);
            self.stacks.values[place].merge(&weight);
        }
    }

    /// All of them as rows, and the functions by the numbers that [`Tables::calls`] gave.
    pub fn finish(mut self, scale: &Scale, symbols: &mut Symbols) -> Finished {
        self.name_all(symbols);
        let (names, ranks) = (&self.names, self.names.ranks());
        let rank = |number: &u32| ranks[*number as usize];
        let (mappings, mappings_left_out) = rows(
            self.mappings.into_map(),
            MOST_ROWS,
            |areas| &areas.weight,
            |a, b| a.name.cmp(&b.name),
            |label, areas| ByMapping {
                name: label.name,
                class: label.class.into(),
                allocator: label.allocator.map(Into::into),
                part: scale.part(&areas.weight),
                areas: areas.seen.len() as u64,
                largest_bytes: areas.largest,
            },
        );
        let (functions, functions_left_out) = rows(
            self.functions.into_map(),
            MOST_ROWS,
            |weight| weight,
            |a, b| (rank(&a.0), rank(&a.1)).cmp(&(rank(&b.0), rank(&b.1))),
            |(name, file), weight| ByFunction {
                name: names.get(name).to_string(),
                file: names.get(file).to_string(),
                part: scale.part(&weight),
            },
        );
        let mut stacks_left_out = 0;
        let (mut given, _) = rows(
            self.stacks.into_map(),
            usize::MAX,
            |weight| weight,
            |a, b| a.iter().map(rank).cmp(b.iter().map(rank)),
            |numbers, weight| {
                (numbers.iter().map(|number| Rc::clone(names.get(*number))).collect::<Vec<_>>(), weight)
            },
        );
        if given.len() > MOST_STACKS_GIVEN {
            stacks_left_out = (given.len() - MOST_STACKS_GIVEN) as u64;
            let mut rest = Weight::default();
            given.drain(MOST_STACKS_GIVEN..).for_each(|(_, weight)| rest.merge(&weight));
            given.push((vec![OTHERS.into()], rest));
        }
        let stacks = given.into_iter().map(|(frames, weight)| ByStack { frames, part: scale.part(&weight) });
        let left_out = (mappings_left_out, functions_left_out);
        Finished { mappings, functions, stacks: stacks.collect(), named: self.named, left_out, stacks_left_out }
    }
}
