//! Figures and lines for people.

/// `text` in lines of 80 columns at most, each after `indent`.
pub fn wrap(text: &str, indent: &str) -> String {
    wrap_at(text, indent, 80)
}

/// `text` in lines of `columns` columns at most, each after `indent`.
pub fn wrap_at(text: &str, indent: &str, columns: usize) -> String {
    let mut lines = indent.to_owned();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && indent.len() + column + 1 + width > columns {
            lines.push('\n');
            lines.push_str(indent);
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

/// A number of bytes for people.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value.fract() == 0.0 || value >= 1000.0 {
        0
    } else if value >= 100.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[unit])
}

/// A time for people.
pub fn seconds(s: f64) -> String {
    match s.abs() {
        0.0 => "0 s".into(),
        a if a < 1e-3 => format!("{:.0} µs", s * 1e6),
        a if a < 1.0 => format!("{:.1} ms", s * 1e3),
        _ => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        let sizes =
            [(0, "0 bytes"), (1023, "1023 bytes"), (64 << 10, "64 KiB"), (1536, "1.50 KiB"), (5 << 40, "5 TiB")];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size(300 * (1 << 30) + (1 << 29)), "300.5 GiB");
        for (s, text) in
            [(0.0, "0 s"), (5e-6, "5 µs"), (0.0125, "12.5 ms"), (2.345, "2.35 s"), (-0.002, "-2.0 ms")]
        {
            assert_eq!(seconds(s), text);
        }
    }

    #[test]
    fn lines_end_at_80_columns() {
        let text = wrap(&"word ".repeat(40), "  ");
        assert!(text.lines().all(|line| line.len() <= 80 && line.starts_with("  word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
        assert_eq!(text.lines().next().unwrap().len(), 76);
        assert_eq!(wrap(&"x".repeat(100), "").len(), 100);
    }
}
