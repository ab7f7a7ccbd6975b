//! Listening addresses of a server: a TCP address, the path of a Unix socket, or a socket passed to the
//! process.

use super::Transport;
use ringroad_engine::net::{
    Canceller, InheritedSocket, ListenOptions, TcpListener, UnixListenOptions, UnixListener,
    inherited_sockets, literal_with_port,
};
use ringroad_engine::{Error, Result, time};
use socket2::{Domain, SockRef, Type};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A configured address to listen on.
///
/// As text: `127.0.0.1:8080`, `[::]:80`, `unix:/run/site.sock`, `systemd:NAME` for the passed socket with
/// this name in `LISTEN_FDNAMES`, and `systemd` for the first passed socket (`sd_listen_fds(3)`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenAt {
    /// An address; port 0 lets the kernel choose one.
    Tcp(SocketAddr),
    /// A Unix socket at this path. A file left by an earlier server is replaced; the file is removed at the
    /// end.
    Unix(PathBuf),
    /// A socket passed by the parent process: by name, or the first.
    Inherited(Option<String>),
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<ListenAt, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("a path is missing behind unix:".to_owned()),
                path => Ok(ListenAt::Unix(PathBuf::from(path))),
            };
        }
        match text.split_once(':') {
            None if text == "systemd" => Ok(ListenAt::Inherited(None)),
            Some(("systemd", name)) if !name.is_empty() => Ok(ListenAt::Inherited(Some(name.to_owned()))),
            _ => match literal_with_port(text) {
                Some(address) => address.map(ListenAt::Tcp).map_err(|why| why.to_string()),
                None => Err(
                    "not an address (give one as 127.0.0.1:8080, [::1]:8080, unix:/run/site.sock or systemd:NAME)"
                        .to_owned(),
                ),
            },
        }
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAt::Tcp(address) => address.fmt(f),
            ListenAt::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAt::Inherited(None) => f.write_str("systemd"),
            ListenAt::Inherited(Some(name)) => write!(f, "systemd:{name}"),
        }
    }
}

/// The address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket; without a path if it has none.
    Unix(Option<PathBuf>),
}

impl Bound {
    /// Returns the TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Bound::Tcp(address) => Some(*address),
            Bound::Unix(_) => None,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Tcp(address) => address.fmt(f),
            Bound::Unix(Some(path)) => write!(f, "unix:{}", path.display()),
            Bound::Unix(None) => f.write_str("unix:(no name)"),
        }
    }
}

/// The reason why a server cannot listen.
#[derive(Debug)]
pub(crate) enum ListenError {
    /// Binding or examining the socket failed.
    Engine(Error),
    /// The named socket was not passed, or does not listen.
    Passed(String),
    /// The socket cannot be duplicated for a worker.
    Copy(io::Error),
    /// The file of a bound socket cannot be examined.
    Look(io::Error),
}

impl ListenError {
    /// Returns whether the address is in use.
    fn is_in_use(&self) -> bool {
        matches!(self, ListenError::Engine(why) if why.kind() == io::ErrorKind::AddrInUse)
    }
}

impl From<Error> for ListenError {
    fn from(why: Error) -> ListenError {
        ListenError::Engine(why)
    }
}

