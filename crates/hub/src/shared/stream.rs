//! A hub over a stream of Redis or Valkey.
//!
//! One script in Lua numbers a record, appends it to a stream and publishes it, in one step. Every process
//! subscribes, and takes records in the order of their numbers. Channels of Redis lose messages on a lost
//! connection, so a number that is missing is read from the stream: no message is lost while the server keeps
//! its stream. A process that starts reads the stream, so it has the same history as the others.
//!
//! INVARIANT: records enter the hub in the order of their numbers and without a gap, or every member is
//! closed, comes back, and learns whether it has missed any.
//!
//! A server that was started again with an older state, or a replica that took over, numbers messages anew
//! from an older place. So a process that connects compares the last record that it has with the one of that
//! number in the stream. If they differ, the hub begins another life (epoch), and no old id is taken for a
//! new one.

use super::{Cancels, Record, Shared, Users, locked};
use crate::topics::{Hub, Id};
use ringroad_engine::spawn;
use ringroad_engine::sync::UnboundedReceiver;
use ringroad_engine::sync::budget::Turns;
use ringroad_engine::time::{sleep, timeout};
use ringroad_stores::redis::{Client, Event, Redis, Reply, Script, Settings, Subscriber};
use ringroad_tls::TlsError;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How soon the stream is read again after the server did not answer, or while nothing is subscribed.
const RETRY: Duration = Duration::from_millis(500);

/// Most records that are read at once. Fewer where they are so long that the answer would be refused.
const PAGE_MAX: usize = 500;

/// Numbers a record and hands it on. Without an epoch the server knows nothing of the hub: another life
/// begins.
const PUBLISH: &str = "
local epoch = redis.call('HGET', KEYS[2], 'epoch')
if not epoch then
  epoch = ARGV[1]
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[2], 'epoch', epoch, 'offset', 0, 'from', 0)
end
local id = string.format('%.0f', redis.call('HINCRBY', KEYS[2], 'offset', 1))
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], id .. '-0', 'm', ARGV[3])
redis.call('PUBLISH', ARGV[4], epoch .. ' ' .. id .. ' ' .. ARGV[3])
return {epoch, id}";

/// Begins another life, unless another process has done so; the first one, where the server knows nothing of
/// the hub. The stream of a life before stays; `from` is the number of the last record that it had, too.
const BEGIN: &str = "
local place = redis.call('HMGET', KEYS[1], 'epoch', 'offset')
if not place[1] then
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'offset', 0, 'from', 0)
elseif place[1] == ARGV[1] then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'from', place[2])
end
return redis.call('HMGET', KEYS[1], 'epoch', 'offset', 'from')";

/// Reports that a process is there. Returns whether the server knew it, the place of the last record, and the
/// processes that report. A process that has not reported for long does not remove others: perhaps none
/// could.
const REPORT: &str = "
local now = redis.call('TIME')
local millis = now[1] * 1000 + math.floor(now[2] / 1000)
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], string.format('%.0f', millis), ARGV[1])
if before and millis - before < ARGV[2] / 2 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', millis - ARGV[2]))
end
local place = redis.call('HMGET', KEYS[2], 'epoch', 'offset')
return {before and 1 or 0, place[1] or '', place[2] or '0', redis.call('ZRANGE', KEYS[1], 0, -1)}";

/// The keys of a hub on the server.
#[derive(Clone)]
pub(super) struct Stream {
    redis: Redis,
    records: String,
    meta: String,
    nodes: String,
    channel: String,
    /// Most records of the stream.
    stored: String,
    /// After so many milliseconds without a report a process is gone.
    gone_millis: String,
    publish: Script,
    begin: Script,
    report: Script,
}

/// Where the receiver of a process stands.
struct Stand {
    /// The server may have records that the hub has not.
    is_behind: bool,
    /// Records come by the channel.
    is_subscribed: bool,
    /// The last number that was read from the stream: it may come by the channel as well.
    read: u64,
    /// The last number that members may have got in the life before.
    old: u64,
    /// The last record, and a hash of it.
    last: (Id, u64),
    page: usize,
    turns: Turns,
}

/// Returns what comes first: an event, or (`None`) that a look is asked for. A channel that always has
/// messages leaves every second turn to the look.
async fn first_of<E>(
    turns: &mut Turns,
    event: impl Future<Output = E>,
    look: impl Future<Output = ()>,
) -> Option<E> {
    let (mut event, mut look) = (pin!(event), pin!(look));
    poll_fn(|context| {
        turns.poll(
            context,
            |context| event.as_mut().poll(context).map(Some),
            |context| look.as_mut().poll(context).map(|()| None),
        )
    })
    .await
}

fn hash(record: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish()
}

fn text(reply: &Reply) -> Option<&str> {
    str::from_utf8(reply.bytes()?).ok()
}

