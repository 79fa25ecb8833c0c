//! A call of the C API is no cancellation point. A thread that was cancelled in the middle would leave locks held, for
//! which others would wait for ever.

use core::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of the C libraries of Linux.
const DISABLE: c_int = 1;

/// While this lives, the thread is not cancelled. A call that is made within another one changes nothing.
pub struct Call(c_int);

impl Call {
    pub fn begin() -> Self {
        let mut before = DISABLE;
        // SAFETY: a number that is writable.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self(before)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: a state that was read before; null takes no answer.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}
