//! Protobuf as a tree of fields, without knowing what they mean; and changing it where decoders stumble.

use crate::Random;

/// One field of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    number: u32,
    content: Content,
}

/// What it holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

impl Field {
    pub(super) fn of(number: u32, content: Content) -> Field {
        Field { number, content }
    }

    pub(super) fn text(number: u32, text: &str) -> Field {
        Field::of(number, Content::Bytes(text.into()))
    }
}

/// The bytes of a message.
pub(super) fn write(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        let mut put = |wire_type: u32, content: &[u8]| {
            varint(u64::from(field.number) << 3 | u64::from(wire_type), &mut out);
            if wire_type == 2 {
                varint(content.len() as u64, &mut out);
            }
            out.extend_from_slice(content);
        };
        match &field.content {
            Content::Varint(number) => {
                let mut bytes = Vec::new();
                varint(*number, &mut bytes);
                put(0, &bytes);
            }
            Content::Fixed64(bytes) => put(1, bytes),
            Content::Fixed32(bytes) => put(5, bytes),
            Content::Bytes(bytes) => put(2, bytes),
            Content::Message(inner) => put(2, &write(inner)),
        }
    }
    out
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The same message with its fields in another order, which means the same as long as those of one number keep theirs, and with fields
/// that nobody knows.
pub(super) fn shuffled(fields: &[Field]) -> Vec<Field> {
    let inner = |field: &Field| match &field.content {
        Content::Message(fields) => Field::of(field.number, Content::Message(shuffled(fields))),
        _ => field.clone(),
    };
    let mut all: Vec<Field> = fields.iter().map(inner).collect();
    // Stable: of one number, none overtakes another.
    all.sort_by_key(|field| std::cmp::Reverse(field.number));
    all.insert(0, Field::of(900, Content::Varint(u64::MAX)));
    all.push(Field::of(901, Content::Fixed64([0xff; 8])));
    all.push(Field::of(902, Content::Fixed32([0xff; 4])));
    all.push(Field::text(903, "apps.kruise.io/"));
    all
}

/// Changes a message in a few places, and now and then its bytes.
pub(super) fn change(mut fields: Vec<Field>, other: &[Field], random: &mut Random) -> Vec<u8> {
    for _ in 0..=random.below(5) {
        change_one(&mut fields, other, random);
    }
    let mut bytes = write(&fields);
    if random.below(4) == 0 && !bytes.is_empty() {
        match random.below(3) {
            0 => bytes.truncate(random.below(bytes.len())),
            1 => {
                let place = random.below(bytes.len());
                bytes[place] ^= 1 << random.below(8);
            }
            _ => {
                let place = random.below(bytes.len());
                bytes[place] = [0, 0x7f, 0x80, 0xff][random.below(4)];
            }
        }
    }
    bytes
}

fn change_one(fields: &mut Vec<Field>, other: &[Field], random: &mut Random) {
    if fields.is_empty() {
        fields.push(strange(random));
        return;
    }
    let index = random.below(fields.len());
    if let Content::Message(inner) = &mut fields[index].content
        && random.below(6) != 0
    {
        let beside = other.iter().find_map(|field| match &field.content {
            Content::Message(fields) => Some(fields.as_slice()),
            _ => None,
        });
        return change_one(inner, beside.unwrap_or(other), random);
    }
    match random.below(8) {
        0 => drop(fields.remove(index)),
        1 => {
            let copy = fields[index].clone();
            fields.push(copy);
        }
        2 => fields[index].number = [1, 2, 3, 11, 12, 13, 19_000, (1 << 29) - 1][random.below(8)],
        3 => fields[index].content = strange(random).content,
        4 if !other.is_empty() => fields.insert(index, other[random.below(other.len())].clone()),
        5 => {
            let last = fields.len() - 1;
            fields.swap(index, last);
        }
        6 => nest(&mut fields[index], random),
        _ => number_or_text(&mut fields[index].content, random),
    }
}

/// Puts a field into itself, deeper than decoders may follow.
fn nest(field: &mut Field, random: &mut Random) {
    for _ in 0..[1, 4, 120][random.below(3)] {
        field.content = Content::Message(vec![field.clone()]);
    }
}

fn number_or_text(content: &mut Content, random: &mut Random) {
    match content {
        Content::Varint(number) => *number = strange_number(random),
        Content::Bytes(text) => {
            let other: [&[u8]; 7] = [
                b"",
                b"\xff\xfe",
                b"9",
                b"-1",
                b"1e30",
                b"\xc0\x80\0",
                b"p_99999999999999999999",
            ];
            *text = other[random.below(other.len())].to_vec();
        }
        _ => {}
    }
}

fn strange_number(random: &mut Random) -> u64 {
    [0, 1, 2, 1 << 31, 1 << 32, 1 << 62, 1 << 63, u64::MAX][random.below(8)]
}

fn strange(random: &mut Random) -> Field {
    let number = u32::try_from(random.below(30)).unwrap_or(0) + 1;
    let content = match random.below(5) {
        0 => Content::Varint(strange_number(random)),
        1 => Content::Fixed64([0xff; 8]),
        2 => Content::Fixed32([0x80; 4]),
        3 => Content::Bytes(vec![b'n'; [0, 1, 300, 5000][random.below(4)]]),
        _ => Content::Message(Vec::new()),
    };
    Field::of(number, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_protobuf_says() {
        let inner = Content::Message(vec![Field::text(2, "testing")]);
        let fields = [Field::of(1, Content::Varint(150)), Field::of(3, inner)];
        let written = write(&fields);
        assert_eq!(written, b"\x08\x96\x01\x1a\x09\x12\x07testing");
        assert_eq!(
            write(&[Field::of(900, Content::Fixed32([1, 2, 3, 4]))]),
            b"\xa5\x38\x01\x02\x03\x04"
        );
    }

    #[test]
    fn another_order_keeps_fields_of_one_number_as_they_are() {
        let fields = [Field::text(1, "a"), Field::text(2, "b"), Field::text(1, "c")];
        let kept: Vec<_> = shuffled(&fields).into_iter().filter(|f| f.number < 900).collect();
        assert_eq!(kept, [Field::text(2, "b"), Field::text(1, "a"), Field::text(1, "c")]);
    }
}
