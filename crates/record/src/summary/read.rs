//! A recording's chunks, put in the order of time.
//!
//! Each CPU's records are in order. A round holds what all CPUs had at about one time. So all of a round is older
//! than what the round after the next one holds: memory for two rounds is enough.

use std::io::Read;

use super::Summary;
use super::build::Builder;
use crate::file::{Chunk, Fault, Reader};
use crate::wire::{Record, Records, Source};

/// Records that wait at most; more are added up in the order in which they are.
const MOST_WAITING: usize = 4_000_000;

/// Records that are not yet in order.
#[derive(Default)]
struct Waiting {
    records: Vec<Record>,
    /// The youngest of the rounds before this one.
    before: u64,
}

impl Waiting {
    /// Hands out what nothing older can follow.
    fn round(&mut self, mut take: impl FnMut(Record)) {
        let youngest = self.records.iter().map(|record| record.time).max().unwrap_or(0);
        self.records.sort_by_key(|record| record.time);
        let limit = if self.records.len() > MOST_WAITING { youngest } else { self.before };
        let ready = self.records.partition_point(|record| record.time <= limit);
        self.records.drain(..ready).for_each(&mut take);
        self.before = self.before.max(youngest);
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
                        Ok(record) => waiting.records.push(record),
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
    Ok(builder.finish(wrong))
}
