//! Files: whole, in parts, on conditions, compressed, changed, cut; folders as pages.

use crate::support::{Site, start, wait_until, write};
use ringroad_engine::DriverName;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

const ROUTES: &str = r#"
[[route]]
path = "/"
kind = "static"
root = "root"
headers = { Cache-Control = "no-cache" }

[[route]]
path = "/list/"
kind = "static"
root = "root/sub"
autoindex = true
index = ["start.txt", "index.html"]
"#;

fn large() -> Vec<u8> {
    (0..1_500_000_u32).flat_map(|number| number.to_le_bytes()).collect()
}

fn prepare(folder: &Path) {
    write(folder, "root/index.html", "<p>index</p>");
    write(folder, "root/a.txt", "0123456789");
    write(folder, "root/empty", "");
    write(folder, "root/large.bin", large());
    write(folder, "root/sub/x 1.txt", "x");
    write(folder, "root/sub/deep/index.html", "deep");
    write(folder, "root/style.css", "body { color: red }");
    write(folder, "root/style.css.br", "brotli");
    write(folder, "root/style.css.gz", "gzip");
    for name in ["style.css", "style.css.br", "style.css.gz"] {
        let file = File::options().write(true).open(folder.join("root").join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)).unwrap();
    }
}

fn site(driver: DriverName) -> Site {
    start(driver, ROUTES, prepare)
}

drivers!(files_are_sent_whole_with_what_is_known_of_them, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    // The first is read, the second from memory.
    for _ in 0..2 {
        let reply = client.get("/a.txt");
        assert_eq!((reply.status, reply.text()), (200, "0123456789"));
        assert_eq!(reply.header("Content-Type"), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.header("Accept-Ranges"), Some("bytes"));
        assert_eq!(reply.header("Cache-Control"), Some("no-cache"));
        assert!(reply.header("ETag").is_some_and(|tag| tag.starts_with('"')));
        assert!(reply.header("Last-Modified").is_some_and(|date| date.ends_with("GMT")));
        assert_eq!(reply.header("Vary"), None);
    }
    assert_eq!(client.get("/").text(), "<p>index</p>");
    let empty = client.get("/empty");
    assert_eq!((empty.status, empty.header("Content-Length")), (200, Some("0")));
    for _ in 0..2 {
        assert!(client.get("/large.bin").body == large());
        let head = client.ask("HEAD", "/large.bin", &[]);
        assert_eq!((head.status, head.header("Content-Length")), (200, Some("6000000")));
        assert_eq!(client.ask("HEAD", "/a.txt", &[]).header("Content-Length"), Some("10"));
    }
    let refused = client.ask("POST", "/a.txt", &[("Content-Length", "0")]);
    assert_eq!((refused.status, refused.header("Allow")), (405, Some("GET, HEAD, OPTIONS")));
    assert_eq!(client.ask("OPTIONS", "/a.txt", &[]).header("Allow"), Some("GET, HEAD, OPTIONS"));
});

drivers!(parts_are_sent_from_memory_and_from_the_disk, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    let whole = large();
    for (path, range, from, to, all) in [
        ("/a.txt", "bytes=2-4", 2, 5, 10),
        ("/a.txt", "bytes=-3", 7, 10, 10),
        ("/a.txt", "bytes=8-", 8, 10, 10),
        ("/large.bin", "bytes=1000000-1999999", 1_000_000, 2_000_000, 6_000_000),
        ("/large.bin", "bytes=-1", 5_999_999, 6_000_000, 6_000_000),
    ] {
        let reply = client.ask("GET", path, &[("Range", range)]);
        assert_eq!(reply.status, 206, "{path} {range}: {}", reply.head);
        let said = format!("bytes {from}-{}/{all}", to - 1);
        assert_eq!(reply.header("Content-Range"), Some(said.as_str()));
        let bytes = if path == "/a.txt" { b"0123456789".as_slice() } else { &whole };
        assert!(reply.body == bytes[from..to], "{path} {range}");
    }
    for (range, status) in [("bytes=10-", 416), ("bytes=-0", 416), ("bytes=x", 200), ("lines=1-2", 200)] {
        let reply = client.ask("GET", "/a.txt", &[("Range", range)]);
        assert_eq!(reply.status, status, "{range}");
        assert_eq!(reply.header("Content-Range"), (status == 416).then_some("bytes */10"), "{range}");
    }
    // §68: too many parts, and parts that overlap, are not worth it.
    let many: Vec<_> = (0..1000).map(|at| format!("{at}-{at}")).collect();
    for range in [format!("bytes={}", many.join(",")), "bytes=0-,0-,0-,0-".to_owned()] {
        let reply = client.ask("GET", "/large.bin", &[("Range", &range)]);
        assert_eq!((reply.status, reply.body.len()), (200, 6_000_000));
    }
    // To HEAD a range means nothing (RFC 9110 §14.2).
    assert_eq!(client.ask("HEAD", "/a.txt", &[("Range", "bytes=0-1")]).status, 200);
});

