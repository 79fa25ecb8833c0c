//! The engine over a memory-management unit in ordinary memory, against an oracle of what the program must see:
//! zeroes where zeroes were promised, and its own bytes everywhere else. It sees no other bytes, and has no access to
//! what it unmapped. The unit itself panics when the engine touches closed memory.

mod calls;
mod oracle;

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Failing;
use faultless_mm::Need;
use faultless_mm::mapping::Change;
use faultless_mm::space::progress::Progress;
use faultless_page::knobs::Knob;
use faultless_testkit::limit::limit;
use oracle::{ALL, BUDGETS, Calls, Oracle, SLOT_SIZES};
use proptest::prelude::*;

/// One call, with numbers for its arguments.
type Op = (u8, u32, u32, u32);

fn settings() -> impl Strategy<Value = Vec<(Knob, u64)>> {
    let budget = prop::sample::select(BUDGETS.to_vec()).prop_map(|slots| slots << 21);
    (budget, prop::array::uniform4(0..2u64)).prop_map(|(budget, values)| {
        let switches = [Knob::Scrub, Knob::Ahead, Knob::Check, Knob::Mapped];
        [(Knob::Budget, budget)].into_iter().chain(switches.into_iter().zip(values)).collect()
    })
}

/// Settings, shards, and up to `most` calls.
fn programs(most: usize) -> impl Strategy<Value = (Vec<(Knob, u64)>, usize, Vec<Op>)> {
    let op = (0u8..106, any::<u32>(), any::<u32>(), any::<u32>());
    (settings(), 1usize..3, prop::collection::vec(op, 1..most))
}

/// The program maps that many slots.
fn mapped(o: &Oracle, slots: usize) -> Span {
    calls::map(&o.space, &o.fake, 0, slots * SLOT)
}

fn apply(o: &mut Oracle, (op, a, b, c): Op) {
    let (a, b, c) = (a as usize, b as usize, c as usize);
    match op {
        0..=13 => o.map(a, SLOT_SIZES[b % SLOT_SIZES.len()], [0, 0, 1, 300][c % 4]),
        14..=25 => o.unmap(a, b, c),
        26..=37 => o.allocate(a, b, c, if c % 2 == 0 { Need::Zero } else { Need::Any }),
        38..=47 => o.free(a),
        48..=53 => o.resize(a, b, c),
        54..=59 => o.move_mapping(a, b, c),
        60..=63 => o.change(a, b, c, Calls::Protect),
        64..=66 => o.change(a, b, c, Calls::Drop),
        67 => o.change(a, b, c, Calls::AskForHuge),
        68 => o.change(a, b, c, Calls::Pin),
        69..=71 => o.replace(a, b, c),
        72..=73 => o.taint(a, b, c),
        74..=84 => o.write(a, b, c),
        85..=92 => {
            for _ in 0..a % 60 {
                if o.space.step() == Progress::Idle {
                    break;
                }
            }
        }
        93..=95 => o.fake.advance_ms([1, 7, 600, 11_000][a % 4]),
        96 => {
            o.space.fork_prepare();
            o.space.fork_parent();
        }
        97 => {
            o.space.fork_prepare();
            o.space.fork_child();
        }
        98 => {
            o.space.press();
        }
        99..=101 => o.turn(a, b),
        102..=104 => o.drop_again(a, b, c),
        _ => {
            let what = [
                Failing::Open,
                Failing::Migrate,
                Failing::Engine,
                Failing::Stall,
                Failing::Memory,
                Failing::Areas,
                Failing::Moves,
                Failing::Isolate,
            ];
            match a % 10 {
                i if i < what.len() => o.fail(what[i]),
                _ => o.heal(),
            }
        }
    }
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn the_program_sees_what_it_must((settings, shards, ops) in programs(160)) {
        let mut o = Oracle::new(&settings, shards);
        ops.into_iter().for_each(|op| {
            apply(&mut o, op);
            o.check();
        });
        o.check_all();
        o.end();
    }

    #[test]
    fn a_retired_engine_keeps_no_addresses((settings, shards, ops) in programs(80)) {
        let mut o = Oracle::new(&settings, shards);
        ops.into_iter().for_each(|op| apply(&mut o, op));
        o.retire();
    }
}

