//! Loops over processes.

use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Outcome;
use super::memory::Block;
use crate::process;

/// Forks children that end at once, from a process that has touched `size` bytes.
pub fn forks(size: usize, count: u64) -> io::Result<Outcome> {
    let mut memory = Block::new(size)?;
    let checksum = memory.fill(1).iter().fold(count, |sum, word| sum.wrapping_add(*word));
    let start = Instant::now();
    for _ in 0..count {
        process::fork_once()?;
    }
    let cost = start.elapsed().as_secs_f64() / count as f64;
    drop(memory);
    Ok(Outcome { cost, checksum })
}

/// Starts a program and waits for it, again and again.
pub fn spawns(program: &str, count: u64) -> io::Result<Outcome> {
    let mut ended_well = 0;
    let start = Instant::now();
    for _ in 0..count {
        ended_well += u64::from(Command::new(program).status()?.success());
    }
    Ok(Outcome { cost: start.elapsed().as_secs_f64() / count as f64, checksum: ended_well })
}

/// Processes that keep CPUs busy while this lives.
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts `count` of them.
    pub fn start(count: usize) -> io::Result<Neighbours> {
        let mut neighbours = Neighbours(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["loop", "spin"]).stdin(Stdio::piped()).stdout(Stdio::null());
            neighbours.0.push(command.spawn()?);
        }
        // Give the scheduler time to spread them.
        if count > 0 {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(neighbours)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            // A neighbour that is gone already is no worse.
            let _ = child.wait();
        }
    }
}

/// Spins until the other end of the standard input is closed.
pub fn spin() -> ! {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}
