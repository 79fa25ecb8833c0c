//! Counters as text: in lines, as `perf stat` has them, or in columns, as `vmstat` has them.

use faultless_page::gauges::{GAUGES, Gauge};
use faultless_page::stats::Unit;

use super::select::{FAULTS, Selection};
use faultless_measure::figures::{seconds, size};
use faultless_measure::pages::Counters;

/// Columns of a counter's value, and of the name behind it.
const VALUE: usize = 16;
const NAME: usize = 20;
/// Columns from which there is room for more than that.
const ROOM: usize = 60;

/// A line for each counter: only those that counted something, unless they were asked for by name.
pub fn lines(selection: &Selection, counters: &Counters, over_s: f64, columns: usize) -> String {
    let mut text = String::new();
    for ((place, declared), label) in selection.places().zip(selection.declared()).zip(selection.labels()) {
        let value = counters.values()[place];
        if value == 0 && !selection.is_named {
            continue;
        }
        let more = match declared.unit {
            Unit::Bytes => size(value),
            Unit::Ns => seconds(value as f64 / 1e9),
            Unit::Calls => format!("{:.1} /s", value as f64 / over_s.max(1e-3)),
        };
        text += &format!("{value:>VALUE$} {label:<NAME$}");
        if columns >= ROOM && value > 0 {
            text += &format!(" # {more}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if !selection.is_named {
        text += &memory(counters, columns);
    }
    if text.is_empty() { format!("{:>VALUE$} of all counters\n", 0) } else { text }
}

/// A line for each total of memory that is not zero.
fn memory(counters: &Counters, columns: usize) -> String {
    let mut text = String::new();
    for (gauge, declared) in Gauge::ALL.iter().zip(GAUGES) {
        let value = counters.gauge(*gauge);
        if value == 0 {
            continue;
        }
        text += &format!("{value:>VALUE$} {:<NAME$}", declared.name);
        if columns >= ROOM {
            text += &format!(" # {} now", size(value));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// The line of the kernel's page faults, if they are shown.
pub fn faults(faults: Option<u64>, over_s: f64, columns: usize) -> String {
    let Some(value) = faults else { return String::new() };
    let mut text = format!("{value:>VALUE$} {FAULTS:<NAME$}");
    if columns >= ROOM && value > 0 {
        text += &format!(" # {:.1} /s", value as f64 / over_s.max(1e-3));
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// A number in five columns or little more.
pub fn short(value: u64, unit: Unit) -> String {
    let (step, units) = match unit {
        Unit::Bytes => (1024.0, ["", "K", "M", "G", "T", "P"]),
        _ => (1000.0, ["", "k", "m", "g", "t", "p"]),
    };
    if unit == Unit::Ns {
        return format!("{:.1}ms", value as f64 / 1e6);
    }
    let (mut scaled, mut i) = (value as f64, 0);
    while scaled >= step * 10.0 && i + 1 < units.len() {
        scaled /= step;
        i += 1;
    }
    // What looks like a whole number is one.
    if scaled.fract() == 0.0 { format!("{scaled}{}", units[i]) } else { format!("{scaled:.1}{}", units[i]) }
}

/// A table of a line per interval; where the terminal is too narrow for it, lines of one counter each.
pub struct Intervals {
    selection: Selection,
    width: usize,
    fits: bool,
    printed: usize,
}

const TIME: usize = 8;
/// The heading is repeated after this many lines.
const HEADING: usize = 20;

impl Intervals {
    /// For a terminal of `width` columns.
    pub fn new(selection: Selection, width: usize) -> Self {
        let labels = selection.has_faults.then_some(FAULTS).into_iter().chain(selection.labels());
        let needed = TIME + labels.map(|label| 1 + column(label)).sum::<usize>();
        Self { selection, width, fits: needed <= width, printed: 0 }
    }

    /// What one interval of `over_s` seconds, which ended after `time_s`, counted.
    pub fn line(&mut self, counters: &Counters, kernel: Option<u64>, time_s: f64, over_s: f64) -> String {
        if !self.fits {
            return format!("{time_s:>TIME$.2} s\n")
                + &faults(kernel, over_s, self.width)
                + &lines(&self.selection, counters, over_s, self.width);
        }
        let mut text = String::new();
        if self.printed % HEADING == 0 {
            text += &format!("{:>TIME$}", "time");
            for label in kernel.map(|_| FAULTS).into_iter().chain(self.selection.labels()) {
                text += &format!(" {label:>w$}", w = column(label));
            }
            text.push('\n');
        }
        self.printed += 1;
        text += &format!("{time_s:>TIME$.2}");
        if let Some(value) = kernel {
            text += &format!(" {:>w$}", short(value, Unit::Calls), w = column(FAULTS));
        }
        let columns = self.selection.places().zip(self.selection.declared()).zip(self.selection.labels());
        for ((place, declared), label) in columns {
            let value = short(counters.values()[place], declared.unit);
            text += &format!(" {value:>w$}", w = column(label));
        }
        text + "\n"
    }
}

fn column(name: &str) -> usize {
    name.len().max(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_page::stats::Counter;

    fn counters() -> Counters {
        let mut values = [0; faultless_page::stats::COUNT];
        values[Counter::MmapServed as usize] = 3;
        values[Counter::MmapBytes as usize] = 96 << 20;
        values[Counter::ScrubNs as usize] = 2_500_000;
        Counters::from_values(7, values.into_iter())
    }

    #[test]
    fn lines_show_what_counted_and_what_was_asked_for() {
        let all = lines(&Selection::new(&[]).unwrap(), &counters(), 2.0, 80);
        assert_eq!(
            all,
            "               3 mmap_served          # 1.5 /s\n       100663296 mmap_bytes           # 96 MiB\n         \
             2500000 scrub_ns             # 2.5 ms\n"
        );
        let dirty = Counters::zero().with_gauge(Gauge::Dirty, 3 << 20);
        assert_eq!(
            lines(&Selection::new(&[]).unwrap(), &dirty, 2.0, 80),
            "         3145728 Dirty                # 3 MiB now\n"
        );
        let named = Selection::new(&["malloc_served".into()]).unwrap();
        assert_eq!(lines(&named, &counters(), 2.0, 80), "               0 malloc_served\n");
        assert!(lines(&Selection::new(&[]).unwrap(), &Counters::zero(), 1.0, 80).contains("0 of all counters"));
        let everything = Selection::new(&["*".into()]).unwrap();
        let narrow = lines(&everything, &counters(), 2.0, 40);
        assert!(narrow.lines().all(|line| line.len() <= 40), "{narrow}");
        assert_eq!(narrow.lines().count(), faultless_page::stats::COUNT);
    }

    #[test]
    fn a_table_that_does_not_fit_becomes_lines() {
        let two = || Selection::of(&[Counter::MmapServed, Counter::MmapBytes]);
        let mut wide = Intervals::new(two(), 40);
        assert_eq!(
            wide.line(&counters(), None, 1.0, 1.0),
            "    time mmap_served mmap_bytes\n    1.00           3        96M\n"
        );
        assert_eq!(wide.line(&counters(), None, 2.0, 1.0).lines().count(), 1);
        let narrow = Intervals::new(two(), 30).line(&counters(), None, 1.0, 1.0);
        assert_eq!(narrow, "    1.00 s\n               3 mmap_served\n       100663296 mmap_bytes\n");
    }

    #[test]
    fn the_kernels_page_faults_have_a_line_or_a_column_of_their_own() {
        assert_eq!(faults(None, 1.0, 80), "");
        assert_eq!(faults(Some(16384), 2.0, 80), "           16384 faults               # 8192.0 /s\n");
        assert_eq!(faults(Some(0), 2.0, 80), "               0 faults\n");
        let mut intervals = Intervals::new(Selection::new(&["faults".into()]).unwrap(), 80);
        let text = intervals.line(&counters(), Some(5), 1.0, 1.0);
        assert_eq!(text, "    time  faults faults_regions\n    1.00       5              0\n");
    }

    #[test]
    fn short_numbers() {
        let bytes = [(0, "0"), (4095, "4095"), (64 << 20, "64M"), (3 << 29, "1536M"), (25 << 29, "12.5G")];
        assert!(bytes.iter().all(|(n, text)| short(*n, Unit::Bytes) == *text));
        assert_eq!((short(12_345, Unit::Calls), short(9_999, Unit::Calls)), ("12.3k".into(), "9999".into()));
        assert_eq!(short(1_500_000, Unit::Ns), "1.5ms");
    }
}
