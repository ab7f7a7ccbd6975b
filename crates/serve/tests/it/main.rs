//! The tool as a library, over real sockets: one body of scenarios for every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![forbid(unsafe_code)]

#[path = "../../../http/tests/it/drivers.rs"]
#[macro_use]
mod drivers;
mod acme;
mod answers;
mod app_lives;
mod app_sockets;
mod apps;
mod bad_day;
mod buffering;
mod caching;
mod configuration;
mod credentials;
mod early;
mod environments;
mod escapes;
mod files;
#[allow(dead_code, reason = "the HTTP library's tests use the rest")]
#[path = "../../../http/tests/it/http2/frames.rs"]
mod frames;
mod frameworks;
mod goridge;
mod guards;
mod http2;
mod http2_websocket;
mod hubs;
mod kept;
mod limits;
mod locations;
mod moving;
mod observing;
#[path = "../../../http/tests/it/over.rs"]
mod over;
mod php;
mod php_frameworks;
#[allow(dead_code, reason = "the command's tests use the rest")]
mod ports;
mod programs;
mod proxying;
#[path = "../../../stores/tests/it/server.rs"]
mod redis;
mod reference;
mod reloading;
mod routing;
mod shaping;
mod shared_limits;
mod sharing;
mod steps;
mod support;
mod swoole;
mod tasks;
mod tls;
mod transports;
mod tunnels;
mod uploads;
mod upstream_http2;
mod upstream_tls;
