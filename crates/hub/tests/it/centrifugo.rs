//! Centrifugo's protocol as a hand-written client and a server speak it, and as centrifuge-js does where Node
//! is installed.

use crate::npm::{npm, run};
use crate::support::{Member, Socket, comes_first, events, place, settings, start_at};
use ringroad_engine::choose::Wish;
use ringroad_http::Handle;
use ringroad_hub::{Channels, Hub, Message, Place, Settings, Speak};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn here() -> Place {
    let speak = vec![Speak::Centrifugo, Speak::Mercure];
    Place { speak, channels: Channels { presence: true, join_leave: true }, ..place() }
}

struct Client(Member, u64);

impl Client {
    fn open(handle: &Handle) -> Client {
        Client(Member::open_at(handle, "/connection/websocket", ""), 0)
    }

    /// A client with these claims in its token, or without a token.
    fn connected(handle: &Handle, claims: Option<Value>) -> Client {
        let mut client = Client::open(handle);
        let told =
            client.ask("connect", claims.map_or(json!({}), |claims| json!({"token": claims.to_string()})));
        assert!(told["connect"]["client"].is_string(), "{told}");
        client
    }

    /// The same at a hub that closes a client which does not connect within a second. Where the machine
    /// stands still for so long, others are tried.
    fn connected_in_time(handle: &Handle, claims: Option<Value>) -> Client {
        let asked = claims.map_or(json!({}), |claims| json!({"token": claims.to_string()}));
        let connects = |_: i32| {
            let mut client = Client::open(handle);
            let told = client.ask("connect", asked.clone());
            if told.as_str().is_some_and(|end| end.is_empty() || end == "close 3502") {
                return None;
            }
            assert!(told["connect"]["client"].is_string(), "{told}");
            Some(client)
        };
        (0..10).find_map(connects).expect("a client that connects in time")
    }

    /// The next object; pings are answered.
    fn next(&mut self) -> Value {
        loop {
            let text = self.0.next();
            let told = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.as_str()));
            if told != json!({}) {
                return told;
            }
            self.0.say("{}");
        }
    }

    fn ask(&mut self, method: &str, asked: Value) -> Value {
        self.1 += 1;
        let id = self.1;
        self.0.say(&json!({"id": id, method: asked}).to_string());
        let told = self.next();
        assert!(told["id"] == id || told.is_string(), "{told}");
        told
    }

    fn code(&mut self, method: &str, asked: Value) -> u64 {
        self.ask(method, asked)["error"]["code"].as_u64().unwrap_or(0)
    }
}

fn api(handle: &Handle, method: &str, body: &Value, lines: &str) -> (u16, Value) {
    let body = body.to_string();
    let mut socket = Socket::open(
        handle,
        &format!(
            "POST /api/{method} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n{lines}\r\n{body}",
            body.len()
        ),
    );
    let head = socket.until("\r\n\r\n");
    while socket.more() {}
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = String::from_utf8(socket.input).unwrap();
    (status, serde_json::from_str(&body).unwrap_or_else(|_| body.into()))
}

const KEY: &str = "X-API-Key: key\r\n";

fn call(handle: &Handle, method: &str, body: &Value) -> Value {
    let (status, told) = api(handle, method, body, KEY);
    assert_eq!(status, 200, "{told}");
    told
}

fn soon() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600
}

drivers!(commands_of_one_frame_are_answered_in_their_order, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, here());
    let mut client = Client::open(&handle);
    client.0.say(
        "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"a\"}}\n{\"id\":3,\"ping\":{}}",
    );
    let text = client.0.next();
    let told: Vec<Value> = text.split('\n').map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.iter().map(|one| one["id"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((&told[0]["connect"]["ping"], &told[0]["connect"]["pong"]), (&5.into(), &true.into()));
    assert_eq!(told[1]["subscribe"]["recoverable"], true);
    // Data is handed on as it is, text that is no JSON as a text; to clients of another protocol too.
    let (mut stream, _) = events(&handle, "match=a", "");
    let answer = call(&handle, "publish", &json!({"channel": "a", "data": {"x": [1, "\n"]}}));
    let push = client.next();
    assert_eq!(push["push"]["channel"], "a");
    assert_eq!(push["push"]["pub"]["data"], json!({"x": [1, "\n"]}));
    assert_eq!(push["push"]["pub"]["offset"], answer["result"]["offset"]);
    hub.publish("a", Message { data: "sun\nny".to_owned(), ..Message::default() }).unwrap();
    assert_eq!(client.next()["push"]["pub"]["data"], "sun\nny");
    assert!(crate::support::event(&mut stream).contains("data: {\"x\":[1,\"\\n\"]}\n"));
});

