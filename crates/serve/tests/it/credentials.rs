//! Routes that answer only clients that are known, as clients and servers behind meet them.

use crate::support::{behind, start, wait_until};
use ringroad_engine::DriverName;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The bcrypt hash of `geheim`, at the lowest cost.
const GEHEIM: &str = "$2y$04$NFydNF48FNyhU7zaM7e5HOzIqfqWWjwV5eldpg44VdaW2Fs200Vsm";

/// Answers each request with its head.
fn echo() -> String {
    let (address, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", head.len()));
            client.send(head);
        }
    });
    format!("http://{address}")
}

drivers!(a_key_admits_its_owner_and_the_server_behind_learns_the_name, |driver: DriverName| {
    let to = echo();
    let rules = format!(
        r#"
        log.file = "access.log"
        log.format = "{{subject}} {{status}}"

        [auth.shop]
        kind = "key"
        keys = [{{ key = "secret", name = "ann" }}, "nameless"]
        tell = "X-User"
        hide = true

        [[route]]
        path = "/"
        kind = "proxy"
        to = "{to}"
        auth = "shop"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let refused = client.get("/");
    assert_eq!((refused.status, refused.header("WWW-Authenticate")), (401, Some("Bearer realm=\"shop\"")));
    assert_eq!(client.ask("GET", "/", &[("Authorization", "Bearer secre")]).status, 401);
    let lines = [("Authorization", "Bearer secret"), ("X-User", "root")];
    let reply = client.ask("GET", "/", &lines);
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains("X-User: ann\r\n") && !reply.text().contains("root"), "{}", reply.text());
    assert!(!reply.text().contains("secret"), "the key is not handed on");
    // A caller without a name cannot bring one.
    let reply = client.ask("GET", "/", &[("Authorization", "Bearer nameless"), ("X-User", "root")]);
    assert!(reply.status == 200 && !reply.text().contains("X-User"), "{}", reply.text());
    wait_until("the log tells the name", || {
        std::fs::read_to_string(site.path("access.log")).unwrap_or_default().contains("ann 200")
    });
});

drivers!(a_password_is_checked_against_its_hash_and_limits_count_by_its_owner, |driver: DriverName| {
    let rules = format!(
        r#"
        [auth.users]
        kind = "basic"
        users = {{ ann = "{GEHEIM}", bob = "{GEHEIM}" }}

        [limit.quota]
        key = "subject"
        rate = "2/h"

        [[route]]
        path = "/"
        kind = "respond"
        body = "in"
        auth = "users"
        limit = "quota"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let refused = client.get("/");
    let challenge = "Basic realm=\"users\", charset=\"UTF-8\"";
    assert_eq!((refused.status, refused.header("WWW-Authenticate")), (401, Some(challenge)));
    assert_eq!(refused.header("RateLimit"), None, "a quota is not spent by clients that are not known");
    // ann:geheim, bob:geheim, ann:wrong, eve:geheim
    let (ann, bob) = ("Basic YW5uOmdlaGVpbQ==", "Basic Ym9iOmdlaGVpbQ==");
    let mut ask = |credentials: &str| client.ask("GET", "/", &[("Authorization", credentials)]).status;
    for wrong in ["Basic YW5uOndyb25n", "Basic ZXZlOmdlaGVpbQ==", "Basic ???", "Basic "] {
        assert_eq!(ask(wrong), 401, "{wrong}");
    }
    assert_eq!([ask(ann), ask(ann), ask(ann)], [200, 200, 429]);
    assert_eq!([ask(bob), ask(bob), ask(bob)], [200, 200, 429]);
});

drivers!(one_of_several_ways_is_enough_and_each_is_named_in_the_refusal, |driver: DriverName| {
    let rules = format!(
        r#"
        [auth.users]
        kind = "basic"
        users = {{ ann = "{GEHEIM}" }}

        [auth.keys]
        kind = "key"
        keys = "secret"
        header = "X-Key"

        [[route]]
        path = "/"
        kind = "respond"
        auth = ["users", "keys"]

        [[route]]
        path = "/open"
        kind = "respond"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    assert_eq!(client.get("/").headers("WWW-Authenticate").count(), 2);
    assert_eq!(client.ask("GET", "/", &[("X-Key", "secret")]).status, 200);
    assert_eq!(client.ask("GET", "/", &[("Authorization", "Basic YW5uOmdlaGVpbQ==")]).status, 200);
    assert_eq!(
        client.ask("GET", "/", &[("Authorization", "Basic YW5uOndyb25n"), ("X-Key", "x")]).status,
        401
    );
    assert_eq!(client.get("/open").status, 200);
});

drivers!(a_server_that_decides_admits_refuses_and_redirects, |driver: DriverName| {
    let gone = Arc::new(AtomicBool::new(false));
    let fails = Arc::clone(&gone);
    let (judge, _) = behind(move |client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let head = String::from_utf8(head).unwrap();
            let wanted =
                ["X-Forwarded-Uri: /a?b", "X-Forwarded-Method: POST", "X-Forwarded-Host: example.org"];
            let knows = wanted.iter().all(|line| head.contains(line));
            client.send(if fails.load(Ordering::SeqCst) {
                "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
            } else if head.contains("Cookie: in") && knows {
                "HTTP/1.1 204 Fine\r\nRemote-User: ann\r\nRemote-Groups: ops\r\nSet-Cookie: s=1\r\nSet-Cookie: t=2\r\n\r\n"
            } else {
                "HTTP/1.1 302 Found\r\nLocation: /login\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\n\r\nlogin"
            });
        }
    });
    let to = echo();
    let rules = format!(
        r#"
        [auth.sso]
        kind = "ask"
        url = "http://{judge}/verify"
        copy = ["Remote-Groups"]
        answer = ["Set-Cookie"]
        subject = "Remote-User"
        tell = "X-User"

        [[route]]
        path = "/"
        kind = "proxy"
        to = "{to}"
        auth = "sso"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let refused = client.ask("POST", "/a?b", &[("X-Forwarded-Uri", "/a?b")]);
    assert_eq!((refused.status, refused.header("Location"), refused.text()), (302, Some("/login"), "login"));
    assert_eq!(refused.header("Set-Cookie"), Some("a=b"));
    let lines = [
        ("Cookie", "in"),
        ("Remote-Groups", "root"),
        ("Remote-User", "root"),
        ("X-User", "root"),
        ("Remote.Groups", "root"),
    ];
    let reply = client.ask("POST", "/a?b", &lines);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers("Set-Cookie").collect::<Vec<_>>(), ["s=1", "t=2"], "a session is renewed");
    let text = reply.text();
    assert!(
        text.contains("X-User: ann") && text.contains("Remote-Groups: ops") && !text.contains("root"),
        "{text}"
    );
    gone.store(true, Ordering::SeqCst);
    let refused = client.ask("POST", "/a?b", &lines);
    assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("1")));
});

