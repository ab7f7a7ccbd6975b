//! Servers that are gone, silent, slow or broken.

use crate::server::{fake, on_runtime, redis, with_servers};
use ringroad_engine::time;
use ringroad_stores::redis::{Client, RedisError, Settings};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration;

/// Asks until the server answers again; every error on the way must be of a server that is away.
async fn until_answered(client: &Client) {
    loop {
        match client.command(&["PING"]).await {
            Ok(_) => return,
            Err(RedisError::Unreachable { again, .. } | RedisError::Resting(again)) => {
                time::sleep(again).await
            }
            Err(RedisError::Lost(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

drivers!(a_server_that_was_killed_is_told_at_once_and_used_again_when_it_is_back, |driver| {
    with_servers(driver, &[], |mut server| async move {
        let client = redis(server.settings()).client();
        client.command(&["PING"]).await.unwrap();
        server.kill();
        // The first may still have been written to the connection; then no connection can be made.
        let mut unreachable = false;
        while !unreachable {
            match client.command(&["PING"]).await {
                Err(RedisError::Lost(_) | RedisError::Resting(_)) => {}
                Err(RedisError::Unreachable { .. }) => unreachable = true,
                other => panic!("{other:?}"),
            }
        }
        server.start_again();
        until_answered(&client).await;
    });
});

drivers!(a_silent_server_costs_a_few_time_outs_and_then_nothing, |driver| {
    let (_, settings) = fake(|mut peer| {
        peer.greet();
        while peer.command().is_some() {}
    });
    on_runtime(driver, async move {
        for _ in 0..10 {
            let redis = redis(Settings { timeout: Duration::from_millis(20), ..settings.clone() });
            let client = redis.client();
            let mut late = 0;
            let last = loop {
                match client.command(&["GET", "k"]).await {
                    Err(RedisError::TimedOut(_)) => late += 1,
                    other => break other,
                }
            };
            // A connection that answers nothing for a second is given up, which comes first on a machine that
            // stands still for so long: then once more.
            if matches!(last, Err(RedisError::Unreachable { .. })) {
                continue;
            }
            assert!(matches!(last, Err(RedisError::Resting(_))), "{last:?}");
            assert!(late >= 5, "{late}");
            assert_eq!(redis.counters().timed_out.load(Ordering::Relaxed), late);
            assert_eq!(redis.counters().refused.load(Ordering::Relaxed), 1);
            return;
        }
        panic!("its connection was given up each time");
    });
});

drivers!(an_answer_that_comes_too_late_is_not_that_of_the_next_command, |driver| {
    let (go, told) = channel::<()>();
    let (_, settings) = fake(move |mut peer| {
        peer.greet();
        let late = peer.command().unwrap();
        let next = peer.command().unwrap();
        told.recv().unwrap();
        peer.answer(&format!("+{}\r\n+{}\r\n", late[1], next[1]));
    });
    on_runtime(driver, async move {
        let client = redis(settings).client();
        let late = client.command_within(Duration::from_millis(1), &["ECHO", "late"]).await;
        assert!(matches!(late, Err(RedisError::TimedOut(_))), "{late:?}");
        let next = client.command(&["ECHO", "next"]);
        go.send(()).unwrap();
        assert_eq!(next.await.unwrap().bytes(), Some(&b"next"[..]));
    });
});

drivers!(a_command_beyond_the_queue_fails_at_once, |driver| {
    let (go, told) = channel::<()>();
    let (_, settings) = fake(move |mut peer| {
        peer.greet();
        told.recv().unwrap();
        while peer.command().is_some() {
            peer.answer("+OK\r\n");
        }
    });
    on_runtime(driver, async move {
        let client = redis(Settings { queue: 3, ..settings }).client();
        let three: Vec<_> = (0..3).map(|_| client.command(&["PING"])).collect();
        assert_eq!(client.command(&["PING"]).await, Err(RedisError::Full));
        go.send(()).unwrap();
        for one in three {
            one.await.unwrap();
        }
        client.command(&["PING"]).await.unwrap();
    });
});

drivers!(what_is_no_reply_ends_the_connection_and_the_next_one_is_clean, |driver| {
    let mut count = 0;
    let (_, settings) = fake(move |mut peer| {
        count += 1;
        if count == 1 {
            peer.greet();
            peer.command();
            peer.answer("HTTP/1.1 400 Bad Request\r\n\r\n");
        } else if count == 2 {
            peer.greet();
            peer.command();
            // One answer too many.
            peer.answer("+1\r\n+2\r\n");
        } else if peer.greet().is_some() {
            while peer.command().is_some() {
                peer.answer("+OK\r\n");
            }
        }
    });
    on_runtime(driver, async move {
        let client = redis(settings).client();
        let broken = client.command(&["PING"]).await;
        assert!(matches!(&broken, Err(RedisError::Lost(why)) if why.contains("RESP")), "{broken:?}");
        for _ in 0..3 {
            until_answered(&client).await;
        }
    });
});

drivers!(a_client_is_used_again_on_another_runtime_of_its_thread, |driver| {
    with_servers(driver, &[], |server| async move {
        let client = redis(server.settings()).client();
        client.command(&["SET", "k", "v"]).await.unwrap();
        // Threads of their own, since a runtime does not run inside another.
        drop(client);
        let settings = server.settings();
        std::thread::spawn(move || {
            let client = redis(settings).client();
            let runtime = ringroad_engine::Runtime::new(driver).unwrap();
            let got = runtime.block_on(async { client.command(&["GET", "k"]).await }).unwrap();
            assert_eq!(got.unwrap().bytes(), Some(&b"v"[..]));
            let lost = runtime.block_on(poll_fn(|_| Poll::Ready(client.command(&["GET", "k"])))).unwrap();
            drop(runtime);
            let runtime = ringroad_engine::Runtime::new(driver).unwrap();
            runtime
                .block_on(async {
                    assert!(matches!(lost.await, Err(RedisError::Lost(_))));
                    until_answered(&client).await;
                })
                .unwrap();
        })
        .join()
        .unwrap();
    });
});
