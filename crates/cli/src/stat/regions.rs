//! Regions as text: a line for each, in columns where there is room for them.

use faultless_page::stats::{Counter, Unit};

use super::show::short;
use faultless_measure::figures::seconds;
use faultless_measure::pages::Regions;

/// A region, or all others together.
struct Row {
    name: String,
    delivery: &'static str,
    bytes: String,
    present: String,
    counted: [String; 5],
}

/// What the columns are, from the delivery on.
const HEADS: [&str; 8] = ["delivery", "length", "hits", "missed", "ahead", "unused", "in faults", "present"];
/// Columns of an address, and of each of the others.
const NAME: usize = 12;
const WIDTHS: [usize; 8] = [8, 7, 7, 7, 7, 7, 9, 7];

fn counted(get: impl Fn(Counter) -> u64) -> [String; 5] {
    let calls = |counter| short(get(counter), Unit::Calls);
    [
        calls(Counter::RegionWindowHits),
        calls(Counter::RegionWindowMisses),
        calls(Counter::RegionPrefaulted),
        calls(Counter::RegionUnused),
        seconds(get(Counter::RegionFaultNs) as f64 / 1e9),
    ]
}

fn rows(regions: &Regions) -> Vec<Row> {
    let bytes = |bytes: u64| short(bytes, Unit::Bytes);
    let mut rows: Vec<_> = regions
        .each
        .iter()
        .map(|region| Row {
            name: format!("{:x}", region.start),
            delivery: region.delivery,
            bytes: bytes(region.bytes),
            present: match region.present_bytes {
                _ if region.ended => "ended".into(),
                Some(present) => bytes(present),
                None => "?".into(),
            },
            counted: counted(|counter| region.get(counter)),
        })
        .collect();
    if regions.others > 0 {
        rows.push(Row {
            name: format!("{} others", regions.others),
            delivery: "",
            bytes: String::new(),
            present: String::new(),
            counted: counted(|counter| regions.rest(counter)),
        });
    }
    rows
}

impl Row {
    fn cells(&self) -> [&str; 8] {
        let [hits, missed, ahead, unused, time] = &self.counted;
        [self.delivery, &self.bytes, hits, missed, ahead, unused, time, &self.present]
    }
}

/// The regions of one process: nothing if it has none.
pub fn text(regions: &Regions, columns: usize) -> String {
    let rows = rows(regions);
    if rows.is_empty() {
        return String::new();
    }
    let needed = NAME + WIDTHS.iter().map(|width| width + 1).sum::<usize>();
    if columns < needed {
        return rows.iter().map(narrow).collect();
    }
    let line = |name: &str, cells: [&str; 8]| {
        let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!(" {cell:>width$}"));
        (format!("{name:>NAME$}") + &cells.collect::<String>()).trim_end().to_owned() + "\n"
    };
    let mut text = line("region", HEADS);
    rows.iter().for_each(|row| text += &line(&row.name, row.cells()));
    text
}

/// The same below each other.
fn narrow(row: &Row) -> String {
    let cells = row.cells().into_iter().zip(HEADS).filter(|(cell, _)| !cell.is_empty());
    let lines = cells.map(|(cell, head)| format!("{cell:>16} {head}\n"));
    format!("region {}\n", row.name) + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_base::PAGE;
    use faultless_measure::pages::regions::made::Made;
    use faultless_page::stats::Counter;

    #[test]
    fn a_table_fits_80_columns_and_lines_fit_less() {
        let listing = Made::default();
        let span = |at| faultless_base::Span::new(at, 64 << 20);
        let first = listing.take(span(0x7fff_1234_5000), 2);
        for (counter, n) in
            [(Counter::RegionWindowHits, 12), (Counter::RegionPages, 20_000), (Counter::RegionFaultNs, 3_200_000)]
        {
            first.line(0).add(counter, n);
        }
        first.drop_pages(20_000 - 512);
        listing.take(span(1 << 30), 3).end();
        let regions = listing.read();
        let wide = text(&regions, 80);
        assert!(wide.lines().all(|line| line.len() <= 80), "{wide}");
        let lines: Vec<Vec<&str>> = wide.lines().map(|line| line.split_whitespace().collect()).collect();
        let present = format!("{}K", 512 * PAGE / 1024);
        assert_eq!(lines[1], ["7fff12345000", "thread", "64M", "12", "0", "0", "0", "3.2", "ms", &*present]);
        assert_eq!(lines[2][0], "40000000");
        assert_eq!(lines[2].last(), Some(&"ended"));
        let narrow = text(&regions, 40);
        assert!(narrow.lines().all(|line| line.len() <= 40), "{narrow}");
        assert_eq!(narrow.lines().count(), 2 * 9);
        assert_eq!(text(&Regions::default(), 80), "");
    }
}
