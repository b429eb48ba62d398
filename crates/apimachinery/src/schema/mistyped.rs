//! Values of a type that their field cannot hold, in the words of Go's JSON decoder: the API server refuses an object of a built-in kind
//! that it cannot read before it looks at anything else of it.

use super::{Kind, Schema};
use serde_json::{Number, Value};

/// What cannot be read, and where.
struct Misfit {
    /// The value, as the decoder names it.
    value: String,
    /// What the field holds, as a Go type.
    wanted: String,
    /// The struct that has the field, once it is known.
    holder: Option<String>,
    /// Names of fields that lead there, the innermost first.
    fields: Vec<String>,
}

/// The first value that its field cannot hold. Fields that are not declared are left alone, and so is null, which is as good as none.
pub fn mistyped(value: &Value, schema: Schema<'_>) -> Option<String> {
    let mut misfit = find(value, schema)?;
    misfit.fields.reverse();
    let Misfit {
        value,
        wanted,
        holder,
        fields,
    } = misfit;
    let place = match holder {
        Some(holder) => format!("Go struct field {holder}.{}", fields.join(".")),
        None => "Go value".to_owned(),
    };
    Some(format!("json: cannot unmarshal {value} into {place} of type {wanted}"))
}

fn find(value: &Value, schema: Schema<'_>) -> Option<Misfit> {
    if !fits(value, schema) {
        return Some(Misfit {
            value: named(value, schema.kind()),
            wanted: go_type(schema),
            holder: None,
            fields: Vec::new(),
        });
    }
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let Some(field) = schema.property(name) else {
                // The decoder does not name keys of maps.
                return find(value, schema.values()?);
            };
            let mut misfit = find(value, field)?;
            let holder = struct_name(schema);
            misfit.fields.push(name.clone());
            misfit.fields.extend(embedded(holder, name).map(str::to_owned));
            if misfit.holder.is_none() {
                misfit.holder = Some(holder.to_owned());
                if let (Some(kind), Some(list)) = (text_type(holder, name), misfit.wanted.strip_suffix("string")) {
                    misfit.wanted = format!("{list}v1.{kind}");
                }
            }
            Some(misfit)
        }),
        Value::Array(items) => {
            let schema = schema.items()?;
            items.iter().find_map(|item| find(item, schema))
        }
        _ => None,
    }
}

fn fits(value: &Value, schema: Schema<'_>) -> bool {
    match (schema.kind(), value) {
        (Kind::Any, _)
        | (_, Value::Null)
        | (Kind::Object, Value::Object(_))
        | (Kind::Array, Value::Array(_))
        | (Kind::String | Kind::IntOrString, Value::String(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Number, Value::Number(_)) => true,
        (Kind::Integer, Value::Number(number)) => is_whole(number, schema.format() == "int32"),
        (Kind::IntOrString, Value::Number(number)) => is_whole(number, true),
        _ => false,
    }
}

fn is_whole(number: &Number, is_small: bool) -> bool {
    number
        .as_i64()
        .is_some_and(|number| !is_small || i32::try_from(number).is_ok())
}

fn named(value: &Value, wanted: Kind) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        // One of the right type is too large, or a fraction.
        Value::Number(number) if matches!(wanted, Kind::Integer | Kind::IntOrString) => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// The type in Go that holds such values.
fn go_type(schema: Schema<'_>) -> String {
    match schema.kind() {
        Kind::String if schema.format() == "byte" => "[]uint8".to_owned(),
        Kind::String => "string".to_owned(),
        Kind::Boolean => "bool".to_owned(),
        Kind::Number => "float64".to_owned(),
        Kind::IntOrString => "int32".to_owned(),
        Kind::Integer if schema.format().is_empty() => "int64".to_owned(),
        Kind::Integer => schema.format().to_owned(),
        Kind::Array => format!("[]{}", schema.items().map(go_type).unwrap_or_default()),
        Kind::Object => match schema.values() {
            Some(values) if struct_name(values) == "Quantity" => "v1.ResourceList".to_owned(),
            Some(values) => format!("map[string]{}", go_type(values)),
            None => format!("v1.{}", struct_name(schema)),
        },
        Kind::Any => "interface {}".to_owned(),
    }
}

/// The name of a component without the packages that it is in.
fn struct_name(schema: Schema<'_>) -> &str {
    schema.name().rsplit('.').next().unwrap_or_default()
}

/// The type of a text, or of the texts in a list, that has a name of its own, which schemas do not tell. Those that people write by hand are
/// named; of others it is said that they are strings.
fn text_type(holder: &str, field: &str) -> Option<&'static str> {
    Some(match (holder, field) {
        ("PodSpec", "restartPolicy") => "RestartPolicy",
        ("PodSpec", "dnsPolicy") => "DNSPolicy",
        ("PodSpec", "preemptionPolicy") => "PreemptionPolicy",
        ("Container", "restartPolicy") => "ContainerRestartPolicy",
        ("Container", "imagePullPolicy") => "PullPolicy",
        ("Container", "terminationMessagePolicy") => "TerminationMessagePolicy",
        ("ContainerPort", "protocol") => "Protocol",
        ("Toleration", "operator") => "TolerationOperator",
        ("Toleration", "effect") => "TaintEffect",
        ("PersistentVolumeClaimSpec", "accessModes") => "PersistentVolumeAccessMode",
        ("PersistentVolumeClaimSpec", "volumeMode") => "PersistentVolumeMode",
        _ => return None,
    })
}