/// Makes the epoch of a life that begins now.
fn new_epoch() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", now.as_micros() as u64)
}

fn place(epoch: &Reply, offset: &Reply) -> Option<Id> {
    Some(Id { epoch: u64::from_str_radix(text(epoch)?, 16).ok()?, offset: text(offset)?.parse().ok()? })
}

/// Returns the place of the last record, and the number of the last one that the life before had, too.
fn place_and_old(told: &Reply) -> Option<(Id, u64)> {
    let [epoch, offset, old] = told.array()? else { return None };
    Some((place(epoch, offset)?, text(old)?.parse().ok()?))
}

/// Returns an answer that a script of ours does not give.
fn strange(what: &str) -> String {
    format!("the server's answer to {what} has another form: are its keys used by another program?")
}

impl Stream {
    pub(super) fn new(
        name: &str,
        server: Settings,
        stored: usize,
        beat: Duration,
    ) -> Result<Stream, TlsError> {
        let redis = Redis::new(name, server)?;
        // The braces keep the keys on one server of a cluster.
        let key = |what: &str| format!("ringroad:hub:{{{name}}}:{what}");
        Ok(Stream {
            redis,
            records: key("stream"),
            meta: key("meta"),
            nodes: key("nodes"),
            channel: key("messages"),
            stored: stored.to_string(),
            gone_millis: (beat * 4).as_millis().to_string(),
            publish: Script::new(PUBLISH),
            begin: Script::new(BEGIN),
            report: Script::new(REPORT),
        })
    }

    /// Returns this thread's client.
    pub(super) fn client(&self) -> Client {
        self.redis.client()
    }

    /// Appends a record.
    pub(super) async fn append(&self, client: &Client, record: &str) -> Result<Id, String> {
        let epoch = new_epoch();
        let keys = [self.records.as_bytes(), self.meta.as_bytes()];
        let arguments =
            [epoch.as_bytes(), self.stored.as_bytes(), record.as_bytes(), self.channel.as_bytes()];
        let told = client.eval(&self.publish, &keys, &arguments).await.map_err(|why| why.to_string())?;
        let id = told.array().and_then(|parts| match parts {
            [epoch, offset] => place(epoch, offset),
            _ => None,
        });
        id.ok_or_else(|| strange("a publication"))
    }

    /// Reads records from this number on: as many as a page has, or all that there are.
    async fn page(&self, client: &Client, stand: &Stand, from: u64) -> Result<Vec<(u64, String)>, String> {
        let (from, page) = (format!("{from}-0"), stand.page.to_string());
        let records = self.records.as_bytes();
        let told = client.command(&[b"XRANGE", records, from.as_bytes(), b"+", b"COUNT", page.as_bytes()]);
        let told = told.await.map_err(|why| why.to_string())?;
        let entries = told.array().ok_or_else(|| strange("XRANGE"))?;
        entries.iter().map(|entry| entry_of(entry).ok_or_else(|| strange("XRANGE"))).collect()
    }

    /// Returns whether the server goes on from the place where the hub is: it has the hub's last record.
    async fn is_same(&self, client: &Client, stand: &Stand, last: Id, newest: Id) -> Result<bool, String> {
        let (id, known) = stand.last;
        if newest.offset < last.offset || id != last {
            return Ok(false);
        }
        if last.offset == 0 || known == 0 {
            return Ok(true);
        }
        let at = format!("{}-0", last.offset);
        let command = [b"XRANGE", self.records.as_bytes(), at.as_bytes(), at.as_bytes()];
        let told = client.command(&command).await.map_err(|why| why.to_string())?;
        let entries = told.array().ok_or_else(|| strange("XRANGE"))?;
        // One that the stream does not keep any more cannot be compared: what is missing behind it is told.
        Ok(entries
            .first()
            .is_none_or(|entry| entry_of(entry).is_some_and(|(_, record)| hash(&record) == known)))
    }

    /// Begins another life behind the one of this epoch, or the first one.
    async fn begin(&self, client: &Client, before: Option<u64>) -> Result<(Id, u64), String> {
        let before = before.map(|epoch| format!("{epoch:x}")).unwrap_or_default();
        let new = new_epoch();
        let keys = [self.meta.as_bytes(), self.records.as_bytes()];
        let arguments = [before.as_bytes(), new.as_bytes()];
        let told = client.eval(&self.begin, &keys, &arguments).await.map_err(|why| why.to_string())?;
        place_and_old(&told).ok_or_else(|| strange("another life of the hub"))
    }
}