drivers!(several_parts_come_in_one_body, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    let whole = large();
    for (path, bytes, kind) in [
        ("/a.txt", b"0123456789".as_slice(), "text/plain; charset=utf-8"),
        ("/large.bin", &whole, "application/octet-stream"),
    ] {
        let reply = client.ask("GET", path, &[("Range", "bytes=0-1, 4-6,-2")]);
        assert_eq!(reply.status, 206);
        let boundary =
            reply.header("Content-Type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
        let mut expected = Vec::new();
        let all = bytes.len();
        for (number, (from, to)) in [(0, 2), (4, 7), (all - 2, all)].into_iter().enumerate() {
            let line = if number > 0 { "\r\n" } else { "" };
            let last = to - 1;
            expected.extend_from_slice(
                format!(
                    "{line}--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {from}-{last}/{all}\r\n\r\n"
                )
                .as_bytes(),
            );
            expected.extend_from_slice(&bytes[from..to]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(reply.body == expected, "{path}: {:?}", String::from_utf8_lossy(&reply.body));
    }
});

/// Waits until no later state of these files can have their date.
fn settled(site: &Site, paths: &[&str]) {
    for path in paths {
        wait_until("the file is no recent one", || {
            let mut client = site.client();
            let head = client.ask("HEAD", path, &[]);
            client.ask("HEAD", path, &[("If-Modified-Since", head.header("Last-Modified").unwrap())]).status
                == 304
        });
    }
}

drivers!(conditions_are_kept, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    settled(&site, &["/a.txt", "/large.bin"]);
    for path in ["/a.txt", "/large.bin"] {
        let first = client.ask("HEAD", path, &[]);
        let (tag, date) = (first.header("ETag").unwrap(), first.header("Last-Modified").unwrap());
        for (line, status) in [
            (("If-None-Match", tag), 304),
            (("If-None-Match", "\"other\""), 200),
            (("If-Modified-Since", date), 304),
            (("If-Unmodified-Since", date), 200),
            (("If-Match", "\"other\""), 412),
            (("If-Match", tag), 200),
            (("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"), 412),
        ] {
            let reply = client.ask("GET", path, &[line]);
            assert_eq!(reply.status, status, "{path} {line:?}");
            if status == 304 {
                assert_eq!(
                    (reply.header("ETag"), reply.header("Cache-Control")),
                    (Some(tag), Some("no-cache"))
                );
            }
        }
        for (value, status) in [(tag, 206), ("\"other\"", 200), (date, 206)] {
            let reply = client.ask("GET", path, &[("Range", "bytes=0-1"), ("If-Range", value)]);
            assert_eq!(reply.status, status, "{path} If-Range: {value}");
        }
        // The client's copy comes first, then the range.
        let reply = client.ask("GET", path, &[("Range", "bytes=0-1"), ("If-None-Match", tag)]);
        assert_eq!(reply.status, 304);
    }
});

drivers!(a_compressed_sibling_goes_to_who_understands_it, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    let mut tags = Vec::new();
    for (accepted, body, coding) in [
        ("", "body { color: red }", None),
        ("gzip, deflate, br", "brotli", Some("br")),
        ("gzip", "gzip", Some("gzip")),
        ("zstd", "body { color: red }", None),
        ("br;q=0.5, gzip;q=0.9", "gzip", Some("gzip")),
        ("br;q=0", "body { color: red }", None),
    ] {
        for _ in 0..2 {
            let reply = client.ask("GET", "/style.css", &[("Accept-Encoding", accepted)]);
            assert_eq!((reply.text(), reply.header("Content-Encoding")), (body, coding), "{accepted:?}");
            assert_eq!(reply.header("Content-Type"), Some("text/css"));
            assert_eq!(reply.header("Vary"), Some("Accept-Encoding"), "{accepted:?}");
            tags.push(reply.header("ETag").unwrap().to_owned());
        }
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 3, "a tag for each form: {tags:?}");
    // By its own name it is a file like others.
    let own = client.ask("GET", "/style.css.gz", &[("Accept-Encoding", "gzip")]);
    assert_eq!((own.text(), own.header("Content-Encoding")), ("gzip", None));
    assert_eq!(own.header("Content-Type"), Some("application/gzip"));
    // A part of the compressed form.
    let part = client.ask("GET", "/style.css", &[("Accept-Encoding", "br"), ("Range", "bytes=0-2")]);
    assert_eq!((part.status, part.text(), part.header("Content-Encoding")), (206, "bro", Some("br")));
    // Older than the file, it is of an earlier state.
    site.write("root/style.css", "body { color: blue }");
    let reply = client.ask("GET", "/style.css", &[("Accept-Encoding", "br, gzip")]);
    assert_eq!((reply.text(), reply.header("Content-Encoding")), ("body { color: blue }", None));
});

