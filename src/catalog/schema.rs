//! The JSON Schema of a catalog, for editors. It is made of the same names and bounds that the reader uses; what a schema
//! cannot say (that placeholders and parameters are the same ones) only the reader says.

use serde_json::{Map, Value, json};

use super::leaf::{MAX_ARG, MAX_DESCRIPTION};
use super::model::DEFAULT_TIMEOUT;
use super::raw;
use crate::vocabulary::human;

/// What an editor can check while one types.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "keyholder catalog",
        "description": "What one node may be asked to do, and by which exact commands",
        "type": "object",
        "additionalProperties": false,
        "required": raw::FILE,
        "properties": {
            "version": { "const": 1 },
            "node": {
                "description": "The node whose lanes serve this catalog",
                "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
            },
            "actions": {
                "description": "Every action by its name",
                "type": "object", "minProperties": 1, "maxProperties": raw::MAX_ACTIONS,
                "propertyNames": { "pattern": "^[a-z0-9_]+(\\.[a-z0-9_]+)*$", "maxLength": 64 },
                "additionalProperties": action(),
            },
        },
    })
}

fn action() -> Value {
    let words = |words: Vec<&str>, description: &str| json!({ "enum": words, "description": description });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["mode", "argv"],
        "properties": {
            "mode": words(raw::MODE.map(|(word, _)| word).into(), "read changes nothing and runs in parallel; write runs one at a time"),
            "description": {
                "description": "One line for people and planners",
                "type": "string", "maxLength": MAX_DESCRIPTION,
            },
            "argv": {
                "description": "The command: an absolute path and its arguments; \"{name}\" stands for a parameter",
                "type": "array", "minItems": 1, "maxItems": raw::MAX_ARGV,
                "prefixItems": [{ "type": "string", "pattern": "^/[A-Za-z0-9/._+@-]+$" }],
                "items": {
                    "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": MAX_ARG,
                    "pattern": "^(\\{[a-z][a-z0-9_]{0,31}\\}|[ -z|~]+)$",
                },
            },
            "params": {
                "description": "The parameters, each an enum or a range of whole numbers",
                "type": "object", "minProperties": 1, "maxProperties": raw::MAX_PARAMS,
                "propertyNames": { "pattern": "^[a-z][a-z0-9_]{0,31}$" },
                "additionalProperties": param(),
            },
            "timeout": duration(&format!("How long it may run; {} if not said", human(DEFAULT_TIMEOUT))),
            "rate": {
                "description": "How often it may run",
                "type": "object", "additionalProperties": false, "required": raw::RATE,
                "properties": {
                    "at_most": { "type": "integer", "minimum": raw::AT_MOST.start(), "maximum": raw::AT_MOST.end() },
                    "per": duration("Within which time"),
                },
            },
            "approval": words(raw::APPROVAL.map(|(word, _)| word).into(), "Whether a person must approve each run"),
            "idempotent": flag("Whether running it twice does the same as running it once; only then is it run again after a lane died in it"),
            "only_here": flag("Whether no other node may have an action of this name, so that the name alone says the route"),
        },
    })
}

fn param() -> Value {
    let one = |name: &str, value: Value| json!({ "additionalProperties": false, "required": [name], "properties": Map::from_iter([(name.to_owned(), value)]) });
    json!({
        "type": "object",
        "oneOf": [
            one("enum", json!({
                "type": "array", "minItems": 1, "maxItems": raw::MAX_VALUES, "uniqueItems": true,
                "items": {
                    "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": MAX_ARG,
                    "pattern": "^[ -,.-~][ -~]*$",
                },
            })),
            one("int", json!({
                "type": "object", "additionalProperties": false, "required": raw::INT,
                "properties": {
                    "min": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                    "max": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                },
            })),
        ],
    })
}

fn duration(description: &str) -> Value {
    json!({ "type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$", "description": format!("{description} (30s, 5m, 1h30m)") })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "default": false, "description": description })
}
