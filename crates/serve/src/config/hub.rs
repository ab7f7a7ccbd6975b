//! Hubs of topics, and routes that lead there.

use super::{Config, keys};
use ringroad_gate::auth::{self, Auth, Identity};
use ringroad_gate::feature::Tending;
use ringroad_gate::store::{self, Bus};
use ringroad_http::Request;
use ringroad_http::ws::Origins;
use ringroad_hub::{
    App, Channels, Checked, Credentials, Endpoint, Hub, Place, Server, Settings, Sharing, Speak,
};
use ringroad_settings::{Section, value};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// `[hub.NAME]`.
pub struct HubTable {
    /// Its name.
    pub name: String,
    /// How it behaves.
    pub settings: Settings,
    /// How several machines share it.
    sharing: Option<Sharing>,
    /// The hub that they share, until it is used.
    made: Option<Hub>,
    /// Made when it is first used; one of the same name is kept over a reload.
    hub: OnceLock<Hub>,
}

impl HubTable {
    /// Returns the hub itself.
    pub fn hub(&self) -> &Hub {
        self.hub.get_or_init(|| self.made.clone().unwrap_or_else(|| Hub::new(self.settings.clone())))
    }

    /// Takes part in a hub that several machines share. Once for a hub: it does nothing where that is done.
    pub(crate) fn tend(&self) -> Option<Tending> {
        let hub = self.hub().clone();
        hub.server()?;
        Some(Box::new(move || Box::pin(async move { hub.tend().await })))
    }

    /// Ends the hub, which no configuration has any more: its members are closed.
    pub(crate) fn end(&self) {
        if let Some(hub) = self.hub.get() {
            hub.end();
        }
    }

    /// Goes on with the hub of the same name, with the settings that it has: members stay with it.
    pub(crate) fn adopt(&self, before: &HubTable) {
        // Set already: it is the same table.
        let _ = self.hub.set(before.hub().clone());
    }
}

impl HubTable {
    /// Returns whether it has the name of this one, which goes on with other settings.
    pub(crate) fn waits_for(&self, before: &HubTable) -> bool {
        self.name == before.name
            && (self.settings != *before.hub().settings() || self.sharing != before.sharing)
    }
}

impl PartialEq for HubTable {
    fn eq(&self, other: &HubTable) -> bool {
        (&self.name, &self.settings, &self.sharing) == (&other.name, &other.settings, &other.sharing)
    }
}

impl fmt::Debug for HubTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HubTable({}, {:?})", self.name, self.settings)
    }
}

/// A route to a hub.
#[derive(Debug)]
pub struct HubRoute {
    /// The hub.
    pub table: Arc<HubTable>,
    place: Written,
    endpoint: OnceLock<Endpoint>,
}

/// What is written in a route.
#[derive(Debug, PartialEq)]
struct Written {
    speak: Vec<Speak>,
    origins: Origins,
    publish: Option<Arc<Auth>>,
    subscribe: Option<Arc<Auth>>,
    anonymous: Option<bool>,
    cookie: Option<String>,
    before_one: bool,
    subscriptions: bool,
    app: Option<Arc<App>>,
    channels: Channels,
}

impl PartialEq for HubRoute {
    fn eq(&self, other: &HubRoute) -> bool {
        (&self.table, &self.place) == (&other.table, &other.place)
    }
}

impl HubRoute {
    /// Returns what answers.
    pub fn endpoint(&self) -> &Endpoint {
        self.endpoint.get_or_init(|| {
            let written = &self.place;
            let credentials = |auth: &Arc<Auth>| Arc::new(Known(Arc::clone(auth))) as Arc<dyn Credentials>;
            let default = Place::default();
            let place = Place {
                speak: written.speak.clone(),
                origins: written.origins.clone(),
                publish: written.publish.as_ref().map(credentials),
                subscribe: written.subscribe.as_ref().map(credentials),
                anonymous: written.anonymous.unwrap_or(written.subscribe.is_none()),
                cookie: written.cookie.clone().unwrap_or(default.cookie),
                before_one: written.before_one,
                subscriptions: written.subscriptions,
                app: written.app.clone(),
                channels: written.channels,
            };
            Endpoint::new(self.table.hub().clone(), place)
        })
    }
}

