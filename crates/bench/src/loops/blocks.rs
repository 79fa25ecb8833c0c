//! Loops over blocks from malloc and calloc.

use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::memory::{self, Block, PAGE};
use super::{Outcome, Pace, repeat};

/// What each temporary is filled with.
const FILL: u8 = 7;

/// A zeroed block, touched.
pub fn zeroed(size: usize, pace: Pace) -> io::Result<Outcome> {
    repeat(pace, 1, |_| Ok(Block::zeroed(size)?.touch(PAGE)))
}

/// A block of calloc or of malloc, of which one byte a page is written.
pub fn marked(size: usize, by_malloc: bool, pace: Pace) -> io::Result<Outcome> {
    repeat(pace, 16, |_| Ok(if by_malloc { Block::new(size) } else { Block::zeroed(size) }?.mark(PAGE)))
}

/// A block, written through, one word a page read back.
pub fn temporaries(size: usize, pace: Pace) -> io::Result<Outcome> {
    repeat(pace, 1, |_| {
        let mut block = Block::new(size)?;
        Ok(block.fill(FILL).iter().step_by(PAGE / 8).fold(0, |sum, word| sum.wrapping_add(*word)))
    })
}

/// What is resident a second after the last of them was freed.
pub fn left(size: usize, pace: Pace) -> io::Result<Outcome> {
    let outcome = temporaries(size, pace)?;
    thread::sleep(Duration::from_secs(1));
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has no resident pages"))?;
    Ok(Outcome { cost: (pages * PAGE as u64) as f64, ..outcome })
}

/// What `ebizzy -m` does: each thread holds some blocks; a round frees a random one, allocates one in its place,
/// writes it and adds it up. Each block is mapped on its own by the C library.
pub fn many(size: usize, held: usize, pace: Pace) -> io::Result<Outcome> {
    memory::map_blocks_from(PAGE);
    struct Thread {
        blocks: Vec<Option<Block>>,
        random: u64,
    }
    let threads: Vec<Mutex<Thread>> = (0..pace.threads)
        .map(|index| Thread { blocks: (0..held.max(1)).map(|_| None).collect(), random: index as u64 + 1 })
        .map(Mutex::new)
        .collect();
    repeat(pace, 1, |index| {
        let mut own = threads[index].lock().expect("panics abort");
        own.random = xorshift(own.random);
        let place = (own.random % own.blocks.len() as u64) as usize;
        own.blocks[place] = None;
        let mut block = Block::new(size)?;
        let sum = block.fill(FILL).iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        own.blocks[place] = Some(block);
        Ok(sum)
    })
}

/// What `ebizzy` does, with the sizes of its authors, written anew: threads share chunks of keys. A round copies one of
/// them to a new block, looks for a key there by halves, and frees the copy.
pub fn searches(size: usize, chunks: usize, mapped: bool, pace: Pace) -> io::Result<Outcome> {
    if mapped {
        memory::map_blocks_from(PAGE);
    }
    let keys = size / size_of::<u64>();
    let all: Vec<u64> = (0..keys as u64).collect();
    let mut chunks: Vec<Block> = (0..chunks.max(1)).map(|_| Block::new(size)).collect::<io::Result<_>>()?;
    let chunks: Vec<&[u64]> = chunks.iter_mut().map(|chunk| chunk.copy_from(&all)).collect();
    let random: Vec<Mutex<u64>> = (1..=pace.threads as u64).map(Mutex::new).collect();
    repeat(pace, 1, |index| {
        let mut random = random[index].lock().expect("panics abort");
        *random = xorshift(*random);
        let from = chunks[(*random % chunks.len() as u64) as usize];
        let key = (*random >> 32) % keys as u64;
        let mut copy = Block::new(size)?;
        // Each key is at its place, so each round has the same sum.
        copy.copy_from(from)
            .binary_search(&key)
            .map(|at| at as u64 - key)
            .map_err(|_| io::Error::other("a key is missing"))
    })
}

fn xorshift(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ (x << 17)
}

/// One small block allocated and freed, again and again.
pub fn pairs(size: usize, count: u64) -> io::Result<Outcome> {
    let start = Instant::now();
    for _ in 0..count {
        Block::new(size)?;
    }
    Ok(Outcome { cost: start.elapsed().as_secs_f64() / count as f64, checksum: count })
}

/// A whole file read into one new block.
pub fn read(path: &str) -> io::Result<Outcome> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len() as usize;
    let start = Instant::now();
    // As most programs do: one buffer of the file's size, filled by read().
    let mut bytes = Vec::with_capacity(size);
    file.by_ref().take(size as u64).read_to_end(&mut bytes)?;
    let cost = start.elapsed().as_secs_f64();
    let checksum = bytes
        .chunks_exact(PAGE)
        .flat_map(|page| page.first_chunk())
        .fold(0u64, |sum, word| sum.wrapping_mul(31).wrapping_add(u64::from_le_bytes(*word)));
    Ok(Outcome { cost, checksum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_sums_every_page() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut contents = vec![1u8; 3 * PAGE];
        let run = |contents: &[u8]| {
            fs::write(file.path(), contents).unwrap();
            read(file.path().to_str().unwrap()).unwrap().checksum
        };
        let before = run(&contents);
        contents[2 * PAGE] = 2;
        assert_ne!(run(&contents), before);
    }
}
