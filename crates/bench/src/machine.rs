//! The machine that the figures belong to.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use faultless_page::knobs::Knob;

/// Where the kernel says when it uses huge pages.
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Variables that say where the bench finds things, and nothing about faultless.
const OURS: [&str; 2] = ["FAULTLESS_PYTHON", "FAULTLESS_SQLITE_C"];

/// Facts printed above the tables.
#[derive(serde::Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Mode of transparent huge pages as found.
    pub huge_pages: String,
    /// Whether a hypervisor is below.
    pub virtualised: bool,
    /// Day of the run.
    pub date: String,
    /// Settings of faultless found in the environment.
    pub settings: Vec<String>,
    /// Bytes that faultless may use beyond the program's own peak.
    pub budget: u64,
}

impl Machine {
    /// Reads them.
    pub fn read() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = meminfo("MemTotal").unwrap_or(0);
        Machine {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory,
            kernel: read_line("/proc/sys/kernel/osrelease"),
            huge_pages: huge_page_mode().unwrap_or_else(|| "none".into()),
            virtualised: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            date: Command::new("date")
                .arg("+%F")
                .output()
                .map_or(String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned()),
            settings: std::env::vars()
                .filter(|(name, _)| name.starts_with("FAULTLESS_") && !OURS.contains(&name.as_str()))
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
            budget: budget(std::env::var_os(Knob::Budget.declared().variable).as_deref(), memory),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let settings = if self.settings.is_empty() { String::new() } else { self.settings.join(" ") + ", " };
        format!(
            "{}, {} CPUs{}, {} of memory, Linux {}, huge pages {}, budget {}, {settings}{}",
            self.cpu,
            self.cpus,
            if self.virtualised { " (virtual machine)" } else { "" },
            crate::format::bytes(self.memory as f64),
            self.kernel,
            self.huge_pages,
            crate::format::bytes(self.budget as f64),
            self.date
        )
    }
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The mode between brackets.
pub fn huge_page_mode() -> Option<String> {
    bracketed(&fs::read_to_string(THP).ok()?).map(str::to_owned)
}

fn bracketed(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// The value of `name` in lines of the form `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// A figure of /proc/meminfo, in bytes.
fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    field(&text, name)?.strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The budget by this text of the environment, as the library reads it, on a machine with so much memory. In a control
/// group with a limit the library takes less.
fn budget(text: Option<&OsStr>, memory: u64) -> u64 {
    let set = text.and_then(|text| Knob::Budget.declared().nearest(text.as_bytes()));
    set.unwrap_or((memory / 20).max(64 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_formats() {
        assert_eq!(bracketed("always [madvise] never\n"), Some("madvise"));
        assert_eq!(bracketed("always"), None);
        assert_eq!(field("model name\t: A B\nflags\t\t: x y\n", "flags"), Some("x y"));
        assert_eq!(field("MemAvailableX: 1 kB", "MemAvailable"), None);
    }

    #[test]
    fn the_budget_is_what_the_library_takes() {
        let of = |text: &str| budget(Some(OsStr::new(text)), 100 << 30);
        for (text, bytes) in [("0", 0), ("2M", 2 << 20), ("64m", 64 << 20), ("1G", 1 << 30), ("7", 7)] {
            assert_eq!(of(text), bytes, "{text}");
        }
        for default in ["", "M", "1MM", "-1", "1.5G"] {
            assert_eq!(of(default), 5 << 30, "{default:?}");
        }
        assert_eq!((budget(None, 100 << 30), budget(None, 1 << 30)), (5 << 30, 64 << 20));
        // More than any machine has is the most that can be set.
        assert_eq!(of("99999999999999999999G"), Knob::Budget.declared().range().1);
    }
}