drivers!(what_was_replaced_is_never_sent_again, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    for round in 0..20 {
        let text = format!("round {round}");
        site.write("root/next", &text);
        std::fs::rename(site.path("root/next"), site.path("root/a.txt")).unwrap();
        assert_eq!(client.get("/a.txt").text(), text);
        assert_eq!(client.get("/a.txt").text(), text);
    }
    std::fs::remove_file(site.path("root/a.txt")).unwrap();
    assert_eq!(client.get("/a.txt").status, 404);
});

drivers!(a_file_that_is_cut_while_it_is_sent_ends_that_connection_and_no_other, |driver: DriverName| {
    let site = start(driver, ROUTES, |folder| {
        prepare(folder);
        // More than the buffers of both sides hold.
        File::create(folder.join("root/huge")).unwrap().set_len(256 << 20).unwrap();
    });
    let (mut cut, mut other) = (site.client(), site.client());
    cut.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = String::from_utf8(cut.until(b"\r\n\r\n").unwrap()).unwrap();
    assert!(head.contains("Content-Length: 268435456\r\n"), "{head}");
    File::options().write(true).open(site.path("root/huge")).unwrap().set_len(1 << 20).unwrap();
    let rest = cut.rest();
    assert!(rest.len() < 256 << 20, "{} bytes", rest.len());
    assert!(rest.iter().all(|byte| *byte == 0));
    assert_eq!(other.get("/a.txt").text(), "0123456789");
});

drivers!(those_who_read_one_large_file_slowly_share_its_descriptor, |driver: DriverName| {
    let site = start(driver, &format!("workers = 1\n{ROUTES}"), |folder| {
        prepare(folder);
        File::create(folder.join("root/huge")).unwrap().set_len(256 << 20).unwrap();
    });
    let mut slow: Vec<_> = (0..20).map(|_| site.client()).collect();
    for client in &mut slow {
        client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.until(b"\r\n\r\n").unwrap().starts_with(b"HTTP/1.1 200 "));
    }
    let huge = site.path("root/huge").canonicalize().unwrap();
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        links
            .filter(|link| std::fs::read_link(link.as_ref().unwrap().path()).is_ok_and(|to| to == huge))
            .count()
    };
    assert_eq!(open(), 1);
    drop(slow);
    wait_until("the last answer closes it", || open() == 0);
});

drivers!(folders_lead_to_their_index_or_are_listed_where_that_is_on, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    let reply = client.get("/sub?a=b");
    assert_eq!((reply.status, reply.header("Location")), (301, Some("/sub/?a=b")));
    assert_eq!(client.get("/sub/").status, 404);
    assert_eq!(client.get("/sub/deep/").text(), "deep");
    assert_eq!(client.get("/list").header("Location"), Some("/list/"));
    let page = client.get("/list/");
    assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html; charset=utf-8")));
    for part in [
        "<h1><a href=\"../\">/</a>list/</h1>",
        "<a href=\"deep/\">deep/</a>",
        "<a href=\"x%201.txt\">x 1.txt</a>",
    ] {
        assert!(page.text().contains(part), "{part} in {}", page.text());
    }
    assert_eq!(client.get("/list/x%201.txt").text(), "x");
    assert_eq!(client.get("/list/deep/").text(), "deep");
    // The first index file that exists.
    site.write("root/sub/index.html", "second");
    assert_eq!(client.get("/list/").text(), "second");
    site.write("root/sub/start.txt", "first");
    assert_eq!(client.get("/list/").text(), "first");
});

