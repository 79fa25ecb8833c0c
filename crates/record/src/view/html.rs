//! The report as one page, without network: data, styles and scripts are all in it.
//!
//! The page is `assets/page`; it draws with the libraries of `assets/vendor`. Here the data is put in. Call stacks
//! become numbers of names, and those with few faults become one, so that a page stays small.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::summary::{ByStack, Summary};

/// Call stacks of a page; the others are one.
const MOST_STACKS: usize = 3000;

const PAGE: &str = include_str!("../../assets/page/page.html");
const PARTS: [(&str, &str); 4] = [
    ("{{css}}", include_str!("../../assets/page/page.css")),
    ("{{d3}}", include_str!("../../assets/vendor/d3.min.js")),
    ("{{flamegraph}}", include_str!("../../assets/vendor/d3-flamegraph.umd.min.js")),
    ("{{script}}", include_str!("../../assets/page/page.js")),
];

/// The page.
pub fn html(summary: &Summary) -> serde_json::Result<String> {
    let mut data = serde_json::to_value(summary)?;
    let (names, stacks) = stacks(&summary.stacks);
    data["names"] = names;
    data["stacks"] = stacks;
    for (row, by) in summary.kinds.iter().enumerate() {
        data["kinds"][row]["text"] = by.kind.text().into();
    }
    for (row, of) in summary.avoidable.iter().enumerate() {
        data["avoidable"][row]["text"] = of.way.text().into();
    }
    if let Some(served) = &summary.served {
        data["served"]["rows"] =
            served.rows().iter().map(|row| json!({ "text": row.text, "bytes": row.bytes })).collect();
    }
    // In a script, no text may look like its end.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    // The data comes last: it may hold anything.
    let page = PARTS.iter().fold(PAGE.to_owned(), |page, (mark, part)| page.replacen(mark, part, 1));
    Ok(page.replacen("{{data}}", &data, 1))
}

/// The names of functions, and of each stack its faults and the numbers of its functions, the outermost first.
fn stacks(all: &[ByStack]) -> (Value, Value) {
    let (mut names, mut places) = (Vec::new(), HashMap::new());
    let mut place = |name: &str| {
        *places.entry(name.to_owned()).or_insert_with(|| {
            names.push(name.to_owned());
            names.len() - 1
        })
    };
    let (given, others) = all.split_at(all.len().min(MOST_STACKS));
    let mut rows: Vec<_> = given
        .iter()
        .map(|by| json!([by.part.faults, by.frames.iter().map(|frame| place(frame)).collect::<Vec<_>>()]))
        .collect();
    let rest = others.iter().fold(0u64, |sum, by| sum.saturating_add(by.part.faults));
    if rest > 0 {
        rows.push(json!([rest, [place("[other stacks]")]]));
    }
    (names.into(), rows.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Part;

    fn page(frames: &[&str], stacks: usize) -> String {
        let part = Part { faults: 2, ..Part::default() };
        let by = ByStack { frames: frames.iter().map(|frame| (*frame).into()).collect(), part };
        html(&Summary { stacks: vec![by; stacks], ..Summary::default() }).unwrap()
    }

    #[test]
    fn data_cannot_end_its_script_nor_load_anything() {
        let page = page(&["</script><script>alert(1)//", "{{d3}}"], 1);
        assert!(!page.contains("<script>alert") && page.contains("\\u003c/script>"));
        assert!(page.contains("\"{{d3}}\""), "a name that looks like a mark stays");
        for part in ["src=\"http", "href=\"http", "@import", "url(http"] {
            assert!(!page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<script").count(), 4);
        assert_eq!(page.matches("</script").count(), 4);
    }

    #[test]
    fn rare_stacks_are_one() {
        let page = page(&["a"], MOST_STACKS + 7);
        assert!(page.contains("[14,[1]]") && page.contains("[other stacks]"));
    }
}
