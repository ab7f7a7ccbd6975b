//! `cargo xtask picture`: docs/picture.svg, the terminal that README shows, from a real run.
//!
//! It starts `ringroad serve`, runs the commands of [`SCENES`] with the release binary, and draws what they
//! print. The load is run now; the table of the lab is that of a record in docs/results, which took minutes
//! on a quiet machine. The port is shown as 8080, a cut is shown as `…`, and long lines are wrapped; nothing
//! else is changed. Start at [`draw`].

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Columns of the terminal. Longer lines are wrapped.
const COLUMNS: usize = 104;

/// Pixels of a character and of a line.
const CHARACTER: f64 = 7.8;
const LINE: f64 = 18.0;
const MARGIN: f64 = 18.0;

/// A command line, and which of its output is shown: from a line that contains one text up to a line that
/// contains another, without the paragraph of a line that contains a third.
struct Scene {
    words: &'static [&'static str],
    from: &'static str,
    to: &'static str,
    without: &'static str,
}

/// A record that is shown. The program gets a copy, since it writes its page beside the record.
const RECORD: &str = "docs/results/quick/record.json";

/// `{url}` becomes the address of the server.
const SCENES: [Scene; 2] = [
    Scene {
        words: &["load", "{url}", "-c", "50", "-d", "10s"],
        from: "connections, closed",
        to: "\0",
        without: "distribution of",
    },
    Scene { words: &["lab", "report", RECORD], from: "HTTP, 64 connections", to: "", without: "\0" },
];

/// Runs the scenes with `ringroad` and writes the picture.
pub(crate) fn draw(root: &Path, ringroad: &Path) -> io::Result<PathBuf> {
    let server = Server::start(ringroad, &root.join("contrib/public"))?;
    let scratch = tempfile::tempdir()?;
    let record = scratch.path().join("record.json");
    fs::copy(root.join(RECORD), &record)?;
    let mut lines = Vec::new();
    for scene in &SCENES {
        let fill = |word: &str| match word {
            RECORD => record.display().to_string(),
            word => word.replace("{url}", &server.url),
        };
        let output = Command::new(ringroad)
            .args(scene.words.iter().map(|word| fill(word)))
            .env("COLUMNS", COLUMNS.to_string())
            .stderr(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).replace(&server.url, SHOWN);
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(format!("$ ringroad {}", scene.words.join(" ").replace("{url}", SHOWN)));
        let part = excerpt(&text, scene);
        if part.is_empty() {
            let message = format!("{:?} printed no line with {:?}:\n{text}", scene.words, scene.from);
            return Err(io::Error::other(message));
        }
        lines.extend(part);
    }
    let file = root.join("docs/picture.svg");
    fs::write(&file, svg(&lines))?;
    Ok(file)
}

const SHOWN: &str = "http://127.0.0.1:8080/";

/// The lines of a scene, without blank lines at the end.
fn excerpt(text: &str, scene: &Scene) -> Vec<String> {
    let lines =
        text.lines().skip_while(|line| !line.contains(scene.from)).take_while(|line| match scene.to {
            "" => !line.trim().is_empty(),
            to => !line.contains(to),
        });
    let mut part = Vec::new();
    let mut is_left_out = false;
    for line in lines {
        if line.contains(scene.without) {
            is_left_out = true;
            part.push("  …".to_owned());
        }
        is_left_out &= !line.trim().is_empty();
        if !is_left_out {
            part.extend(wrapped(line));
        }
    }
    while part.last().is_some_and(|line| line.trim().is_empty()) {
        part.pop();
    }
    part
}

/// A line, broken between words where it is too long. What follows keeps its indent.
fn wrapped(line: &str) -> Vec<String> {
    let indent = " ".repeat(line.len() - line.trim_start().len());
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while rest.chars().count() > COLUMNS {
        let room = rest.char_indices().nth(COLUMNS).map_or(rest.len(), |(at, _)| at);
        let Some(at) = rest[indent.len()..room].rfind(' ') else { break };
        let next = format!("{indent}{}", &rest[indent.len() + at + 1..]);
        rest.truncate(indent.len() + at);
        lines.push(std::mem::replace(&mut rest, next));
    }
    lines.push(rest);
    lines
}

