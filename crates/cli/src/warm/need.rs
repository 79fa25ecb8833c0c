//! Whether a reserve is of use here: whether idle memory goes back to a host.

use std::path::Path;

use faultless_measure::costs::Warmth;

/// Bit of a virtio balloon's features: free pages are reported to the host, which may take them.
const REPORTING: usize = 5;
/// A first touch that takes this much longer than the second says that memory was with the host.
const COLD: f64 = 3.0;
/// Bytes that are touched to find out.
const TOUCHED: usize = 128 << 20;

/// The balloon by which a host takes memory back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balloon {
    /// None of virtio's.
    None,
    /// It takes what the host asks for. Its name.
    Silent(String),
    /// Idle memory is reported to the host.
    Reporting(String),
}

impl Balloon {
    /// As the kernel shows it below this root.
    pub fn below(root: &Path) -> Self {
        let folder = root.join("sys/bus/virtio/devices");
        let text = |name: &str, file: &str| std::fs::read(folder.join(name).join(file)).unwrap_or_default();
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        // Device 5 is the balloon.
        let Some(name) = names.into_iter().find(|name| text(name, "modalias").starts_with(b"virtio:d00000005v"))
        else {
            return Self::None;
        };
        match text(&name, "features").get(REPORTING) {
            Some(b'1') => Self::Reporting(name),
            _ => Self::Silent(name),
        }
    }
}

/// Why no reserve is needed; `None`: it is. Without a virtio balloon another hypervisor may take memory: a first touch
/// tells.
pub fn why_not() -> Option<String> {
    if matches!(Balloon::below(Path::new("/")), Balloon::Reporting(_)) {
        return None;
    }
    match Warmth::measure(TOUCHED) {
        Some(warmth) if warmth.first_ns >= COLD * warmth.second_ns => None,
        Some(warmth) => Some(format!(
            "no idle memory is reported to a host, and its first touch takes {:.1} times as long as that of memory \
             just freed",
            warmth.first_ns / warmth.second_ns.max(1.0)
        )),
        None => Some("no idle memory is reported to a host".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reporting_is_a_bit_of_the_balloon() {
        let root = tempfile::tempdir().unwrap();
        let find = || Balloon::below(root.path());
        assert_eq!(find(), Balloon::None);
        let make = |device: &str, file: &str, text: &str| {
            let file = root.path().join("sys/bus/virtio/devices").join(device).join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        make("virtio0", "modalias", "virtio:d00000002v00001AF4\n");
        make("virtio0", "features", "1111111111\n");
        assert_eq!(find(), Balloon::None);
        make("virtio3", "modalias", "virtio:d00000005v00001AF4\n");
        for (features, found) in [
            ("", Balloon::Silent("virtio3".into())),
            ("1111101111\n", Balloon::Silent("virtio3".into())),
            ("0000010000\n", Balloon::Reporting("virtio3".into())),
        ] {
            make("virtio3", "features", features);
            assert_eq!(find(), found);
        }
    }
}
