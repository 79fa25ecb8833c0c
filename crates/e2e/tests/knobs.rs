//! Every knob changes something: from the environment, and those that can be turned while a program runs, then.

use std::path::Path;
use std::process::{Command, Stdio};

use faultless_e2e::{Case, Run, command, library};
use faultless_page::knobs::{KNOBS, Knob, When};
use faultless_page::stats::{COUNTERS, Counter};
use faultless_testkit::Killed;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// How often a program is run until the library has done something that depends on the machine's state.
const ATTEMPTS: usize = 20;

const BUDGET: (&str, &str) = ("FAULTLESS_BUDGET", "64M");

/// What a group of programs/groups.c does as things are, and with `knob` set to `value`.
fn both(group: &str, knob: Knob, value: &str) -> Option<[Run; 2]> {
    let case = Case::compiled("groups.c", &[])?.args([group]);
    Some([case.under(&[BUDGET]), case.under(&[BUDGET, (knob.declared().variable, value)])])
}

/// A counter without and with the knob.
fn counted(group: &str, knob: Knob, value: &str, counter: Counter) -> Option<[u64; 2]> {
    both(group, knob, value).map(|runs| runs.map(|run| run.counters.get(counter)))
}

/// How many processes use the library, without and with the knob.
fn processes(group: &str, knob: Knob, value: &str) -> Option<[usize; 2]> {
    both(group, knob, value).map(|runs| runs.map(|run| run.counters.processes))
}

/// Whether a counter that is 0 one way of the knob counts the other way, in one of a few runs. The background thread
/// may find no processor in time, and nothing is done ahead while huge pages are cold.
fn shown(group: &str, knob: Knob, value: &str, counter: Counter) -> Option<bool> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let [without, with] = counted(group, knob, value, counter)?;
        last = Some(without.min(with) == 0 && without != with);
        if without != with {
            break;
        }
    }
    last
}

#[test]
fn every_knob_changes_something() {
    for knob in Knob::ALL {
        // None: there is no compiler.
        let changes = match knob {
            Knob::Budget => processes("mappings", *knob, "0").map(|n| n == [1, 0]),
            Knob::MallocThreshold => counted("blocks", *knob, "1G", Counter::MallocServed).map(|n| n == [4, 0]),
            Knob::MmapThreshold => counted("mappings", *knob, "1G", Counter::KernelSmall).map(|n| n == [0, 2]),
            Knob::Scrub => shown("scrubbed", *knob, "0", Counter::BytesScrubbed),
            Knob::ScrubStart => shown("scrubbed", *knob, "28", Counter::ScrubWakeups),
            // No block is so large.
            Knob::ScrubStop => shown("scrubbed", *knob, "27", Counter::BytesScrubbed),
            Knob::ScrubLoad => shown("scrubbed", *knob, "0", Counter::ScrubWakeups),
            Knob::Ahead => shown("reservation", *knob, "0", Counter::BytesAdvised),
            // reading.rs turns it.
            Knob::FileAhead => None,
            // Frames move in at once where there are any; the tests of the engine turn it.
            Knob::Mapped => None,
            // Of mapped regions and files, which programs make themselves; the tests of the crate faultless turn it.
            Knob::SpeculativePageFault
            | Knob::PrefaultMaxOrder
            | Knob::PrefaultBy
            | Knob::ThpPagecache
            | Knob::DirtyBackground
            | Knob::DirtyExpire => None,
            // Of regions with a store; the tests of the engine turn it.
            Knob::SwapLow | Knob::SwapHigh => None,
            // What a block held may have been zeroed in the background by the time.
            Knob::Check => {
                let shows = || Some(both("content", *knob, "1")?.map(|run| run.stdout) == [b"old\n", b"new\n"]);
                (0..ATTEMPTS).map(|_| shows()).find(|shown| *shown != Some(false)).unwrap_or(Some(false))
            }
            Knob::Disable => processes("mappings", *knob, "1").map(|n| n == [1, 0]),
            Knob::NoChildren => processes("child", *knob, "1").map(|n| n == [2, 1]),
            Knob::Skip => processes("mappings", *knob, "other,groups").map(|n| n == [1, 0]),
            // It counts for the next run of a program; the tests of the command turn it.
            Knob::Profile => None,
            Knob::Quiet => {
                let said = |quiet| {
                    let mut run = command(["run", "--", "true"]);
                    run.env(knob.declared().variable, quiet).output().expect("faultless").stderr.len()
                };
                Some(said("0") > 0 && said("1") == 0)
            }
        };
        assert_ne!(changes, Some(false), "{} changes nothing", knob.declared().name);
    }
}

