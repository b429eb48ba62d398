//! Kinds that stored CustomResourceDefinitions add.

use super::TypeInfo;
use crate::store::StoreId;
use serde_json::Value;
use std::sync::Arc;

/// What a definition says of one version, beyond names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    /// The version, as it stands in the definition.
    pub version: Value,
    /// `subresources.scale`.
    pub scale: Value,
    /// `selectableFields`, as paths without the leading dot.
    pub selectable_fields: Vec<String>,
}

/// All served versions of a definition, the storage version first.
pub(super) fn read(crd: &Value, store: StoreId) -> Vec<TypeInfo> {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let kind = text(&names["kind"]);
    let or = |value: &Value, other: String| value.as_str().map_or(other, str::to_owned);
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    versions.retain(|v| v["served"] == true);
    versions.sort_by_key(|v| v["storage"] != true);
    let info = |version: &Value| {
        let subresources = &version["subresources"];
        let fields = version["selectableFields"].as_array().into_iter().flatten();
        TypeInfo {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            plural: text(&names["plural"]),
            singular: or(&names["singular"], kind.to_lowercase()),
            list_kind: or(&names["listKind"], format!("{kind}List")),
            kind: kind.clone(),
            is_namespaced: spec["scope"] == "Namespaced",
            short_names: list(&names["shortNames"]),
            categories: list(&names["categories"]),
            has_status: subresources.get("status").is_some(),
            has_scale: subresources.get("scale").is_some(),
            has_generation: true,
            store,
            custom: Some(Arc::new(Definition {
                version: version.clone(),
                scale: subresources["scale"].clone(),
                selectable_fields: fields
                    .map(|f| text(&f["jsonPath"]).trim_start_matches('.').to_owned())
                    .collect(),
            })),
        }
    };
    versions.into_iter().map(info).collect()
}
