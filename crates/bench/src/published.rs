//! Every verdict in docs/ follows from the interval that stands beside it, by the [rule](super::rule).
//!
//! Verdicts without an interval are left out: counts, single rounds, differences whose interval is not printed.

use crate::rule::{Aim, Verdict, judge};
use faultless_measure::paired::{RESOLVING, Ratio};

/// A claim as it is printed.
#[derive(Debug, PartialEq)]
struct Claim {
    text: String,
    aim: Aim,
    low: f64,
    high: f64,
}

/// What a text says came out; nothing where it does not say.
fn said(text: &str) -> Option<&'static str> {
    let text = text.trim_start().trim_start_matches('*');
    ["met", "missed", "unresolved"].into_iter().find(|word| text.starts_with(word))
}

fn number(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].trim_end_matches('.').parse().ok()
}

/// The first interval of a text, and what follows it.
fn interval(text: &str) -> Option<(f64, f64, &str)> {
    text.match_indices('(').find_map(|(at, _)| {
        let (inside, rest) = text[at + 1..].split_once(')')?;
        let (low, high) = inside.split_once("..")?;
        Some((low.parse().ok()?, high.parse().ok()?, rest))
    })
}

/// A line below a table: "… V (L..H) times as fast, aimed at N: verdict".
fn line(text: &str) -> Option<Claim> {
    let (figure, rest) = text.split_once(", aimed at ")?;
    // The last interval before the aim: names may have some of their own.
    let (low, high, unit) = figure.rfind('(').and_then(|at| interval(&figure[at..]))?;
    let aim = number(rest)?;
    let aim = match (unit.trim_start(), rest.split_once(": ")?.0.ends_with("at most")) {
        (unit, false) if unit.starts_with("times as fast") => Aim::AtLeast(aim),
        (unit, true) if unit.starts_with("times as long") => Aim::AtMost(aim),
        _ => return None,
    };
    Some(Claim { text: rest.split_once(": ")?.1.into(), aim, low, high })
}

/// The targets of a row of a table: "≥ N × other: V (L..H), verdict". Where a target has no figure of its own, it is the
/// row's ratio to plain.
fn row(text: &str) -> Vec<Claim> {
    let of_row = text.find(['≥', '≤']).and_then(|at| interval(&text[..at]));
    let targets = text.match_indices(['≥', '≤']).filter_map(|(at, sign)| {
        let target = text[at + sign.len()..].split([';', '|']).next()?;
        let (aim, rest) = target.trim().split_once(" × ")?;
        let (name, rest) = rest.split_once(": ")?;
        let (low, high, text) = match interval(rest) {
            Some((low, high, rest)) => (low, high, rest.strip_prefix(", ")?),
            None if name == "plain" && said(rest).is_some() => (of_row?.0, of_row?.1, rest),
            None => return None,
        };
        let aim = number(aim)?;
        let aim = if sign == "≥" { Aim::AtLeast(aim) } else { Aim::AtMost(aim) };
        Some(Claim { text: text.into(), aim, low, high })
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

/// What the rule says of it. The rounds are enough for an interval, so that it alone decides.
fn follows(claim: &Claim) -> bool {
    let ratio = Ratio { value: claim.low, low: claim.low, high: claim.high, pairs: RESOLVING };
    let one_round = claim.text.ends_with("one round");
    let word = match judge(claim.aim, ratio).verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Unresolved(_) => "unresolved",
    };
    one_round || said(&claim.text) == Some(word)
}

#[test]
fn each_verdict_in_the_docs_follows_from_its_interval() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let pages = glob::glob(&format!("{docs}/**/*.md")).expect("a pattern");
    let mut checked = 0;
    for path in pages.map(|path| path.expect("it can be read")) {
        let page = std::fs::read_to_string(&path).expect("it can be read");
        for claim in claims(&page) {
            assert!(follows(&claim), "{}: {claim:?}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked} verdicts were found");
}

#[test]
fn verdicts_that_do_not_follow_are_found() {
    let page = "- a, by (x): 85.6 (10.4..92.0) times as\n  fast, aimed at 60: met\n\
        - b: 0.79 (0.76..2.78) times as long, aimed at 1 at most: met in 3 rounds\n\
        - c: 1.63 (1.45..1.78) times as fast, aimed at 1.9: **missed**\n\
        | d | 3 | ≥ 2 × plain: 3.1 (2.0..4.2), met; ≤ 1.01 × huge pages always: 1.07 (1.02..1.19), met |\n\
        | e | 0.99 (0.97..1.02) | 20 | ≤ 1.01 × plain: met |\n\
        | f | 0.64 | 1 | ≤ 0.8 × plain: unresolved: one round |\n";
    let all = claims(page);
    assert_eq!(all.iter().map(follows).collect::<Vec<_>>(), [false, false, true, true, false, false], "{all:?}");
    assert_eq!((all[0].aim, all[0].low, all[0].high), (Aim::AtLeast(60.0), 10.4, 92.0));
    assert_eq!(all[4].aim, Aim::AtMost(1.01));
}