/// The picture, complete in itself: fonts by family, colours for light and dark.
fn svg(lines: &[String]) -> String {
    let width = COLUMNS as f64 * CHARACTER + 2.0 * MARGIN;
    let height = lines.len() as f64 * LINE + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>A terminal: ringroad load and ringroad lab</title>\n\
         <style>\n\
         text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328;\
         white-space:pre}}\n\
         rect{{fill:#f6f8fa;stroke:#d1d9e0}}.command{{font-weight:600}}.bar{{fill:#0969da}}\n\
         .good{{fill:#1a7f37}}.doubt{{fill:#9a6700}}.bad{{fill:#cf222e}}\n\
         @media (prefers-color-scheme:dark){{text{{fill:#d1d7e0}}rect{{fill:#151b23;stroke:#3d444d}}\
         .bar{{fill:#4493f8}}.good{{fill:#3fb950}}.doubt{{fill:#d29922}}.bad{{fill:#f85149}}}}\n\
         </style>\n<rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        width - 1.0,
        height - 1.0
    );
    for (index, line) in lines.iter().enumerate() {
        let y = MARGIN + LINE * (index as f64 + 0.75);
        for (start, part, class) in parts(line) {
            let x = MARGIN + start as f64 * CHARACTER;
            // The length is given, so that columns line up for any font.
            let length = part.chars().count() as f64 * CHARACTER;
            let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
            svg.push_str(&format!(
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\"{class}>{}</text>\n",
                escaped(part)
            ));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line in pieces: the column where each begins, its text and its class. Runs of two blanks and more are
/// between.
fn parts(line: &str) -> Vec<(usize, &str, &'static str)> {
    if line.starts_with("$ ") {
        return vec![(0, line, "command")];
    }
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(rest) = line.get(at..).filter(|rest| !rest.trim().is_empty()) {
        let begin = at + (rest.len() - rest.trim_start().len());
        let rest = &line[begin..];
        let is_bar = rest.starts_with(bar);
        let end = match is_bar {
            true => rest.find(|letter| !bar(letter)),
            false => [rest.find("  "), rest.find(bar)].into_iter().flatten().min(),
        };
        let part = rest[..end.unwrap_or(rest.len())].trim_end();
        let class = match part.split([' ', ':']).next() {
            _ if is_bar => "bar",
            Some("VALID") => "good",
            Some("SUSPECT") => "doubt",
            Some("INVALID") => "bad",
            _ => "",
        };
        parts.push((line[..begin].chars().count(), part, class));
        at = begin + part.len();
    }
    parts
}

/// The blocks that bars are made of.
fn bar(letter: char) -> bool {
    ('\u{2580}'..='\u{259f}').contains(&letter)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `ringroad serve`, until this is dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(ringroad: &Path, folder: &Path) -> io::Result<Server> {
        let mut command = Command::new(ringroad);
        command.arg("serve").arg(folder).args(["--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        let mut server = Server { child, url: String::new() };
        for line in output.into_iter().flat_map(BufRead::lines) {
            if let Some(url) = line?.split_whitespace().find(|word| word.starts_with("http://")) {
                server.url = url.to_owned();
                return Ok(server);
            }
        }
        Err(io::Error::other("ringroad serve printed no address"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It writes nothing that a kill could tear.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_goes_from_one_line_to_another() {
        let text = "a\nHTTP, 64\nthreads\n\nengine-epoll\nHTTP, 64\n";
        let scene = |from, to, without| Scene { words: &[], from, to, without };
        assert_eq!(excerpt(text, &scene("HTTP", "engine-", "\0")), ["HTTP, 64", "threads"]);
        assert_eq!(excerpt(text, &scene("a", "", "\0")), ["a", "HTTP, 64", "threads"]);
        assert_eq!(excerpt(text, &scene("none", "engine-", "\0")), [""; 0]);
        let without = excerpt(text, &scene("a", "\0", "HTTP"));
        assert_eq!(without, ["a", "  …", "", "engine-epoll", "  …"]);
    }

    #[test]
    fn a_long_line_goes_on_below_with_its_indent() {
        let long = format!("  {}", "word ".repeat(40));
        let lines = wrapped(long.trim_end());
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.starts_with("  word") && line.chars().count() <= COLUMNS));
        assert_eq!(lines.join(" ").split_whitespace().count(), 40);
        assert_eq!(wrapped(&"x".repeat(COLUMNS + 1)).len(), 1);
    }

    #[test]
    fn pieces_keep_their_columns_and_know_what_they_are() {
        assert_eq!(parts("  p50   1 µs"), [(2, "p50", ""), (8, "1 µs", "")]);
        assert_eq!(parts("µs ██▏ = 1"), [(0, "µs", ""), (3, "██▏", "bar"), (7, "= 1", "")]);
        assert_eq!(parts("SUSPECT: why")[0].2, "doubt");
        assert_eq!(parts("$ ringroad  x"), [(0, "$ ringroad  x", "command")]);
    }

    #[test]
    fn what_xml_reserves_is_escaped() {
        let drawn = svg(&["p99<5ms & more".to_owned()]);
        assert!(drawn.contains("p99&lt;5ms &amp; more"), "{drawn}");
    }
}
