//! Pusher's protocol 7 as a hand-written client and server of an application speak it, and as pusher-js and
//! Laravel Echo do where Node is installed.

use crate::npm::{is_there, npm, pypi, run};
use crate::support::{HANG, Member, Socket, comes_first, events, place, settings, start_at};
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_http::Handle;
use ringroad_hub::{App, Hub, Place, Settings, Speak};
use serde_json::{Value, json};
use sha2::Sha256;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const KEY: &str = "app-key";
const SECRET: &str = "app-secret";

fn begin(driver: DriverName, hub: &Hub) -> Handle {
    let app = App { id: "7".to_owned(), key: KEY.to_owned(), secret: SECRET.to_owned(), client_events: true };
    let speak = vec![Speak::Pusher, Speak::Mercure];
    start_at(driver, hub, Place { speak, app: Some(Arc::new(app)), ..place() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sign(text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    hex(&mac.finalize().into_bytes())
}

/// A client, and its socket id.
struct Client(Member, String);

impl Client {
    fn open(handle: &Handle) -> Client {
        let mut member = Member::open_at(handle, &format!("/app/{KEY}?protocol=7&client=test"), "");
        let first: Value = serde_json::from_str(&member.next()).unwrap();
        assert_eq!(first["event"], "pusher:connection_established");
        let data: Value = serde_json::from_str(first["data"].as_str().unwrap()).unwrap();
        assert!(data["activity_timeout"].as_u64().unwrap() > 0);
        let id = data["socket_id"].as_str().unwrap().to_owned();
        assert!(
            id.split_once('.').is_some_and(|(a, b)| a.parse::<u64>().is_ok() && b.parse::<u64>().is_ok())
        );
        Client(member, id)
    }

    fn next(&mut self) -> Value {
        let text = self.0.next();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }

    fn say(&mut self, event: Value) {
        self.0.say(&event.to_string());
    }

    /// Asks to subscribe, with a signature and what is said of the user.
    fn ask(&mut self, channel: &str, user: Option<&Value>) {
        let mut text = format!("{}:{channel}", self.1);
        let mut data = json!({"channel": channel});
        if let Some(user) = user {
            let user = user.to_string();
            text = format!("{text}:{user}");
            data["channel_data"] = user.into();
        }
        data["auth"] = format!("{KEY}:{}", sign(&text)).into();
        self.say(json!({"event": "pusher:subscribe", "data": data}));
    }

    fn subscribe(&mut self, channel: &str, user: Option<&Value>) -> Value {
        self.ask(channel, user);
        let told = self.next();
        assert_eq!(told["event"], "pusher_internal:subscription_succeeded", "{told}");
        assert_eq!(told["channel"], channel);
        serde_json::from_str(told["data"].as_str().unwrap()).unwrap()
    }
}

/// A signed request of the HTTP API: its status and its answer.
fn api(handle: &Handle, method: &str, path: &str, query: &[(&str, &str)], body: &str) -> (u16, Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    api_at(handle, method, path, query, body, now, SECRET)
}

fn api_at(
    handle: &Handle,
    method: &str,
    path: &str,
    query: &[(&str, &str)],
    body: &str,
    at: u64,
    secret: &str,
) -> (u16, Value) {
    let mut pairs =
        vec![format!("auth_key={KEY}"), format!("auth_timestamp={at}"), "auth_version=1.0".to_owned()];
    pairs.extend(query.iter().map(|(key, value)| format!("{key}={value}")));
    if !body.is_empty() {
        pairs.push(format!("body_md5={}", hex(&Md5::digest(body))));
    }
    pairs.sort();
    let query = pairs.join("&");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{method}\n{path}\n{query}").as_bytes());
    let signature = hex(&mac.finalize().into_bytes());
    let mut socket = Socket::open(
        handle,
        &format!(
            "{method} {path}?{query}&auth_signature={signature} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    );
    let head = socket.until("\r\n\r\n");
    while socket.more() {}
    let body = String::from_utf8(socket.input).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(&body).unwrap_or_else(|_| body.into()))
}

fn publish(handle: &Handle, channel: &str, name: &str, data: &str, except: Option<&str>) {
    let mut event = json!({"name": name, "channels": [channel], "data": data});
    if let Some(except) = except {
        event["socket_id"] = except.into();
    }
    assert_eq!(api(handle, "POST", "/apps/7/events", &[], &event.to_string()), (200, json!({})));
}

drivers!(an_event_reaches_the_members_of_its_channel_but_not_the_socket_that_it_excludes, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let (mut one, mut other) = (Client::open(&handle), Client::open(&handle));
    for client in [&mut one, &mut other] {
        assert_eq!(client.subscribe("news", None), json!({}));
    }
    publish(&handle, "news", "first", "{\"a\":\"é\"}", None);
    publish(&handle, "news", "second", "x", Some(&one.1));
    publish(&handle, "news", "third", "y", None);
    let told = json!({"event": "first", "channel": "news", "data": "{\"a\":\"é\"}"});
    assert_eq!((one.next(), other.next()), (told.clone(), told));
    assert_eq!(
        (one.next()["event"].clone(), other.next()["event"].clone()),
        ("third".into(), "second".into())
    );
    one.say(json!({"event": "pusher:ping", "data": {}}));
    assert_eq!(one.next(), json!({"event": "pusher:pong", "data": {}}));
    one.say(json!({"event": "pusher:unsubscribe", "data": {"channel": "news"}}));
    one.say(json!({"event": "pusher:ping"}));
    assert_eq!(one.next()["event"], "pusher:pong");
    publish(&handle, "news", "fourth", "z", None);
    one.say(json!({"event": "pusher:ping"}));
    assert_eq!(one.next()["event"], "pusher:pong");
    // A batch, and subscribers by another protocol.
    let (mut stream, _) = events(&handle, "match=news", "");
    let batch = json!({"batch": [{"channel": "news", "name": "b", "data": "1"}, {"channel": "x", "name": "c", "data": "2"}]});
    assert_eq!(api(&handle, "POST", "/apps/7/batch_events", &[], &batch.to_string()), (200, json!({})));
    assert!(crate::support::event(&mut stream).ends_with("event: b\ndata: 1\n\n"));
});

drivers!(a_private_channel_takes_signed_members_and_their_events, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let (mut one, mut other) = (Client::open(&handle), Client::open(&handle));
    one.say(json!({"event": "pusher:subscribe", "data": {"channel": "private-a", "auth": "app-key:00"}}));
    let refused = one.next();
    assert_eq!(
        (&refused["event"], &refused["data"]["status"]),
        (&"pusher:subscription_error".into(), &401.into())
    );
    one.subscribe("private-a", None);
    other.subscribe("private-a", None);
    // A subscriber by another protocol is no member without a token.
    let (mut stream, _) = events(&handle, "match=private-a&match=open", "");
    publish(&handle, "private-a", "e", "1", None);
    assert_eq!(one.next()["event"], "e");
    assert_eq!(other.next()["event"], "e");
    one.say(json!({"event": "client-typing", "channel": "private-a", "data": {"on": true}}));
    let told = json!({"event": "client-typing", "channel": "private-a", "data": {"on": true}});
    assert_eq!(other.next(), told);
    one.say(json!({"event": "client-x", "channel": "private-b", "data": {}}));
    assert_eq!(one.next()["data"]["code"], 4301);
    for _ in 0..60 {
        one.say(json!({"event": "client-x", "channel": "private-a", "data": {}}));
    }
    assert_eq!(one.next()["data"]["code"], 4301, "more than ten in a second");
    publish(&handle, "open", "e", "seen", None);
    assert!(crate::support::event(&mut stream).ends_with("data: seen\n\n"));
    // Signing in.
    let user = "{\"id\":\"u\"}";
    let auth = format!("{KEY}:{}", sign(&format!("{}::user::{user}", other.1)));
    other.say(json!({"event": "pusher:signin", "data": {"auth": auth, "user_data": user}}));
    loop {
        let told = other.next();
        if told["event"] != "client-x" {
            assert_eq!(told["event"], "pusher:signin_success", "{told}");
            break;
        }
    }
});

drivers!(a_presence_channel_tells_who_comes_and_goes_and_lists_them, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let user = |id: &str| json!({"user_id": id, "user_info": {"name": id.to_uppercase()}});
    let (mut one, mut other, mut same) =
        (Client::open(&handle), Client::open(&handle), Client::open(&handle));
    let told = one.subscribe("presence-a", Some(&user("u")));
    assert_eq!(told["presence"], json!({"count": 1, "ids": ["u"], "hash": {"u": {"name": "U"}}}));
    let told = other.subscribe("presence-a", Some(&user("v")));
    assert_eq!((&told["presence"]["count"], &told["presence"]["ids"]), (&2.into(), &json!(["u", "v"])));
    let added = one.next();
    assert_eq!(added["event"], "pusher_internal:member_added");
    let data: Value = serde_json::from_str(added["data"].as_str().unwrap()).unwrap();
    assert_eq!(data, user("v"));
    // A second connection of a user is not told.
    same.subscribe("presence-a", Some(&user("v")));
    other.say(json!({"event": "client-hello", "channel": "presence-a", "data": 1}));
    let hello = one.next();
    assert_eq!((&hello["event"], &hello["user_id"]), (&"client-hello".into(), &"v".into()));
    let (status, list) = api(&handle, "GET", "/apps/7/channels/presence-a/users", &[], "");
    assert_eq!((status, list), (200, json!({"users": [{"id": "u"}, {"id": "v"}]})));
    let (_, told) =
        api(&handle, "GET", "/apps/7/channels/presence-a", &[("info", "user_count,subscription_count")], "");
    assert_eq!(told, json!({"occupied": true, "user_count": 2, "subscription_count": 3}));
    let (_, told) = api(
        &handle,
        "GET",
        "/apps/7/channels",
        &[("filter_by_prefix", "presence-"), ("info", "user_count")],
        "",
    );
    assert_eq!(told, json!({"channels": {"presence-a": {"user_count": 2}}}));
    drop(other);
    drop(same);
    let removed = one.next();
    assert_eq!(removed["event"], "pusher_internal:member_removed");
    assert_eq!(removed["data"], "{\"user_id\":\"v\"}");
    one.ask("presence-b", None);
    assert_eq!(one.next()["data"]["status"], 400);
});

drivers!(a_user_that_closes_or_breaks_the_protocol_has_left_before_the_connection_ends, |driver| {
    let handle = begin(driver, &Hub::new(settings()));
    let user = |id: &str| json!({"user_id": id, "user_info": null});
    let mut one = Client::open(&handle);
    one.subscribe("presence-a", Some(&user("u")));
    let one = std::cell::RefCell::new(one);
    comes_first(|opcode, payload| {
        let (mut one, mut other) = (one.borrow_mut(), Client::open(&handle));
        other.subscribe("presence-a", Some(&user("v")));
        assert_eq!(one.next()["event"], "pusher_internal:member_added");
        other.0.put(opcode, payload);
        assert_eq!(one.next()["event"], "pusher_internal:member_removed");
        other.0.is_heard()
    });
});

drivers!(a_cache_channel_gives_its_last_event_to_those_that_come, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let mut one = Client::open(&handle);
    one.subscribe("cache-a", None);
    assert_eq!(one.next(), json!({"event": "pusher:cache_miss", "channel": "cache-a"}));
    publish(&handle, "cache-a", "price", "1", None);
    publish(&handle, "cache-a", "price", "2", None);
    let mut other = Client::open(&handle);
    other.subscribe("cache-a", None);
    assert_eq!(other.next(), json!({"event": "price", "channel": "cache-a", "data": "2"}));
});

