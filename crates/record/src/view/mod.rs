//! The data of a summary for people and other programs.
//!
//! | file | holds |
//! |---|---|
//! | [`text`] | tables and sentences for a terminal |

pub mod text;
