//! The next functions behind ours, in the order of symbol lookup: of another library, or of the C library.
//!
//! They are found all at once, by the libraries' own tables (`elf.rs`), and published together: a thread that sees
//! one of them sees all. Other libraries may not be ready yet, so they are not asked. The dynamic linker is asked
//! where each library lies (`_dl_find_object`, glibc 2.35), for which it takes no lock.
//!
//! Only libraries up to the C library count. These were loaded with the program, and stay: so no lock is needed to walk the
//! dynamic linker's list up to there, whatever other threads load and unload. Libraries that the program opens later are
//! none that its calls reach by name.
//!
//! Without the GNU C library (musl) the functions are found by `dlsym`, and nothing starts.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use crate::kernel::elf::{Debug, Image, Library, Map, Name, Place, Version};
use crate::kernel::linked::{is_linked, weak};

macro_rules! functions {
    ($($function:ident $name:literal,)+) => {
        /// A function of which the next one is known.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        pub enum Function {
            $($function),+
        }

        const NAMES: &[Name] = &[$(Name::new($name)),+];
    };
}

functions! {
    // The allocator. Of these the C library's debugging allocator has old versions.
    Malloc c"malloc", Calloc c"calloc", Realloc c"realloc", Free c"free", Memalign c"memalign",
    Usable c"malloc_usable_size", AlignedAlloc c"aligned_alloc", PosixMemalign c"posix_memalign", Valloc c"valloc",
    Pvalloc c"pvalloc",
    // Others that take its blocks.
    Reallocarray c"reallocarray", FreeSized c"free_sized", Sallocx c"sallocx", TcFree c"tc_free",
    Mallinfo c"mallinfo", Mallinfo2 c"mallinfo2", Mallopt c"mallopt",
    // Calls.
    Prctl c"prctl", Unshare c"unshare", Setns c"setns", Setrlimit c"setrlimit", Setrlimit64 c"setrlimit64",
    Prlimit c"prlimit", Prlimit64 c"prlimit64", Mlockall c"mlockall", Mmap c"mmap", Mmap64 c"mmap64",
    Munmap c"munmap", Mremap c"mremap", Mprotect c"mprotect", PkeyMprotect c"pkey_mprotect", Mlock c"mlock",
    Mlock2 c"mlock2", Munlock c"munlock", Mseal c"mseal", Mbind c"mbind", Madvise c"madvise",
    PosixMadvise c"posix_madvise", ProcessMadvise c"process_madvise", Mincore c"mincore", Ioctl c"ioctl",
    Setsockopt c"setsockopt", Shmat c"shmat", Vmsplice c"vmsplice", Personality c"personality",
    Syscall c"syscall", CloseRange c"close_range", Brk c"brk", Sbrk c"sbrk", Dlopen c"dlopen",
    PthreadCreate c"pthread_create", ThrdCreate c"thrd_create", PthreadExit c"pthread_exit", ThrdExit c"thrd_exit",
    Send c"send", Sendto c"sendto", Sendmsg c"sendmsg", Sendmmsg c"sendmmsg",
    Setuid c"setuid", Setgid c"setgid", Seteuid c"seteuid", Setegid c"setegid", Setreuid c"setreuid",
    Setregid c"setregid", Setresuid c"setresuid", Setresgid c"setresgid", Setgroups c"setgroups",
    Initgroups c"initgroups", Vfork c"vfork", Clone c"clone",
    // The C library's own, whatever stands before it.
    RegisterAtfork c"__register_atfork", ClockGettime c"clock_gettime", SchedGetcpu c"sched_getcpu",
    SecureGetenv c"secure_getenv",
}

const N: usize = NAMES.len();
/// From here on they are the C library's own.
const OWN: usize = Function::RegisterAtfork as usize;
/// The allocator's functions come first.
const ALLOCATOR: usize = Function::Pvalloc as usize + 1;

static ADDRESSES: [AtomicUsize; N] = [const { AtomicUsize::new(0) }; N];
/// The libraries that they are of, by their place behind ours.
static LIBRARIES: [AtomicU16; N] = [const { AtomicU16::new(NONE) }; N];
/// The place of the GNU C library, or [`NONE`].
static C_LIBRARY: AtomicU16 = AtomicU16::new(NONE);
static DEBUGS: AtomicBool = AtomicBool::new(false);
/// All of the above stands.
static KNOWN: AtomicBool = AtomicBool::new(false);

