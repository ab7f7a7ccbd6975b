//! Every mistake in a configuration is told with its line, its key, and what was expected.

use ringroad_serve::Config;
use rustix::fs::{CWD, FileType, Mode};
use std::path::Path;

/// Lines of `LINE: KEY: WHAT`.
fn mistakes(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let wrong = Config::parse(text, &folder.path().join("site.toml")).expect_err("a mistake");
    let said = wrong.to_string();
    let named = format!("configuration, on {}:", folder.path().join("site.toml").display());
    said.lines().map(|line| line.strip_prefix(&named).unwrap_or(line).to_owned()).collect()
}

const ROUTE: &str = "[[route]]\npath = \"/\"\nkind = \"health\"\n";

#[test]
fn each_mistake_is_told_with_its_line_and_key() {
    for (line, said) in [
        (
            "listen = \"80x\"",
            "listen: expected an address with its port, as \"127.0.0.1:8080\", \"[::1]:8080\" or \":8080\", or \"unix:PATH\", \"systemd\" or \"systemd:NAME\", found \"80x\"",
        ),
        (
            "listen = \"unix:@site\"",
            "listen: expected the file of a Unix socket, as \"unix:PATH\" (abstract sockets are not supported), found \"unix:@site\"",
        ),
        (
            "upstream.u.servers = [\"unix:@app\"]",
            "upstream.u.servers[1]: expected the file of a Unix socket, as \"unix:PATH\" (abstract sockets are not supported), found \"unix:@app\"",
        ),
        // Not also that servers which are missing are not https://.
        (
            "upstream.u.tls = {}",
            "upstream.u.servers: missing: expected servers, as [\"http://10.0.0.1:3000\"]",
        ),
        (
            "max_connections = \"$NO_SUCH_VARIABLE\"",
            "max_connections: no variable NO_SUCH_VARIABLE in the environment (${NO_SUCH_VARIABLE:-x} has the default x)",
        ),
        ("listen = []", "listen: expected addresses to listen on, found an empty list"),
        ("listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", "listen: 127.0.0.1:1 is there twice"),
        ("workers = \"two\"", "workers: expected a number from 0 to 1024, found \"two\""),
        ("workers = -1", "workers: expected a number from 0 to 1024, found -1"),
        ("workers = 1025", "workers: expected a number from 0 to 1024, found 1025"),
        ("reuse_port = 1", "reuse_port: expected true or false, found 1"),
        (
            "driver = \"kqueue\"",
            "driver: expected one of auto, io_uring, epoll, poll, select, threads, found \"kqueue\"",
        ),
        (
            "drain = \"1 week\"",
            "drain: expected a span of time, as \"250ms\", \"10s\", \"5m\" or \"1h\" (units: ms, s, m, h, d; without one: seconds), at most a day, found \"1 week\"",
        ),
        (
            "request_id = \"X Request\"",
            "request_id: expected the name of a header line: method or header name: expected a token",
        ),
        ("max_connections = 0", "max_connections: expected a number from 1 to 1073741824, found 0"),
        (
            "limits.body = \"8 MB\"",
            "limits.body: expected a number of bytes (65536, \"64K\", \"8M\", \"2G\"), found \"8 MB\"",
        ),
        (
            "limits.request_line = 10",
            "limits.request_line: expected a number of bytes (65536, \"64K\", \"8M\", \"2G\"), 64 to 65535, found 10",
        ),
        ("limits.header_count = 256", "limits.header_count: expected a number from 1 to 255, found 256"),
        ("limits = 5", "limits: expected a table, found 5"),
        (
            "timeouts.header = \"500ms\"",
            "timeouts.header: expected a span of time, as \"250ms\", \"10s\", \"5m\" or \"1h\" (units: ms, s, m, h, d; without one: seconds), at least 1s, at most a day, found \"500ms\"",
        ),
        ("log.format = \"json\"", "log.file: missing: expected a file, or \"-\" for standard output"),
        (
            "log = { file = \"-\", format = \"xml\" }",
            "log.format: expected \"combined\", \"json\", or a text with placeholders, as \"{client} {status}\", found \"xml\"",
        ),
        (
            "log.to = \"access.log\"",
            "log.to: expected \"syslog:\", \"syslog:/run/log.sock\" or \"syslog:192.0.2.1:514\" (for a file the key is `file`), found \"access.log\"",
        ),
        // Keys that are none.
        ("worker = 2", "worker: not a key here (did you mean `workers`?)"),
        ("lisTen = 2", "lisTen: not a key here (did you mean `listen`?)"),
        (
            "worker_processes = 2",
            "worker_processes: not a key here (nginx's `worker_processes` is `workers` here)",
        ),
        ("worker_num = 2", "worker_num: not a key here (Swoole's `worker_num` is `workers` here)"),
        (
            "limits.client_max_body_size = 2",
            "limits.client_max_body_size: not a key here (nginx's `client_max_body_size` is `body` here)",
        ),
        ("timeouts.keepalive = 2", "timeouts.keepalive: not a key here (did you mean `keep_alive`?)"),
        (
            "log = { file = \"-\", colour = true }",
            "log.colour: not a key here (there are: facility, file, format, only, to)",
        ),
        // No TOML at all.
        ("listen = ", "not TOML: "),
        ("listen = \"127.0.0.1:80", "not TOML: "),
    ] {
        let found = mistakes(&format!("# a comment\n\n{line}\n{ROUTE}"));
        let [one] = found.as_slice() else { panic!("one mistake for {line}: {found:?}") };
        assert!(one.starts_with(&format!("3: {said}")), "{line}: {one}");
    }
}