drivers!(a_server_that_decides_hears_of_a_client_from_here_and_not_from_the_client, |driver: DriverName| {
    // It refuses each request, with its head as the page.
    let (judge, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            client.send(format!("HTTP/1.1 403 No\r\nContent-Length: {}\r\n\r\n", head.len()));
            client.send(head);
        }
    });
    let route = format!(
        "[auth.sso]\nkind = \"ask\"\nurl = \"http://{judge}/verify\"\nsubject = \"Remote-User\"\n\
         [[route]]\npath = \"/\"\nkind = \"respond\"\nauth = \"sso\"\n"
    );
    let site = start(driver, &route, |_| {});
    let told = |head: &str, name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let named = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
    };
    let lines = [
        ("X-Real-IP", "10.6.6.6"),
        ("X_Real_IP", "10.6.6.6"),
        ("X.Real.IP", "10.6.6.6"),
        ("X-Forwarded-For", "10.6.6.6"),
        ("X-Forwarded-Prefix", "/10.6.6.6"),
        ("X_Forwarded_Uri", "/10.6.6.6"),
        ("X-Original-URL", "http://example.org/10.6.6.6"),
        ("Forwarded", "for=10.6.6.6"),
        ("Remote-User", "10.6.6.6"),
        ("X-Other", "yes"),
    ];
    let refused = site.client().ask("GET", "/a", &lines);
    let head = refused.text();
    assert!(refused.status == 403 && !head.contains("10.6.6.6"), "{head}");
    assert_eq!(told(head, "X-Real-IP"), ["127.0.0.1"]);
    assert_eq!(
        (told(head, "X-Forwarded-Uri"), told(head, "X-Other")),
        (vec!["/a".to_owned()], vec!["yes".to_owned()])
    );
    // What a trusted proxy says is handed on.
    let site = start(driver, &format!("client_ip = {{ proxies = [\"127.0.0.1\"] }}\n{route}"), |_| {});
    let lines = [("X-Forwarded-For", "10.1.2.3"), ("X-Real-IP", "10.6.6.6"), ("X-Forwarded-Prefix", "/shop")];
    let refused = site.client().ask("GET", "/a", &lines);
    assert_eq!(told(refused.text(), "X-Real-IP"), ["10.1.2.3"]);
    assert_eq!(told(refused.text(), "X-Forwarded-Prefix"), ["/shop"]);
});

