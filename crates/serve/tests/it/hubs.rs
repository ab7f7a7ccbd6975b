//! Hubs as they are configured: the keys of the reference, publishing with a key, a reload.

use crate::support::{Client, Site, start};

/// The whole of a hub, as the documentation shows it.
const HUB: &str = r#"
[auth.k]
kind = "key"
keys = ["secret"]                    # as `Authorization: Bearer secret`, or in the header that `header` names
[hub.news]
history = { messages = 100, for = "5m" }
[[route]]
path = "/.well-known/mercure"
kind = "hub"
hub = "news"
speak = ["mercure"]
publish_auth = "k"                   # without it nothing can be published from outside
"#;

const PATH: &str = "/.well-known/mercure";

fn publish(site: &Site, form: &str, lines: &str) -> (u16, String) {
    let mut client = site.client();
    client.send(format!(
        "POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n{lines}\r\n{form}",
        form.len()
    ));
    let reply = client.reply();
    (reply.status, reply.text().to_owned())
}

fn subscribe(site: &Site, query: &str) -> Client {
    let mut client = site.client();
    client.send(format!("GET {PATH}?{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client
}

drivers!(a_hub_is_published_to_with_its_key_and_not_without, |driver| {
    let site = start(driver, HUB, |_| {});
    let mut stream = subscribe(&site, "topic=a");
    let key = "Authorization: Bearer secret\r\n";
    for lines in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic secret\r\n"] {
        let status = publish(&site, "topic=a&data=x", lines).0;
        assert!(matches!(status, 401 | 403), "{status} {lines}");
    }
    let (status, id) = publish(&site, "topic=a&data=hello", key);
    assert_eq!(status, 200, "{id}");
    let event = String::from_utf8(stream.until(b"\n\n").unwrap()).unwrap();
    assert!(event.ends_with(&format!("id: {id}\ndata: hello\n\n")), "{event}");
});

drivers!(head_of_a_subscription_has_its_lines_and_no_length, |driver| {
    let site = start(driver, HUB, |_| {});
    let reply = site.client().ask("HEAD", &format!("{PATH}?topic=a"), &[]);
    assert_eq!((reply.status, reply.header("Content-Type")), (200, Some("text/event-stream")));
    // That of GET is not known (RFC 9110, section 8.6).
    assert_eq!(reply.header("Content-Length"), None);
});

drivers!(a_reload_keeps_a_hub_with_its_members_and_history, |driver| {
    let mut site = start(driver, HUB, |_| {});
    let key = "Authorization: Bearer secret\r\n";
    let mut stream = subscribe(&site, "topic=a");
    publish(&site, "topic=a&data=before", key);
    crate::support::configure(
        site.folder.path(),
        &format!("{HUB}\n[[route]]\npath = \"/x\"\nkind = \"health\"\n"),
    );
    site.service.reload();
    while !matches!(site.event(), ringroad_serve::Event::Reloaded { .. }) {}
    publish(&site, "topic=a&data=after", key);
    stream.until(b"data: before\n\n").unwrap();
    stream.until(b"data: after\n\n").unwrap();
    let mut again = subscribe(&site, "topic=a&lastEventID=earliest");
    again.until(b"data: before\n").unwrap();
    again.until(b"data: after\n").unwrap();
});

drivers!(a_reload_without_a_hub_ends_the_streams_of_its_members, |driver| {
    let mut site = start(driver, HUB, |_| {});
    let mut stream = subscribe(&site, "topic=a");
    let without = "[[route]]\npath = \"/x\"\nkind = \"health\"\n";
    crate::support::configure(site.folder.path(), without);
    site.service.reload();
    while !matches!(site.event(), ringroad_serve::Event::Reloaded { .. }) {}
    // In order, so that the client comes back, and finds what there is now.
    stream.until(b"0\r\n\r\n").unwrap();
    // One of the same name is another.
    crate::support::configure(site.folder.path(), HUB);
    site.service.reload();
    while !matches!(site.event(), ringroad_serve::Event::Reloaded { .. }) {}
    let mut again = subscribe(&site, "topic=a");
    publish(&site, "topic=a&data=after", "Authorization: Bearer secret\r\n");
    again.until(b"data: after\n\n").unwrap();
});

/// Secret of the tokens in these tests.
const SECRET: &str = "a secret of thirty-two bytes or more";

/// A token with these claims and an hour to live. `typ`: of its header.
fn token(typ: &str, claims: &str) -> String {
    let header = jsonwebtoken::Header { typ: Some(typ.to_owned()), ..Default::default() };
    let mut claims: serde_json::Value = serde_json::from_str(claims).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    claims["exp"] = (now.as_secs() + 3600).into();
    jsonwebtoken::encode(&header, &claims, &jsonwebtoken::EncodingKey::from_secret(SECRET.as_bytes()))
        .unwrap()
}

drivers!(a_token_gives_the_rights_in_its_claims_and_no_others, |driver| {
    let config = HUB
        .replace("kind = \"key\"", "kind = \"jwt\"\nalgorithms = [\"HS256\"]")
        .replace("keys = [\"secret\"]", &format!("secret = \"{SECRET}\""))
        + "subscribe_auth = \"k\"\nanonymous = true\n";
    let details = r#"{"authorization_details": [{"type": "https://mercure.rocks/authorization-detail",
        "actions": ["publish", "subscribe"], "topics": [{"match": "a"}]}]}"#;
    let site = start(driver, &config, |_| {});
    let line = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let right = token("at+jwt", details);
    let mut reader = site.client();
    reader.send(format!("GET {PATH}?match=a HTTP/1.1\r\nHost: a\r\n{}\r\n", line(&right)));
    reader.until(b"\r\n\r\n").unwrap();
    let mut other = subscribe(&site, "match=a");
    assert_eq!(publish(&site, "topic=a&data=secret&private=on", &line(&right)).0, 200);
    assert_eq!(publish(&site, "topic=a&data=open", &line(&right)).0, 200);
    // A token for one topic does not permit another; it is not a key, and its signature and type count.
    assert_eq!(publish(&site, "topic=b&data=x", &line(&right)).0, 403);
    assert_eq!(publish(&site, "topic=a&data=x", &line(&format!("{right}x"))).0, 401);
    assert_eq!(publish(&site, "topic=a&data=x", &line(&token("JWT", details))).0, 401);
    assert_eq!(publish(&site, "topic=a&data=x", &line(&token("at+jwt", "{}"))).0, 403);
    reader.until(b"data: secret\n").unwrap();
    let seen = String::from_utf8(other.until(b"data: open\n").unwrap()).unwrap();
    assert!(!seen.contains("secret"), "{seen}");
    // The cookie, with an origin of the site's own, is a place for a token too.
    let cookie =
        |origin: &str| format!("Cookie: __Secure-mercure_access_token={right}\r\nOrigin: {origin}\r\n");
    assert_eq!(publish(&site, "topic=a&data=x", &cookie("http://a")).0, 200);
    assert_eq!(publish(&site, "topic=a&data=x", &cookie("http://b")).0, 403);
});

