//! Members of topics: what each gets, what it gets when it comes back, and what becomes of a slow one.

use crate::support::{
    HANG, Member, PUBLISH, comes_first, event, events, place, post, settings, start, start_at,
};
use ringroad_hub::{Hub, Message, Place, Settings};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Waits until topic `a` has no members; fails with `what` if that does not come.
fn all_leave(hub: &Hub, what: &str) {
    let begun = Instant::now();
    while hub.members_of("a") > 0 {
        assert!(begun.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

drivers!(a_message_reaches_all_members_of_its_topic_by_both_protocols, |driver| {
    let hub = Hub::new(settings());
    let handle = start(driver, &hub);
    let mut sockets: Vec<Member> = (0..6).map(|_| Member::open(&handle, "topic=a&topic=b", "")).collect();
    for member in &mut sockets {
        let first = member.next();
        assert!(first.starts_with("{\"subscribed\":[\"a\",\"b\"],\"id\":"), "{first}");
        assert!(first.ends_with("\"recovered\":true}"), "{first}");
    }
    let mut other = Member::open(&handle, "topic=other", "");
    other.next();
    let (mut stream, head) = events(&handle, "match=a", "");
    assert!(head.contains("Content-Type: text/event-stream"), "{head}");
    assert_eq!(hub.members_of("a"), 7);
    let (head, event_id) = post(&handle, "topic=a&data=one%0Atwo&type=news", PUBLISH);
    let id = event_id.strip_prefix('#').unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for member in &mut sockets {
        let expected =
            format!("{{\"topic\":\"a\",\"id\":\"{id}\",\"type\":\"news\",\"data\":\"one\\ntwo\"}}");
        assert_eq!(member.next(), expected);
    }
    assert_eq!(event(&mut stream), format!("id: #{id}\nevent: news\ndata: one\ndata: two\n\n"));
    // In order, across topics.
    for number in 0..50 {
        hub.publish(["a", "b"][number % 2], Message { data: number.to_string(), ..Message::default() })
            .unwrap();
    }
    for member in &mut sockets {
        for number in 0..50 {
            let told = member.next();
            assert!(told.ends_with(&format!("\"data\":\"{number}\"}}")), "{number}: {told}");
        }
    }
    hub.publish("other", Message { data: "end".to_owned(), ..Message::default() }).unwrap();
    assert!(other.next().contains("\"data\":\"end\""));
    drop((sockets, stream));
    all_leave(&hub, "members that have gone are forgotten");
});

drivers!(a_member_that_closes_or_breaks_the_protocol_is_none_before_the_connection_ends, |driver| {
    let hub = Hub::new(settings());
    let handle = start(driver, &hub);
    comes_first(|opcode, payload| {
        let mut member = Member::open(&handle, "topic=a", "");
        member.next();
        assert_eq!(hub.members_of("a"), 1);
        member.put(opcode, payload);
        all_leave(&hub, "a member that has ended is forgotten");
        member.is_heard()
    });
});

drivers!(a_member_that_the_hub_closes_is_none_before_the_connection_ends, |driver| {
    let hub = Hub::new(Settings { queue_bytes: 64 << 10, ..settings() });
    let handle = start(driver, &hub);
    let closed = || hub.counts().closed_slow.load(std::sync::atomic::Ordering::Relaxed);
    comes_first(|_, _| {
        let mut member = Member::open(&handle, "topic=a", "");
        member.next();
        assert_eq!(hub.members_of("a"), 1);
        // It reads nothing any more.
        let before = closed();
        while closed() == before {
            hub.publish("a", Message { data: "x".repeat(20_000), ..Message::default() }).unwrap();
        }
        all_leave(&hub, "a member that was closed is forgotten");
        member.is_heard()
    });
});

drivers!(a_member_that_comes_back_gets_all_or_learns_that_some_is_gone, |driver| {
    let hub = Hub::new(Settings { history_messages: 3, ..settings() });
    let handle = start(driver, &hub);
    let ids: Vec<String> = (0..5)
        .map(|number| {
            let message = Message { data: number.to_string(), ..Message::default() };
            hub.publish("a", message).unwrap().to_string()
        })
        .collect();
    let mut member = Member::open(&handle, &format!("topic=a&after={}", ids[1]), "");
    assert!(member.next().ends_with("\"recovered\":true}"));
    for number in 2..5 {
        assert!(member.next().ends_with(&format!("\"data\":\"{number}\"}}")));
    }
    let mut late = Member::open(&handle, &format!("topic=a&after={}", ids[0]), "");
    assert!(late.next().ends_with("\"recovered\":false}"));
    let (mut stream, head) = events(&handle, "topic=a", &format!("Last-Event-ID: {}\r\n", ids[2]));
    assert!(head.contains(&format!("Mercure-Last-Event-ID: #{}", ids[2])), "{head}");
    assert_eq!(event(&mut stream), format!("id: #{}\ndata: 3\n\nid: #{}\ndata: 4\n\n", ids[3], ids[4]));
    let (mut late_stream, head) = events(&handle, "topic=a", &format!("Last-Event-ID: {}\r\n", ids[0]));
    assert!(head.contains(&format!("Mercure-Last-Event-ID: #{}", ids[4])), "{head}");
    let (mut all, _) = events(&handle, "topic=a&lastEventID=earliest", "");
    assert!(event(&mut all).starts_with(&format!("id: #{}\ndata: 2\n\n", ids[2])));
    // All of them go on with what comes now.
    let id = hub.publish("a", Message { data: "new".to_owned(), ..Message::default() }).unwrap();
    for told in [member.next(), late.next()] {
        assert!(told.ends_with("\"data\":\"new\"}"), "{told}");
    }
    for stream in [&mut stream, &mut late_stream, &mut all] {
        assert_eq!(event(stream), format!("id: #{id}\ndata: new\n\n"));
    }
});

drivers!(publishing_without_leave_is_refused_and_wrong_forms_get_the_reason, |driver| {
    let hub = Hub::new(Settings { message_bytes: 100, ..settings() });
    let handle = start(driver, &hub);
    let refused = |form: &str, more: &str| {
        let (head, body) = post(&handle, form, more);
        format!("{} {body}", head.split(' ').nth(1).unwrap())
    };
    assert_eq!(refused("topic=a&data=x", ""), "401 hub: a key or a token is needed here\n");
    assert_eq!(refused("data=x", PUBLISH), "400 hub: no topic\n");
    for (form, status) in [
        (format!("topic=a{}", "&topic=b".repeat(16)).as_str(), "413"),
        ("topic=a&id=%231", "400"),
        ("topic=a&id=earliest", "400"),
        ("topic=a&type=mercure", "400"),
        ("topic=*", "400"),
        ("topic=/.well-known/mercure/subscriptions/exact/a/b", "400"),
        ("topic=https://other.example/.well-known/x/../mercure", "400"),
        ("topic=http://other.example/.well-known/%256Dercure/x", "400"),
        ("topic=a&retry=x", "400"),
        ("topic=a&type=x%0Adata:+y", "400"),
        ("topic=a%0Ab", "400"),
        (&format!("topic=a&data={}", "x".repeat(101)), "413"),
    ] {
        assert!(refused(form, PUBLISH).starts_with(status), "{form}");
    }
    assert_eq!(hub.counts().published.load(std::sync::atomic::Ordering::Relaxed), 0);
    for query in ["", "topic=", "match_regex=a", "MATCH=a", "match_urlpattern=https://a/(", "match=a%00b"] {
        let (_, head) = events(&handle, query, "");
        assert!(head.starts_with("HTTP/1.1 400"), "{query}: {head}");
    }
    let mut member = Member::open(&handle, "topic=a", "");
    member.next();
    member.say("{\"topic\":\"a\",\"data\":\"x\"}");
    assert_eq!(member.next(), "close 1008");
    let mut member = Member::open(&handle, "topic=a", PUBLISH);
    member.next();
    member.say("{\"topic\":\"a\",\"data\":\"from a client\"}");
    assert!(member.next().ends_with("\"data\":\"from a client\"}"));
    member.say("nonsense");
    assert_eq!(member.next(), "close 1008");
});

drivers!(a_slow_member_is_closed_alone_and_recovers, |driver| {
    let hub = Hub::new(Settings { queue_bytes: 64 << 10, history_messages: 1_000_000, ..settings() });
    let handle = start(driver, &hub);
    let mut slow = Member::open(&handle, "topic=a", "");
    let (mut slow_stream, _) = events(&handle, "topic=a", "");
    let mut quick = Member::open(&handle, "topic=a", "");
    // Its place if it gets nothing more.
    let mut last = slow.next().split('"').nth(7).unwrap().to_owned();
    quick.next();
    let closed = || hub.counts().closed_slow.load(std::sync::atomic::Ordering::Relaxed);
    let mut count = 0;
    while closed() < 2 {
        hub.publish("a", Message { data: format!("{count} {}", "x".repeat(20_000)), ..Message::default() })
            .unwrap();
        let told = quick.next();
        assert!(told.contains(&format!("\"data\":\"{count} x")), "{}", &told[..80]);
        count += 1;
        assert!(count < 50_000, "the kernel takes everything");
    }
    let mut got = 0;
    loop {
        let told = slow.next();
        if told.starts_with("close") {
            assert_eq!(told, "close 4008");
            break;
        }
        assert!(told.contains(&format!("\"data\":\"{got} x")));
        last = told.split('"').nth(7).unwrap().to_owned();
        got += 1;
    }
    assert!(got < count);
    let mut back = Member::open(&handle, &format!("topic=a&after={last}"), "");
    // More than may wait for it at once: it is closed again and again, but never misses one.
    assert!(back.next().ends_with("\"recovered\":true}"));
    assert!(back.next().contains(&format!("\"data\":\"{got} x")));
    // Its stream ends in order, so that the client comes back by itself.
    let read = slow_stream.until("0\r\n\r\n");
    assert!(read.len() < count * 20_000);
});

drivers!(a_type_with_a_line_end_is_refused_from_a_client_too, |driver| {
    let hub = Hub::new(settings());
    let handle = start(driver, &hub);
    let (mut stream, _) = events(&handle, "topic=a", "");
    for kind in ["x\\ndata: forged\\n\\n", "mercure", "pusher_internal:x"] {
        let mut member = Member::open(&handle, "topic=b", PUBLISH);
        member.next();
        member.say(&format!("{{\"topic\":\"a\",\"data\":\"d\",\"type\":\"{kind}\"}}"));
        assert_eq!(member.next(), "close 1008", "{kind}");
    }
    let id = hub.publish("a", Message { data: "seen".to_owned(), ..Message::default() }).unwrap();
    assert_eq!(event(&mut stream), format!("id: #{id}\ndata: seen\n\n"));
});

drivers!(a_token_that_has_ended_publishes_no_more_where_all_may_subscribe, |driver| {
    let hub = Hub::new(settings());
    let handle = start_at(driver, &hub, Place { subscribe: None, before_one: true, ..place() });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let claims = format!("{{\"exp\":{:.3},\"mercure\":{{\"publish\":[\"*\"]}}}}", now + 1.0);
    let mut member = Member::open(&handle, "topic=a", &format!("Authorization: Bearer {claims}\r\n"));
    // Where the machine is so slow that it has ended before, it is closed at once.
    let first = member.next();
    assert!(first.starts_with("{\"subscribed\"") || first == "close 4009", "{first}");
    if first != "close 4009" {
        assert_eq!(member.next(), "close 4009");
    }
    // A token without an end leaves the session.
    let forever = "Authorization: Bearer {\"mercure\":{\"publish\":[\"*\"]}}\r\n";
    let mut member = Member::open(&handle, "topic=a", forever);
    member.next();
    member.say("{\"topic\":\"a\",\"data\":\"x\"}");
    assert!(member.next().ends_with("\"data\":\"x\"}"));
});

drivers!(an_offer_of_another_protocol_is_passed_over, |driver| {
    let hub = Hub::new(settings());
    let handle = start(driver, &hub);
    // As `curl --http2` and Java's client send it with each request.
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let (mut stream, head) = events(&handle, "topic=a", h2c);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let id = hub.publish("a", Message { data: "x".to_owned(), ..Message::default() }).unwrap();
    assert_eq!(event(&mut stream), format!("id: #{id}\ndata: x\n\n"));
});

drivers!(a_hub_that_ends_closes_its_members_and_takes_no_others, |driver| {
    let hub = Hub::new(settings());
    let handle = start(driver, &hub);
    let mut sockets: Vec<Member> = (0..4).map(|_| Member::open(&handle, "topic=a", "")).collect();
    sockets.push(Member::open(&handle, "match=*", ""));
    sockets.iter_mut().for_each(|member| drop(member.next()));
    let (mut stream, _) = events(&handle, "topic=a", "");
    hub.end();
    for member in &mut sockets {
        assert_eq!(member.next(), "close 1001");
    }
    stream.until("0\r\n\r\n");
    all_leave(&hub, "members of a hub that has ended are forgotten");
    assert_eq!(Member::open(&handle, "topic=a", "").next(), "close 1013");
    assert!(events(&handle, "topic=a", "").1.starts_with("HTTP/1.1 503"));
});
