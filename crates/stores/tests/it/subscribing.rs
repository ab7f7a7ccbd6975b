//! Messages of channels.

use crate::server::{fake, on_runtime, redis, with_servers};
use ringroad_stores::redis::{Event, Subscriber};

async fn until(subscriber: &mut Subscriber, wanted: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = subscriber.next().await;
        if wanted(&event) {
            return event;
        }
        assert!(matches!(event, Event::Lost(_) | Event::Subscribed { .. }), "{event:?}");
    }
}

fn subscribed(channel: &str, is_pattern: bool) -> Event {
    Event::Subscribed { channel: channel.into(), is_pattern }
}

fn message(channel: &str, pattern: Option<&str>, payload: &str) -> Event {
    Event::Message { channel: channel.into(), pattern: pattern.map(Into::into), payload: payload.into() }
}

drivers!(messages_come_in_order_from_the_subscription_on_and_again_after_a_restart, |driver| {
    with_servers(driver, &[], |mut server| async move {
        let redis = redis(server.settings());
        let client = redis.client();
        let mut subscriber = redis.subscriber();
        let list = subscriber.subscriptions();
        list.add(b"news");
        list.add(b"news");
        list.add_pattern(b"sport.*");
        assert_eq!(list.len(), 2);
        assert_eq!(subscriber.next().await, subscribed("news", false));
        assert_eq!(subscriber.next().await, subscribed("sport.*", true));
        let publish = |channel: &'static str, text: &'static str| client.command(&["PUBLISH", channel, text]);
        assert_eq!(publish("news", "one").await.unwrap().integer(), Some(1));
        publish("sport.chess", "two").await.unwrap();
        publish("other", "not wanted").await.unwrap();
        publish("news", "three").await.unwrap();
        assert_eq!(subscriber.next().await, message("news", None, "one"));
        assert_eq!(subscriber.next().await, message("sport.chess", Some("sport.*"), "two"));
        assert_eq!(subscriber.next().await, message("news", None, "three"));
        list.remove(b"news");
        list.add(b"late");
        let gone = Event::Unsubscribed { channel: b"news".to_vec(), is_pattern: false };
        assert_eq!(subscriber.next().await, gone);
        assert_eq!(subscriber.next().await, subscribed("late", false));
        server.kill();
        assert!(matches!(subscriber.next().await, Event::Lost(_)));
        server.start_again();
        until(&mut subscriber, |event| *event == subscribed("late", false)).await;
        assert_eq!(
            until(&mut subscriber, |event| *event == subscribed("sport.*", true)).await,
            subscribed("sport.*", true)
        );
        // The client's connection is lost too, and made again.
        while publish("late", "four").await.is_err() {
            ringroad_engine::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(subscriber.next().await, message("late", None, "four"));
    });
});

drivers!(a_subscription_of_resp2_is_understood_and_one_that_is_refused_is_told, |driver| {
    let mut count = 0;
    let (_, settings) = fake(move |mut peer| {
        count += 1;
        assert_eq!(peer.command().unwrap()[0], "HELLO");
        peer.answer("-NOPROTO sorry, this protocol version is not supported.\r\n");
        assert_eq!(peer.command().unwrap(), ["SUBSCRIBE", "a"]);
        if count == 1 {
            peer.answer("-NOPERM this user has no permissions\r\n");
            return;
        }
        peer.answer(
            "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n",
        );
        while peer.command().is_some() {}
    });
    on_runtime(driver, async move {
        let mut subscriber = redis(settings).subscriber();
        subscriber.subscriptions().add(b"a");
        match subscriber.next().await {
            Event::Lost(why) => assert!(why.to_string().contains("NOPERM"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(subscriber.next().await, subscribed("a", false));
        assert_eq!(subscriber.next().await, message("a", None, "hi"));
    });
});
