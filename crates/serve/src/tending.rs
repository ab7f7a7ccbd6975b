//! Work that goes on beside requests: health checks, keys that are fetched ahead.
//!
//! A thread with a runtime of its own does all of it, so that no worker's requests wait for it. The thread
//! begins with the first piece of work and ends with the server. Where `auto` chose the workers' driver, and
//! their rings have left no memory for another, its runtime is on the next driver.

use ringroad_engine::choose::Choice;
use ringroad_engine::{Remote, Runtime, sync::oneshot};
use ringroad_gate::feature::Tending;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

/// The thread, once there is work.
pub(crate) struct Tender {
    choice: Choice,
    thread: Mutex<Option<Running>>,
}

struct Running {
    remote: Remote,
    /// Dropped, the thread ends, and with it all work.
    _stop: oneshot::Sender<()>,
}

impl Tender {
    pub(crate) fn new(choice: Choice) -> Tender {
        Tender { choice, thread: Mutex::default() }
    }

    /// Does these pieces of work from now on. Without a thread for them, returns why there is none.
    pub(crate) fn give(&self, work: impl IntoIterator<Item = Tending>) -> Result<(), String> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in work {
            let running = match thread.take() {
                Some(running) => running,
                None => start(self.choice.clone())?,
            };
            // The runtime takes messages until the sender in `running` is dropped.
            let _ = running.remote.spawn(piece);
            *thread = Some(running);
        }
        Ok(())
    }
}

/// Makes a runtime. What it is on is no news of the server: [`Choice::settle`] would tell it as that.
fn runtime(mut choice: Choice) -> ringroad_engine::Result<Runtime> {
    loop {
        match Runtime::builder(choice.driver()).features(choice.features()).build() {
            Ok(runtime) => return Ok(runtime),
            Err(why) => choice = choice.instead(&why).ok_or(why)?,
        }
    }
}

fn start(choice: Choice) -> Result<Running, String> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell, told) = mpsc::channel();
    let run = move || match runtime(choice) {
        Ok(runtime) => {
            let _ = tell.send(Ok(runtime.remote()));
            // An error of the driver ends the work; servers keep the state of their last check.
            let _ = runtime.block_on(stopped);
        }
        Err(why) => drop(tell.send(Err(why.to_string()))),
    };
    thread::Builder::new().name("ringroad-tend".to_owned()).spawn(run).map_err(|why| why.to_string())?;
    let remote = told.recv().map_err(|_| "the thread ended".to_owned())??;
    Ok(Running { remote, _stop: stop })
}
