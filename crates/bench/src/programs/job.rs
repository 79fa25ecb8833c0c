//! A compile job: C files and a makefile with one rule for each.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::find::on_path;

/// Functions in a file.
const FUNCTIONS: u64 = 60;

/// Writes a job of `files` files into a folder of its own, and names the object files that it makes there.
pub fn write(dir: &Path, files: u64) -> Result<Vec<PathBuf>, String> {
    on_path("make", "Debian's build-essential")?;
    on_path("cc", "Debian's build-essential")?;
    let text = |error: std::io::Error| error.to_string();
    fs::create_dir_all(dir).map_err(text)?;
    let objects: Vec<String> = (0..files).map(|i| format!("f{i}.o")).collect();
    for i in 0..files {
        fs::write(dir.join(format!("f{i}.c")), source(i)).map_err(text)?;
    }
    let makefile = format!("all: {0}\n%.o: %.c\n\tcc -O1 -c -o $@ $<\nclean:\n\trm -f {0}\n", objects.join(" "));
    fs::write(dir.join("Makefile"), makefile).map_err(text)?;
    Ok(objects.iter().map(|object| dir.join(object)).collect())
}

/// A C file like many: headers of the system, and functions that differ a little.
fn source(file: u64) -> String {
    let mut text =
        String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\n");
    for i in 0..FUNCTIONS {
        let _ = write!(
            text,
            "int f{file}_{i}(const char *s, int n) {{\n  char line[256];\n  int sum = {i};\n  for (int k = 0; k < n; k++) {{\n    \
             snprintf(line, sizeof line, \"%s %d %d\", s, k, sum);\n    switch (strlen(line) % 5) {{\n    case 0: sum += k * {i}; break;\n    \
             case 1: sum ^= atoi(line); break;\n    case 2: sum -= line[k % 7]; break;\n    default: sum = abs(sum) + (int)strtol(line, 0, {base});\n    \
             }}\n  }}\n  return sum;\n}}\n",
            base = i % 10 + 2,
        );
    }
    text
}
