//! How much memory a body may take once it is read: whoever reaches the port may send one, and a few bytes of JSON can become many.

use flotilla_model::weight::{OBJECT, weight};

/// A body that would take more is refused: ten times the largest body, which what an API server sends stays far below.
pub const HEAP_BYTES_MAX: usize = 10 * crate::serve::BODY_BYTES_MAX;
/// Smaller bodies cannot take so much, and are not looked at: the most for its length is an object in an object, `{"":` of five bytes
/// each.
const UNWEIGHED_MAX: usize = HEAP_BYTES_MAX / (OBJECT / 5 + 1);

/// Whether a body may take more memory than any is given. Nothing is read for this but brackets, commas and quotes, so that bodies that
/// are no JSON at all have a weight, too. How deep it is does not count here: what is too deep to be read has an answer of its own.
pub fn is_too_heavy(body: &[u8]) -> bool {
    body.len() > UNWEIGHED_MAX && weight(body, usize::MAX) > HEAP_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use flotilla_model::weight::DEEPEST;
    use serde_json::json;

    #[test]
    fn the_largest_objects_that_an_api_server_keeps_are_not_too_heavy() {
        // Nothing but short environment variables, in an object of 1.5 MB and in its old form.
        let env: Vec<_> = (0..40_000)
            .map(|n| json!({"name": format!("V{n:06}"), "value": "x"}))
            .collect();
        let pod = json!({"spec": {"containers": [{"env": env}]}});
        let body = json!({"request": {"object": pod, "oldObject": pod}}).to_string();
        assert!(body.len() > 2_400_000, "{}", body.len());
        assert!(!is_too_heavy(body.as_bytes()), "{}", weight(body.as_bytes(), DEEPEST));
    }
}