#[test]
fn each_mistake_of_a_route_is_told_with_its_number() {
    for (lines, said) in [
        (
            "path = \"/\"",
            "1: route[1].kind: missing: expected what to answer, one of \"static\", \"upload\", ",
        ),
        (
            "path = \"/\"\nknd = \"static\"\nroot = \".\"",
            "3: route[1].knd: not a key here (did you mean `kind`?)",
        ),
        (
            "kind = \"health\"",
            "1: route[1].path: missing: expected the beginning of a path, as \"/\" or \"/files/\"",
        ),
        (
            "path = \"a\"\nkind = \"health\"",
            "2: route[1].path: expected a path that begins with `/`, decoded and without `.` and `..`, found \"a\"",
        ),
        ("path = \"/../a\"\nkind = \"health\"", "2: route[1].path: expected a path that begins with"),
        ("path = \"/a%20\"\nkind = \"health\"", "2: route[1].path: expected a path that begins with"),
        (
            "path = \"/\"\nkind = \"statik\"",
            "3: route[1].kind: expected one of \"static\", \"upload\", \"respond\", ",
        ),
        (
            "path = \"/\"\nkind = \"health\"\nhosts = [\"a b\", \"ok.example\", \"c d\"]",
            "4: route[1].hosts: expected a host without a port, as \"example.org\" or \"*.example.org\", found \"a b\" and \"c d\"",
        ),
        ("path = \"/\"\nkind = \"static\"", "1: route[1].root: missing: expected a folder"),
        ("path = \"/\"\nkind = \"static\"\nroot = \"nowhere\"", "4: route[1].root: "),
        ("path = \"/a\"\nkind = \"static\"\nroot = \".\"", "2: route[1].path: a folder's ends in `/`"),
        (
            "path = \"/\"\nkind = \"static\"\nroot = \".\"\nindex = \"a/b\"",
            "5: route[1].index: expected the name of a file without a folder, found \"a/b\"",
        ),
        (
            "path = \"/\"\nkind = \"static\"\nroot = \".\"\nalias = \"x\"",
            "5: route[1].alias: not a key here (nginx's `alias` is `root` here)",
        ),
        (
            "path = \"/\"\nkind = \"static\"\nroot = \".\"\nstatus = 200",
            "5: route[1].status: not a key here (there are: ",
        ),
        (
            "path = \"/\"\nkind = \"respond\"\nstatus = 99",
            "4: route[1].status: expected a number from 200 to 599, found 99",
        ),
        (
            "path = \"/\"\nkind = \"respond\"\nstatus = 204\nbody = \"x\"",
            "5: route[1].body: an answer of 204 has none",
        ),
        (
            "path = \"/\"\nkind = \"redirect\"",
            "1: route[1].to: missing: expected where to, as \"/new/\" or \"https://example.org/\"",
        ),
        (
            "path = \"/\"\nkind = \"redirect\"\nto = \"/a b\"",
            "4: route[1].to: expected a path or a URL in visible ASCII",
        ),
        (
            "path = \"/\"\nkind = \"redirect\"\nto = \"/a\"\nstatus = 200",
            "5: route[1].status: expected 301, 302, 303, 307 or 308, found 200",
        ),
        (
            "path = \"/\"\nkind = \"health\"\nheaders = { \"A B\" = \"c\" }",
            "4: route[1].headers.A B: method or header name: expected a token",
        ),
        (
            "path = \"/\"\nkind = \"health\"\nheaders = { A = \"b\\nc\" }",
            "4: route[1].headers.A: header value: expected no control characters",
        ),
        (
            "path = \"/\"\nkind = \"health\"\nheaders = { Content-Length = \"5\" }",
            "4: route[1].headers.Content-Length: header line: this one follows from",
        ),
    ] {
        let found = mistakes(&format!("[[route]]\n{lines}\n"));
        let [one] = found.as_slice() else { panic!("one mistake for {lines}: {found:?}") };
        assert!(one.starts_with(said), "{lines}: {one}");
    }
    assert_eq!(mistakes(""), ["1: route: missing: expected at least one [[route]], with `path` and `kind`"]);
    let twice = mistakes(&format!("{ROUTE}{ROUTE}"));
    assert_eq!(twice, ["5: route[2].path: \"/\" has a route already"]);
}

