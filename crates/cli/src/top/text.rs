//! How it looks: numbers as short as `stat` has them, and what the terminal can show.

use std::env;

use faultless_page::stats::Unit;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;

use crate::stat::short;

/// Bars of the letters that every terminal has.
const PLAIN: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "*",
    five_eighths: "+",
    half: "=",
    three_eighths: "-",
    one_quarter: ":",
    one_eighth: ".",
    empty: " ",
};

/// What the terminal shows. Nothing is told by colour alone.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    has_colour: bool,
    has_blocks: bool,
}

impl Look {
    /// As the environment says: no colours with NO_COLOR, and the letters of ASCII where the locale is not UTF-8.
    pub fn of_environment() -> Self {
        let value = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value).unwrap_or_default().to_lowercase();
        Self {
            has_colour: value("NO_COLOR").is_none(),
            has_blocks: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// Neither colours nor other letters than ASCII's.
    #[cfg(test)]
    pub const PLAIN: Self = Self { has_colour: false, has_blocks: false };

    /// Of graphs.
    pub fn bars(self) -> bar::Set<'static> {
        if self.has_blocks { bar::NINE_LEVELS } else { PLAIN }
    }

    fn coloured(self, style: Style, colour: Color) -> Style {
        if self.has_colour { style.fg(colour) } else { style }
    }

    /// Of headings.
    pub fn heading(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Cyan)
    }

    /// Of what is chosen.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Of what went wrong.
    pub fn wrong(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Red)
    }

    /// Of graphs.
    pub fn graph(self) -> Style {
        self.coloured(Style::new(), Color::Green)
    }
}

/// A rate for one column: with a digit behind the point where it is small.
pub fn rate(value: f64, unit: Unit) -> String {
    match unit {
        _ if value == 0.0 => "0".into(),
        Unit::Calls if value < 9.95 => format!("{value:.1}"),
        _ => short(value.round() as u64, unit),
    }
}

/// A share of one, in percent.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 9.95 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let calls = [(0.0, "0"), (0.25, "0.2"), (9.9, "9.9"), (12.4, "12"), (123_456.0, "123.5k")];
        assert!(calls.iter().all(|(n, text)| rate(*n, Unit::Calls) == *text));
        assert_eq!(rate(f64::from(3 << 20), Unit::Bytes), "3072K");
        let shares = [(0.0, "0%"), (0.001, "0.1%"), (0.5, "50%"), (1.0, "100%"), (12.5, "1250%")];
        assert!(shares.iter().all(|(n, text)| percent(*n) == *text), "{:?}", shares.map(|(n, _)| percent(n)));
    }
}
