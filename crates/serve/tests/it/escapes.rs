//! Paths that lead out of the root, and paths that are not regular files: each is refused without waiting.

use crate::over::Over;
use crate::support::{Site, behind, start, write};
use ringroad_engine::DriverName;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

const ROUTES: &str = r#"
[[route]]
path = "/"
kind = "static"
root = "root"

[[route]]
path = "/static/"
kind = "static"
root = "root/sub"
"#;

fn prepare(folder: &Path) {
    write(folder, "secret.txt", "secret");
    write(folder, "root/index.html", "index");
    write(folder, "root/inside.txt", "inside");
    write(folder, "root/sub/file", "file");
    write(folder, "root/.env", "secret");
    write(folder, "root/.git/config", "secret");
    write(folder, "root/%2e%2e", "escaped once");
    write(folder, "root/C:", "colon");
    symlink("../secret.txt", folder.join("root/out")).unwrap();
    symlink(folder.join("secret.txt"), folder.join("root/absolute")).unwrap();
    symlink("..", folder.join("root/up")).unwrap();
    symlink("/proc/self/root", folder.join("root/magic")).unwrap();
    symlink("self", folder.join("root/self")).unwrap();
    symlink("inside.txt", folder.join("root/link")).unwrap();
    mknodat(CWD, folder.join("root/fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    drop(UnixListener::bind(folder.join("root/socket")).unwrap());
}

fn site(driver: DriverName) -> Site {
    start(driver, ROUTES, prepare)
}

drivers!(no_spelling_of_a_path_leads_out_of_the_root, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    for (path, statuses) in [
        // §61
        ("/../secret.txt", &[400][..]),
        ("/..%2fsecret.txt", &[400]),
        ("/%2e%2e/secret.txt", &[400]),
        ("/.%2E/secret.txt", &[400]),
        ("/sub/../../secret.txt", &[400]),
        ("//../secret.txt", &[400]),
        ("/sub//../../secret.txt", &[400]),
        ("/./../secret.txt", &[400]),
        ("/%2e%2e/../secret.txt", &[400]),
        ("/sub/%2e./../../secret.txt", &[400]),
        ("//etc/passwd", &[404]),
        ("/sub/../.env", &[404]),
        ("/./.git/./config", &[404]),
        ("/a/..;/secret.txt", &[400]),
        ("/sub%2ffile", &[404]),
        // §63
        ("/%00", &[400]),
        ("/inside.txt%00.html", &[400]),
        ("/inside%0a.txt", &[400]),
        // §64
        ("/..\\secret.txt", &[400, 404]),
        ("/..%5csecret.txt", &[400, 404]),
        ("/sub\\file", &[400, 404]),
        ("/C:\\secret.txt", &[400, 404]),
        // §65
        ("/static../secret.txt", &[404]),
        ("/static../root/inside.txt", &[404]),
        ("/staticfile", &[404]),
        // §66
        ("/out", &[404]),
        ("/absolute", &[404]),
        ("/up/secret.txt", &[404]),
        ("/magic/etc/passwd", &[404]),
        ("/self", &[404]),
        // §67
        ("/fifo", &[404]),
        ("/socket", &[404]),
        ("/.env", &[404]),
        ("/.git/config", &[404]),
        ("/inside.txt/", &[404]),
        ("/inside.txt/more", &[404]),
    ] {
        let reply = client.get(path);
        assert!(statuses.contains(&reply.status), "{path}: {reply:?}");
        assert!(!reply.text().contains("secret"), "{path}: {reply:?}");
    }
    // §62: decoded once, and no more.
    assert_eq!(client.get("/%252e%252e").text(), "escaped once");
    assert_eq!(client.get("/C:").text(), "colon");
    assert_eq!(client.get("/link").text(), "inside");
    assert_eq!(client.get("/static/file").text(), "file");
    assert_eq!(client.get("/").text(), "index");
});

drivers!(a_file_that_becomes_a_way_out_is_not_served_any_more, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    for _ in 0..3 {
        assert_eq!(client.get("/inside.txt").text(), "inside");
        let (inside, aside) = (site.path("root/inside.txt"), site.path("root/aside"));
        std::fs::rename(&inside, &aside).unwrap();
        symlink("../secret.txt", &inside).unwrap();
        assert_eq!(client.get("/inside.txt").status, 404);
        std::fs::remove_file(&inside).unwrap();
        mknodat(CWD, &inside, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(client.get("/inside.txt").status, 404);
        std::fs::remove_file(&inside).unwrap();
        assert_eq!(client.get("/inside.txt").status, 404);
        std::fs::rename(&aside, &inside).unwrap();
    }
});

/// A link is turned to and fro between inside and outside while it is asked for.
#[test]
fn a_link_that_is_swapped_all_the_time_never_leads_out() {
    let site = site(DriverName::Epoll);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (link, next) = (site.path("root/turning"), site.path("root/next"));
    symlink("inside.txt", &link).unwrap();
    std::thread::scope(|scope| {
        let _over = Over(&stop);
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for to in ["../secret.txt", "inside.txt"] {
                    symlink(to, &next).unwrap();
                    std::fs::rename(&next, &link).unwrap();
                }
            }
        });
        let mut client = site.client();
        for _ in 0..2000 {
            let reply = client.get("/turning");
            // How often it leads inside is the scheduler's to say; that it can is said by the other tests.
            match reply.status {
                200 => assert_eq!(reply.text(), "inside"),
                404 | 503 => assert!(!reply.text().contains("secret"), "{reply:?}"),
                _ => panic!("{reply:?}"),
            }
        }
    });
}