drivers!(wrong_keys_signatures_and_events_are_refused_with_the_protocol_s_codes, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let mut wrong = Member::open_at(&handle, "/app/other?protocol=7", "");
    assert!(wrong.next().contains("4001"));
    assert_eq!(wrong.next(), "close 4001");
    let mut old = Member::open_at(&handle, &format!("/app/{KEY}?protocol=3"), "");
    assert!(old.next().contains("4007"));
    let event = json!({"name": "e", "channel": "a", "data": "x"}).to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let post = |path: &str, body: &str, at: u64, secret: &str| {
        api_at(&handle, "POST", path, &[], body, at, secret).0
    };
    assert_eq!(post("/apps/7/events", &event, now, SECRET), 200);
    assert_eq!(post("/apps/7/events", &event, now, "other"), 401);
    assert_eq!(post("/apps/7/events", &event, now - 3600, SECRET), 401);
    assert_eq!(post("/apps/8/events", &event, now, SECRET), 404);
    assert_eq!(post("/apps/7/other", &event, now, SECRET), 404);
    for (body, status) in [
        ("{}".to_owned(), 400),
        (json!({"name": "e", "channels": [], "data": ""}).to_string(), 400),
        (json!({"name": "e", "channel": "a b", "data": ""}).to_string(), 400),
        (json!({"name": "pusher_internal:member_added", "channel": "a", "data": ""}).to_string(), 400),
        (json!({"name": "e", "channel": "a", "data": "x".repeat(70_000)}).to_string(), 413),
    ] {
        assert_eq!(post("/apps/7/events", &body, now, SECRET), status, "{}", &body[..body.len().min(80)]);
    }
    let mut client = Client::open(&handle);
    client.say(json!({"event": "pusher:subscribe", "data": {"channel": "a b"}}));
    assert_eq!(client.next()["event"], "pusher:subscription_error");
    client.say(json!({"event": "nonsense"}));
    assert_eq!(client.next()["event"], "pusher:error");
    let begun = Instant::now();
    drop(client);
    while hub.counts().members.load(std::sync::atomic::Ordering::Relaxed) > 0 {
        assert!(begun.elapsed() < HANG, "a client that has gone is no member");
        std::thread::yield_now();
    }
});

