//! Servers of other projects behind the proxy: nginx, gunicorn, Node and PHP's built-in server, with a socket
//! and curl as clients. A program that is not installed is skipped, and the reason is printed. One server of
//! each kind serves the tests of all drivers.

use crate::environments::environment;
use crate::support::{Client, Site, start, wait_until};
use ringroad_engine::DriverName;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const DRIVERS: [DriverName; 5] =
    [DriverName::Epoll, DriverName::IoUring, DriverName::Poll, DriverName::Select, DriverName::Threads];

/// A server of another project, which ends with its test.
struct Program {
    child: Child,
    /// As `to` of a route names it.
    to: String,
    folder: tempfile::TempDir,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Past the capture of the test harness.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Starts a command; `None` where it is not installed, which is printed.
fn spawn(command: &mut Command) -> Option<Child> {
    match command.stdin(Stdio::null()).spawn() {
        Ok(child) => Some(child),
        Err(why) if why.kind() == ErrorKind::NotFound => {
            skipped(&format!("{:?} is not installed", command.get_program()));
            None
        }
        Err(why) => panic!("{command:?}: {why}"),
    }
}

/// A server that listens at `app.sock` in its folder.
fn on_a_socket(command: impl FnOnce(&Path) -> Option<Command>) -> Option<Program> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let mut command = command(folder.path())?;
    let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    wait_until("the server behind listens", || {
        assert!(child.try_wait().unwrap().is_none(), "{command:?} has ended");
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    Some(Program { child, to: format!("unix:{}", socket.display()), folder })
}

fn nginx() -> Option<Program> {
    on_a_socket(|folder| {
        std::fs::write(folder.join("large"), large()).unwrap();
        let configuration = format!(
            "daemon off; master_process off; pid {0}/pid; error_log stderr;\n\
             events {{}}\n\
             http {{ access_log off; default_type text/plain;\n\
               client_body_temp_path {0}/body; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
               uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
               server {{ listen unix:{0}/app.sock; root {0};\n\
                 location = /hello {{ return 200 \"$request_method $args $http_x_forwarded_for\"; }} }} }}\n",
            folder.display()
        );
        std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-e").arg("stderr").arg("-c").arg(folder.join("nginx.conf")).arg("-p").arg(folder);
        Some(command)
    })
}

const NODE: &str = "
const large = Buffer.alloc(1000000, 'large ');
require('http').createServer((request, response) => {
    const url = new URL(request.url, 'http://a');
    if (url.pathname == '/echo') return request.pipe(response);
    if (url.pathname == '/large') return response.end(large);
    response.end(`${request.method} ${url.search.slice(1)} ${request.headers['x-forwarded-for']}`);
}).listen(process.argv[2]);
";

fn node() -> Option<Program> {
    on_a_socket(|folder| {
        std::fs::write(folder.join("app.js"), NODE).unwrap();
        let mut command = Command::new("node");
        command.arg(folder.join("app.js")).arg(folder.join("app.sock"));
        Some(command)
    })
}

const WSGI: &str = "
def app(environ, start_response):
    path = environ['PATH_INFO']
    if path == '/echo':
        body = environ['wsgi.input'].read()
    elif path == '/large':
        body = (b'large ' * 200000)[:1000000]
    else:
        body = ' '.join(environ.get(key, '') for key in
            ['REQUEST_METHOD', 'QUERY_STRING', 'HTTP_X_FORWARDED_FOR']).encode()
    start_response('200 OK', [('Content-Length', str(len(body)))])
    return [body]
";

/// gunicorn in an environment of its own.
fn gunicorn() -> Option<Program> {
    let program = match environment("gunicorn", &["gunicorn==23.0.0"], &[]) {
        Ok(place) => place.join("bin/gunicorn"),
        Err(why) => {
            skipped(&format!("gunicorn: {why}"));
            return None;
        }
    };
    on_a_socket(|folder| {
        std::fs::write(folder.join("app.py"), WSGI).unwrap();
        let mut command = Command::new(program);
        command.arg("--chdir").arg(folder).arg("--bind").arg(format!("unix:{}/app.sock", folder.display()));
        command.args(["--workers", "1", "--worker-class", "gthread", "--threads", "4", "app:app"]);
        Some(command)
    })
}

const PHP: &str = "<?php
$path = strtok($_SERVER['REQUEST_URI'], '?');
if ($path == '/echo') { readfile('php://input'); }
else if ($path == '/large') { echo substr(str_repeat('large ', 200000), 0, 1000000); }
else { echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['QUERY_STRING'] ?? '', ' ', $_SERVER['HTTP_X_FORWARDED_FOR']; }
";

fn php() -> Option<Program> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.php"), PHP).unwrap();
    let mut command = Command::new("php");
    command.args(["-S", "127.0.0.1:0"]).arg(folder.path().join("app.php"));
    let mut child = spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()))?;
    // It takes a port of its own and prints it: `(http://127.0.0.1:PORT) started`.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let to = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, behind) = line.split_once("(http://")?;
        Some(format!("http://{}", behind.split_once(')')?.0))
    });
    // Its pipe must not fill up.
    std::thread::spawn(move || lines.for_each(drop));
    Some(Program { child, to: to.expect("the address"), folder })
}

fn large() -> Vec<u8> {
    b"large ".iter().copied().cycle().take(1_000_000).collect()
}

fn site(driver: DriverName, program: &Program, more: &str) -> Site {
    let route = format!("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"{}\"\n{more}", program.to);
    start(driver, &route, |_| {})
}

/// Requests that every server answers alike.
fn reads(client: &mut Client) {
    for round in 0..3 {
        let reply = client.get("/hello?a=b");
        assert_eq!((reply.status, reply.text()), (200, "GET a=b 127.0.0.1"), "{round}");
        assert!(client.get("/large").body == large(), "{round}");
        let reply = client.ask("HEAD", "/large", &[]);
        assert_eq!((reply.status, reply.body.len()), (200, 0), "{round}");
    }
    // Together, and answered in their order.
    client.send("GET /hello?1 HTTP/1.1\r\nHost: a\r\n\r\nGET /hello?2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().text(), "GET 1 127.0.0.1");
    assert_eq!(client.reply().text(), "GET 2 127.0.0.1");
}

/// Bodies that come back: of a known length and in chunks, below and above what is kept in memory.
fn echoes(client: &mut Client) {
    for bytes in [0, 1, 10_000, 300_000] {
        let body: Vec<u8> = (0..bytes).map(|at: usize| (at % 251) as u8).collect();
        client.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n")).send(&body);
        assert!(client.reply().body == body, "{bytes} bytes");
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in body.chunks(70_000) {
            client.send(format!("{:x}\r\n", piece.len())).send(piece).send("\r\n");
        }
        client.send("0\r\n\r\n");
        assert!(client.reply().body == body, "{bytes} bytes in chunks");
    }
}

/// Runs curl; `None` where it is not installed, which is printed.
fn curl(site: &Site, path: &str, arguments: &[&str]) -> Option<Output> {
    let url = format!("http://{}{path}", site.address());
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--max-time", "120"]).args(arguments).arg(url);
    let child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

fn curl_reads(site: &Site) {
    for arguments in [&[][..], &["--http1.0"], &["--compressed", "--header", "Connection: close"]] {
        let Some(output) = curl(site, "/hello?a=b", arguments) else { return };
        assert_eq!(output.stdout, b"GET a=b 127.0.0.1", "{arguments:?}");
        let output = curl(site, "/large", arguments).expect("it is installed");
        assert!(output.stdout == large(), "{arguments:?}");
    }
}

/// Uploads a file: with `Expect: 100-continue`, and in chunks.
fn curl_echoes(site: &Site, file: &Path) {
    std::fs::write(file, large()).unwrap();
    let (file, expect) = (format!("@{}", file.display()), "Expect: 100-continue");
    for line in [expect, "Transfer-Encoding: chunked"] {
        let Some(output) = curl(site, "/echo", &["--data-binary", &file, "--header", line]) else { return };
        assert!(output.stdout == large(), "{line}");
    }
}

fn on_each_driver(program: Option<Program>, body: impl Fn(DriverName, &Program)) {
    let Some(program) = program else { return };
    for driver in DRIVERS {
        crate::drivers::on(driver, |driver| body(driver, &program));
    }
}

#[test]
fn nginx_stands_behind_the_proxy() {
    on_each_driver(nginx(), |driver, program| {
        let site = site(driver, program, "");
        let mut client = site.client();
        reads(&mut client);
        curl_reads(&site);
        let reply = client.ask("GET", "/large", &[("Range", "bytes=6-10")]);
        assert_eq!((reply.status, reply.text()), (206, "large"));
        let tag = reply.header("ETag").unwrap().to_owned();
        assert_eq!(client.ask("GET", "/large", &[("If-None-Match", &tag)]).status, 304);
        // It answers before it has read the body.
        client
            .send("POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n")
            .send([b'x'; 300_000]);
        assert_eq!(client.reply().status, 405);
        assert_eq!(client.get("/none").status, 404);
    });
}

#[test]
fn node_stands_behind_the_proxy() {
    stands_behind_the_proxy(node());
}

#[test]
fn gunicorn_stands_behind_the_proxy() {
    stands_behind_the_proxy(gunicorn());
}

/// Has both clients read and echo through the proxy, with requests collected and passed on as they come.
fn stands_behind_the_proxy(program: Option<Program>) {
    on_each_driver(program, |driver, program| {
        for more in ["", "buffer = false\n"] {
            let site = site(driver, program, more);
            let mut client = site.client();
            reads(&mut client);
            echoes(&mut client);
            curl_reads(&site);
            curl_echoes(&site, &program.folder.path().join("upload"));
        }
    });
}

#[test]
fn phps_built_in_server_stands_behind_the_proxy() {
    on_each_driver(php(), |driver, program| {
        // It serves one connection at a time, closes each after its answer, and reads no chunks: requests are
        // collected, so that they have a length.
        let site = site(driver, program, "");
        let mut client = site.client();
        reads(&mut client);
        echoes(&mut client);
        curl_reads(&site);
        curl_echoes(&site, &program.folder.path().join("upload"));
    });
}
