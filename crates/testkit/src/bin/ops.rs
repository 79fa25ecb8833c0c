//! Makes random calls about memory and checks what they do: `ops SEED STEPS [threads]`.
//!
//! The log depends on the arguments alone, not on where the kernel or a preloaded library puts things.

use std::io::Read;
use std::os::fd::FromRawFd;

use faultless_testkit::world::{FILE_PAGES, World, file_word};
use faultless_testkit::{call, probe};

const THREADS: u64 = 3;
/// Steps between verifications of everything.
const ROUND: usize = 12;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let (Some(seed), Some(steps)) = (number(0), number(1)) else {
        eprintln!("usage: ops SEED STEPS [threads]");
        std::process::exit(2);
    };
    let has = |word: &str| args.iter().any(|a| a == word);
    let steps = steps as usize;
    probe::install();
    let fd = call::file(FILE_PAGES, file_word);
    let threads: Vec<_> = (1..=if has("threads") { THREADS } else { 0 })
        .map(|t| {
            std::thread::spawn(move || {
                let mut world = World::new(seed ^ (t << 40), fd, -1);
                (world.solo, world.limit) = (false, 48 << 20);
                run(&mut world, steps, false);
                world.log
            })
        })
        .collect();
    let mut world = World::new(seed, fd, 1);
    world.solo = threads.is_empty();
    if !world.solo {
        world.limit = 64 << 20;
    }
    run(&mut world, steps, true);
    for (t, thread) in threads.into_iter().enumerate() {
        let log = thread.join().expect("no thread panics");
        println!("thread {t}:\n{}", String::from_utf8_lossy(&log));
    }
}

fn run(world: &mut World, steps: usize, forks: bool) {
    for step in 1..=steps {
        world.step = step;
        step_of(world, forks);
        if step % ROUND == 0 {
            world.verify_all();
            world.say_attributes();
        }
        world.pause(20);
    }
    world.verify_all();
    world.say_attributes();
}

fn step_of(world: &mut World, forks: bool) {
    // Most steps go by the C library throughout, some make each call as chance says.
    let calls = world.rng.word();
    call::without_library(if world.rng.one_in(3) { calls } else { 0 });
    match world.rng.weighted(&[14, 3, 8, 2, 20, 12, 5, 9, 13, 3, 11, 2, 28, forks as usize * 2]) {
        0 => world.map(),
        1 => world.map_file(),
        2 => world.map_over(),
        3 => world.map_beside(),
        4 => world.use_pages(),
        5 => world.unmap(),
        6 => world.unmap_region(),
        7 => world.protect(),
        8 => world.advise(),
        9 => world.lock(),
        10 => world.remap(),
        11 => world.mistakes(),
        12 => world.block(),
        _ => fork(world),
    }
}

/// A child goes on from here for a while, its log becomes part of the parent's.
fn fork(world: &mut World) {
    let steps = world.rng.within(1, 25);
    let mut pipe = [0i32; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    world.say(format_args!("fork"));
    // SAFETY: the child goes on with this thread's state alone, and leaves by _exit.
    match unsafe { libc::fork() } {
        -1 => world.wrong(format_args!("fork: error {}", call::errno())),
        0 => {
            world.out = pipe[1];
            world.become_child();
            world.verify_all();
            run(world, steps, true);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        child => {
            // SAFETY: the write end is the child's; the read end is owned by the file from here.
            let mut log = unsafe {
                libc::close(pipe[1]);
                std::fs::File::from_raw_fd(pipe[0])
            };
            let mut status = 0;
            let mut text = String::new();
            world.verify_all();
            let before = world.step;
            log.read_to_string(&mut text).expect("a child's log is text");
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            for line in text.lines() {
                world.say(format_args!("  child {line}"));
            }
            world.step = before;
            if status != 0 {
                world.wrong(format_args!("the child ended with {status:#x}"));
            }
            world.verify_all();
        }
    }
}
