//! What the suite `peers` and those of `benches` about HTTP run beside ours: our examples, the same by others
//! (`peers/`), files to serve, a server for proxies to stand before.
//!
//! All of it goes to `target/peers`, where the suites look. What cannot be built here, for want of a compiler
//! or a network, is said and left out; the lab then records it as skipped.

use ringroad_host::topology;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Suites that look in `target/peers`.
pub(crate) const SUITES: [&str; 6] = ["http", "json", "connections", "static", "proxy", "bridge"];

/// Files to serve: name and size.
const FILES: [(&str, usize); 4] =
    [("1k.bin", 1 << 10), ("64k.bin", 64 << 10), ("1m.bin", 1 << 20), ("8m.bin", 8 << 20)];

/// Builds every peer that can be built.
///
/// # Errors
/// Ours cannot be.
pub(crate) fn build(root: &Path) -> io::Result<()> {
    let out = folder(root)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = root.join(target);
    let mut examples = Command::new(env!("CARGO"));
    examples.current_dir(root).args(["build", "--release", "--quiet"]);
    examples.args(["--package", "ringroad", "--package", "ringroad-bridge"]);
    run(examples.args(["--example", "hello", "--example", "json", "--example", "hyper_hello"]))?;
    for name in ["hello", "json", "hyper_hello"] {
        place(&target.join("release/examples").join(name), &out.join(name))?;
    }
    for name in ["hyper", "may", "tokio"] {
        let folder = root.join("peers").join(name);
        let built = run(Command::new(env!("CARGO"))
            .current_dir(&folder)
            .args(["build", "--release", "--quiet", "--examples", "--target-dir"])
            .arg(out.join("build")));
        let binary = format!("peer-{name}");
        let made = out.join("build/release/examples").join(&binary);
        told(name, built.and_then(|()| place(&made, &out.join(&binary))));
    }
    for name in ["go", "gin"] {
        let binary = out.join(format!("peer-{name}"));
        let go = Command::new("go")
            .current_dir(root.join("peers").join(name))
            .args([OsStr::new("build"), OsStr::new("-o"), binary.as_os_str(), OsStr::new(".")])
            .status();
        told(name, go.and_then(ended_well));
    }
    place(&root.join("peers/start.sh"), &out.join("start.sh"))?;
    for folder in ["nginx", "node", "php", "serve"] {
        for entry in fs::read_dir(root.join("peers").join(folder))? {
            let entry = entry?;
            place(&entry.path(), &out.join(entry.file_name()))?;
        }
    }
    fs::create_dir_all(out.join("files"))?;
    for (name, bytes) in FILES {
        // Nothing that could be told from anything else by its beginning, and the same each time.
        let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
        fs::write(out.join("files").join(name), content)?;
    }
    Ok(())
}

/// Where all of it is.
pub(crate) fn folder(root: &Path) -> io::Result<PathBuf> {
    let out = root.join("target/peers");
    fs::create_dir_all(&out)?;
    out.canonicalize()
}

/// A server that runs until this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts `command`, which is to listen at `address`, on these CPUs, and waits until it does.
    ///
    /// # Errors
    /// It does not start, or takes no connection.
    pub(crate) fn start(command: &mut Command, address: SocketAddr, cpus: &[u32]) -> io::Result<Server> {
        let child = on(cpus, || command.stdin(Stdio::null()).stdout(Stdio::null()).spawn())?;
        let mut server = Server { child, address };
        let until = Instant::now() + Duration::from_secs(10);
        while let Err(why) = TcpStream::connect(address) {
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("{command:?} ended with {status}")));
            }
            if Instant::now() > until {
                return Err(why);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that would have to be written.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server that proxies stand before: on the CPUs that the lab gives to its clients, so that the proxy has
/// its own.
///
/// # Errors
/// It does not start.
pub(crate) fn behind(root: &Path, ringroad: &Path) -> io::Result<Server> {
    let address = free_address()?;
    let mut command = Command::new(ringroad);
    command.current_dir(folder(root)?).args(["serve", "--driver", "epoll", "--config", "behind.toml"]);
    let (_, client, _) = cores();
    Server::start(command.args(["--listen", &address.to_string()]), address, &client)
}

/// An address without a listener: the kernel does not give its port out again soon.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// CPUs of the server, of the client, of the harness, as the lab parts them.
pub(crate) fn cores() -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    topology::split_cores(&topology::affinity().unwrap_or_default())
}

/// Does something on these CPUs, as far as they are known: a child that is started stays there.
pub(crate) fn on<T>(cpus: &[u32], what: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    if set.count() > 0 {
        sched_setaffinity(None, &set)?;
    }
    let done = what();
    sched_setaffinity(None, &before)?;
    done
}

fn run(command: &mut Command) -> io::Result<()> {
    command.status().and_then(ended_well)
}

fn ended_well(status: std::process::ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("its build ended with {status}"))) }
}

fn told(name: &str, built: io::Result<()>) {
    if let Err(why) = built {
        eprintln!("peers: {name} is left out: {why}");
    }
}

/// Copied, and put in place at once, so that no process runs a half of it.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)?;
    fs::rename(&new, to)
}
