//! `ringroad workers` and `ringroad serve --drivers` from outside: what is printed, and moves while `ringroad
//! load` asks.

use crate::serve::{Serving, drivers};
use crate::support::{ringroad, run, skip};
use std::fs;
use std::path::PathBuf;

/// A server with a control socket, in a folder of its own.
struct Site {
    folder: tempfile::TempDir,
    serving: Serving,
}

impl Site {
    fn start(arguments: &[&str]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("index.html"), "hello").unwrap();
        let control = folder.path().join("control.sock");
        let mut command = ringroad(["serve", "--listen", "127.0.0.1:0", "--control"]);
        let serving = Serving::of(command.arg(control).args(arguments).arg(folder.path()));
        Site { folder, serving }
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    /// Exit code, what was printed, and the complaints.
    fn workers(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let outcome = run(ringroad(["workers"]).args(arguments).arg("--control").arg(self.control()));
        (outcome.code, outcome.text(), outcome.stderr)
    }

    /// Threads of each address on a driver.
    fn on(&self, driver: &str) -> u64 {
        let (code, text, complaints) = self.workers(&["status", "--json"]);
        assert_eq!(code, Some(0), "{complaints}");
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let all = told["drivers"].as_array().unwrap();
        let one = all.iter().find(|one| one["driver"] == driver);
        one.map_or(0, |one| one["workers"].as_u64().unwrap())
    }
}

#[test]
fn workers_move_between_every_two_drivers_while_load_asks_and_nothing_fails() {
    let here: Vec<_> = drivers().collect();
    let site = Site::start(&["--driver", here[0], "--workers", "2"]);
    let url = format!("http://{}/", site.serving.address);
    let record = site.folder.path().join("record.json");
    let mut load = ringroad(["load", &url, "-c", "8", "-r", "500", "-d", "8s", "-t", "1", "-q", "-o"]);
    let mut load = crate::support::Kill(load.arg(&record).spawn().unwrap());
    let mut at = here[0];
    let mut moves = 0;
    while load.0.try_wait().unwrap().is_none() {
        for to in here.iter().filter(|to| **to != at).copied().collect::<Vec<_>>() {
            let (code, text, complaints) = site.workers(&["move", at, to]);
            assert_eq!((code, complaints.as_str()), (Some(0), ""), "{text}");
            assert_eq!(text, format!("2 workers of each address moved from {at} to {to}\n"));
            assert_eq!((site.on(at), site.on(to)), (0, 2));
            at = to;
            moves += 1;
        }
    }
    assert!(moves + 1 >= here.len(), "{moves} moves");
    let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
    let errors = &record["cells"][0]["errors"];
    for kind in ["connect", "reset", "timeout", "status", "protocol"] {
        assert_eq!(errors[kind], 0, "{errors}");
    }
}

#[test]
fn drivers_on_the_command_line_are_told_and_shown() {
    let here: Vec<_> = drivers().collect();
    let [first, second, ..] = here.as_slice() else { return skip("two drivers", "there are not two here") };
    let site = Site::start(&["--drivers", &format!("{first}=1,{second}=2")]);
    let line = |what: &str| site.serving.said.iter().any(|line| line.trim() == what);
    assert!(line(&format!("workers  1 on {first}, 2 on {second}")), "{:?}", site.serving.said);
    let (code, text, _) = site.workers(&["status"]);
    assert_eq!(code, Some(0));
    let words = |driver: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(driver)).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!((words(first)[1].as_str(), words(second)[1].as_str()), ("1", "2"));
    let (code, _, complaints) = site.workers(&["move", first, second, "--workers", "2"]);
    assert_eq!(code, Some(1));
    assert!(
        complaints.contains(&format!("each address has 1 on {first}, and 2 were to be moved")),
        "{complaints}"
    );
    for wrong in ["epoll", "epoll=0", "sim=1", "epoll=1,epoll=1", "epoll=x"] {
        let outcome = run(&mut ringroad(["serve", "--drivers", wrong]));
        assert_eq!(outcome.code, Some(2), "{wrong}: {outcome:?}");
    }
    let outcome = run(&mut ringroad(["serve", "--drivers", "epoll=1", "--workers", "2"]));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
}

#[test]
fn without_a_server_it_says_how_to_name_one() {
    let outcome = run(&mut ringroad(["workers", "status"]));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("--control PATH"), "{}", outcome.stderr);
}

/// What is claimed is the library's; here its figures are those of a server that runs.
#[test]
fn lab_advises_by_the_figures_of_a_server_or_says_why_it_cannot() {
    let here: Vec<_> = drivers().collect();
    let [first, second, ..] = here.as_slice() else { return skip("two drivers", "there are not two here") };
    let site = Site::start(&["--drivers", &format!("{first}=1,{second}=1")]);
    let readings: Vec<PathBuf> = (0..8)
        .map(|at| {
            let (code, text, complaints) = site.workers(&["status", "--json"]);
            assert_eq!(code, Some(0), "{complaints}");
            let file = site.folder.path().join(format!("{at}.json"));
            fs::write(&file, text).unwrap();
            file
        })
        .collect();
    let advise = |from: &[PathBuf]| run(ringroad(["lab", "advise", "--traffic"]).args(from));
    let outcome = advise(&readings);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("no driver has answered requests"), "{}", outcome.stderr);
    let outcome = advise(&readings[..3]);
    assert!(outcome.stderr.contains("3 readings are too few: 7 make 6 intervals"), "{}", outcome.stderr);
    let page = site.folder.path().join("index.html");
    let outcome = advise(&[page]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("it has no figures of drivers"), "{}", outcome.stderr);
    let url = format!("http://{}/none", site.serving.address);
    let outcome = run(&mut ringroad(["lab", "advise", "--traffic", &url, "--for", "1s"]));
    assert!(outcome.stderr.contains("404 Not Found"), "{}", outcome.stderr);
    let outcome = run(&mut ringroad(["lab", "advise", "--traffic", &url, "--connections", "3"]));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
}