/// Words of nginx at places where it has them, in a file that has no other mistake.
#[test]
fn a_key_of_nginx_is_answered_with_ours_and_its_table() {
    for (key, said) in [
        ("server_name", "`hosts` in [[route]]"),
        ("client_max_body_size", "`body` in [limits]"),
        ("keepalive_timeout", "`keep_alive` in [timeouts]"),
        ("location", "[[route]] with `path` here"),
        ("proxy_read_timeout", "`answer_timeout` in [upstream.NAME]"),
        ("proxy_pass", "`to` in a [[route]] with kind = \"proxy\""),
        ("round_robin", "`balance = \"turns\"` in [upstream.NAME]"),
        ("root", "`root` in a [[route]] with kind = \"static\""),
        ("ssl_certificate", "`certificates` in [tls]"),
    ] {
        let found = mistakes(&format!("{key} = 1\n{ROUTE}"));
        let said = format!("1: {key}: not a key here (nginx's `{key}` is {said})");
        assert_eq!(found, [said]);
    }
    let deadline = mistakes("[[route]]\npath = \"/\"\nkind = \"health\"\ndeadline = \"3s\"\n");
    assert_eq!(
        deadline,
        ["4: route[1].deadline: not a key here (gRPC's `deadline` is `timeouts = { answer = … }` here)"]
    );
    let group = "[upstream.a]\nservers = [\"http://127.0.0.1:1\"]\nround_robin = true\n";
    assert_eq!(
        mistakes(&format!("{group}{ROUTE}")),
        ["3: upstream.a.round_robin: not a key here (nginx's `round_robin` is `balance = \"turns\"` here)"]
    );
}