drivers!(tokens_of_mercure_0_x_are_taken_where_that_is_asked_for, |driver| {
    let config = HUB
        .replace("kind = \"key\"", "kind = \"jwt\"\nalgorithms = [\"HS256\"]")
        .replace("keys = [\"secret\"]", &format!("secret = \"{SECRET}\""));
    let old = token("JWT", r#"{"mercure": {"publish": ["/books/{id}"]}}"#);
    let line = format!("Authorization: Bearer {old}\r\n");
    let site = start(driver, &format!("{config}compatible = \"0.x\"\n"), |_| {});
    assert_eq!(publish(&site, "topic=/books/1&data=x", &line).0, 200);
    assert_eq!(publish(&site, "topic=/films/1&data=x", &line).0, 403);
    let site = start(driver, &config, |_| {});
    assert_eq!(publish(&site, "topic=/books/1&data=x", &line).0, 401);
});

drivers!(a_centrifugo_route_takes_the_key_of_its_table_and_its_own_paths_only, |driver| {
    let route =
        HUB.replace("path = \"/.well-known/mercure\"", "path = \"/\"").replace("mercure", "centrifugo");
    let site = start(driver, &route, |_| {});
    let call = |path: &str, lines: &str| {
        let mut client = site.client();
        let body = "{\"channel\":\"a\",\"data\":{\"n\":1}}";
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{lines}\r\n{body}",
            body.len()
        ));
        let reply = client.reply();
        (reply.status, reply.text().to_owned())
    };
    let (status, told) = call("/api/publish", "X-API-Key: secret\r\n");
    assert!(status == 200 && told.contains("\"offset\":1"), "{status} {told}");
    assert_eq!(call("/api/publish", "X-API-Key: wrong\r\n").0, 401);
    assert_eq!(call("/api/publish", "").0, 401);
    assert_eq!(call("/other", "X-API-Key: secret\r\n").0, 405);
});

