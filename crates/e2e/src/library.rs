//! The preload library, as it is used.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/e2e lies two below the root")
}

/// The directory of what is built.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The release build of the library, up to date.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // The same command as for users, so that no second variant is built.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--release", "--workspace"])
            .current_dir(root())
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the release build failed");
        let library = target().join("release/libfaultless_preload.so");
        assert!(library.exists(), "{} is missing", library.display());
        library
    })
}

/// The `faultless` command beside it, without settings of the caller's.
pub fn command<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(library().with_file_name("faultless"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAULTLESS_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").env("XDG_CONFIG_HOME", "/dev/null").args(args);
    // What other runs left, and what a daemon holds, change nothing here.
    command.env("FAULTLESS_PROFILE", "0").env("FAULTLESS_WARM", "");
    command
}
