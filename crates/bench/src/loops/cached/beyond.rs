//! A file that is larger than the memory allowed. Caches are full before anything is timed, and each record that is
//! asked for was not used before: every access waits for the device, unless its bytes were brought ahead.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use faultless::file::{self, Delivery};

use super::disk::{self, Buffers};
use super::kinds::{Route, Work};
use super::umap::Umap;
use super::{RECORD, check, first_word, shuffled, zipf};

/// Bytes that go in one call where records follow each other.
const CHUNK: usize = 1 << 20;
/// Bytes of a large part.
const LARGE: usize = 2 << 20;
/// Records of a list.
const LIST: usize = 256;

/// Options of the program.
#[derive(clap::Args, Clone)]
pub struct Beyond {
    #[arg(long)]
    route: Route,
    #[arg(long)]
    work: Work,
    /// The file, of whole records as the bench makes them.
    #[arg(long)]
    file: PathBuf,
    /// Bytes of memory that the file may take.
    #[arg(long)]
    memory: usize,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// For how long, where not all records are used.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

/// What was reached.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Met {
    /// Records a second.
    pub rate: f64,
    /// Bytes that the process had in memory at most, beyond what it had before it opened the file. The pages of its own
    /// program do not count, nor do the buffers that it reads to.
    pub resident: usize,
}

/// Records that a thread has found right, until the deadline.
struct Reader<'a> {
    what: &'a Beyond,
    deadline: Instant,
    done: usize,
}

impl Reader<'_> {
    fn is_over(&self) -> bool {
        // A record at least, however slow the machine.
        self.done > 0 && Instant::now() > self.deadline
    }

    fn found(&mut self, number: usize, word: u64) -> io::Result<()> {
        self.done += 1;
        check(number, 0, word)
    }
}

/// Bytes of the file where a program reads and writes them.
#[derive(Clone, Copy)]
struct Bytes(usize);

impl Bytes {
    fn word(self, number: usize) -> u64 {
        // SAFETY: a record of the mapping that this was made of, which lives as long. First words do not change.
        unsafe { ((self.0 + number * RECORD) as *const u64).read_volatile() }
    }

    fn change(self, number: usize) {
        // SAFETY: as above; each record is one thread's.
        unsafe { ((self.0 + number * RECORD + 8) as *mut u64).write_volatile(number as u64) };
    }
}

/// The file, opened by one route.
enum Opened {
    Page { file: File, at: Bytes },
    Direct(File),
    Umap(Arc<Umap>, Bytes),
    Library { file: file::File, at: Option<Bytes>, _mapping: Option<Lazy> },
}

enum Lazy {
    Read(file::Mapping),
    Write(file::MappingMut),
}

impl Lazy {
    fn at(&mut self) -> Bytes {
        Bytes(match self {
            Self::Read(mapping) => mapping.as_ptr() as usize,
            Self::Write(mapping) => mapping.as_mut_ptr() as usize,
        })
    }
}

