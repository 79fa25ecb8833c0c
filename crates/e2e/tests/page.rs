//! The page of `faultless report --html` in Chromium, without a window. It is opened, clicked, searched, zoomed, read
//! by keys and by the tree that screen readers get, in both themes, and on a phone.

use std::process::Command;

use faultless_e2e::{command, compile, need, scratch, script, skip};

#[test]
fn the_page_works_in_a_browser() {
    let (Some(_), Some(_), Some(python)) = (need("chromium"), need("chromedriver"), need("python3")) else {
        return;
    };
    let dir = scratch();
    let Some(program) = compile(dir.path(), "phases.c", &["-fno-omit-frame-pointer"]) else { return };
    let (recording, page) = (dir.path().join("it.rec"), dir.path().join("it.html"));
    let mut record = command(["record", "--period", "13", "-o"]);
    let out = record.arg(&recording).arg("--").arg(program).output().expect("the command");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    if said.contains("not sampled") {
        return skip("faults cannot be sampled here");
    }
    let out = command(["report", "--html"]).arg(&page).arg(&recording).output().expect("the command");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut browser = Command::new(python);
    browser.arg("-B").arg(script("page.py")).arg(&page);
    // For those who want to see it.
    if let Some(pictures) = std::env::var_os("PAGE_PICTURES") {
        browser.arg(pictures);
    }
    let out = browser.output().expect("Python");
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{stdout}\n{stderr}");
    assert_eq!(stdout.lines().count(), 8, "{stdout}");
}