#[test]
fn a_carved_slot_with_changed_attributes_hands_out_no_more() {
    let mut o = Oracle::new(&[], 1);
    let run = |o: &mut Oracle| o.space.allocate(0, 300 << 10, 16, Need::Any).expect("an empty arena").addr;
    let (kept, changed) = (run(&mut o), run(&mut o));
    assert_eq!(kept / SLOT, changed / SLOT);
    o.space.taint(Span::new(changed, PAGE));
    assert!(o.space.free(changed));
    assert_ne!(run(&mut o) / SLOT, kept / SLOT, "pages whose attributes are not those of fresh memory");
}

#[test]
fn what_is_dropped_and_used_again_comes_back() {
    let o = Oracle::new(&[(Knob::Budget, 8 * SLOT as u64)], 1);
    let span = mapped(&o, 4);
    let present = |o: &Oracle| (span.start..span.end).step_by(SLOT).filter(|&at| o.fake.page(at).present).count();
    // How many slots are there after a drop, all of zeroes.
    let drop = |o: &Oracle| {
        o.space.recycle(0, span, |part| {
            o.fake.empty(part);
            true
        });
        assert!((span.start..span.end).step_by(PAGE).all(|page| o.fake.read(page) == Some(0)));
        present(o)
    };
    let again = |o: &Oracle| {
        o.fake.write(span, 1);
        drop(o)
    };
    let left: Vec<_> = (0..6).map(|_| again(&o)).collect();
    assert_eq!(left, [0, 0, 0, 4, 4, 4]);
    // Not used since: it goes.
    assert_eq!(drop(&o), 0);
    (0..4).for_each(|_| _ = again(&o));
    // Up to the first page that has another reference.
    o.fake.write(span, 1);
    o.fake.pin(span.start + 2 * SLOT, true);
    assert_eq!(drop(&o), 2);
}

#[test]
fn frames_that_cannot_move_are_left_to_the_kernel() {
    let o = Oracle::new(&[(Knob::Budget, 32 * SLOT as u64)], 1);
    let span = mapped(&o, 8);
    o.fake.write(span, 1);
    o.fake.pin(span.start + 3 * SLOT + 5 * PAGE, true);
    assert!(o.space.unmap(0, span, || false));
    assert_eq!(o.space.budget().idle(), 7);
    // And what is kept comes back as zeroes.
    let span = mapped(&o, 8);
    assert!((span.start..span.end).step_by(PAGE).all(|page| o.fake.read(page) == Some(0)));
    assert_eq!((o.space.budget().idle(), o.fake.page(span.start + 6 * SLOT).present), (0, true));
}

#[test]
fn what_somebody_else_mapped_there_meanwhile_is_not_recycled() {
    let o = Oracle::new(&[(Knob::Budget, 32 * SLOT as u64)], 1);
    let span = mapped(&o, 4);
    o.fake.write(span, 1);
    // Protected by a call that was not seen: rights differ, so the kernel moves nothing.
    o.fake.close(Span::new(span.start + SLOT, SLOT));
    let by_kernel = || {
        o.fake.unmap(span);
        true
    };
    assert!(o.space.unmap(0, span, by_kernel), "several areas");
    assert_eq!((o.space.budget().idle(), o.space.budget().charged()), (0, 0));
}

#[test]
fn what_the_kernel_does_not_unmap_is_noted_as_before() {
    let o = Oracle::new(&[(Knob::Budget, 32 * SLOT as u64)], 1);
    let span = mapped(&o, 4);
    let charged = o.space.budget().charged();
    assert!(charged > 0);
    for _ in 0..2 {
        o.fake.fail(Failing::Isolate);
        assert!(!o.space.unmap(0, span, || false));
        assert_eq!((o.space.budget().charged(), o.space.is_noted(span)), (charged, true));
    }
    // Memory that the program offers is there until the kernel needs it.
    o.space.change(span, Change::Offered);
    assert_eq!(o.space.budget().charged(), charged);
    calls::unmap(&o.space, &o.fake, 0, span);
    assert_eq!((o.space.budget().charged(), o.space.is_noted(span)), (0, false));
}

