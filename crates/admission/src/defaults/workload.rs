//! Defaults of kinds that own pods and have two versions.

use super::table::fill;
use super::{cloneset, statefulset, template};
use crate::convert::Kind;
use crate::json::{annotation, at, list_mut, text};
use crate::{Operation, Reply, Request, admit, convert};
use flotilla_api::{names, statefulset::v1alpha1};
use flotilla_model::template::normal_form;
use serde_json::Value;

/// How pods are updated, in the stored version of each kind.
const POLICY: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "podUpdatePolicy"];

/// The defaulted object, as a patch on the one received.
///
/// What came as v1alpha1 is converted, filled in and converted back, so that fields which v1alpha1 lacks are filled in too; they stand in
/// its annotation. If somebody took that annotation away, it is put back: what is stored does not vanish because an old client has
/// never heard of it.
pub(crate) fn workload(request: &Request<'_>, kind: Kind) -> Reply {
    let Some(received) = request
        .object
        .filter(|o| at(o, &["spec"]).is_some_and(Value::is_object))
    else {
        return Reply::allow();
    };
    let mut set = received.clone();
    let mut warnings = Vec::new();
    if request.version == v1alpha1::VERSION {
        if kind == Kind::StatefulSet && convert::fit::is_left_out(received) {
            // Nothing may be written so: validation says why.
            return Reply::allow();
        }
        keep_hub_fields(&mut set, request, &mut warnings);
        let unfilled = set.clone();
        convert::up(kind, &mut set);
        let old = request.old_object.map(|old| {
            let mut old = old.clone();
            convert::up(kind, &mut old);
            old
        });
        fill_in(kind, &mut set, old.as_ref(), request.operation);
        convert::down(kind, &mut set);
        if kind == Kind::StatefulSet && convert::fit::is_left_out(&set) {
            // The defaults have no room. Readers know them (STS-7.2), and what was sent is stored.
            set = unfilled;
        }
        keep_unknown_type(&mut set, received);
    } else {
        if annotation(&set, names::HUB_FIELDS).is_some() {
            warnings.push(format!(
                "metadata.annotations[{}] says nothing in {}: write its fields into spec",
                names::HUB_FIELDS,
                request.version
            ));
        }
        fill_in(kind, &mut set, request.old_object, request.operation);
    }
    admit::changed(received, &set, warnings)
}

/// A type of update that nobody knows is read as the default. It is not written over: the definition refuses it.
fn keep_unknown_type(set: &mut Value, received: &Value) {
    const TYPE: &str = "/spec/updateStrategy/type";
    let meant = received
        .pointer(TYPE)
        .filter(|v| v.as_str().is_some_and(|text| !text.is_empty()));
    if let (Some(meant), Some(place)) = (meant, set.pointer_mut(TYPE)) {
        *place = meant.clone();
    }
}

fn fill_in(kind: Kind, set: &mut Value, old: Option<&Value>, operation: Operation) {
    match kind {
        Kind::StatefulSet => fill(set, statefulset::TABLE),
        Kind::CloneSet => cloneset::fill_in(set),
    }
    let old = old.filter(|_| operation == Operation::Update);
    let in_place = text(set, &POLICY).starts_with("InPlace");
    // A template that stays as it is is not filled in, so that a default of a newer release starts no rollout.
    if changes(old, set, &["spec", "template"], is_other_template)
        && let Some(template) = set.pointer_mut("/spec/template")
    {
        let before = old.and_then(|old| at(old, &["spec", "template"])).filter(|_| in_place);
        if kind == Kind::CloneSet {
            cloneset::before_template(template, before);
        }
        template::fill(template, before);
    }
    if changes(old, set, &["spec", "volumeClaimTemplates"], |_, _| true) {
        list_mut(&mut set["spec"], "volumeClaimTemplates")
            .iter_mut()
            .for_each(template::fill_claim);
    }
    // The status is written through its subresource alone.
    if let Some(fields) = set.as_object_mut() {
        fields.remove("status");
    }
}

/// Whether a part is new, or differs from the old one in the bytes and in meaning.
fn changes(old: Option<&Value>, new: &Value, path: &[&str], differs: fn(&Value, &Value) -> bool) -> bool {
    match (old.and_then(|old| at(old, path)), at(new, path)) {
        (Some(old), Some(new)) => old != new && differs(old, new),
        (None, new) => new.is_some(),
        (_, None) => false,
    }
}

/// Whether templates would make other pods: spelling out a default is no change.
fn is_other_template(old: &Value, new: &Value) -> bool {
    normal_form(old) != normal_form(new)
}

/// Puts back the annotation with the fields that v1alpha1 lacks, if the change took it away or broke it.
fn keep_hub_fields(set: &mut Value, request: &Request<'_>, warnings: &mut Vec<String>) {
    const KEY: &str = names::HUB_FIELDS;
    let stored = request.old_object.and_then(|old| annotation(old, KEY));
    let stored = stored.filter(|text| convert::hub_fields(text).is_some());
    let what = match (annotation(set, KEY), stored) {
        (Some(text), _) if convert::hub_fields(text).is_some() => return,
        (None, None) => return,
        (Some(_), None) => {
            warnings.push(format!(
                "metadata.annotations[{KEY}] is ignored: it must be a JSON object of fields of spec"
            ));
            return;
        }
        (Some(_), Some(_)) => "broken",
        (None, Some(_)) => "missing",
    };
    let (Some(text), Some(metadata)) = (stored, set["metadata"].as_object_mut()) else {
        return;
    };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = serde_json::json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(KEY.to_owned(), text.into());
        warnings.push(format!(
            "metadata.annotations[{KEY}] was {what} and has been put back: it holds fields of spec that {} lacks; use {} to change them",
            request.version,
            v1alpha1::HUB
        ));
    }
}
