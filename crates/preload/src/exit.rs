//! The end of the program, if it ends by itself: what was brought ahead of it and not used is counted.

use crate::engine;

/// Runs behind the program's own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        if engine::running().is_some_and(|engine| !engine.is_retired())
            && let Some(engine) = engine::enter()
        {
            engine.space.note_exit();
        }
    }
    at_exit
};