drivers!(a_pusher_route_takes_its_own_paths_only, |driver| {
    let config = r#"
[hub.news]
[[route]]
path = "/"
kind = "hub"
hub = "news"
speak = ["pusher"]
pusher = { id = "7", key = "k", secret = "s" }
"#;
    let site = start(driver, config, |_| {});
    let mut client = site.client();
    client.send(
        "GET /app/k?protocol=7 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    client.until(b"HTTP/1.1 101").unwrap();
    client.until(b"pusher:connection_established").unwrap();
    let refused = site.client().get("/app/k");
    assert_eq!((refused.status, refused.header("Upgrade")), (426, Some("websocket")));
    assert_eq!(site.client().get("/apps/7/channels").status, 401);
    assert_eq!(site.client().get("/apps/8/channels").status, 404);
    assert_eq!(site.client().get("/").status, 405);
});

/// Publishes by an application's worker, which has the key in its environment. A subscriber with the right to
/// read the message gets it, and no other.
fn a_worker_publishes(site: &Site) {
    let key = "Authorization: Bearer secret\r\n";
    let mut client = site.client();
    client.send(format!("GET {PATH}?topic=a HTTP/1.1\r\nHost: a\r\n{key}\r\n"));
    let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut stranger = subscribe(site, "topic=a");
    let told = site.client().get(&format!("/?topic=a&data=from%20a%20worker&port={}", site.address().port()));
    let id = told.text();
    assert_eq!(told.status, 200, "{id}");
    let event = String::from_utf8(client.until(b"\n\n").unwrap()).unwrap();
    assert!(event.ends_with(&format!("id: {id}\ndata: from a worker\n\n")), "{event}");
    publish(site, "topic=a&data=for%20all", key);
    let event = String::from_utf8(stranger.until(b"data: for all\n").unwrap()).unwrap();
    assert!(!event.contains("from a worker"), "{event}");
}

drivers!(an_asgi_application_publishes_with_the_key_of_its_environment, |driver| {
    if !crate::apps::python() {
        return;
    }
    let text = HUB.replace("publish_auth", "subscribe_auth = \"k\"\nanonymous = true\npublish_auth")
        + "[[app]]\nname = \"web\"\napp = \"hub_app:app\"\npython = \"python3\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
           env = { PUSH_KEY = \"secret\" }\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, &text, |folder| {
        crate::support::write(folder, "hub_app.py", include_str!("../apps/hub_app.py"));
    });
    a_worker_publishes(&site);
});

drivers!(a_php_application_publishes_with_the_key_of_its_environment, |driver| {
    if !crate::php::installed("php-cgi") {
        return;
    }
    let text = HUB.replace("publish_auth", "subscribe_auth = \"k\"\nanonymous = true\npublish_auth")
        + "[[app]]\nname = \"site\"\ncommand = [\"php-cgi\"]\nprotocol = \"fastcgi\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
           env = { PUSH_KEY = \"secret\" }\n[[route]]\npath = \"/\"\nkind = \"php\"\nroot = \"www\"\napp = \"site\"\n";
    let site = start(driver, &text, |folder| {
        crate::support::write(folder, "www/index.php", include_str!("../apps/hub.php"));
    });
    a_worker_publishes(&site);
});

#[test]
fn mistakes_of_a_hub_are_told_where_they_are() {
    for (text, why) in [
        ("speak = [\"pusher\"]", "`pusher = {"),
        ("pusher = { id = \"1\", key = \"k\", secret = \"s\" }", "does not have \"pusher\""),
        ("centrifugo = { presence = true }", "does not have \"centrifugo\""),
        ("speak = [\"centrifugo\"]\ncentrifugo = { history = true }", "history"),
        ("publish_auth = \"x\"", "there is no [auth.x]"),
        ("compatible = \"0.9\"", "compatible"),
        (
            "publish_auth = \"b\"\n[auth.b]\nkind = \"ask\"\nurl = \"http://127.0.0.1:1/\"",
            "`auth` of the route",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let route = format!("[hub.n]\n[[route]]\npath = \"/\"\nkind = \"hub\"\nhub = \"n\"\n{text}\n");
        let file = crate::support::configure(folder.path(), &route);
        let read = ringroad_serve::load(&ringroad_serve::Source::File(file), &Default::default());
        let told = read.map(|_| ()).unwrap_err().to_string();
        assert!(told.contains(why), "{text}: {told}");
    }
}
