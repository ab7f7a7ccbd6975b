//! `ringroad load --broadcast` as users run it, against a hub of `ringroad serve`.

use crate::serve::{Serving, drivers};
use crate::support::{ringroad, run};
use serde_json::Value;

/// Messages reach a WebSocket hub's members through its own envelope, in which a message is part of JSON.
#[test]
fn each_message_to_a_hub_reaches_all_members_and_the_record_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("push.toml");
    let text = r#"
        workers = 2
        [auth.k]
        kind = "key"
        keys = ["secret"]
        [hub.news]
        [[route]]
        path = "/hub"
        kind = "hub"
        hub = "news"
        speak = ["websocket"]
        publish_auth = "k"
        "#;
    std::fs::write(&config, text).unwrap();
    for driver in drivers() {
        let serving = Serving::start(&["--config", config.to_str().unwrap(), "--driver", driver]);
        let url = format!("ws://{}/hub?topic=room", serving.address);
        let file = folder.path().join(format!("{driver}.json"));
        let body = r#"{"topic":"room","data":"{mark}"}"#;
        let arguments =
            ["-H", "Authorization: Bearer secret", "--body", body, "-c", "5", "-n", "4", "-r", "50"];
        let outcome = run(ringroad(["load", &url, "--broadcast", "--driver", driver])
            .args(arguments)
            .args(["--timeout", "60s", "-o"])
            .arg(&file));
        let text = outcome.text();
        let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let told = &record["cells"][0]["details"]["broadcast"];
        let expected: Value = serde_json::from_str(
            r#"{"members":5,"published":4,"expected":20,"missing":0,"repeated":0,"to_sender":true}"#,
        )
        .unwrap();
        assert_eq!(*told, expected, "{driver}: {text}{}", outcome.stderr);
        assert!(text.contains("5 connections, broadcast at 50.0 /s evenly"), "{driver}: {text}");
        assert!(text.contains("  messages   4, each to 5 connections\n"), "{driver}: {text}");
        assert!(text.contains("20 expected, 20 completed, 0 failed"), "{driver}: {text}");
    }
}

#[test]
fn what_cannot_be_broadcast_is_refused_with_2() {
    let url = "ws://127.0.0.1:1/";
    for (arguments, why) in [
        (&["http://127.0.0.1:1/", "--broadcast"][..], "ws:// and wss:// only"),
        (&[url, "--broadcast", "--body", "hello"], "needs {mark}"),
        (&[url, "--broadcast", "--body", "{mark}{mark}"], "more than once"),
        (&[url, "--broadcast", "-c", "1"], "at least two connections"),
        (&[url, "--broadcast", "--hold"], "cannot be used with"),
        (&[url, "--broadcast", "--processes", "2"], "cannot be used with"),
        (&[url, "--join", "x"], "--broadcast"),
    ] {
        let outcome = run(&mut ringroad(["load"].iter().chain(arguments)));
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{arguments:?}: {}", outcome.stderr);
    }
}
