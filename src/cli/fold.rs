//! Breaks sentences into lines, so that the terminal does not break words.

/// The sentence in lines of at most `width` columns, broken between words: the first begins at column `at`, the others are
/// indented by `indent`. Without a width it stays one line.
///
/// A word that is longer than a line stays whole, so that a path or a pin can still be copied. What colours a word takes no
/// column.
pub fn fold(sentence: &str, width: Option<u16>, at: usize, indent: usize) -> String {
    let Some(width) = width.map(usize::from) else { return sentence.to_owned() };
    let (mut text, mut column) = (String::with_capacity(sentence.len() + 32), at);
    // Spaces in a row give empty words, which keep them.
    for (n, word) in sentence.split(' ').enumerate() {
        let length = columns(word);
        if n > 0 && column + 1 + length > width && column > indent {
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if n > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

/// Each line of a text, broken where it is longer than `width`; what follows is indented by two more than the line itself.
pub fn fold_lines(text: &str, width: Option<u16>) -> String {
    let mut folded = String::with_capacity(text.len() + 32);
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        folded.push_str(&fold(line, width, 0, indent + 2));
    }
    folded
}

/// The columns that a text takes: its characters without `ESC [ … m`.
fn columns(text: &str) -> usize {
    let mut chars = text.chars();
    let mut count = 0;
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            chars.by_ref().find(|c| *c == 'm');
        } else if c != '\n' {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words_and_hang_where_they_should() {
        let told = "one two three four";
        assert_eq!(fold(told, None, 5, 2), told);
        assert_eq!(fold(told, Some(18), 0, 2), told);
        assert_eq!(fold(told, Some(17), 0, 2), "one two three\n  four");
        assert_eq!(fold(told, Some(10), 5, 2), "one\n  two\n  three\n  four");
        assert_eq!(fold("a  b", Some(80), 0, 2), "a  b");
        assert_eq!(fold("abc  d", Some(5), 0, 2), "abc\n  d");
        assert_eq!(fold_lines("one two\n  three four\n", Some(9)), "one two\n  three\n    four\n");
        assert_eq!(fold_lines("one two\n", Some(7)), "one two\n");
    }

    #[test]
    fn a_long_word_stays_whole_and_colour_takes_no_room() {
        assert_eq!(fold("abc /a/rather/long/path b", Some(10), 0, 2), "abc\n  /a/rather/long/path\n  b");
        assert_eq!(fold("\x1b[31mone\x1b[0m two", Some(7), 0, 2), "\x1b[31mone\x1b[0m two");
        assert_eq!(fold("/a/rather/long/path", Some(10), 2, 2), "/a/rather/long/path");
    }
}
