//! Programs that grow by small blocks, in the C library's heap.

use std::process::Command;

use super::find::{self, on_path, python, write};
use super::{generate, job, program};
use crate::plan::{Launch, Row};

/// Files of the compile job.
const FILES: u64 = 12;
/// Object files that are joined, and functions in each.
const OBJECTS: u64 = 24;
const FUNCTIONS: u64 = 400;

/// A compile job of several files at once.
pub fn make() -> Row {
    program("make", "make -j, C files", 5, 20.0).warm(0).program(|c| {
        let dir = c.dir.join("make");
        let outputs = job::write(&dir, c.count(FILES))?;
        let make = on_path("make", "Debian's build-essential")?;
        Ok(Launch {
            dir: Some(dir),
            outputs,
            ..Launch::new(make, ["-s".into(), "-B".into(), format!("-j{}", c.cpus)])
        })
    })
}

/// A parser of text.
pub fn pandas() -> Row {
    program("pandas", "pandas.read_csv", 5, 20.0).program(|c| {
        let launch = python(c, "pandas", include_str!("scripts/read_csv.py"), &[c.size(1_500_000).to_string()])?;
        // Which makes the text.
        find::done(Command::new(&launch.program).args(&launch.args))?;
        Ok(launch)
    })
}

/// A linker.
pub fn ld() -> Row {
    program("ld", "ld -r of object files with debugging data", 5, 20.0).program(|c| {
        let (ld, gcc) = (on_path("ld", "Debian's binutils")?, on_path("gcc", "Debian's gcc")?);
        let output = c.dir.join("joined.o");
        let mut launch = Launch::new(ld, ["-r", "-o"]);
        launch.args.push(output.clone().into_os_string());
        let source = write(c, "joined.c", &generate::c_source(c.count(FUNCTIONS)))?;
        let object = c.dir.join("part.o");
        let compile = ["-O0", "-g", "-w", "-c", "-fvisibility=hidden", "-o"];
        find::done(Command::new(gcc).args(compile).arg(&object).arg(source))?;
        // Names of functions may come again: each part keeps its own.
        let objcopy = on_path("objcopy", "Debian's binutils")?;
        for i in 0..c.count(OBJECTS) {
            let part = c.dir.join(format!("part{i}.o"));
            find::done(Command::new(&objcopy).arg(format!("--prefix-symbols=p{i}_")).arg(&object).arg(&part))?;
            launch.args.push(part.into_os_string());
        }
        Ok(Launch { outputs: vec![output], ..launch })
    })
}

/// A program for pictures.
pub fn magick() -> Row {
    program("magick", "ImageMagick, a picture made, blurred and made smaller", 5, 20.0).program(|c| {
        let convert = on_path("convert", "Debian's imagemagick")?;
        let output = c.dir.join("small.ppm");
        let side = c.size(3200).max(200);
        let mut launch =
            Launch::new(convert, ["-size".into(), format!("{side}x{side}"), "gradient:red-blue".into()]);
        launch.args.extend(["-blur", "0x2", "-resize", "40%"].map(Into::into));
        launch.args.push(output.clone().into_os_string());
        Ok(Launch { outputs: vec![output], ..launch })
    })
}
