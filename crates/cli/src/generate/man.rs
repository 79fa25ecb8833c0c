//! Manual pages: of the command, and of each of its subcommands.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use faultless_page::knobs::KNOBS;
use faultless_page::stats::COUNTERS;

use super::{DOCTOR_STATUSES, RECORD_STATUSES, REPORT_STATUSES, RUN_STATUSES, STATUSES, TOP_STATUSES};
use crate::sysctl::{range, when};

/// Writes them into `dir`.
pub fn write(command: &Command, dir: &Path) -> Result<()> {
    let mut command = command.clone();
    command.build();
    page(&command, "faultless", dir)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        page(sub, &format!("faultless-{}", sub.get_name()), dir)?;
    }
    Ok(())
}

fn page(command: &Command, title: &str, dir: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    Man::new(command.clone()).title(title).section("1").render(&mut bytes)?;
    let mut more = Roff::new();
    match title {
        "faultless-run" => {
            statuses(&mut more, RUN_STATUSES);
            knobs(&mut more);
        }
        "faultless-stat" => {
            statuses(&mut more, STATUSES);
            more.control("PP", []).text([roman("With a program, its status as of faultless-run(1).")]);
            counters(&mut more);
        }
        "faultless-sysctl" => {
            statuses(&mut more, STATUSES);
            knobs(&mut more);
        }
        "faultless-record" => statuses(&mut more, RECORD_STATUSES),
        "faultless-report" => statuses(&mut more, REPORT_STATUSES),
        "faultless-top" => statuses(&mut more, TOP_STATUSES),
        "faultless-doctor" => statuses(&mut more, DOCTOR_STATUSES),
        _ => {}
    }
    more.to_writer(&mut bytes)?;
    let path = dir.join(format!("{title}.1"));
    std::fs::write(&path, bytes).with_context(|| path.display().to_string())
}

fn statuses(roff: &mut Roff, statuses: &[(&str, &str)]) {
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in statuses {
        roff.control("TP", []).text([bold(*status)]).text([roman(*meaning)]);
    }
}

fn counters(roff: &mut Roff) {
    roff.control("SH", ["COUNTERS"]);
    for counter in COUNTERS {
        let unit = format!(" ({})", counter.unit.name());
        roff.control("TP", []).text([bold(counter.name), roman(unit)]);
        roff.text([roman(counter.meaning.trim())]);
        if !counter.linux.is_empty() {
            roff.text([roman(format!("Linux has the like in {}.", counter.linux))]);
        }
    }
}

fn knobs(roff: &mut Roff) {
    let file = "What flags and environment do not say, the user's file does: lines of NAME = VALUE.";
    roff.control("SH", ["FILES"]).control("TP", []);
    roff.text([bold("$XDG_CONFIG_HOME/faultless/settings"), roman(", or "), bold("~/.config/faultless/settings")]);
    roff.text([roman(file)]);
    roff.control("SH", ["KNOBS"]);
    for knob in KNOBS {
        roff.control("TP", []).text([bold(knob.name), roman(", "), italic(knob.variable)]);
        let default = if knob.default.is_empty() { "none" } else { knob.default };
        let (range, when) = (range(knob.kind), when(knob.when));
        let facts = format!(" Takes {range}; default: {default}. Counts {when}.");
        roff.text([roman(knob.meaning.trim()), roman(facts)]);
    }
}