const NONE: u16 = u16::MAX;

/// Whether the next functions are known. They are not before this library is linked, and while another thread, or what this
/// one has interrupted, is looking for them.
#[inline]
pub fn is_known() -> bool {
    KNOWN.load(Ordering::Acquire) || look()
}

/// The next function of this name; 0 where there is none, or none is known.
#[inline]
pub fn next(function: Function) -> usize {
    if is_known() { ADDRESSES[function as usize].load(Ordering::Relaxed) } else { 0 }
}

/// The same if it is not the C library's own.
pub fn foreign(function: Function) -> usize {
    if is_foreign(function) { next(function) } else { 0 }
}

/// Whether the next function is there, and not the GNU C library's.
pub fn is_foreign(function: Function) -> bool {
    let library = library_of(function);
    library != NONE && library != C_LIBRARY.load(Ordering::Relaxed)
}

/// Whether two next functions are of one library.
pub fn are_together(one: Function, other: Function) -> bool {
    library_of(one) != NONE && library_of(one) == library_of(other)
}

fn library_of(function: Function) -> u16 {
    if is_known() { LIBRARIES[function as usize].load(Ordering::Relaxed) } else { NONE }
}

/// Whether the C library is the GNU C library.
pub fn is_glibc() -> bool {
    is_known() && C_LIBRARY.load(Ordering::Relaxed) != NONE
}

/// Whether the C library's debugging allocator is the next one. It hides its functions from a look-up without a version.
pub fn debugs() -> bool {
    is_known() && DEBUGS.load(Ordering::Relaxed)
}

/// What was found, on its way to be published.
struct Found {
    addresses: [usize; N],
    libraries: [u16; N],
}

#[cold]
#[inline(never)]
fn look() -> bool {
    static LOOKING: AtomicBool = AtomicBool::new(false);
    // An indirect function is asked for its address, and may come back here.
    if !is_linked() || LOOKING.swap(true, Ordering::Acquire) {
        return KNOWN.load(Ordering::Acquire);
    }
    let mut found = Found { addresses: [0; N], libraries: [NONE; N] };
    let known = KNOWN.load(Ordering::Acquire) || found.look();
    LOOKING.store(false, Ordering::Release);
    known
}

impl Found {
    fn look(&mut self) -> bool {
        let debug = weak!("_r_debug") as *const Debug;
        // SAFETY: the dynamic linker's variable. The program may have a copy, which is filled when it is linked itself.
        let first = unsafe { debug.as_ref().map(|debug| debug.first) };
        match first {
            Some(first) if first.is_null() => return false,
            // SAFETY: the list of libraries.
            Some(first) => match unsafe { self.look_in(&*first) } {
                true => {}
                false => self.ask(),
            },
            None => self.ask(),
        }
        for i in 0..N {
            ADDRESSES[i].store(self.addresses[i], Ordering::Relaxed);
            LIBRARIES[i].store(self.libraries[i], Ordering::Relaxed);
        }
        KNOWN.store(true, Ordering::Release);
        true
    }

    /// Looks in the libraries behind ours, up to the GNU C library; false where that is not there.
    ///
    /// # Safety
    /// `first` is the first one of the dynamic linker's list.
    unsafe fn look_in(&mut self, first: &Map) -> bool {
        let ours = own_dynamic_section();
        let (mut next, mut place, mut behind) = (Some(first), 0, None);
        while let Some(map) = next {
            // SAFETY: up to the C library they all stay loaded. Where it is not there, this is no glibc, and its list is read
            // once, in vain.
            unsafe {
                next = map.next();
                if map.has_dynamic_section(ours) {
                    behind = next;
                    continue;
                }
                let Some(library) = Library::of(map, image_of(map)) else { continue };
                let is_c_library = library.is_called(c"libc.so.6");
                if is_c_library || behind.is_some() {
                    let end = if is_c_library { N } else { OWN };
                    self.look_in_one(&library, place, Version::Default, 0..end);
                }
                if is_c_library {
                    C_LIBRARY.store(place, Ordering::Relaxed);
                    if let Some(behind) = behind.filter(|_| place > 0) {
                        self.look_for_debugger(behind, place);
                    }
                    return true;
                }
                place += u16::from(behind.is_some());
            }
        }
        false
    }

