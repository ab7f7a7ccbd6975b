//! The other side of a scenario: echo servers, pairs of connected streams, and a latch to wait for one
//! another.

use futures_util::join;
use ringroad_engine::net::{Canceller, ReadHalf, TcpListener, TcpStream, WriteHalf};
use ringroad_engine::{JoinHandle, spawn};
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Any free port of this machine alone.
pub(crate) fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A server that gives every connection its bytes back.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    stop: Canceller,
    over: JoinHandle<()>,
}

impl Echo {
    /// Serves until [`Echo::end`].
    pub(crate) fn start() -> Echo {
        let mut listener = TcpListener::bind(anywhere()).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), listener.canceller());
        let over = spawn(async move {
            let mut served = Vec::new();
            while let Ok(stream) = listener.accept().await {
                served.push(spawn(echo(stream)));
            }
            for connection in served {
                connection.await.unwrap();
            }
        });
        Echo { address, stop, over }
    }

    /// Accepts no more, and waits until every connection has been served to its end.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.over.await.unwrap();
    }
}

/// Gives one connection its bytes back, to its end.
pub(crate) async fn echo(mut stream: TcpStream) {
    while let Ok(lease) = stream.recv().await {
        if lease.is_empty() || stream.write_all(lease).await.0.is_err() {
            break;
        }
    }
}

/// A client of an [`Echo`].
pub(crate) struct Client {
    reader: ReadHalf,
    writer: WriteHalf,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        let (reader, writer) = TcpStream::connect(address).await.unwrap().split();
        Client { reader, writer }
    }

    /// Sends `message` and has it come back.
    pub(crate) async fn exchange(&mut self, message: Vec<u8>) {
        let wanted = message.clone();
        let Client { reader, writer } = self;
        let receive = async {
            let mut got = Vec::new();
            while got.len() < wanted.len() {
                let lease = reader.recv().await.unwrap();
                assert!(!lease.is_empty(), "the end after {} bytes of {}", got.len(), wanted.len());
                got.extend_from_slice(&lease);
            }
            assert!(got == wanted, "other bytes came back than went out");
        };
        let (sent, ()) = join!(writer.write_all(message), receive);
        sent.0.unwrap();
    }
}

/// Two ends of one connection: the connecting one, and the accepted one.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let mut listener = TcpListener::bind(anywhere()).unwrap();
    let address = listener.local_addr().unwrap();
    let (client, server) = join!(TcpStream::connect(address), listener.accept());
    (client.unwrap(), server.unwrap())
}

/// Opens once, for all tasks that wait then or later.
#[derive(Clone, Default)]
pub(crate) struct Latch(Rc<Waiting>);

#[derive(Default)]
struct Waiting {
    open: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Latch {
    pub(crate) fn open(&self) {
        self.0.open.set(true);
        self.0.wakers.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.open.get()
    }

    pub(crate) async fn wait(&self) {
        std::future::poll_fn(|context| {
            if self.is_open() {
                return Poll::Ready(());
            }
            self.0.wakers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
