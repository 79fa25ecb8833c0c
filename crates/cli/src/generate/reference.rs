//! docs/reference.md.

use std::mem::{offset_of, size_of};

use faultless_page::gauges::GAUGES;
use faultless_page::knobs::KNOBS;
use faultless_page::layout::{Header, MAGIC, Page, VERSION};
use faultless_page::stats::{Block, COUNTERS, Unit};

use super::{RUN_STATUSES, STATUSES, TOP_STATUSES};
use crate::stat::metric;
use crate::sysctl::{range, unit, when};

const START: &str = "# Reference

Made by `cargo xtask generate` from the tables in `crates/page/src/{stats,gauges,knobs}.rs`; change those. The
manual pages and the completions for shells come from the same tables.
";

const SETTINGS: &str = "
## Knobs

`faultless sysctl --list` explains them, `faultless run -s NAME=VALUE` sets them. The first of these that sets a knob
wins:

1. a flag (`-s`, or one of its own),
2. the variable in the environment,
3. the user's file, `$XDG_CONFIG_HOME/faultless/settings` (or `~/.config/faultless/settings`): lines `name = value`, and
   comments after `#` at the start of a line; `faultless sysctl NAME=VALUE` changes it,
4. the default.

`faultless sysctl -p PID NAME=VALUE` changes a running program, as far as a knob counts at any time. Processes that it
forks go on with the new value, programs that it starts have what the environment says. What is out of range is refused
by the command, and brought into range by the library.
";

const VARIABLES: &str = "
Besides, `FAULTLESS_LIBRARY` names the preload library for `faultless run`. `FAULTLESS_STATS` is the directory in which
`run` has the library leave its pages. `FAULTLESS_FILTERS` is set by `run`: how many system call filters were in force
then; a program with more runs plain, for they might kill it. `FAULTLESS_WARM` is the socket of the warm reserve
(warm.md); with an empty value `run` tells of none.

`LD_PRELOAD` is split at spaces and colons. Where the library's path has any, `run` names a link to it instead, in a
directory `faultless-library-USER-NUMBER` below `$TMPDIR`, `/tmp` or `/dev/shm`. The link stays, for programs that go
on.
";

const COUNTERS_START: &str = "
## Counters

Counted per process since its first large request, and those of regions also for each region; `faultless stat` shows
both, but for details. `-e` shows those it names (regions one by one if one of `region_*` is among them), also by the
names that perf has: `faults` for page faults, `spf` for speculative ones of regions, `pagefault:spf_*` for how those
ended (`spf` brings the reasons with it). `faults` has two lines. The first is what the kernel took for the processes;
the second, `faults_regions`, is what regions resolved. Those that came as signals are not in the first; those that a
handler thread resolved are in both.

The first line says this, in three cases:

- *In a list*, of each covered process since its start.
- *With `-p`*, of covered processes while they are watched, by looks 50 ms apart. Of a process that ends, it has what
  the last look saw.
- *With a program*, the kernel's figure at the program's end: of the program, and of every process that its parent
  waited for. To it come covered processes that were not waited for, as of the last look: those that run on, and those
  whose parent ended before them. So it is exact where each process is waited for, as in a build. Else it may be too
  low: processes without a large request that were not waited for are missing.
";

const MEMORY: &str = "
## Memory of files now

Totals in bytes, by the names that `/proc/meminfo` has. They are what there is, and not what was counted. `faultless
stat` shows those that are not zero below the counters, unless it was asked for some by name. They are those of the
process that its page was made for: its forked children count for themselves, and show none. A page that a mapping has
changed without a call counts as dirty once the background, a sync or an eviction has looked.

| name | meaning |
|---|---|
";

const JSON: &str = "
## JSON of `faultless stat`

One object a line, `version` 1. A field that changes its meaning makes the version grow; new ones do not.

