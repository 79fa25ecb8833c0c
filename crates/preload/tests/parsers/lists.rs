//! Lists of libraries.

use faultless_testkit::foreign::{Guarded, cases, garbled};
use proptest::prelude::*;

use crate::preloads::write_others;

proptest! {
    #![proptest_config(cases())]

    /// What is left of a list are the other libraries, in their order, and there is room for them where the list was.
    #[test]
    fn the_others_of_a_list_stay(list in garbled(&["/a/libfaultless_preload.so:/b.so /c.so", "libfaultless_preload.so"])) {
        let list = Guarded::new(&list);
        let mut room = vec![7; list.len() + 1];
        let end = write_others(&list, &mut room).expect("room");
        let others = list.split(|b| b" :".contains(b)).filter(|path| !path.is_empty());
        let others: Vec<_> = others.filter(|path| !path.ends_with(b"libfaultless_preload.so")).collect();
        prop_assert_eq!(&room[..end], &others.join(&b':')[..]);
        prop_assert!(room[end] == 0 && room[end + 1..].iter().all(|byte| *byte == 7));
        prop_assert_eq!(write_others(&list, &mut room[..end]), None);
    }
}
