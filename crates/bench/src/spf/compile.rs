//! A compile job, as `kernbench` runs one: what faultless costs where faults beside changes do not matter, because each
//! process has one thread.

use std::path::PathBuf;
use std::process::Command;

use super::runs::Runs;
use crate::aims::Aims;
use crate::measure::Sample;
use crate::programs::find::done;
use crate::programs::job;
use crate::schedule;
use crate::table;
use crate::turns::{Rounds, Same, ratio};
use faultless_measure::paired::{deviation, mean};
use faultless_page::knobs::Knob;

/// Files that are compiled.
const FILES: u64 = 12;

/// Who runs the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Kernel,
    Run,
    /// Without memory brought ahead: what the background thread's part is.
    Behind,
    Mapped,
}

/// The knob that has `run` serve growth by mapped memory.
const MAPPED: &str = "mapped";

impl Way {
    /// Those that this build has.
    fn all() -> Vec<Self> {
        let mut all = vec![Self::Kernel, Self::Run, Self::Behind];
        all.extend(Knob::ALL.iter().any(|knob| knob.declared().name == MAPPED).then_some(Self::Mapped));
        all
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Run => "faultless run",
            Self::Behind => "faultless run, ahead=0",
            Self::Mapped => "faultless run, mapped=1",
        }
    }
}

/// What is printed of a run, and how.
type Figure = (&'static str, fn(&Sample) -> f64);
const FIGURES: [Figure; 6] = [
    ("Elapsed Time", |sample| sample.wall),
    ("User Time", |sample| sample.used.user),
    ("System Time", |sample| sample.used.system),
    ("Percent CPU", |sample| 100.0 * (sample.used.user + sample.used.system) / sample.wall),
    ("Context Switches", |sample| sample.used.switches as f64),
    ("Sleeps", |sample| sample.used.sleeps as f64),
];

/// The job, in a folder of its own, and the object files that all ways are to make alike.
struct Job {
    dir: PathBuf,
    objects: Vec<PathBuf>,
    made: Same<u64>,
}

impl Job {
    fn new(dir: PathBuf, files: u64) -> Result<Self, String> {
        let objects = job::write(&dir, files)?;
        Ok(Self { dir, objects, made: Same::default() })
    }

    fn check(&mut self) -> Result<(), String> {
        self.made.check(schedule::checksum(&self.objects)?)
    }
}

fn compile(runs: &mut Runs, job: &mut Job, way: Way, jobs: usize) -> Result<Sample, String> {
    done(Command::new("make").current_dir(&job.dir).args(["-s", "clean"]))?;
    let mut command = match way {
        Way::Kernel => Command::new("make"),
        Way::Run | Way::Behind | Way::Mapped => {
            let mut command = Command::new(&runs.context.exe);
            let set = match way {
                Way::Mapped => Some(format!("--set={MAPPED}=1")),
                Way::Behind => Some("--set=ahead=0".into()),
                _ => None,
            };
            command.args(["run", "--quiet"]).args(set).args(["--", "make"]);
            command
        }
    };
    command.current_dir(&job.dir).args(["-s", "-j", &jobs.to_string()]);
    let sample = runs.sample("compile", way.name(), &mut command)?;
    job.check()?;
    Ok(sample)
}

/// Half load is a job for every second CPU, optimal load one for each.
pub fn table(runs: &mut Runs, aims: &mut Aims) {
    let mut job = match Job::new(runs.context.dir.join("compile"), runs.context.count(FILES)) {
        Ok(job) => job,
        Err(missing) => return println!("**Compile**: {missing}\n"),
    };
    let cpus = runs.context.cpus;
    for (load, jobs) in [("half load", cpus.div_ceil(2)), ("optimal load", cpus)] {
        let turns = runs.turns(6);
        let rounds = turns.run(&Way::all(), |way| way.name().into(), |way| compile(runs, &mut job, way, jobs));
        print(&format!("Compile, {load} -j {jobs}"), runs.context.count(FILES), &rounds);
        for way in Way::all().into_iter().filter(|way| *way != Way::Kernel) {
            let slower = ratio(&rounds, &way, &Way::Kernel, |used| used.wall);
            aims.at_most(&format!("compile, {load}, {} beside the kernel", way.name()), 1.01, slower);
        }
    }
}

fn print(title: &str, files: u64, rounds: &Rounds<Way, Sample>) {
    let times = rounds.values().map(Vec::len).max().unwrap_or(0);
    println!(
        "**{title}** (a makefile with one rule for each of {files} C files; mean (standard deviation) of {times} runs)\n"
    );
    let mut columns = vec![""];
    columns.extend(rounds.keys().map(|way| way.name()));
    let last = Way::all().into_iter().next_back().unwrap_or(Way::Kernel);
    let of_last = format!("{} to the kernel", last.name());
    columns.push(&of_last);
    let mut table = table::new_table(&columns);
    for (name, figure) in FIGURES {
        let of = |all: &Vec<Sample>| all.iter().map(figure).collect::<Vec<f64>>();
        let cells = rounds.values().map(|all| format!("{:.2} ({:.3})", mean(&of(all)), deviation(&of(all))));
        let to = ratio(rounds, &last, &Way::Kernel, figure);
        let to = to.map_or("–".into(), |to| table::interval(&to));
        table.add_row(std::iter::once(name.to_owned()).chain(cells).chain([to]));
    }
    println!("{table}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_nothing_or_something_else_has_not_done_the_job() {
        let dir = tempfile::tempdir().unwrap();
        let mut job = match Job::new(dir.path().join("job"), 1) {
            Ok(job) => job,
            Err(why) => return faultless_testkit::skip_optional(why),
        };
        let object = job.objects[0].clone();
        std::fs::write(&object, "an object").unwrap();
        job.check().unwrap();
        assert!(job.check().unwrap_err().contains("f0.o"), "what the last one made counts once");
        std::fs::write(&object, "another").unwrap();
        assert_eq!(job.check().unwrap_err(), "wrong result");
    }
}
