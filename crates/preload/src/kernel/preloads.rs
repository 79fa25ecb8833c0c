//! The list of libraries in `LD_PRELOAD`, as the loader reads it: colons and spaces part them.

const LIBRARY: &[u8] = b"libfaultless_preload.so";

/// Writes the list without this library to `to`, with a zero behind it. How many bytes that are without the zero; `None`
/// where it does not fit: it is never longer than `list` and the zero.
pub fn write_others(list: &[u8], to: &mut [u8]) -> Option<usize> {
    let mut end = 0;
    let mut put = |bytes: &[u8]| {
        to.get_mut(end..end + bytes.len())?.copy_from_slice(bytes);
        end += bytes.len();
        Some(end)
    };
    let mut is_first = true;
    for path in
        list.split(|b| matches!(b, b':' | b' ')).filter(|path| !path.is_empty() && !path.ends_with(LIBRARY))
    {
        if !core::mem::replace(&mut is_first, false) {
            put(b":")?;
        }
        put(path)?;
    }
    put(b"\0").map(|end| end - 1)
}
