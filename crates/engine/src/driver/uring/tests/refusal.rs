//! Refusals of the kernel, and errors of the ring. A seccomp filter on the test's thread makes each refusal,
//! so that the whole path from the system call to the message is the real one.

use super::*;
use crate::{DriverName, Runtime};
use libc::{c_long, sock_filter};

/// Condition on one argument of a system call: equal to a value, or above it.
#[derive(Clone, Copy)]
enum When {
    Always,
    Equal(u32, u32),
    Above(u32, u32),
}

const REGISTER_PROBE: u32 = 8;
const REGISTER_IOWQ_MAX_WORKERS: u32 = 19;
const REGISTER_PBUF_RING: u32 = 22;

/// Installs a filter on this thread: from now on `call` returns `errno` under that condition.
fn refuse(call: c_long, when: When, errno: i32) {
    let line = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let jump = |how, k, jt, jf| line(libc::BPF_JMP | how | libc::BPF_K, jt, jf, k);
    let end = |k| line(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    // `struct seccomp_data`: the number at 0, the arguments from 16 on, low half first.
    let test = |how, argument: u32, value| vec![load(16 + 8 * argument), jump(how, value, 0, 1)];
    let tests = match when {
        When::Always => Vec::new(),
        When::Equal(argument, value) => test(libc::BPF_JEQ, argument, value),
        When::Above(argument, value) => test(libc::BPF_JGT, argument, value),
    };
    let mut program = vec![load(0), jump(libc::BPF_JEQ, call as u32, 0, tests.len() as u8 + 1)];
    program.extend(tests);
    program.extend([end(libc::SECCOMP_RET_ERRNO | errno as u32), end(libc::SECCOMP_RET_ALLOW)]);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: numbers, and a live program of that length, which the kernel copies during the call.
    let answer = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

/// Runs `body` on a new thread, because a filter cannot be removed from a thread.
fn on_a_thread(body: impl FnOnce() + Send + 'static) {
    std::thread::spawn(body).join().unwrap();
}

/// Creates an io_uring runtime on a thread where a call is refused; returns the error.
fn refused(call: c_long, when: When, errno: i32) -> (Option<i32>, String) {
    let (say, hear) = std::sync::mpsc::channel();
    on_a_thread(move || {
        refuse(call, when, errno);
        let error = Runtime::new(DriverName::IoUring).err().unwrap();
        assert_eq!(error.driver(), Some(DriverName::IoUring));
        say.send((error.raw_os_error(), error.to_string())).unwrap();
    });
    hear.recv().unwrap()
}

#[test]
fn the_error_of_a_refused_set_up_has_the_reason_and_a_hint() {
    for (errno, words) in [
        (libc::ENOSYS, "no io_uring in this kernel"),
        (libc::EPERM, "kernel.io_uring_disabled"),
        (libc::EINVAL, "Linux 6.1"),
        (libc::ENOMEM, "RLIMIT_MEMLOCK"),
        (libc::EMFILE, "RLIMIT_NOFILE"),
        (libc::EIO, "needs no io_uring"),
    ] {
        let (said, text) = refused(libc::SYS_io_uring_setup, When::Always, errno);
        assert_eq!(said, Some(errno));
        assert!(text.starts_with("io_uring_setup: ") && text.contains(words), "{text}");
    }
}

#[test]
fn entries_are_halved_until_there_is_memory_for_them() {
    on_a_thread(|| {
        refuse(libc::SYS_io_uring_setup, When::Above(0, 200), libc::ENOMEM);
        let mut driver = Uring::new(&Settings::default()).unwrap();
        assert_eq!(driver.kernel.ring.submissions().entries(), 128);
        assert_eq!(driver.kernel.ring.completions().entries(), 512);
    });
}

#[test]
fn a_ring_that_cannot_be_entered_is_refused_at_creation() {
    let (errno, text) = refused(libc::SYS_io_uring_enter, When::Always, libc::EPERM);
    assert_eq!(errno, Some(libc::EPERM));
    assert!(text.starts_with("io_uring_enter: ") && text.contains("seccomp"), "{text}");
}

#[test]
fn what_the_kernel_lacks_is_named() {
    let register = libc::SYS_io_uring_register;
    let (_, text) = refused(register, When::Equal(1, REGISTER_PBUF_RING), libc::EINVAL);
    assert!(text.contains("lacks buffer rings") && text.contains("Linux 6.1"), "{text}");
    for opcode in [REGISTER_PROBE, REGISTER_IOWQ_MAX_WORKERS] {
        let (errno, text) = refused(register, When::Equal(1, opcode), libc::EINVAL);
        assert_eq!(errno, Some(libc::EINVAL));
        assert!(text.starts_with("io_uring_register: "), "{text}");
    }
}

/// EBADR: the kernel had no memory to keep a completion that found its queue full.
#[test]
fn a_lost_completion_ends_the_runtime_and_dumps_its_operations() {
    on_a_thread(|| {
        let runtime = Runtime::new(DriverName::IoUring).unwrap();
        let ended = runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut far = crate::net::TcpStream::from_std(listener.accept().unwrap().0).unwrap();
            crate::spawn(async move { drop(far.recv().await) }).detach();
            crate::yield_now().await;
            refuse(libc::SYS_io_uring_enter, When::Always, libc::EBADR);
            std::future::pending::<()>().await;
        });
        let error = ended.unwrap_err();
        assert_eq!((error.operation(), error.raw_os_error()), ("wait", Some(libc::EBADR)));
        assert!(error.to_string().contains("; driver io_uring)"), "{error}");
        let dump = error.dump().unwrap();
        assert!(dump.contains(" recv ") && dump.contains("armed"), "{dump}");
        // No further completion can arrive, so the memory that the kernel may still write is leaked.
        assert_eq!(runtime.shutdown(NEVER).unwrap_err().operations, 1);
    });
}
