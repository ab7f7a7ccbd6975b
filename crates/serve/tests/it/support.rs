//! A service in a folder of its own, on each driver, and a client that is nothing but a socket.

use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_serve::{Event, EventSink, Overrides, Service, Source, load};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a socket waits before a test is shown to hang. Far beyond what any needs, and less than the
/// runner of the tests waits.
pub(crate) const HANG: Duration = Duration::from_secs(240);

/// A folder with a configuration, and the service it describes.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    pub(crate) service: Service,
    pub(crate) events: Receiver<Event>,
}

/// A folder that is gone when this is dropped, also where a process writes into it at that moment: an
/// application notes the end of its server. One that comes later finds no folder.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let is_written_to = |why: std::io::Error| why.kind() == ErrorKind::DirectoryNotEmpty;
        while std::fs::remove_dir_all(self.path()).is_err_and(is_written_to) {}
    }
}

/// Writes the configuration of a site: its top, then `rest`. Where `rest` begins with `@`, it has its own
/// top.
pub(crate) fn configure(folder: &Path, rest: &str) -> PathBuf {
    let file = folder.join("ringroad.toml");
    let text = match rest.strip_prefix('@') {
        Some(whole) => whole.to_owned(),
        None => format!("listen = \"127.0.0.1:0\"\n{rest}"),
    };
    std::fs::write(&file, text).unwrap();
    file
}

/// Starts what `rest` describes, in a folder that `prepare` fills.
pub(crate) fn start(driver: DriverName, rest: &str, prepare: impl FnOnce(&Path)) -> Site {
    let folder = Folder::new();
    prepare(folder.path());
    start_in(folder, driver, rest)
}

/// Starts what `rest` describes, in a folder that is filled. Apart from [`start`], so that it is compiled
/// once and not for each test.
fn start_in(folder: Folder, driver: DriverName, rest: &str) -> Site {
    let source = Source::File(configure(folder.path(), rest));
    let overrides = Overrides { driver: Some(Wish::Named(driver)), ..Overrides::default() };
    let config = load(&source, &overrides).unwrap_or_else(|why| panic!("{why}"));
    let (tell, events) = channel();
    let voice = EventSink::new(move |event| drop(tell.send(event)), |_| Ok(()));
    let service = Service::start(source, overrides, config, voice).unwrap_or_else(|why| panic!("{why}"));
    Site { folder, service, events }
}

impl Site {
    pub(crate) fn address(&self) -> SocketAddr {
        self.service.addresses().next().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        write(self.folder.path(), name, content);
    }

    /// Replaces a file at once, as editors do: a look at the folder never finds it half written.
    pub(crate) fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        let whole = format!(".{name}");
        self.write(&whole, content);
        std::fs::rename(self.path(&whole), self.path(name)).unwrap();
    }

    /// The next event.
    pub(crate) fn event(&self) -> Event {
        self.events.recv_timeout(HANG).expect("an event")
    }
}

/// Writes a file that is a minute old, and the folders it is in.
pub(crate) fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(content.as_ref()).unwrap();
    // As a tool sets it that keeps times.
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
}

