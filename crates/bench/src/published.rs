//! Every verdict in docs/ follows from the interval that stands beside it, by the [rule](super::rule).
//!
//! Verdicts without an interval are left out: counts, and single rounds.

use crate::format::{parse, seconds, three_digits};
use crate::rule::{Aim, Reached, Verdict, judge};
use faultless_measure::paired::{Estimate, RESOLVING};

/// A claim as it is printed.
#[derive(Debug)]
struct Claim {
    text: String,
    aim: Aim,
    low: f64,
    high: f64,
    /// How its figures are printed.
    show: fn(f64) -> String,
    /// What the table's column says.
    rounds: Option<usize>,
}

/// What a text says came out; nothing where it does not say.
fn said(text: &str) -> Option<&'static str> {
    let text = text.trim_start().trim_start_matches('*');
    ["met", "missed", "unresolved"].into_iter().find(|word| text.starts_with(word))
}

/// The rounds that a verdict names: "met in 3 rounds".
fn few(text: &str) -> Option<usize> {
    text.split_once(" in ")?.1.split_once(" rounds")?.0.parse().ok()
}

/// The first interval of a text, and what follows it.
fn interval(text: &str) -> Option<(f64, f64, &str)> {
    text.match_indices('(').find_map(|(at, _)| {
        let (inside, rest) = text[at + 1..].split_once(')')?;
        let (low, high) = inside.split_once("..")?;
        Some((parse(low)?, parse(high)?, rest))
    })
}

/// A line below a table: "… V (L..H) times as fast, aimed at N: verdict", or of seconds "… V (L..H), aimed at N at most".
fn line(text: &str) -> Option<Claim> {
    let (figure, rest) = text.split_once(", aimed at ")?;
    // The last interval before the aim: names may have some of their own.
    let (low, high, unit) = figure.rfind('(').and_then(|at| interval(&figure[at..]))?;
    let (aim, text) = rest.split_once(": ")?;
    let aim = match (unit.trim_start(), aim.strip_suffix(" at most")) {
        (unit, None) if unit.starts_with("times as fast") => Aim::AtLeast(parse(aim)?),
        (unit, Some(most)) if unit.is_empty() || unit.starts_with("times as long") => Aim::AtMost(parse(most)?),
        _ => return None,
    };
    let show = if unit.is_empty() { seconds } else { three_digits };
    Some(Claim { text: text.into(), aim, low, high, show, rounds: None })
}

/// The targets of a row of a table: "≥ N × other: V (L..H), verdict", or of seconds "≤ other + N: V (L..H), verdict". The
/// column before them has the rounds. Where a target has no figure of its own, it is the row's ratio to plain.
fn row(text: &str) -> Vec<Claim> {
    let before = text.find(['≥', '≤']).map(|at| &text[..at]);
    let of_row = before.and_then(interval);
    let rounds =
        before.and_then(|before| before.trim_end_matches([' ', '|']).rsplit('|').next()?.trim().parse().ok());
    let targets = text.match_indices(['≥', '≤']).filter_map(|(at, sign)| {
        let target = text[at + sign.len()..].split([';', '|']).next()?;
        let (aimed, rest) = target.trim().split_once(": ")?;
        let (aim, name) =
            aimed.split_once(" × ").or_else(|| aimed.split_once(" + ").map(|(name, aim)| (aim, name)))?;
        let (low, high, text) = match interval(rest) {
            Some((low, high, rest)) => (low, high, rest.strip_prefix(", ")?),
            None if aimed.contains(" × plain") && said(rest).is_some() => (of_row?.0, of_row?.1, rest),
            None => return None,
        };
        let aim = parse(aim)?;
        let aim = if sign == "≥" { Aim::AtLeast(aim) } else { Aim::AtMost(aim) };
        // Another row may have had fewer.
        let rounds = rounds.filter(|_| !name.starts_with("its own"));
        let show = if aimed.contains(" + ") { seconds } else { three_digits };
        Some(Claim { text: text.into(), aim, low, high, show, rounds })
    });
    targets.collect()
}

