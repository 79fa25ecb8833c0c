//! What the command and the benches share: what is read from other processes, what faults cost, and figures.
//!
//! | room | holds |
//! |---|---|
//! | [`figures`] | figures and lines for people |
//! | [`pages`] | the counters pages of processes: found, read, summed |
//! | [`costs`] | what faults of this machine cost, measured |
//! | [`paired`] | two ways of running, by turns, and what their ratios say |
//! | [`library`] | where the preload library lies |

pub mod costs;
pub mod figures;
pub mod library;
pub mod pages;
pub mod paired;
