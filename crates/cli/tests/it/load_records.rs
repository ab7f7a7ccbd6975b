//! Records of loads under the lab's hands: merged, compared, drawn. Figures are not looked at.

use crate::support::{Server, ringroad, run};
use ringroad_measure::Histogram;
use ringroad_measure::record::Record;
use rustix::process::Signal;
use std::path::{Path, PathBuf};

fn read(file: &Path) -> Record {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// As many loads of 30 requests as one record.
fn loads(folder: &Path, name: &str, url: &str, count: usize) -> PathBuf {
    let files: Vec<PathBuf> = (0..count).map(|nth| folder.join(format!("{name}-{nth}.json"))).collect();
    for file in &files {
        let outcome =
            run(&mut ringroad(["load", url, "-c", "1", "-n", "30", "-q", "--out", file.to_str().unwrap()]));
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    }
    let merged = folder.join(format!("{name}.json"));
    let mut command = ringroad(["lab", "merge", "--out", merged.to_str().unwrap()]);
    let outcome = run(command.args(&files));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    merged
}

#[test]
fn records_of_several_loads_are_merged_compared_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let before = loads(folder.path(), "before", &url, 6);
    let after = loads(folder.path(), "after", &url, 6);
    server.stop(Signal::INT);
    let record = read(&before);
    let [cell] = record.cells.as_slice() else { panic!("one cell: {record:?}") };
    assert_eq!((cell.runs.len(), cell.sent, cell.completed), (6, 180, 180));
    assert_eq!(Histogram::from_base64(cell.histogram.as_ref().unwrap()).unwrap().count(), 180);
    for figure in ["rate", "p99"] {
        let [before, after] = [&before, &after].map(|path| path.to_str().unwrap());
        let outcome = run(&mut ringroad(["lab", "compare", before, after, "--figure", figure]));
        let text = outcome.text();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(text.contains(&cell.id) && !text.contains("not compared"), "{text}");
    }
    let report = run(&mut ringroad(["lab", "report", before.to_str().unwrap()]));
    assert_eq!(report.code, Some(0), "{}", report.stderr);
}