#[test]
fn a_table_with_a_mistake_is_not_reported_as_missing_where_it_is_named() {
    for (table, route, said) in [
        (
            "[upstream.a]\nservers = [\"http://a/x\"]",
            "kind = \"proxy\"\nto = \"upstream:a\"",
            "2: upstream.a.servers[1]: ",
        ),
        (
            "[upstream.a]\nserver = [\"http://a\"]",
            "kind = \"proxy\"\nto = \"upstream:a\"",
            "2: upstream.a.server: ",
        ),
        ("[[app]]\nname = \"a\"\ncommand = 1", "kind = \"app\"\napp = \"a\"", "3: app[1].command: "),
        ("[limit.a]\nrate = \"fast\"", "kind = \"health\"\nlimit = \"a\"", "2: limit.a.rate: "),
        ("[tls]\ncertificate = [\".\"]", "kind = \"health\"", "2: tls.certificate: "),
    ] {
        let found = mistakes(&format!("{table}\n[[route]]\npath = \"/\"\n{route}\n"));
        let [one] = found.as_slice() else { panic!("one mistake for {table}: {found:?}") };
        assert!(one.starts_with(said), "{table}: {one}");
    }
    let found = mistakes("[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:a\"\n");
    assert_eq!(found, ["4: route[1].to: there is no [upstream.a] (there are: none)"]);
}

#[test]
fn every_mistake_of_a_file_is_told_at_once_in_the_order_of_its_lines() {
    let found =
        mistakes("workers = true\nlisten = true\n[[route]]\npath = \"/\"\nkind = \"respond\"\nbdy = \"x\"\n");
    let places: Vec<_> =
        found.iter().map(|line| line.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")).collect();
    assert_eq!(places, ["1: workers", "2: listen", "6: route[1].bdy"], "{found:?}");
}

#[test]
fn a_file_with_twenty_mistakes_has_all_twenty_reported() {
    let text = "worker = 1\nlisten = []\nreuse_port = 1\ndrain = \"x\"\ndriver = \"kqueue\"\nrequest_id = \"a b\"\n\
        max_connections = 0\n[client_ip]\nproxies = [\"10.0.0.0/99\"]\nform = 1\n[limits]\nbody = \"8 MB\"\nbdy = 1\n\
        [log]\nformat = \"xml\"\n[upstream.a]\nservers = [\"http://a/x\", { weight = 0 }]\nbalance = \"worst\"\n\
        [[route]]\npath = \"/../\"\nkind = \"proxy\"\nto = \"upstream:b\"\nmethods = [\"get\"]\nhosts = \"a:80\"\n";
    let found = mistakes(text);
    // One each, and the log's missing file, and `to` and weight of the server that has neither.
    assert_eq!(found.len(), 21, "{found:#?}");
}

#[test]
fn a_file_that_is_not_there_is_told_as_such() {
    let wrong = Config::load(Path::new("/nowhere/site.toml")).expect_err("there is none");
    assert_eq!(
        wrong.to_string(),
        "configuration, on /nowhere/site.toml: No such file or directory (os error 2)"
    );
}

#[test]
fn a_file_of_users_with_none_in_it_is_told_as_such() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# Nothing but a comment.\n").unwrap();
    let found = mistakes(&format!("[auth.a]\nkind = \"basic\"\nfile = \"{}\"\n", file.path().display()));
    let told = found.iter().find(|line| line.contains("auth.a"));
    assert!(told.is_some_and(|line| line.contains("file: there is no user in it")), "{found:#?}");
}

#[test]
fn a_path_that_cannot_be_looked_at_is_told_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let text = |name: &str| {
        let lines = "listen = { address = \":0\", tls = true }\n[buffer]\nfolder = \"NAME\"\n[tls]\n\
            certificates = \"NAME\"\n[[app]]\nname = \"a\"\ncommand = \"true\"\nprotocol = \"goridge\"\n\
            directory = \"NAME\"\n[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"NAME\"\n";
        lines.replace("NAME", &folder.path().join(name).display().to_string())
    };
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for (name, cause) in [
        ("loop", "Too many levels of symbolic links"),
        ("file/below", "Not a directory"),
        ("none", "No such file or directory"),
    ] {
        let found = mistakes(&text(name));
        for key in ["buffer.folder", "tls.certificates", "app[1].directory", "route[1].root"] {
            let told = found.iter().find(|line| line.contains(key));
            assert!(told.is_some_and(|line| line.contains(cause)), "{key}, {name}: {found:#?}");
        }
    }
}