    fn look_in_one(&mut self, library: &Library, place: u16, version: Version, names: core::ops::Range<usize>) {
        for i in names {
            if self.libraries[i] == NONE
                && let Some(at) = library.find(&NAMES[i], version).map(address).filter(|at| *at != 0)
            {
                (self.addresses[i], self.libraries[i]) = (at, place);
            }
        }
    }

    /// The C library's debugging allocator has the oldest version of each function alone.
    ///
    /// # Safety
    /// `behind` is the library behind ours, and the C library follows it as the one at `c_library`.
    unsafe fn look_for_debugger(&mut self, behind: &Map, c_library: u16) {
        #[cfg(target_arch = "x86_64")]
        const BASE: [&CStr; 2] = [c"GLIBC_2.2.5", c"GLIBC_2.16"];
        #[cfg(not(target_arch = "x86_64"))]
        const BASE: [&CStr; 1] = [c"GLIBC_2.17"];
        // An allocator of another kind comes before it.
        if self.libraries[..Function::Usable as usize].iter().any(|library| *library != c_library) {
            return;
        }
        let mut base = Found { addresses: [0; N], libraries: [NONE; N] };
        let (mut next, mut place) = (Some(behind), 0);
        while let Some(map) = next.filter(|_| place <= c_library) {
            // SAFETY: by contract.
            unsafe {
                next = map.next();
                let Some(library) = Library::of(map, image_of(map)) else { continue };
                for version in BASE {
                    base.look_in_one(&library, place, Version::Named(version), 0..ALLOCATOR);
                }
            }
            place += 1;
        }
        if base.libraries[Function::Malloc as usize] != c_library {
            self.addresses[..ALLOCATOR].copy_from_slice(&base.addresses[..ALLOCATOR]);
            self.libraries[..ALLOCATOR].copy_from_slice(&base.libraries[..ALLOCATOR]);
            DEBUGS.store(true, Ordering::Relaxed);
        }
    }

    /// Asks the dynamic linker of another C library.
    fn ask(&mut self) {
        for (i, name) in NAMES.iter().enumerate() {
            self.addresses[i] = ask(name.text());
            self.libraries[i] = if self.addresses[i] == 0 { NONE } else { 0 };
        }
    }
}

/// The memory of a library, as the dynamic linker knows it. An older one does not tell: then the library's tables are
/// believed.
///
/// # Safety
/// It is loaded, and stays so while the result is used.
unsafe fn image_of(map: &Map) -> Image {
    /// The beginning of `struct dl_find_object`, and more room than it has behind.
    #[repr(C)]
    #[derive(Default)]
    struct Object {
        flags: u64,
        start: usize,
        end: usize,
        rest: [usize; 29],
    }
    type Find = unsafe extern "C" fn(usize, *mut Object) -> c_int;
    let mut object = Object::default();
    let is_known = match weak!("_dl_find_object") {
        0 => false,
        // SAFETY: the function of that name; the structure is writable.
        find => unsafe { core::mem::transmute::<usize, Find>(find)(map.dynamic, &mut object) == 0 },
    };
    let is_there = is_known && (object.start..object.end).contains(&map.dynamic);
    // SAFETY: by contract.
    unsafe { if is_there { Image::new(object.start, object.end) } else { Image::new(1, usize::MAX) } }
}

/// The address of a function. An indirect one is asked for it.
fn address(place: Place) -> usize {
    match place {
        Place::Direct(at) => at,
        // SAFETY: a function without arguments, of a library that the dynamic linker has linked: it links those behind
        // ours first.
        Place::Indirect(at) => unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(at)() },
    }
}

/// The next function of a name, by the dynamic linker.
pub fn ask(name: &CStr) -> usize {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    match weak!("dlsym") {
        0 => 0,
        // SAFETY: the function of that name, with a constant name.
        dlsym => unsafe { core::mem::transmute::<usize, Dlsym>(dlsym)(libc::RTLD_NEXT, name.as_ptr()) as usize },
    }
}

/// Where the dynamic section of this library is.
fn own_dynamic_section() -> usize {
    let at: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an address of this library's own.
    unsafe {
        core::arch::asm!(".hidden _DYNAMIC", "lea {0}, [rip + _DYNAMIC]", out(reg) at,
            options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the same.
    unsafe {
        core::arch::asm!(".hidden _DYNAMIC", "adrp {0}, _DYNAMIC", "add {0}, {0}, :lo12:_DYNAMIC", out(reg) at,
            options(pure, nomem, nostack, preserves_flags));
    }
    at
}
