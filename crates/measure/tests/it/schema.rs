//! A checker for the part of JSON Schema 2020-12 that `docs/record.schema.json` uses, and no more.
//!
//! It refuses a keyword it does not know, so that the schema cannot contain a demand that is never checked.
//! It also notes which properties it met, for the test that the schema and the types name the same ones.
//! Start at [`check`].

use serde_json::Value;
use std::collections::BTreeSet;

/// What is wrong with `value`, and which properties of the schema were met (`/cell/rps`).
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) faults: Vec<String>,
    /// Properties of the value that the schema names.
    pub(crate) met: BTreeSet<String>,
    /// Properties of the value that the schema does not name. Readers ignore them, so they are no faults.
    pub(crate) unnamed: Vec<String>,
}

/// Checks `value` against the root of `schema`.
pub(crate) fn check(schema: &Value, value: &Value) -> Outcome {
    let mut outcome = Outcome::default();
    Checker { root: schema, outcome: &mut outcome }.visit(schema, value, "", "$");
    outcome
}

/// All properties the schema names, in the spelling of [`Outcome::met`].
pub(crate) fn properties(schema: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let defs = schema["$defs"].as_object().unwrap();
    for (object, definition) in
        defs.iter().map(|(name, def)| (format!("/{name}"), def)).chain([(String::new(), schema)])
    {
        names.extend(
            definition["properties"].as_object().unwrap().keys().map(|key| format!("{object}/{key}")),
        );
    }
    names
}

struct Checker<'a> {
    root: &'a Value,
    outcome: &'a mut Outcome,
}

impl Checker<'_> {
    fn fault(&mut self, at: &str, what: impl std::fmt::Display) {
        self.outcome.faults.push(format!("{at}: {what}"));
    }

    /// `object` is the definition we are in (`/cell`, or `` for the root), `at` the place in the value.
    fn visit(&mut self, schema: &Value, value: &Value, object: &str, at: &str) {
        for (keyword, rule) in schema.as_object().expect("a schema is an object") {
            match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" | "properties" => {}
                "$ref" => {
                    let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                    let root = self.root;
                    self.visit(&root["$defs"][name], value, &format!("/{name}"), at);
                }
                "anyOf" => self.any_of(rule.as_array().unwrap(), value, object, at),
                "type" => {
                    let types = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                    if !types.iter().any(|name| is_type(value, name.as_str().unwrap())) {
                        self.fault(at, format_args!("{value} is not of type {rule}"));
                    }
                }
                "const" if value != rule => self.fault(at, format_args!("{value} is not {rule}")),
                "const" => {}
                "enum" if !rule.as_array().unwrap().contains(value) => {
                    self.fault(at, format_args!("{value} is none of {rule}"));
                }
                "enum" => {}
                "minimum" | "maximum" => {
                    let (limit, number) = (rule.as_f64().unwrap(), value.as_f64());
                    if number.is_some_and(|n| if keyword == "minimum" { n < limit } else { n > limit }) {
                        self.fault(at, format_args!("{value} is beyond {keyword} {rule}"));
                    }
                }
                "items" => {
                    for (nth, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.visit(rule, item, object, &format!("{at}[{nth}]"));
                    }
                }
                "required" => {
                    for name in rule.as_array().unwrap() {
                        if value.as_object().is_some_and(|map| !map.contains_key(name.as_str().unwrap())) {
                            self.fault(at, format_args!("{name} is missing"));
                        }
                    }
                }
                other => panic!("the schema uses {other}, which this checker does not know"),
            }
        }
        if let (Some(properties), Some(map)) = (schema["properties"].as_object(), value.as_object()) {
            for (name, value) in map {
                let at = format!("{at}.{name}");
                match properties.get(name) {
                    Some(rule) => {
                        self.outcome.met.insert(format!("{object}/{name}"));
                        self.visit(rule, value, object, &at);
                    }
                    None => self.outcome.unnamed.push(at),
                }
            }
        }
    }

    fn any_of(&mut self, choices: &[Value], value: &Value, object: &str, at: &str) {
        let mut faults = Vec::new();
        for choice in choices {
            let mut outcome = Outcome::default();
            Checker { root: self.root, outcome: &mut outcome }.visit(choice, value, object, at);
            if outcome.faults.is_empty() {
                self.outcome.met.extend(outcome.met);
                self.outcome.unnamed.extend(outcome.unnamed);
                return;
            }
            faults.extend(outcome.faults);
        }
        self.outcome.faults.extend(faults);
    }
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        // In JSON Schema 1.0 is an integer too; ours are written without a point.
        "integer" => value.is_u64() || value.is_i64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the schema names the type {other}, which is not one of JSON"),
    }
}
