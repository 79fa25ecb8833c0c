//! The package for Debian and Ubuntu.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{VERSION, date, empty, floor, place, stage};
use crate::shell::{command, output, run};

/// Where systemd has the units of packages, below `/usr`.
pub const SYSTEMD: &str = "lib/systemd";

/// How a package says that it needs the C library from some version on.
pub const C_LIBRARY: &str = "libc6 (>= ";

/// Makes it, with dpkg's own tools.
pub fn make() -> Result<PathBuf> {
    let staged = stage::prefix("prefix")?;
    let tree = empty("deb")?;
    let usr = tree.join("usr");
    fs::rename(staged, &usr)?;
    suit_debian(&usr)?;
    let depends = depends(&usr)?;
    fs::create_dir(tree.join("DEBIAN"))?;
    fs::write(tree.join("DEBIAN/control"), control(&depends, size(&usr)?))?;
    let sums = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums";
    run(command("sh").args(["-c", sums]).current_dir(&tree))?;
    run(command("chmod").args(["-R", "u+w,go=rX"]).arg(&tree))?;
    let made = place()?.join(format!("faultless_{VERSION}_amd64.deb"));
    run(command("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(&tree)
        .arg(&made)
        .env("SOURCE_DATE_EPOCH", date()))?;
    Ok(made)
}

/// What Debian has elsewhere, or compressed.
fn suit_debian(usr: &Path) -> Result<()> {
    fs::rename(usr.join("share/zsh/site-functions"), usr.join("share/zsh/vendor-completions"))?;
    let docs = usr.join(stage::DOCS);
    fs::rename(docs.join("LICENSE-MIT"), docs.join("copyright"))?;
    fs::rename(docs.join("CHANGELOG.md"), docs.join("changelog"))?;
    // Found by systemd in `user` and `system` there; none is enabled.
    fs::create_dir_all(usr.join("lib"))?;
    fs::rename(docs.join(stage::UNITS), usr.join(SYSTEMD))?;
    let pages = fs::read_dir(usr.join("share/man/man1"))?;
    let pages = pages.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
    run(command("gzip").args(["-9n"]).args(pages).arg(docs.join("changelog")))
}

/// The packages that it needs, from the symbols that its programs need; of the C library, what is claimed.
fn depends(usr: &Path) -> Result<String> {
    let source = empty("shlibdeps")?;
    fs::create_dir(source.join("debian"))?;
    fs::write(source.join("debian/control"), "Source: faultless\n\nPackage: faultless\nArchitecture: amd64\n")?;
    let mut tool = command("dpkg-shlibdeps");
    let files = [usr.join(stage::COMMAND), usr.join(stage::LIBRARY)];
    tool.arg("-O").args(&files).current_dir(source);
    let said = output(&mut tool).context("dpkg-shlibdeps, of the package dpkg-dev")?;
    let line = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let line = line.context("dpkg-shlibdeps names no package")?;
    with_claim(line, floor::claimed(&files.each_ref().map(PathBuf::as_path))?).context("it does not name libc6")
}

/// `depends` with another version of the C library.
fn with_claim(depends: &str, claimed: floor::Version) -> Option<String> {
    let (before, rest) = depends.split_once(C_LIBRARY)?;
    let (_, after) = rest.split_once(')')?;
    Some(format!("{before}{C_LIBRARY}{claimed}){after}"))
}

/// Of all files, in KiB.
fn size(usr: &Path) -> Result<u64> {
    let said = output(command("du").args(["-sk", "--apparent-size"]).arg(usr))?;
    Ok(said.split_whitespace().next().context("du says nothing")?.parse()?)
}

fn control(depends: &str, kib: u64) -> String {
    format!(
        "Package: faultless\n\
         Version: {VERSION}\n\
         Architecture: amd64\n\
         Maintainer: The faultless authors <faultless@localhost>\n\
         Installed-Size: {kib}\n\
         Depends: {depends}\n\
         Section: utils\n\
         Priority: optional\n\
         Description: takes page faults off a program's critical path\n \
         faultless run starts a program with a library that keeps memory the program\n \
         gives back, zeroes it in the background and touches new memory ahead of the\n \
         program. Results do not change. It needs Linux 6.8 or newer.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_takes_the_place_of_what_symbols_need() {
        let with = |text| with_claim(text, floor::Version(2, 36));
        assert_eq!(with("libc6 (>= 2.35)").unwrap(), "libc6 (>= 2.36)");
        assert_eq!(with("a, libc6 (>= 2.4), b (>= 1)").unwrap(), "a, libc6 (>= 2.36), b (>= 1)");
        assert_eq!(with("libgcc-s1 (>= 4.2)"), None);
    }

    #[test]
    fn the_control_file_has_its_fields_and_a_description() {
        let text = control("libc6 (>= 2.34)", 10);
        let is_line =
            |line: &str| line.starts_with(' ') || line.split_once(": ").is_some_and(|(name, _)| !name.is_empty());
        assert!(text.ends_with('\n') && text.lines().all(is_line), "{text}");
        assert!(
            text.contains("\nDepends: libc6 (>= 2.34)\n") && text.contains("\n faultless run starts"),
            "{text}"
        );
    }
}
