//! The tables of the prezeroing patches themselves, to stand beside those of this machine.
//!
//! Their clock is left out: it prints hundredths of a second behind a zero.

/// A table: what it is of, and its lines.
type Table = (&'static str, &'static [Line]);
/// As printed there: repetitions, threads, lines touched in each page; seconds in user mode and in the kernel; pages
/// touched in a second of processor time, and in a second.
type Line = (&'static str, u32, u32, u32, &'static str, &'static str, f64, f64);

const TABLES: [Table; 3] = [
    (
        "Burst, the patch's own (two Pentium III, 384 MB of memory; 256 MB allocated)",
        &[
            ("without the patch", 1, 1, 1, "0.006", "0.389", 157_455.320, 157_070.694),
            ("with the patch", 1, 1, 1, "0.008", "0.083", 672_151.422, 664_045.899),
            ("without the patch", 1, 2, 1, "0.007", "0.607", 101_476.689, 190_350.885),
            ("with the patch", 1, 2, 1, "0.005", "0.129", 459_629.796, 741_857.373),
        ],
    ),
    (
        "Sustained, the patch's own (the same machine; ten times in rapid succession)",
        &[
            ("without the patch", 10, 1, 1, "0.058", "3.913", 157_335.774, 157_076.932),
            ("with the patch", 10, 1, 1, "0.059", "1.828", 330_913.517, 330_225.515),
            ("without the patch", 10, 2, 1, "0.063", "6.139", 100_756.788, 190_572.486),
            ("with the patch", 10, 2, 1, "0.082", "1.951", 307_172.100, 320_680.232),
        ],
    ),
    (
        "Lines, the patch's own (ia64; 1 GB in pages of 16 KiB, lines of 128 bytes touched in each, of 128)",
        &[
            ("with the patch", 1, 1, 1, "0.01", "0.12", 500_813.853, 497_925.891),
            ("with the patch", 1, 1, 2, "0.01", "0.11", 493_453.103, 472_877.725),
            ("with the patch", 1, 1, 4, "0.02", "0.10", 479_351.658, 471_507.415),
            ("with the patch", 1, 1, 8, "0.01", "0.13", 424_742.054, 416_725.013),
            ("with the patch", 1, 1, 16, "0.05", "0.12", 347_715.359, 336_983.834),
            ("with the patch", 1, 1, 32, "0.12", "0.13", 258_112.286, 256_246.731),
            ("with the patch", 1, 1, 64, "0.24", "0.14", 169_896.381, 168_189.283),
            ("with the patch", 1, 1, 128, "0.49", "0.14", 102_300.257, 101_674.435),
        ],
    ),
];

/// Prints them. The last column has the rate in parts of the one without the patch, which stands one line above.
pub fn tables() {
    for (title, lines) in TABLES {
        println!("**{title}**\n");
        println!("| | Rep | Threads | CLine | User | System | flt/cpu/s | fault/wsec | to without |");
        println!("|---|---|---|---|---|---|---|---|---|");
        let mut without = None;
        for (name, reps, threads, touched, user, system, per_cpu, rate) in lines {
            let to = if name.starts_with("with ") { without.take() } else { None };
            without = name.starts_with("without").then_some(rate);
            let to = to.map_or("–".into(), |without| format!("{:.2}", rate / without));
            println!(
                "| {name} | {reps} | {threads} | {touched} | {user} s | {system} s | {per_cpu:.0} | {rate:.0} | {to} |"
            );
        }
        println!();
    }
}
