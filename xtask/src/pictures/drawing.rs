//! The text of a terminal as a picture: SVG, of which the text stays text.

use std::fmt::Write;

/// Of a letter, in the picture's own unit.
const WIDTH: f64 = 8.0;
const HEIGHT: f64 = 17.0;
/// Around the text.
const EDGE: f64 = 12.0;
/// The sixteen colours of a terminal, dark on light.
const COLOURS: [&str; 16] = [
    "#24292f", "#cf222e", "#116329", "#7d4e00", "#0550ae", "#8250df", "#1b7c83", "#6e7781", "#57606a", "#a40e26",
    "#1a7f37", "#633c01", "#0969da", "#6639ba", "#3192aa", "#8c959f",
];
const TEXT: &str = "#24292f";
const PAPER: &str = "#f6f8fa";

/// How letters look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Look {
    colour: Option<usize>,
    behind: Option<usize>,
    bold: bool,
    dim: bool,
    swapped: bool,
}

impl Look {
    /// Takes the numbers of an escape sequence that changes the look. Colours beyond the sixteen stay as they are.
    fn change(&mut self, numbers: &str) {
        let mut numbers = numbers.split(';').map(|number| number.parse().unwrap_or(0usize));
        while let Some(number) = numbers.next() {
            match number {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                7 => self.swapped = true,
                22 => (self.bold, self.dim) = (false, false),
                27 => self.swapped = false,
                30..=37 => self.colour = Some(number - 30),
                39 => self.colour = None,
                40..=47 => self.behind = Some(number - 40),
                49 => self.behind = None,
                90..=97 => self.colour = Some(number - 82),
                100..=107 => self.behind = Some(number - 92),
                38 | 48 => {
                    let index = numbers.nth(1).filter(|index| *index < COLOURS.len());
                    *if number == 38 { &mut self.colour } else { &mut self.behind } = index;
                }
                _ => {}
            }
        }
    }

    /// The colours of letters, and behind them.
    fn colours(self) -> (&'static str, &'static str) {
        let of = |index: Option<usize>, other| index.map_or(other, |index| COLOURS[index]);
        let (text, behind) = (of(self.colour, TEXT), of(self.behind, PAPER));
        if self.swapped { (behind, text) } else { (text, behind) }
    }
}

/// Letters of one look in a row.
type Run = (Look, String);

/// A line's text by looks; the look at its end is that of the next line's beginning.
fn runs(line: &str, look: &mut Look) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\x1b[") {
            let end = sequence.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(sequence.len());
            if sequence[end..].starts_with('m') {
                look.change(&sequence[..end]);
            }
            rest = sequence.get(end + 1..).unwrap_or("");
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match runs.last_mut() {
            Some((last, text)) if last == look => text.push(letter),
            _ => runs.push((*look, letter.to_string())),
        }
    }
    runs
}

/// The picture of what `screen` has; `title` is what readers hear that do not see it.
pub fn svg(screen: &str, columns: usize, title: &str) -> String {
    let lines: Vec<_> = screen.trim_end().lines().collect();
    let (width, height) = (columns as f64 * WIDTH + 2.0 * EDGE, lines.len() as f64 * HEIGHT + 2.0 * EDGE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" \
         font-size=\"13\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{PAPER}\"/>\n",
        escaped(title)
    );
    let mut look = Look::default();
    for (row, line) in lines.iter().enumerate() {
        let (mut column, top) = (0, EDGE + row as f64 * HEIGHT);
        for (look, text) in runs(line, &mut look) {
            let letters = text.chars().count();
            let (left, length) = (EDGE + column as f64 * WIDTH, letters as f64 * WIDTH);
            column += letters;
            let (colour, behind) = look.colours();
            if behind != PAPER {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{length}\" height=\"{HEIGHT}\" fill=\"{behind}\"/>"
                );
            }
            if text.trim().is_empty() {
                continue;
            }
            let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
            let dim = if look.dim { " opacity=\"0.75\"" } else { "" };
            let _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{}\" textLength=\"{length}\" fill=\"{colour}\"{weight}{dim} \
                 xml:space=\"preserve\">{}</text>",
                top + HEIGHT - 4.0,
                escaped(&text)
            );
        }
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_divided_by_its_looks() {
        let mut look = Look::default();
        let found = runs("a\x1b[1;31mb\x1b[0mc\x1b[38;5;2md\x1b[7", &mut look);
        let texts: Vec<_> = found.iter().map(|(look, text)| (look.bold, look.colour, text.as_str())).collect();
        assert_eq!(texts, [(false, None, "a"), (true, Some(1), "b"), (false, None, "c"), (false, Some(2), "d")]);
    }

    #[test]
    fn letters_keep_their_columns_and_are_escaped() {
        let picture = svg("ab\x1b[7m<\x1b[0m\n\n", 10, "a & b");
        assert!(picture.contains("<title>a &amp; b</title>") && picture.contains(">&lt;</text>"));
        assert!(picture.contains("x=\"28\"") && picture.contains("width=\"104\" height=\"41\""), "{picture}");
        assert_eq!(picture.matches("<rect").count(), 2, "the paper, and what is behind a letter");
    }
}
