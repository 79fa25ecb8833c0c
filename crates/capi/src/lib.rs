//! The C API: `include/faultless.h` says what each function does.

#[macro_use]
mod values;
mod call;
mod error;
mod file;
mod options;
mod snapshot;

use std::ffi::{CStr, c_char, c_int};
use std::ops::Range;
use std::ptr::null_mut;

use faultless::Background;
use faultless::region::{Advice, Delivery, Error, Region, Rights, set_as, set_speculative};

use call::Call;
use error::{ARGUMENT, answer, mistake, number};
pub use error::{faultless_errno, faultless_strerror};
pub use file::*;
pub use options::Options;
pub use snapshot::*;

/// Bits of `enum faultless_rights`. What may be written to may be read, as with the processor's own.
fn rights(bits: c_int) -> Option<Rights> {
    [Rights::None, Rights::Read, Rights::Write, Rights::Write].get(usize::try_from(bits).ok()?).copied()
}

fn advice(number: c_int) -> Option<Advice> {
    let all = [Advice::Normal, Advice::Random, Advice::Huge, Advice::NoHuge, Advice::DontNeed];
    all.get(usize::try_from(number).ok()?).copied()
}

fn range(offset: usize, length: usize) -> Range<usize> {
    offset..offset.saturating_add(length)
}

/// The bytes of a text; `None` for null.
///
/// # Safety
/// Null, or text that ends with a zero byte and lives as long as it is used.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: by contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Ends a region, or work in the background.
///
/// # Safety
/// Null, or what was made here, not freed, and not used any more.
unsafe fn end<T>(made: *mut T) {
    if !made.is_null() {
        // SAFETY: by contract.
        drop(unsafe { Box::from_raw(made) });
    }
}

/// Calls `f` with a region.
///
/// # Safety
/// Null, or a region that was made here and not freed.
unsafe fn with(region: *const Region, f: impl FnOnce(&Region) -> Result<(), Error>) -> c_int {
    // SAFETY: by contract.
    unsafe { region.as_ref() }.map_or_else(|| mistake(ARGUMENT), |region| answer(f(region)))
}

/// Gives what was made to the caller, or null and the number of the error.
///
/// # Safety
/// `to` is writable.
unsafe fn hand_out<T>(made: Result<T, c_int>, to: *mut *mut T) -> c_int {
    let (made, answer) = match made {
        Ok(made) => (Box::into_raw(Box::new(made)), 0),
        Err(number) => (null_mut(), number),
    };
    // SAFETY: by contract.
    unsafe { to.write(made) };
    answer
}

/// Gives the caller what is made of something that it has: null, and the number of the error, where there is none.
///
/// # Safety
/// `from` is null or readable, `to` null or writable.
unsafe fn make_of<F, T>(from: *const F, to: *mut *mut T, make: impl FnOnce(&F) -> Result<T, c_int>) -> c_int {
    // SAFETY: by contract.
    unsafe {
        let Some(to) = to.as_mut() else { return mistake(ARGUMENT) };
        *to = null_mut();
        hand_out(from.as_ref().map_or_else(|| Err(mistake(ARGUMENT)), make), to)
    }
}

/// Makes a region.
///
/// # Safety
/// `options` is null or readable as far as its size says, `region` null or writable; what `options` names lives as long as the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_region_new(
    length: usize,
    options: *const Options,
    region: *mut *mut Region,
) -> c_int {
    let _call = Call::begin();
    if region.is_null() {
        return mistake(ARGUMENT);
    }
    // SAFETY: by contract.
    unsafe { region.write(null_mut()) };
    let mut builder = Region::builder(length);
    if !options.is_null() {
        // SAFETY: by contract.
        let applied = unsafe { Options::read(options) }.and_then(|options| options.apply(builder).ok_or(ARGUMENT));
        builder = match applied {
            Ok(builder) => builder,
            Err(error) => return mistake(error),
        };
    }
    // SAFETY: by contract.
    unsafe { hand_out(builder.build().map_err(number), region) }
}

/// Ends a region.
///
/// # Safety
/// Null, or a region that was made here, not freed, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_region_free(region: *mut Region) {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { end(region) };
}

values! {
    Region;
    /// Its first byte.
    faultless_region_data: *mut u8, null_mut(), |region| region.as_ptr();
    /// Its length.
    faultless_region_length: usize, 0, |region| region.len();
    /// How many bytes of it are there.
    faultless_region_present: usize, 0, |region| region.present();
    /// How its faults are delivered.
    faultless_region_delivery: c_int, 0, |region| match region.delivery() {
        Delivery::Best => 0,
        Delivery::Direct => 1,
        Delivery::Thread => 2,
        Delivery::Signal => 3,
        Delivery::Kernel => 4,
    };
    /// Whether system calls may be given untouched memory.
    faultless_region_serves_system_calls: c_int, 0, |region| region.serves_system_calls() as c_int;
    /// Whether this thread may use it.
    faultless_region_check_thread: c_int, mistake(ARGUMENT), |region| answer(region.check_thread());
}

