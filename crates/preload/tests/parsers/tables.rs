//! The tables of a made-up library, as a linker would write them: the dynamic section first, so that what is cut off
//! are the others.

use std::ffi::CStr;

/// A symbol of it.
#[derive(Clone, Debug)]
pub struct Made {
    pub name: &'static CStr,
    pub value: u64,
    /// Its type and binding.
    pub info: u8,
    pub section: u16,
    /// The number of its version, with the bit that hides it.
    pub version: u16,
}

/// Which table of hashes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashes {
    Gnu,
    Old,
}

/// The names of versions from number 2 on.
pub const VERSIONS: [&CStr; 2] = [c"V_1", c"V_2"];
pub const OWN_NAME: &CStr = c"libmade.so.1";

fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// As the specification has it.
fn old_hash(name: &CStr) -> u32 {
    let mut hash = 0u32;
    for byte in name.to_bytes() {
        hash = (hash << 4).wrapping_add(u32::from(*byte));
        let top = hash & 0xf000_0000;
        if top != 0 {
            hash ^= top >> 24;
        }
        hash &= !top;
    }
    hash
}

/// Bytes that grow, with places at multiples of 8.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn align(&mut self) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.len() as u64
    }

    fn numbers(&mut self, numbers: &[u32]) {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
    }

    fn text(&mut self, text: &CStr, strings: u64) -> u32 {
        let at = self.0.len() as u64 - strings;
        self.0.extend(text.to_bytes_with_nul());
        at as u32
    }
}

/// The whole of it. Symbols may change their order.
pub fn library(symbols: &mut [Made], hashes: Hashes, versioned: bool) -> Vec<u8> {
    const BUCKETS: u32 = 3;
    const ENTRIES: usize = 8;
    symbols.sort_by_key(|symbol| gnu_hash(symbol.name) % BUCKETS);
    let mut bytes = Bytes(vec![0; 16 * ENTRIES]);
    let strings = bytes.align();
    let own = {
        bytes.0.push(0);
        bytes.text(OWN_NAME, strings)
    };
    let names: Vec<u32> = symbols.iter().map(|symbol| bytes.text(symbol.name, strings)).collect();
    let versions = VERSIONS.map(|version| bytes.text(version, strings));
    let table = bytes.align();
    bytes.0.extend([0; 24]);
    for (symbol, name) in symbols.iter().zip(names) {
        bytes.numbers(&[name]);
        bytes.0.extend([symbol.info, 0]);
        bytes.0.extend(symbol.section.to_le_bytes());
        bytes.0.extend(symbol.value.to_le_bytes());
        bytes.0.extend(8u64.to_le_bytes());
    }
    let hash = bytes.align();
    match hashes {
        Hashes::Gnu => {
            // One word of the filter lets all pass.
            bytes.numbers(&[BUCKETS, 1, 1, 6, u32::MAX, u32::MAX]);
            let hash: Vec<u32> = symbols.iter().map(|symbol| gnu_hash(symbol.name)).collect();
            let first = |bucket| hash.iter().position(|hash| hash % BUCKETS == bucket).map_or(0, |i| i as u32 + 1);
            (0..BUCKETS).for_each(|bucket| bytes.numbers(&[first(bucket)]));
            for (i, own) in hash.iter().enumerate() {
                let is_last = hash.get(i + 1).is_none_or(|next| next % BUCKETS != own % BUCKETS);
                bytes.numbers(&[own & !1 | u32::from(is_last)]);
            }
        }
        Hashes::Old => {
            let (mut heads, mut links) = (vec![0; BUCKETS as usize], vec![0; symbols.len() + 1]);
            for (i, symbol) in symbols.iter().enumerate() {
                let head = &mut heads[(old_hash(symbol.name) % BUCKETS) as usize];
                (links[i + 1], *head) = (*head, i as u32 + 1);
            }
            bytes.numbers(&[BUCKETS, links.len() as u32]);
            bytes.numbers(&heads);
            bytes.numbers(&links);
        }
    }
    let numbers = bytes.align();
    bytes.0.extend([0, 0]);
    symbols.iter().for_each(|symbol| bytes.0.extend(symbol.version.to_le_bytes()));
    let definitions = bytes.align();
    for (i, name) in versions.into_iter().enumerate() {
        // Version, flags; index, names; hash; first name, next; and behind it the name and the next one.
        bytes.numbers(&[1, (i as u32 + 2) | 1 << 16, 0, 20, if i + 1 < VERSIONS.len() { 28 } else { 0 }, name, 0]);
    }
    let kind = if hashes == Hashes::Gnu { 0x6fff_fef5 } else { 4 };
    let mut entries = vec![(5, strings), (6, table), (kind, hash), (14, u64::from(own))];
    if versioned {
        entries.extend([(0x6fff_fff0, numbers), (0x6fff_fffc, definitions)]);
    }
    for (i, (tag, value)) in entries.into_iter().enumerate() {
        bytes.0[16 * i..][..8].copy_from_slice(&u64::to_le_bytes(tag));
        bytes.0[16 * i + 8..][..8].copy_from_slice(&u64::to_le_bytes(value));
    }
    bytes.0
}