/// The struct inside of another that has a field of it: JSON does not show it, the decoder does.
fn embedded(holder: &str, field: &str) -> Option<&'static str> {
    match (holder, field) {
        ("Probe", "exec" | "httpGet" | "tcpSocket" | "grpc") => Some("ProbeHandler"),
        ("Volume", field) if field != "name" => Some("VolumeSource"),
        ("EphemeralContainer", field) if field != "targetContainerName" => Some("EphemeralContainerCommon"),
        (
            "ConfigMapEnvSource"
            | "ConfigMapKeySelector"
            | "ConfigMapProjection"
            | "ConfigMapVolumeSource"
            | "SecretEnvSource"
            | "SecretKeySelector"
            | "SecretProjection",
            "name",
        ) => Some("LocalObjectReference"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::Builtin;
    use serde_json::json;

    #[test]
    fn values_of_the_wrong_type_are_named_as_the_decoder_names_them() {
        let types = Builtin::load().types().unwrap();
        let pod = types.kind("", "v1", "Pod").unwrap();
        let spec = |value: Value| json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": value});
        let container = |value: Value| spec(json!({"containers": [value]}));
        for (object, field) in [
            (
                container(json!({"args": ["--port", 8080]})),
                "number into Go struct field Container.spec.containers.args of type string",
            ),
            (
                container(json!({"args": "--port"})),
                "string into Go struct field Container.spec.containers.args of type []string",
            ),
            (
                container(json!({"env": [{"name": "A", "value": 1}]})),
                "number into Go struct field EnvVar.spec.containers.env.value of type string",
            ),
            (
                container(json!({"livenessProbe": {"initialDelaySeconds": "5"}})),
                "string into Go struct field Probe.spec.containers.livenessProbe.initialDelaySeconds of type int32",
            ),
            (
                container(json!({"livenessProbe": {"httpGet": {"port": true}}})),
                "bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
            ),
            (
                container(json!({"ports": [{"containerPort": 4_294_967_296_i64}]})),
                "number 4294967296 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
            (
                container(json!("web")),
                "string into Go struct field PodSpec.spec.containers of type v1.Container",
            ),
            (
                spec(json!({"terminationGracePeriodSeconds": "30"})),
                "string into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                spec(json!({"terminationGracePeriodSeconds": 1.5})),
                "number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                spec(json!({"securityContext": {"runAsUser": "root"}})),
                "string into Go struct field PodSecurityContext.spec.securityContext.runAsUser of type int64",
            ),
            (
                spec(json!({"nodeSelector": {"a": 1}})),
                "number into Go struct field PodSpec.spec.nodeSelector of type string",
            ),
            (
                container(json!({"imagePullPolicy": true})),
                "bool into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
            ),
            (
                container(json!({"resources": {"limits": ["cpu"]}})),
                "array into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
            ),
            (
                spec(json!([])),
                "array into Go struct field Pod.spec of type v1.PodSpec",
            ),
            (json!("pod"), "string into Go value of type v1.Pod"),
        ] {
            let words = mistyped(&object, pod).unwrap_or_default();
            assert_eq!(words, format!("json: cannot unmarshal {field}"));
        }
        for object in [
            container(json!({"args": null, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}})),
            container(
                json!({"livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}}}),
            ),
            container(json!({"newer": [1, {"a": "b"}]})),
            spec(json!({"terminationGracePeriodSeconds": 30, "nodeSelector": {"a": "b"}})),
        ] {
            assert_eq!(mistyped(&object, pod), None, "{object}");
        }
    }
}
