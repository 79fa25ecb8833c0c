//! What page faults cost a program: recorded while it runs, and told afterwards.
//!
//! [`collect`] has the kernel write a record of every n-th fault into a file; [`summary`] makes data of the file,
//! and [`view`] text, JSON and other forms of the data. The program itself is not changed, and runs no code of this.
//!
//! | room | holds |
//! |---|---|
//! | [`sys`] | the kernel's events and rings |
//! | [`wire`] | records as the kernel writes them |
//! | `file` | the file of a recording |
//! | `map` | maps with fast hashes |
//! | `maps` | the text of a process's mappings |
//! | [`pairs`] | beginnings and ends of faults, put together |
//! | [`collect`] | recording |
//! | `ranges` | what lies at addresses |
//! | [`space`] | processes and their mappings, as they change |
//! | [`symbols`] | names of functions |
//! | [`interpreted`] | calls of an interpreter's functions, in the memory of a stack |
//! | [`summary`] | what a recording says, as data |
//! | [`view`] | the data for people and other programs |

pub mod collect;
pub mod file;
pub mod interpreted;
mod map;
mod maps;
pub mod pairs;
mod ranges;
pub mod space;
pub mod summary;
pub mod symbols;
pub mod sys;
pub mod view;
pub mod wire;