drivers!(devices_and_folders_are_refused_without_a_wait, |driver: DriverName| {
    let routes = "[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"/dev\"\n";
    let site = start(driver, routes, |_| {});
    let mut client = site.client();
    for path in ["/zero", "/null", "/tty", "/random", "/"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
});

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A path of parts that mean a place, nothing, or a step up.
    fn path(&mut self, names: &[&str]) -> String {
        let mut path = String::new();
        for _ in 0..=self.below(7) {
            path.push('/');
            path.push_str(match self.below(5) {
                0 => ".",
                1 => "..",
                2 => "",
                _ => self.one(names),
            });
        }
        if self.below(3) == 0 {
            path.push('/');
        }
        path
    }
}

/// The place that a path means, by rewriting it until nothing is left to rewrite; `None` above the root. It
/// has nothing in common with how the server does it.
fn meant(path: &str) -> Option<String> {
    let mut path = path.to_owned();
    for end in ["/.", "/.."] {
        if path.ends_with(end) {
            path.push('/');
        }
    }
    loop {
        let before = path.clone();
        path = path.replace("//", "/").replace("/./", "/");
        if path == before
            && let Some(at) = path.find("/../")
        {
            let above = path[..at].rfind('/')?;
            path.replace_range(above..at + 3, "");
        }
        if path == before {
            return Some(path);
        }
    }
}

drivers!(
    /// Tried with 400 paths, the same in each run.
    every_spelling_with_dots_and_slashes_is_the_one_place,
    |driver: DriverName| {
        let (address, _) = behind(|client| {
            while let Some(head) = client.until(b"\r\n\r\n") {
                let target = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
                client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}", target.len()));
            }
        });
        let routes = format!(
            "{ROUTES}\n\
             [[route]]\npath = \"/behind/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n\
             [[route]]\npath = \"/admin/\"\nkind = \"respond\"\nstatus = 403\n\
             [[route]]\npath = \"/behind/admin/\"\nkind = \"respond\"\nstatus = 403\n\
             [[route]]\npath = \"/sub/secret\"\nkind = \"respond\"\nstatus = 403\n"
        );
        let site = start(driver, &routes, |folder| {
            prepare(folder);
            write(folder, "root/admin/file", "behind the wall");
            write(folder, "root/sub/secret", "behind the wall");
        });
        let mut client = site.client();
        let mut numbers = Numbers(0x5eed);
        let names = ["sub", "sub", "file", "inside.txt", "admin", "behind", "secret", "evil.example"];
        let (mut walls, mut files, mut handed_on, mut refused) = (0, 0, 0, 0);
        for round in 0..400 {
            let path = numbers.path(&names);
            let query = numbers.one(&["", "?a=/../b//./c"]);
            let reply = match round % 2 {
                0 => client.get(&format!("{path}{query}")),
                _ => client.get(&format!("http://example.org{path}{query}")),
            };
            let Some(meant) = meant(&path) else {
                assert_eq!(reply.status, 400, "{path}");
                refused += 1;
                continue;
            };
            if let Some(place) = reply.header("Location") {
                assert_eq!(place, format!("{meant}/{query}"), "{path}");
                continue;
            }
            let below = |wall: &str| meant.starts_with(wall);
            if below("/admin/") || below("/behind/admin/") || meant == "/sub/secret" {
                assert_eq!(reply.status, 403, "{path}");
                walls += 1;
            } else if below("/behind/") {
                // Slashes in a row may mean something to the server behind, dots do not come to it.
                let target = reply.text().strip_suffix(query).unwrap();
                assert_eq!(self::meant(target).as_ref(), Some(&meant), "{path}: {target}");
                let clean = target.split('/').all(|part| part != "." && part != "..");
                assert!(clean && (path.starts_with("//") || !target.starts_with("//")), "{path}: {target}");
                handed_on += 1;
            } else {
                let other = client.get(&format!("{meant}{query}"));
                assert_eq!((reply.status, &reply.body), (other.status, &other.body), "{path}");
                files += usize::from(reply.status == 200);
            }
        }
        assert!(walls > 20 && files > 20 && handed_on > 10 && refused > 20, "{walls} {files} {handed_on} {refused}");
    }
);