drivers!(a_client_recovers_what_it_has_missed_or_learns_that_it_cannot, |driver| {
    let hub = Hub::new(Settings { history_messages: 3, ..settings() });
    let handle = start_at(driver, &hub, here());
    let mut client = Client::connected(&handle, None);
    let first = client.ask("subscribe", json!({"channel": "a"}))["subscribe"].clone();
    let (epoch, offset) = (first["epoch"].clone(), first["offset"].as_u64().unwrap());
    assert_eq!(client.ask("unsubscribe", json!({"channel": "a"}))["unsubscribe"], json!({}));
    for number in 1..=3 {
        call(&handle, "publish", &json!({"channel": "a", "data": number}));
    }
    let recover = json!({"channel": "a", "recover": true, "epoch": epoch, "offset": offset});
    let told = client.ask("subscribe", recover.clone())["subscribe"].clone();
    assert_eq!((&told["recovered"], &told["was_recovering"]), (&true.into(), &true.into()));
    let data: Vec<&Value> = told["publications"].as_array().unwrap().iter().map(|one| &one["data"]).collect();
    assert_eq!(data, [1, 2, 3]);
    assert_eq!(client.code("subscribe", json!({"channel": "a"})), 105);
    let history = client.ask("history", json!({"channel": "a", "limit": -1}))["history"].clone();
    assert_eq!(history["publications"].as_array().unwrap().len(), 3);
    let since = json!({"channel": "a", "limit": 5, "since": {"epoch": "other", "offset": 1}});
    assert_eq!(client.code("history", since), 112);
    call(&handle, "publish", &json!({"channel": "a", "data": 4}));
    assert_eq!(client.next()["push"]["pub"]["data"], 4);
    client.ask("unsubscribe", json!({"channel": "a"}));
    // The first is gone, and so is an epoch that never was.
    let told = client.ask("subscribe", recover.clone())["subscribe"].clone();
    assert_eq!((&told["recovered"], told.get("publications")), (&false.into(), None));
    client.ask("unsubscribe", json!({"channel": "a"}));
    let strict = json!({"channel": "a", "recover": true, "epoch": "_", "offset": offset, "flag": 2});
    assert_eq!(client.code("subscribe", strict), 112);
    assert_eq!(call(&handle, "history_remove", &json!({"channel": "a"}))["result"], json!({}));
    let told = call(&handle, "history", &json!({"channel": "a", "limit": 10}));
    assert_eq!(told["result"]["publications"], json!([]));
});

