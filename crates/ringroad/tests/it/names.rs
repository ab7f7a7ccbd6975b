//! Every type that functions of this crate take or return can be named with this crate alone: a program needs
//! no other crate of the workspace.

use ringroad::net::{TcpListener, TcpStream};
use ringroad::sim::{Faults, SimConfig};
use ringroad::sync::{self, oneshot};
use ringroad::task::{spawn, spawn_blocking};
use ringroad::time::{Elapsed, sleep, timeout};
use ringroad::{
    AnyBuf, Builder, Counters, DriverName, Error, Features, FilePart, Gone, IoBuf, IoBufMut, JoinError,
    JoinHandle, Lease, Pages, Remote, Runtime, Stuck, UnknownDriver, ZeroCopy, blocking, choose, driver_info,
    fs,
};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

fn epoll() -> Runtime {
    let mut features = Features::default();
    features.zero_copy = ZeroCopy::Off;
    let builder: Builder = Runtime::builder(DriverName::Epoll).features(features);
    builder.build().unwrap()
}

#[test]
fn a_file_is_sent_over_a_stream() {
    let path = std::env::temp_dir().join(format!("ringroad-names-{}", std::process::id()));
    std::fs::write(&path, b"0123456789").unwrap();
    let runtime = epoll();
    let got: Result<Vec<u8>, Error> = runtime
        .block_on(async {
            let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
            let mut near = TcpStream::connect(listener.local_addr()?).await?;
            let mut far = listener.accept().await?;
            let part: FilePart = FilePart::new(std::fs::File::open(&path).unwrap().into(), 2..7);
            near.send_file(part).await.0?;
            drop(near);
            let mut all = Vec::new();
            loop {
                let lease: Lease = far.recv().await?;
                if lease.is_empty() {
                    return Ok(all);
                }
                all.extend_from_slice(&lease);
            }
        })
        .unwrap();
    assert_eq!(got.unwrap(), b"23456");
    std::fs::remove_file(&path).unwrap();
    let counters: Counters = runtime.counters();
    assert!(counters.polls > 0);
    let ended: Result<(), Stuck> = runtime.shutdown(PATIENCE);
    ended.unwrap();
}

#[test]
fn tasks_channels_and_calls_have_names() {
    let runtime = epoll();
    let remote: Remote = runtime.remote();
    runtime
        .block_on(async {
            let (sender, receiver): (oneshot::Sender<u8>, oneshot::Receiver<u8>) = oneshot::channel();
            let task: JoinHandle<u8> = spawn(async move { receiver.await.unwrap() });
            sender.send(7).unwrap();
            let joined: Result<u8, JoinError> = task.await;
            assert_eq!(joined.unwrap(), 7);
            blocking::set_threads_max(blocking::threads_max());
            assert_eq!(spawn_blocking(|| 8).await.unwrap(), 8);
            let (sender, receiver): (sync::Sender<u8>, sync::Receiver<u8>) = sync::bounded(1);
            let elapsed: Elapsed = timeout(Duration::from_millis(1), receiver.recv()).await.unwrap_err();
            assert_eq!(elapsed, Elapsed(Duration::from_millis(1)));
            drop(sender);
        })
        .unwrap();
    runtime.shutdown(PATIENCE).unwrap();
    let gone: Gone = remote.spawn(|| async {}).unwrap_err();
    assert!(gone.to_string().contains("shut down"));
}

#[test]
fn buffers_have_names() {
    fn is_sent<B: IoBuf>(_: &B) {}
    fn is_filled<B: IoBufMut>(_: &B) {}
    let pages: Pages = Pages::new(4096).unwrap();
    is_filled(&pages);
    is_sent(&pages);
    is_sent(&AnyBuf::from(Vec::new()));
    let _: Option<fs::File> = None;
}

#[test]
fn drivers_are_chosen_and_simulated() {
    let unknown: UnknownDriver = "kqueue".parse::<DriverName>().unwrap_err();
    assert!(unknown.to_string().contains("kqueue"));
    assert!(!driver_info().unwrap().driver().as_str().is_empty());
    assert!(choose::probe(DriverName::Poll).is_ok());
    let simulated = Runtime::builder(DriverName::Sim).sim(SimConfig::new(7, Faults::none())).build().unwrap();
    // A year passes at once.
    simulated.block_on(sleep(Duration::from_secs(365 * 24 * 3600))).unwrap();
    simulated.shutdown(PATIENCE).unwrap();
}

