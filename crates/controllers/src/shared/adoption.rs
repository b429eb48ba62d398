//! Taking and letting go of objects: patches of `metadata.ownerReferences` (STS-1.1.7 and STS-1.2).

use flotilla_model::decision::PatchKind;
use flotilla_model::{Command, Guard, Labels, Meta, ObjectKey, OwnerRef, PodRecord, Report, Resource, Selector, Uid};
use serde_json::json;

/// The controller reference to an owner, as it stands in what it owns.
pub fn controller_ref(resource: Resource, name: &str, uid: &Uid) -> OwnerRef {
    OwnerRef {
        api_version: resource.api_version().into(),
        kind: resource.kind().into(),
        name: name.into(),
        uid: uid.clone(),
        controller: true,
        block_owner_deletion: true,
    }
}

/// Makes `owner` the controller of an orphan. Before the first adoption of a pass the owner is looked at afresh: a cache may
/// still show one that has been deleted and made anew.
pub fn adopt(resource: Resource, object: &Meta, owner: &OwnerRef, owner_resource: Resource) -> Command {
    let owner_key = ObjectKey::new(object.key.namespace.clone(), &*owner.name);
    Command::Patch {
        resource,
        key: object.key.clone(),
        uid: object.uid.clone(),
        subresource: None,
        kind: PatchKind::Strategic,
        body: json!({"metadata": {"ownerReferences": [owner.to_json()]}}),
        resource_version: None,
        guard: Some(Guard {
            resource: owner_resource,
            key: owner_key,
            uid: owner.uid.clone(),
        }),
        report: Report::Silent,
    }
}

/// Takes the reference to `owner` away.
pub fn release(resource: Resource, object: &Meta, owner: &Uid) -> Command {
    Command::Patch {
        resource,
        key: object.key.clone(),
        uid: object.uid.clone(),
        subresource: None,
        kind: PatchKind::Strategic,
        body: json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner.to_string()}]}}),
        resource_version: None,
        guard: None,
        report: Report::Silent,
    }
}

/// Pods of one set share their labels, so one answer of the selector serves many.
pub struct SelectorMemo<'s> {
    selector: &'s Selector,
    last: Option<(Labels, bool)>,
    by_name: bool,
}

impl<'s> SelectorMemo<'s> {
    /// For the pods of a set with this selector.
    pub fn new(selector: &'s Selector) -> Self {
        use flotilla_api::names::{INSTANCE_ID_LABEL, POD_INDEX_LABEL, POD_NAME_LABEL};
        SelectorMemo {
            selector,
            last: None,
            by_name: [POD_NAME_LABEL, POD_INDEX_LABEL, INSTANCE_ID_LABEL]
                .iter()
                .any(|key| selector.mentions(key)),
        }
    }

    /// Whether it selects a pod.
    pub fn matches(&mut self, pod: &PodRecord) -> bool {
        if self.by_name {
            return self.selector.matches(|key| pod.label(key));
        }
        if let Some((labels, answer)) = &self.last
            && labels.is_same(&pod.meta.labels)
        {
            return *answer;
        }
        let answer = self.selector.matches(|key| pod.label(key));
        self.last = Some((pod.meta.labels.clone(), answer));
        answer
    }
}
