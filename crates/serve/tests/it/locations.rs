//! Places that servers behind name in their answers, as clients see them.

use crate::support::{Client, Site, behind, start};
use crate::upstream_http2::{connect, run};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_http::{Body, FieldBlock, Handle, Http2, Http2Request, Request, Response, Server, any};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// A server that answers with the header lines that `X-Say` asks for, split at `|`.
fn server(driver: DriverName, at: impl Display) -> Handle {
    let says = any(async |request: Request| {
        let mut response = Response::new("moved");
        for line in request.header("x-say").unwrap_or_default().split('|') {
            let Some((name, value)) = line.split_once(": ") else { continue };
            response = response.header(name, value)?;
        }
        Ok::<_, ringroad_http::EncodeError>(response)
    });
    let server = Server::new().http2_prior_knowledge(Http2::default());
    server.bind(at).unwrap().driver(Wish::Named(driver)).route("/{*all}", says).start().unwrap()
}

/// The `Location` that a client sees where the server behind answers with this one.
fn location(client: &mut Client, path: &str, says: &str) -> String {
    let reply = client.ask("GET", path, &[("X-Say", &format!("Location: {says}"))]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("Location").unwrap().to_owned()
}

fn route(path: &str, to: &str, more: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nkind = \"proxy\"\nto = \"{to}\"\n{more}\n")
}

fn site(driver: DriverName, routes: &[String]) -> Site {
    start(driver, &routes.concat(), |_| {})
}

drivers!(a_place_of_the_server_behind_is_a_place_here, |driver: DriverName| {
    let server = server(driver, "127.0.0.1:0");
    let own = server.address();
    let to = format!("http://{own}");
    let site = site(
        driver,
        &[
            route("/", &to, ""),
            route("/api/", &format!("{to}/v1/"), ""),
            route("/strip/", &format!("{to}/"), ""),
            route("/streamed/", &to, "buffer = false"),
            route("/rewritten/", &to, "rewrite = \"/v2/{rest}\""),
            route("/front/", &to, "rewrite = \"/index.php\""),
            route("/both/", &format!("{to}/v1/"), "rewrite = \"/v2/{rest}\""),
            route("/host/", &to, "host = \"app.internal:81\""),
            route("/as-it-is/", &to, "map_locations = false"),
        ],
    );
    let mut client = site.client();
    for (path, says, expected) in [
        ("/sub", format!("{to}/sub/?a#b"), "/sub/?a#b"),
        ("/sub", format!("//{own}/sub/"), "/sub/"),
        ("/sub", format!("{to}//evil.example/"), "/evil.example/"),
        ("/api/sub", format!("{to}/v1/sub/"), "/api/sub/"),
        ("/%61pi/sub", format!("{to}/v1/sub/"), "/%61pi/sub/"),
        ("/strip/sub", format!("{to}/sub/"), "/strip/sub/"),
        ("/streamed/sub", format!("{to}/streamed/sub/"), "/streamed/sub/"),
        ("/rewritten/sub", format!("{to}/v2/sub/"), "/rewritten/sub/"),
        ("/front/sub", format!("{to}/login"), "/login"),
        ("/both/sub", format!("{to}/v1/v2/sub/"), "/both/sub/"),
        ("/host/sub", format!("{to}/host/sub/"), "/host/sub/"),
        ("/host/sub", "http://app.internal:81/host/sub/".to_owned(), "/host/sub/"),
    ] {
        assert_eq!(location(&mut client, path, &says), expected, "{path} {says}");
    }
    // These name another origin, or no place of the route.
    for (path, says) in [
        ("/sub", "/sub/".to_owned()),
        ("/sub", "http://example.org/sub/".to_owned()),
        ("/sub", format!("https://{own}/sub/")),
        ("/sub", format!("http://user@{own}/sub/")),
        ("/sub", "http://127.0.0.1/sub/".to_owned()),
        ("/sub", "http://app.internal:81/sub/".to_owned()),
        ("/api/sub", format!("{to}/login")),
        ("/api/sub", "/v1/sub/".to_owned()),
        ("/as-it-is/sub", format!("{to}/sub/")),
    ] {
        assert_eq!(location(&mut client, path, &says), says, "{path}");
    }
    let says = format!("Content-Location: {to}/v1/a|Refresh: 5; url=\"{to}/v1/b\"|Link: <{to}/v1/c>");
    let reply = client.ask("HEAD", "/api/sub", &[("X-Say", &says)]);
    assert_eq!(reply.header("Content-Location"), Some("/api/a"));
    assert_eq!(reply.header("Refresh"), Some("5; url=\"/api/b\""));
    assert_eq!(reply.header("Link"), Some(&*format!("<{to}/v1/c>")));
});