#[test]
fn what_tasks_and_threads_share_has_names() {
    use ringroad::sync::{
        Barrier, CancelOnDrop, CancellationToken, Mutex, Notify, OnceCell, OwnedPermit, Permit,
        PermitIterator, RwLock, RwLockReadGuardArc, RwLockWriteGuardArc, Semaphore, SemaphoreGuard,
        SemaphoreGuardArc, SendTimeoutError, TrySendError, WaitGroup, WeakReceiver, WeakSender, broadcast,
        watch,
    };
    use ringroad::task::{Blocking, CancelHandle};
    use ringroad::time::{Interval, MissedTick, Sleep, Timeout, interval};
    use ringroad::{JoinSet, RemoteTask, TaskLocal};
    let ran: Result<(), Error> = ringroad::run(async {
        let (sender, receiver): (watch::Sender<u8>, watch::Receiver<u8>) = watch::channel(1);
        assert_eq!((*receiver.borrow(), sender.receiver_count()), (1, 1));
        let (_, mut lost): (broadcast::Sender<u8>, broadcast::Receiver<u8>) = broadcast::channel(1);
        assert_eq!(lost.recv().await, Err(broadcast::RecvError::Closed));
        let guard: CancelOnDrop = CancellationToken::new().drop_guard();
        assert!(!guard.disarm().is_cancelled());
        let _: (Mutex<u8>, RwLock<u8>, OnceCell<u8>) = (Mutex::new(1), RwLock::new(2), OnceCell::new());
        let _: (Notify, Semaphore, WaitGroup) = (Notify::new(), Semaphore::new(1), WaitGroup::new());
        let mut ticks: Interval = interval(Duration::from_millis(1));
        ticks.set_missed_tick(MissedTick::Skip);
        ticks.tick().await;
        let slept: Timeout<Sleep> = timeout(PATIENCE, sleep(Duration::from_millis(1)));
        slept.await.unwrap();
        let called: Blocking<u8> = spawn_blocking(|| 1);
        assert_eq!(called.await.unwrap(), 1);
        let mut set: JoinSet<u8> = JoinSet::new();
        let handle: CancelHandle = set.spawn(std::future::pending());
        handle.cancel();
        assert!(set.try_join_next().unwrap().unwrap_err().is_cancelled());
        let (sender, receiver): (sync::Sender<u8>, sync::Receiver<u8>) = sync::bounded(1);
        let permit: Permit<'_, u8> = sender.reserve().await.unwrap();
        drop(permit);
        let permits: PermitIterator<'_, u8> = sender.reserve_many(1).await.unwrap();
        drop(permits);
        let permit: OwnedPermit<u8> = sender.clone().reserve_owned().await.unwrap();
        permit.send(1).unwrap();
        let late: Result<(), SendTimeoutError<u8>> = sender.send_timeout(2, Duration::ZERO).await;
        assert_eq!(late, Err(SendTimeoutError::Elapsed(2)));
        let full: Result<(), TrySendError<u8>> = sender.try_send(3);
        assert!(full.is_err_and(|why| why.is_full()));
        let ends: (WeakSender<u8>, WeakReceiver<u8>) = (sender.downgrade(), receiver.downgrade());
        assert!(ends.0.upgrade().is_some() && ends.1.upgrade().is_some());
        let semaphore = Arc::new(Semaphore::new(2));
        let one: SemaphoreGuard<'_> = semaphore.acquire().await;
        let other: SemaphoreGuardArc = semaphore.acquire_arc().await;
        drop((one, other));
        assert!(Barrier::new(1).wait().await);
        let lock = Arc::new(RwLock::new(1));
        let read: RwLockReadGuardArc<u8> = lock.read_arc().await;
        drop(read);
        let write: RwLockWriteGuardArc<u8> = lock.write_arc().await;
        drop(write);
    });
    ran.unwrap();
    let _: Option<(RemoteTask<u8>, &TaskLocal<u8>)> = None;
}