| field | meaning |
|---|---|
| `kind` | `interval`: counted in one interval; `total`: counted while it was watched; `list`: counted so far |
| `time_s` | since it is watched; 0 in a list |
| `over_s` | for how long was counted; 0 in a list |
| `processes` | each process: |
| `.pid`, `.command` | which; the command's name as the kernel has it |
| `.running` | whether it runs still |
| `.since_s` | how long ago its page was made |
| `.plain` | why it runs plain, or null |
| `.counters` | its counters: from name to number |
| `.memory` | its totals of memory: from name to bytes |
| `.knobs` | what its knobs are set to: sizes in bytes, switches 0 or 1, words as text |
| `.regions` | each of its regions, up to 64, in the order in which they were made: `number`, `address`, `bytes`, `delivery`; `ended`, \
whether it is there no more; `present_bytes`, what is there, but for areas that were left to the kernel, and null with direct and kernel delivery; `counters`, those that \
are kept by region. One that has ended stays until its place is needed |
| `.other_regions` | if there were more: their `count`, and their `counters` together |
| `.page_faults` | in a list with `-e faults`: page faults that the kernel took for it since its start |
| `folded_processes` | of a command: how many processes have ended that are not in `processes`, and are in `totals` |
| `totals` | the counters, summed |
| `memory` | the totals of memory, summed |
| `page_faults` | with `-e faults`: page faults that the kernel took |
| `unreadable` | what is wrong with pages that could not be read |

That of `faultless run --json` is described in `crates/cli/src/run/summary.rs`, that of `--compare` in
`crates/cli/src/run/compare/mod.rs`; they have the same counters.
";

const METRICS: &str = "
## Metrics

`faultless stat --openmetrics` writes what all covered processes have counted so far, in the text form of OpenMetrics
1.0, which Prometheus reads. With `-p PID` it is one process, or all of a `faultless run`; `-e NAMES` chooses counters.
It ends with `# EOF`. What cannot be read is said on stderr.

With `--listen 127.0.0.1:PORT` (or another loopback address; port 0 takes any, which it names on stderr) it answers GET
and HEAD of `/metrics` by HTTP until Ctrl-C or SIGTERM. Every user of the machine can ask a port. With `--listen
SOCKET`, a path that has a slash, it is a Unix socket that its user alone may open; the socket goes at the end. A
request that names another host than this machine gets 403 on a port. No answer to a HEAD has a body. Up to eight
requests are answered at the same time, each within five seconds. An example for Grafana is
`packaging/examples/grafana.json`: import it, and choose the source.

| metric | type | labels | value |
|---|---|---|---|
| `faultless_NAME_total` | counter | `pid`, `command` | the counter `NAME` of the table above |
| `faultless_memory_bytes` | gauge | `pid`, `command`, `name` | the total of memory `name` of the table above |
| `faultless_knob` | gauge | `pid`, `command`, `knob` | what a knob is set to: sizes in bytes, switches 0 or 1; knobs with words are left out |
| `faultless_process_info` | info | `pid`, `command`, `plain` | 1 for each process; `plain`: why it runs plain, empty if it does not |

Of a `faultless run` with more than a thousand processes that have ended, those beyond are added up by program. Their
counters have `pid=\"0\"`, and the series of their own are gone. The sum over all series of a counter never gets smaller.
So add them up first, and take a rate of the sum.

Counters of times have other names, and seconds:

| counter | metric |
|---|---|
";

const PAGE: &str = "
The page is made at a process's first large request. It is a segment of System V shared memory without a key. Its owner
alone may attach it. The kernel removes it with the last process that has it mapped, however that ends;
`/proc/sysvipc/shm` lists it with the process that made it. A process that is killed in the few microseconds between
making the segment and marking it for removal leaves it behind. Under `faultless run` and `faultless stat -- PROGRAM` it
is the file DIR/PID instead, so that it can be read when the process has ended. A process in a PID namespace of its own
has the file DIR/PID.NAMESPACE.

The directory is `faultless-PID-START-NAMESPACE-N`, below `$XDG_RUNTIME_DIR`, `/dev/shm` or the directory for temporary
files: the command's number, when it was started (field 22 of `/proc/PID/stat`), and its PID namespace. The command
removes it at its end, unless a process still counts in it. So it stays behind when a process outlives the command, or
when the command is killed. The next command of the same user in the same PID namespace removes it, once no process of
the tree is left. Of processes that have ended the command keeps the pages of a thousand. It adds the others up by
program, in the file `folded` (JSON), and says there up to which page `folding-N` they go. A page is found by its owner
alone. Other users may pass through the directory to the file `lost`, of which they change the
time when they have to count elsewhere. Where neither a file nor a segment can be had, a process counts for itself
alone.

Neither takes a descriptor. A process in another IPC namespace (a container) has to be watched from in there.
Everything but the knobs is for the process to write. A command that finds another version or other tables says so and
reads nothing.
";

fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

fn statuses(text: &mut String, title: &str, statuses: &[(&str, &str)]) {
    *text += &format!("\n{title}:\n\n| status | meaning |\n|---|---|\n");
    statuses.iter().for_each(|(status, meaning)| *text += &format!("| {status} | {meaning} |\n"));
}

/// All of it.
pub fn text() -> String {
    let mut text = START.to_owned() + SETTINGS;
    text += "\n| name | variable | unit | range | default | counts | meaning |\n|---|---|---|---|---|---|---|\n";
    for knob in KNOBS {
        let default = if knob.default.is_empty() { "none" } else { knob.default };
        let (range, unit, when) = (range(knob.kind), unit(knob.kind), when(knob.when));
        let (name, variable, meaning) = (knob.name, knob.variable, cell(knob.meaning));
        text += &format!("| `{name}` | `{variable}` | {unit} | {range} | {default} | {when} | {meaning} |\n");
    }
    text += VARIABLES;
    text += COUNTERS_START;
    text += "\n| name | unit | Linux | meaning |\n|---|---|---|---|\n";
    for counter in COUNTERS {
        let detail = if counter.is_detail { " (detail)" } else { "" };
        let linux = if counter.linux.is_empty() { String::new() } else { format!("`{}`", counter.linux) };
        let (name, unit, meaning) = (counter.name, counter.unit.name(), cell(counter.meaning));
        text += &format!("| `{name}` | {unit} | {linux} | {meaning}{detail} |\n");
    }
    text += MEMORY;
    GAUGES.iter().for_each(|gauge| text += &format!("| `{}` | {} |\n", gauge.name, cell(gauge.meaning)));
    text += JSON;
    text += METRICS;
    for counter in COUNTERS.iter().filter(|counter| counter.unit == Unit::Ns) {
        text += &format!("| `{}` | `{}_total` |\n", counter.name, metric(counter));
    }
    text += "\n## Exit status\n";
    statuses(&mut text, "`faultless run`, and `faultless stat` with a program", RUN_STATUSES);
    statuses(&mut text, "`faultless stat` and `faultless sysctl`", STATUSES);
    statuses(&mut text, "`faultless top`", TOP_STATUSES);
    text += "\n`stat` and `sysctl` end by SIGPIPE when their output is not read any more.\n";
    text += &page();
    text
}

fn page() -> String {
    let magic = String::from_utf8_lossy(&MAGIC.to_le_bytes()).into_owned();
    let (knobs, blocks) = (offset_of!(Page, knobs), offset_of!(Page, block));
    let (block, bytes) = (size_of::<Block>(), size_of::<Page>());
    let rows = [
        ("0".to_owned(), "8", format!("`{magic}`, once everything else is filled in")),
        ("8".into(), "4", format!("version of this layout: {VERSION}")),
        ("12".into(), "4", "the process, as it sees itself".into()),
        ("16".into(), "4", format!("size of the whole: {bytes}")),
        ("20".into(), "4", "counters in a block".into()),
        ("24".into(), "4", "blocks; the sum of all is what counts".into()),
        ("28".into(), "4", "knobs".into()),
        ("32".into(), "8", "FNV-1a of the names of all counters, knobs and totals, each with a newline".into()),
        ("40".into(), "8", "since when it counts, in ns since the machine was started".into()),
        (offset_of!(Header, name).to_string(), "16", "the program's name, up to 15 bytes and a zero".into()),
        (
            offset_of!(Header, plain).to_string(),
            "4",
            "why it runs plain: a place in `PLAIN` of `crates/page/src/layout.rs`, or 0".into(),
        ),
        (knobs.to_string(), "8 each", "the knobs, in the order above".into()),
        (blocks.to_string(), "8 each", format!("the counters, in the order above; a block each {block} bytes")),
        (offset_of!(Page, gauges).to_string(), "8 each", "the totals of memory, in the order above".into()),
        (
            bytes.to_string(),
            "-",
            "behind the page, where the process has regions: the list of them, as `crates/page/src/listing.rs` says"
                .into(),
        ),
    ];
    let mut text = format!("\n## The page of a process, layout version {VERSION}\n{PAGE}");
    text += "\n| at | bytes | what |\n|---|---|---|\n";
    rows.iter().for_each(|(at, bytes, what)| text += &format!("| {at} | {bytes} | {what} |\n"));
    text
}