#[test]
fn what_is_said_is_taken_and_the_rest_has_its_default() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "listen = [\"127.0.0.1:81\", \"[::1]:82\"]\nworkers = 3\ndriver = \"uring\"\ndrain = 5\n\
         limits = {{ body = \"1M\", header_count = 50 }}\ntimeouts.keep_alive = \"5m\"\n{ROUTE}"
    );
    let config = Config::parse(&text, &folder.path().join("site.toml")).unwrap();
    assert_eq!(
        config.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["127.0.0.1:81", "[::1]:82"]
    );
    assert_eq!((config.workers, config.drain.as_secs()), (3, 5));
    assert_eq!((config.limits.body_bytes, config.limits.fields), (1 << 20, 50));
    assert_eq!(config.deadlines.keep_alive.as_secs(), 300);
    assert_eq!(config.deadlines.head.as_secs(), 10);
    assert!(config.log.is_none() && config.routes.len() == 1);
}

/// It is what users copy: each key stands in it once, commented out or not, and it is valid both ways.
#[test]
fn the_example_is_valid_as_it_is_and_with_every_key_in_force() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/ringroad.toml");
    let text = std::fs::read_to_string(example).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("public/assets")).unwrap();
    let file = folder.path().join("ringroad.toml");
    let shown = Config::parse(&text, &file).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(shown.routes.len(), 9);
    let is_key = |line: &str| {
        let name = line.split(" = ").next().unwrap_or_default();
        line.contains(" = ")
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let in_force: Vec<_> =
        text.lines().map(|line| line.strip_prefix("# ").filter(|key| is_key(key)).unwrap_or(line)).collect();
    assert!(in_force.iter().filter(|line| is_key(line)).count() > 50, "{in_force:?}");
    let all = Config::parse(&in_force.join("\n"), &file).unwrap_or_else(|why| panic!("{why}"));
    // What stands there as a default is one.
    let bare = Config::parse(ROUTE, &file).unwrap();
    assert_eq!((all.workers, all.drain, all.cache), (bare.workers, bare.drain, bare.cache));
    assert_eq!(all.deadlines, bare.deadlines);
    assert_eq!(all.limits, ringroad_http::Limits { body_bytes: 64 << 20, ..bare.limits });
}

#[test]
fn a_configuration_with_twenty_mistakes_reports_all_twenty() {
    let text = r#"listen = "nowhere"
worker_processes = 4
driver = "kqueue"
drain = "soon"
request_id = "a b"
limits = { body = "8X" }
cors = { origins = "*", credentials = true }
[log]
file = "-"
format = "{stauts}"
[[route]]
path = "files/"
kind = "respond"
[[route]]
path = "/a"
kind = "statik"
[[route]]
path = "/b"
kind = "respond"
status = 42
headers = { Content-Length = "1", response = { set = { "X Y" = "z" }, remove = ["Connection"] } }
access = { allow = ["10.0.0.0/33"] }
errors = { 200 = "x.html", 404 = "missing.html" }
rewrite = "relative"
compress = { with = "lzma" }
timeouts = { answer = "0s" }
secure_headers = { hsts = true }
"#;
    let Err(why) = Config::parse(text, Path::new("ringroad.toml")) else { panic!("it was accepted") };
    let told: Vec<_> = why.mistakes.iter().map(|mistake| (mistake.line, mistake.key.as_str())).collect();
    assert_eq!(
        told,
        [
            (1, "listen"),
            (2, "worker_processes"),
            (3, "driver"),
            (4, "drain"),
            (5, "request_id"),
            (6, "limits.body"),
            (7, "cors.credentials"),
            (10, "log.format"),
            (12, "route[1].path"),
            (16, "route[2].kind"),
            (20, "route[3].status"),
            (21, "route[3].headers.Content-Length"),
            (21, "route[3].headers.response.set.X Y"),
            (21, "route[3].headers.response.remove"),
            (22, "route[3].access.allow"),
            (23, "route[3].errors.200"),
            (23, "route[3].errors.404"),
            (24, "route[3].rewrite"),
            (25, "route[3].compress.with"),
            (26, "route[3].timeouts.answer"),
            (27, "route[3].secure_headers.hsts"),
        ],
        "{why}"
    );
}