drivers!(a_place_of_any_server_of_a_group_is_a_place_here, |driver: DriverName| {
    let (one, other) = (server(driver, "127.0.0.1:0"), server(driver, "127.0.0.1:0"));
    let group = format!(
        "[upstream.app]\nservers = [\"http://{}\", {{ to = \"http://{}\", backup = true }}]\n",
        one.address(),
        other.address()
    );
    let site = site(driver, &[group, route("/api/", "upstream:app/v1/", "")]);
    let mut client = site.client();
    for server in [&one, &other] {
        let says = format!("http://{}/v1/sub/", server.address());
        assert_eq!(location(&mut client, "/api/sub", &says), "/api/sub/");
    }
});

drivers!(a_server_at_a_socket_has_the_name_that_it_was_asked_for, |driver: DriverName| {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("app.sock").display());
    let _server = server(driver, &socket);
    let site = site(driver, &[route("/", &socket, ""), route("/host/", &socket, "host = \"app.internal\"")]);
    let mut client = site.client();
    assert_eq!(location(&mut client, "/host/sub", "http://app.internal/host/sub/"), "/host/sub/");
    // The client's own host, which the server was asked for, is here.
    let public = "http://example.org/sub/";
    assert_eq!(location(&mut client, "/sub", public), public);
    // A client that names no host has the server asked for this one.
    let says = "GET /sub HTTP/1.0\r\nX-Say: Location: http://localhost/sub/\r\n\r\n";
    let reply = site.client().send(says).reply();
    assert_eq!(reply.header("Location"), Some("/sub/"));
});

drivers!(places_of_servers_behind_are_mapped_over_http_2_on_both_sides, |driver: DriverName| {
    let server = server(driver, "127.0.0.1:0");
    let own = server.address();
    let routes = [
        "[http2]\nprior_knowledge = true\n".to_owned(),
        route("/", &format!("http://{own}"), "http2 = true"),
    ];
    let site = site(driver, &routes);
    let at: SocketAddr = site.address();
    run(driver, async move {
        let connection = connect(at).await;
        let lines = FieldBlock::of([("x-say", format!("Location: http://{own}/sub/"))]).unwrap();
        let ask = Http2Request {
            method: "GET",
            scheme: "http",
            authority: "a.example",
            target: "/sub",
            lines: &lines,
            body: Body::empty(),
        };
        let answer = connection.send(ask).await.unwrap();
        assert_eq!(answer.header("location"), Some("/sub/"));
    });
});

drivers!(an_answer_is_kept_with_the_place_here, |driver: DriverName| {
    let (own, count) = behind(|client| {
        let own = client.stream().local_addr().unwrap();
        client.until(b"\r\n\r\n").unwrap();
        let lines =
            format!("Cache-Control: max-age=1000\r\nLocation: http://{own}/sub/\r\nConnection: close");
        client.send(format!("HTTP/1.1 301 Moved Permanently\r\n{lines}\r\nContent-Length: 0\r\n\r\n"));
    });
    let store = "[store.pages]\nmemory = \"16M\"\n".to_owned();
    let site = site(driver, &[store, route("/", &format!("http://{own}"), "cache = { store = \"pages\" }")]);
    for _ in 0..2 {
        assert_eq!(site.client().get("/sub").header("Location"), Some("/sub/"));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1, "the second answer was a kept one");
});
