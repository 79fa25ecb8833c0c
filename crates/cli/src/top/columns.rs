//! The columns of the list: what each shows, how wide it is, and how it sorts.

use std::cmp::Ordering;

use faultless_page::stats::{Counter, Unit};

use super::sample::Row;
use super::text::{percent, rate};
use crate::stat::short;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Column {
    /// The number of the process.
    Pid,
    /// What it runs.
    Command,
    /// Page faults a second.
    Faults,
    /// The share of a processor's time that they take.
    Time,
    /// Bytes handed out a second.
    Handed,
    /// Of what was handed out, the share that was in memory.
    Ready,
    /// Bytes zeroed in the background a second.
    Zeroed,
    /// Bytes kept a second when the program gave them back.
    Kept,
    /// Resident memory.
    Resident,
    /// Requests left to the kernel a second.
    Left,
}

/// All, in the order in which they stand. The last ones are left out first where there is no room.
pub const ALL: [Column; 10] = [
    Column::Pid,
    Column::Command,
    Column::Faults,
    Column::Time,
    Column::Handed,
    Column::Ready,
    Column::Zeroed,
    Column::Resident,
    Column::Kept,
    Column::Left,
];

/// What stands where a process has no such figure: it is not covered.
const NONE: &str = "-";

impl Column {
    /// Its heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::Command => "COMMAND",
            Self::Faults => "FAULTS/s",
            Self::Time => "TIME",
            Self::Handed => "HANDED/s",
            Self::Ready => "READY",
            Self::Zeroed => "ZEROED/s",
            Self::Kept => "KEPT/s",
            Self::Resident => "RESIDENT",
            Self::Left => "LEFT/s",
        }
    }

    /// Its width, with room for a mark before the title; the command's is what it needs at least.
    pub const fn width(self) -> u16 {
        match self {
            Self::Pid => 7,
            Self::Command => 15,
            Self::Faults | Self::Handed | Self::Zeroed | Self::Resident => 9,
            Self::Time => 5,
            Self::Ready => 6,
            Self::Kept | Self::Left => 7,
        }
    }

    /// Whether it stands at the left of its place.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Command)
    }

    /// What it says of a process.
    pub fn show(self, row: &Row) -> String {
        let of = |figure: &dyn Fn(&super::sample::Service) -> String| {
            row.covered.as_ref().map_or_else(|| NONE.to_owned(), figure)
        };
        match self {
            Self::Pid => row.process.pid.to_string(),
            Self::Command => named(row),
            Self::Faults => rate(row.faults, Unit::Calls),
            Self::Time => percent(row.time),
            Self::Handed => of(&|service| rate(service.handed(), Unit::Bytes)),
            Self::Ready => of(&|service| service.ready().map_or_else(|| NONE.to_owned(), percent)),
            Self::Zeroed => of(&|service| rate(service.rate(Counter::BytesScrubbed), Unit::Bytes)),
            Self::Kept => of(&|service| rate(service.rate(Counter::BytesKept), Unit::Bytes)),
            Self::Resident => short(row.resident, Unit::Bytes),
            Self::Left => of(&|service| rate(service.left(), Unit::Calls)),
        }
    }

    /// What it sorts by; of a process without such a figure, less than all others.
    fn figure(self, row: &Row) -> f64 {
        let of = |figure: &dyn Fn(&super::sample::Service) -> f64| row.covered.as_ref().map_or(-1.0, figure);
        match self {
            Self::Pid | Self::Command => f64::from(row.process.pid),
            Self::Faults => row.faults,
            Self::Time => row.time,
            Self::Handed => of(&super::sample::Service::handed),
            Self::Ready => of(&|service| service.ready().unwrap_or(-0.5)),
            Self::Zeroed => of(&|service| service.rate(Counter::BytesScrubbed)),
            Self::Kept => of(&|service| service.rate(Counter::BytesKept)),
            Self::Resident => row.resident as f64,
            Self::Left => of(&super::sample::Service::left),
        }
    }

    /// Which of two comes first: names in the order of letters, the lowest number, else the largest figure. Those that are
    /// equal stand in the order of their numbers, so that they do not jump.
    pub fn compare(self, a: &Row, b: &Row) -> Ordering {
        let first = match self {
            Self::Pid => Ordering::Equal,
            Self::Command => a.command.to_lowercase().cmp(&b.command.to_lowercase()),
            _ => self.figure(b).total_cmp(&self.figure(a)),
        };
        first.then(a.process.cmp(&b.process))
    }

    /// The next one to sort by, or the one before.
    pub fn beside(self, step: isize) -> Self {
        let at = ALL.iter().position(|column| *column == self).unwrap_or(0);
        ALL[(at as isize + step).rem_euclid(ALL.len() as isize) as usize]
    }
}

/// The name, marked where the process is not covered, or runs plain.
fn named(row: &Row) -> String {
    match &row.covered {
        None => format!("({})", row.command),
        Some(service) if service.all.plain().is_some() => format!("{} [plain]", row.command),
        Some(_) => row.command.clone(),
    }
}

/// The columns for which there is room: the first of them at any rate.
pub fn fitting(width: u16) -> Vec<Column> {
    let mut used = 2;
    let fits = |column: &&Column| {
        used += column.width() + 1;
        used <= width + 1
    };
    let shown = ALL.iter().take_while(fits).count().max(3);
    ALL[..shown].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_columns_have_room_for_what_matters() {
        assert_eq!(fitting(80).last(), Some(&Column::Resident));
        assert_eq!(fitting(120).len(), ALL.len());
        assert_eq!(fitting(5), [Column::Pid, Column::Command, Column::Faults]);
        let width = |columns: &[Column]| columns.iter().map(|column| column.width() + 1).sum::<u16>() + 1;
        assert!((40..200).all(|all| width(&fitting(all)) <= all));
        assert!(ALL.iter().all(|column| column.title().len() < column.width().into()));
    }

    #[test]
    fn the_columns_to_sort_by_go_round() {
        let round = |step: isize| (0..ALL.len()).fold(Column::Time, |column, _| column.beside(step));
        assert_eq!((round(1), round(-1)), (Column::Time, Column::Time));
        assert_eq!((Column::Left.beside(1), Column::Pid.beside(-1)), (Column::Pid, Column::Left));
    }
}
