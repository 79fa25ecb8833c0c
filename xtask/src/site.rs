//! The documentation as a site: the Markdown files of the repository, by mdBook, and the API documentation beside them.
//!
//! Files keep their places, so that their links hold: the site is built from a copy below `target/site` with one more file,
//! the order of the pages. Each link of the site is looked up in what was built, and some pages are opened in a browser.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::pages::beside;
use crate::shell::{cargo, command, is_installed, output, root, target};
use crate::structure::{self, Source};
use crate::watched;

/// What makes it. Built from source, without its server and what watches files.
const TOOL: &str = "mdbook";
const VERSION: &str = "0.5.4";
/// What looks at it, and what that needs.
const LOOKS: &str = "crates/e2e/scripts/site.py";
const BROWSER: [&str; 3] = ["chromium", "chromedriver", "python3"];
/// Where the API documentation is put.
const API: &str = "api";
/// Crates with an interface for others.
const CRATES: &str = "-p faultless -p faultless-capi";
const SUMMARY: &str = "docs/SUMMARY.md";
const BOOK: &str = "docs/book.toml";
const STYLE: &str = "docs/site.css";

/// Builds it in `target/site/html`, and checks its links.
pub fn run() -> Result<()> {
    let tool = install()?;
    let site = target().join("site");
    let _ = std::fs::remove_dir_all(&site);
    stage(&structure::sources()?, &site)?;
    watched::run(command(&tool).arg("build").arg(&site))?;
    watched::run(cargo(&format!("doc --no-deps {CRATES}")).env("RUSTDOCFLAGS", "-D warnings"))?;
    let html = site.join("html");
    copy(&target().join("doc"), &html.join(API))?;
    let wrong = violations(&html)?;
    wrong.iter().for_each(|wrong| eprintln!("site: {wrong}"));
    ensure!(wrong.is_empty(), "{} links of the site lead nowhere", wrong.len());
    look(&html)?;
    eprintln!("site: {}", html.join("index.html").display());
    Ok(())
}

/// Opens some of its pages in a browser, where they have to work: the console, the network, the side bar, a phone's
/// width, both themes.
fn look(html: &Path) -> Result<()> {
    if let Some(missing) = BROWSER.iter().find(|program| !is_installed(program)) {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        ensure!(!is_ci, "{missing} is not installed, so the site cannot be looked at");
        eprintln!("site: not looked at in a browser: {missing} is not installed");
        return Ok(());
    }
    watched::run(command("python3").arg("-B").arg(root().join(LOOKS)).arg(html))
}

fn install() -> Result<PathBuf> {
    let root = target().join("tools");
    let tool = root.join("bin").join(TOOL);
    let has = output(command(&tool).arg("--version")).is_ok_and(|said| said.trim().ends_with(VERSION));
    if !has {
        let install = format!(
            "install --quiet --locked --debug {TOOL}@{VERSION} --no-default-features --features search --root"
        );
        watched::run(cargo(&install).arg(&root).arg("--target-dir").arg(root.join("build")))?;
        let _ = std::fs::remove_dir_all(root.join("build"));
    }
    Ok(tool)
}

/// Puts the pages, and files beside them that they link to, where mdBook takes them from.
fn stage(sources: &[Source], site: &Path) -> Result<()> {
    let put = |path: &str, text: &[u8]| -> Result<()> {
        let to = site.join(path);
        std::fs::create_dir_all(to.parent().context("a place in the site")?)?;
        std::fs::write(&to, text).with_context(|| to.display().to_string())
    };
    for source in sources.iter().filter(|source| source.path.ends_with(".md") && source.path != SUMMARY) {
        put(&format!("src/{}", source.path), source.text.as_bytes())?;
        for link in crate::pages::targets(&source.text) {
            let path = beside(&source.path, link.split('#').next().unwrap_or_default());
            let is_other = !link.contains("://") && !path.ends_with(".md") && root().join(&path).is_file();
            if is_other {
                put(&format!("src/{path}"), &std::fs::read(root().join(&path))?)?;
            }
        }
    }
    let read = |path: &str| std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned());
    put("src/SUMMARY.md", summary(&read(SUMMARY)?).as_bytes())?;
    put("site.css", read(STYLE)?.as_bytes())?;
    put("book.toml", read(BOOK)?.as_bytes())
}

/// The order of the pages, with links from the root of the repository.
fn summary(text: &str) -> String {
    let line = |line: &str| match line.rsplit_once("](") {
        Some((before, link)) => format!("{before}]({})\n", beside(SUMMARY, link.trim_end_matches(')'))),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Links of the book's pages that lead nowhere. Those of the API documentation are rustdoc's.
fn violations(html: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    collect(html, html, &mut pages)?;
    let ids: BTreeMap<_, BTreeSet<_>> =
        pages.iter().map(|(path, text)| (path.as_str(), attributes(text, "id").collect())).collect();
    let mut wrong = Vec::new();
    // The page for addresses that are not there has links from the root of a server.
    for (path, text) in pages.iter().filter(|(path, _)| *path != "404.html") {
        for link in ["href", "src"].into_iter().flat_map(|name| attributes(text, name)) {
            let is_outside = link.contains(':') || link.starts_with("//");
            let (file, id) = link.split_once('#').map_or((link, None), |(file, id)| (file, Some(id)));
            let target = if file.is_empty() { path.clone() } else { beside(path, file) };
            let has = |id: &str| ids.get(target.as_str()).is_some_and(|ids| id.is_empty() || ids.contains(id));
            if !(is_outside || html.join(&target).exists() && id.is_none_or(has)) {
                wrong.push(format!("{path}: the link {link} leads nowhere"));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    Ok(wrong)
}

/// The pages below `dir`, by their paths from `html` on.
fn collect(html: &Path, dir: &Path, pages: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.strip_prefix(html)?.to_string_lossy().into_owned();
        if path.is_dir() && name != API {
            collect(html, &path, pages)?;
        } else if name.ends_with(".html") {
            pages.insert(name, std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The values of an attribute in a page: written as mdBook writes them, ` name="value"`.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {name}=\"");
    let places: Vec<_> = text.match_indices(&start).map(|(at, _)| at + start.len()).collect();
    places.into_iter().filter_map(|at| text[at..].split_once('"').map(|(value, _)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_has_links_from_the_root() {
        assert_eq!(
            summary("# Summary\n\n[a](../README.md)\n- [b](results/b.md)\n"),
            "# Summary\n\n[a](README.md)\n- [b](docs/results/b.md)\n"
        );
    }

    #[test]
    fn attributes_are_found() {
        let text = r#"<a href="x.html#y" id="a"><img src="z.png"></a><a href="">"#;
        assert_eq!(attributes(text, "href").collect::<Vec<_>>(), ["x.html#y", ""]);
        assert_eq!(attributes(text, "id").collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let dir = std::env::temp_dir().join(format!("faultless-site-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("docs")).unwrap();
        let page =
            r##"<h1 id="here"></h1><a href="../index.html#there"></a><a href="#here"></a><a href="https://x/">"##;
        std::fs::write(dir.join("docs/a.html"), page).unwrap();
        std::fs::write(dir.join("index.html"), r#"<h1 id="there"><a href="docs/a.html#none"><img src="b.png">"#)
            .unwrap();
        let found = violations(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(
            found.unwrap(),
            ["index.html: the link b.png leads nowhere", "index.html: the link docs/a.html#none leads nowhere"]
        );
    }
}
