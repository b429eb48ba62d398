//! How much memory JSON takes once it is read as a tree: a few bytes of text can become many.

/// What an object with a field takes: a node of a B-tree with room for eleven keys and values.
pub const OBJECT: usize = 640;
/// What another field takes, where nodes are half full.
pub const FIELD: usize = 110;
/// What an array with a value takes: it begins with room for four.
pub const ARRAY: usize = 128;
/// What another value takes, while the array that holds it is made twice as large.
pub const VALUE: usize = 96;
/// How many levels readers of JSON go down here.
pub const DEEPEST: usize = 128;

/// About how many bytes of memory the values of a text take, the text included. Nothing is read for this but brackets, commas and quotes,
/// so that texts that are no JSON at all have a weight, too. What has more levels than `deepest` weighs more than anything.
pub fn weight(text: &[u8], deepest: usize) -> usize {
    let mut weight = text.len();
    let mut is_in_text = false;
    let mut bytes = text.iter().copied().peekable();
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
                if levels.len() > deepest {
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
        assert_eq!(weight(text.as_bytes(), DEEPEST), text.len() + OBJECT);
        assert_eq!(
            weight(br#"[{},{"a":1,"b":[]}]"#, DEEPEST),
            19 + ARRAY + VALUE + OBJECT + FIELD
        );
    }

    #[test]
    fn what_no_reader_reads_is_too_heavy() {
        assert_eq!(weight("[".repeat(1000).as_bytes(), DEEPEST), usize::MAX);
    }
}
