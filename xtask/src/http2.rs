//! `cargo xtask http2`: other projects' tools judge our HTTP/2: h2spec for conformance, curl and nghttp for
//! two clients that are in use, h2load for many streams at a time.
//!
//! h2spec comes by the Go module proxy, in the version that is named here; the others are packages of the
//! system (`curl`, `nghttp2-client`). A tool that is not installed is named and is a failure. The results,
//! with each failed case explained, are in docs/results/http2.md.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

/// The version of h2spec. Its module has no version file of its own.
const H2SPEC: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// Cases of h2spec that fail by design, each with its reason in docs/results/http2.md.
const FAILS_BY_DESIGN: &[&str] = &["2: Sends invalid connection preface"];

/// A server that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, or ends now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn judge(root: &Path) -> ExitCode {
    match judged(root) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("http2: {why}");
            ExitCode::FAILURE
        }
    }
}

fn judged(root: &Path) -> io::Result<bool> {
    let built = Command::new("cargo")
        .current_dir(root)
        .args(["build", "-p", "ringroad", "--example", "http2"])
        .status()?;
    if !built.success() {
        return Ok(false);
    }
    let folder = root.join("target/http2");
    fs::create_dir_all(&folder)?;
    let mut all = true;
    for driver in ["io_uring", "epoll"] {
        let mut server = Command::new(root.join("target/debug/examples/http2"))
            .arg("127.0.0.1:0")
            .env("RINGROAD_DRIVER", driver)
            .stderr(Stdio::piped())
            .spawn()?;
        let said = server.stderr.take().map(BufReader::new);
        let server = Server(server);
        let mut line = String::new();
        said.ok_or_else(|| io::Error::other("the server has no standard error"))?.read_line(&mut line)?;
        let Some(address) = line.split('/').nth(2).filter(|address| address.contains(':')) else {
            return Err(io::Error::other(format!("the server did not say where it listens: {line}")));
        };
        println!("{driver}, at {address}");
        all &= h2spec(&folder, address)?;
        all &= clients(&folder, address)?;
        drop(server);
    }
    Ok(all)
}

/// Runs h2spec strictly; whether only what fails by design has failed.
fn h2spec(folder: &Path, address: &str) -> io::Result<bool> {
    let program = folder.join("h2spec");
    if !program.exists() {
        let go = |arguments: &[&str]| {
            let ran =
                Command::new("go").current_dir(folder).env("GOFLAGS", "-mod=mod").args(arguments).status()?;
            if ran.success() { Ok(()) } else { Err(io::Error::other(format!("go {}", arguments.join(" ")))) }
        };
        fs::write(folder.join("go.mod"), "module judge\n\ngo 1.22\n")?;
        go(&["get", H2SPEC])?;
        let (package, _) = H2SPEC.split_once('@').unwrap_or((H2SPEC, ""));
        go(&["build", "-o", "h2spec", package])?;
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let ran = Command::new(program).args(["-h", host, "-p", port, "--strict", "-o", "5"]).output()?;
    let text = String::from_utf8_lossy(&ran.stdout);
    let summary = text.lines().last().unwrap_or_default();
    println!("  h2spec --strict: {summary}");
    // Each failed case stands twice: where it was run, and in the list at the end.
    let list = text.split_once("Failures:").map_or("", |(_, list)| list);
    let failed: Vec<&str> = list.lines().filter_map(|line| line.trim().strip_prefix("× ")).collect();
    for case in &failed {
        let by_design = if FAILS_BY_DESIGN.contains(case) { "by design" } else { "NOT EXPECTED" };
        println!("    failed, {by_design}: {case}");
    }
    Ok(summary.contains("146 tests") && failed.iter().all(|case| FAILS_BY_DESIGN.contains(case)))
}

/// Runs the clients; whether each got what it asked for.
fn clients(folder: &Path, address: &str) -> io::Result<bool> {
    let url = format!("http://{address}/");
    let blob = folder.join("blob");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    fs::write(&blob, &bytes)?;
    let curl = Command::new("curl")
        .args(["-sS", "--http2-prior-knowledge", "--data-binary"])
        .arg(format!("@{}", blob.display()))
        .arg(&url)
        .output()?;
    let echoed = curl.status.success() && curl.stdout == bytes;
    println!("  curl: 3 MB posted and back: {}", if echoed { "the same" } else { "DIFFERENT" });
    let nghttp = Command::new("nghttp").args(["-n", "-s", "-m", "50", &url]).output()?;
    let got =
        String::from_utf8_lossy(&nghttp.stdout).lines().filter(|line| line.ends_with(" 200   20 /")).count();
    println!("  nghttp: {got} of 50 streams answered");
    let load = Command::new("h2load").args(["-n", "20000", "-c", "10", "-m", "100", &url]).output()?;
    let text = String::from_utf8_lossy(&load.stdout);
    let line = text.lines().find(|line| line.starts_with("requests:")).unwrap_or("requests: none");
    println!("  h2load: {line}");
    Ok(echoed && got == 50 && line.contains("20000 succeeded, 0 failed"))
}
