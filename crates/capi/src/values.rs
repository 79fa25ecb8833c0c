//! Functions that answer with a value.

/// Functions of something that was made here that answer with a value; null gives the value named first.
macro_rules! values {
    ($of:ty; $($(#[$doc:meta])* $name:ident: $type:ty, $null:expr, $f:expr;)+) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// Null, or what was made here and not freed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(of: *const $of) -> $type {
            let _call = Call::begin();
            let value: fn(&$of) -> $type = $f;
            // SAFETY: by contract.
            unsafe { of.as_ref() }.map_or_else(|| $null, value)
        })+
    };
}
