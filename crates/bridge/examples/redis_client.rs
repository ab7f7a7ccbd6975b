//! `redis_client SOCKET`: sets and gets a key of a Redis server through its Unix socket, by the `redis`
//! crate on the engine.
//!
//! The crate asks for a stream that is `Send`, so the adapter is in [`Local`]. Its time-outs are those of a
//! runtime it knows, so they are off here: `ringroad_engine::time::timeout` bounds a call.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use ringroad_bridge::{Duplex, Io, Local};
use ringroad_engine::net::UnixStream;
use ringroad_engine::{Runtime, spawn};
use std::error::Error;
use std::path::Path;

/// Makes a client of a connected stream. Its clones share the connection.
pub(crate) async fn client<S: Duplex>(stream: S) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let (client, connection) = MultiplexedConnection::new_with_config(
        &RedisConnectionInfo::default(),
        Local::new(Io::new(stream)),
        config,
    )
    .await?;
    // It ends when the last client is dropped.
    spawn(connection).detach();
    Ok(client)
}

#[allow(dead_code, reason = "the tests use this file as well")]
fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| "/run/redis/redis-server.sock".to_owned());
    Runtime::auto()?.block_on(async move {
        let mut client = client(UnixStream::connect(Path::new(&socket)).await?).await?;
        let () = redis::cmd("SET").arg("greeting").arg("hello").query_async(&mut client).await?;
        let greeting: String = redis::cmd("GET").arg("greeting").query_async(&mut client).await?;
        println!("{greeting}");
        Ok(())
    })?
}