/// A table of `[auth.NAME]` as the hub asks it.
#[derive(Debug)]
struct Known(Arc<Auth>);

impl Credentials for Known {
    fn check(&self, request: &Request, token: Option<&str>) -> Checked {
        match self.0.identify_token(request, token) {
            Some(identity) => checked(identity),
            None if token.is_some() || request.header("authorization").is_some() => Checked::Wrong,
            None => Checked::Missing,
        }
    }

    fn check_text(&self, text: &str) -> Checked {
        self.0.identify_text(text).map_or(Checked::Wrong, checked)
    }
}

fn checked(identity: Identity) -> Checked {
    match identity.claims {
        Some(claims) => Checked::Claims(claims.typ.clone(), claims.all.clone()),
        None => Checked::Every,
    }
}

/// Reads `[hub.NAME]`.
pub(super) fn read_table(name: &str, mut section: Section<'_>, config: &Config) -> HubTable {
    section.describe(&keys::HUB);
    let mut settings = Settings::default();
    if let Some(mut history) = section.table("history") {
        history.describe(&keys::HUB_HISTORY);
        if let Some(count) = history.read("messages", |value| value::count(value, 0, 1_000_000)) {
            settings.history_messages = count as usize;
        }
        let span = history.read("for", |value| value::span(value, Duration::ZERO));
        settings.history_for = span.unwrap_or(settings.history_for);
        history.finish();
    }
    let heartbeat = section.read("heartbeat", |value| value::span(value, Duration::from_secs(1)));
    settings.heartbeat = heartbeat.unwrap_or(settings.heartbeat);
    let size = |key: &str, least: u64, default: usize| {
        section.read(key, |value| value::bytes(value, least, 1 << 30)).map_or(default, |bytes| bytes as usize)
    };
    settings.queue_bytes = size("queue", 1 << 10, settings.queue_bytes);
    settings.message_bytes = size("message", 1, settings.message_bytes);
    if let Some(topics) = section.read("topics", |value| value::count(value, 1, 100_000_000)) {
        settings.topics_max = topics as usize;
    }
    let url = section.read("url", |value| {
        let text = value::text(value)?;
        let url: ringroad_hub::Url = text.parse().map_err(|why| format!("expected a URL: {why}"))?;
        let is_web = matches!(url.scheme(), "http" | "https");
        is_web.then_some(url).ok_or_else(|| "expected a URL of http or https".to_owned())
    });
    settings.url = url.unwrap_or(settings.url);
    let stored = section.read("stored", |value| value::count(value, 1, 100_000_000));
    let beat = section.read("store_beat", |value| value::span(value, Duration::from_millis(100)));
    for key in ["stored", "store_beat"] {
        if section.has(key) && !section.has("store") {
            section.mistake(key, "expected with `store`");
        }
    }
    let shared = section.read("store", |value| {
        let text = value::text(value)?;
        let nats = text.strip_prefix("nats.").filter(|name| !name.is_empty());
        let redis = text.strip_prefix("redis.").filter(|name| !name.is_empty());
        let server = match (redis, nats) {
            (Some(name), _) => Server::Redis {
                settings: store::find(&config.tables, name)?.redis().settings().clone(),
                stored: stored.map_or(10_000, |count| count as usize),
            },
            (None, Some(_)) if stored.is_some() => {
                return Err("NATS keeps no messages: `stored` is for a [redis.NAME]".to_owned());
            }
            (None, Some(name)) => {
                let bus = config.tables.get::<Bus>(store::NATS_FAMILY, name)?;
                Server::Nats(bus.nats().settings().clone())
            }
            (None, None) => {
                let expected = "a [redis.NAME] or a [nats.NAME], as \"redis.main\"";
                return Err(value::found(expected, value));
            }
        };
        if settings.message_bytes > SHARED_BYTES_MAX {
            return Err("messages of a hub with a store have at most 4M: make `message` smaller".to_owned());
        }
        let sharing = Sharing { name: name.to_owned(), server, beat: beat.unwrap_or(Duration::from_secs(5)) };
        let hub = Hub::shared(settings.clone(), sharing.clone());
        let hub = hub.map_err(|why| format!("its certificates cannot be used: {}", why.detail()))?;
        Ok((sharing, hub))
    });
    section.finish();
    let (sharing, made) = shared.unzip();
    HubTable { name: name.to_owned(), settings, sharing, made, hub: OnceLock::new() }
}

