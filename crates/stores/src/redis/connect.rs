//! A connection: made, greeted, and moved bytes over.

use super::{Counters, Redis};
use crate::pipe::Pipe;
use ringroad_engine::time;
use ringroad_wire::resp::{Limits, Replies, Reply, put_command};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A connection that is open.
pub(super) struct Link {
    pipe: Pipe,
    replies: Replies,
}

impl Link {
    /// Connects and greets, in the time that the settings allow.
    pub(super) async fn open(redis: &Redis) -> Result<Link, Arc<str>> {
        let settings = redis.settings();
        let opened = time::timeout(settings.connect_timeout, Link::try_open(redis)).await;
        let opened = opened.unwrap_or_else(|_| Err(format!("not within {:?}", settings.connect_timeout)));
        let counters = redis.counters();
        Counters::add(if opened.is_ok() { &counters.connected } else { &counters.unconnected });
        opened.map_err(|why| format!("connect, to redis.{} at {}: {why}", redis.name(), settings.to).into())
    }

    async fn try_open(redis: &Redis) -> Result<Link, String> {
        let mut pipe = Pipe::connect(&redis.settings().to).await?;
        if let (Some(client), Some(tls)) = (&redis.0.tls, &redis.settings().tls) {
            pipe = pipe.secure(client, &tls.name).await?;
        }
        let mut link = Link { pipe, replies: Replies::new(Limits::default()) };
        link.greet(redis).await?;
        Ok(link)
    }

    /// Agrees on RESP3, or on RESP2 with a server that does not know it; authenticates; selects a database.
    async fn greet(&mut self, redis: &Redis) -> Result<(), String> {
        let settings = redis.settings();
        let user = settings.user.as_deref().unwrap_or("default");
        let mut hello = vec!["HELLO", "3"];
        if let Some(password) = &settings.password {
            hello.extend(["AUTH", user, password]);
        }
        let answer = self.ask(&hello).await?;
        // Before Redis 6 there is no HELLO; some servers know it, and not version 3.
        let is_old = answer.is_error("NOPROTO")
            || answer.error().is_some_and(|text| text.starts_with(b"ERR unknown command"));
        if is_old {
            let auth = match (&settings.user, &settings.password) {
                (_, None) => vec![],
                (None, Some(password)) => vec!["AUTH", password],
                (Some(user), Some(password)) => vec!["AUTH", user, password],
            };
            if !auth.is_empty() {
                self.must("AUTH", &auth).await?;
            }
        } else if answer.error().is_some() {
            return Err(format!("HELLO is refused: {answer}"));
        }
        if settings.database != 0 {
            self.must("SELECT", &["SELECT", &settings.database.to_string()]).await?;
        }
        Ok(())
    }

    async fn must(&mut self, what: &str, command: &[&str]) -> Result<(), String> {
        let answer = self.ask(command).await?;
        if answer.error().is_some() { Err(format!("{what} is refused: {answer}")) } else { Ok(()) }
    }

    async fn ask(&mut self, command: &[&str]) -> Result<Reply, String> {
        let mut out = Vec::new();
        put_command(&mut out, command);
        poll_fn(|context| {
            self.poll_write(&mut out, context)?;
            self.poll_reply(context)
        })
        .await
    }

    /// Sends `out`, which is taken; what is in it while a send is under way leaves with the next.
    pub(super) fn poll_write(&mut self, out: &mut Vec<u8>, context: &mut Context<'_>) -> Result<(), String> {
        self.pipe.poll_write(out, context)
    }

    /// Returns the next reply.
    pub(super) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, String>> {
        loop {
            let mut at = 0;
            let next = self.replies.next(self.pipe.kept(), &mut at);
            self.pipe.used(at);
            if let Some(reply) = next.map_err(|why| why.to_string())? {
                return Poll::Ready(Ok(reply));
            }
            match self.pipe.poll_fill(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(filled) => filled?,
            }
        }
    }

    /// Calls `each` with every reply that has arrived.
    pub(super) fn poll_replies(
        &mut self,
        context: &mut Context<'_>,
        mut each: impl FnMut(Reply) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let mut at = 0;
            let broken = loop {
                match self.replies.next(self.pipe.kept(), &mut at) {
                    Ok(Some(reply)) => each(reply)?,
                    Ok(None) => break None,
                    Err(why) => break Some(why),
                }
            };
            self.pipe.used(at);
            if let Some(why) = broken {
                return Err(why.to_string());
            }
            match self.pipe.poll_fill(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(filled) => filled?,
            }
        }
    }
}