#[test]
fn an_application_of_a_file_without_a_folder_runs_in_the_working_folder() {
    let text = format!("[[app]]\nname = \"a\"\ncommand = [\"true\"]\nprotocol = \"goridge\"\n{ROUTE}");
    let read = Config::parse(&text, Path::new("site.toml")).unwrap();
    assert_eq!(read.apps[0].directory, Path::new("."));
}

#[test]
fn a_limit_by_the_caller_needs_a_route_that_knows_its_callers() {
    let limit =
        "[limit.q]\nkey = [\"route\", \"subject\"]\nrate = \"5/s\"\n[auth.a]\nkind = \"key\"\nkeys = \"k\"\n";
    let route = "[[route]]\npath = \"/\"\nkind = \"health\"\nlimit = \"q\"\n";
    assert_eq!(
        mistakes(&format!("{limit}{route}")),
        [
            "10: route[1].limit: [limit.q] counts by `subject`, the caller that `auth` finds: give this route an `auth`, \
             or the limit another `key`"
        ]
    );
    let whole = format!("{limit}{route}auth = \"a\"\n");
    assert!(Config::parse(&whole, Path::new("/site.toml")).is_ok());
}

#[test]
fn an_answer_that_is_no_error_cannot_be_a_failure() {
    let table = "[upstream.a]\nservers = \"http://a\"\nretry = { on = [503, 200] }\n";
    let route = "[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:a\"\n";
    let found = mistakes(&format!("{table}{route}"));
    assert_eq!(found, ["3: upstream.a.retry.on: expected a number from 400 to 599, found 200"]);
}

#[test]
fn a_file_that_is_no_regular_one_is_a_mistake_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let fifo = fifo.display().to_string();
    let said = |text: &str| {
        let wrong = Config::parse(text, &folder.path().join("site.toml")).expect_err("a mistake");
        wrong.to_string()
    };
    for (key, text) in [
        ("include", format!("include = [\"fifo\"]\n{ROUTE}")),
        ("errors.404", format!("errors = {{ 404 = \"FILE\" }}\n{ROUTE}")),
        ("errors.404.file", format!("errors = {{ 404 = {{ file = \"FILE\" }} }}\n{ROUTE}")),
        ("auth.a.file", format!("[auth.a]\nkind = \"basic\"\nfile = \"FILE\"\n{ROUTE}")),
        ("auth.a.keys", format!("[auth.a]\nkind = \"jwt\"\nkeys = \"FILE\"\n{ROUTE}")),
        (
            "upstream.u.tls.ca",
            format!("upstream.u = {{ servers = [\"https://a\"], tls = {{ ca = \"FILE\" }} }}\n{ROUTE}"),
        ),
        (
            "upstream.u.tls.key",
            format!(
                "upstream.u = {{ servers = [\"https://a\"], tls = {{ certificate = \"FILE\", key = \"FILE\" }} }}\n{ROUTE}"
            ),
        ),
        ("redis.r.ca", format!("redis.r = {{ to = \"rediss://a:1\", ca = \"FILE\" }}\n{ROUTE}")),
        (
            "tls.acme.ca",
            format!(
                "listen = [{{ address = \":443\", tls = true }}]\n[tls.acme]\nagree_to_terms = true\nnames = [\"a.test\"]\n\
                 state = \"state\"\nca = \"FILE\"\n{ROUTE}"
            ),
        ),
    ] {
        // A device has no end, and a folder is no file.
        for (file, kind) in [(&*fifo, "a FIFO or pipe"), ("/dev/zero", "a device"), ("/", "a folder")] {
            // What `include` names are patterns.
            let text = text.replace("FILE", file).replace("[\"fifo\"]", &format!("[{file:?}]"));
            let told = said(&text);
            let expected = format!("{key}: {file}: {kind}, and a regular file is expected");
            assert!(told.contains(&expected), "{told}\n{expected}");
        }
    }
}
