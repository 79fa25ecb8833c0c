//! The data of a summary for people and other programs.
//!
//! | file | holds |
//! |---|---|
//! | [`text`] | tables and sentences for a terminal |
//! | [`diff`] | two summaries beside each other |
//! | [`collapsed`] | call stacks for flame graphs |
//! | [`html`] | one page for a browser |
//! | [`trace`] | single faults over time |

pub mod collapsed;
pub mod diff;
pub mod html;
pub mod text;
pub mod trace;
