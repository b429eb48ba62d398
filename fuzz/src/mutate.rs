//! Changing inputs: JSON as a tree, since changed bytes would hardly ever be JSON again; now and then bytes after all.

use serde_json::{Map, Value, json};

/// Numbers from a seed (`SplitMix64`), the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts anew.
    pub const fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// One of the inputs, changed in a few places.
pub fn changed(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let input = &inputs[random.below(inputs.len())];
    let tree = serde_json::from_slice::<Value>(input);
    let (Ok(mut tree), true) = (tree, random.below(20) != 0) else {
        return changed_bytes(input.clone(), random);
    };
    let other = serde_json::from_slice(&inputs[random.below(inputs.len())]).unwrap_or(Value::Null);
    for _ in 0..=random.below(6) {
        let place = pick(&mut tree, random);
        change(place, &other, random);
    }
    tree.to_string().into_bytes()
}

fn changed_bytes(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        if !bytes.is_empty() {
            let place = random.below(bytes.len());
            bytes[place] = random.next() as u8;
        }
    }
    bytes
}

/// A place somewhere in the tree, deep ones more often.
fn pick<'t>(tree: &'t mut Value, random: &mut Random) -> &'t mut Value {
    let mut place = tree;
    while random.below(8) != 0 {
        let inner = match place {
            Value::Object(fields) => fields.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if inner == 0 {
            break;
        }
        let index = random.below(inner);
        place = match place {
            Value::Object(fields) => fields.values_mut().nth(index).expect("within bounds"),
            Value::Array(items) => &mut items[index],
            _ => break,
        };
    }
    place
}

fn change(place: &mut Value, other: &Value, random: &mut Random) {
    match random.below(4) {
        0 => *place = literal(random),
        1 => *place = pick(&mut other.clone(), random).clone(),
        _ => match place {
            Value::Object(fields) => change_fields(fields, other, random),
            Value::Array(items) if !items.is_empty() => {
                let index = random.below(items.len());
                if random.below(2) == 0 {
                    items.remove(index);
                } else {
                    items.insert(index, items[index].clone());
                }
            }
            scalar => *scalar = literal(random),
        },
    }
}

fn change_fields(fields: &mut Map<String, Value>, other: &Value, random: &mut Random) {
    let name = fields.keys().nth(random.below(fields.len().max(1))).cloned();
    match (random.below(3), name) {
        (0, Some(name)) => drop(fields.remove(&name)),
        (1, Some(name)) => {
            let value = fields.remove(&name).unwrap_or(Value::Null);
            fields.insert(format!("{name}~/"), value);
        }
        _ => {
            let names: Vec<&String> = other.as_object().into_iter().flat_map(Map::keys).collect();
            let name = match names.len() {
                0 => "spec",
                some => names[random.below(some)],
            };
            let value = literal(random);
            fields.insert(name.to_owned(), value);
        }
    }
}

/// Values at which code stumbles.
fn literal(random: &mut Random) -> Value {
    let all = [
        Value::Null,
        json!({}),
        json!([]),
        json!(""),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(true),
        json!("100%"),
        json!("-0%"),
        json!("3-5"),
        json!("9999999999-9999999999"),
        json!("é\u{2028}\u{0}"),
        json!("n".repeat(300)),
        json!("{\"reserveOrdinals\":[1]}"),
        json!("Ordered"),
        json!("OnPodRollingUpdate"),
        json!("InPlaceOnly"),
        json!([null, {}, [], "x"]),
    ];
    all[random.below(all.len())].clone()
}