impl Shared {
    /// Takes part in the hub, for as long as it is polled.
    pub(super) async fn tend_stream(
        self: &Arc<Shared>,
        stream: &Stream,
        hub: &Hub,
        queued: UnboundedReceiver<String>,
    ) {
        let (shared, of, own) = (Arc::clone(self), hub.clone(), stream.clone());
        let _beats = Cancels(spawn(async move { shared.beats(&own, &of).await }));
        let (shared, own) = (Arc::clone(self), stream.clone());
        let _tells = Cancels(spawn(async move { shared.tells(&own, queued).await }));
        self.receive(stream, hub).await;
    }

    /// Sends what no caller waits for.
    async fn tells(&self, stream: &Stream, mut queued: UnboundedReceiver<String>) {
        let client = stream.client();
        while let Ok(text) = queued.recv().await {
            self.queued_bytes.fetch_sub(text.len(), Ordering::Relaxed);
            let sent = stream.append(&client, &text).await;
            if self.note(sent).is_none() {
                self.announces.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Reports to the server again and again.
    async fn beats(&self, stream: &Stream, hub: &Hub) {
        let client = stream.client();
        let mut missing = HashMap::new();
        loop {
            let told = self.beat(stream, hub, &client, &mut missing).await;
            self.note(told);
            sleep(self.beat).await;
        }
    }

    async fn beat(
        &self,
        stream: &Stream,
        hub: &Hub,
        client: &Client,
        missing: &mut HashMap<String, u32>,
    ) -> Result<(), String> {
        let keys = [stream.nodes.as_bytes(), stream.meta.as_bytes()];
        let arguments = [hub.node().as_bytes(), stream.gone_millis.as_bytes()];
        let told = client.eval(&stream.report, &keys, &arguments).await.map_err(|why| why.to_string())?;
        let parts = told.array().and_then(|parts| match parts {
            [known, epoch, offset, nodes] => Some((known.integer()?, epoch, offset, nodes.array()?)),
            _ => None,
        });
        let (known, epoch, offset, nodes) = parts.ok_or_else(|| strange("a report"))?;
        let is_new = known == 0;
        if is_new || self.announces.swap(false, Ordering::Relaxed) {
            self.announce(hub, is_new);
        }
        if place(epoch, offset).is_some_and(|place| place != hub.last()) {
            // Perhaps it is on its way; perhaps the channel has lost it.
            self.look.notify_one();
        }
        if is_new {
            // The server may have forgotten all processes.
            missing.clear();
            self.processes.store(nodes.len(), Ordering::Relaxed);
        } else {
            let nodes: Vec<&str> = nodes.iter().filter_map(text).collect();
            self.remove_gone(hub, &nodes, missing);
        }
        Ok(())
    }

    /// Takes records, in the order of their numbers.
    async fn receive(&self, stream: &Stream, hub: &Hub) {
        let client = stream.client();
        let mut subscriber = stream.redis.subscriber();
        subscriber.subscriptions().add(stream.channel.as_bytes());
        let mut stand = Stand {
            is_behind: true,
            is_subscribed: false,
            read: 0,
            old: 0,
            last: (hub.last(), 0),
            page: PAGE_MAX,
            turns: Turns::default(),
        };
        loop {
            match self.event(&mut subscriber, &mut stand).await {
                Some(Event::Subscribed { .. }) => {
                    stand.is_subscribed = true;
                    stand.is_behind = true;
                }
                Some(Event::Lost(_)) => {
                    stand.is_subscribed = false;
                    stand.is_behind = true;
                    continue;
                }
                Some(Event::Message { payload, .. }) => self.hear(hub, &mut stand, &payload),
                Some(_) => {}
                None => stand.is_behind = true,
            }
            if stand.is_behind {
                let waiting = std::mem::take(&mut *locked(&self.looks));
                let done = self.catch_up(stream, hub, &client, &mut stand).await;
                if self.note(done).is_some() {
                    // Without the channel the stream is read each `RETRY`.
                    stand.is_behind = !stand.is_subscribed;
                    stand.page = (stand.page * 2).min(PAGE_MAX);
                    if !self.is_ready() {
                        // Its first life began without members.
                        hub.counts().lost.store(0, Ordering::Relaxed);
                        // Pairs with the acquire load in `is_ready`.
                        self.is_ready.store(true, Ordering::Release);
                    }
                    for look in waiting {
                        // The caller may have given up.
                        let _ = look.send(());
                    }
                } else {
                    stand.page = (stand.page / 4).max(1);
                    locked(&self.looks).extend(waiting.into_iter().filter(|look| !look.is_closed()));
                }
            }
        }
    }

    /// Returns the next event; `None`: a caller asks for a look, or `RETRY` is over where the hub is behind.
    async fn event(&self, subscriber: &mut Subscriber, stand: &mut Stand) -> Option<Event> {
        let Stand { is_behind, turns, .. } = stand;
        let event = first_of(turns, subscriber.next(), self.look.notified());
        if *is_behind { timeout(RETRY, event).await.ok().flatten() } else { event.await }
    }

    /// Takes a record that came by the channel.
    fn hear(&self, hub: &Hub, stand: &mut Stand, payload: &[u8]) {
        let mut parts = str::from_utf8(payload).unwrap_or_default().splitn(3, ' ');
        let (epoch, offset, record) = (parts.next(), parts.next(), parts.next());
        let epoch = epoch.and_then(|text| u64::from_str_radix(text, 16).ok());
        let offset = offset.and_then(|text| text.parse::<u64>().ok());
        let (Some(epoch), Some(offset), Some(record)) = (epoch, offset, record) else { return };
        let last = hub.last();
        if stand.is_behind {
            // It is read from the stream.
        } else if epoch == last.epoch && offset == last.offset + 1 {
            let id = Id { epoch, offset };
            let (arrival, users) = Record::read(id, record, false);
            hub.arrive(arrival);
            stand.last = (id, hash(record));
            self.take_users(hub, users);
        } else if epoch != last.epoch || offset > last.offset || offset > stand.read {
            // A gap, another life, or a server that has gone back to an older place.
            hub.counts().gaps.fetch_add(1, Ordering::Relaxed);
            stand.is_behind = true;
        }
    }

    /// Reads what the stream has and the hub has not.
    async fn catch_up(
        &self,
        stream: &Stream,
        hub: &Hub,
        client: &Client,
        stand: &mut Stand,
    ) -> Result<(), String> {
        let meta = [&b"HMGET"[..], stream.meta.as_bytes(), b"epoch", b"offset", b"from"];
        let told = client.command(&meta).await.map_err(|why| why.to_string())?;
        let knows = told.array().and_then(|parts| parts.first()?.bytes()).is_some();
        let (mut newest, mut old) = if knows {
            place_and_old(&told).ok_or_else(|| strange("HMGET"))?
        } else {
            stream.begin(client, None).await?
        };
        let last = hub.last();
        if newest.epoch == last.epoch && !stream.is_same(client, stand, last, newest).await? {
            (newest, old) = stream.begin(client, Some(last.epoch)).await?;
        }
        if newest.epoch == last.epoch {
            loop {
                let page = stream.page(client, stand, hub.last().offset + 1).await?;
                let count = page.len();
                for (offset, record) in page {
                    let id = Id { offset, ..newest };
                    let (arrival, users) = Record::read(id, &record, offset <= stand.old);
                    hub.arrive(arrival);
                    (stand.last, stand.read) = ((id, hash(&record)), offset);
                    self.take_users(hub, users);
                }
                if count < stand.page {
                    break;
                }
            }
        } else {
            // All of it is read before the life begins: no member comes to a part of it.
            let (mut arrivals, mut all_users): (Vec<_>, Vec<Option<Users>>) = (Vec::new(), Vec::new());
            let mut read = (Id { offset: 0, ..newest }, 0);
            loop {
                let page = stream.page(client, stand, read.0.offset + 1).await?;
                let count = page.len();
                for (offset, record) in page {
                    read = (Id { offset, ..newest }, hash(&record));
                    let (arrival, users) = Record::read(read.0, &record, offset <= old);
                    arrivals.push(arrival);
                    all_users.push(users);
                }
                if count < stand.page {
                    break;
                }
            }
            hub.restart(newest.epoch, arrivals);
            (stand.last, stand.read, stand.old) = (read, read.0.offset, old);
            // A server without our users, too.
            self.announces.store(true, Ordering::Relaxed);
            all_users.into_iter().for_each(|users| self.take_users(hub, users));
        }
        if newest.offset > hub.last().offset {
            hub.lose(newest);
            stand.last = (newest, 0);
        }
        Ok(())
    }
}

/// Returns the number of an entry of the stream, and its record.
fn entry_of(entry: &Reply) -> Option<(u64, String)> {
    let [id, fields] = entry.array()? else { return None };
    let (offset, _) = text(id)?.split_once('-')?;
    // What is no text is no record of ours: its number is passed over.
    Some((offset.parse().ok()?, fields.array()?.get(1).and_then(text).unwrap_or_default().to_owned()))
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {}", self.redis, self.channel)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_engine::{DriverName, Runtime};
    use std::future::ready;

    #[test]
    fn a_channel_that_always_has_messages_leaves_turns_to_the_look_that_a_caller_asks_for() {
        let runtime = Runtime::new(DriverName::Poll).unwrap();
        runtime
            .block_on(async {
                let (mut turns, mut came) = (Turns::default(), Vec::new());
                for message in 0..4 {
                    came.push(first_of(&mut turns, ready(message), ready(())).await);
                }
                assert_eq!(came, [Some(0), None, Some(2), None]);
            })
            .unwrap();
    }
}
