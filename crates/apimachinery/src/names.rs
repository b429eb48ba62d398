//! Which names and labels are well-formed, and what is said of those that are not (`k8s.io/apimachinery/pkg/api/validate/content`).

/// Longest label value, and longest name part of a label key.
const LABEL_LENGTH_MAX: usize = 63;
/// Longest DNS subdomain.
const SUBDOMAIN_LENGTH_MAX: usize = 253;

const KEY_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_WORDS: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const LABEL_WORDS: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
    end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
    must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn too_long(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

/// Whether a text starts and ends with one of `ends`, and holds only those and `between`.
fn is_framed(text: &str, ends: fn(u8) -> bool, between: &[u8]) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            ends(*first) && ends(*last) && bytes.iter().all(|b| ends(*b) || between.contains(b))
        }
        _ => false,
    }
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_dns_label(text: &str) -> bool {
    is_framed(text, is_lower, b"-")
}

/// What is wrong with a DNS label (a name without dots, such as that of a namespace); nothing if the list is empty.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_LENGTH_MAX {
        errors.push(too_long(LABEL_LENGTH_MAX));
    }
    if !is_dns_label(text) {
        errors.push(if !text.is_empty() && text.split('.').all(is_dns_label) {
            "must not contain dots".to_owned()
        } else {
            LABEL_WORDS.to_owned()
        });
    }
    errors
}

/// What is wrong with a DNS subdomain (the names of most objects); nothing if the list is empty.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH_MAX {
        errors.push(too_long(SUBDOMAIN_LENGTH_MAX));
    }
    if !text.split('.').all(is_dns_label) {
        errors.push(SUBDOMAIN_WORDS.to_owned());
    }
    errors
}

/// What is wrong with the key of a label or annotation; nothing if the list is empty.
pub fn label_key(key: &str) -> Vec<String> {
    let parts: Vec<_> = key.split('/').collect();
    let (mut errors, name) = match parts[..] {
        [name] => (Vec::new(), name),
        ["", name] => (vec!["prefix part must be non-empty".to_owned()], name),
        [prefix, name] => (
            dns_subdomain(prefix)
                .iter()
                .map(|e| format!("prefix part {e}"))
                .collect(),
            name,
        ),
        _ => {
            return vec![format!(
                "a valid label key {KEY_WORDS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        errors.push(format!("name part {}", too_long(LABEL_LENGTH_MAX)));
    }
    if !is_framed(name, is_alphanumeric, b"-_.") {
        errors.push(format!("name part {KEY_WORDS}"));
    }
    errors
}

/// What is wrong with the value of a label; nothing if the list is empty.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        errors.push(too_long(LABEL_LENGTH_MAX));
    }
    if !value.is_empty() && !is_framed(value, is_alphanumeric, b"-_.") {
        errors.push(VALUE_WORDS.to_owned());
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Vec<String>;

    #[test]
    fn names_are_told_apart() {
        let long = "a".repeat(64);
        let rows: &[(Check, &str, &[&str])] = &[
            (dns_label, "web-0", &[]),
            (dns_label, "web.0", &["must not contain dots"]),
            (dns_label, "Web", &["lower case"]),
            (dns_label, "", &["lower case"]),
            (dns_label, &long, &["no more than 63 bytes"]),
            (dns_subdomain, "a.b-c.d", &[]),
            (dns_subdomain, "a..b", &["subdomain"]),
            (dns_subdomain, "-a", &["subdomain"]),
            (label_key, "app", &[]),
            (label_key, "example.com/App_1.x", &[]),
            (label_key, "a/b/c", &["a valid label key"]),
            (label_key, "/b", &["prefix part must be non-empty"]),
            (label_key, "A.com/b", &["prefix part a lowercase"]),
            (
                label_key,
                "a/",
                &["name part must be non-empty", "name part must consist"],
            ),
            (label_key, "bad key!", &["name part must consist"]),
            (label_key, &long, &["name part must be no more than 63 bytes"]),
            (label_value, "", &[]),
            (label_value, "x_y", &[]),
            (label_value, "not valid", &["a valid label must be"]),
        ];
        for (check, text, words) in rows {
            let errors = check(text);
            assert_eq!(errors.len(), words.len(), "{text}: {errors:?}");
            for (error, word) in errors.iter().zip(*words) {
                assert!(error.contains(word), "{text}: {error}");
            }
        }
    }
}
