//! Objects in JSON to objects in protobuf, by the numbers that `generated.proto` of Kubernetes gives the fields.
//!
//! Written apart from the messages that the engine decodes, so that each is a check on the other.

use super::tree::{Content, Field};
use flotilla_model::Timestamp;
use serde_json::Value;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Number,
    /// A number of 32 bits.
    Small,
    Flag,
    /// `resource.Quantity`.
    Quantity,
    /// `metav1.Time`.
    Time,
    /// JSON in `runtime.RawExtension`.
    Json,
    Message(Shape),
    /// A message of protobuf that JSON does not show: its fields stand one level higher.
    Inline(Shape),
    List(&'static Kind),
    Map(&'static Kind),
}

/// The fields of a message: name in JSON, number, content.
type Shape = &'static [(&'static str, u32, Kind)];

use Kind::{Flag, Inline, Json, List, Map, Message, Number, Quantity, Small, Text, Time};

const OWNER: Shape = &[
    ("kind", 1, Text),
    ("name", 3, Text),
    ("uid", 4, Text),
    ("apiVersion", 5, Text),
    ("controller", 6, Flag),
    ("blockOwnerDeletion", 7, Flag),
];

const META: Shape = &[
    ("name", 1, Text),
    ("generateName", 2, Text),
    ("namespace", 3, Text),
    ("uid", 5, Text),
    ("resourceVersion", 6, Text),
    ("generation", 7, Number),
    ("creationTimestamp", 8, Time),
    ("deletionTimestamp", 9, Time),
    ("deletionGracePeriodSeconds", 10, Number),
    ("labels", 11, Map(&Text)),
    ("annotations", 12, Map(&Text)),
    ("ownerReferences", 13, List(&Message(OWNER))),
    ("finalizers", 14, List(&Text)),
];

const RESOURCES: Shape = &[("limits", 1, Map(&Quantity)), ("requests", 2, Map(&Quantity))];

const ENV_SOURCE: Shape = &[
    (
        "fieldRef",
        1,
        Message(&[("apiVersion", 1, Text), ("fieldPath", 2, Text)]),
    ),
    (
        "configMapKeyRef",
        3,
        Message(&[("key", 2, Text), ("optional", 3, Flag)]),
    ),
];

const ENV: Shape = &[
    ("name", 1, Text),
    ("value", 2, Text),
    ("valueFrom", 3, Message(ENV_SOURCE)),
];

const CONTAINER: Shape = &[
    ("name", 1, Text),
    ("image", 2, Text),
    ("command", 3, List(&Text)),
    ("env", 7, List(&Message(ENV))),
    ("resources", 8, Message(RESOURCES)),
    ("readinessProbe", 11, Message(&[("periodSeconds", 4, Small)])),
    (
        "resizePolicy",
        23,
        List(&Message(&[("resourceName", 1, Text), ("restartPolicy", 2, Text)])),
    ),
];

const VOLUME_SOURCE: Shape = &[(
    "persistentVolumeClaim",
    10,
    Message(&[("claimName", 1, Text), ("readOnly", 2, Flag)]),
)];

const POD_SPEC: Shape = &[
    (
        "volumes",
        1,
        List(&Message(&[("name", 1, Text), ("", 2, Inline(VOLUME_SOURCE))])),
    ),
    ("containers", 2, List(&Message(CONTAINER))),
    ("restartPolicy", 3, Text),
    ("terminationGracePeriodSeconds", 4, Number),
    ("nodeName", 10, Text),
    ("initContainers", 20, List(&Message(CONTAINER))),
    ("readinessGates", 28, List(&Message(&[("conditionType", 1, Text)]))),
];

const CONDITION: Shape = &[
    ("type", 1, Text),
    ("status", 2, Text),
    ("lastProbeTime", 3, Time),
    ("lastTransitionTime", 4, Time),
    ("reason", 5, Text),
    ("message", 6, Text),
];

const CONTAINER_STATE: Shape = &[
    ("waiting", 1, Message(&[("reason", 1, Text), ("message", 2, Text)])),
    ("running", 2, Message(&[("startedAt", 1, Time)])),
    (
        "terminated",
        3,
        Message(&[
            ("exitCode", 1, Small),
            ("signal", 2, Small),
            ("reason", 3, Text),
            ("message", 4, Text),
        ]),
    ),
];