/// The file of a Unix socket that this server has bound. It is identified, so that a file that another
/// process has put there since is not removed.
#[derive(Clone, Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Identifies the file of a socket that was just bound.
    fn of(path: &Path) -> io::Result<SocketFile> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(SocketFile { path: path.to_owned(), device: file.dev(), inode: file.ino() })
    }

    /// Removes the file if it is still the one of the bound socket. Clients cannot connect without it, and
    /// another socket can be bound there. Connections in the backlog stay there.
    pub(crate) fn remove(&self) {
        let is_ours =
            SocketFile::of(&self.path).is_ok_and(|now| (now.device, now.inode) == (self.device, self.inode));
        if is_ours {
            // If another process has removed it meanwhile, nothing is left to do.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The way a worker gets its listener.
#[derive(Clone, Debug)]
pub(crate) enum Socket {
    /// Each worker binds its own socket to the address.
    Address(SocketAddr),
    /// Each worker has a descriptor of one socket. `ours`: no other process has it, and it is closed with
    /// this server.
    Tcp { socket: Arc<std::net::TcpListener>, address: SocketAddr, ours: bool },
    Unix {
        socket: Arc<unix::UnixListener>,
        path: Option<PathBuf>,
        /// The file of the socket; `None` for a passed socket.
        file: Option<SocketFile>,
    },
}

/// How often an address in use is tried again. With the pauses, one second in all.
const TRIES_AGAIN: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Binds, and tries again for a while if the address is in use.
///
/// The sockets of a process with a ring are closed after it has ended, by the kernel's own threads. So an
/// address may be in use for some milliseconds after its server was killed, and its Unix socket takes
/// connections that no process will accept. A supervisor starts the next server at once.
pub(crate) async fn patiently<T>(
    mut bind: impl FnMut() -> std::result::Result<T, ListenError>,
) -> std::result::Result<T, ListenError> {
    for _ in 0..TRIES_AGAIN {
        match bind() {
            Err(why) if why.is_in_use() => time::sleep(BETWEEN_TRIES).await,
            bound => return bound,
        }
    }
    bind()
}

/// Passed sockets that no server has taken yet.
static PASSED: Mutex<Option<Vec<InheritedSocket>>> = Mutex::new(None);

impl Socket {
    /// Opens the sockets that workers do not bind for themselves. Requires a runtime.
    ///
    /// # Errors
    /// Binding fails, no such socket was passed, or it does not listen.
    pub(crate) fn open(at: &ListenAt) -> std::result::Result<Socket, ListenError> {
        match at {
            ListenAt::Tcp(address) => Ok(Socket::Address(*address)),
            ListenAt::Unix(path) => {
                let mut options = UnixListenOptions::default();
                options.replace_stale = true;
                let listener = UnixListener::bind_with(path.as_path(), options)?;
                let socket = listener.into_std().map_err(|(why, _)| why)?;
                let file = SocketFile::of(path).map_err(ListenError::Look)?;
                Ok(Socket::Unix { socket: Arc::new(socket), path: Some(path.clone()), file: Some(file) })
            }
            ListenAt::Inherited(name) => Socket::of_passed(take_passed(name.as_deref())?),
        }
    }

    fn of_passed(socket: OwnedFd) -> std::result::Result<Socket, ListenError> {
        let wrong = |what: &str| ListenError::Passed(what.to_owned());
        let look = SockRef::from(&socket);
        let is = |asked: io::Result<bool>| asked.unwrap_or(false);
        if !is(look.r#type().map(|kind| kind == Type::STREAM)) || !is(look.is_listener()) {
            return Err(wrong("the socket that was passed is no stream socket that listens"));
        }
        let address = look.local_addr();
        match address.as_ref().ok().and_then(|address| address.as_socket()) {
            Some(address) => Ok(Socket::Tcp { socket: Arc::new(socket.into()), address, ours: false }),
            None if is(look.domain().map(|domain| domain == Domain::UNIX)) => {
                let path = address.ok().and_then(|address| address.as_pathname().map(Path::to_owned));
                Ok(Socket::Unix { socket: Arc::new(socket.into()), path, file: None })
            }
            None => Err(wrong("the socket that was passed is neither TCP nor Unix")),
        }
    }

    /// Returns the listener of one worker, and its address. Requires the worker's runtime.
    pub(crate) fn listen(
        &self,
        options: ListenOptions,
    ) -> std::result::Result<(Listener, Bound), ListenError> {
        match self {
            Socket::Address(address) => {
                let listener = TcpListener::bind_with(*address, options)?;
                let address = listener.local_addr()?;
                Ok((Listener::Tcp { listener, ours: true }, Bound::Tcp(address)))
            }
            Socket::Tcp { socket, address, ours } => {
                let listener = TcpListener::from_std(socket.try_clone().map_err(ListenError::Copy)?)?;
                Ok((Listener::Tcp { listener, ours: *ours }, Bound::Tcp(*address)))
            }
            Socket::Unix { socket, path, file } => {
                let listener = UnixListener::from_std(socket.try_clone().map_err(ListenError::Copy)?)?;
                Ok((Listener::Unix { listener, ours: file.is_some() }, Bound::Unix(path.clone())))
            }
        }
    }

    /// Returns the socket of this listener, with its backlog, for a worker that takes this one's place.
    /// `None` if no descriptor is left.
    pub(crate) fn of_worker(&self, listener: &Listener) -> Option<Socket> {
        match (self, listener) {
            (Socket::Address(_), Listener::Tcp { listener, ours }) => {
                let address = listener.local_addr().ok()?;
                let socket = Arc::new(listener.duplicate_fd().ok()?.into());
                Some(Socket::Tcp { socket, address, ours: *ours })
            }
            (socket, _) => Some(socket.clone()),
        }
    }

    /// Returns the socket for further workers of the server. It holds no socket that only one worker may
    /// close.
    pub(crate) fn of_server(self) -> Socket {
        match self {
            Socket::Tcp { address, ours: true, .. } => Socket::Address(address),
            other => other,
        }
    }

    /// Returns the socket file that this server removes at its end.
    pub(crate) fn file(&self) -> Option<SocketFile> {
        match self {
            Socket::Unix { file, .. } => file.clone(),
            Socket::Address(_) | Socket::Tcp { .. } => None,
        }
    }
}

/// Takes a passed socket: by name, or the first.
fn take_passed(name: Option<&str>) -> std::result::Result<OwnedFd, ListenError> {
    let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    if passed.is_none() {
        *passed = Some(inherited_sockets()?);
    }
    let all = passed.get_or_insert_default();
    let at = match name {
        None => (!all.is_empty()).then_some(0),
        Some(name) => all.iter().position(|socket| socket.name.as_deref() == Some(name)),
    };
    if let Some(at) = at {
        return Ok(all.remove(at).socket);
    }
    let there: Vec<&str> = all.iter().map(|socket| socket.name.as_deref().unwrap_or("(no name)")).collect();
    let at = ListenAt::Inherited(name.map(str::to_owned));
    Err(ListenError::Passed(match there.as_slice() {
        [] => format!(
            "{at}: no socket was passed to this process, or all are taken (start it by a systemd .socket unit, or by \
             systemd-socket-activate)"
        ),
        there => format!("{at}: no passed socket has this name (there are: {})", there.join(", ")),
    }))
}

/// A listener of one worker.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp { listener: TcpListener, ours: bool },
    Unix { listener: UnixListener, ours: bool },
}

impl Listener {
    /// Accepts the next connection.
    pub(crate) async fn accept(&mut self) -> Result<Transport> {
        match self {
            Listener::Tcp { listener, .. } => listener.accept().await.map(Transport::Tcp),
            Listener::Unix { listener, .. } => listener.accept().await.map(Transport::Unix),
        }
    }

    pub(crate) fn canceller(&self) -> Canceller {
        match self {
            Listener::Tcp { listener, .. } => listener.canceller(),
            Listener::Unix { listener, .. } => listener.canceller(),
        }
    }

    /// Returns whether no other process accepts on the socket. Connections in its backlog are then this
    /// server's to answer.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Listener::Tcp { ours, .. } | Listener::Unix { ours, .. } => *ours,
        }
    }

    /// Returns the socket, to accept the connections in its backlog. It stays non-blocking, since others may
    /// accept on it too. `None` if no descriptor is left: the backlog cannot be served then.
    pub(crate) fn into_backlog(self) -> Option<OwnedFd> {
        match self {
            Listener::Tcp { listener, .. } => listener.into_std_nonblocking().ok().map(OwnedFd::from),
            Listener::Unix { listener, .. } => listener.into_std_nonblocking().ok().map(OwnedFd::from),
        }
    }
}

