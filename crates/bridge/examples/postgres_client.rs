//! `postgres_client SOCKET USER`: asks a PostgreSQL server through its Unix socket, by tokio-postgres on the
//! engine.
//!
//! tokio-postgres is built without its feature `runtime`. It speaks over the stream that it gets, and its
//! caller spawns the connection.

use ringroad_bridge::{Duplex, Io};
use ringroad_engine::net::UnixStream;
use ringroad_engine::{Runtime, spawn};
use std::error::Error;
use std::path::Path;
use tokio_postgres::{Client, Config, NoTls};

/// Logs in on a connected stream.
pub(crate) async fn log_in<S: Duplex>(stream: S, user: &str) -> Result<Client, tokio_postgres::Error> {
    let mut config = Config::new();
    config.user(user).dbname("postgres");
    let (client, connection) = config.connect_raw(Io::new(stream), NoTls).await?;
    // It ends when the client is dropped. An error of it is an error of the client's next query.
    spawn(async move { drop(connection.await) }).detach();
    Ok(client)
}

#[allow(dead_code, reason = "the tests use this file as well")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().unwrap_or_else(|| "/run/postgresql/.s.PGSQL.5432".to_owned());
    let user = arguments.next().unwrap_or_else(|| "postgres".to_owned());
    Runtime::auto()?.block_on(async move {
        let client = log_in(UnixStream::connect(Path::new(&socket)).await?, &user).await?;
        let row = client.query_one("SELECT version()", &[]).await?;
        println!("{}", row.try_get::<_, String>(0)?);
        Ok(())
    })?
}
