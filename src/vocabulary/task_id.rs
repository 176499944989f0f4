//! What a task is known by.

use super::ids::{IdError, random};
use super::names::TaskId;

/// What the id of every canary begins with: no real task has such an id.
pub const CANARY_ID: &str = "canary-";

impl TaskId {
    /// A fresh one, a UUID of version 7 (RFC 9562): it carries the time, so that whoever looks for the task's traces knows
    /// from when on to look. `now_ms` is milliseconds since 1970.
    ///
    /// # Errors
    /// The kernel's random source does not answer.
    pub fn fresh(now_ms: u64) -> Result<Self, IdError> {
        let mut bytes = random()?;
        let [_, _, time @ ..] = now_ms.to_be_bytes();
        for (to, from) in bytes.iter_mut().zip(time) {
            *to = from;
        }
        for (at, keep, set) in [(6, 0x0f, 0x70), (8, 0x3f, 0x80)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = (*byte & keep) | set;
            }
        }
        let mut text = String::with_capacity(36);
        for (n, byte) in bytes.iter().enumerate() {
            if matches!(n, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            // Writing to a String cannot fail.
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        }
        text.parse().map_err(|_| IdError::new("a task's id", "a UUID to be one"))
    }

    /// When it was made by its maker's clock, in milliseconds since 1970; `None` if the id does not say.
    pub fn made_ms(&self) -> Option<u64> {
        let text = self.as_str();
        let text = text.strip_prefix(CANARY_ID).unwrap_or(text);
        let bytes = text.as_bytes();
        let shape = bytes.len() == 36
            && bytes.iter().enumerate().all(|(n, b)| match n {
                8 | 13 | 18 | 23 => *b == b'-',
                14 => *b == b'7',
                19 => matches!(b, b'8' | b'9' | b'a' | b'b'),
                _ => b.is_ascii_hexdigit(),
            });
        let digits = format!("{}{}", text.get(..8)?, text.get(9..13)?);
        u64::from_str_radix(&digits, 16).ok().filter(|_| shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_id_is_a_uuid_that_tells_its_time() {
        let id = TaskId::fresh(1_764_428_400_123).unwrap();
        assert_eq!(id.made_ms(), Some(1_764_428_400_123));
        assert_eq!(id.as_str().as_bytes()[14], b'7');
        let canary: TaskId = format!("{CANARY_ID}{id}").parse().unwrap();
        assert_eq!(canary.made_ms(), id.made_ms());
        assert_ne!(id, TaskId::fresh(1_764_428_400_123).unwrap());
    }

    #[test]
    fn other_ids_tell_none() {
        for id in [
            "a",
            "7",
            "019ad0c2-0f7b-4000-8000-000000000000",
            "019ad0c2-0f7b-7000-0000-000000000000",
            "0-1.2_3",
        ] {
            assert_eq!(id.parse::<TaskId>().unwrap().made_ms(), None, "{id}");
        }
        for bad in ["", "a b", "a=b", "é", "a/b", &"a".repeat(65), "sha256:00", "a\nMESSAGE=x"] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }
}