/// All claims of a page. Its lines are put together again where they were broken.
fn claims(page: &str) -> Vec<Claim> {
    let mut whole: Vec<String> = Vec::new();
    for part in page.lines() {
        match whole.last_mut() {
            Some(last) if last.starts_with("- ") && part.starts_with("  ") => {
                last.push(' ');
                last.push_str(part.trim_start());
            }
            _ => whole.push(part.into()),
        }
    }
    let of = |text: &String| if text.starts_with('|') { row(text) } else { line(text).into_iter().collect() };
    whole.iter().flat_map(of).filter(|claim| said(&claim.text).is_some()).collect()
}

/// Whether the rule says the same of it. A verdict that names no rounds rests on enough of them, or is unresolved.
fn follows(claim: &Claim) -> bool {
    let few = few(&claim.text);
    let pairs = claim.rounds.or(few).unwrap_or(RESOLVING);
    let figure = Estimate { value: claim.low, low: claim.low, high: claim.high, rounds: pairs };
    let judged = judge(claim.aim, Reached::shown(&figure, claim.show));
    let word = match judged.verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Unresolved(_) => "unresolved",
    };
    said(&claim.text) == Some(word) && judged.few == few
}

#[test]
fn each_verdict_in_the_docs_follows_from_its_interval() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let pages = glob::glob(&format!("{docs}/**/*.md")).expect("a pattern");
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in pages.map(|path| path.expect("it can be read")) {
        let page = std::fs::read_to_string(&path).expect("it can be read");
        for claim in claims(&page) {
            checked += 1;
            if !follows(&claim) {
                wrong.push(format!("{}: {claim:?}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 60, "{checked} verdicts were found");
}

#[test]
fn verdicts_that_do_not_follow_are_found() {
    let page = "- a, by (x): 85.6 (10.4..92.0) times as\n  fast, aimed at 60: met\n\
        - b: 0.79 (0.76..2.78) times as long, aimed at 1 at most: met in 3 rounds\n\
        - c: 1.63 (1.45..1.78) times as fast, aimed at 1.9: **missed**\n\
        | d | 3 | ≥ 2 × plain: 3.1 (2.0..4.2), met; ≤ 1.01 × huge pages always: 1.07 (1.02..1.19), met |\n\
        | e | 0.99 (0.97..1.02) | 20 | ≤ 1.01 × plain: met |\n\
        | f | 0.64 | 1 | ≤ 0.8 × plain: unresolved: one round |\n\
        - g: 1.00 (0.98..1.01) times as long, aimed at 1.01 at most: met\n\
        - h: 1.32 (1.20..1.44) times as fast, aimed at 1.1: unresolved: one round\n\
        - i, for each 2 MiB: 180 ns (170 ns..201 ns), aimed at 200 ns at most: met\n\
        - j: 180 ns (170 ns..190 ns), aimed at 200 ns at most: met in 3 rounds\n\
        | k | 0.93 (0.92..0.94) | 3 | ≤ 1.01 × plain: met |\n\
        | l | 0.93 (0.92..0.94) | 3 | ≤ 1.01 × plain: met in 2 rounds |\n\
        | m | 0.93 (0.92..0.94) | 3 | ≤ plain + 5.00 ms: 4.00 ms (3.90 ms..4.10 ms), met in 3 rounds |\n\
        | n | 0.93 (0.92..0.94) | 9 | ≤ plain + 5.00 ms: 4.00 ms (3.90 ms..5.10 ms), met |\n";
    let all = claims(page);
    let expected = [false, false, true, false, false, false, false, false, false, true, false, false, true, false];
    assert_eq!(all.iter().map(follows).collect::<Vec<_>>(), expected, "{all:#?}");
    assert_eq!((all[0].aim, all[0].low, all[0].high), (Aim::AtLeast(60.0), 10.4, 92.0));
    assert_eq!(all[4].aim, Aim::AtMost(1.01));
}