/// A connection on its way to another worker.
#[derive(Debug)]
pub(crate) enum Moving {
    Tcp(std::net::TcpStream),
    Unix(unix::UnixStream),
}

impl Transport {
    /// Takes the connection out of its runtime, if no bytes were received from it.
    pub(crate) fn into_moving(self) -> std::result::Result<Moving, Transport> {
        match self {
            Transport::Tcp(stream) => {
                stream.into_std().map(Moving::Tcp).map_err(|(_, stream)| Transport::Tcp(stream))
            }
            Transport::Unix(stream) => {
                stream.into_std().map(Moving::Unix).map_err(|(_, stream)| Transport::Unix(stream))
            }
            // Bytes were received from these connections already.
            Transport::Tls(_) | Transport::Tunnel(_) => Err(self),
        }
    }

    /// Attaches the connection to the runtime of this thread.
    pub(crate) fn from_moving(moving: Moving) -> Result<Transport> {
        Ok(match moving {
            Moving::Tcp(stream) => ringroad_engine::net::TcpStream::from_std(stream)?.into(),
            Moving::Unix(stream) => ringroad_engine::net::UnixStream::from_std(stream)?.into(),
        })
    }

    /// Wraps a connection that was accepted from the backlog of a socket of this kind.
    pub(crate) fn from_accepted(socket: socket2::Socket, like: Domain) -> Result<Transport> {
        let fd = OwnedFd::from(socket);
        Transport::from_moving(match like {
            Domain::UNIX => Moving::Unix(fd.into()),
            _ => Moving::Tcp(fd.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use ringroad_engine::{DriverName, Runtime, choose};

    /// Each driver that can be used here. A filter may kill the process that only tries io_uring; the trial
    /// is a process of its own.
    fn runtimes() -> impl Iterator<Item = Runtime> {
        let usable = choose::drivers().filter(|driver| choose::probe(*driver).is_ok());
        usable.map(|driver| Runtime::new(driver).unwrap())
    }

    #[test]
    fn an_address_of_tcp_whose_last_server_is_still_being_closed_is_tried_again() {
        for runtime in runtimes() {
            let last = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = last.local_addr().unwrap();
            let (mut last, mut tries) = (Some(last), 0);
            let bound = runtime.block_on(patiently(|| {
                tries += 1;
                // The kernel has closed the socket before the third.
                drop(last.take_if(|_| tries == 3));
                Ok((TcpListener::bind(address)?.local_addr()?, tries))
            }));
            assert_eq!(bound.unwrap().unwrap(), (address, 3));
        }
    }

    #[test]
    fn the_file_of_a_unix_socket_that_is_still_being_closed_is_replaced_once_it_is() {
        let folder = std::env::temp_dir().join(format!("ringroad-listen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (number, runtime) in runtimes().enumerate() {
            let path = folder.join(number.to_string());
            let (mut last, mut tries) = (Some(unix::UnixListener::bind(&path).unwrap()), 0);
            let at = ListenAt::Unix(path);
            let opened = runtime.block_on(patiently(|| {
                tries += 1;
                drop(last.take_if(|_| tries == 3));
                Ok((Socket::open(&at)?, tries))
            }));
            assert!(matches!(opened.unwrap().unwrap(), (Socket::Unix { .. }, 3)));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_an_address_in_use_is_tried_again_and_not_for_ever() {
        let runtime = Runtime::new(DriverName::Poll).unwrap();
        let tries = |kind: io::ErrorKind| {
            let mut tries = 0;
            let refused = runtime.block_on(patiently(|| {
                tries += 1;
                Err::<(), _>(ListenError::Engine(Error::layered("bind", kind.into())))
            }));
            assert!(matches!(refused.unwrap(), Err(ListenError::Engine(why)) if why.kind() == kind));
            tries
        };
        assert_eq!(tries(io::ErrorKind::PermissionDenied), 1);
        assert_eq!(tries(io::ErrorKind::AddrInUse), TRIES_AGAIN + 1);
    }

    #[test]
    fn an_address_is_read_as_it_is_shown() {
        for text in ["127.0.0.1:80", "[::1]:8080", "unix:/run/a b.sock", "systemd", "systemd:web"] {
            let at: ListenAt = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(at.to_string(), text);
        }
        let zoned = |text: &str| match text.parse::<ListenAt>() {
            Ok(ListenAt::Tcp(SocketAddr::V6(address))) => (address.ip().to_string(), address.scope_id()),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(zoned("[fe80::1%7]:80"), ("fe80::1".to_owned(), 7));
        assert_eq!(zoned("[fe80::1%lo]:80"), zoned("[fe80::1%25lo]:80"));
        assert_ne!(zoned("[fe80::1%lo]:80").1, 0);
        let missing = "[fe80::1%no-such-one]:80".parse::<ListenAt>().unwrap_err();
        assert!(missing.contains("fe80::1%no-such-one") && missing.contains("ip link"), "{missing}");
        for text in
            ["", "unix:", "systemd:", "localhost:80", "80", "[fe80::1%]:80", "[fe80::1%lo]", "a%lo:80"]
        {
            assert!(text.parse::<ListenAt>().is_err(), "{text}");
        }
    }
}
