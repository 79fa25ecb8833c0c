//! Programs that `faultless run` has seen before, as `cargo xtask seen` asks for. The command runs each program then,
//! twice in a row: the second run starts from the notes on the first, or finds other bytes in their place.

use std::ffi::OsStr;
use std::path::PathBuf;

use faultless_testkit::rng::{Rng, mix};

/// The variable that asks for it: `kept`, or a seed.
const VARIABLE: &str = "FAULTLESS_SEEN";
/// The longest file of random bytes, in words.
const LONGEST: usize = 256;

/// What becomes of the notes on programs.
#[derive(Clone, Copy)]
pub(crate) enum Notes {
    /// They stay.
    Kept,
    /// Random bytes of this seed replace them before each run.
    Random(u64),
}

impl Notes {
    /// What is asked for, if anything.
    pub(crate) fn asked() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let seed = || text.parse().unwrap_or_else(|_| panic!("{VARIABLE} is `kept` or a seed, not {text}"));
        Some(if text == "kept" { Self::Kept } else { Self::Random(seed()) })
    }

    /// Makes them ready for a run.
    pub(crate) fn prepare(self) {
        let Self::Random(seed) = self else { return };
        let cache = std::env::var_os("XDG_CACHE_HOME").expect("a place for notes");
        let notes = std::fs::read_dir(PathBuf::from(cache).join("faultless/profiles"));
        for path in notes.into_iter().flatten().flatten().map(|entry| entry.path()) {
            // Another test may have it replaced at the same time.
            let _ = std::fs::write(&path, random(seed, path.file_name().unwrap_or_default()));
        }
    }
}

/// Bytes that depend on these alone.
fn random(seed: u64, name: &OsStr) -> Vec<u8> {
    let seed = name.as_encoded_bytes().iter().fold(seed, |sum, byte| mix(sum ^ u64::from(*byte)));
    let mut rng = Rng::new(seed);
    (0..rng.below(LONGEST)).flat_map(|_| rng.word().to_le_bytes()).collect()
}
