//! Tables, for `kubectl get`.

use super::Asked;
use crate::store::Server;
use crate::types::TypeInfo;
use flotilla_apimachinery::status::Status;
use flotilla_apimachinery::table::{Columns, Include};
use flotilla_model::ObjectKey;
use serde_json::{Value, json};

/// Everything that is needed to make rows of objects of a kind.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    columns: Columns,
    include: Include,
}

impl Rows {
    pub(super) fn of(server: &Server, asked: &Asked<'_>, info: &TypeInfo) -> Result<Self, Status> {
        let columns = if info.custom.is_some() {
            let definitions = server
                .types
                .builtin("apiextensions.k8s.io", "customresourcedefinitions");
            let key = ObjectKey::new("", format!("{}.{}", info.plural, info.group));
            let definition = server
                .get(definitions, &key)
                .map(crate::Stored::value)
                .unwrap_or_default();
            Columns::custom(&definition, &info.version)
        } else {
            Columns::built_in(&info.group, &info.kind)
        };
        Ok(Rows {
            columns,
            include: Include::parse(asked.query.get("includeObject"))?,
        })
    }

    /// A list, or one object, as a table.
    pub(super) fn table(&self, server: &Server, object: &Value, with_definitions: bool) -> Value {
        let now = jiff::Timestamp::from_millisecond(server.now.as_millis()).unwrap_or_default();
        self.columns.table(object, self.include, with_definitions, now)
    }
}

/// An object of which nothing is known but its kind, as bookmarks have it.
pub(super) fn empty_object(info: &TypeInfo) -> Value {
    match (info.group.as_str(), info.kind.as_str()) {
        ("", "Pod") => json!({"metadata": {}, "spec": {"containers": null}, "status": {}}),
        _ => json!({"metadata": {}}),
    }
}
