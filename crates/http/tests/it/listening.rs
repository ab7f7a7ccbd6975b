//! Where servers listen besides TCP: Unix sockets, sockets that were passed, and behind a balancer's PROXY
//! header.

use crate::support::{Client, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_http::{Bound, Handle, Request, Server, get};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

async fn who(request: Request) -> String {
    format!("{:?}", request.peer_addr())
}

/// A path for a socket, in a folder of its own that goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("ringroad-http-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Place(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn bound(driver: DriverName, workers: usize, at: &str) -> Handle {
    let server = Server::new().route("/", get(who)).workers(workers);
    server.bind(at).unwrap().driver(Wish::Named(driver)).start().unwrap()
}

fn ask(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.split_once("\r\n\r\n").unwrap().1.to_owned()
}

drivers!(a_server_listens_on_a_unix_socket_and_removes_it_at_the_end, |driver: DriverName| {
    let place = Place::new(driver.as_str());
    let path = place.socket();
    for workers in [1, 2] {
        // What an earlier server has left behind.
        drop(UnixListener::bind(&path).unwrap());
        let server = bound(driver, workers, &format!("unix:{}", path.display()));
        assert_eq!(server.bound(), &Bound::Unix(Some(path.clone())));
        for _ in 0..10 {
            assert_eq!(ask(UnixStream::connect(&path).unwrap()), "None");
        }
        // One that is in use is left alone.
        let second =
            Server::new().bind(format!("unix:{}", path.display())).unwrap().driver(Wish::Named(driver));
        assert!(second.start().unwrap_err().to_string().contains("listens"));
        server.stop();
        server.wait().unwrap();
        assert!(!path.exists());
    }
});

drivers!(a_unix_address_is_free_as_soon_as_its_server_is_told_to_stop, |driver: DriverName| {
    let place = Place::new(&format!("free-{}", driver.as_str()));
    let at = format!("unix:{}", place.socket().display());
    let first = bound(driver, 2, &at);
    // A connection with a request that has begun keeps the server for a while.
    let mut held = UnixStream::connect(place.socket()).unwrap();
    held.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    while first.counters().connections == 0 {
        std::thread::yield_now();
    }
    first.stop();
    let second = bound(driver, 2, &at);
    held.write_all(b"Host: a\r\n\r\n").unwrap();
    let mut reply = String::new();
    held.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("None"), "{reply}");
    // The end of the first leaves the file of the second alone.
    first.wait().unwrap();
    assert_eq!(ask(UnixStream::connect(place.socket()).unwrap()), "None");
    drop(second);
    assert!(!place.socket().exists());
});

/// Runs in a process of its own, which a socket was passed to.
#[test]
#[ignore = "started by the test below"]
fn a_process_with_passed_sockets() {
    let server = bound(DriverName::Epoll, 2, "systemd:web");
    let unix = bound(DriverName::Epoll, 1, "systemd");
    println!("serves {} {}", server.bound(), unix.bound());
    let again = Server::new().bind("systemd:web").unwrap().start().unwrap_err().to_string();
    assert!(again.contains("systemd:web") && again.contains("no socket was passed"), "{again}");
    std::io::stdin().read_to_string(&mut String::new()).unwrap();
    server.stop();
    server.wait().unwrap();
}