#[test]
fn a_sibling_that_comes_later_is_noticed() {
    let site = site(DriverName::Epoll);
    let mut client = site.client();
    let ask = |client: &mut crate::support::Client| client.ask("GET", "/a.txt", &[("Accept-Encoding", "br")]);
    assert_eq!(ask(&mut client).text(), "0123456789");
    site.write("root/a.txt.br", "small");
    wait_until("the sibling is noticed within seconds", || ask(&mut client).text() == "small");
    std::fs::remove_file(site.path("root/a.txt.br")).unwrap();
    let reply = ask(&mut client);
    assert_eq!((reply.text(), reply.header("Content-Encoding")), ("0123456789", None));
}

#[test]
fn without_memory_and_with_too_little_of_it_every_file_is_still_sent() {
    for memory in ["0", "\"4K\"", "\"64M\""] {
        let site = start(DriverName::Epoll, &format!("[cache]\nmemory = {memory}\n{ROUTES}"), prepare);
        let mut client = site.client();
        for _ in 0..3 {
            assert_eq!(client.get("/a.txt").text(), "0123456789");
            assert_eq!(client.get("/").text(), "<p>index</p>");
            assert_eq!(client.get("/empty").status, 200);
        }
    }
}

drivers!(
    /// A date of the protocol has four digits for the year, and that of a file is never later than the
    /// answer's.
    a_file_from_the_far_future_is_served_and_listed,
    |driver: DriverName| {
        // A file system that keeps such a time; ext4 does not.
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return eprintln!("skipped: there is no /dev/shm to write to");
        };
        write(folder.path(), "file", "later");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800);
        let file = File::options().write(true).open(folder.path().join("file")).unwrap();
        file.set_modified(time).unwrap();
        if file.metadata().unwrap().modified().unwrap() != time {
            return eprintln!("skipped: the file system in /dev/shm does not keep the year 10000");
        }
        let root = folder.path().display();
        let route = format!("[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"{root}\"\nautoindex = true\n");
        let site = start(driver, &route, |_| {});
        let mut client = site.client();
        let date = |text: &str| httpdate::parse_http_date(text).unwrap();
        let reply = client.get("/file");
        assert_eq!((reply.status, reply.text()), (200, "later"));
        let modified = reply.header("Last-Modified").unwrap();
        assert!(date(modified) <= date(reply.header("Date").unwrap()), "{}", reply.head);
        // Its content tells it from others, its time does not.
        let tag = reply.header("ETag").unwrap();
        assert_eq!(client.ask("GET", "/file", &[("If-None-Match", tag)]).status, 304);
        assert_eq!(client.ask("GET", "/file", &[("If-Modified-Since", modified)]).status, 200);
        let listing = client.get("/");
        assert_eq!(listing.status, 200);
        assert!(listing.text().contains("9999-12-31 23:59"), "{}", listing.text());
    }
);

drivers!(a_file_that_was_just_changed_is_never_taken_for_an_earlier_state_of_it, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    // Within one tick of the file system's clock, and of one length.
    for (path, bytes) in [("now.txt", 5), ("now.bin", 400_000)] {
        let write = |letter: u8| std::fs::write(site.path("root").join(path), vec![letter; bytes]).unwrap();
        let mut states = Vec::new();
        for letter in *b"abcdefgh" {
            write(letter);
            let reply = client.get(&format!("/{path}"));
            assert!(reply.body == vec![letter; bytes], "{path}: {}", char::from(letter));
            states.push(reply.header("ETag").unwrap().to_owned());
            for state in &states[..states.len() - 1] {
                let lines = [("Range", "bytes=0-1"), ("If-Range", state)];
                assert_eq!(client.ask("GET", &format!("/{path}"), &lines).status, 200, "{path}: {state}");
                let lines = [("If-None-Match", state.as_str())];
                assert_eq!(client.ask("GET", &format!("/{path}"), &lines).status, 200, "{path}: {state}");
            }
        }
    }
});

