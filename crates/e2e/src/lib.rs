//! Real, unmodified programs run plain and under the preload library: same output, same exit status, same files.
//!
//! A test describes a program as a [`Case`] and calls [`Case::same`]. Three runs follow: plain, with the library, and
//! with the library in its checking mode (`FAULTLESS_CHECK=1`). In this mode it verifies that all memory it hands out
//! as zero is zero, and fills the other with a pattern. What the library did is read from the counters page of each
//! process of the run ([`Counters`]).

/// Tests with names of their own: each line is a name, and what the test of this name runs.
#[macro_export]
macro_rules! tests {
    ($($(#[$about:meta])* $name:ident: $run:expr;)+) => {
        $($(#[$about])*
        #[test]
        fn $name() {
            $run;
        })+
    };
}

mod case;
mod counters;
mod library;
mod seen;
mod tools;

pub use case::{Case, Run};
pub use counters::Counters;
pub use library::{command, library};
pub use tools::{compile, find, naming_python, need, python, scratch, script, skip};
