//! The file of counters of a process, in the directory that `faultless run` made: its name, and what to do if there is
//! none.
//!
//! The name is DIR/PID. Numbers of processes mean others in another PID namespace than the directory's: there it is
//! DIR/PID.NAMESPACE. The command removes the directory with all files in it, also those of processes that were
//! killed.

use core::ffi::CStr;

use super::raw::syscall;

/// Bytes of a path at most, with the zero at its end.
pub const PATH: usize = 512;

/// These parts as one path, if it fits.
fn join<'a>(path: &'a mut [u8; PATH], parts: &[&[u8]]) -> Option<&'a CStr> {
    let mut end = 0;
    for part in parts {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    *path.get_mut(end)? = 0;
    CStr::from_bytes_until_nul(path.get(..=end)?).ok()
}

/// The number of this process's PID namespace, as the kernel writes it; nothing where that cannot be told.
fn namespace(link: &mut [u8; 32]) -> &[u8] {
    let name = c"/proc/self/ns/pid".as_ptr() as usize;
    let args = [libc::AT_FDCWD as usize, name, link.as_mut_ptr() as usize, link.len(), 0, 0];
    // SAFETY: a path that ends with zero, and room for the answer.
    let n = unsafe { syscall(libc::SYS_readlinkat, args) }.unwrap_or(0);
    link[..n].strip_prefix(b"pid:[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or(&[])
}

/// Whether `dir`, of which the name is `faultless-PID-START-NAMESPACE-N`, was made in a PID namespace other than
/// `own`. Numbers of processes mean others there.
fn is_foreign(dir: &[u8], own: &[u8]) -> bool {
    let name = dir.rsplit(|b| *b == b'/').next().unwrap_or(dir);
    let made_in = name.strip_prefix(b"faultless-").and_then(|rest| rest.split(|b| *b == b'-').nth(2));
    !own.is_empty() && made_in.is_some_and(|made_in| made_in != own)
}

/// The file of this process in `dir`, if its name fits.
pub fn path<'a>(dir: &[u8], path: &'a mut [u8; PATH]) -> Option<&'a CStr> {
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    // SAFETY: no arguments.
    let mut rest = unsafe { syscall(libc::SYS_getpid, [0; 6]) }.ok()? as u32;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let mut link = [0u8; 32];
    let own = namespace(&mut link);
    let (dot, own) = if is_foreign(dir, own) { (&b"."[..], own) } else { (&b""[..], &b""[..]) };
    join(path, &[dir, b"/", &digits[first..], dot, own])
}

/// Tells the command that made `dir` that a process counts where the command cannot read it: the file DIR/lost is no
/// longer as old as it was made. That takes no descriptor and no room, and other users may do it.
pub fn mark_lost(dir: &[u8]) -> Option<()> {
    let mut path = [0u8; PATH];
    let path = join(&mut path, &[dir, b"/lost"])?;
    // SAFETY: a path that ends with zero; no times stand for now.
    unsafe { syscall(libc::SYS_utimensat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0]) }
        .ok()
        .map(drop)
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::borrow::ToOwned;
    use std::format;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn names_tell_namespaces_apart() {
        let mut link = [0; 32];
        let own = core::str::from_utf8(namespace(&mut link)).unwrap().to_owned();
        assert!(!own.is_empty(), "the kernel names it");
        let pid = std::process::id();
        let cases = [
            (format!("/x/faultless-7-8-{own}-0"), format!("/x/faultless-7-8-{own}-0/{pid}")),
            ("/x/faultless-7-8-9-0".into(), format!("/x/faultless-7-8-9-0/{pid}.{own}")),
            ("/x/other".into(), format!("/x/other/{pid}")),
        ];
        for (dir, expected) in cases {
            let mut room = [7; PATH];
            assert_eq!(path(dir.as_bytes(), &mut room).unwrap().to_str().unwrap(), expected);
        }
        assert!(path(&[b'x'; PATH], &mut [0; PATH]).is_none(), "too long");
    }

    proptest! {
        #![proptest_config(cases())]

        /// A name is all of its parts, or there is none.
        #[test]
        fn a_name_is_whole_or_not_there(dir in garbled(&["/dev/shm/faultless-7-8-9-0", "/x/faultless-", "-"]), long in 0usize..600) {
            let dir = [&b"/".repeat(long)[..], &dir].concat();
            let mut room = [7; PATH];
            let own = format!("/{}", std::process::id());
            match path(&dir, &mut room).filter(|_| !dir.contains(&0)) {
                Some(path) => {
                    let rest = path.to_bytes().strip_prefix(&dir[..]).and_then(|rest| rest.strip_prefix(own.as_bytes()));
                    prop_assert!(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b".")));
                }
                None => prop_assert!(dir.contains(&0) || dir.len() + own.len() + 12 > PATH),
            }
            prop_assert!(!is_foreign(&dir, b""));
        }
    }
}
