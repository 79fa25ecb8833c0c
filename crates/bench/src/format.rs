//! Figures as the tables give them.

use faultless_measure::paired::{Estimate, Ratio};

/// Seconds in the unit that suits them.
pub fn seconds(value: f64) -> String {
    let (scale, unit) = match value.abs() {
        v if v >= 1.0 => (1.0, "s"),
        v if v >= 1e-3 => (1e3, "ms"),
        v if v >= 1e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    format!("{} {unit}", three_digits(value * scale))
}

/// Bytes in the unit that suits them.
pub fn bytes(value: f64) -> String {
    let (scale, unit) = match value.abs() {
        v if v >= 1024f64.powi(3) => (1024f64.powi(3), "GiB"),
        v if v >= 1024f64.powi(2) => (1024f64.powi(2), "MiB"),
        _ => (1024.0, "KiB"),
    };
    format!("{} {unit}", three_digits(value / scale))
}

/// What a printed figure says: a number, with a unit of these or none.
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        "KiB" => 1024.0,
        "MiB" => 1024f64.powi(2),
        "GiB" => 1024f64.powi(3),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

/// A figure of several rounds with its interval.
pub fn estimate(estimate: &Estimate, show: fn(f64) -> String) -> String {
    let value = show(estimate.value);
    if estimate.rounds == 1 { value } else { format!("{value} ({}..{})", show(estimate.low), show(estimate.high)) }
}

/// A ratio with its interval.
pub fn interval(ratio: &Ratio) -> String {
    if ratio.pairs == 1 {
        return three_digits(ratio.value);
    }
    format!("{} ({}..{})", three_digits(ratio.value), three_digits(ratio.low), three_digits(ratio.high))
}

pub fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
