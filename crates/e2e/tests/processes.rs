//! Small C programs for what real programs do seldom: signals, forks of all kinds, crashes, limits.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use faultless_e2e::{Case, Run, command, compile, need, scratch, skip, tests};
use faultless_page::stats::Counter;

/// What the library may use beyond the program's own peak in the tests that measure it.
const BUDGET: u64 = 64 << 20;

/// Runs a program with the arguments of each of these lines.
fn passes(source: &str, lines: &[impl AsRef<str>]) {
    if let Some(case) = Case::compiled(source, &[]) {
        case.with_each(lines);
    }
}

fn passes_with(budget: &str, source: &str, lines: &[&str]) {
    if let Some(case) = Case::compiled(source, &["-pthread"]) {
        case.env("FAULTLESS_BUDGET", budget).with_each(lines);
    }
}

/// When the process uses memory first, how its children end, and which `/proc` there is.
fn first_processes() -> Vec<String> {
    let ways = ["started ends", "new ends", "started killed", "new killed"];
    let procs = ["before", "anew", "own", "second"];
    ways.iter().flat_map(|way| procs.map(|proc| format!("{way} {proc}"))).collect()
}

const OTHER_PROCS: [&str; 6] =
    ["mounted filter", "root filter", "bare filter", "mounted user", "root user", "bare user"];

tests! {
    mmap_in_a_signal_handler: passes("signals.c", &["mmap"]);
    malloc_in_a_signal_handler: passes("signals.c", &["malloc"]);
    two_thousand_threads: passes("threads.c", &[""]);
    forks_of_all_kinds: passes("forks.c", &[""]);
    forks_while_threads_allocate: passes("forks.c", &["threads"]);
    memory_before_and_after_main: passes("early.c", &[""]);
    large_variables_of_each_thread: passes("locals.c", &["1", "2", "3", "4", "5"]);
    a_program_that_leaves_its_surroundings: passes("departs.c", &[""]);
    a_program_started_behind_a_filter_that_kills: passes("filtered.c", &["exec"]);
    an_environment_that_is_gone: passes("gone.c", &[""]);
    what_the_c_library_tells_of_blocks: passes("told.c", &[""]);
    system_calls_that_are_the_programs_to_handle: passes("dispatched.c", &[""]);
    a_handler_that_interrupted_the_allocator_confines_the_program:
        passes("interrupts.c", &["limit", "filter", "namespace"]);
    a_filter_for_threads_that_are_at_memory: passes("interrupts.c", &["blocks", "maps"]);
    a_handler_that_interrupted_the_allocator_leaves_its_signals_alone:
        passes("masks.c", &["fixed", "limit", "unmap"]);
    signals_that_the_program_waits_for_wait_for_it: passes("waits.c", &[""]);
    threads_confine_the_program_at_the_same_time: passes("filters_meet.c", &["both", "limit", "lock", "unshare"]);
    calls_behind_a_filter_make_no_others:
        passes("after_filter.c", &["limit", "read", "pipe", "advice", "watch", "smaller", "fork"]);
    /// Where nothing is sure of a piece of memory any more, it is not used again.
    bytes_at_the_limit_of_areas: passes_with("8M", "last_areas.c", &["0", "4", "8"]);
    a_service_that_is_called_off_while_it_begins: passes("called_off.c", &["limit", "fork", "filter"]);
    programs_that_are_started_wrongly: passes("starts.c", &[""]);
    a_child_of_vfork_that_is_killed_in_a_call: passes_with("64M", "child_killed.c", &["maps", "blocks"]);
    files_opened_beside_a_child_of_vfork: passes_with("64M", "child_numbers.c", &[""]);
    children_of_a_program_that_has_our_files_open:
        passes("same_files.c", &["statm", "maps", "status", "cgroup"].map(|file| format!("/proc/thread-self/{file}")));
    huge_pages_that_the_program_asks_for_at_once:
        passes_with("64M", "collapse.c", &["block", "mapping", "refused"]);
    /// Its first large request comes before its children, or behind one.
    children_that_are_process_1_as_their_parent_is:
        passes("first_process.c", &first_processes());
    /// The filter ends a process that makes a call of ours.
    a_program_that_is_process_1_and_has_another_proc: passes("new_proc.c", &OTHER_PROCS);
    record_locks_of_a_process_whose_files_become_its_own:
        passes("record_locks.c", &["function", "syscall", "unshare", "handler"]);
    threads_that_end_before_others: passes_with("64M", "ends.c", &["children", "cloned"]);
    numbers_of_calls_with_more_than_32_bits: passes("wide_numbers.c", &[""]);
}

#[test]
fn a_program_that_allows_itself_few_system_calls() {
    for way in ["prctl", "syscall"] {
        passes("filtered.c", &["", "fork", "bare"].map(|children| format!("{way} {children}")));
    }
}

