//! Mercure 1.0, and 0.x where it is allowed: tokens, private messages, patterns, subscriptions.

use crate::support::{Socket, event, events, place, post, settings, start, start_at};
use ringroad_hub::{Hub, Message, Place};
use std::time::{SystemTime, UNIX_EPOCH};

/// A line with a token of these details of authorization.
fn token(details: &[(&str, &str)]) -> String {
    let details: Vec<String> = details
        .iter()
        .map(|(action, topics)| {
            format!(
                "{{\"type\":\"https://mercure.rocks/authorization-detail\",\"actions\":[\"{action}\"],\
                 \"topics\":[{topics}]}}"
            )
        })
        .collect();
    let details = details.join(",");
    format!(
        "Authorization: Bearer {{\"typ\":\"at+jwt\",\"exp\":9999999999,\"authorization_details\":[{details}]}}\r\n"
    )
}

const ALL: &str = "{\"match\":\"*\"}";

/// A line with a token as Mercure 0.x has it.
fn old_token(claim: &str) -> String {
    format!("Authorization: Bearer {{\"mercure\":{{{claim}}}}}\r\n")
}

fn status(handle: &ringroad_http::Handle, form: &str, lines: &str) -> (u16, String) {
    let (head, _) = post(handle, form, lines);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head)
}

drivers!(a_private_message_reaches_only_tokens_that_cover_one_of_its_topics, |driver| {
    let hub = Hub::new(settings());
    let handle = start(driver, &hub);
    let covers =
        token(&[("subscribe", "{\"match\":\"https://example.com/:id\",\"match_type\":\"urlpattern\"}")]);
    let query = "match=https://example.com/1&match=other";
    let (mut knows, _) = events(&handle, query, &covers);
    let (mut other, _) = events(&handle, query, &token(&[("subscribe", "{\"match\":\"other\"}")]));
    let publisher = token(&[("publish", ALL)]);
    let publish = |form: &str| assert_eq!(status(&handle, form, &publisher).0, 200, "{form}");
    publish("topic=https://example.com/1&data=secret&private=on");
    publish("topic=https://example.com/1&data=open");
    assert!(knows.until("data: open\n\n").contains("data: secret\n"));
    assert!(!other.until("data: open\n\n").contains("secret"));
    // The tokens hold for what was missed as well.
    let again = format!("{query}&last_event_id=earliest");
    assert!(event(&mut events(&handle, &again, &covers).0).contains("data: secret\n\n"));
    // Of two topics one is enough, and a member of both gets it once.
    publish("topic=https://example.com/1&topic=other&data=both&private");
    publish("topic=other&data=end");
    for member in [&mut knows, &mut other] {
        assert_eq!(member.until("data: end\n\n").matches("data: both\n").count(), 1);
    }
    let (mut late, _) = events(&handle, &again, &token(&[("subscribe", "{\"match\":\"none\"}")]));
    let missed = event(&mut late);
    assert!(!missed.contains("secret") && !missed.contains("both"), "{missed}");
    assert!(missed.contains("data: open\n") && missed.ends_with("data: end\n\n"), "{missed}");
});

drivers!(a_token_is_refused_as_the_specification_says, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, Place { anonymous: false, ..place() });
    let form = "topic=a&data=x";
    let (code, head) = status(&handle, form, "");
    assert!(code == 401 && head.contains("WWW-Authenticate: Bearer") && !head.contains("error="), "{head}");
    for wrong in [
        "Authorization: Bearer nonsense\r\n".to_owned(),
        token(&[("publish", "\"*\"")]),
        // It is no access token, or has no end.
        old_token("\"publish\":[\"*\"]"),
    ] {
        let (code, head) = status(&handle, form, &wrong);
        assert!(code == 401 && head.contains("WWW-Authenticate: Bearer error=\"invalid_token\""), "{head}");
    }
    for little in [token(&[]), token(&[("publish", "{\"match\":\"b\"}")]), token(&[("subscribe", ALL)])] {
        let (code, head) = status(&handle, form, &little);
        assert!(code == 403 && head.contains("error=\"insufficient_scope\""), "{head}");
    }
    // Each of several topics has to be covered.
    let publisher = token(&[("publish", "{\"match\":\"a\"}")]);
    assert_eq!(status(&handle, form, &publisher).0, 200);
    assert_eq!(status(&handle, "topic=a&topic=b", &publisher).0, 403);
    let (_, head) = events(&handle, "match=a", "");
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let (_, head) = events(&handle, "match=a", &token(&[]));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // A cookie of a page of this host, and of another.
    let value = token(&[("publish", ALL)]);
    let value = value.trim_end().strip_prefix("Authorization: Bearer ").unwrap();
    let cookie = format!("Cookie: a=b; __Secure-mercure_access_token={value}\r\n");
    for (origin, code) in [("", 403), ("Origin: http://evil.example\r\n", 403), ("Origin: http://a\r\n", 200)]
    {
        assert_eq!(status(&handle, form, &format!("{cookie}{origin}")).0, code, "{origin}");
    }
});