impl Opened {
    fn new(what: &Beyond) -> io::Result<Self> {
        let is_written = what.work == Work::Writes;
        let file = File::options().read(true).write(is_written).open(&what.file)?;
        let bytes = file.metadata()?.len() as usize;
        disk::drop_from_page_cache(&file);
        match what.route {
            Route::Plain | Route::Advised | Route::Announced => {
                let at = map(&file, bytes, is_written)?;
                let advice = match (what.route, what.work) {
                    (Route::Plain, _) => libc::MADV_NORMAL,
                    (_, Work::Sequential) => libc::MADV_SEQUENTIAL,
                    _ => libc::MADV_RANDOM,
                };
                // SAFETY: advice about the mapping, and about a descriptor.
                unsafe {
                    libc::madvise(at as *mut _, bytes, advice);
                    if what.route == Route::Advised && what.work == Work::Sequential {
                        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_SEQUENTIAL);
                    }
                }
                Ok(Self::Page { file, at: Bytes(at) })
            }
            Route::Direct | Route::Ring => Ok(Self::Direct(disk::open_direct(&what.file, is_written)?)),
            Route::Umap => {
                let file = disk::open_direct(&what.file, is_written)?;
                let page = if what.work.is_by_huge_pages() { LARGE } else { RECORD };
                let umap = Umap::new(file, bytes, page, what.memory)?;
                let at = Bytes(umap.start());
                Ok(Self::Umap(umap, at))
            }
            Route::Calls | Route::Signal | Route::Thread | Route::Prefetched => {
                let file = match what.work.is_by_huge_pages() {
                    true => file::File::new(&file)?,
                    false => file::File::with_small_pages(&file)?,
                };
                let mut mapping = None;
                if what.route != Route::Calls {
                    let by = if what.route == Route::Thread { Delivery::Thread } else { Delivery::Signal };
                    file.deliver(by)?;
                    mapping = Some(match is_written {
                        true => Lazy::Write(file.map_lazy_mut(0, bytes)?),
                        false => Lazy::Read(file.map_lazy(0, bytes)?),
                    });
                }
                let at = mapping.as_mut().map(Lazy::at);
                Ok(Self::Library { file, at, _mapping: mapping })
            }
        }
    }

    /// Fills the cache with the first bytes of the file.
    fn fill(&self, bytes: usize) -> io::Result<()> {
        match self {
            Self::Page { file, .. } => {
                let mut buffer = vec![0; CHUNK];
                (0..bytes / CHUNK).try_for_each(|i| file.read_exact_at(&mut buffer, (i * CHUNK) as u64))
            }
            Self::Direct(_) => Ok(()),
            // Sequential reads begin without a cache.
            Self::Umap(umap, _) => {
                if bytes > 0 {
                    umap.fill()
                } else {
                    Ok(())
                }
            }
            Self::Library { file, .. } => file.prefetch(std::slice::from_ref(&(0..bytes as u64))).map(drop),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Self::Page { file, .. } | Self::Direct(file) => file.sync_data(),
            Self::Umap(umap, _) => umap.sync(),
            Self::Library { file, .. } => file.sync(),
        }
    }
}

