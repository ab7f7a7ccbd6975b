//! `ringroad load --calibrate` as users run it. What it says depends on the machine; that it says so does
//! not.

use crate::support::{Server, ringroad, run};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn without_a_url_it_says_what_this_client_can_prove_and_nothing_else() {
    let outcome = run(&mut ringroad(["load", "--calibrate", "-c", "4"]));
    let text = outcome.text();
    assert_eq!((outcome.code, text.lines().count()), (Some(0), 1), "{text}{}", outcome.stderr);
    assert!(text.starts_with("client ceiling: ") && text.contains(" per request"), "{text}");
    assert_eq!(run(&mut ringroad(["load"])).code, Some(2));
    let outcome = run(&mut ringroad(["load", "--calibrate", "https://127.0.0.1:9/", "-k"]));
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
}

#[test]
fn with_a_url_the_load_is_told_beside_what_could_have_been() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let server = Server::start(&["--model", "poll", "--protocol", "echo"]);
    let url = format!("tcp://{}", server.address);
    let outcome = run(&mut ringroad([
        "load",
        "--calibrate",
        &url,
        "-c",
        "2",
        "-n",
        "50",
        "--out",
        file.to_str().unwrap(),
    ]));
    let text = outcome.text();
    assert!(text.contains("  ceiling    ") && text.contains(" for this client"), "{text}{}", outcome.stderr);
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let ceiling = &record["cells"][0]["details"]["ceiling"];
    assert!(ceiling["rps"].as_f64().unwrap() >= ceiling["reached_rps"].as_f64().unwrap(), "{ceiling}");
    // The null server was another one.
    assert_eq!((&record["cells"][0]["completed"], outcome.code), (&50.into(), Some(0)));
    server.stop(Signal::INT);
}
