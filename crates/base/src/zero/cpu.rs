//! Instructions of this processor that zero memory.

use core::sync::atomic::{AtomicU8, Ordering};

/// What the processor has and the kernel lets programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u8);

impl Features {
    /// `rep stosb` is fast for long strings.
    pub const ERMS: u8 = 1;
    /// `rep stosb` is fast for short ones, too.
    pub const FSRM: u8 = 1 << 1;
    /// 32-byte registers.
    pub const AVX2: u8 = 1 << 2;
    /// 64-byte registers.
    pub const AVX512F: u8 = 1 << 3;
    /// `clzero`: a line of zeroes that is not read from memory first (AMD).
    pub const CLZERO: u8 = 1 << 4;
    /// `movdir64b`: 64 bytes to a device, as one store.
    pub const MOVDIR64B: u8 = 1 << 5;
    /// `enqcmd`: the same, and the device says whether it had room.
    pub const ENQCMD: u8 = 1 << 6;
    const KNOWN: u8 = 1 << 7;

    /// Each with the name that `/proc/cpuinfo` has for it.
    #[rustfmt::skip]
    pub const NAMES: [(u8, &str); 7] = [
        (Self::ERMS, "erms"), (Self::FSRM, "fsrm"), (Self::AVX2, "avx2"), (Self::AVX512F, "avx512f"),
        (Self::CLZERO, "clzero"), (Self::MOVDIR64B, "movdir64b"), (Self::ENQCMD, "enqcmd"),
    ];

    /// Asks the processor, once: under a hypervisor the question costs a trap.
    pub fn detect() -> Self {
        static FOUND: AtomicU8 = AtomicU8::new(0);
        // Relaxed: there is nothing to see but the value, and a second thread finds the same one.
        match FOUND.load(Ordering::Relaxed) {
            0 => {
                let found = ask() | Self::KNOWN;
                FOUND.store(found, Ordering::Relaxed);
                Self(found)
            }
            found => Self(found),
        }
    }

    /// Whether all of `wanted` is there.
    pub fn has(self, wanted: u8) -> bool {
        self.0 & wanted == wanted
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ask() -> u8 {
    0
}

#[cfg(target_arch = "x86_64")]
// Newer compilers know that cpuid is safe.
#[allow(unused_unsafe)]
fn ask() -> u8 {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const OSXSAVE: u32 = 1 << 27;
    /// Parts of the register state that the kernel saves: XMM and YMM; masks and ZMM besides.
    const YMM: u32 = 0b110;
    const ZMM: u32 = 0b1110_0110;

    let leaf = |n| {
        // SAFETY: every x86-64 has the instruction; a leaf beyond the last is not asked for.
        unsafe { (__cpuid(n & 0x8000_0000).eax >= n).then(|| __cpuid_count(n, 0)) }
    };
    let bit = |register: Option<u32>, bit: u32, is: u8| if register.unwrap_or(0) >> bit & 1 == 1 { is } else { 0 };
    let (basic, seven, amd) = (leaf(1), leaf(7), leaf(0x8000_0008));
    let saved = if basic.is_some_and(|l| l.ecx & OSXSAVE != 0) { saved_state() } else { 0 };
    let (ebx, ecx, edx) = (seven.map(|l| l.ebx), seven.map(|l| l.ecx), seven.map(|l| l.edx));
    let mut found =
        bit(ebx, 9, Features::ERMS) | bit(edx, 4, Features::FSRM) | bit(amd.map(|l| l.ebx), 0, Features::CLZERO);
    found |= bit(ecx, 28, Features::MOVDIR64B) | bit(ecx, 29, Features::ENQCMD);
    if saved & YMM == YMM {
        found |= bit(ebx, 5, Features::AVX2);
    }
    if saved & ZMM == ZMM {
        found |= bit(ebx, 16, Features::AVX512F);
    }
    found
}

/// Which registers the kernel saves when it switches threads.
#[cfg(target_arch = "x86_64")]
fn saved_state() -> u32 {
    let low;
    // SAFETY: only called where the kernel has enabled the instruction.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _,
            options(nomem, nostack, preserves_flags));
    }
    low
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::Features;

    #[test]
    fn it_agrees_with_the_standard_library() {
        let found = Features::detect();
        assert_eq!(found.has(Features::AVX2), std::is_x86_feature_detected!("avx2"));
        assert_eq!(found.has(Features::AVX512F), std::is_x86_feature_detected!("avx512f"));
        assert_eq!(Features::detect(), found);
    }

    /// The kernel may hide what the processor has, but does not invent anything.
    #[test]
    fn it_finds_all_that_the_kernel_shows() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap();
        // AVX needs the system, too: see above.
        let by_instruction = |(bit, _): &(u8, &str)| bit & (Features::AVX2 | Features::AVX512F) == 0;
        for (bit, name) in Features::NAMES.into_iter().filter(by_instruction) {
            if flags.split_whitespace().any(|flag| flag == name) {
                assert!(Features::detect().has(bit), "{name}");
            }
        }
    }
}
