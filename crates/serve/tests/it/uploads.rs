//! Files that clients put into a folder.

use crate::support::{Client, Reply, Site, start, wait_until, write};
use ringroad_engine::DriverName;
use std::path::Path;
use std::process::Command;

const ROUTES: &str = r#"
[[route]]
path = "/up/"
kind = "upload"
root = "kept"
limits = { body = "1M" }

[[route]]
path = "/over/"
kind = "upload"
root = "kept"
overwrite = true

[[route]]
path = "/full/"
kind = "upload"
root = "kept"
keep_free = 9000000000000000000

[[route]]
path = "/kept/"
kind = "static"
root = "kept"
"#;

fn site(driver: DriverName) -> Site {
    start(driver, ROUTES, |folder| write(folder, "kept/old.json", "old"))
}

fn put(client: &mut Client, method: &str, path: &str, body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head).send(body).reply()
}

/// Names in a folder, those of files in the making too.
fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

drivers!(
    a_file_that_is_put_is_there_whole_and_is_replaced_only_where_that_is_allowed,
    |driver: DriverName| {
        let site = site(driver);
        let mut client = site.client();
        let large: Vec<u8> = (0..900_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        for (method, path, name, body) in
            [("PUT", "/up/a%20b.json", "a b.json", b"{}".as_slice()), ("POST", "/up/large", "large", &large)]
        {
            let made = put(&mut client, method, path, body);
            assert_eq!((made.status, made.header("Location")), (201, Some(path)), "{path}");
            assert!(std::fs::read(site.path("kept").join(name)).unwrap() == body, "{path}");
            assert!(client.get(&path.replace("/up/", "/kept/")).body == body, "{path}");
            // Repeated, as by a client that got no answer.
            assert_eq!(put(&mut client, method, path, body).status, 200, "{path}");
        }
        for other in ["new", "longer than old"] {
            assert_eq!(put(&mut client, "PUT", "/up/old.json", other).status, 409);
            assert_eq!(std::fs::read(site.path("kept/old.json")).unwrap(), b"old");
        }
        assert_eq!(put(&mut client, "PUT", "/over/old.json", "new").status, 200);
        assert_eq!(std::fs::read(site.path("kept/old.json")).unwrap(), b"new");
        let named = put(&mut client, "POST", "/up/", "[]");
        let place = named.header("Location").unwrap().to_owned();
        assert!(named.status == 201 && place.starts_with("/up/") && place.ends_with(".json"), "{named:?}");
        assert_eq!(client.get(&place.replace("/up/", "/kept/")).text(), "[]");
        assert_eq!(names(&site.path("kept")).len(), 4, "{:?}", names(&site.path("kept")));
    }
);

drivers!(what_is_no_name_too_long_or_cut_off_leaves_nothing, |driver: DriverName| {
    let site = site(driver);
    for (method, path, status) in [
        ("PUT", "/up/", 400),
        ("PUT", "/up/.hidden", 400),
        ("PUT", "/up/a/b", 400),
        ("PUT", "/up/a%2Fb", 400),
        ("PUT", "/up/..%2Fa", 400),
        ("PUT", "/up/a%5Cb", 400),
        ("PUT", "/up/a%0Ab", 400),
        ("PUT", "/up/%ff", 400),
        ("PUT", &format!("/up/{}", "n".repeat(201)), 400),
        ("DELETE", "/up/old.json", 405),
        ("GET", "/up/old.json", 405),
        ("PUT", "/full/a", 507),
    ] {
        let mut client = site.client();
        let refused = put(&mut client, method, path, "x");
        assert_eq!(refused.status, status, "{method} {path}: {refused:?}");
        assert_eq!(refused.header("Allow").is_some(), status == 405, "{path}");
    }
    let mut client = site.client();
    client.send("PUT /up/long HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n");
    assert_eq!(client.reply().status, 413);
    let mut client = site.client();
    client.send("PUT /up/long HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..20 {
        // It may be refused before all of it was sent.
        client.try_send(format!("10000\r\n{}\r\n", "x".repeat(65_536)));
    }
    // The rest of what was sent may reset the connection before the answer is read.
    if let Some(reply) = client.try_reply(false) {
        assert_eq!(reply.status, 413);
    }
    // One that stops in the middle.
    let mut client = site.client();
    client
        .send("PUT /up/half HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n")
        .send(vec![b'x'; 400_000]);
    client.finish();
    drop(client);
    wait_until("the upload is given up", || names(&site.path("kept")) == ["old.json"]);
    assert_eq!(site.client().get("/kept/half").status, 404);
});

drivers!(curl_puts_a_file, |driver: DriverName| {
    let site = site(driver);
    site.write("own/record.json", "x".repeat(300_000));
    let url = format!("http://{}/up/", site.address());
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "120", "--upload-file"]);
    match curl.arg(site.path("own/record.json")).arg(&url).output() {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            return eprintln!("skipped: curl is not installed");
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }
    assert!(std::fs::read(site.path("kept/record.json")).unwrap() == [b'x'; 300_000]);
});