drivers!(patterns_choose_topics_and_recover_from_all_of_them, |driver| {
    let hub = Hub::new(settings());
    let handle = start(driver, &hub);
    let say = |topic: &str, data: &str| {
        hub.publish(topic, Message { data: data.to_owned(), ..Message::default() }).unwrap()
    };
    let first = say("https://example.com/books/1", "1");
    say("https://example.com/books/2", "2");
    say("https://example.com/films/1", "film");
    let query = "match_urlpattern=https%3A%2F%2Fexample.com%2Fbooks%2F%3Aid";
    let (mut stream, head) = events(&handle, &format!("{query}&last_event_id=%23{first}"), "");
    assert!(head.contains(&format!("Mercure-Last-Event-ID: #{first}")), "{head}");
    assert!(event(&mut stream).ends_with("data: 2\n\n"));
    let (mut all, head) = events(&handle, "match=*&last_event_id=earliest", "");
    assert!(head.contains("Mercure-Last-Event-ID: earliest"), "{head}");
    let missed = event(&mut all);
    assert!(missed.contains("data: 1\n") && missed.ends_with("data: film\n\n"), "{missed}");
    say("https://example.com/films/2", "film");
    say("https://example.com/books/3", "3");
    assert!(!stream.until("data: 3\n\n").contains("film"));
    assert!(all.until("data: 3\n\n").contains("data: film\n"));
});

drivers!(mercure_0_x_is_spoken_where_it_is_allowed, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, Place { before_one: true, ..place() });
    let reader = old_token("\"subscribe\":[\"https://example.com/{kind}/1\"]");
    let (mut stream, _) = events(&handle, "topic=https%3A%2F%2Fexample.com%2F%7Bkind%7D%2F%7Bid%7D", &reader);
    let publisher = old_token("\"publish\":[\"*\"]");
    for form in [
        "topic=https://example.com/books/2&data=hidden&private=on",
        "topic=https://example.com/books/1&data=seen&private=on",
        "topic=https://example.com/books/1/2&data=elsewhere",
        "topic=https://example.com/films/2&data=open",
    ] {
        assert_eq!(status(&handle, form, &publisher).0, 200, "{form}");
    }
    let told = stream.until("data: open\n\n");
    assert!(
        told.contains("data: seen\n") && !told.contains("hidden") && !told.contains("elsewhere"),
        "{told}"
    );
    let cookie = "Cookie: mercureAuthorization={\"mercure\":{\"publish\":[\"a\"]}}\r\nOrigin: http://a\r\n";
    assert_eq!(status(&handle, "topic=a&data=x", cookie).0, 200);
    assert_eq!(status(&handle, "topic=b&data=x", cookie).0, 403);
});

drivers!(subscriptions_are_told_and_listed_to_tokens_that_cover_them, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, Place { subscriptions: true, ..place() });
    let pattern = "/.well-known/mercure/subscriptions/:kind/:topic/:subscriber";
    let watcher = token(&[("subscribe", ALL)]);
    let query = format!("match_urlpattern={pattern}");
    let (mut watching, _) = events(&handle, &query, &watcher);
    // Its own comes first.
    assert!(event(&mut watching).contains("\"match_type\":\"urlpattern\""));
    let (member, _) = events(&handle, "match=a%20b", "");
    let told = event(&mut watching);
    assert!(told.contains("event: mercure\n"), "{told}");
    let document = told.split_once("data: ").unwrap().1.trim();
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["match"], "a b");
    assert_eq!((&document["active"], &document["type"]), (&true.into(), &"subscription".into()));
    let id = document["id"].as_str().unwrap();
    assert!(id.starts_with("/.well-known/mercure/subscriptions/exact/a%20b/urn%3Auuid%3A"), "{id}");
    let ask = |path: &str, lines: &str| {
        let mut socket = Socket::open(
            &handle,
            &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n"),
        );
        let head = socket.until("\r\n\r\n");
        while socket.more() {}
        (head, String::from_utf8(socket.input).unwrap())
    };
    let (head, body) = ask("/.well-known/mercure/subscriptions/exact/a%20b", &watcher);
    assert!(head.contains("Content-Type: application/json") && head.contains("last-event-id=\"#"), "{head}");
    let list: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&list["type"], &list["subscriptions"][0]), (&"subscriptions".into(), &document));
    let (_, body) = ask(id, &watcher);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap(), document);
    assert!(ask("/.well-known/mercure/subscriptions", "").0.starts_with("HTTP/1.1 401"));
    let little = token(&[("subscribe", "{\"match\":\"a\"}")]);
    assert!(ask("/.well-known/mercure/subscriptions", &little).0.starts_with("HTTP/1.1 403"));
    drop(member);
    let told = event(&mut watching);
    assert!(told.contains("\"active\":false") && told.contains(id), "{told}");
    assert!(ask(id, &watcher).0.starts_with("HTTP/1.1 404"));
});

drivers!(a_stream_ends_with_its_token, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, Place { before_one: true, ..place() });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let line = format!("Authorization: Bearer {{\"exp\":{:.3}}}\r\n", now + 1.0);
    let (mut stream, head) = events(&handle, "match=a", &line);
    // Where the machine is so slow that it has ended before, it is refused.
    if head.starts_with("HTTP/1.1 200") {
        stream.until("0\r\n\r\n");
    } else {
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    }
});

drivers!(a_pattern_that_needs_much_memory_is_refused, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, Place { before_one: true, ..place() });
    for large in
        ["match_urlpattern=https://example.com/(%5Cw%7B5000%7D)", &format!("topic={}", "%7Ba%7D".repeat(300))]
    {
        let (_, head) = events(&handle, large, "");
        assert!(head.starts_with("HTTP/1.1 400"), "{large}: {head}");
    }
    let (mut stream, _) = events(&handle, "match_urlpattern=https://example.com/:year(%5Cd%7B4%7D)", "");
    for (topic, data) in [("https://example.com/20256", "no"), ("https://example.com/2025", "yes")] {
        hub.publish(topic, Message { data: data.to_owned(), ..Message::default() }).unwrap();
    }
    assert!(event(&mut stream).ends_with("data: yes\n\n"));
});
