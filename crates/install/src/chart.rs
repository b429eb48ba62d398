//! The Helm chart, from the same objects.

use crate::objects::{AppliedBy, Part, parts};
use crate::settings::SETTINGS;
use crate::yaml::{self, Form, wrap};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A file of the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path in the chart.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// First line of what is generated.
const GENERATED: &str = "# Made by `cargo xtask generate chart`; edit crates/install instead.\n";

/// All files of the chart, in order of their paths.
pub fn chart() -> Vec<File> {
    let mut files = BTreeMap::new();
    files.insert("Chart.yaml".to_owned(), about());
    files.insert("values.yaml".to_owned(), values());
    files.insert("values.schema.json".to_owned(), format!("{:#}\n", schema()));
    files.insert("templates/NOTES.txt".to_owned(), NOTES.to_owned());
    for part in parts().into_iter().filter(|part| part.applied_by != AppliedBy::Install) {
        let text = files
            .entry(format!("templates/{}.yaml", part.file))
            .or_insert_with(|| GENERATED.to_owned());
        text.push_str(&document(&part));
    }
    files.into_iter().map(|(path, text)| File { path, text }).collect()
}

fn document(part: &Part) -> String {
    let text = yaml::write(&part.object, Form::Template);
    let values: Vec<String> = part.when.iter().map(|c| format!(".Values.{}", c.name())).collect();
    let test = match values.as_slice() {
        [] => return format!("---\n{text}"),
        [value] => value.clone(),
        all => format!("and {}", all.join(" ")),
    };
    format!("{{{{- if {test} }}}}\n---\n{text}{{{{- end }}}}\n")
}

fn about() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let about = json!({
        "apiVersion": "v2", "name": "flotilla", "type": "application", "version": version, "appVersion": version,
        "description": "Controllers for stateful and advanced workloads on Kubernetes.",
        "home": "https://github.com/flotilla-rs/flotilla",
        "kubeVersion": ">=1.33.0-0",
    });
    GENERATED.to_owned() + &yaml::write(&about, Form::Plain)
}

fn values() -> String {
    let mut text = GENERATED.to_owned();
    text += "#\n# One installation per cluster, in the namespace of the release; create it with these labels, so that nothing in it gets more\n\
             # rights than it needs: pod-security.kubernetes.io/enforce=restricted\n";
    for setting in SETTINGS {
        text.push('\n');
        for line in wrap(setting.about, 118) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# {line}");
        }
        text += &yaml::write(&json!({setting.name: setting.default()}), Form::Plain);
    }
    text
}

fn schema() -> Value {
    let property = |setting: &crate::Setting| {
        let mut schema = setting.schema();
        schema["description"] = json!(setting.about);
        (setting.name.to_owned(), schema)
    };
    let mut properties: Map<String, Value> = SETTINGS.iter().map(property).collect();
    // Helm's own, which every chart is given.
    properties.insert("global".to_owned(), json!({"type": "object"}));
    json!({
        "$schema": "https://json-schema.org/draft-07/schema#",
        "title": "Values of the chart flotilla",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": SETTINGS.iter().map(|s| s.name).collect::<Vec<_>>(),
    })
}

const NOTES: &str = "\
Flotilla {{ .Chart.AppVersion }} is being started in namespace {{ .Release.Namespace }}.

  kubectl --namespace {{ .Release.Namespace }} rollout status deployment/flotilla-manager
  kubectl get crd statefulsets.apps.kruise.io
{{- if .Values.agent }}
  kubectl --namespace {{ .Release.Namespace }} rollout status daemonset/flotilla-agent
{{- end }}
{{- if .Values.nativeStatefulSet }}

Native StatefulSets are controlled too: kube-controller-manager has to run with --controllers=*,-statefulset-controller.
{{- end }}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_there_and_balanced() {
        let files = chart();
        let paths: Vec<&str> = files.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "Chart.yaml",
                "templates/NOTES.txt",
                "templates/agent.yaml",
                "templates/deployment.yaml",
                "templates/fairness.yaml",
                "templates/hooks.yaml",
                "templates/networkpolicy.yaml",
                "templates/policies.yaml",
                "templates/rbac.yaml",
                "templates/servicemonitor.yaml",
                "templates/services.yaml",
                "templates/webhooks.yaml",
                "values.schema.json",
                "values.yaml",
            ]
        );
        for file in &files {
            let count = |text: &str| file.text.matches(text).count();
            assert_eq!(
                count("{{- if") + count("{{- range"),
                count("{{- end }}"),
                "{}",
                file.path
            );
            assert!(!file.text.contains("${") && !file.text.contains("$if"), "{}", file.path);
        }
    }

    #[test]
    fn parts_that_need_several_choices_ask_for_all() {
        let files = chart();
        let agents = files.iter().find(|f| f.path == "templates/agent.yaml").unwrap();
        let (_, policy) = agents.text.split_once("kind: NetworkPolicy").unwrap();
        assert!(
            agents
                .text
                .contains("{{- if and .Values.agent .Values.networkPolicy }}\n---\n")
        );
        assert_eq!(
            policy.matches("{{- if .Values.agent }}").count(),
            1,
            "only the agents' pods come after it"
        );
    }

    #[test]
    fn values_are_the_defaults() {
        let read: Value = serde_saphyr::from_str(&values()).unwrap();
        for setting in SETTINGS {
            assert_eq!(read[setting.name], setting.default(), "{}", setting.name);
        }
        assert_eq!(read.as_object().unwrap().len(), SETTINGS.len());
    }
}