/// A program under the library that has stopped itself.
struct Stopped(Killed);

impl Stopped {
    fn start(program: &Path, group: &str) -> Self {
        let mut command = Command::new(program);
        command.args(["stop", group]).env("LD_PRELOAD", library()).env(BUDGET.0, BUDGET.1).stdout(Stdio::null());
        let child = Self(Killed(command.spawn().expect("the program starts")));
        assert!(child.wait().is_some_and(|status| status.stopped()), "{group} does not stop");
        child
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32).expect("a process")
    }

    /// Waits until it stops or ends.
    fn wait(&self) -> Option<WaitStatus> {
        waitpid(Some(self.pid()), WaitOptions::UNTRACED).ok().flatten().map(|(_, status)| status)
    }

    fn go_on(&self) -> Option<WaitStatus> {
        kill_process(self.pid(), Signal::CONT).expect("a signal");
        self.wait()
    }

    fn faultless(&self, args: &[&str]) -> String {
        let pid = self.0.id().to_string();
        let out = command([args[0], "-p", &pid]).args(&args[1..]).output().expect("faultless runs");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    fn counter(&self, counter: Counter) -> u64 {
        let name = COUNTERS[counter as usize].name;
        let text = self.faultless(&["stat", "--once", "--json", "-e", name]);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json["totals"][name].as_u64().expect("a number")
    }
}

#[test]
fn every_live_knob_is_turned_while_a_program_runs() {
    let Some(case) = Case::compiled("groups.c", &[]) else { return };
    for (knob, declared) in Knob::ALL.iter().zip(KNOBS).filter(|(_, declared)| declared.when == When::Live) {
        // How often the counter may count then, and at least does when no knob is turned.
        let (value, group, counter) = match knob {
            Knob::Budget => ("0", "mappings", Counter::BytesKept),
            Knob::MallocThreshold => ("1G", "blocks", Counter::MallocServed),
            Knob::MmapThreshold => ("1G", "mappings", Counter::MmapServed),
            Knob::Scrub => ("0", "scrubbed", Counter::BytesScrubbed),
            Knob::ScrubStart => ("28", "scrubbed", Counter::BytesScrubbed),
            Knob::ScrubStop => ("27", "scrubbed", Counter::BytesScrubbed),
            Knob::ScrubLoad => ("0", "scrubbed", Counter::BytesScrubbed),
            Knob::Ahead => ("0", "reservation", Counter::BytesAdvised),
            // Of mapped regions and files; tests of the engine and of the crate faultless turn it.
            Knob::SpeculativePageFault
            | Knob::PrefaultMaxOrder
            | Knob::PrefaultBy
            | Knob::ThpPagecache
            | Knob::DirtyBackground
            | Knob::DirtyExpire
            | Knob::SwapLow
            | Knob::SwapHigh => {
                continue;
            }
            // It takes a file that is not in memory; reading.rs turns it.
            Knob::FileAhead => continue,
            // Counts when the background thread has a processor at the right time; a test of the engine turns it.
            Knob::Mapped => continue,
            _ => panic!("no test turns {} while a program runs", declared.name),
        };
        let mut tries = 0;
        let mut turns = vec![true, false];
        while let Some(turned) = turns.pop() {
            let program = Stopped::start(case.program(), group);
            if turned {
                let setting = format!("{}={value}", declared.name);
                let shown = program.faultless(&["sysctl", &setting]);
                assert_eq!(shown.trim(), format!("{} = {value}", declared.name));
            }
            let before = program.counter(counter);
            let status = program.go_on().expect("a status");
            assert!(status.stopped(), "{}: {status:?}", declared.name);
            if *knob == Knob::Budget {
                let over = program.counter(Counter::BytesOverBudget);
                assert_eq!(over > 0, turned, "{over} bytes over the budget, turned: {turned}");
            }
            let more = program.counter(counter) - before;
            // On a busy machine the background thread may find no processor in time, and all memory may be cold,
            // which gets no advice.
            if !turned && more == 0 && tries < ATTEMPTS {
                tries += 1;
                turns.push(turned);
                continue;
            }
            assert_eq!(more == 0, turned, "{}: {more} more, turned: {turned}", declared.name);
        }
    }
}
