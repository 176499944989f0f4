//! Text from outside, made fit for a terminal or a log: a peer, a child process or a file may contain anything.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with everything neutralised that could move a cursor, start an escape sequence, reorder what is read or
/// hide it: control characters (C0, DEL, C1), bidirectional overrides, invisible and separator characters. They are
/// shown as `\n`, `\x1b` or `\u{202e}`. A backslash itself stays as it is, since unit names contain them; so the result
/// is for eyes and is not meant to be read back.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            escape(c, &mut shown);
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// As [`printable`], for bytes that may not be UTF-8: each invalid byte is shown as `\xNN`, so nothing is lost.
pub fn printable_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// The first `max` characters of a text from outside, as [`printable`].
pub fn bounded(text: &str, max: usize) -> String {
    printable(&text.chars().take(max).collect::<String>()).into_owned()
}

/// At most `max` characters of the text; what is cut off is replaced by one `…` within that length.
pub fn clipped(text: &str, max: usize) -> Cow<'_, str> {
    if text.char_indices().nth(max).is_none() {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

/// Cuts a text to at most `max` bytes; one that was longer ends in `…`.
pub fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        let mut end = max.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
        text.shrink_to_fit();
    }
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An error with its causes, in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn escape(c: char, into: &mut String) {
    let _ = match c {
        '\n' | '\r' | '\t' => write!(into, "{}", c.escape_default()),
        c if u32::from(c) < 0x100 => write!(into, "\\x{:02x}", u32::from(c)),
        c => write!(into, "{}", c.escape_unicode()),
    };
}

/// Whether a character could change what a terminal or a reader makes of the text around it: general category Cc, and of Cf, Zl
/// and Zp what has an effect on how the rest is seen (Unicode 16; the list of bidirectional characters is that of "Trojan Source",
/// CVE-2021-42574). The one definition: what is refused, escaped or shown as `?` for that is refused by this rule.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}'                            // soft hyphen
            | '\u{61c}'                         // Arabic letter mark
            | '\u{180e}'                        // Mongolian vowel separator
            | '\u{200b}'..='\u{200f}'           // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}'           // line and paragraph separators, bidirectional embeddings and overrides
            | '\u{2060}'..='\u{206f}'           // word joiner, invisible operators, bidirectional isolates
            | '\u{feff}'                        // byte order mark
            | '\u{fff9}'..='\u{fffb}'           // interlinear annotation
            | '\u{e0000}'..='\u{e007f}') // tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_that_could_steer_it() {
        assert_eq!(printable("\x1b[2Jx\r\n\t\0\x07\x7f"), "\\x1b[2Jx\\r\\n\\t\\x00\\x07\\x7f");
        assert_eq!(printable("\u{9b}31m"), "\\x9b31m");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{2028}"), "a\\u{202e}b\\u{2066}c\\u{2028}");
        assert_eq!(printable("\u{feff}\u{200b}\u{e0041}"), "\\u{feff}\\u{200b}\\u{e0041}");
        for c in '\0'..=char::MAX {
            let shown = printable(c.encode_utf8(&mut [0; 4])).into_owned();
            assert!(!shown.chars().any(is_unsafe), "{c:?}");
        }
    }

    #[test]
    fn ordinary_text_is_not_even_copied() {
        for text in ["", "a\\x2db.service", "日本語 und Wörter — ✓", "e\u{301}"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn invalid_bytes_are_shown_and_not_lost() {
        assert_eq!(printable_bytes(b"ok \xff\xc3\x28 \xe2\x82 \x1b"), "ok \\xff\\xc3( \\xe2\\x82 \\x1b");
        // Surrogates and overlong forms are no UTF-8 either.
        assert_eq!(printable_bytes(b"\xed\xa0\x80\xc0\x9b"), "\\xed\\xa0\\x80\\xc0\\x9b");
    }

    #[test]
    fn clipping_counts_characters_and_says_so() {
        assert_eq!(clipped("äöü", 3), "äöü");
        assert_eq!(clipped("äöüß", 3), "äö…");
        assert_eq!(clipped("x", 0), "…");
    }
}
