//! Error numbers of the kernel.

use core::fmt;

/// Why the kernel refused a call. Patterns may name the constants.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Errno(i32);

/// The names that are used here, each with its constant.
macro_rules! names {
    ($($name:ident)*) => {
        #[expect(missing_docs, reason = "errno(3) has them")]
        impl Errno {
            $(pub const $name: Self = Self(libc::$name);)*

            /// Its name, if it is used here.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV ENOTDIR EINVAL
    ENFILE EMFILE ENOTTY EFBIG ENOSPC ERANGE ENAMETOOLONG ENOSYS EOVERFLOW EOPNOTSUPP EBADMSG
}

impl Errno {
    /// The error with this number.
    #[inline]
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Its number, as C interfaces want it.
    #[inline]
    pub const fn number(self) -> i32 {
        self.0
    }
}

/// For callers that keep numbers, as those of `std::io::Error` do.
impl From<Errno> for i32 {
    #[inline]
    fn from(error: Errno) -> Self {
        error.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn an_error_says_its_name_where_it_has_one() {
        assert_eq!(
            (format!("{}", Errno::ENOMEM), format!("{:?}", Errno::new(4000))),
            ("ENOMEM".into(), "error 4000".into())
        );
        assert_eq!((Errno::new(libc::EAGAIN), i32::from(Errno::EIO)), (Errno::EAGAIN, libc::EIO));
    }
}