#[test]
fn memory_that_becomes_smaller_where_it_moves_to() {
    let Some(case) = Case::compiled("shrinks.c", &[]) else { return };
    let case = case.env("FAULTLESS_BUDGET", "16M");
    // On a busy machine the program may come too late for what was touched ahead of it, and then nothing is advised.
    let is_split = || case.same().counters.get(Counter::BytesAdvised) > 0;
    assert!((0..5).any(|_| is_split()), "no advice has split a mapping");
}

#[test]
fn areas_run_out() {
    let Some(case) = Case::compiled("areas.c", &[]) else { return };
    let numbers = |run: &Run| -> Vec<f64> {
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    };
    let plain = numbers(&case.plain());
    assert!(plain.len() == 4 && plain.iter().all(|n| *n > 1000.0), "{plain:?}");
    for knobs in [&[][..], &[("FAULTLESS_CHECK", "1")]] {
        let run = case.under(knobs);
        assert!(run.status.success(), "{}: {}", run.status, String::from_utf8_lossy(&run.stderr));
        let under = numbers(&run);
        for (a, b) in plain.iter().zip(&under) {
            assert!((a - b).abs() <= a * 0.01, "areas before ENOMEM: {under:?} instead of {plain:?}");
        }
    }
}

#[test]
fn a_thread_goes_on_after_the_first_one() {
    for (budget, work) in [("64M", "pipes"), ("8M", "sizes"), ("64M", "watched"), ("64M", "limited")] {
        passes_with(budget, "outlived.c", &[work]);
    }
}

#[test]
fn a_library_bound_to_the_c_library() {
    let dir = scratch();
    let Some(bound) = compile(dir.path(), "bound.c", &["-shared", "-fPIC"]) else { return };
    let Some(case) = Case::compiled("deepbind.c", &["-ldl"]) else { return };
    // A program that has nothing large yet goes to the C library as a whole; one that has stays with the library.
    let run = case.clone().args([&bound]).same();
    assert_eq!(run.counters.served(), 0, "blocks that a bound library cannot free");
    case.args([bound.as_os_str(), "used".as_ref()]).same_and_served();
}

#[test]
fn a_library_that_allocates_before_the_preloaded_one_is_linked() {
    let dir = scratch();
    let Some(library) = compile(dir.path(), "resolver.c", &["-shared", "-fPIC"]) else { return };
    let Some(case) = Case::compiled("resolved.c", &[library.to_str().expect("a readable path")]) else { return };
    case.same_and_served();
    case.env("LD_BIND_NOW", "1").same_and_served();
}

/// Entries of the environment need neither a name nor an equals sign; `run` passes them all on.
#[test]
fn every_entry_of_the_environment_is_passed_on() {
    let dir = scratch();
    let Some(program) = compile(dir.path(), "entries.c", &[]) else { return };
    for quiet in [&["run", "--quiet", "--"][..], &["run", "--"]] {
        let run = command(quiet.iter().copied());
        let out =
            Command::new(&program).arg("give").arg(run.get_program()).args(run.get_args()).arg(&program).output();
        let out = out.expect("it runs");
        let text = String::from_utf8_lossy(&out.stdout);
        let is_ours =
            |line: &&str| ["LD_PRELOAD=", "FAULTLESS_", "ASAN_"].iter().any(|name| line.starts_with(name));
        let passed: Vec<&str> = text.lines().filter(|line| !is_ours(line)).collect();
        assert_eq!(passed, ["A=1", "A=2", "noequals", "=x", "", "XDG_CONFIG_HOME=/dev/null"], "{out:?}");
    }
}

#[test]
fn children_that_share_memory_and_confine_themselves() {
    passes("shares.c", &["strict used", "filter used", "limit used"]);
    // Before the engine has started.
    passes("shares.c", &["filter", "limit"]);
}

#[test]
fn limits_that_are_met_by_other_calls_than_mmap() {
    for kind in ["as", "data"] {
        let calls = ["mremap", "sbrk", "brk", "shmat", "mprotect", "syscall"];
        passes("relieved.c", &calls.map(|call| format!("{kind} {call}")));
    }
}

#[test]
fn address_sanitizer() {
    // Linked into the program, so that the library is the first one to load either way.
    let Some(case) = Case::compiled("address.c", &["-fsanitize=address", "-static-libasan"]) else { return };
    let run = case.same();
    assert_eq!(run.counters.served(), 0, "the library keeps away from a sanitizer");
    let run = case.args(["broken"]).fails().same();
    let report = String::from_utf8_lossy(&run.stderr);
    assert!(report.contains("heap-use-after-free"), "{report}");
}

#[test]
fn address_sanitizer_as_a_library() {
    let Some(case) = Case::compiled("address.c", &["-fsanitize=address"]) else { return };
    // The sanitizer insists on being loaded first, unless it is told not to: by the library, or by the program.
    let run = case.same();
    assert_eq!(run.counters.served(), 0, "the library keeps away from a sanitizer");
    let run = case.env("ASAN_OPTIONS", "verify_asan_link_order=0").same();
    assert_eq!(run.counters.served(), 0, "the library keeps away from a sanitizer");
}

