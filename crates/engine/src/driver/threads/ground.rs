//! What a worker is built on: locks, its bell and its system calls. Under loom, a model of them.

#[cfg(ringroad_loom)]
pub(super) use modelled::{Bell, Flag};
#[cfg(not(ringroad_loom))]
pub(super) use real::Bell;

#[cfg(ringroad_loom)]
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(ringroad_loom))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

/// What ended a wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Woken {
    pub(super) by_bell: bool,
    pub(super) by_descriptor: bool,
}

#[cfg(not(ringroad_loom))]
mod real {
    use super::Woken;
    use crate::counters::Counters;
    use crate::driver::alarm;
    use crate::op::Span;
    use crate::sys::attempt;
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    /// The eventfd that a worker polls beside its descriptor.
    pub(in super::super) struct Bell(OwnedFd);

    impl Bell {
        pub(in super::super) fn new() -> io::Result<Bell> {
            alarm::new().map(Bell)
        }

        pub(in super::super) fn ring(&self, counters: &mut Counters) {
            alarm::ring(&self.0, counters);
        }

        pub(in super::super) fn silence(&self, counters: &mut Counters) {
            alarm::silence(&self.0, counters);
        }

        /// Waits for one of these events of `poll(2)`, or for the bell. After a signal it returns with
        /// neither.
        pub(in super::super) fn wait(&self, number: i32, events: i16, counters: &mut Counters) -> Woken {
            let bell = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let mut set = [libc::pollfd { fd: number, events, revents: 0 }, bell];
            counters.system_calls += 1;
            let (no_limit, no_mask) = (std::ptr::null::<libc::timespec>(), std::ptr::null::<u8>());
            // SAFETY: two live entries, written during the call only; there is no time limit. The descriptor
            // is open: the driver closes a descriptor only after its worker has left. (By number, as in
            // `sys::attempt`; `ppoll`, because aarch64 has no `poll`.)
            if unsafe { libc::syscall(libc::SYS_ppoll, set.as_mut_ptr(), 2usize, no_limit, no_mask, 0usize) }
                < 0
            {
                // EINTR: nothing was written.
                return Woken::default();
            }
            Woken { by_bell: set[1].revents != 0, by_descriptor: set[0].revents != 0 }
        }

        /// Receives without waiting, like [`attempt::receive`].
        ///
        /// # Safety
        /// As for [`attempt::receive`].
        pub(in super::super) unsafe fn receive(
            &self,
            number: i32,
            memory: Span,
            counters: &mut Counters,
        ) -> i32 {
            // SAFETY: promised by the caller.
            unsafe { attempt::receive(number, memory, counters) }
        }
    }
}

/// A model of one descriptor and one bell.
#[cfg(ringroad_loom)]
#[cfg_attr(not(test), allow(dead_code, reason = "played by the models, which are tests"))]
mod modelled {
    use super::{Condvar, Mutex, MutexGuard, Woken};
    use crate::counters::Counters;
    use crate::op::Span;
    use std::io;
    use std::sync::{Arc, PoisonError};

    #[derive(Default)]
    struct Sockets {
        rung: bool,
        /// Unread bytes of the descriptor, and whether the end of the stream follows them.
        bytes: usize,
        ended: bool,
    }

    #[derive(Default)]
    struct Kernel {
        sockets: Mutex<Sockets>,
        news: Condvar,
    }

    #[derive(Clone, Default)]
    pub(in super::super) struct Bell(Arc<Kernel>);

    impl Bell {
        pub(in super::super) fn new() -> io::Result<Bell> {
            Ok(Bell::default())
        }

        fn sockets(&self) -> MutexGuard<'_, Sockets> {
            self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(in super::super) fn ring(&self, _: &mut Counters) {
            self.sockets().rung = true;
            self.0.news.notify_all();
        }

        pub(in super::super) fn silence(&self, _: &mut Counters) {
            self.sockets().rung = false;
        }

        pub(in super::super) fn wait(&self, _: i32, _: i16, _: &mut Counters) -> Woken {
            let mut sockets = self.sockets();
            loop {
                let by_descriptor = sockets.bytes > 0 || sockets.ended;
                if sockets.rung || by_descriptor {
                    return Woken { by_bell: sockets.rung, by_descriptor };
                }
                sockets = self.0.news.wait(sockets).unwrap_or_else(PoisonError::into_inner);
            }
        }

        pub(in super::super) unsafe fn receive(&self, _: i32, memory: Span, _: &mut Counters) -> i32 {
            let mut sockets = self.sockets();
            let bytes = sockets.bytes.min(memory.bytes);
            sockets.bytes -= bytes;
            // SAFETY: promised by the caller; `bytes` is at most the room.
            unsafe { memory.start.write_bytes(0, bytes) };
            match bytes {
                0 if sockets.ended => 0,
                0 => -libc::EAGAIN,
                bytes => bytes as i32,
            }
        }

        /// Plays a peer that sends.
        pub(in super::super) fn send(&self, bytes: usize) {
            self.sockets().bytes += bytes;
            self.0.news.notify_all();
        }

        /// Number of bytes that no worker has received.
        pub(in super::super) fn left(&self) -> usize {
            self.sockets().bytes
        }
    }

    /// The alarm that ends the driver's sleep.
    #[derive(Default)]
    pub(in super::super) struct Flag {
        is_set: Mutex<bool>,
        news: Condvar,
    }

    impl Flag {
        pub(in super::super) fn set(&self) {
            *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.news.notify_one();
        }

        pub(in super::super) fn wait(&self) {
            let mut is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
            while !std::mem::take(&mut *is_set) {
                is_set = self.news.wait(is_set).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
