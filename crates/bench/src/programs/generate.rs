//! Inputs made here, the same each time.

use std::fmt::Write;

/// An odd constant that spreads small numbers over all bits.
pub const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

fn numbers() -> impl Iterator<Item = u64> {
    (1u64..).map(|n| {
        let mixed = n.wrapping_mul(ODD);
        mixed ^ (mixed >> 29)
    })
}

/// A C file of many functions, with structures, loops and switches.
pub fn c_source(functions: u64) -> String {
    let mut text = String::from("struct node { struct node *next; long key; int flags; char name[24]; };\n");
    for (n, random) in (0..functions).zip(numbers()) {
        let (a, b, c) = (random % 97 + 1, random / 97 % 89 + 1, random / 8633 % 31 + 1);
        let before = n.saturating_sub(1);
        let call = if n == 0 { "0".to_owned() } else { format!("f{before}(list, depth - 1)") };
        writeln!(
            text,
            "long f{n}(struct node *list, int depth) {{
  long sum = {a}, table[{c}];
  for (int i = 0; i < {c}; i++) table[i] = i * {b} + sum;
  while (list && list->next) {{
    switch ((list->key + list->flags) % 5) {{
      case 0: sum += list->key * {a}; break;
      case 1: sum -= table[(unsigned long)list->key % {c}]; break;
      case 2: sum ^= list->name[{a} % 24] << {b} % 7; break;
      case 3: if (depth > 0) sum += {call}; break;
      default: sum = sum * {b} + list->flags;
    }}
    list = list->next;
  }}
  return sum;
}}"
        )
        .expect("writing to a string");
    }
    text
}

/// A Rust file of many small functions and types.
pub fn rust_source(functions: u64) -> String {
    let mut text = String::from("#![allow(dead_code, clippy::all)]\nuse std::collections::BTreeMap;\n");
    for (n, random) in (0..functions).zip(numbers()) {
        let (a, b) = (random % 97 + 1, random / 97 % 89 + 1);
        writeln!(
            text,
            "#[derive(Debug, Clone, PartialEq)]
pub struct S{n} {{ name: String, map: BTreeMap<u32, Vec<u64>> }}
impl S{n} {{
    pub fn add(&mut self, key: u32) -> Option<u64> {{
        self.map.entry(key % {a}).or_default().extend((0..{b}).map(|x| x * {a}));
        self.map.values().flatten().filter(|x| **x > {b}).copied().max()
    }}
    pub fn text(&self) -> String {{ format!(\"{{}} {{:?}} {n}\", self.name, self.map) }}
}}"
        )
        .expect("writing to a string");
    }
    text + "fn main() {}\n"
}

/// A TypeScript file of many interfaces and functions.
pub fn typescript_source(functions: u64) -> String {
    let mut text = String::new();
    for (n, random) in (0..functions).zip(numbers()) {
        let (a, b) = (random % 97 + 1, random / 97 % 89 + 1);
        writeln!(
            text,
            "interface I{n}<T> {{ id: number; items: T[]; next?: I{n}<T>; kind: 'a{a}' | 'b{b}' }}
export function f{n}<T extends {{ v: number }}>(x: I{n}<T>): Partial<I{n}<T>> {{
  const total = x.items.map((i) => i.v * {a}).filter((v) => v % {b} > 1).reduce((s, v) => s + v, 0);
  return x.kind === 'a{a}' ? {{ id: total }} : {{ ...x, next: undefined }};
}}"
        )
        .expect("writing to a string");
    }
    text
}

/// Lines of words and numbers, unsorted and compressible.
pub fn lines(bytes: u64) -> String {
    const WORDS: [&str; 8] = ["page", "fault", "frame", "huge", "zero", "window", "extent", "arena"];
    let mut text = String::with_capacity(bytes as usize + 64);
    for random in numbers() {
        let word = |shift: u32| WORDS[(random >> shift) as usize % WORDS.len()];
        writeln!(text, "{:012x} {} {} {}", random >> 16, word(3), word(7), word(11)).expect("writing to a string");
        if text.len() as u64 >= bytes {
            return text;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_neither_sorted_nor_short() {
        let text = lines(10_000);
        assert!(text.len() >= 10_000 && !text.lines().is_sorted());
        assert_eq!(text, lines(10_000));
    }

    #[test]
    fn generated_sources_have_what_was_asked_for() {
        assert_eq!(c_source(7).matches("\nlong f").count(), 7);
        assert_eq!(rust_source(7).matches("pub struct").count(), 7);
        assert_eq!(typescript_source(7).matches("interface").count(), 7);
    }
}