drivers!(
    /// Times that tools set: in stores and images, in archives, in copies that keep them.
    no_release_is_taken_for_another_one_of_its_time_and_length,
    |driver: DriverName| {
        const TIMES: [u64; 5] = [0, 1, 315_532_800, 1_704_067_200, 4_000_000_000];
        const SIZES: [usize; 2] = [10, 400_000];
        fn release(folder: &Path, name: &str, letter: u8) {
            for (time, bytes) in TIMES.into_iter().flat_map(|time| SIZES.map(|bytes| (time, bytes))) {
                for end in ["", ".gz"] {
                    let path = format!("{name}/{time}-{bytes}.js{end}");
                    write(folder, &path, vec![letter; bytes]);
                    let file = File::options().write(true).open(folder.join(path)).unwrap();
                    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time)).unwrap();
                }
            }
        }
        let site = start(driver, ROUTES, |folder| {
            std::fs::create_dir_all(folder.join("root/sub")).unwrap();
            release(folder, "root/1", b'a');
            release(folder, "root/2", b'b');
            release(folder, "next", b'c');
            std::os::unix::fs::symlink("1", folder.join("root/live")).unwrap();
        });
        settled(&site, &["/1/1-10.js", "/1/1-400000.js", "/2/1-400000.js"]);
        let mut client = site.client();
        let codings = [&[][..], &[("Accept-Encoding", "gzip")]];
        let each = || {
            let files = TIMES.into_iter().flat_map(|time| SIZES.map(|bytes| (time, bytes)));
            files.flat_map(|(time, bytes)| codings.map(|coding| (time, bytes, coding)))
        };
        let mut before = Vec::new();
        for (time, bytes, coding) in each() {
            let path = format!("/live/{time}-{bytes}.js");
            let reply = client.ask("GET", &path, coding);
            assert!(reply.body == vec![b'a'; bytes], "{path} {coding:?}");
            let own = |name| reply.header(name).unwrap().to_owned();
            let (tag, date) = (own("ETag"), own("Last-Modified"));
            assert_eq!(reply.header("Content-Encoding").is_some(), !coding.is_empty(), "{path}");
            // What is the same is confirmed.
            for line in [("If-None-Match", &tag), ("If-Modified-Since", &date)] {
                let lines = [&[(line.0, line.1.as_str())], coding].concat();
                assert_eq!(client.ask("GET", &path, &lines).status, 304, "{path} {line:?}");
            }
            before.push((tag, date));
        }
        // A link that is moved, and files that are put in the place of others.
        for (letter, by_date) in [(b'b', false), (b'c', true)] {
            if letter == b'b' {
                std::os::unix::fs::symlink("2", site.path("root/next")).unwrap();
                std::fs::rename(site.path("root/next"), site.path("root/live")).unwrap();
            } else {
                for entry in std::fs::read_dir(site.path("next")).unwrap() {
                    let entry = entry.unwrap();
                    std::fs::rename(entry.path(), site.path("root/live").join(entry.file_name())).unwrap();
                }
            }
            for ((time, bytes, coding), (tag, date)) in each().zip(&before) {
                let path = format!("/live/{time}-{bytes}.js");
                let set = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(time));
                // Two folders of one second have one date, and no date is after all that may come.
                let dates = [(date, by_date), (&set, time != TIMES[4])];
                let dates = dates.into_iter().filter_map(|(date, tells)| tells.then_some(date));
                let names = dates.map(|date| ("Modified-Since", date)).chain([("Tag", tag)]);
                for (kind, value) in names {
                    let (same, other) = match kind {
                        "Tag" => ("If-None-Match", "If-Match"),
                        _ => ("If-Modified-Since", "If-Unmodified-Since"),
                    };
                    for (lines, status) in [
                        (&[(same, value.as_str())][..], 200),
                        (&[("If-Range", value.as_str()), ("Range", "bytes=4-")], 200),
                        (&[(other, value.as_str())], 412),
                    ] {
                        let reply = client.ask("GET", &path, &[lines, coding].concat());
                        assert_eq!(reply.status, status, "{path} {lines:?} {coding:?} {}", reply.head);
                        assert!(status != 200 || reply.body == vec![letter; bytes], "{path} {lines:?}");
                    }
                }
            }
        }
    }
);

