//! The end of the program, if it ends by itself: memory that was brought ahead of it and not used is counted.

use core::sync::atomic::Ordering;

use crate::kernel::call::pid;
use crate::runtime::engine::{self, Engine};

/// Runs behind the program's own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        // A forked child that has not used the engine has nothing to tell.
        let is_own = |engine: &Engine| engine.page.header.pid.load(Ordering::Relaxed) == pid() as u32;
        if engine::running().is_some_and(|engine| !engine.is_retired() && is_own(engine))
            && let Some(engine) = engine::enter()
        {
            engine.space.note_exit();
        }
    }
    at_exit
};
