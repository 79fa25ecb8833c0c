//! A table of weights: all tensors of a safetensors file that the page cache does not have.

use std::path::Path;

use super::runs::{Printed, Runs, Script};
use crate::aims::Aims;
use crate::format;
use crate::loops::Timed;
use crate::plan::Launch;
use crate::programs::find::{done, module, python};
use crate::read_ahead::Ahead;
use crate::rule::Found;
use crate::table::{self, NOTHING};
use crate::turns::{Rounds, Same, ratio};
use faultless_measure::paired::{Ratio, median};

const SCRIPT: &str = include_str!("../programs/scripts/weights_load.py");

/// Who loads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    Madvise,
    Fadvise,
    Files,
    Map,
    Prefetch,
    Fastsafetensors,
    Runai,
}

impl Way {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::Madvise,
        Self::Fadvise,
        Self::Files,
        Self::Map,
        Self::Prefetch,
        Self::Fastsafetensors,
        Self::Runai,
    ];
    const STREAMERS: [Self; 2] = [Self::Fastsafetensors, Self::Runai];

    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Madvise => "madvise",
            Self::Fadvise => "fadvise",
            Self::Files => "files",
            Self::Map => "map",
            Self::Prefetch => "prefetch",
            Self::Fastsafetensors => "fastsafetensors",
            Self::Runai => "runai",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "safetensors.numpy",
            Self::Madvise => "the same, MADV_WILLNEED before",
            Self::Fadvise => "the same, POSIX_FADV_WILLNEED before",
            Self::Files => "the same under `faultless run --files`",
            Self::Map => "faultless, map",
            Self::Prefetch => "faultless, prefetch and lazy",
            Self::Fastsafetensors => "fastsafetensors, to memory",
            Self::Runai => "runai-model-streamer, to memory",
        }
    }

    /// The module that it needs beside safetensors.
    fn module(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Madvise | Self::Fadvise | Self::Files => None,
            Self::Map | Self::Prefetch => Some("faultless"),
            Self::Fastsafetensors => Some("fastsafetensors.frameworks._torch"),
            Self::Runai => Some("runai_model_streamer"),
        }
    }

    /// Whether the kernel reads the file ahead.
    fn is_read_ahead(self) -> bool {
        self.module().is_none()
    }
}

/// A way, and the device's read-ahead.
type Case = (Way, Ahead);

fn name((way, ahead): Case) -> String {
    format!("{}{}", way.name(), ahead.note())
}

fn found(way: Way) -> Case {
    (way, Ahead::Found)
}

/// Seconds of a run until each byte was read, and of all of it.
type Times = fn(&[Timed]) -> f64;
const READ: Times = |tests| tests[1].seconds;
const WHOLE: Times = |tests| tests[2].seconds;

/// How many times as fast one case is as another.
fn speed(rounds: &Rounds<Case, Vec<Timed>>, case: Case, other: Case, times: Times) -> Found<Ratio> {
    ratio(rounds, &case, &other, |tests| times(tests)).map(Ratio::inverse)
}

/// The script, once its file is there; the error says what is missing.
fn script(runs: &Runs, file: &Path, bytes: u64) -> Result<Launch, String> {
    let file = file.display().to_string();
    let launch = python(&runs.context, "safetensors", SCRIPT, &[file, bytes.to_string()])?;
    done(std::process::Command::new(&launch.program).args(&launch.args).arg("make"))?;
    Ok(launch)
}

/// All tensors, by each way.
pub fn load(runs: &mut Runs, aims: &mut Aims) {
    let title = "Weights";
    let bytes = if runs.context.full { 4 << 30 } else { runs.context.size(512 << 20) };
    let file = runs.dir().join("weights.safetensors");
    let launch = match script(runs, &file, bytes) {
        Ok(launch) => launch,
        Err(why) => return println!("**{title}**: {why}\n"),
    };
    let has = |way: &Way| match way.module().map(|name| module(&runs.context, name)) {
        Some(Err(why)) => {
            println!("No row {}: {why}.\n", way.name());
            false
        }
        _ => true,
    };
    let ways: Vec<Way> = Way::ALL.into_iter().filter(has).collect();
    let all = ways.iter().flat_map(|way| runs.aheads().iter().map(|ahead| (*way, *ahead)));
    let cases: Vec<Case> = all.filter(|(way, ahead)| way.is_read_ahead() || *ahead == Ahead::Found).collect();
    let (turns, mut computed) = (runs.turns(9, 40), Same::default());
    let once = |(way, read_ahead): Case| {
        let (words, budget) = (&[way.word()], 2 * bytes as usize);
        let (launch, files) = (&launch, (way == Way::Files).then_some(&*file));
        let script =
            Script { table: "weights", launch, words, way: way.name(), read_ahead, group: None, budget, files };
        let Printed { mut tests, computed: found, wall } = runs.script(script)?;
        computed.check(found)?;
        tests.push(Timed { test: "whole".into(), seconds: wall });
        if tests.len() == 3 { Ok(tests) } else { Err("it printed other times".into()) }
    };
    let rounds = turns.run(&cases, name, once);
    println!(
        "**{title}** ({}; a file of {}, not in the page cache; medians)\n",
        launch.note.as_deref().unwrap_or_default(),
        format::bytes(bytes as f64)
    );
    let heads = [
        "",
        "tensors there",
        "each byte read",
        "to safetensors.numpy",
        "to faultless, map",
        "whole run",
        "to safetensors.numpy",
        "rounds",
    ];
    let mut table = table::new_table(&heads);
    for case in cases {
        let Some(all) = rounds.get(&case) else { continue };
        let time = |test: usize| {
            let times: Vec<f64> = all.iter().map(|tests| tests[test].seconds).collect();
            median(&times).map_or(NOTHING.into(), format::seconds)
        };
        let to = |other: Way, times: Times| {
            let ratio = speed(&rounds, case, found(other), times).ok().filter(|_| case != found(other));
            ratio.map_or(NOTHING.into(), |ratio| format::interval(&ratio))
        };
        table.add_row([
            name(case),
            time(0),
            time(1),
            to(Way::Plain, READ),
            to(Way::Map, READ),
            time(2),
            to(Way::Plain, WHOLE),
            all.len().to_string(),
        ]);
    }
    println!("{table}\n");
    for (ahead, least) in runs.aheads().iter().zip([1.5, 2.0]) {
        let plain = (Way::Plain, *ahead);
        let beside = |who: &str| format!("weights, {who}, beside {}", name(plain));
        aims.at_least(&beside("mapped"), least, speed(&rounds, found(Way::Map), plain, READ));
        let whole = speed(&rounds, (Way::Files, *ahead), plain, WHOLE);
        aims.at_least(&beside("whole run under `run --files`"), least, whole);
    }
    for way in Way::STREAMERS.into_iter().filter(|way| ways.contains(way)) {
        for (ours, who) in [(Way::Map, "mapped"), (Way::Files, "under `run --files`")] {
            let line = format!("weights, {who}, beside {}", way.name());
            aims.at_least(&line, 0.95, speed(&rounds, found(ours), found(way), READ));
        }
    }
}
