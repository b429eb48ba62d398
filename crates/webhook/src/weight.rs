//! How much memory a body may take once it is read: whoever reaches the port may send one, and a few bytes of JSON can become many.

/// A body that would take more is refused: ten times the largest body, which what an API server sends stays far below.
pub const HEAP_BYTES_MAX: usize = 10 * crate::serve::BODY_BYTES_MAX;
/// Smaller bodies cannot take so much, and are not looked at: the most for its length is an object in an object, `{"":` of five bytes
/// each.
const UNWEIGHED_MAX: usize = HEAP_BYTES_MAX / (OBJECT / 5 + 1);

/// What an object with a field takes: a node of a B-tree with room for eleven keys and values.
const OBJECT: usize = 640;
/// What another field takes, where nodes are half full.
const FIELD: usize = 110;
/// What an array with a value takes: it begins with room for four.
const ARRAY: usize = 128;
/// What another value takes, while the array that holds it is made twice as large.
const VALUE: usize = 96;

/// Whether a body may take more memory than any is given. Nothing is read for this but brackets, commas and quotes, so that bodies that
/// are no JSON at all have a weight, too.
pub fn is_too_heavy(body: &[u8]) -> bool {
    body.len() > UNWEIGHED_MAX && weight(body) > HEAP_BYTES_MAX
}

/// About how many bytes of memory the values of a body take, text included.
fn weight(body: &[u8]) -> usize {
    let mut weight = body.len();
    let mut is_in_text = false;
    let mut bytes = body.iter().copied().peekable();
    // One bit a level: whether it is an object.
    let mut levels: Vec<bool> = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if is_in_text => {
                bytes.next();
            }
            b'"' => is_in_text = !is_in_text,
            _ if is_in_text => {}
            b'{' | b'[' => {
                // The reader goes no deeper either.
                if levels.len() > 128 {
                    return usize::MAX;
                }
                let is_object = byte == b'{';
                levels.push(is_object);
                let is_empty = bytes
                    .peek()
                    .is_some_and(|next| *next == if is_object { b'}' } else { b']' });
                if !is_empty {
                    weight += if is_object { OBJECT } else { ARRAY };
                }
            }
            b'}' | b']' => {
                levels.pop();
            }
            b',' => weight += if levels.last() == Some(&true) { FIELD } else { VALUE },
            _ => {}
        }
    }
    weight
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn brackets_and_commas_in_text_weigh_nothing() {
        let text = json!({"a": "{[,\"{,\\"}).to_string();
        assert_eq!(weight(text.as_bytes()), text.len() + OBJECT);
        assert_eq!(weight(br#"[{},{"a":1,"b":[]}]"#), 19 + ARRAY + VALUE + OBJECT + FIELD);
    }

    #[test]
    fn the_largest_objects_that_an_api_server_keeps_are_not_too_heavy() {
        // Nothing but short environment variables, in an object of 1.5 MB and in its old form.
        let env: Vec<_> = (0..40_000)
            .map(|n| json!({"name": format!("V{n:06}"), "value": "x"}))
            .collect();
        let pod = json!({"spec": {"containers": [{"env": env}]}});
        let body = json!({"request": {"object": pod, "oldObject": pod}}).to_string();
        assert!(body.len() > 2_400_000, "{}", body.len());
        assert!(!is_too_heavy(body.as_bytes()), "{}", weight(body.as_bytes()));
    }
}
