//! The record of a load is one of those that `docs/record.schema.json` describes.

use crate::server::{Server, ok};
use crate::{best, http, run};
use ringroad_load::Plan;
use ringroad_load::plan::Pace;
use ringroad_load::report::{Frame, record, skipped};
use ringroad_load::schedule::Arrivals;
use ringroad_measure::{Histogram, Record};
use serde_json::Value;

pub(crate) fn frame() -> Frame {
    Frame {
        command: vec!["ringroad".to_owned(), "load".to_owned()],
        started: "2026-11-21T00:00:00Z".to_owned(),
        host: serde_json::Map::new(),
        driver: "epoll".to_owned(),
    }
}

/// Every property that the schema requires of an object is there, and of the right type where it says one.
fn check(schema: &Value, name: &str, value: &Value) {
    let definition = if name.is_empty() { schema } else { &schema["$defs"][name] };
    for key in definition["required"].as_array().unwrap() {
        let key = key.as_str().unwrap();
        let member = value.get(key).unwrap_or_else(|| panic!("{name} has no {key}"));
        let rule = &definition["properties"][key];
        let kind = match member {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let allowed: Vec<&str> = match &rule["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        let fits =
            allowed.is_empty() || allowed.contains(&kind) || kind == "integer" && allowed.contains(&"number");
        assert!(fits, "{name}/{key} is {member}, and {allowed:?} is expected");
        if let Some(of) = rule["$ref"].as_str().and_then(|of| of.strip_prefix("#/$defs/")) {
            check(schema, of, member);
        }
        if let (Some(of), Value::Array(items)) = (rule["items"]["$ref"].as_str(), member) {
            items.iter().for_each(|item| check(schema, of.strip_prefix("#/$defs/").unwrap(), item));
        }
    }
}

fn schema() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/record.schema.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn a_record_is_as_the_schema_says_and_reads_back_the_same() {
    let open = Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant };
    for pace in [Pace::Closed, open] {
        let server = Server::http(|_| ok());
        let plan = Plan { pace, ..http(server.address) };
        let outcome = run(&plan, &best()).unwrap();
        let record = record(&plan, &outcome, &frame());
        let text = serde_json::to_string(&record).unwrap();
        check(&schema(), "", &serde_json::from_str(&text).unwrap());
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(back, record);
        let cell = &back.cells[0];
        assert_eq!((cell.sent, cell.completed, cell.payload_bytes), (12, 12, 5));
        let histogram = Histogram::from_base64(cell.histogram.as_ref().unwrap()).unwrap();
        assert_eq!(histogram, outcome.tally.latencies.response);
        assert_eq!(cell.latency_us.lag.is_some(), pace != Pace::Closed);
        assert!(cell.latency_us.service.is_some());
    }
}

#[test]
fn what_could_not_begin_is_a_cell_with_its_reason() {
    let plan = http(std::net::SocketAddr::from(([127, 0, 0, 1], 9)));
    let record = skipped(&plan, "connect: refused", &frame());
    let value = serde_json::to_value(&record).unwrap();
    check(&schema(), "", &value);
    assert_eq!(value["cells"][0]["skipped"], "connect: refused");
    assert_eq!(value["cells"][0]["rps"], Value::Null);
}
