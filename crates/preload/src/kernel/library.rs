//! Which library an address belongs to.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;

use faultless_base::Span;

/// The addresses of a loaded library or program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Library(Span);

impl Library {
    /// The library that has this address; `None` where the dynamic linker knows none.
    pub fn of(at: usize) -> Option<Self> {
        let mut info = MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: writes `info` where it succeeds.
        let base = unsafe {
            let found = libc::dladdr(at as *const c_void, info.as_mut_ptr()) != 0;
            found.then(|| info.assume_init().dli_fbase as usize)
        }?;
        // SAFETY: a library begins with the head of its file, which is mapped with it.
        let head = unsafe { &*(base as *const libc::Elf64_Ehdr) };
        if head.e_ident[..4] != *b"\x7fELF" {
            return None;
        }
        let table = (base + head.e_phoff as usize) as *const libc::Elf64_Phdr;
        // SAFETY: the table that the head tells of; the dynamic linker reads it there, too.
        let parts = unsafe { core::slice::from_raw_parts(table, head.e_phnum.into()) };
        let loaded = || parts.iter().filter(|part| part.p_type == libc::PT_LOAD);
        let first = loaded().map(|part| part.p_vaddr).min()?;
        let end = loaded().map(|part| part.p_vaddr + part.p_memsz).max()?;
        Some(Self(Span { start: base, end: base + (end - first) as usize }))
    }

    /// Whether an address is one of its own.
    pub fn has(self, at: usize) -> bool {
        self.0.start <= at && at < self.0.end
    }
}

/// The next function of this name behind this library; 0 where there is none.
pub fn find(name: &CStr) -> usize {
    // SAFETY: a constant name.
    let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if at == 0 {
        forget_error();
    }
    at
}

/// A symbol that is not there is not the program's to be told of. Before the C library's own constructor has run, it
/// cannot tell; then the same search is made once more, before `main`.
#[cold]
fn forget_error() {
    unsafe extern "C" {
        fn dlerror() -> *mut c_char;
        /// Set by that constructor.
        static environ: *const *const c_char;
    }
    // SAFETY: no arguments. The second call gives the text of the first one back.
    unsafe {
        if environ.is_null() {
            return;
        }
        dlerror();
        dlerror();
    }
}
