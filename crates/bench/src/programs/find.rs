//! Finding programs, modules and sources on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::plan::{Context, Launch};

/// A program on PATH; the error says what to install.
pub fn on_path(name: &str, package: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| format!("not installed: {name} ({package})"))
}

/// Writes a file for the programs.
pub fn write(context: &Context, name: &str, contents: &str) -> Result<PathBuf, String> {
    let path = context.dir.join(name);
    fs::write(&path, contents).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Runs a preparation to its end, quietly.
pub fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    match command.stdin(Stdio::null()).stdout(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let line = errors.lines().next_back().unwrap_or_default();
            Err(format!("{name}: {}: {line}", output.status))
        }
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The interpreter that has a module, and the module's version; the error is what it says of the module.
fn interpreter(context: &Context, module: &str) -> Result<(String, String), String> {
    let find = format!("import sys, {module}; print(sys.executable); print(getattr({module}, '__version__', ''))");
    let output = Command::new(&context.python)
        .args(["-c", &find])
        .output()
        .map_err(|error| format!("not installed: {} ({error})", context.python))?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut lines = text.lines().map(str::to_owned);
    match (lines.next(), lines.next()) {
        (Some(executable), Some(version)) => Ok((executable, version)),
        _ => Err(errors.lines().next_back().unwrap_or_default().to_owned()),
    }
}

/// The version of a module that a Python has; the error says why it has none.
pub fn module(context: &Context, module: &str) -> Result<String, String> {
    interpreter(context, module).map(|(_, version)| version)
}

/// A Python script that needs a module. The interpreter itself is asked where it is: what is on PATH may be a
/// shell script of a version manager.
pub fn python(context: &Context, module: &str, script: &str, args: &[String]) -> Result<Launch, String> {
    let (executable, version) = interpreter(context, module)
        .map_err(|_| format!("not installed: pip install {}", module.replace("sklearn", "scikit-learn")))?;
    let script = write(context, &format!("bench_{module}.py"), script)?;
    let mut launch = Launch::new(executable, [script]);
    launch.args.extend(args.iter().map(Into::into));
    launch.note = Some(format!("{module} {version}"));
    Ok(launch)
}

/// SQLite's amalgamation, where packages that carry it put it.
pub fn sqlite_source() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FAULTLESS_SQLITE_C") {
        return Some(named.into());
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let crates = folders(&cargo.join("registry/src"))
        .flat_map(|index| folders(&index))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libsqlite3-sys-")))
        .map(|path| path.join("sqlite3/sqlite3.c"));
    let modules = ["/usr/lib/node_modules", "/usr/local/lib/node_modules", "node_modules"]
        .map(|folder| Path::new(folder).join("better-sqlite3/deps/sqlite3/sqlite3.c"));
    crates.chain(modules).chain([PathBuf::from("/usr/src/sqlite3/sqlite3.c")]).find(|path| path.is_file())
}

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir())
}

/// The version that the source itself states.
pub fn sqlite_version(source: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(source).ok()?).into_owned();
    let line = text.lines().find(|line| line.starts_with("#define SQLITE_VERSION "))?;
    line.split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(
            on_path("no-such-program", "a package").unwrap_err(),
            "not installed: no-such-program (a package)"
        );
        assert!(on_path("sh", "dash").unwrap().is_absolute());
    }

    #[test]
    fn the_version_is_read_from_the_source() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "/* x */\n#define SQLITE_VERSION        \"3.45.1\"\n").unwrap();
        assert_eq!(sqlite_version(file.path()).as_deref(), Some("3.45.1"));
    }
}
