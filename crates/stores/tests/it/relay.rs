//! A relay before a server: a test can cut its connections. Tests of other crates use this file as well, by
//! its path.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Hands connections on to a port, which may change.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    way: Arc<Mutex<Way>>,
}

#[derive(Default)]
struct Way {
    port: Option<u16>,
    open: Vec<TcpStream>,
}

impl Relay {
    pub(crate) fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Mutex::new(Way::default()));
        let of = Arc::clone(&way);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut way = of.lock().unwrap();
                let Some(server) = way.port.and_then(|port| TcpStream::connect(("127.0.0.1", port)).ok())
                else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    way.open.push(from.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Relay { address, way }
    }

    /// Leads new connections there, and ends those that there are.
    pub(crate) fn lead_to(&self, port: Option<u16>) {
        let mut way = self.way.lock().unwrap();
        way.port = port;
        for stream in way.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
