//! From bytes to a tree of values that know where they stand. Nothing here knows what a file is about: the tree takes
//! whatever YAML says, so that the walk after it can report every mistake and not only the first.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::budget::BudgetBreach;
use serde_yaml::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_yaml::{Location, Options, Spanned};

use super::report::{At, Located};

/// How deep collections may nest. A fleet file or a catalog needs six levels.
const MAX_DEPTH: usize = 12;
/// How many scalars, lists and maps a file may hold. A thousand workers with every setting written out need about
/// 25,000.
const MAX_NODES: usize = 50_000;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    /// Where it begins; its length is zero for lists and maps.
    pub at: At,
    /// What it is.
    pub kind: Kind,
}

/// What YAML says a value is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`, and nothing else that YAML 1.1 took for one.
    Bool(bool),
    /// A number. Its spelling is in the source.
    Number,
    /// Text, quoted or not.
    Text(String),
    /// `[…]` or lines that begin with `-`.
    List(Vec<Value>),
    /// `{…}` or lines with `key:`, in the order written, duplicates included.
    Map(Vec<(Located<String>, Value)>),
}

impl Kind {
    /// What to call it in front of a person.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Why there is no tree.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    /// Where.
    pub at: At,
    /// What is wrong.
    pub message: String,
    /// What is expected instead.
    pub help: String,
}

/// Reads one document. Anchors, aliases, merge keys, tags of one's own, deep nesting and a second document are
/// refused, so the tree is never much larger than the text.
pub(crate) fn read(source: &str) -> Result<Value, SyntaxError> {
    serde_yaml::from_str_with_options::<Spanned<Kind>>(source, options())
        .map(Value::from)
        .map_err(|error| syntax_error(&error, source))
}

fn options() -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_merge_keys: 0,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_documents: 1,
            max_inclusion_depth: 0,
        },
        // Duplicates come through so that the walk can report all of them, each with its place; none is ever used.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // `<<` arrives as the unknown key that it is.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        reject_unsupported_tags: true,
        null_as_string: true,
        ignore_binary_tag_for_string: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

fn syntax_error(error: &serde_yaml::Error, source: &str) -> SyntaxError {
    let at = error.location().map(|location| located(location, source)).unwrap_or(At::START);
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "sixty variants of another's enum, most of which cannot occur"
    )]
    let (message, help) = match error {
        serde_yaml::Error::Budget { breach, .. } => budget(breach),
        serde_yaml::Error::UnknownAnchor { .. } => NO_ANCHORS,
        serde_yaml::Error::MultipleDocuments { .. } => SECOND_DOCUMENT,
        _ => {
            let text = error.to_string();
            // The place is said once, before the message.
            let place = format!(" at line {}, column {}", at.line, at.column);
            // The scanner's own limit has no variant of its own.
            if text.starts_with("recursion limit exceeded") {
                return SyntaxError { at, message: TOO_DEEP.0.to_owned(), help: TOO_DEEP.1.to_owned() };
            }
            let text = text.lines().next().unwrap_or_default().trim_end_matches(place.as_str());
            return SyntaxError {
                at,
                message: format!("this is not YAML: {text}"),
                help: syntax_help(at, source).to_owned(),
            };
        }
    };
    SyntaxError { at, message: message.to_owned(), help: help.to_owned() }
}

/// The most likely cause: an address in brackets is a list to YAML.
fn syntax_help(at: At, source: &str) -> &'static str {
    let line = source.lines().nth((at.line as usize).saturating_sub(1)).unwrap_or_default();
    if line.contains("address: [") {
        "an IPv6 address must stand in quotes: \"[2001:db8::40]:7433\""
    } else {
        "expected `key: value`; look at the indentation, quotes and brackets here and on the line above"
    }
}

const TOO_DEEP: (&str, &str) = ("this is nested too deeply", "expected at most six levels");
const NO_ANCHORS: (&str, &str) = ("anchors and aliases are not allowed", "write the value out");
const SECOND_DOCUMENT: (&str, &str) =
    ("a second YAML document begins here", "expected one document in the file; take out `---`");

fn budget(breach: &BudgetBreach) -> (&'static str, &'static str) {
    #[expect(clippy::wildcard_enum_match_arm, reason = "another's enum, open to new members")]
    match breach {
        BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } => NO_ANCHORS,
        BudgetBreach::Documents { .. } => SECOND_DOCUMENT,
        BudgetBreach::Depth { .. } => TOO_DEEP,
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
            ("there are too many values in this file", "expected at most 50,000")
        }
        _ => ("this uses more of YAML than this file may", "expected plain maps, lists and values"),
    }
}

/// The reader gives syntax errors a line and column only; the byte offset follows from them.
fn located(location: Location, source: &str) -> At {
    let at = At::from(location);
    let before: usize =
        source.split_inclusive('\n').take((at.line as usize).saturating_sub(1)).map(str::len).sum();
    let line = source.get(before..).unwrap_or_default();
    let within =
        line.char_indices().nth((at.column as usize).saturating_sub(1)).map_or(line.len(), |(n, _)| n);
    At { start: before + within, len: 0, ..at }
}

impl From<Location> for At {
    fn from(location: Location) -> Self {
        let span = location.span();
        let number = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Self {
            line: location.line().try_into().unwrap_or(u32::MAX),
            column: location.column().try_into().unwrap_or(u32::MAX),
            start: number(span.byte_offset()),
            len: number(span.byte_len()),
        }
    }
}

impl From<Spanned<Kind>> for Value {
    fn from(spanned: Spanned<Kind>) -> Self {
        Self { at: spanned.defined.into(), kind: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Kind, E> {
        Ok(Kind::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Kind, E> {
        Ok(Kind::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Kind, E> {
        Ok(Kind::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Kind>>()? {
            items.push(item.into());
        }
        Ok(Kind::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Spanned<Kind>>()? {
            entries.push((Located { at: key.defined.into(), value: key.value }, value.into()));
        }
        Ok(Kind::Map(entries))
    }
}