#[test]
fn what_is_read_and_written_has_names() {
    use ringroad::io::codec::LinesCodec;
    use ringroad::io::{AsyncRead, AsyncReadExt, AsyncWrite, BufReader, BufWriter, Framed, Lines, Split};
    use ringroad::net::{
        Accept, Canceller, Connect, Detached, ListenOptions, PeerGone, ReadHalf, Recv, RecvInto,
        SocketOption, UnixStream, Write, WriteHalf,
    };
    fn reads<R: AsyncRead>(_: &R) {}
    fn writes<W: AsyncWrite>(_: &W) {}
    fn splits<S: Split>(_: &S) {}
    let runtime: Runtime = Runtime::auto().unwrap();
    let body = async {
        let (mut near, far) = UnixStream::pair()?;
        reads(&near);
        writes(&near);
        splits(&near);
        let write: Write<'_, &'static str> = near.write_all("a line\nsome text");
        write.await.0?;
        near.shutdown(std::net::Shutdown::Write)?;
        let mut lines: Lines<UnixStream> = BufReader::new(far).lines();
        assert_eq!(lines.next_line().await?.as_deref(), Some("a line"));
        assert_eq!(lines.get_mut().read_to_string().await?, "some text");
        let (far, _) = lines.into_inner().into_parts();
        let _: Framed<BufWriter<UnixStream>, LinesCodec> =
            Framed::new(BufWriter::new(far), LinesCodec::new());
        let gone: PeerGone = near.hangup().await?;
        assert!(matches!(gone, PeerGone::Ended));
        let options = ListenOptions { backlog: 1, ..ListenOptions::default() };
        let mut listener = TcpListener::bind_with(([127, 0, 0, 1], 0).into(), options)?;
        let connect: Connect = TcpStream::connect(listener.local_addr()?);
        let mut client = connect.await?;
        let accept: Accept<'_, ringroad::net::Inet> = listener.accept();
        let mut server = accept.await?;
        server.set_option(SocketOption::KeepAlive(true))?;
        server.write_all("xy").await.0?;
        let recv: Recv<'_> = client.recv();
        assert!(!recv.await?.is_empty());
        let canceller: Canceller = client.canceller();
        canceller.cancel();
        let into: RecvInto<'_, Vec<u8>> = client.recv_into(Vec::new());
        drop(into);
        let (read, write): (ReadHalf, WriteHalf) = client.split();
        let client = read.reunite(write).unwrap();
        let detached: Detached<TcpStream> = client.detach().await?;
        drop(detached);
        Ok::<(), Error>(())
    };
    runtime.block_on(body).unwrap().unwrap();
}

#[ringroad::test(all)]
async fn tls_over_a_stream_needs_no_other_crate() -> Result<(), Box<dyn std::error::Error>> {
    use ringroad::io::{AsyncReadExt, BufReader, Split};
    use ringroad::tls::{
        Client, ClientSettings, HandshakeError, Info, Server, ServerSettings, TlsErrorKind, TlsStream, Trust,
        self_signed,
    };
    let pair = self_signed(["localhost".to_owned()])?;
    let client = Client::new(ClientSettings::new(Trust::Given(pair.chain.clone())))?;
    let (server, _) = Server::new(ServerSettings::new(Vec::new()), vec![pair])?;
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    let served = spawn(async move {
        let mut stream: TlsStream = TlsStream::accept(listener.accept().await?, &server).await?;
        let info: &Info = stream.info();
        assert_eq!(info.server_name.as_deref(), Some("localhost"));
        stream.write_all("one\ntwo\n").await.0?;
        assert_eq!(stream.read_to_string().await?, "done", "after the end of the other direction");
        let refused: Result<TlsStream, HandshakeError> =
            TlsStream::accept(listener.accept().await?, &server).await;
        assert!(matches!(refused, Err(HandshakeError::Tls(why)) if why.kind() == TlsErrorKind::Alert));
        Ok::<(), Box<dyn std::error::Error>>(())
    });
    let stream = TlsStream::connect(TcpStream::connect(address).await?, &client, "localhost").await?;
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    assert_eq!(lines.next_line().await?.as_deref(), Some("one"));
    assert_eq!(lines.next_line().await?.as_deref(), Some("two"));
    write.write_all("done").await.0?;
    write.finish().await?;
    let other = TlsStream::connect(TcpStream::connect(address).await?, &client, "other.test").await;
    assert!(matches!(other, Err(HandshakeError::Tls(why)) if why.kind() == TlsErrorKind::WrongName));
    served.await?
}