drivers!(tokens_say_the_user_its_channels_and_what_it_may_do, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, here());
    let exp = soon();
    let caps = json!([{"channels": ["chat:*"], "match": "wildcard", "allow": ["pub", "sub"]}]);
    let claims = json!({"sub": "u", "exp": exp, "info": {"name": "U"}, "channels": ["$own"], "caps": caps});
    let mut client = Client::open(&handle);
    let told = client.ask("connect", json!({"token": claims.to_string()}))["connect"].clone();
    assert!(told["expires"] == true && told["ttl"].as_u64().unwrap() > 3000, "{told}");
    assert_eq!(told["subs"]["$own"]["recoverable"], true);
    assert_eq!(client.ask("subscribe", json!({"channel": "chat:1"}))["subscribe"]["recoverable"], true);
    assert_eq!(client.code("publish", json!({"channel": "news", "data": 1})), 103);
    let published = json!({"id": 77, "publish": {"channel": "chat:1", "data": {"hi": 1}}});
    client.0.say(&published.to_string());
    // Its own message and the answer, in either order.
    let (one, other) = (client.next(), client.next());
    let push = if one.get("push").is_some() { &one } else { &other };
    let info = &push["push"]["pub"]["info"];
    assert_eq!((&info["user"], &info["conn_info"]["name"]), (&"u".into(), &"U".into()), "{push}");
    call(&handle, "publish", &json!({"channel": "$own", "data": "for you"}));
    assert_eq!(client.next()["push"]["pub"]["data"], "for you");
    // A private channel needs a token for it, or the user in its name.
    assert_eq!(client.code("subscribe", json!({"channel": "$secret"})), 103);
    let token =
        |channel: &str, sub: &str, exp: u64| json!({"channel": channel, "sub": sub, "exp": exp}).to_string();
    for (channel, sub) in [("$other", "u"), ("$secret", "v")] {
        let wrong = json!({"channel": "$secret", "token": token(channel, sub, exp)});
        assert_eq!(client.code("subscribe", wrong), 103);
    }
    let told = client.ask("subscribe", json!({"channel": "$secret", "token": token("$secret", "u", exp)}));
    assert_eq!(told["subscribe"]["expires"], true);
    let told =
        client.ask("sub_refresh", json!({"channel": "$secret", "token": token("$secret", "u", exp + 60)}));
    assert_eq!(told["sub_refresh"]["expires"], true, "{told}");
    assert_eq!(client.code("subscribe", json!({"channel": "dialog#v,w"})), 103);
    assert_eq!(client.ask("subscribe", json!({"channel": "dialog#v,u"}))["subscribe"]["positioned"], true);
    let (mut stream, _) = events(&handle, "match=dialog%23v,u", "");
    call(&handle, "publish", &json!({"channel": "dialog#v,u", "data": 5}));
    assert_eq!(client.next()["push"]["pub"]["data"], 5);
    hub.publish("dialog#v,u", Message { data: "open".to_owned(), ..Message::default() }).unwrap();
    // What is private reaches no subscriber without a right by another protocol.
    assert!(crate::support::event(&mut stream).contains("data: open\n"));
    assert_eq!(client.next()["push"]["pub"]["data"], "open");
    // Another token of the same user.
    let later = json!({"sub": "u", "exp": exp + 100}).to_string();
    assert_eq!(client.ask("refresh", json!({"token": later}))["refresh"]["expires"], true);
    let foreign = json!({"sub": "v", "exp": exp}).to_string();
    assert_eq!(client.ask("refresh", json!({"token": foreign})), "close 3500");
});

drivers!(presence_lists_clients_and_others_hear_that_they_come_and_go, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, here());
    let mut one = Client::connected(&handle, Some(json!({"sub": "u", "exp": soon()})));
    assert_eq!(one.code("presence", json!({"channel": "a"})), 103);
    one.ask("subscribe", json!({"channel": "a", "join_leave": true}));
    assert_eq!(one.next()["push"]["join"]["info"]["user"], "u");
    let mut other = Client::connected(&handle, Some(json!({"sub": "v", "exp": soon()})));
    other.ask("subscribe", json!({"channel": "a"}));
    let join = one.next();
    assert_eq!((&join["push"]["channel"], &join["push"]["join"]["info"]["user"]), (&"a".into(), &"v".into()));
    let listed = one.ask("presence", json!({"channel": "a"}))["presence"]["presence"].clone();
    let mut users: Vec<&str> =
        listed.as_object().unwrap().values().map(|one| one["user"].as_str().unwrap()).collect();
    users.sort_unstable();
    assert_eq!(users, ["u", "v"]);
    let stats = json!({"num_clients": 2, "num_users": 2});
    assert_eq!(one.ask("presence_stats", json!({"channel": "a"}))["presence_stats"], stats);
    assert_eq!(call(&handle, "presence_stats", &json!({"channel": "a"}))["result"], stats);
    // What a server does with a user's clients.
    let wish = json!({"user": "v", "channel": "b"});
    assert_eq!(call(&handle, "subscribe", &wish)["result"], json!({}));
    assert_eq!(other.next()["push"]["subscribe"]["recoverable"], true);
    call(&handle, "unsubscribe", &wish);
    assert_eq!(other.next()["push"]["unsubscribe"]["code"], 2000);
    call(&handle, "disconnect", &json!({"user": "v", "disconnect": {"code": 4501, "reason": "bye"}}));
    assert_eq!(other.next(), "close 4501");
    assert_eq!(one.next()["push"]["leave"]["info"]["user"], "v");
    let closed = Place { channels: Channels::default(), ..here() };
    let handle = start_at(driver, &hub, closed);
    let mut client = Client::connected(&handle, None);
    client.ask("subscribe", json!({"channel": "a", "join_leave": true}));
    assert_eq!(client.code("presence", json!({"channel": "a"})), 108);
});

