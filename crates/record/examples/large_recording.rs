//! Writes a recording with that many records of faults to standard output: to see what reading a large one takes.
//!
//! `cargo run --release -p faultless-record --example large_recording -- 10000000 > large.rec`

#[path = "../tests/parts/mod.rs"]
mod parts;

use std::io::{BufWriter, stdout};

use parts::large::{Shape, write};

fn main() -> std::io::Result<()> {
    let faults = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let faults = faults.ok_or_else(|| std::io::Error::other("how many faults?"))?;
    write(BufWriter::with_capacity(1 << 20, stdout().lock()), Shape { faults, children: 5000, has_rounds: true })
}
