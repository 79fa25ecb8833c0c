//! What reads files.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::loops::{Order, Outcome, make_file};
use crate::plan::{Context, Launch};
use crate::programs::find::{done, on_path, python};

/// Bytes of the file that the loop reads, and of those of programs.
const WALKED: u64 = 2 << 30;
const OF_PROGRAMS: u64 = 1 << 30;

/// A program that reads a file.
pub struct Row {
    /// What it does.
    pub title: String,
    /// How it is started.
    pub launch: Launch,
    /// The same with advice to the kernel, where there is some.
    pub advised: Option<Launch>,
    /// The file that it reads, or a folder of them.
    pub files: PathBuf,
    /// How many times as fast it is to be when its file is read ahead. `None`: not slower.
    pub aim: Option<f64>,
    /// It is no loop of ours.
    pub is_program: bool,
}

impl Row {
    /// What its output says was read.
    pub fn outcome(&self, output: &str) -> String {
        let outcome = (!self.is_program).then(|| serde_json::from_str::<Outcome>(output.trim()).ok()).flatten();
        outcome.map_or(output.trim().to_owned(), |outcome| outcome.checksum.to_string())
    }
}

/// The loop, in each order.
pub fn walks(context: &Context, dir: &Path) -> Vec<Result<Row, String>> {
    let file = dir.join("walked");
    let bytes = if context.full { WALKED } else { context.size(WALKED / 2) } as usize;
    let made = if file.exists() { Ok(()) } else { make_file(&file, bytes) };
    let row = |order: Order| {
        made.as_ref().map_err(|error| format!("{}: {error}", file.display()))?;
        let name = order.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        let launch = |more: &[&str]| {
            let words = ["loop", "walk", "--order", &name].into_iter().chain(more.iter().copied());
            Launch::new(&context.own, words.map(Into::into).chain([file.clone().into_os_string()]))
        };
        Ok(Row {
            title: name.clone(),
            launch: launch(&[]),
            advised: Some(launch(&["--advised"])),
            files: file.clone(),
            aim: (order == Order::Forward).then_some(1.5),
            is_program: false,
        })
    };
    Order::value_variants().iter().map(|order| row(*order)).collect()
}

/// A script makes the file when it is called with its name, and reads it when it is called once more.
fn script(context: &Context, dir: &Path, module: &str, text: &str, title: &str) -> Result<Row, String> {
    let file = dir.join(module);
    let args = [file.display().to_string(), context.size(OF_PROGRAMS).to_string()];
    let launch = python(context, module, text, &args).map_err(|why| format!("{title}: {why}"))?;
    if !file.exists() {
        done(Command::new(&launch.program).args(&launch.args)).map_err(|why| format!("{title}: {why}"))?;
    }
    let title = format!("{title} ({})", launch.note.as_deref().unwrap_or_default());
    let aim = (module == "safetensors").then_some(1.5);
    Ok(Row { title, launch, advised: None, files: file, aim, is_program: true })
}

/// A repository of one pack, which Git maps and checks.
fn git(context: &Context, dir: &Path) -> Result<Row, String> {
    const BLOB: u64 = 2 << 20;
    let git = on_path("git", "Debian's git")?;
    let repository = dir.join("repository");
    let run = |args: &[&str]| done(Command::new(&git).arg("-C").arg(&repository).args(args));
    if !repository.exists() {
        let blobs = repository.join("blobs");
        std::fs::create_dir_all(&blobs).map_err(|error| error.to_string())?;
        for i in 0..context.size(OF_PROGRAMS / 2).div_ceil(BLOB) {
            let blob = blobs.join(i.to_string());
            make_file(&blob, BLOB as usize).map_err(|error| error.to_string())?;
            // Each is another one.
            let file = std::fs::OpenOptions::new().append(true).open(&blob).map_err(|error| error.to_string())?;
            std::io::Write::write_all(&mut &file, &i.to_le_bytes()).map_err(|error| error.to_string())?;
        }
        run(&["init", "--quiet"])?;
        run(&["-c", "core.compression=0", "-c", "core.bigFileThreshold=1", "add", "."])?;
        run(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "blobs"])?;
        run(&["-c", "core.compression=0", "-c", "core.bigFileThreshold=1", "repack", "-adq"])?;
        std::fs::remove_dir_all(blobs).map_err(|error| error.to_string())?;
    }
    let files = repository.join(".git/objects/pack");
    let args: Vec<PathBuf> = ["-C".into(), repository, "fsck".into(), "--full".into()].into();
    Ok(Row {
        title: "git fsck of one pack".into(),
        launch: Launch::new(git, args),
        advised: None,
        files,
        aim: None,
        is_program: true,
    })
}

/// Programs that read by mmap.
pub fn programs(context: &Context, dir: &Path) -> Vec<Result<Row, String>> {
    vec![
        script(
            context,
            dir,
            "numpy",
            include_str!("../programs/scripts/npy.py"),
            "NumPy, sum of a mapped .npy file",
        ),
        script(
            context,
            dir,
            "pyarrow",
            include_str!("../programs/scripts/arrow_file.py"),
            "PyArrow, sum of a mapped Arrow file",
        ),
        script(
            context,
            dir,
            "safetensors",
            include_str!("../programs/scripts/weights.py"),
            "safetensors, all tensors of a file",
        ),
        git(context, dir),
    ]
}