drivers!(a_client_that_closes_or_breaks_the_protocol_has_left_before_the_connection_ends, |driver| {
    let handle = start_at(driver, &Hub::new(settings()), here());
    let mut one = Client::connected(&handle, Some(json!({"sub": "u", "exp": soon()})));
    one.ask("subscribe", json!({"channel": "a", "join_leave": true}));
    one.next();
    let one = std::cell::RefCell::new(one);
    comes_first(|opcode, payload| {
        let mut one = one.borrow_mut();
        let mut other = Client::connected(&handle, Some(json!({"sub": "v", "exp": soon()})));
        other.ask("subscribe", json!({"channel": "a"}));
        assert_eq!(one.next()["push"]["join"]["info"]["user"], "v");
        other.0.put(opcode, payload);
        assert_eq!(one.next()["push"]["leave"]["info"]["user"], "v");
        other.0.is_heard()
    });
});

drivers!(a_client_that_the_hub_closes_has_left_before_the_connection_ends, |driver| {
    let handle = start_at(driver, &Hub::new(settings()), here());
    let mut one = Client::connected(&handle, Some(json!({"sub": "u", "exp": soon()})));
    one.ask("subscribe", json!({"channel": "a", "join_leave": true}));
    one.next();
    let one = std::cell::RefCell::new(one);
    comes_first(|_, _| {
        let mut one = one.borrow_mut();
        let mut other = Client::connected(&handle, Some(json!({"sub": "v", "exp": soon()})));
        other.ask("subscribe", json!({"channel": "a"}));
        assert_eq!(one.next()["push"]["join"]["info"]["user"], "v");
        other.0.say("no command");
        assert_eq!(one.next()["push"]["leave"]["info"]["user"], "v");
        other.0.is_heard()
    });
});

drivers!(what_is_wrong_gets_the_protocol_s_codes, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, here());
    for (said, code) in [
        ("nonsense", 3501),
        ("{\"id\":1,\"subscribe\":{\"channel\":\"a\"}}", 3501),
        ("{\"connect\":{}}", 3501),
        ("{\"id\":1,\"connect\":{\"token\":\"wrong\"}}", 3500),
        ("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"connect\":{}}", 3501),
        ("{\"id\":1,\"connect\":{}}\n{\"send\":{\"data\":1}}", 3508),
        ("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"other\":{}}", 3501),
    ] {
        let mut client = Client::open(&handle);
        client.0.say(said);
        let mut told = client.0.next();
        if told.starts_with('{') {
            told = client.0.next();
        }
        assert_eq!(told, format!("close {code}"), "{said}");
    }
    // A token that was valid once: the client gets another.
    let mut client = Client::open(&handle);
    assert_eq!(client.code("connect", json!({"token": "e30.eyJleHAiOjF9.x"})), 109);
    let mut client = Client::connected(&handle, None);
    for (channel, code) in [("", 107), ("a\u{1}b", 107), ("*", 107)] {
        assert_eq!(client.code("subscribe", json!({"channel": channel})), code, "{channel}");
    }
    assert_eq!(client.code("subscribe", json!({"channel": "x".repeat(300)})), 107);
    assert_eq!(client.code("rpc", json!({"method": "x"})), 104);
    for number in 0..128 {
        client.ask("subscribe", json!({"channel": format!("c{number}")}));
    }
    assert_eq!(client.code("subscribe", json!({"channel": "more"})), 106);
    // The API.
    let publish = json!({"channel": "a", "data": 1});
    assert_eq!(api(&handle, "publish", &publish, "").0, 401);
    assert_eq!(api(&handle, "publish", &publish, "X-API-Key: wrong\r\n").0, 401);
    assert_eq!(api(&handle, "publish", &publish, "Authorization: apikey key\r\n").0, 200);
    for (method, body, code) in [
        ("publish", json!({"channel": "a"}), 107),
        ("publish", json!({"channel": "", "data": 1}), 107),
        ("publish", json!({"channel": "a", "data": "x".repeat(70_000)}), 106),
        ("broadcast", json!({"channels": [], "data": 1}), 107),
        ("other", json!({}), 104),
    ] {
        assert_eq!(call(&handle, method, &body)["error"]["code"], code, "{method}");
    }
    let info = call(&handle, "info", &json!({}));
    assert_eq!(info["result"]["nodes"][0]["name"], "ringroad");
    let without = Place { publish: None, anonymous: false, ..here() };
    let handle = start_at(driver, &hub, without);
    assert_eq!(api(&handle, "publish", &publish, KEY).0, 403);
    let mut client = Client::open(&handle);
    assert_eq!(client.ask("connect", json!({})), "close 3500");
});