drivers!(what_clients_send_unescaped_is_understood_and_handed_on_as_it_came, |driver: DriverName| {
    let (address, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default().to_vec();
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", line.len())).send(line);
        }
    });
    let routes = format!(
        "log = {{ file = \"log\", format = \"json\" }}\n[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n\
         [[route]]\npath = \"/files/\"\nkind = \"static\"\nroot = \"root\"\n\
         errors = {{ 404 = {{ body = \"<p>{{target}}</p>\", content_type = \"text/html\" }} }}\n\
         [[route]]\npath = \"/away/\"\nkind = \"redirect\"\nto = \"https://example.org/\"\n"
    );
    let site = start(driver, &routes, |folder| write(folder, "root/caf\u{e9} \"x\".txt", "x"));
    let mut client = site.client();
    let queries = ["j={\"a\":1}", "q=<b>", "q=\u{e9}\u{1f980}", "a|b^c`d\\e[f]", "a=%22\"%3C<"];
    for query in queries {
        for path in ["/a", "/a/./b/../c", "/<\"\u{e9}>"] {
            let reply = client.get(&format!("{path}?{query}"));
            let asked = if path.contains("..") { "/a/c" } else { path };
            assert_eq!((reply.status, reply.text()), (200, format!("GET {asked}?{query} HTTP/1.1").as_str()));
        }
    }
    // As escaped.
    for path in ["/files/caf\u{e9}%20\"x\".txt?<\u{e9}>", "/files/caf%C3%A9%20%22x%22.txt"] {
        assert_eq!((client.get(path).status, client.get(path).text()), (200, "x"), "{path}");
    }
    // No markup of a client comes into a page, and a location is one for everything that reads it.
    let missing = client.get("/files/<script>?\"&");
    let page = "<p>/files/&lt;script&gt;?&quot;&amp;</p>";
    assert_eq!((missing.status, missing.text()), (404, page));
    let away = client.get("/away/<\u{e9}>?\"").header("Location").unwrap().to_owned();
    assert_eq!(away, "https://example.org/%3C%C3%A9%3E?%22");
    // What no client may send is refused, and has a line as well.
    for odd in ["/a b", "/a\u{7f}", "/a\tb", "/?a#b", "/?\u{1}"] {
        let mut client = site.client();
        client.send(format!("GET {odd} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.reply().status, 400, "{odd:?}");
    }
    let mut client = site.client();
    client.send(b"GET /?\xe9 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().status, 400);
    drop(site.service);
    let log = std::fs::read_to_string(site.folder.path().join("log")).unwrap();
    assert!(log.contains(r#""target":"/a?j={\"a\":1}""#), "{log}");
    assert!(log.contains(r#""request_line":"GET /?\\xe9 HTTP/1.1""#), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains(r#""refused":"#)).count(), 6, "{log}");
});
