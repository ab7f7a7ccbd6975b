//! Servers of NATS as processes, reached through a relay: its address stays the same when the server is
//! started again on another port. The hub's tests use this file as well, by its path.
#![allow(dead_code, reason = "each user of this file uses a part of it")]

use crate::relay::Relay;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server's process and the relay before it.
pub(crate) struct NatsServer {
    folder: tempfile::TempDir,
    options: Vec<String>,
    child: Child,
    relay: Relay,
}

impl NatsServer {
    /// Starts a server; `None`, told on stderr, where it is not installed.
    pub(crate) fn start(options: &[&str]) -> Option<NatsServer> {
        if Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: nats-server is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<String> = options.iter().map(|text| (*text).to_owned()).collect();
        let (child, port) = spawn(folder.path(), &options);
        let relay = Relay::start();
        relay.lead_to(Some(port));
        Some(NatsServer { folder, options, child, relay })
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.relay.address
    }

    pub(crate) fn kill(&mut self) {
        self.relay.lead_to(None);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        let (child, port) = spawn(self.folder.path(), &self.options);
        self.child = child;
        self.relay.lead_to(Some(port));
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a process on a port that is free, which it writes into a file.
fn spawn(folder: &std::path::Path, options: &[String]) -> (Child, u16) {
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"]).arg(folder).args(options);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let file = folder.join(format!("nats-server_{}.ports", child.id()));
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        // Written whole: it ends with a brace.
        if text.trim_end().ends_with('}') {
            let (_, port) = text.split_once("127.0.0.1:").unwrap();
            let end = port.find(|of: char| !of.is_ascii_digit()).unwrap();
            return (child, port[..end].parse().unwrap());
        }
        assert_eq!(child.try_wait().unwrap(), None, "nats-server has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
}