drivers!(a_client_that_answers_no_ping_is_closed_and_so_is_one_with_a_token_that_has_ended, |driver| {
    let hub = Hub::new(Settings { heartbeat: Duration::from_secs(1), ..settings() });
    let handle = start_at(driver, &hub, here());
    let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1;
    let mut silent = Client::connected_in_time(&handle, None);
    let mut stale = Client::open(&handle);
    let mut ends = Client::connected_in_time(&handle, Some(json!({"sub": "u", "exp": exp})));
    assert_eq!(ends.next(), "close 3005");
    assert_eq!(stale.next(), "close 3502");
    let mut pings = 0;
    let told = loop {
        match silent.0.next() {
            text if text == "{}" => pings += 1,
            other => break other,
        }
    };
    assert_eq!((told.as_str(), pings), ("close 3012", 1));
    // It is no member any more.
    while hub.counts().members.load(Ordering::Relaxed) > 0 {
        std::thread::yield_now();
    }
});

/// On every driver in one test, so that the packages are installed once.
#[test]
fn centrifuge_js_works_unmodified_and_recovers_after_a_cut() {
    let Some(packages) = npm("centrifuge", &["centrifuge@5.8.0", "ws@8.23.0"]) else { return };
    for driver in ringroad_engine::choose::drivers() {
        if let Err(why) = ringroad_engine::choose::choose(Some(Wish::Named(driver)), None) {
            eprintln!("skipped: {why}");
            continue;
        }
        let hub = Hub::new(settings());
        let handle = start_at(driver, &hub, here());
        let port = handle.address().to_string().rsplit(':').next().unwrap().to_owned();
        run("node", "centrifugo.cjs", &packages, [port.as_str(), "key"])
            .unwrap_or_else(|why| panic!("{driver}: {why}"));
    }
}

drivers!(long_answers_to_the_commands_of_one_frame_go_out_as_they_are_made, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, here());
    for _ in 0..10 {
        hub.publish("a", Message { data: "x".repeat(10_000), ..Message::default() }).unwrap();
    }
    let mut client = Client::connected(&handle, None);
    assert!(client.ask("subscribe", json!({"channel": "a"}))["subscribe"].is_object());
    let ask = |id: u64| json!({"id": id, "history": {"channel": "a", "limit": -1}}).to_string();
    let frame: Vec<String> = (0..100).map(|at| ask(at + 10)).collect();
    client.0.say(&frame.join("\n"));
    let mut answers = 0;
    while answers < 100 {
        let text = client.0.next();
        if text != "{}" {
            assert!(text.len() < 200_000, "{} bytes wait for each other", text.len());
            answers += text.split('\n').count();
        }
    }
});

drivers!(a_hub_that_ends_closes_its_clients_also_those_without_a_channel, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, here());
    let mut with = Client::connected(&handle, None);
    assert!(with.ask("subscribe", json!({"channel": "a"}))["subscribe"].is_object());
    let mut without = Client::connected(&handle, None);
    hub.end();
    assert_eq!((with.next(), without.next()), ("close 3001".into(), "close 3001".into()));
});
