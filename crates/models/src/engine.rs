//! The same server on the engine: a task for each connection, and nothing else to decide.
//!
//! Its cost over the hand-written model on the same driver is the price of the engine. Compare it with
//! `hand/epoll.rs` and `hand/uring.rs` to see what it saves. The protocol is `protocol.rs`, as in every
//! model.

use crate::protocol::{End, LINGER_BYTES_MAX, Protocol, Reply, Session};
use crate::work::Work;
use crate::{Error, Model, Options, Result, Server, Stop, Totals};
use ringroad_engine::net::{Canceller, TcpListener, TcpStream};
use ringroad_engine::{AnyBuf, DriverName, Lease, Remote, Runtime, spawn, time};
use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

/// Memory of all receive buffers together, as in the hand-written models.
const POOL_BYTES: usize = 512 * 1024;

/// The engine's largest receive buffer.
const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Serves until `stop` is requested.
pub(crate) fn run(driver: DriverName, server: Server, stop: &Stop) -> Result<Totals> {
    let Server { model, protocol, options, listener, .. } = server;
    if options.buffer_bytes > BUFFER_BYTES_MAX {
        let why =
            io::Error::new(io::ErrorKind::InvalidInput, "the engine's receive buffers hold at most 32 KiB");
        return Err(Error::new("reading options", why).on("buffer").hint("give 32768 or less"));
    }
    let failed = |why: ringroad_engine::Error| {
        let action = why.operation();
        Error::new(action, io::Error::from(why))
    };
    // A power of two, and with tiny buffers not more than a ring may have.
    let buffers = (POOL_BYTES / options.buffer_bytes.next_power_of_two()).clamp(8, 1 << 14) as u16;
    let runtime = Runtime::builder(driver).buffers(buffers, options.buffer_bytes).build().map_err(failed)?;
    let shop = Rc::new(Shop {
        protocol,
        options,
        work: Work::calibrate(options.work),
        accepted: Cell::new(0),
        refused: Cell::new(0),
        requests: Cell::new(0),
        bytes_in: Cell::new(0),
        bytes_out: Cell::new(0),
    });
    let over = Stop::new()?;
    let served = thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (remote, over) = (runtime.remote(), &over);
        let begun = thread::Builder::new().spawn_scoped(scope, move || watch(stop, over, &remote, &told));
        begun.map_err(|why| Error::new("starting a thread", why))?;
        let served = runtime.block_on(accept(Rc::clone(&shop), listener, tell));
        over.request();
        served.and_then(|served| served).map_err(failed)
    });
    served?;
    let syscalls = runtime.counters().system_calls;
    drop(runtime);
    Ok(shop.totals(model, syscalls))
}

/// A thread that waits for the request to stop.
fn watch(stop: &Stop, over: &Stop, remote: &Remote, told: &mpsc::Receiver<()>) {
    let wait_for =
        |stop: &Stop| libc::pollfd { fd: stop.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut set = [wait_for(stop), wait_for(over)];
    loop {
        // SAFETY: two live entries with descriptors that are borrowed for the call; no time limit.
        if unsafe { libc::poll(set.as_mut_ptr(), 2, -1) } >= 0 {
            break;
        }
    }
    // The server listens by now, or never will.
    if told.recv().is_ok() {
        // Refused: the server has ended by itself.
        let _ = remote.spawn(|| async {
            CANCELLER.with(|canceller| canceller.take().iter().for_each(Canceller::cancel));
        });
    }
}

thread_local! {
    /// Ends the accepting of the server that runs on this thread.
    static CANCELLER: Cell<Option<Canceller>> = const { Cell::new(None) };
}

/// What all connections share.
struct Shop {
    protocol: Protocol,
    options: Options,
    work: Work,
    accepted: Cell<u64>,
    refused: Cell<u64>,
    requests: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
}

impl Shop {
    fn totals(&self, model: Model, syscalls: u64) -> Totals {
        Totals {
            model,
            accepted: self.accepted.get(),
            refused: self.refused.get(),
            requests: self.requests.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            syscalls,
        }
    }
}

fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

/// Accepts connections until it is cancelled.
async fn accept(
    shop: Rc<Shop>,
    listener: std::net::TcpListener,
    tell: mpsc::Sender<()>,
) -> ringroad_engine::Result<()> {
    let mut listener = TcpListener::from_std(listener)?;
    CANCELLER.with(|canceller| canceller.set(Some(listener.canceller())));
    // The watcher is gone only when the server is.
    let _ = tell.send(());
    loop {
        match listener.accept().await {
            Ok(stream) => {
                add(&shop.accepted, 1);
                spawn(serve(Rc::clone(&shop), stream)).detach();
            }
            Err(why) if why.is_cancelled() => return Ok(()),
            // One came too many, if any; it goes on when there is room.
            Err(why) if why.is_driver_limit() => add(&shop.refused, 1),
            Err(why) => return Err(why),
        }
    }
}

/// One connection from start to end. Every error ends it and concerns no other connection.
///
/// What is rare is boxed, so that an idle connection's task holds no room for it.
async fn serve(shop: Rc<Shop>, mut stream: TcpStream) {
    let mut session = Session::new(shop.protocol);
    while let Ok(mut lease) = stream.recv().await {
        if lease.is_empty() {
            return;
        }
        add(&shop.bytes_in, lease.len() as u64);
        let mut waited = false;
        while let Some(Answer { bytes, requests, end }) = answer(&shop, &mut session, &mut lease) {
            if !shop.options.delay.is_zero() && !std::mem::replace(&mut waited, true) {
                Box::pin(time::sleep(shop.options.delay)).await;
            }
            let sent = match stream.write_all(bytes).await {
                (Ok(()), bytes) => bytes.len() as u64,
                (Err(_), _) => return,
            };
            add(&shop.bytes_out, sent);
            add(&shop.requests, u64::from(requests));
            match end {
                End::Open => {}
                End::Close => return,
                End::Linger => return Box::pin(linger(shop, stream)).await,
            }
        }
    }
}

/// What is to be sent next.
struct Answer {
    bytes: AnyBuf,
    requests: u32,
    end: End,
}

/// Returns the next answer to what a receive brought, or `None` when all of it is answered; then the buffer
/// is back.
#[inline]
fn answer(shop: &Shop, session: &mut Session, lease: &mut Lease) -> Option<Answer> {
    let mut left = &**lease;
    let Reply { fixed, requests, portions, end, .. } = session.next(&mut left)?;
    shop.work.perform(portions);
    let used = lease.len() - left.len();
    let bytes = match fixed {
        Some(bytes) => {
            // Used up, the buffer is back before anything is waited for.
            lease.advance(used);
            AnyBuf::from(bytes)
        }
        None => AnyBuf::from(std::mem::take(lease)),
    };
    Some(Answer { bytes, requests, end })
}

/// Reads to the peer's end, within bounds.
async fn linger(shop: Rc<Shop>, mut stream: TcpStream) {
    let mut left = LINGER_BYTES_MAX as usize;
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    while let Ok(lease) = stream.recv().await {
        add(&shop.bytes_in, lease.len() as u64);
        match left.checked_sub(lease.len()) {
            Some(less) if !lease.is_empty() => left = less,
            _ => return,
        }
    }
}
