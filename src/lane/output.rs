//! Keeping what a child writes, in bounded memory.

use std::collections::VecDeque;

use super::result::{Output, Text};

/// How much of the beginning and how much of the end is kept, in bytes.
const HALF: usize = 32 * 1024;

/// The beginning and the end of a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
}

impl Kept {
    /// Takes the next bytes in.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(HALF.saturating_sub(self.head.len())));
        self.head.extend_from_slice(head);
        // Of a long piece only the last part can stay.
        let skip = rest.len().saturating_sub(HALF);
        let rest = rest.get(skip..).unwrap_or_default();
        let surplus = (self.tail.len() + rest.len()).saturating_sub(HALF);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
        self.omitted += (skip + surplus) as u64;
    }

    /// All that was kept. Where nothing is omitted, it is in one piece; a character that the cut went through is counted
    /// as omitted, so that text stays text.
    pub(super) fn into_output(self) -> Output {
        let Self { mut head, tail, mut omitted } = self;
        let mut tail = Vec::from(tail);
        if omitted == 0 {
            head.append(&mut tail);
            return Output { head: Text::of(head), ..Output::default() };
        }
        let end = head.utf8_chunks().last().map_or(0, |last| {
            // Only an incomplete character at the very end is the cut's work.
            let cut = last.invalid();
            if cut.len() < 4 && head.ends_with(cut) { cut.len() } else { 0 }
        });
        omitted += end as u64;
        head.truncate(head.len() - end);
        let begin = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        omitted += begin as u64;
        tail.drain(..begin);
        Output { head: Text::of(head), tail: Text::of(tail), omitted }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &Text) -> &str {
        match text {
            Text::Text(text) | Text::Escaped(text) => text,
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped_without_loss() {
        let mut kept = Kept::default();
        kept.push(b"a\xff\x1b\\\n");
        assert_eq!(kept.into_output().head, Text::Escaped("a\\xff\\x1b\\\\\\n".to_owned()));
    }

    #[test]
    fn a_cut_through_a_character_leaves_text() {
        let mut kept = Kept::default();
        let all = "x".to_owned() + &"ä".repeat(3 * HALF);
        kept.push(all.as_bytes());
        let output = kept.into_output();
        assert!(matches!((&output.head, &output.tail), (Text::Text(_), Text::Text(_))), "{output:?}");
        let shown = text(&output.head).len() + text(&output.tail).len();
        assert_eq!(shown as u64 + output.omitted, all.len() as u64);
    }

    proptest! {
        #[test]
        fn head_and_tail_are_what_was_written_however_it_came(
            pieces in proptest::collection::vec(1usize..3 * HALF, 0..6),
        ) {
            let total: usize = pieces.iter().sum();
            let all: Vec<u8> = (0..total).map(|n| b'a' + (n % 23) as u8).collect();
            let mut kept = Kept::default();
            let mut rest = &all[..];
            for piece in pieces {
                let (now, later) = rest.split_at(piece);
                kept.push(now);
                rest = later;
            }
            let output = kept.into_output();
            prop_assert!(all.starts_with(text(&output.head).as_bytes()));
            prop_assert!(all.ends_with(text(&output.tail).as_bytes()));
            let shown = text(&output.head).len() + text(&output.tail).len();
            prop_assert_eq!(shown as u64 + output.omitted, total as u64);
            prop_assert!(shown <= 2 * HALF);
            prop_assert!(total > 2 * HALF || output.omitted == 0);
        }
    }
}
