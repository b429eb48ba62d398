//! `Table` answers: what `kubectl get` shows (`kubernetes/pkg/printers/internalversion`, and the table convertor of custom resources).
//!
//! Column definitions of built-in kinds were recorded from the API server (`table/columns.json`); the modules make the cells. The server
//! always sends all columns; clients leave out those with a priority above 0 unless asked for them.

mod age;
mod cells;
mod custom;
mod jsonpath;
mod pod;

pub use age::age;
pub use jsonpath::Path as JsonPath;

use crate::status::Status;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Column definitions of built-in kinds, by kind and group (`StatefulSet.apps`).
static COLUMNS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let columns = serde_json::from_str(include_str!("table/columns.json"));
    columns.expect("the embedded file is JSON; a test reads it")
});

/// How much of the objects goes along with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Their metadata.
    Metadata,
    /// All of them.
    Object,
}

impl Include {
    /// Reads `?includeObject=`.
    pub fn parse(text: Option<&str>) -> Result<Self, Status> {
        match text {
            None | Some("" | "Metadata") => Ok(Include::Metadata),
            Some("None") => Ok(Include::None),
            Some("Object") => Ok(Include::Object),
            Some(other) => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                crate::field::quote(other)
            ))),
        }
    }
}

/// The columns of a kind.
#[derive(Clone, Debug)]
pub struct Columns {
    definitions: Value,
    cells: Cells,
    are_pods: bool,
}

#[derive(Clone, Debug)]
enum Cells {
    BuiltIn(fn(&Value, Timestamp) -> Vec<Value>),
    Custom(Vec<custom::Column>),
}

impl Columns {
    /// Those of a built-in kind; kinds that have none of their own show name and creation.
    pub fn built_in(group: &str, kind: &str) -> Self {
        let key = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        match (COLUMNS.get(&key), cells::of(group, kind)) {
            (Some(definitions), Some(cells)) => Columns {
                definitions: definitions.clone(),
                cells: Cells::BuiltIn(cells),
                are_pods: (group, kind) == ("", "Pod"),
            },
            _ => Columns {
                definitions: COLUMNS["CustomResourceDefinition.apiextensions.k8s.io"].clone(),
                cells: Cells::BuiltIn(cells::name_and_creation),
                are_pods: false,
            },
        }
    }

    /// Those of a version of a custom resource definition.
    pub fn custom(definition: &Value, version: &str) -> Self {
        let (definitions, columns) = custom::columns(definition, version);
        Columns {
            definitions,
            cells: Cells::Custom(columns),
            are_pods: false,
        }
    }

    /// The table of a list or of one object. Clients that watch want definitions in the first table only.
    pub fn table(&self, object: &Value, include: Include, with_definitions: bool, now: Timestamp) -> Value {
        let items = match object.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().collect(),
            None => vec![object],
        };
        let metadata: Map<_, _> = ["resourceVersion", "continue", "remainingItemCount"]
            .into_iter()
            .filter_map(|name| {
                object["metadata"]
                    .get(name)
                    .map(|value| (name.to_owned(), value.clone()))
            })
            .collect();
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": if with_definitions { self.definitions.clone() } else { json!([]) },
            "rows": items.into_iter().map(|item| self.row(item, include, now)).collect::<Vec<_>>(),
        })
    }

    fn row(&self, item: &Value, include: Include, now: Timestamp) -> Value {
        let cells = match &self.cells {
            Cells::BuiltIn(cells) => cells(item, now),
            Cells::Custom(columns) => custom::cells(columns, item, now),
        };
        let object = match include {
            Include::None => Value::Null,
            Include::Object => item.clone(),
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"],
            }),
        };
        let mut row = json!({"cells": cells, "object": object});
        if let Some(conditions) = pod::row_conditions(item).filter(|_| self.are_pods) {
            row["conditions"] = conditions;
        }
        row
    }
}