drivers!(a_folder_behind_a_link_that_was_moved_is_served_without_a_reload, |driver: DriverName| {
    let route = "[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"current\"\n";
    let site = start(driver, route, |folder| {
        write(folder, "releases/41/index.html", "41");
        write(folder, "releases/42/index.html", "42");
        std::os::unix::fs::symlink("releases/41", folder.join("current")).unwrap();
    });
    let mut client = site.client();
    assert_eq!(client.get("/").text(), "41");
    std::os::unix::fs::symlink("releases/42", site.path("next")).unwrap();
    std::fs::rename(site.path("next"), site.path("current")).unwrap();
    wait_until("the new release is served", || site.client().get("/").text() == "42");
});

drivers!(what_has_not_changed_is_told_without_what_describes_a_body, |driver: DriverName| {
    let site = site(driver);
    let mut client = site.client();
    let tag = client.get("/a.txt").header("ETag").unwrap().to_owned();
    let reply = client.ask("GET", "/a.txt", &[("If-None-Match", &tag)]);
    assert_eq!((reply.status, reply.header("ETag")), (304, Some(tag.as_str())));
    assert_eq!((reply.header("Content-Type"), reply.header("Content-Encoding")), (None, None));
    // The last byte of an empty file is all of it (RFC 9110 §14.1.2).
    assert_eq!(client.ask("GET", "/empty", &[("Range", "bytes=-1")]).status, 200);
    // All of it, as nginx and Go answer: clients ask for what comes from the first byte on without knowing.
    assert_eq!(client.ask("GET", "/empty", &[("Range", "bytes=0-")]).status, 200);
    assert_eq!(client.ask("GET", "/empty", &[("Range", "bytes=1-")]).status, 416);
});

/// A form as tools make it.
fn coded(ending: &str, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match ending {
        "br" => brotli::CompressorWriter::new(&mut out, 4096, 5, 22).write_all(content).unwrap(),
        "zst" => out = zstd::encode_all(content, 3).unwrap(),
        _ => {
            let mut writer = flate2::write::GzEncoder::new(&mut out, flate2::Compression::default());
            writer.write_all(content).unwrap();
            writer.finish().unwrap();
        }
    }
    out
}