/// Functions that change a part of a region. An argument that stands for something is looked up by the function named
/// behind it; a number that stands for nothing is a mistake.
macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty $(=> $meaning:ident)?),*), |$region:ident, $range:ident| $call:expr;)+) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// Null, or a region that was made here and not freed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            region: *const Region,
            offset: usize,
            length: usize,
            $($arg: $type),*
        ) -> c_int {
            let _call = Call::begin();
            $($(let Some($arg) = $meaning($arg) else { return mistake(ARGUMENT) };)?)*
            let $range = range(offset, length);
            // SAFETY: by contract.
            unsafe { with(region, |$region| $call) }
        })+
    };
}

changes! {
    /// Maps a part.
    faultless_map(number: c_int => rights), |region, range| region.map(range, number);
    /// Changes what a part may be used for.
    faultless_protect(number: c_int => rights), |region, range| region.protect(range, number);
    /// Takes advice about a part.
    faultless_advise(number: c_int => advice), |region, range| region.advise(range, number);
    /// Unmaps a part.
    faultless_unmap(), |region, range| region.unmap(range);
    /// Moves a part.
    faultless_remap(to: usize), |region, range| region.remap(range, to);
    /// Brings all pages of a part.
    faultless_populate(), |region, range| region.populate(range);
}

/// A counter by its name.
///
/// # Safety
/// Null, or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_counter(name: *const c_char) -> u64 {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { text(name) }.and_then(Region::counted_as).unwrap_or(0)
}

/// A counter of one region by its name.
///
/// # Safety
/// `region` is null, or one that was made here and not freed; `name` is null, or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_region_counter(region: *const Region, name: *const c_char) -> u64 {
    let _call = Call::begin();
    // SAFETY: by contract.
    let (Some(region), Some(name)) = (unsafe { (region.as_ref(), text(name)) }) else { return 0 };
    region.own_count_as(name).unwrap_or(0)
}

/// Sets a knob.
///
/// # Safety
/// Null, or text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_set(name: *const c_char, value: u64) -> c_int {
    let _call = Call::begin();
    // SAFETY: by contract.
    if unsafe { text(name) }.is_some_and(|name| set_as(name, value)) { 0 } else { mistake(ARGUMENT) }
}

/// Makes memory ready in the background.
///
/// # Safety
/// `background` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_reserve(bytes: usize, background: *mut *mut Background) -> c_int {
    let _call = Call::begin();
    if background.is_null() {
        return mistake(ARGUMENT);
    }
    // SAFETY: by contract.
    unsafe { hand_out(faultless::reserve(bytes).map_err(number), background) }
}

/// Brings all pages of a part in the background.
///
/// # Safety
/// `region` is null, or one that was made here and not freed; `background` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_populate_in_background(
    region: *const Region,
    offset: usize,
    length: usize,
    background: *mut *mut Background,
) -> c_int {
    let _call = Call::begin();
    if background.is_null() {
        return mistake(ARGUMENT);
    }
    // SAFETY: by contract.
    unsafe {
        background.write(null_mut());
        with(region, |region| {
            let started = region.populate_in_background(range(offset, length))?;
            background.write(Box::into_raw(Box::new(started)));
            Ok(())
        })
    }
}

values! {
    Background;
    /// Waits for the end of work in the background.
    faultless_background_wait: c_int, mistake(ARGUMENT), |background| answer(background.wait().map(drop));
    /// How many bytes are ready.
    faultless_background_ready: usize, 0, Background::ready;
    /// Whether it has ended.
    faultless_background_done: c_int, 0, |background| background.is_done() as c_int;
}

/// Ends it.
///
/// # Safety
/// Null, or what was given here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_background_cancel(background: *const Background) {
    let _call = Call::begin();
    // SAFETY: by contract.
    if let Some(background) = unsafe { background.as_ref() } {
        background.cancel();
    }
}

/// Forgets it; it goes on.
///
/// # Safety
/// Null, or what was given here, not freed, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faultless_background_free(background: *mut Background) {
    let _call = Call::begin();
    // SAFETY: by contract.
    unsafe { end(background) };
}

/// How many bytes are ready for regions to take.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_reserved() -> usize {
    let _call = Call::begin();
    faultless::reserved()
}

/// Gives them back to the system; how many bytes that were.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_release_reserved() -> usize {
    let _call = Call::begin();
    faultless::release_reserved()
}

/// Turns speculative faults on or off.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_set_speculative(on: c_int) {
    let _call = Call::begin();
    set_speculative(on != 0);
}