/// `mremap` takes a part of two slots away, to other offsets, and again. Each place of it may be charged, and none of
/// them has a slot of it whole.
#[test]
fn parts_of_slots_that_were_moved_and_unmapped_are_charged_no_more() {
    for is_written in [false, true] {
        let o = Oracle::new(&[(Knob::Budget, 32 * SLOT as u64)], 1);
        let span = mapped(&o, 2);
        if is_written {
            o.fake.write(span, 1);
        }
        let remap = |from: Span| {
            let whole = o.fake.map(2 * SLOT);
            let to = Span::new(whole.start + from.start % SLOT + PAGE, from.bytes());
            assert!(o.fake.migrate(from, to.start));
            o.fake.unmap(Span { start: whole.start, end: to.start });
            o.fake.unmap(Span { start: to.end, end: whole.end });
            o.fake.unmap(from);
            o.space.moved(from, to);
            to
        };
        let part = remap(remap(Span::new(span.start + SLOT / 2, SLOT)));
        assert!(o.space.is_noted(part) && o.space.budget().charged() >= 2);
        calls::unmap(&o.space, &o.fake, 0, part);
        assert!(!o.space.is_noted(part));
        calls::unmap(&o.space, &o.fake, 0, span);
        assert_eq!((o.space.budget().charged(), o.space.budget().used()), (0, 0));
    }
}

/// What the program changed the attributes of is out of reach when it comes back. Frames move in and out all the same.
#[test]
fn frames_move_through_slots_that_were_reset() {
    let o = Oracle::new(&[(Knob::Budget, 32 * SLOT as u64), (Knob::Check, 1)], 1);
    let block = o.space.allocate(0, 16 * SLOT, SLOT, Need::Any).expect("an empty arena").addr;
    o.space.taint(Span::new(block, 16 * SLOT));
    assert!(o.space.free(block));
    let span = mapped(&o, 4);
    o.fake.write(span, 1);
    assert!(o.space.unmap(0, span, || false));
    assert_eq!(o.space.budget().idle(), 4);
    let span = mapped(&o, 4);
    assert_eq!(o.space.budget().idle(), 0);
    assert!((span.start..span.end).step_by(PAGE).all(|page| o.fake.read(page) == Some(0)));
}

/// A range of a call may be as large as the address space, and most of it unknown.
#[test]
fn ranges_of_any_size_are_no_work() {
    limit();
    let o = Oracle::new(&[(Knob::Budget, 32 * SLOT as u64)], 1);
    // Far apart.
    let low = Span::new(64 * SLOT, 4 * SLOT);
    (o.fake.open(low));
    o.space.mapped(0, low);
    let high = o.fake.map(4 * SLOT);
    o.space.mapped(0, high);
    o.space.change(ALL, Change::Dropped);
    o.space.change(ALL, Change::HugeAdvised);
    let mut given = 0;
    o.space.recycle(0, ALL, |part| {
        given += part.bytes();
        false
    });
    assert_eq!(given, ALL.bytes());
    // What does not fit the table is the kernel's alone, and takes nothing from others.
    o.space.mapped(0, Span::new(1 << 46, 1 << 45));
    o.space.note_exit();
    o.space.moved(Span { start: SLOT, ..ALL }, Span::new(1 << 46, 1 << 45));
    o.space.forget(ALL);
    assert_eq!(o.space.budget().charged(), 0);
    mapped(&o, 4);
    assert!(o.space.budget().charged() > 0, "a mapping that is not noted");
    o.fake.fail(Failing::Isolate);
    assert!(o.space.unmap(0, Span { start: SLOT, ..ALL }, || true));
    assert_eq!(o.space.budget().charged(), 0);
}

#[test]
fn blocks_are_aligned_or_refused() {
    let o = Oracle::new(&[(Knob::Budget, 32 * SLOT as u64)], 8);
    for cpu in 0..8 {
        for align in [1, 2, 8, 16, 64].map(|slots| slots * SLOT) {
            let got = o.space.allocate(cpu, SLOT + PAGE, align, Need::Any);
            assert!(got.is_none_or(|got| got.addr % align == 0), "{got:x?} at a multiple of {align:#x}");
        }
    }
}
