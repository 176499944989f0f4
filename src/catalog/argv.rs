//! From the parameters of a task to the command that is run. Everything in it stands in the catalog, or is a number
//! within the catalog's bounds written by us; nothing that came with the task gets through as it was.

use std::collections::BTreeMap;

use serde_json::Value;

use super::model::{Action, Arg, Param};
use crate::vocabulary::{ParamName, clipped, printable};

/// How much of a refused value is shown, in characters.
const SHOWN: usize = 80;
/// How much of the list of what is allowed.
const SHOWN_ALLOWED: usize = 300;

/// Why parameters were refused. The code for all of these is `bad_param`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The action has no such parameter.
    #[error("there is no parameter `{given}`; {}", list(.known))]
    Unknown {
        /// Its name, made printable and cut.
        given: String,
        /// What the action has.
        known: Vec<ParamName>,
    },
    /// A parameter is not given.
    #[error("parameter `{param}` is missing; expected {allowed}")]
    Missing {
        /// Which.
        param: ParamName,
        /// What it may be.
        allowed: String,
    },
    /// A value is none of those allowed.
    #[error("parameter `{param}` cannot be {given}; expected {allowed}")]
    Value {
        /// Which.
        param: ParamName,
        /// What was given, as JSON, made printable and cut.
        given: String,
        /// What it may be.
        allowed: String,
    },
}

impl Action {
    /// The command for these parameters: the catalog's words, each placeholder filled with one value.
    ///
    /// A value of an enum must be a JSON string, equal to the byte. A number may be a JSON integer or a string of ASCII
    /// digits: no sign, no leading zero, no fraction, no exponent.
    ///
    /// # Errors
    /// [`ParamError`], with the parameter's name: one that the action does not have, one that is missing, a value that
    /// is not allowed.
    pub fn argv(&self, given: &BTreeMap<String, Value>) -> Result<Vec<String>, ParamError> {
        if let Some(name) =
            given.keys().find(|name| !self.params.keys().any(|param| param.as_str() == **name))
        {
            return Err(ParamError::Unknown {
                given: shown(name),
                known: self.params.keys().cloned().collect(),
            });
        }
        // Every parameter has a place in the command, so each is looked at exactly once.
        self.argv
            .iter()
            .map(|arg| match arg {
                Arg::Literal(text) => Ok(text.clone()),
                Arg::Param(name) => self.value(name, given.get(name.as_str())),
            })
            .collect()
    }

    fn value(&self, name: &ParamName, given: Option<&Value>) -> Result<String, ParamError> {
        let param = self.params.get(name);
        let allowed = || {
            let all = param.map(|param| format!("{}{param}", wanted(param))).unwrap_or_default();
            clipped(&all, SHOWN_ALLOWED).into_owned()
        };
        let given = given.ok_or_else(|| ParamError::Missing { param: name.clone(), allowed: allowed() })?;
        param.and_then(|param| param.accept(given)).ok_or_else(|| ParamError::Value {
            param: name.clone(),
            given: shown(&given.to_string()),
            allowed: allowed(),
        })
    }
}

impl Param {
    /// The argument for a value, if it is allowed.
    fn accept(&self, given: &Value) -> Option<String> {
        match self {
            Self::Enum(values) => {
                let text = given.as_str()?;
                values.iter().find(|value| *value == text).cloned()
            }
            Self::Int { min, max } => {
                let number = match given {
                    Value::Number(number) => number.as_u64(),
                    Value::String(text) => decimal(text),
                    Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
                }?;
                (u64::from(*min)..=u64::from(*max)).contains(&number).then(|| number.to_string())
            }
        }
    }
}

/// A number as only one spelling of it would be.
fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

fn shown(text: &str) -> String {
    clipped(&printable(text), SHOWN).into_owned()
}

fn wanted(param: &Param) -> &'static str {
    match param {
        Param::Enum(values) if values.len() == 1 => "",
        Param::Enum(_) => "one of ",
        Param::Int { .. } => "a whole number from ",
    }
}

fn list(params: &[ParamName]) -> String {
    let names: Vec<&str> = params.iter().map(ParamName::as_str).collect();
    if names.is_empty() {
        "this action takes none".to_owned()
    } else {
        format!("expected {}", names.join(", "))
    }
}