/// Writes a file that was changed so many seconds ago.
fn aged(folder: &Path, name: &str, content: impl AsRef<[u8]>, seconds: u64) {
    write(folder, name, content);
    let file = File::options().write(true).open(folder.join(name)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

drivers!(a_form_is_sent_if_it_decodes_to_the_file_whichever_was_written_first, |driver: DriverName| {
    let text: Vec<u8> = (0..20_000_u32).flat_map(|number| (number / 9).to_le_bytes()).collect();
    let long: Vec<u8> = (0..400_000_u32).flat_map(|number| (number / 9).to_le_bytes()).collect();
    let ages = [(0, 0), (0, 2), (0, 300), (2, 0), (300, 0), (3, 100_000)];
    // Kept in memory, sent from the disk, and compared by one request for all.
    let contents = [("short", &b"let x = 1;"[..]), ("middle", &text), ("long", &long)];
    let endings = ["br", "zst", "gz"];
    // An earlier release has the same length.
    let contents = contents.map(|(name, content)| {
        let mut other = content.to_vec();
        other[content.len() / 2] ^= 1;
        (name, content, endings.map(|ending| (coded(ending, content), coded(ending, &other))))
    });
    let site = start(driver, ROUTES, |folder| {
        prepare(folder);
        for (name, content, forms) in &contents {
            for (number, (own, form)) in ages.into_iter().enumerate() {
                aged(folder, &format!("root/{name}{number}.js"), content, own);
                aged(folder, &format!("root/{name}{number}-old.js"), content, own);
                for (ending, (same, other)) in endings.into_iter().zip(forms) {
                    aged(folder, &format!("root/{name}{number}.js.{ending}"), same, form);
                    aged(folder, &format!("root/{name}{number}-old.js.{ending}"), other, form);
                }
            }
        }
    });
    let mut client = site.client();
    for (name, content, forms) in contents {
        for number in 0..ages.len() {
            for (coding, (same, _)) in ["br", "zstd", "gzip"].into_iter().zip(&forms) {
                let accepted = [("Accept-Encoding", coding)];
                let reply = client.ask("GET", &format!("/{name}{number}.js"), &accepted);
                let shown = format!("{name}{number} {coding}");
                assert_eq!(reply.header("Content-Encoding"), Some(coding), "{shown}");
                assert!(reply.body == *same, "{shown}");
                let reply = client.ask("GET", &format!("/{name}{number}-old.js"), &accepted);
                assert_eq!(reply.header("Content-Encoding"), None, "{shown}");
                assert!(reply.body == content, "{shown}");
            }
        }
    }
});

drivers!(a_form_that_no_longer_is_the_files_is_not_sent_again, |driver: DriverName| {
    let site = start(driver, ROUTES, |folder| {
        prepare(folder);
        write(folder, "root/a.js", "let x = 1;");
        write(folder, "root/a.js.gz", coded("gz", b"let x = 1;"));
    });
    let mut client = site.client();
    let mut ask = || client.ask("GET", "/a.js", &[("Accept-Encoding", "gzip")]);
    assert_eq!(ask().header("Content-Encoding"), Some("gzip"));
    // A new release of the same length, with an older time; its form comes later.
    aged(site.folder.path(), "root/next", "let x = 2;", 1_000_000);
    std::fs::rename(site.path("root/next"), site.path("root/a.js")).unwrap();
    let reply = ask();
    assert_eq!((reply.text(), reply.header("Content-Encoding")), ("let x = 2;", None));
    write(site.folder.path(), "root/next", coded("gz", b"let x = 2;"));
    std::fs::rename(site.path("root/next"), site.path("root/a.js.gz")).unwrap();
    wait_until("the new form is found", || ask().header("Content-Encoding") == Some("gzip"));
    assert!(ask().body == coded("gz", b"let x = 2;"));
    // The next release begins with its form.
    write(site.folder.path(), "root/next", coded("gz", b"let x = 3;"));
    std::fs::rename(site.path("root/next"), site.path("root/a.js.gz")).unwrap();
    let reply = ask();
    assert_eq!((reply.text(), reply.header("Content-Encoding")), ("let x = 2;", None));
});

drivers!(
    types_have_no_charset_for_documents_that_name_theirs_and_are_those_of_the_configuration,
    |driver: DriverName| {
        let routes = r#"
types = { rpm = "application/x-redhat-package-manager", ".One" = "text/x-one" }

[[route]]
path = "/"
kind = "static"
root = "root"

[[route]]
path = "/own/"
kind = "static"
root = "root"
charset = "iso-8859-1"
types = { ts = "text/plain", "*" = "text/x-unknown", one = "text/html; charset=koi8-r" }

[[route]]
path = "/none/"
kind = "static"
root = "root"
charset = false
"#;
        let names = ["a.html", "a.xml", "a.txt", "a.rpm", "a.ts", "a.one", "a.stl", "README", "a.png"];
        let site = start(driver, routes, |folder| {
            for name in names {
                write(folder, &format!("root/{name}"), "x");
            }
        });
        let mut client = site.client();
        for (below, types) in [
            (
                "/",
                [
                    "text/html",
                    "text/xml",
                    "text/plain; charset=utf-8",
                    "application/x-redhat-package-manager",
                    "video/mp2t",
                    "text/x-one; charset=utf-8",
                    "model/stl",
                    "application/octet-stream",
                    "image/png",
                ],
            ),
            (
                "/own/",
                [
                    "text/html; charset=iso-8859-1",
                    "text/xml; charset=iso-8859-1",
                    "text/plain; charset=iso-8859-1",
                    "application/x-redhat-package-manager",
                    "text/plain; charset=iso-8859-1",
                    "text/html; charset=koi8-r",
                    "model/stl",
                    "text/x-unknown; charset=iso-8859-1",
                    "image/png",
                ],
            ),
            (
                "/none/",
                [
                    "text/html",
                    "text/xml",
                    "text/plain",
                    "application/x-redhat-package-manager",
                    "video/mp2t",
                    "text/x-one",
                    "model/stl",
                    "application/octet-stream",
                    "image/png",
                ],
            ),
        ] {
            for (name, expected) in names.iter().zip(types) {
                // Read, and from memory.
                for _ in 0..2 {
                    let reply = client.get(&format!("{below}{name}"));
                    assert_eq!(reply.header("Content-Type"), Some(expected), "{below}{name}");
                }
            }
        }
    }
);

drivers!(a_listing_has_all_names_or_says_how_many_are_left_out, |driver: DriverName| {
    let routes = r#"
[[route]]
path = "/"
kind = "static"
root = "root"
autoindex = true

[[route]]
path = "/few/"
kind = "static"
root = "root"
autoindex = true
autoindex_names = 3
"#;
    let site = start(driver, routes, |folder| {
        std::fs::create_dir(folder.join("root")).unwrap();
        for number in 0..12_000 {
            File::create(folder.join(format!("root/pkg-{number:05}.whl"))).unwrap();
        }
    });
    let mut client = site.client();
    let names = |reply: &crate::support::Reply| -> Vec<String> {
        let links = reply.text().split("href=\"pkg-").skip(1);
        links.map(|link| link[..5].to_owned()).collect()
    };
    let all = client.get("/");
    let expected: Vec<String> = (0..12_000).map(|number| format!("{number:05}")).collect();
    assert!(names(&all) == expected);
    assert!(!all.text().contains("not shown"));
    let few = client.get("/few/");
    assert_eq!(names(&few), ["00000", "00001", "00002"]);
    assert!(few.text().contains("11997 more names are not shown"), "{}", few.text());
    assert_eq!(names(&client.get("/few/?sort=name&order=desc")), ["11999", "11998", "11997"]);
    let json = client.get("/few/?format=json");
    assert!(json.text().ends_with("],\"more\":true,\"left_out\":11997}\n"), "{}", json.text());
    assert!(client.get("/?format=json").text().ends_with("],\"more\":false,\"left_out\":0}\n"));
});

/// A program with a lease on a file, as Samba takes one. It tells when it is asked to give it up, and does so
/// when its input ends.
const HOLDER: &str = r"
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGIO, lambda *_: os.write(1, b'asked\n'))
try:
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError:
    os.write(1, b'none\n')
    sys.exit()
os.write(1, b'held\n')
sys.stdin.read()
";

struct Lease {
    holder: Child,
    told: BufReader<ChildStdout>,
}

impl Lease {
    /// `None`: there is no Python, or this file system has no leases.
    fn of(path: &Path) -> Option<Lease> {
        let mut command = Command::new("python3");
        command.args(["-c", HOLDER]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().ok()?;
        let told = BufReader::new(holder.stdout.take().unwrap());
        let mut lease = Lease { holder, told };
        (lease.line() == "held\n").then_some(lease)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

drivers!(a_file_with_a_lease_is_sent_when_its_holder_gives_it_up, |driver: DriverName| {
    let routes = format!("{ROUTES}\n[[route]]\npath = \"/put/\"\nkind = \"upload\"\nroot = \"root/put\"\n");
    let site = start(driver, &routes, |folder| {
        prepare(folder);
        write(folder, "root/put/same", "content");
        write(folder, "root/b.js", "let x = 1;");
        write(folder, "root/b.js.gz", coded("gz", b"let x = 1;"));
    });
    for (request, file) in [
        ("GET /a.txt", "root/a.txt"),
        ("GET /large.bin", "root/large.bin"),
        ("GET /", "root/index.html"),
        ("GET /b.js", "root/b.js.gz"),
        ("PUT /put/same", "root/put/same"),
    ] {
        let Some(mut lease) = Lease::of(&site.path(file)) else {
            return eprintln!("skipped: no Python, or no leases on this file system");
        };
        let mut waiting = site.client();
        let body = if request.starts_with("PUT") { "Content-Length: 7\r\n\r\ncontent" } else { "\r\n" };
        waiting.send(format!("{request} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n{body}"));
        assert_eq!(lease.line(), "asked\n", "{request}");
        // The worker serves others meanwhile.
        let mut other = site.client();
        for _ in 0..20 {
            assert_eq!(other.get("/empty").status, 200, "{request}");
        }
        drop(lease);
        let reply = waiting.reply();
        assert_eq!(reply.status, 200, "{request}");
        assert_eq!(reply.header("Content-Encoding"), request.contains(".js").then_some("gzip"), "{request}");
    }
});