const CONTAINER_STATUS: Shape = &[
    ("name", 1, Text),
    ("state", 2, Message(CONTAINER_STATE)),
    ("lastState", 3, Message(CONTAINER_STATE)),
    ("ready", 4, Flag),
    ("restartCount", 5, Small),
    ("image", 6, Text),
    ("imageID", 7, Text),
    ("containerID", 8, Text),
    ("started", 9, Flag),
    ("allocatedResources", 10, Map(&Quantity)),
    ("resources", 11, Message(RESOURCES)),
];

const POD: Shape = &[
    ("metadata", 1, Message(META)),
    ("spec", 2, Message(POD_SPEC)),
    (
        "status",
        3,
        Message(&[
            ("phase", 1, Text),
            ("conditions", 2, List(&Message(CONDITION))),
            ("message", 3, Text),
            ("reason", 4, Text),
            ("podIP", 6, Text),
            ("startTime", 7, Time),
            ("containerStatuses", 8, List(&Message(CONTAINER_STATUS))),
            ("initContainerStatuses", 10, List(&Message(CONTAINER_STATUS))),
            ("observedGeneration", 17, Number),
        ]),
    ),
];

const CLAIM: Shape = &[
    ("metadata", 1, Message(META)),
    (
        "spec",
        2,
        Message(&[
            ("accessModes", 1, List(&Text)),
            ("resources", 2, Message(RESOURCES)),
            ("volumeName", 3, Text),
            ("storageClassName", 5, Text),
        ]),
    ),
    (
        "status",
        3,
        Message(&[
            ("phase", 1, Text),
            ("accessModes", 2, List(&Text)),
            ("capacity", 3, Map(&Quantity)),
            ("conditions", 4, List(&Message(CONDITION))),
        ]),
    ),
];

const CONFIG_MAP: Shape = &[("metadata", 1, Message(META)), ("data", 2, Map(&Text))];

const REVISION: Shape = &[
    ("metadata", 1, Message(META)),
    ("data", 2, Json),
    ("revision", 3, Number),
];

const STORAGE_CLASS: Shape = &[
    ("metadata", 1, Message(META)),
    ("provisioner", 2, Text),
    ("allowVolumeExpansion", 6, Flag),
];

/// The kinds that come in protobuf: their resource, and their shape.
const KINDS: [(&str, Shape); 5] = [
    ("pods", POD),
    ("persistentvolumeclaims", CLAIM),
    ("configmaps", CONFIG_MAP),
    ("controllerrevisions", REVISION),
    ("storageclasses", STORAGE_CLASS),
];

/// An object of a resource as the API server would send it. `None` if it could not be stored, and therefore is never sent.
pub(super) fn encode(resource: &str, object: &Value) -> Option<Vec<Field>> {
    let (_, shape) = KINDS.iter().find(|(name, _)| *name == resource)?;
    message(shape, object)
}

fn message(shape: Shape, value: &Value) -> Option<Vec<Field>> {
    let object = value.as_object()?;
    let mut fields = Vec::new();
    for (name, number, kind) in shape {
        match (kind, object.get(*name)) {
            (Inline(inner), _) => fields.push(Field::of(*number, Content::Message(message(inner, value)?))),
            (_, None) => {}
            (List(each), Some(list)) => {
                for item in list.as_array()? {
                    fields.push(Field::of(*number, content(each, item)?));
                }
            }
            (Map(each), Some(map)) => {
                for (key, item) in map.as_object()? {
                    let entry = vec![Field::text(1, key), Field::of(2, content(each, item)?)];
                    fields.push(Field::of(*number, Content::Message(entry)));
                }
            }
            (kind, Some(value)) => fields.push(Field::of(*number, content(kind, value)?)),
        }
    }
    Some(fields)
}

fn content(kind: &Kind, value: &Value) -> Option<Content> {
    Some(match kind {
        Text => Content::Bytes(value.as_str()?.into()),
        Number => Content::Varint(value.as_i64()?.cast_unsigned()),
        Small => Content::Varint(i64::from(i32::try_from(value.as_i64()?).ok()?).cast_unsigned()),
        Flag => Content::Varint(u64::from(value.as_bool()?)),
        Quantity => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            Content::Message(vec![Field::text(1, &text)])
        }
        Time => {
            let time: Timestamp = value.as_str()?.parse().ok()?;
            let seconds = time.as_millis().div_euclid(1000);
            Content::Message(vec![Field::of(1, Content::Varint(seconds.cast_unsigned()))])
        }
        Json => Content::Message(vec![Field::text(1, &value.to_string())]),
        Message(shape) => Content::Message(message(shape, value)?),
        Inline(_) | List(_) | Map(_) => return None,
    })
}