/// A response as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The value of a header line.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    /// The values of all header lines of a name.
    pub(crate) fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A client.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client::of(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn of(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        Client::of_any(stream)
    }

    /// The same of any stream socket.
    pub(crate) fn of_any(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        Client { stream, input: Vec::new() }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends; returns false if the peer has closed the connection.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// What was received and not used.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Closes with a reset instead of an end.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// As [`reset`](Self::reset), where the client is borrowed. It has no connection after that.
    pub(crate) fn reset_now(&mut self) {
        let none =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let stream = std::mem::replace(&mut self.stream, TcpStream::from(none.unwrap()));
        Client::of_any(stream).reset();
    }

    /// Sends the last bytes and the end of the stream in one segment, so that both are there at once.
    pub(crate) fn send_and_finish(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let sent = rustix::net::send(&self.stream, bytes, rustix::net::SendFlags::MORE);
        assert_eq!(sent, Ok(bytes.len()));
        self.finish();
    }

    /// Sends no more.
    pub(crate) fn finish(&mut self) {
        // The other side may have closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// `GET path`, and its answer.
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, &[])
    }

    /// A request without a body, and its answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, lines: &[(&str, &str)]) -> Reply {
        let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: example.org\r\n{lines}\r\n"));
        self.try_reply(method == "HEAD").expect("a response")
    }

    /// The next response; there must be one.
    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply(false).expect("a response")
    }

    /// The next response, or `None` at the end of the connection. A body that is cut is an end, too.
    pub(crate) fn try_reply(&mut self, to_head: bool) -> Option<Reply> {
        let head = String::from_utf8(self.until(b"\r\n\r\n")?).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        if to_head || matches!(status, 100..=199 | 204 | 304) {
            return Some(reply);
        }
        if reply.header("Transfer-Encoding").is_some() {
            loop {
                let line = String::from_utf8(self.until(b"\r\n")?).unwrap();
                let size = usize::from_str_radix(line.trim(), 16).unwrap();
                reply.body.extend_from_slice(&self.exactly(size)?);
                assert_eq!(self.exactly(2)?, b"\r\n");
                if size == 0 {
                    return Some(reply);
                }
            }
        }
        match reply.header("Content-Length").map(|length| length.parse().unwrap()) {
            Some(length) => reply.body = self.exactly(length)?,
            None => reply.body = self.rest(),
        }
        Some(reply)
    }

    /// Everything to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.input)
    }

    /// How many bytes come to the end of the connection.
    pub(crate) fn count_rest(&mut self) -> usize {
        let mut bytes = 0;
        loop {
            bytes += self.take().len();
            if !self.more() {
                return bytes;
            }
        }
    }

    /// Everything up to and with `mark`.
    pub(crate) fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.input.windows(mark.len()).position(|window| window == mark) {
                return Some(self.input.drain(..at + mark.len()).collect());
            }
            if !self.more() {
                return None;
            }
        }
    }

    pub(crate) fn exactly(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.input.len() < bytes {
            if !self.more() {
                return None;
            }
        }
        Some(self.input.drain(..bytes).collect())
    }

    /// Receives some. A reset is an end here; what came before it counts.
    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(bytes) => {
                self.input.extend_from_slice(&buffer[..bytes]);
                bytes > 0
            }
            Err(why) if matches!(why.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
            // The kernel does not go on by itself where a socket has a time limit (signal(7)), and the work
            // of a ring that this thread had interrupts as a signal does.
            Err(why) if why.kind() == ErrorKind::Interrupted => true,
            Err(why) => panic!("{why}"),
        }
    }
}

/// A server that does `script` on each connection; how many there were.
pub(crate) fn behind(script: impl Fn(&mut Client) + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    behind_any(Arc::new(script))
}

/// [`behind`] without the type of the script, compiled once.
fn behind_any(script: Arc<dyn Fn(&mut Client) + Send + Sync>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // It ends with the test's process. Numbers below 1024 are all that the select driver has, and there are
    // more such servers than that.
    let high = rustix::io::fcntl_dupfd_cloexec(&listener, 2048);
    let listener = high.map_or(listener, TcpListener::from);
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let (mut client, script) = (Client::of(stream.unwrap()), Arc::clone(&script));
            std::thread::spawn(move || script(&mut client));
        }
    });
    (address, count)
}

/// Looks again and again until something that others do has happened.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "{what}");
        // Seldom enough that what is waited for gets the processor, also where it has a lower priority.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs Prometheus' checker, with `input`; says so where it is not installed. What it finds is an error.
pub(crate) fn promtool(arguments: &[&str], input: Option<&str>) {
    use std::process::{Command, Stdio};
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(why) if why.kind() == ErrorKind::NotFound => {
            // Past the capture of the test harness.
            let _ = writeln!(std::io::stderr(), "skipped: promtool {arguments:?}: it is not installed");
            return;
        }
        Err(why) => panic!("promtool: {why}"),
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.unwrap_or_default().to_owned();
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let fed = feeder.join().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && fed.is_ok(), "promtool {arguments:?}: {said}");
}
