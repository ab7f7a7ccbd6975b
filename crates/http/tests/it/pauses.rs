//! Tests in which time passes that a client or a server may not let pass, and machines that pause. Tests of
//! other packages use this file as well, by its path.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Calls `attempt`, and again where it has failed while this machine paused for `pause` or longer: a time
/// limit may have passed by that alone. Without such a pause a failure is one, and so is the last of many.
pub(crate) fn but_for_pauses(pause: Duration, attempt: impl Fn()) {
    for _ in 0..10 {
        let (over, watched) = channel();
        let watch = std::thread::spawn(move || longest_pause(&watched));
        let tried = catch_unwind(AssertUnwindSafe(&attempt));
        drop(over);
        let paused = watch.join().unwrap();
        match tried {
            Ok(()) => return,
            Err(_) if paused >= pause => eprintln!("tried again: the machine paused for {paused:?}"),
            Err(why) => resume_unwind(why),
        }
    }
    attempt();
}

/// Returns the longest time for which this thread did not run, up to the end of the channel.
fn longest_pause(over: &Receiver<()>) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    loop {
        let is_over = over.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Disconnected);
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if is_over {
            return longest;
        }
    }
}