drivers!(claims_of_a_token_reach_the_server_behind_and_clients_cannot_say_them, |driver: DriverName| {
    // Signed with HS256 and the secret below: ann, until 2100, an address, two roles, a level and an object.
    let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImVtYWlsIjoiY\
         W5uQGV4YW1wbGUub3JnIiwicm9sZXMiOlsicmVhZCIsIndyaXRlIl0sImxldmVsIjozLCJvZGQiOnsiYSI6MX19.cZ\
         MDS5Diqoih5hCgzC_Q9IPJBBIhi6Rz4X5X4tZrw40";
    let to = echo();
    let rules = format!(
        r#"
        [auth.tokens]
        kind = "jwt"
        secret = "0123456789abcdef0123456789abcdef"
        algorithms = ["HS256"]
        copy = {{ X-Email = "email", X-Roles = "roles", X-Level = "level", X-Odd = "odd", X-None = "none" }}

        [[route]]
        path = "/"
        kind = "proxy"
        to = "{to}"
        auth = "tokens"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let bearer = format!("Bearer {token}");
    let lines = [("Authorization", &*bearer), ("X-Roles", "root"), ("X.Odd", "root"), ("X-None", "root")];
    let reply = site.client().ask("GET", "/", &lines);
    let text = reply.text();
    assert_eq!(reply.status, 200);
    for line in ["X-Email: ann@example.org\r\n", "X-Roles: read,write\r\n", "X-Level: 3\r\n"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("root") && !text.contains("X-Odd") && !text.contains("X-None"), "{text}");
});

drivers!(credentials_in_two_lines_are_none, |driver: DriverName| {
    let rules = format!(
        r#"
        [auth.keys]
        kind = "key"
        keys = ["secret"]

        [auth.lines]
        kind = "key"
        keys = ["secret"]
        header = "X-Key"

        [auth.users]
        kind = "basic"
        users = {{ ann = "{GEHEIM}" }}

        [[route]]
        path = "/"
        kind = "respond"
        auth = ["keys", "lines", "users"]
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let (key, line, basic) = (
        ("Authorization", "Bearer secret"),
        ("X-Key", "secret"),
        ("Authorization", "Basic YW5uOmdlaGVpbQ=="),
    );
    for (one, other) in [
        (key, ("Authorization", "Bearer of.another.one")),
        (line, ("x-key", "of-another-one")),
        (basic, ("Authorization", "Basic Ym9iOmdlaGVpbQ==")),
    ] {
        assert_eq!(client.ask("GET", "/", &[one]).status, 200, "{one:?}");
        assert_eq!(client.ask("GET", "/", &[one, other]).status, 401, "{one:?}");
    }
    // Each in its own line: one of them is enough.
    assert_eq!(client.ask("GET", "/", &[("Authorization", "Bearer x"), line]).status, 200);
});

drivers!(a_request_without_room_for_the_name_of_its_caller_is_refused, |driver: DriverName| {
    let to = echo();
    let rules = format!(
        r#"
        limits = {{ header_count = 255 }}

        [auth.shop]
        kind = "key"
        keys = [{{ key = "secret", name = "ann" }}]
        tell = "X-User"

        [[route]]
        path = "/"
        kind = "proxy"
        to = "{to}"
        auth = "shop"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    // `Host`, the key, and as many others.
    let mut ask = |others: usize| {
        let mut lines = vec![("Authorization", "Bearer secret")];
        lines.extend(std::iter::repeat_n(("X-A", "b"), others));
        client.ask("GET", "/", &lines)
    };
    let (fits, full) = (ask(252), ask(253));
    assert!(fits.status == 200 && fits.text().contains("X-User: ann\r\n"), "{}", fits.head);
    assert_eq!(full.status, 431);
});

drivers!(keys_for_tokens_are_fetched_ahead_and_a_token_is_503_until_they_are_here, |driver: DriverName| {
    // RFC 8037, appendix A.1, and tokens that were made with its private key.
    let set = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let open = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&open);
    let (keys, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            if is_open.load(Ordering::SeqCst) {
                client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{set}", set.len()));
            } else {
                client.send("HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let rules = format!(
        r#"
        [auth.tokens]
        kind = "jwt"
        keys = "http://{keys}/jwks.json"
        algorithms = ["EdDSA"]

        [[route]]
        path = "/"
        kind = "respond"
        auth = "tokens"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let forged = ("Authorization", "Bearer eyJhbGciOiJFZERTQSIsImtpZCI6IjEifQ.eyJleHAiOjQxMDI0NDQ4MDB9.AAAA");
    assert_eq!(client.ask("GET", "/", &[forged]).status, 503);
    assert_eq!(client.get("/").status, 401, "without a token there is nothing to check");
    wait_until("the log tells why there are no keys", || {
        assert_eq!(site.client().ask("GET", "/", &[forged]).status, 503);
        site.event().to_string().ends_with(&format!("http://{keys}/jwks.json: status 503"))
    });
    open.store(true, Ordering::SeqCst);
    wait_until("the keys are fetched", || site.client().ask("GET", "/", &[forged]).status == 401);
    let refused = client.ask("GET", "/", &[forged]);
    let challenge = "Bearer realm=\"tokens\", error=\"invalid_token\"";
    assert_eq!(refused.header("WWW-Authenticate"), Some(challenge));
});

drivers!(a_token_of_a_new_key_waits_until_the_keys_are_fetched, |driver: DriverName| {
    // RFC 8037, appendix A.1: one key that gets other names, and tokens that were made with it.
    const KEY: &str = r#""kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;
    const OLD: &str = "Bearer eyJhbGciOiJFZERTQSIsImtpZCI6IjEifQ.eyJleHAiOjQxMDI0NDQ4MDB9.\
        oV72oQu64IZQL-55rKklKEDHAe--T_YFElH8P24rPGaIqsgr4uv4AHxzvLIRc2GHZ65w6HPqIlj0Zj5gb656AQ";
    const NEW: &str = "Bearer eyJhbGciOiJFZERTQSIsImtpZCI6IjIifQ.eyJleHAiOjQxMDI0NDQ4MDB9.\
        zvQLTnklTwUVnV3sX3Dj37orDv5gf7hcey2CF16n3d33ccb6iGAH-eAlYWg5Yk8tU2On8HrIFxw8o5ipzoY-Cw";
    const OTHER: &str = "Bearer eyJhbGciOiJFZERTQSIsImtpZCI6IjMifQ.eyJleHAiOjQxMDI0NDQ4MDB9.\
        ffChgF4Syivz3spedQJ-YrPSf3N0bWzR1A4Tej6bU6X2QIxgkMmqzCwS8ZStvkSiLC9IThroQeszu4lVwDk9CA";
    let fetches = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fetches);
    let (keys, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            let id = if count.fetch_add(1, Ordering::SeqCst) == 0 { 1 } else { 2 };
            let set = format!(r#"{{"keys":[{{"kid":"{id}",{KEY}}}]}}"#);
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{set}", set.len()));
        }
    });
    let rules = format!(
        r#"
        [auth.tokens]
        kind = "jwt"
        keys = "http://{keys}/jwks.json"
        algorithms = ["EdDSA"]

        [[route]]
        path = "/"
        kind = "respond"
        auth = "tokens"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let mut ask = |token| client.ask("GET", "/", &[("Authorization", token)]).status;
    assert_eq!(ask(OLD), 200, "the first request waits for the first fetch");
    assert_eq!(ask(NEW), 200, "the key of this one is fetched for it");
    assert_eq!(ask(OLD), 401, "its key is gone");
    assert_eq!(ask(OTHER), 401);
    assert_eq!(fetches.load(Ordering::SeqCst), 2, "not one for each token");
});

drivers!(the_time_to_an_answer_runs_while_credentials_are_checked, |driver: DriverName| {
    const SLOW: Duration = Duration::from_millis(50);
    let (slow, _) = behind(|client| {
        while client.until(b"\r\n\r\n").is_some() {
            // It is slow.
            std::thread::sleep(SLOW);
            client.send("HTTP/1.1 204 Fine\r\n\r\n");
        }
    });
    // Asked, it says nothing until the other side closes.
    let (silent, _) = behind(|client| drop(client.rest()));
    let to = echo();
    let rules = format!(
        r#"
        [auth.slow]
        kind = "ask"
        url = "http://{slow}/"

        [auth.silent]
        kind = "ask"
        url = "http://{silent}/"
        timeout = "20s"

        [[route]]
        path = "/slow"
        kind = "proxy"
        to = "{to}"
        auth = "slow"
        timeouts = {{ answer = "200s", tell = "X-Left" }}

        [[route]]
        path = "/silent"
        kind = "respond"
        auth = "silent"
        timeouts = {{ answer = "100ms" }}
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let reply = client.get("/slow");
    let left = reply.text().lines().find_map(|line| line.strip_prefix("X-Left: ")).unwrap().parse::<u128>();
    assert!(left.unwrap() <= (Duration::from_secs(200) - SLOW).as_millis(), "{}", reply.text());
    assert_eq!(client.get("/silent").status, 503);
    let why = site.event().to_string();
    assert!(why.contains("timeouts.answer"), "{why}");
});
