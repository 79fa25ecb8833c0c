//! A recording's chunks, put in the order of time.
//!
//! Each CPU's records are in order. A round holds what all CPUs had at about one time. So all of a round is older
//! than what the round after the next one holds: memory for two rounds is enough.

use std::io::Read;

use super::Summary;
use super::build::Builder;
use crate::file::{Chunk, Fault, Reader};
use crate::wire::{Record, Records, Source, Told};

/// What is said where records were added up out of their order.
const CROWDED: &str = "too many records at once to put them all in order: kinds and mappings of some may be wrong";

/// Records that wait at most, and bytes of call stacks and of stacks' memory with them. Where there are more, the older
/// half of them is added up before all is known that belongs between them.
const MOST_WAITING: usize = 1_000_000;
const MOST_WAITING_BYTES: usize = 256 << 20;

/// Records that are not yet in order.
#[derive(Default)]
struct Waiting {
    records: Vec<Record>,
    /// Bytes that they hold beside their own size.
    bytes: usize,
    /// The youngest of the rounds before this one.
    before: u64,
    /// Whether there were too many.
    is_crowded: bool,
}

/// Bytes that a record holds beside its own size.
fn held(record: &Record) -> usize {
    match &record.told {
        Told::Sample(sample) => (sample.stack.len() + sample.memory.len()) * size_of::<u64>(),
        Told::Mapping(mapping) => mapping.name.len(),
        _ => 0,
    }
}

impl Waiting {
    /// One more.
    fn push(&mut self, record: Record, take: impl FnMut(Record)) {
        self.bytes += held(&record);
        self.records.push(record);
        if self.records.len() >= MOST_WAITING || self.bytes >= MOST_WAITING_BYTES {
            self.is_crowded = true;
            self.records.sort_by_key(|record| record.time);
            self.hand_out(self.records.len().div_ceil(2), take);
        }
    }

    /// Hands out what nothing older can follow.
    fn round(&mut self, take: impl FnMut(Record)) {
        let youngest = self.records.iter().map(|record| record.time).max().unwrap_or(0);
        self.records.sort_by_key(|record| record.time);
        let ready = self.records.partition_point(|record| record.time <= self.before);
        self.hand_out(ready, take);
        self.before = self.before.max(youngest);
    }

    /// The first ones.
    fn hand_out(&mut self, number: usize, mut take: impl FnMut(Record)) {
        for record in self.records.drain(..number) {
            self.bytes -= held(&record);
            take(record);
        }
    }
}

/// What a recording says. An error: it is none, or has no head. What is wrong further on is said in the notes.
pub fn read(from: impl Read) -> Result<Summary, Fault> {
    let mut reader = Reader::new(from)?;
    let Some(Chunk::Head(head)) = reader.chunk()? else { return Err(Fault::Broken) };
    let sources: Vec<Source> = head.sources.clone();
    let mut builder = Builder::new(*head);
    let mut waiting = Waiting::default();
    let mut wrong = None;
    loop {
        match reader.chunk() {
            Ok(None) => break,
            Ok(Some(Chunk::Records(bytes))) => {
                for record in Records::new(&bytes, &sources) {
                    match record {
                        Ok(record) => waiting.push(record, |record| builder.add(record)),
                        Err(_) => wrong = Some("a part of the recording is damaged and left out".to_owned()),
                    }
                }
            }
            Ok(Some(Chunk::Round)) => waiting.round(|record| builder.add(record)),
            Ok(Some(Chunk::Maps(pid, text))) => builder.maps(pid, &text),
            Ok(Some(Chunk::Names(pid, text))) => builder.names(pid, &text),
            Ok(Some(Chunk::Threads(pid, text))) => builder.threads(pid, &text),
            Ok(Some(Chunk::Counted(counted))) => builder.served(*counted),
            Ok(Some(Chunk::End(end))) => builder.end(*end),
            Ok(Some(Chunk::Head(_) | Chunk::Other)) => {}
            Err(fault) => {
                wrong = Some(format!("the recording is not complete: {fault}"));
                break;
            }
        }
    }
    waiting.before = u64::MAX;
    waiting.round(|record| builder.add(record));
    let mut summary = builder.finish(wrong);
    if waiting.is_crowded {
        summary.notes.push(CROWDED.into());
    }
    Ok(summary)
}