/// Their run-times stand before functions of the C library, and are not ready when the first of these is called.
#[test]
fn other_sanitizers() {
    for flags in [&["-fsanitize=thread"][..], &["-fsanitize=thread", "-static-libtsan"], &["-fsanitize=leak"]] {
        let flags = [flags, &["-pthread", "-ldl"]].concat();
        let Some(case) = Case::compiled("sanitized.c", &flags) else { return };
        for _ in 0..5 {
            assert_eq!(case.same().counters.served() > 0, flags[0] == "-fsanitize=leak", "{flags:?}");
        }
    }
}

#[test]
fn a_limit_on_address_space() {
    let (Some(sh), Some(case)) = (need("sh"), Case::compiled("early.c", &[])) else { return };
    let limited = Case::new(sh).args(["-c", "ulimit -v 200000 && exec \"$0\""]).args([case.program()]);
    assert_eq!(limited.same().counters.served(), 0);
    // Too little for the program: it fails, as it does plain.
    Case::new(need("sh").expect("found before"))
        .args(["-c", "ulimit -v 16000 && exec \"$0\""])
        .args([case.program()])
        .fails()
        .same();
}

/// The parent's handler runs before the call of vfork is over, and may never come back to it.
#[test]
fn a_child_of_vfork_signals_its_parent() {
    let Some(case) = Case::compiled("child_signals.c", &[]) else { return };
    for how in ["jumps", "asks", "returns"] {
        let run = case.clone().args([how]).same_and_served();
        assert_eq!(run.counters.get(Counter::KernelNested), 0, "{how}: the thread does without the engine");
    }
}

fn cores(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).expect("a directory of our own").flatten().map(|entry| entry.path());
    files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core"))).collect()
}

#[test]
fn a_core_dump_has_the_memory_and_the_size_of_a_plain_one() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.contains('/') {
        return skip(format_args!("core dumps go elsewhere ({})", pattern.trim()));
    }
    let (Some(sh), Some(crash)) = (need("sh"), Case::compiled("crash.c", &[])) else { return };
    let may = Command::new(&sh).args(["-c", "ulimit -c unlimited 2>/dev/null"]).status();
    if !may.is_ok_and(|status| status.success()) {
        return skip("core dumps are forbidden by a limit");
    }
    let core_of = |dir: &Path, knobs: Option<&[(&str, &str)]>| {
        let case = Case::new(&sh).args(["-c", "ulimit -c unlimited && exec \"$0\""]);
        let case = case.args([crash.program()]).dir(dir).fails();
        let run = knobs.map_or_else(|| case.plain(), |knobs| case.under(knobs));
        // The status of `faultless run`, which starts programs that were seen before, does not say that one was made.
        const SIGABRT: i32 = 6;
        assert_eq!(run.status.signal(), Some(SIGABRT), "{}", run.status);
        let cores = cores(dir);
        assert_eq!(cores.len(), 1, "{cores:?}");
        cores[0].clone()
    };
    let budget = format!("{BUDGET}");
    let (plain_dir, under_dir) = (scratch(), scratch());
    let plain = core_of(plain_dir.path(), None);
    let under = core_of(under_dir.path(), Some(&[("FAULTLESS_BUDGET", &budget)]));
    let size = |core: &Path| core.metadata().expect("a core dump");
    let (stored_plain, stored) = (size(&plain).blocks() * 512, size(&under).blocks() * 512);
    assert!(stored <= stored_plain + BUDGET, "{stored} bytes stored instead of {stored_plain}");
    let (long_plain, long) = (size(&plain).len(), size(&under).len());
    // Sparse: what is idle, and addresses between blocks without memory.
    assert!(
        long <= long_plain + 2 * BUDGET && long + BUDGET >= long_plain,
        "{long} bytes long instead of {long_plain}"
    );
    let grep = need("grep").expect("grep is everywhere");
    for core in [&plain, &under] {
        Case::new(&grep).args(["-aq", "a word to be found in the core"]).args([core]).plain();
    }
    let Some(gdb) = need("gdb") else { return };
    let run = Case::new(gdb).args(["-batch", "-nx", "-ex", "bt"]).args([crash.program(), &under]).plain();
    let trace = String::from_utf8_lossy(&run.stdout);
    assert!(trace.contains("main ()"), "{trace}");
}

#[test]
fn the_stack_that_the_first_thread_takes() {
    if let Some(case) = Case::compiled("first_thread.c", &["-pthread", "-Wl,-z,now"]) {
        case.same_and_served();
    }
}

#[test]
fn threads_that_are_cancelled_while_they_wait() {
    for how in ["vmsplice", "send", "sendto", "sendmsg", "sendmmsg"] {
        let Some(case) = Case::compiled("cancelled.c", &["-pthread"]) else { return };
        case.args([how]).same_and_served();
    }
}
