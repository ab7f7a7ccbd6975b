//! Frameworks of PHP, as Debian packages them, unchanged: in a server of Swoole's, and behind FastCGI.

use crate::support::{start, write};
use ringroad_engine::DriverName;
use std::io::Write as _;
use std::process::Command;

/// Each framework: its name, the file that is there when it is installed, and a small application.
const FRAMEWORKS: [(&str, &str, &str); 3] = [
    ("slim", "Slim/autoload.php", include_str!("../apps/php_slim.php")),
    ("symfony", "Symfony/Component/HttpKernel/autoload.php", include_str!("../apps/php_symfony.php")),
    ("laravel", "Illuminate/autoload.php", include_str!("../apps/php_laravel.php")),
];

/// Whether PHP finds this file and has what both ways need; says so where it does not.
fn is_there(name: &str, file: &str) -> bool {
    let asked = format!(
        "foreach (['sockets', 'pcntl', 'posix', 'shmop'] as $one) extension_loaded($one) || exit(1);\
         exit(stream_resolve_include_path('{file}') && !extension_loaded('swoole') ? 0 : 1);"
    );
    let runs = |program: &str, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
    };
    let found = runs("php", &["-r", &asked]) && runs("php-cgi", &["-v"]);
    if !found {
        // Past the capture of the test harness.
        let _ = writeln!(std::io::stderr(), "skipped: PHP with {name} ({file}) and php-cgi is not installed");
    }
    found
}

drivers!(
    an_application_of_a_framework_answers_in_a_server_of_swoole_and_behind_fastcgi,
    |driver: DriverName| {
        for (name, file, program) in FRAMEWORKS {
            if !is_there(name, file) {
                continue;
            }
            let ways = [
                "[[app]]\nname = \"web\"\napp = \"public/index.php\"\nworkers = 1\nqueue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\n\
             app = \"web\"\n",
                "[[app]]\nname = \"web\"\ncommand = [\"php-cgi\"]\nprotocol = \"fastcgi\"\nworkers = 1\nqueue_timeout = \"2m\"\n[[route]]\npath = \"/\"\n\
             kind = \"php\"\nroot = \"public\"\napp = \"web\"\n",
            ];
            for way in ways {
                let site = start(driver, way, |folder| {
                    std::fs::create_dir(folder.join("public")).unwrap();
                    write(folder, "public/index.php", program);
                });
                let mut client = site.client();
                let hello = client.get("/hello/you?q=1");
                assert_eq!((hello.status, hello.text()), (200, "hello you 1"), "{name} with {way}");
                assert_eq!(hello.header("X-Framework"), Some(name), "{way}");
                let body = "a=1&b%5B%5D=2";
                client.send(format!(
                "POST /form HTTP/1.1\r\nHost: a\r\nCookie: c=d\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ));
                let form = client.reply();
                let told = "[{\"a\":\"1\",\"b\":[\"2\"]},{\"c\":\"d\"}]";
                assert_eq!((form.status, form.text()), (201, told), "{name} with {way}");
                assert_eq!(client.get("/none").status, 404, "{name} with {way}");
                assert_eq!(client.get("/fail").status, 500, "{name} with {way}");
                // What failed has not ended the worker.
                assert_eq!(client.get("/hello/again").text(), "hello again ", "{name} with {way}");
            }
        }
    }
);
