//! PostgreSQL and Redis as processes of a test: each in a folder of its own, reached by a Unix socket.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The number of the unprivileged user and group of the system: PostgreSQL refuses to run as root.
const UNPRIVILEGED: u32 = 65_534;

/// Waits until `is_ready`, as long as the process runs.
fn wait(child: &mut Child, is_ready: impl Fn() -> bool) {
    while !is_ready() {
        assert_eq!(child.try_wait().unwrap(), None, "the server has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A PostgreSQL server.
pub(crate) struct Postgres {
    folder: tempfile::TempDir,
    child: Child,
}

impl Postgres {
    /// The name of its only user, which needs no password.
    pub(crate) const USER: &str = "ringroad";

    /// Starts a server; `None`, told on stderr, where it is not installed.
    pub(crate) fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL is not installed (no initdb)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let is_root = folder.path().metadata().unwrap().uid() == 0;
        if is_root {
            chown(folder.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null());
            if is_root {
                command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
            }
            command
        };
        let data = folder.path().join("data");
        let mut initdb = command("initdb");
        initdb.args(["--no-sync", "--auth=trust", "--username", Postgres::USER, "-D"]).arg(&data);
        assert!(initdb.status().unwrap().success(), "initdb has failed");
        let mut postgres = command("postgres");
        postgres.arg("-D").arg(&data).arg("-k").arg(folder.path());
        let mut child = postgres.args(["-F", "-c", "listen_addresses="]).spawn().unwrap();
        // The eighth line is the state.
        let pid = data.join("postmaster.pid");
        wait(&mut child, || {
            let text = std::fs::read_to_string(&pid).unwrap_or_default();
            text.lines().nth(7).is_some_and(|state| state.trim() == "ready")
        });
        Some(Postgres { folder, child })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join(".s.PGSQL.5432")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A fast shutdown, which frees its shared memory.
        let _ = Command::new("sh").args(["-c", &format!("kill -INT {}", self.child.id())]).status();
        let _ = self.child.wait();
    }
}

/// Returns the folder with PostgreSQL's programs: Debian keeps them out of `PATH`.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    folders.into_iter().find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// A Redis server.
pub(crate) struct Redis {
    folder: tempfile::TempDir,
    child: Child,
}

impl Redis {
    /// Starts a server; `None`, told on stderr, where it is not installed.
    pub(crate) fn start() -> Option<Redis> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"]).arg(folder.path());
        command.arg("--unixsocket").arg(socket_of(folder.path()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            eprintln!("skipped: redis-server is not installed");
            return None;
        };
        let socket = socket_of(folder.path());
        wait(&mut child, || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        Some(Redis { folder, child })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket_of(self.folder.path())
    }
}

fn socket_of(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