#[test]
fn a_server_serves_on_sockets_that_its_parent_has_passed() {
    let place = Place::new("passed");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let unix = UnixListener::bind(place.socket()).unwrap();
    // The shell puts the sockets where `sd_listen_fds(3)` has them; its number is the program's.
    let script = "exec 3<&0 4<&1 0<&2; exec 1>&2; LISTEN_FDS=2 LISTEN_FDNAMES=web:other LISTEN_PID=$$ exec \"$0\" \"$@\"";
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "listening::a_process_with_passed_sockets", "--ignored", "--nocapture"])
        .stdin(Stdio::from(OwnedFd::from(listener.try_clone().unwrap())))
        .stdout(Stdio::from(OwnedFd::from(unix.try_clone().unwrap())))
        .stderr(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    // Connections are made, and wait for it, before it runs.
    let replies = [
        ask(std::net::TcpStream::connect(address).unwrap()),
        ask(UnixStream::connect(place.socket()).unwrap()),
        ask(std::net::TcpStream::connect(address).unwrap()),
    ];
    assert!(
        replies[0].starts_with("Some(127.0.0.1:") && replies[2].starts_with("Some(127.0.0.1:"),
        "{replies:?}"
    );
    assert_eq!(replies[1], "None");
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = String::new();
    ours.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert!(said.contains(&format!("serves {address} unix:{}", place.socket().display())), "{said}");
    // The sockets are the parent's: the next program goes on with them.
    drop(std::net::TcpStream::connect(address).unwrap());
    assert!(place.socket().exists());
}

drivers!(a_proxy_header_is_believed_from_listed_addresses_and_from_no_others, |driver: DriverName| {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let server = Server::new()
        .route("/", get(who))
        .proxy_from(["127.0.0.0/8".parse().unwrap()])
        .on_refused(move |refused| tell.lock().unwrap().push(refused.reason.to_string()));
    let server = start(driver, server);
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut v1 = Client::new(server.address());
    v1.send(format!("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n{request}"));
    assert_eq!(v1.reply().text(), "Some(192.0.2.7:56324)");
    assert_eq!(v1.get("/").text(), "Some(192.0.2.7:56324)");
    // In pieces, and with the request behind it later.
    let mut v2 = Client::new(server.address());
    let (source, destination): (SocketAddr, SocketAddr) =
        ("[2001:db8::7]:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap());
    let mut header = Vec::new();
    ringroad_wire::proxy::write(source, destination, &mut header);
    let before = server.counters().bytes_in;
    v2.send(&header[..5]);
    wait_until("the piece has come", || server.counters().bytes_in == before + 5);
    v2.send(&header[5..]);
    assert_eq!(v2.get("/").text(), "Some([2001:db8::7]:1)");
    let mut local = Client::new(server.address());
    local.send(format!("PROXY UNKNOWN\r\n{request}"));
    let own = local.local_addr();
    assert_eq!(local.reply().text(), format!("{:?}", Some(own)));
    let mut bare = Client::new(server.address());
    bare.send(request);
    assert!(bare.is_closed());
    wait_until("it is told", || !told.lock().unwrap().is_empty());
    assert!(told.lock().unwrap().pop().unwrap().starts_with("PROXY header: expected one first"));

    let elsewhere = Server::new().route("/", get(who)).proxy_from(["192.0.2.0/24".parse().unwrap()]);
    let elsewhere = start(driver, elsewhere);
    let mut client = Client::new(elsewhere.address());
    client.send(format!("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n{request}"));
    assert_eq!(client.reply().status, 400);
});

/// The listening socket of an address, found among the descriptors of this process.
fn listener_of(address: SocketAddr) -> OwnedFd {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let copies = numbers.filter_map(|number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok());
    let listens = |socket: &OwnedFd| {
        let socket = socket2::SockRef::from(socket);
        socket.is_listener().is_ok_and(|is| is)
            && socket.local_addr().is_ok_and(|own| own.as_socket() == Some(address))
    };
    copies.into_iter().find(listens).unwrap()
}

drivers!(an_error_of_the_listener_is_the_error_of_wait, |driver: DriverName| {
    let server = bound(driver, 1, "127.0.0.1:0");
    let listener = listener_of(server.address());
    assert!(ask(std::net::TcpStream::connect(server.address()).unwrap()).starts_with("Some("));
    // From here on accept(2) fails with EINVAL.
    socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both).unwrap();
    let why = server.wait().unwrap_err().to_string();
    assert!(why.contains("accept"), "{why}");
});