fn map(file: &File, bytes: usize, is_written: bool) -> io::Result<usize> {
    let rights = if is_written { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // SAFETY: a new mapping, which stays until the process ends.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as usize) }
}

impl Reader<'_> {
    /// Records in random order.
    fn random(&mut self, opened: &Opened, order: &[u32]) -> io::Result<()> {
        if let (Opened::Direct(file), Route::Ring) = (opened, self.what.route) {
            return self.by_ring(file, order, RECORD, 32, Some(self.deadline));
        }
        let mut buffers = Buffers::new(1, RECORD);
        let buffer = buffers.get(0);
        for number in order.iter().map(|number| *number as usize) {
            if self.is_over() {
                break;
            }
            let word = match opened {
                Opened::Page { at, .. } | Opened::Umap(_, at) | Opened::Library { at: Some(at), .. } => {
                    at.word(number)
                }
                Opened::Direct(file) => {
                    file.read_exact_at(buffer, (number * RECORD) as u64)?;
                    first_word(buffer)
                }
                Opened::Library { file, .. } => {
                    file.read_at(buffer, (number * RECORD) as u64)?;
                    first_word(buffer)
                }
            };
            self.found(number, word)?;
            if self.what.work == Work::Writes {
                match opened {
                    Opened::Page { at, .. } | Opened::Umap(_, at) | Opened::Library { at: Some(at), .. } => {
                        at.change(number)
                    }
                    Opened::Direct(file) => {
                        buffer[8..16].copy_from_slice(&(number as u64).to_ne_bytes());
                        file.write_all_at(buffer, (number * RECORD) as u64)?;
                    }
                    Opened::Library { file, .. } => {
                        file.write_at(&(number as u64).to_ne_bytes(), (number * RECORD + 8) as u64)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The same in lists: each is announced as a whole, if there is a way, and then read.
    fn lists(&mut self, opened: &Opened, order: &[u32]) -> io::Result<()> {
        for list in order.chunks(LIST) {
            if self.is_over() {
                break;
            }
            let numbers = || list.iter().map(|number| *number as usize);
            match (opened, self.what.route) {
                (Opened::Direct(file), Route::Ring) => {
                    self.by_ring(file, list, RECORD, 32, None)?;
                    continue;
                }
                (Opened::Page { at, .. }, Route::Announced) => numbers().for_each(|number| {
                    let at = (at.0 + number * RECORD) as *mut _;
                    // SAFETY: advice about a record of the mapping.
                    unsafe { libc::madvise(at, RECORD, libc::MADV_WILLNEED) };
                }),
                (Opened::Library { file, .. }, Route::Prefetched) => {
                    let part = |number: usize| (number * RECORD) as u64..((number + 1) * RECORD) as u64;
                    file.prefetch(&numbers().map(part).collect::<Vec<_>>())?;
                }
                _ => {}
            }
            self.random(opened, list)?;
        }
        Ok(())
    }

    /// All records in their order.
    fn sequential(&mut self, opened: &Opened, records: usize) -> io::Result<()> {
        const EACH: usize = CHUNK / RECORD;
        if let (Opened::Direct(file), Route::Ring) = (opened, self.what.route) {
            let order: Vec<u32> = (0..records as u32).step_by(2 * EACH).collect();
            return self.by_ring(file, &order, 2 * CHUNK, 8, None);
        }
        let mut buffers = Buffers::new(1, CHUNK);
        let buffer = buffers.get(0);
        for chunk in 0..records / EACH {
            let offset = (chunk * CHUNK) as u64;
            match (opened, self.what.route) {
                (Opened::Page { at, .. }, Route::Plain)
                | (Opened::Umap(_, at), _)
                | (Opened::Library { at: Some(at), .. }, _) => {
                    for number in chunk * EACH..(chunk + 1) * EACH {
                        self.found(number, at.word(number))?;
                    }
                    continue;
                }
                (Opened::Page { file, .. } | Opened::Direct(file), _) => file.read_exact_at(buffer, offset)?,
                (Opened::Library { file, .. }, _) => {
                    if file.read_at(buffer, offset)? < CHUNK {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
            for (i, record) in buffer.chunks(RECORD).enumerate() {
                self.found(chunk * EACH + i, first_word(record))?;
            }
        }
        Ok(())
    }

    /// Parts of 2 MiB, by their numbers.
    fn large(&mut self, opened: &Opened, order: &[u32]) -> io::Result<()> {
        const EACH: usize = LARGE / RECORD;
        if let (Opened::Direct(file), Route::Ring) = (opened, self.what.route) {
            let order: Vec<u32> = order.iter().map(|part| part * EACH as u32).collect();
            return self.by_ring(file, &order, LARGE, 8, Some(self.deadline));
        }
        let mut buffers = Buffers::new(1, LARGE);
        let buffer = buffers.get(0);
        for part in order.iter().map(|part| *part as usize) {
            if self.is_over() {
                break;
            }
            let offset = (part * LARGE) as u64;
            match opened {
                Opened::Page { at, .. } | Opened::Umap(_, at) | Opened::Library { at: Some(at), .. } => {
                    if self.what.route == Route::Announced {
                        // SAFETY: advice about a part of the mapping.
                        unsafe { libc::madvise((at.0 + part * LARGE) as *mut _, LARGE, libc::MADV_WILLNEED) };
                    }
                    for number in part * EACH..(part + 1) * EACH {
                        self.found(number, at.word(number))?;
                    }
                    continue;
                }
                Opened::Direct(file) => file.read_exact_at(buffer, offset)?,
                Opened::Library { file, .. } => {
                    if file.read_at(buffer, offset)? < LARGE {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
            for (i, record) in buffer.chunks(RECORD).enumerate() {
                self.found(part * EACH + i, first_word(record))?;
            }
        }
        Ok(())
    }

    fn by_ring(
        &mut self,
        file: &File,
        order: &[u32],
        each: usize,
        depth: usize,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        let mut offsets = order.iter().map(|number| *number as usize * RECORD);
        disk::read_by_ring(file, &mut offsets, each, depth, deadline, |offset, bytes| {
            let mut records = bytes.chunks(RECORD).enumerate();
            records.try_for_each(|(i, record)| self.found(offset / RECORD + i, first_word(record)))
        })
    }
}

/// Runs it.
pub(super) fn run(what: &Beyond) -> io::Result<Met> {
    let records = std::fs::metadata(&what.file)?.len() as usize / RECORD;
    // Records that the caches do not have.
    let fresh = if what.work == Work::Sequential { 0 } else { what.memory / RECORD };
    let order = match what.work {
        Work::Zipfian => zipf::draws(records, 4 * records, 1),
        Work::Large => shuffled(fresh * RECORD / LARGE..records * RECORD / LARGE, 1),
        _ => shuffled(fresh..records, 1),
    };
    let before = disk::resident()?;
    let opened = Opened::new(what)?;
    opened.fill(fresh * RECORD)?;
    let barrier = Barrier::new(what.threads);
    let start = Instant::now();
    let one = |index: usize| -> io::Result<(Instant, usize)> {
        let part = order.len() / what.threads;
        let order = &order[index * part..(index + 1) * part];
        let reader = || Reader { what, deadline: Instant::now() + Duration::from_secs_f64(what.seconds), done: 0 };
        let (before, order) = order.split_at(if what.work.repeats() { order.len() / 2 } else { 0 });
        let warmed = if before.is_empty() { Ok(()) } else { reader().random(&opened, before) };
        // The others wait here, also where this has failed.
        barrier.wait();
        warmed?;
        let start = Instant::now();
        let mut reader = reader();
        match what.work {
            Work::Random | Work::Writes | Work::Zipfian => reader.random(&opened, order)?,
            Work::List => reader.lists(&opened, order)?,
            Work::Large => reader.large(&opened, order)?,
            Work::Sequential => reader.sequential(&opened, records)?,
        }
        Ok((start, reader.done))
    };
    let all: io::Result<Vec<(Instant, usize)>> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..what.threads).map(|index| scope.spawn(move || one(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("panics abort")).collect()
    });
    let all = all?;
    if what.work == Work::Writes {
        opened.sync()?;
    }
    let end = Instant::now();
    let start = all.iter().map(|(start, _)| *start).min().unwrap_or(start);
    let done: usize = all.iter().map(|(_, done)| done).sum();
    if done == 0 {
        return Err(io::Error::other("no record was read"));
    }
    let after = disk::resident()?;
    let buffer = match (&opened, what.work) {
        (Opened::Library { at: None, .. }, Work::Sequential) => CHUNK,
        (Opened::Library { at: None, .. }, Work::Large) => LARGE,
        _ => 0,
    };
    let others = before.now + after.of_files.saturating_sub(before.of_files) + what.threads * buffer;
    let resident = after.peak.saturating_sub(others);
    Ok(Met { rate: done as f64 / (end - start).as_secs_f64(), resident })
}

/// Makes the file.
pub fn make_file(path: &std::path::Path, bytes: usize) -> io::Result<()> {
    let file = File::create(path)?;
    let mut chunk = Vec::with_capacity(CHUNK);
    for first in (0..bytes / RECORD).step_by(CHUNK / RECORD) {
        chunk.clear();
        (first..first + CHUNK / RECORD).for_each(|number| chunk.extend_from_slice(&super::record(number, 0)));
        file.write_all_at(&chunk, (first * RECORD) as u64)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each record is checked as it is read.
    #[test]
    fn every_route_reads_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        make_file(&file, 8 << 20).unwrap();
        let run = |route, work, threads| {
            let what = Beyond { route, work, file: file.clone(), memory: 2 << 20, threads, seconds: 0.02 };
            match run(&what) {
                Ok(met) => assert!(met.rate > 0.0, "{route:?} {work:?}"),
                // In a container there may be no userfaultfd, no ring, no O_DIRECT.
                Err(error) if error.raw_os_error().is_some() => {
                    faultless_testkit::skip(format_args!("{route:?} {work:?}: {error}"));
                }
                Err(error) => panic!("{route:?} {work:?}: {error}"),
            }
        };
        for route in
            [Route::Plain, Route::Advised, Route::Direct, Route::Ring, Route::Umap, Route::Calls, Route::Signal]
        {
            run(route, Work::Random, 2);
            run(route, Work::Sequential, 1);
            run(route, Work::Zipfian, 2);
            run(route, Work::Large, 1);
        }
        run(Route::Announced, Work::Large, 1);
        for route in [Route::Announced, Route::Ring, Route::Prefetched] {
            run(route, Work::List, 2);
        }
        for route in [Route::Advised, Route::Direct, Route::Umap, Route::Calls, Route::Signal, Route::Thread] {
            run(route, Work::Writes, 1);
        }
        let bytes = std::fs::read(&file).unwrap();
        let is_changed = |(number, record): (usize, &[u8])| {
            assert_eq!(first_word(record), super::super::word(number, 0));
            first_word(&record[8..]) == number as u64
        };
        assert!(bytes.chunks(RECORD).enumerate().filter(|part| is_changed(*part)).count() > 0);
        assert_eq!(bytes.len(), 8 << 20);
    }
}