/// Runs what is said for each driver that this kernel allows.
fn on_each_driver(run: impl Fn(DriverName)) {
    for driver in ringroad_engine::choose::drivers() {
        match ringroad_engine::choose::choose(Some(Wish::Named(driver)), None) {
            Ok(_) => run(driver),
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
}

fn port(handle: &Handle) -> String {
    handle.address().to_string().rsplit(':').next().unwrap().to_owned()
}

/// On every driver in one test, so that the packages are installed once.
#[test]
fn pusher_js_laravel_echo_and_the_library_of_servers_work_unmodified() {
    let packages = ["pusher-js@8.6.0", "laravel-echo@2.5.0", "pusher@5.3.4"];
    let Some(packages) = npm("pusher", &packages) else { return };
    on_each_driver(|driver| {
        let handle = begin(driver, &Hub::new(settings()));
        run("node", "pusher.cjs", &packages, [port(&handle).as_str(), KEY, SECRET, "7"])
            .unwrap_or_else(|why| panic!("{driver}: {why}"));
    });
}

#[test]
fn the_library_of_pypi_publishes_and_asks_who_is_there() {
    let Some(packages) = pypi("pusher-py", &["pusher==3.3.3"]) else { return };
    // The client that waits meanwhile answers no ping.
    let settings = Settings { heartbeat: Duration::from_secs(600), ..settings() };
    on_each_driver(|driver| {
        let handle = begin(driver, &Hub::new(settings.clone()));
        let mut client = Client::open(&handle);
        client.subscribe("news", None);
        client.subscribe("presence-room", Some(&json!({"user_id": "u"})));
        run("python3", "pusher_server.py", &packages, [port(&handle).as_str(), KEY, SECRET, "7"])
            .unwrap_or_else(|why| panic!("{driver}: {why}"));
        for text in ["é", "batch"] {
            let told = client.next();
            assert_eq!((&told["event"], &told["channel"]), (&"headline".into(), &"news".into()));
            let data: Value = serde_json::from_str(told["data"].as_str().unwrap()).unwrap();
            assert_eq!(data["text"], text);
        }
    });
}

/// Chromium with pusher-js and its own `EventSource`, at a page of the hub's own origin.
#[test]
fn pusher_js_and_event_source_work_in_a_browser() {
    let Some(packages) = npm("pusher-js", &["pusher-js@8.6.0"]) else { return };
    if !is_there("chromium") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    on_each_driver(|driver| {
        let handle = begin(driver, &Hub::new(settings()));
        let profile = folder.path().join(driver.to_string());
        let arguments: [OsString; 4] =
            [port(&handle).into(), KEY.into(), SECRET.into(), profile.into_os_string()];
        run("node", "pusher_browser.cjs", &packages, arguments)
            .unwrap_or_else(|why| panic!("{driver}: {why}"));
    });
}

drivers!(events_of_a_user_reach_connections_that_have_signed_in_as_it_and_no_others, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let channel = "#server-to-user-u";
    let ask = json!({"event": "pusher:subscribe", "data": {"channel": channel, "auth": ""}});
    let sign_in = |client: &mut Client, user: &str| {
        let auth = format!("{KEY}:{}", sign(&format!("{}::user::{user}", client.1)));
        client.say(json!({"event": "pusher:signin", "data": {"auth": auth, "user_data": user}}));
        client.next()
    };
    let (mut own, mut other) = (Client::open(&handle), Client::open(&handle));
    // Not signed in, signed in as another, and by data that names no user.
    other.say(ask.clone());
    assert_eq!(other.next()["data"]["status"], 401);
    for nobody in ["{\"id\":\"\"}", "{\"id\":7}", "{}", "u"] {
        assert_eq!(sign_in(&mut other, nobody)["data"]["code"], 4009, "{nobody}");
    }
    assert_eq!(sign_in(&mut other, "{\"id\":\"v\"}")["event"], "pusher:signin_success");
    other.say(ask.clone());
    assert_eq!(other.next()["data"]["status"], 401);
    // One user for each connection.
    assert_eq!(sign_in(&mut other, "{\"id\":\"u\"}")["data"]["code"], 4009);
    assert_eq!(sign_in(&mut own, "{\"id\":\"u\"}")["event"], "pusher:signin_success");
    own.say(ask);
    assert_eq!(own.next()["event"], "pusher_internal:subscription_succeeded");
    // It is private for subscribers by other protocols, and not for events of clients.
    let (mut stream, _) = events(&handle, "match=%23server-to-user-u&match=open", "");
    publish(&handle, channel, "e", "secret", None);
    assert_eq!(own.next(), json!({"event": "e", "channel": channel, "data": "secret"}));
    own.say(json!({"event": "client-x", "channel": channel, "data": {}}));
    assert_eq!(own.next()["data"]["code"], 4301);
    publish(&handle, "open", "e", "seen", None);
    assert!(crate::support::event(&mut stream).ends_with("data: seen\n\n"));
});

drivers!(the_connections_of_a_user_are_ended_and_no_others, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let sign_in = |user: &str| {
        let mut client = Client::open(&handle);
        let user = json!({"id": user}).to_string();
        let auth = format!("{KEY}:{}", sign(&format!("{}::user::{user}", client.1)));
        client.say(json!({"event": "pusher:signin", "data": {"auth": auth, "user_data": user}}));
        assert_eq!(client.next()["event"], "pusher:signin_success");
        client
    };
    let (mut first, mut second, mut other) = (sign_in("a/b"), sign_in("a/b"), sign_in("v"));
    first.subscribe("news", None);
    // Its own members are no channel that a client subscribes to, or that is listed.
    other.say(json!({"event": "pusher:subscribe", "data": {"channel": "#signed-in-v", "auth": ""}}));
    assert_eq!(other.next()["data"]["status"], 401);
    let (status, told) = api(&handle, "GET", "/apps/7/channels", &[], "");
    assert_eq!((status, told), (200, json!({"channels": {"news": {}}})));
    let end =
        |user: &str| api(&handle, "POST", &format!("/apps/7/users/{user}/terminate_connections"), &[], "{}");
    assert_eq!(end("unknown"), (200, json!({})));
    assert_eq!(end("a%2Fb"), (200, json!({})));
    assert_eq!((first.0.next(), second.0.next()), ("close 4009".to_owned(), "close 4009".to_owned()));
    // Nor does an event with its name end them, and what is said in the channels goes on.
    let event = json!({"name": "pusher_internal:terminate", "channels": ["#signed-in-v"], "data": "x"});
    assert_eq!(api(&handle, "POST", "/apps/7/events", &[], &event.to_string()).0, 400);
    other.subscribe("news", None);
    publish(&handle, "news", "e", "on", None);
    assert_eq!(other.next()["data"], "on");
});

