//! Lua scripts, which a server executes atomically.

use super::client::{Answer, Client};
use super::error::RedisError;
use ringroad_wire::resp::Reply;
use ringroad_wire::sha1;

/// A script and its name, which is a hash of it.
#[derive(Clone, Debug)]
pub struct Script {
    source: String,
    name: String,
}

impl Script {
    /// Makes a script of its source.
    pub fn new(source: impl Into<String>) -> Script {
        let source = source.into();
        let name = sha1(source.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Script { source, name }
    }

    /// Returns the name that EVALSHA takes.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Client {
    /// Executes a script by its name (EVALSHA). The command is queued when this returns. A server that does
    /// not know the script gets its source (EVAL), and knows it afterwards.
    ///
    /// # Errors
    /// As [`command`](Client::command).
    ///
    /// # Panics
    /// Those of that method.
    pub fn eval<'a>(
        &self,
        script: &'a Script,
        keys: &'a [&'a [u8]],
        arguments: &'a [&'a [u8]],
    ) -> impl Future<Output = Result<Reply, RedisError>> + use<'a> {
        let by_name = self.script(b"EVALSHA", &script.name, keys, arguments);
        let client = self.clone();
        async move {
            match by_name.await {
                Err(why) if why.code() == Some("NOSCRIPT") => {
                    client.script(b"EVAL", &script.source, keys, arguments).await
                }
                answer => answer,
            }
        }
    }

    fn script(&self, command: &[u8], script: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Answer {
        let count = keys.len().to_string();
        let mut all: Vec<&[u8]> = Vec::with_capacity(3 + keys.len() + arguments.len());
        all.extend([command, script.as_bytes(), count.as_bytes()]);
        all.extend_from_slice(keys);
        all.extend_from_slice(arguments);
        self.command(&all)
    }
}
