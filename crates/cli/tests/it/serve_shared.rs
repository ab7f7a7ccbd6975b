//! Several processes of `ringroad serve` that count one limit in a store: as many requests pass as if there
//! were one. Fail-over and fall-back are tested in the library.

use crate::serve::{Serving, ask, connect, drivers};
use crate::support::{Kill, installed, ringroad, until};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Starts a store that listens on a socket in `folder`.
fn store(program: &str, folder: &Path) -> Kill {
    let socket = folder.join("socket");
    let mut command = Command::new(program);
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"]);
    command.arg(&socket).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    let mut store = Kill(command.spawn().unwrap());
    until("the store listens", || {
        assert_eq!(store.0.try_wait().unwrap(), None, "{program} has ended");
        UnixStream::connect(&socket).is_ok()
    });
    store
}

#[test]
fn two_processes_let_exactly_as_many_requests_pass_as_one_limit_allows() {
    const ALLOWED: usize = 50;
    for program in ["redis-server", "valkey-server"].into_iter().filter(|program| installed(program)) {
        for driver in drivers() {
            let folder = tempfile::tempdir().unwrap();
            let _store = store(program, folder.path());
            let config = folder.path().join("site.toml");
            let text = format!(
                "workers = 2\n[redis.main]\nto = \"unix:{}\"\ntimeout = \"120s\"\nconnect_timeout = \"120s\"\n\
                 [limit.quota]\nkey = \"route\"\nrate = \"{ALLOWED}/h\"\nstore = \"redis.main\"\n\
                 when_store_fails = \"closed\"\n\
                 [[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"ok\"\nlimit = \"quota\"\n",
                folder.path().join("socket").display()
            );
            std::fs::write(&config, text).unwrap();
            let arguments = ["serve", "--listen", "127.0.0.1:0", "--driver", driver, "--config"];
            let start = || Serving::of(ringroad(arguments).arg(&config));
            let servers = [start(), start()];
            let passed = [AtomicUsize::new(0), AtomicUsize::new(0)];
            std::thread::scope(|scope| {
                for (address, passed) in servers.iter().map(|server| server.address).zip(&passed) {
                    for _ in 0..4 {
                        scope.spawn(move || {
                            for _ in 0..15 {
                                // A connection of its own each time, so that all workers have some.
                                let (head, _) = ask(&mut connect(address), "/");
                                match head.split(' ').nth(1) {
                                    Some("200") => drop(passed.fetch_add(1, Ordering::SeqCst)),
                                    Some("429") => assert!(head.contains("Retry-After: "), "{head}"),
                                    _ => panic!("{head}"),
                                }
                            }
                        });
                    }
                }
            });
            let passed = passed.map(AtomicUsize::into_inner);
            assert_eq!(passed[0] + passed[1], ALLOWED, "{program}, {driver}: {passed:?}");
        }
    }
}
