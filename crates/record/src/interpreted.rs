//! Calls of an interpreter's functions, found in the memory of a stack.
//!
//! An interpreter that has no frame pointers cannot be walked through. But one that names its functions for tools
//! enters each of them by a piece of code of its own. So the return address into that code lies on the stack, in the
//! order of the calls. What an older call has left there may look the same. Three things tell them apart. Memory above
//! the top of the stack is not read. A function has called the piece of code itself. The piece of code has a name.

use crate::space::Process;

/// From a return address into such a piece of code to its own: that code keeps one number between them, so that the
/// stack stays aligned.
const TO_OWN: usize = 2;

/// Where the code is that a process has made, of the process that was asked for last.
#[derive(Default)]
pub struct Made {
    of: (u32, u64),
    ranges: Vec<(u64, u64)>,
}

impl Made {
    /// What may be return addresses into code that a process has made, the innermost first.
    pub fn calls(&mut self, pid: u32, process: &Process, memory: &[u64]) -> Vec<u64> {
        if memory.is_empty() {
            return Vec::new();
        }
        if self.of != (pid, process.code) {
            self.of = (pid, process.code);
            let areas = process.areas().filter(|area| area.is_code() && area.is_made());
            self.ranges = areas.map(|area| (area.start, area.start.saturating_add(area.bytes))).collect();
        }
        let is_made = |word: u64| self.ranges.iter().any(|(start, end)| (*start..*end).contains(&word));
        let is_called = |own: u64| process.area(own).is_some_and(|area| area.is_code());
        let pairs = memory.iter().zip(memory.iter().skip(TO_OWN));
        pairs.filter(|(word, own)| is_made(**word) && is_called(**own)).map(|(word, _)| *word).collect()
    }
}

/// A walked stack with what was found in its memory, both from the innermost on. A walk that lost its way has fewer of
/// the interpreter's functions: then those that were found stand behind its other ones.
pub fn joined<T>(mut walked: Vec<T>, found: Vec<T>, is_interpreted: impl Fn(&T) -> bool) -> Vec<T> {
    let seen = walked.iter().filter(|frame| is_interpreted(frame)).count();
    if seen < found.len() {
        let own = walked.iter().position(is_interpreted).unwrap_or(walked.len());
        walked.truncate(own);
        walked.extend(found);
    }
    walked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;

    const MAPS: &str = "\
1000-2000 r-xp 00000000 00:00 0
3000-4000 rw-p 00000000 00:00 0
5000-6000 r-xp 00000000 08:01 7 /usr/lib/libpython.so
";

    #[test]
    fn a_call_is_a_return_address_whose_caller_has_one_too() {
        let mut space = Space::default();
        space.maps(1, MAPS);
        let process = space.process(1);
        let mut made = Made::default();
        let mut calls = |memory: &[u64]| made.calls(1, process, memory);
        assert_eq!(calls(&[0x1006, 0, 0x5010, 0x1026, 9, 0x5010]), [0x1006, 0x1026]);
        assert!(calls(&[0x1006, 0x5010, 0x3000]).is_empty(), "left by an older call");
        assert!(calls(&[0x5006, 0, 0x5010]).is_empty(), "code of a file");
        assert!(calls(&[0x1006, 0]).is_empty() && calls(&[]).is_empty(), "cut");
    }

    #[test]
    fn what_a_walk_has_seen_counts_if_it_is_as_much() {
        let is = |name: &&str| name.starts_with("py");
        assert_eq!(joined(vec!["fill"], vec!["py b", "py a"], is), ["fill", "py b", "py a"]);
        assert_eq!(joined(vec!["fill", "py b", "main"], vec!["py b", "py a"], is), ["fill", "py b", "py a"]);
        assert_eq!(joined(vec!["fill", "py b", "eval", "py a"], vec!["py b", "py a"], is).len(), 4);
        assert_eq!(joined(vec!["fill"], vec![], is), ["fill"]);
    }
}
