//! Bytes go out and come back.

use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::spawn;

everywhere!(many_connections_get_their_own_bytes_back_in_order, |_| async {
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = listener.canceller();
    let server = spawn(async move {
        let mut served = Vec::new();
        while let Ok(mut stream) = listener.accept().await {
            served.push(spawn(async move {
                loop {
                    let lease = stream.recv().await.unwrap();
                    if lease.is_empty() {
                        break;
                    }
                    stream.write_all(lease).await.0.unwrap();
                }
            }));
        }
        for connection in served {
            connection.await.unwrap();
        }
    });
    let clients: Vec<_> = (0..50)
        .map(|n: usize| {
            spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                for round in 0..40usize {
                    let message = vec![n as u8; 1 + n * round];
                    let (sent, message) = stream.write_all(message).await;
                    sent.unwrap();
                    let mut got = 0;
                    while got < message.len() {
                        let lease = stream.recv().await.unwrap();
                        assert!(lease.iter().all(|byte| *byte == n as u8));
                        got += lease.len();
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    stop.cancel();
    server.await.unwrap();
});
