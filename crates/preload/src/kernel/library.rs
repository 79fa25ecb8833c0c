//! Which library an address belongs to.

use core::ffi::{CStr, c_char, c_int, c_void};

use faultless_base::Span;

/// The addresses of a loaded library or program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Library(Span);

impl Library {
    /// The library that has this address; `None` where the dynamic linker knows none. It asks for the parts that are
    /// loaded: `dladdr` would search all symbols of the C library, which takes some 25 us.
    pub fn of(at: usize) -> Option<Self> {
        let mut found = None;
        for_each(|library| {
            if library.has(at) {
                found = Some(library);
            }
        });
        found
    }

    /// The C library.
    pub fn c_library() -> Option<Self> {
        Self::of(libc::gnu_get_libc_version as *const () as usize)
    }

    /// Whether an address is one of its own.
    pub fn has(self, at: usize) -> bool {
        self.0.start <= at && at < self.0.end
    }
}

/// Whether a library lies behind ours in the order of symbol lookup, besides the C library and the dynamic linker.
pub fn any_behind() -> bool {
    // SAFETY: no memory.
    let linker = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    let (ours, libc) = (any_behind as *const () as usize, libc::gnu_get_libc_version as *const () as usize);
    let (mut behind, mut any) = (false, false);
    for_each(|library| {
        any |= behind && !library.has(libc) && library.0.start != linker;
        behind |= library.has(ours);
    });
    any
}

/// Every loaded library, in the order of symbol lookup as long as none was opened by the program.
fn for_each<F: FnMut(Library)>(mut then: F) {
    unsafe extern "C" fn one<F: FnMut(Library)>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        then: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker's account of a library, and the function below.
        let (info, then) = unsafe { (&*info, &mut *then.cast::<F>()) };
        // SAFETY: its program headers.
        let parts = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let loaded = || parts.iter().filter(|part| part.p_type == libc::PT_LOAD);
        let address = |of: u64| info.dlpi_addr.wrapping_add(of) as usize;
        let first = loaded().map(|part| address(part.p_vaddr)).min();
        let end = loaded().map(|part| address(part.p_vaddr + part.p_memsz)).max();
        if let (Some(start), Some(end)) = (first, end) {
            then(Library(Span { start, end }));
        }
        0
    }
    // SAFETY: the function is given what it expects, while this call lasts.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut then).cast()) };
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
