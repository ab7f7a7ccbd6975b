//! Writes to a peer that may be gone, by calls that have no MSG_NOSIGNAL: sendfile(2), and write(2) to pipes
//! and sockets. Where the process does not ignore SIGPIPE, they would end it.

/// Makes a call that may raise SIGPIPE; the process never gets that signal. Returns the call's result, and
/// the number of system calls made around it: one where the program ignores SIGPIPE, as Rust's programs do
/// unless they change it.
pub(crate) fn without_sigpipe(call: impl FnOnce() -> i32) -> (i32, u64) {
    if is_ignored() { (call(), 1) } else { (taken(call), 5) }
}

fn is_ignored() -> bool {
    // SAFETY: sigaction is an address, integers and a set of bits: zeros are a valid value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: sigaction(2) without a new action writes the present one, of this frame, during the call only.
    let told = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut now) };
    told == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Runs `call`, and takes the SIGPIPE that it raised from this thread. The signal is sent to the calling
/// thread (signal(7)), so it is blocked here, taken, and the mask restored. One that was pending before
/// stays.
#[cold]
fn taken(call: impl FnOnce() -> i32) -> i32 {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: sets of bits: zeros are a valid value.
    let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
        unsafe { std::mem::zeroed() };
    // SAFETY: each call reads and writes sets of this frame, during the call only, and changes the mask of
    // this thread only.
    let was_pending = unsafe {
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        libc::sigpending(&raw mut pending);
        libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
    };
    let result = call();
    // SAFETY: as above. Without a place for its details, sigtimedwait(2) only takes the signal; with a span
    // of zero it does not wait. The mask is the one that this thread had.
    unsafe {
        if !was_pending {
            while libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const at_once) == -1
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
    result
}
