//! What the library reads that others wrote: tables of loaded libraries, and lists of areas. These are the library's
//! own files, which need neither the engine nor the C library's functions replaced.

#[allow(dead_code)]
#[path = "../src/kernel/elf.rs"]
mod elf;
#[path = "../src/kernel/preloads.rs"]
mod preloads;
#[path = "../src/kernel/smaps/text.rs"]
mod text;

#[path = "parsers/areas.rs"]
mod areas;
#[path = "parsers/lists.rs"]
mod lists;
#[path = "parsers/symbols.rs"]
mod symbols;
#[path = "parsers/tables.rs"]
mod tables;
