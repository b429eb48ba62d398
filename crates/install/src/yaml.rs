//! YAML of marked objects: for people, with comments, or as a template of Helm.

use crate::marks::{IF, Piece, WHY, conditional_item, pieces, test};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Where comments end, in characters from the left.
const WIDTH: usize = 120;

/// What becomes of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// There are none left, save comments.
    Plain,
    /// Expressions of Helm.
    Template,
}

/// A document.
pub(crate) fn write(value: &Value, form: Form) -> String {
    let mut out = Writer {
        form,
        text: String::new(),
    };
    match value {
        Value::Object(map) => out.map(map, 0),
        other => {
            let text = out.scalar(other);
            out.line(0, &text);
        }
    }
    out.text
}

struct Writer {
    form: Form,
    text: String,
}

impl Writer {
    fn line(&mut self, indent: usize, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:indent$}{text}", "");
    }

    fn comment(&mut self, map: &Map<String, Value>, indent: usize) {
        if let Some(why) = map.get(WHY).and_then(Value::as_str) {
            for line in wrap(why, WIDTH - indent - 2) {
                self.line(indent, &format!("# {line}"));
            }
        }
    }

    /// Entries that depend on something come last, so that what stands first can follow the dash of a list.
    fn map(&mut self, map: &Map<String, Value>, indent: usize) {
        self.comment(map, indent);
        self.entries(map, indent);
    }

    fn entries(&mut self, map: &Map<String, Value>, indent: usize) {
        for (key, value) in map.iter().filter(|(key, _)| !key.starts_with('$')) {
            self.entry(key, value, indent);
        }
        for (key, value) in map.iter().filter(|(key, _)| key.starts_with(IF)) {
            if let (Some(test), Value::Object(inner)) = (test(key), value) {
                self.line(0, &format!("{{{{- if {} }}}}", test.expression()));
                self.map(inner, indent);
                self.line(0, "{{- end }}");
            }
        }
    }

    fn entry(&mut self, key: &str, value: &Value, indent: usize) {
        let key = self.text(key);
        match value {
            Value::Object(map) if map.keys().any(|k| k != WHY) => {
                self.comment(map, indent);
                self.line(indent, &format!("{key}:"));
                self.entries(map, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                self.line(indent, &format!("{key}:"));
                self.list(items, indent);
            }
            other => {
                let text = self.scalar(other);
                self.line(indent, &format!("{key}: {text}"));
            }
        }
    }

    fn list(&mut self, items: &[Value], indent: usize) {
        for item in items {
            match conditional_item(item) {
                Some((test, inner)) => {
                    self.line(0, &format!("{{{{- if {} }}}}", test.expression()));
                    self.item(inner, indent);
                    self.line(0, "{{- end }}");
                }
                None => self.item(item, indent),
            }
        }
    }

    fn item(&mut self, item: &Value, indent: usize) {
        match item {
            Value::Object(map) if map.keys().any(|k| k != WHY) => {
                self.comment(map, indent);
                let begin = self.text.len();
                self.entries(map, indent + 2);
                // The dash takes the place of the first entry's indentation.
                self.text.replace_range(begin + indent..=begin + indent, "-");
            }
            Value::String(text) if self.form == Form::Template && is_list(text) => {
                self.line(0, &format!("{{{{- range {} }}}}", expression(list_name(text))));
                self.line(indent, "- {{ toJson . }}");
                self.line(0, "{{- end }}");
            }
            other => {
                let text = self.scalar(other);
                self.line(indent, &format!("- {text}"));
            }
        }
    }

    fn scalar(&self, value: &Value) -> String {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(_) => "[]".to_owned(),
            Value::Object(_) => "{}".to_owned(),
            other => other.to_string(),
        }
    }

    fn text(&self, text: &str) -> String {
        if self.form == Form::Plain {
            return quoted(text);
        }
        match pieces(text).as_slice() {
            [Piece::Plain(plain)] => quoted(plain).replace("{{", "{{ \"{{\" }}"),
            [Piece::Setting(name)] => format!("{{{{ toJson {} }}}}", expression(name)),
            pieces => composed(pieces),
        }
    }
}

/// A text with settings in it, quoted once it is complete.
fn composed(pieces: &[Piece<'_>]) -> String {
    let (mut format, mut arguments) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Plain(plain) => format += &plain.replace('%', "%%"),
            Piece::Setting(name) => {
                format += "%v";
                arguments = arguments + " " + &expression(name);
            }
        }
    }
    format!("{{{{ printf {}{arguments} | toJson }}}}", Value::String(format))
}

/// How Helm gets at a setting.
fn expression(name: &str) -> String {
    match name {
        "namespace" => ".Release.Namespace".to_owned(),
        name => format!(".Values.{name}"),
    }
}

fn list_name(text: &str) -> &str {
    match pieces(text).as_slice() {
        [Piece::Setting(name)] => name,
        _ => "",
    }
}

/// Whether a text is a setting that is a list.
fn is_list(text: &str) -> bool {
    let name = list_name(text);
    crate::SETTINGS.iter().any(|s| s.name == name && s.default().is_array())
}

/// A text as YAML: plain where nobody could read anything else, else as JSON quotes it.
fn quoted(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

/// Breaks a text into lines of at most so many bytes, where its words allow.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_yaml_reads_back_as_it_was() {
        let value = json!({
            "a": "x", "b": "true", "c": "1", "d": "", "e": [], "f": {}, "g": [1, {"h": [{"i": null}], "j": false}], "k": "a: \"b\" # c\n{{d}}",
            "*": ["*", "ö", "10%"], "deep": {"er": {"and": "deeper"}},
        });
        let text = write(&value, Form::Plain);
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, value, "{text}");
    }

    #[test]
    fn comments_stand_above_what_they_explain() {
        let value = json!({"rules": [{"$why": "it is so", "a": 1}], "m": {"$why": "and so", "b": 2}});
        assert_eq!(
            write(&value, Form::Plain),
            "# and so\nm:\n  b: 2\nrules:\n# it is so\n- a: 1\n"
        );
    }

    #[test]
    fn marks_become_expressions_of_helm() {
        let value = json!({
            "count": "${replicas}", "s": "to 100% in ${namespace}", "plain": "a {{b}}", "$if:webhooks": {"w": 1},
            "l": ["x", "${extraArguments}", {"$if:crds": {"c": 1}}],
        });
        assert_eq!(
            write(&value, Form::Template),
            "count: {{ toJson .Values.replicas }}\nl:\n- x\n{{- range .Values.extraArguments }}\n- {{ toJson . }}\n{{- end }}\n{{- if .Values.crds }}\n- c: 1\n{{- end }}\n\
             plain: \"a {{ \"{{\" }}b}}\"\n\
             s: {{ printf \"to 100%% in %v\" .Release.Namespace | toJson }}\n{{- if .Values.webhooks }}\nw: 1\n{{- end }}\n"
        );
    }
}