/// The longest message of a hub that machines share: answers of the store have bounds.
const SHARED_BYTES_MAX: usize = 4 << 20;

const PROTOCOLS: &[(&str, Speak)] = &[
    ("mercure", Speak::Mercure),
    ("websocket", Speak::WebSocket),
    ("pusher", Speak::Pusher),
    ("centrifugo", Speak::Centrifugo),
];

/// Reads the keys of a route of this kind.
pub(super) fn read_route(section: &mut Section<'_>, config: &Config) -> Option<HubRoute> {
    section.describe(&keys::HUB_ROUTE);
    let table = section.require("hub", "the name of a [hub.NAME]", |value| {
        let name = value::text(value)?;
        config.hubs.iter().find(|hub| hub.name == name).map(Arc::clone).ok_or_else(|| {
            let names: Vec<_> = config.hubs.iter().map(|hub| hub.name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("there is no [hub.{name}] (there are: {there})")
        })
    });
    let speak = section
        .read("speak", |value| value::some(value, "protocols", |value| value::one_of(value, PROTOCOLS)));
    let origins = section.read("origins", |value| value::some(value, "origins", value::text));
    let origins = match origins {
        None => Origins::Same,
        Some(list) if list.iter().any(|one| one == "*") => Origins::Any,
        Some(list) => Origins::Listed(list),
    };
    let known = |key: &str| {
        section.read(key, |value| {
            let auth = config.tables.get::<Auth>(auth::KEY.name, &value::text(value)?)?;
            let told = "a hub takes kinds \"key\" and \"jwt\"; put others into `auth` of the route";
            auth.is_immediate().then_some(auth).ok_or_else(|| told.to_owned())
        })
    };
    let speak = speak.unwrap_or_else(|| vec![Speak::Mercure, Speak::WebSocket]);
    let app = section.table("pusher").and_then(read_app).map(Arc::new);
    if speak.contains(&Speak::Pusher) && !section.has("pusher") {
        section.mistake("speak", "\"pusher\" needs `pusher = { id = …, key = …, secret = … }`");
    }
    if app.is_some() && !speak.contains(&Speak::Pusher) {
        section.mistake("pusher", "`speak` does not have \"pusher\"");
    }
    let channels = section.table("centrifugo").map(read_channels);
    if channels.is_some() && !speak.contains(&Speak::Centrifugo) {
        section.mistake("centrifugo", "`speak` does not have \"centrifugo\"");
    }
    let place = Written {
        speak,
        origins,
        publish: known("publish_auth"),
        subscribe: known("subscribe_auth"),
        anonymous: section.read("anonymous", value::truth),
        cookie: section.read("cookie", |value| {
            let name = value::text(value)?;
            let is_name =
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=');
            is_name.then_some(name).ok_or_else(|| "expected the name of a cookie".to_owned())
        }),
        before_one: section.read("compatible", |value| value::one_of(value, &[("0.x", ())])).is_some(),
        subscriptions: section.read("subscriptions", value::truth).unwrap_or(false),
        app,
        channels: channels.unwrap_or_default(),
    };
    Some(HubRoute { table: table?, place, endpoint: OnceLock::new() })
}

/// Reads `centrifugo` of a route.
fn read_channels(mut section: Section<'_>) -> Channels {
    section.describe(&keys::HUB_CENTRIFUGO);
    let truth = |key: &str| section.read(key, value::truth).unwrap_or(false);
    let channels = Channels { presence: truth("presence"), join_leave: truth("join_leave") };
    section.finish();
    channels
}

/// Reads `pusher` of a route.
fn read_app(mut section: Section<'_>) -> Option<App> {
    section.describe(&keys::HUB_PUSHER);
    let text = |key: &str, what: &str| {
        section.require(key, what, |value| {
            let text = value::text(value)?;
            let is_one = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            is_one.then_some(text).ok_or_else(|| "expected visible ASCII characters".to_owned())
        })
    };
    let id = text("id", "the id of the application");
    let key = text("key", "the key of the application");
    let secret = text("secret", "the secret of the application");
    let client_events = section.read("client_events", value::truth).unwrap_or(false);
    section.finish();
    Some(App { id: id?, key: key?, secret: secret?, client_events })
}