drivers!(an_event_s_name_cannot_end_the_line_of_another_protocol_s_event, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let mut client = Client::open(&handle);
    client.subscribe("private-a", None);
    let (mut stream, _) = events(&handle, "match=private-a&match=open", "X-Publish: 1\r\n");
    let forged = "client-x\ndata: forged\n\n";
    client.say(json!({"event": forged, "channel": "private-a", "data": {}}));
    assert_eq!(client.next()["data"]["code"], 4301);
    let event = json!({"name": forged, "channels": ["open"], "data": "x"});
    assert_eq!(api(&handle, "POST", "/apps/7/events", &[], &event.to_string()).0, 400);
    publish(&handle, "open", "e", "seen", None);
    assert!(crate::support::event(&mut stream).ends_with("event: e\ndata: seen\n\n"));
    // Nor may a publisher of another protocol speak for this one.
    let form = "topic=open&data=x&type=pusher_internal:member_added";
    assert!(crate::support::post(&handle, form, crate::support::PUBLISH).0.starts_with("HTTP/1.1 400"));
});

drivers!(a_hub_that_ends_closes_its_pusher_clients, |driver| {
    let hub = Hub::new(settings());
    let handle = begin(driver, &hub);
    let mut client = Client::open(&handle);
    client.subscribe("a", None);
    let mut late = Client::open(&handle);
    hub.end();
    assert_eq!(client.0.next(), "close 4100");
    late.say(json!({"event": "pusher:subscribe", "data": {"channel": "a"}}));
    assert_eq!(late.0.next(), "close 4100");
});
