//! The page in a real browser: it fits a phone and a desk, and the browser has nothing to complain of.
//!
//! Chromium without a screen, where there is one that runs; else the test says why it looked at nothing. The
//! page gets a few lines of script for this, which it has not by itself: they leave what was measured in the
//! document, and the browser prints the document.

use ringroad_lab::page;
use ringroad_measure::Record;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, waitpgid};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// What a page is asked, and tells the window it is framed in: how wide it became and how wide it may be, how
/// many charts are to be seen, and the colour of its ground.
const PROBE: &str = "<script>parent.postMessage([document.documentElement.scrollWidth, innerWidth, \
    [...document.querySelectorAll('svg')].filter(svg => svg.getClientRects().length > 0).length, \
    getComputedStyle(document.body).backgroundColor].join('|'), '*')</script>";

/// A guard against hanging: a browser that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// The processes of a browser, ended when it is dropped: they write into their folder until then. All of them
/// are children of this process once the first has ended.
struct Processes(Pid);

impl Drop for Processes {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
        while waitpgid(self.0, WaitOptions::empty()).is_ok() {}
    }
}

/// A page as the browser saw it.
struct Seen {
    /// Width of all that is in it, width of the window, charts shown, colour of the ground.
    probe: Option<Vec<String>>,
    /// What the browser's console got.
    console: Vec<String>,
}

/// Lets the browser look at a page; `None` if it cannot be run.
fn look(browser: &str, folder: &Path, html: &str, width: u32, dark: bool) -> Option<Seen> {
    fs::write(folder.join("page.html"), html).unwrap();
    // In a frame of the wanted width: a window is never narrower than 500.
    let file = folder.join("frame.html");
    let frame = format!(
        "<!DOCTYPE html><meta name=\"color-scheme\" content=\"light dark\"><body><script>onmessage = message => \
         document.body.setAttribute('data-probe', message.data)</script><iframe src=\"page.html\" \
         style=\"border:0;width:{width}px;height:800px\"></iframe></body>"
    );
    fs::write(&file, frame).unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"])
        .args(["--enable-logging=stderr", "--v=0", "--no-first-run", "--disable-extensions"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(["--window-size=1400,900", "--virtual-time-budget=10000"]);
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    command
        .arg(format!("file://{}", file.display()))
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    set_child_subreaper(Some(getpid())).unwrap();
    let process = command.spawn().ok()?;
    let processes = Processes(Pid::from_child(&process));
    let group = processes.0;
    let (done, ended) = channel::<()>();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
        let output = process.wait_with_output();
        drop(done);
        output
    });
    drop(processes);
    let output = output.ok()?;
    let (document, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let probe = document
        .split_once("data-probe=\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(probe, _)| probe.split('|').map(str::to_owned).collect());
    let console = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some(Seen { probe, console })
}

/// What the browser measured of a page, and what its console got. On a busy machine it may end before the
/// page has told it.
fn measured(browser: &str, folder: &Path, html: &str, width: u32, dark: bool) -> (Vec<String>, Vec<String>) {
    let told = (0..4).find_map(|_| {
        let Seen { probe, console } = look(browser, folder, html, width, dark)?;
        Some((probe?, console))
    });
    told.unwrap_or_else(|| panic!("{browser} told nothing of a page {width} wide"))
}

/// A browser that looks at pages, measures them and repeats what their console got; or why there is none.
fn browser(folder: &Path) -> Result<&'static str, String> {
    let mut why = "no chromium is installed".to_owned();
    let complaint = format!("<!DOCTYPE html><body><script>console.error('heard')</script>{PROBE}</body>");
    for name in ["chromium", "chromium-browser", "google-chrome", "chrome"] {
        match look(name, folder, &complaint, 500, false) {
            None => {}
            Some(seen) if seen.probe.is_none() => why = format!("{name} does not run here"),
            Some(seen) if seen.console.is_empty() => why = format!("{name} does not repeat its console"),
            Some(_) => return Ok(name),
        }
    }
    Err(why)
}

fn kept(name: &str) -> Record {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results").join(name).join("record.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_page_fits_a_phone_and_a_desk_in_light_and_dark_and_the_console_stays_empty() {
    let folder = tempfile::tempdir().unwrap();
    let browser = match browser(folder.path()) {
        Ok(browser) => browser,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    for name in ["floor", "quick"] {
        let html = page::html(&kept(name)).replace("</body>", &format!("{PROBE}</body>"));
        let mut grounds = Vec::new();
        for (width, dark) in [(390, false), (390, true), (1280, false)] {
            let (probe, console) = measured(browser, folder.path(), &html, width, dark);
            assert!(console.is_empty(), "{name} at {width}: {console:?}");
            let number = |nth: usize| probe[nth].parse::<u32>().unwrap();
            assert_eq!(number(1), width);
            assert!(number(0) <= number(1), "{name} at {width}: {probe:?}: something sticks out");
            assert!(number(2) > 5, "{name} at {width}: {probe:?}: charts are not to be seen");
            grounds.push(probe[3].clone());
        }
        assert!(grounds[0] != grounds[1] && grounds[0] == grounds[2], "{name}: {grounds:?}");
    }
}
