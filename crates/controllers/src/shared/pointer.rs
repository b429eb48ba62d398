//! Paths of JSON patches ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)).

/// Path of the labels of an object.
pub(crate) const LABELS: &str = "/metadata/labels";
/// Path of the annotations of an object.
pub(crate) const ANNOTATIONS: &str = "/metadata/annotations";
/// Path of the finalizers of an object.
pub(crate) const FINALIZERS: &str = "/metadata/finalizers";

/// The path of a key below another path.
pub(crate) fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_escaped_so_that_it_names_one_field() {
        assert_eq!(below(LABELS, "app"), "/metadata/labels/app");
        assert_eq!(below(ANNOTATIONS, "a.io/b"), "/metadata/annotations/a.io~1b");
        let value = serde_json::json!({"~1": {"a/b~": 7}});
        assert_eq!(
            value.pointer(&below(&below("", "~1"), "a/b~")),
            Some(&serde_json::json!(7))
        );
    }
}
