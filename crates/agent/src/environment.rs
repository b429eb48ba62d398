//! Reading the environment that a container has (AGT-8.4).

use crate::pod::Container;
use flotilla_model::containers_meta;
use serde_json::Value;

/// The variables of a process, in the form `NAME=value`, from what the runtime says of a container when it is asked to be verbose.
///
/// containerd and CRI-O answer with a JSON document that holds the configuration of the process. `None` if it is not in there; then the
/// container itself has to be asked.
pub fn of_verbose(info: &str) -> Option<Vec<String>> {
    let document: Value = serde_json::from_str(info).ok()?;
    if let Some(env) = document.pointer("/runtimeSpec/process/env").and_then(Value::as_array) {
        return env.iter().map(|entry| entry.as_str().map(str::to_owned)).collect();
    }
    let envs = document.pointer("/config/envs").and_then(Value::as_array)?;
    let entry = |entry: &Value| {
        let key = entry.get("key").and_then(Value::as_str)?;
        let value = entry.get("value").and_then(Value::as_str).unwrap_or_default();
        Some(format!("{key}={value}"))
    };
    envs.iter().map(entry).collect()
}

/// The variables that the program `env` printed, with a zero byte behind each (`env -0`) or, where it cannot do that, a line end.
pub fn of_printed(output: &str) -> Vec<String> {
    let separator = if output.contains('\0') { '\0' } else { '\n' };
    let entries = output.split(separator).filter(|entry| !entry.is_empty());
    entries.map(str::to_owned).collect()
}

/// The hash of those variables that refer to metadata, with the values that the process has: verbatim, and empty where it has none.
pub fn hash_of(container: &Container, process: &[String]) -> u64 {
    let value_of = |name: &str| {
        let values = process.iter().filter_map(|entry| entry.split_once('='));
        // As for the process itself, of several of one name the last one counts.
        values
            .rev()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    };
    let names = container.environment.iter().map(|(name, _)| name.as_str());
    containers_meta::env_hash(names.map(|name| (name, value_of(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(names: &[&str]) -> Container {
        let environment = names.iter().map(|name| ((*name).to_owned(), String::new()));
        Container {
            name: "main".to_owned(),
            environment: environment.collect(),
            ..Container::default()
        }
    }

    #[test]
    fn agt_8_4_both_forms_of_verbose_information_are_read() {
        let spec = r#"{"pid":1,"runtimeSpec":{"process":{"env":["A=x","PATH=/bin"]}},"config":{"envs":[{"key":"A","value":"y"}]}}"#;
        assert_eq!(of_verbose(spec).unwrap(), ["A=x", "PATH=/bin"]);
        let config = r#"{"config":{"envs":[{"key":"A","value":"y"},{"key":"B"}]}}"#;
        assert_eq!(of_verbose(config).unwrap(), ["A=y", "B="]);
        assert_eq!(of_verbose(r#"{"pid":1}"#), None);
        assert_eq!(of_verbose("nothing"), None);
    }

    #[test]
    fn agt_8_4_values_are_compared_verbatim() {
        let hash = |process: &[&str], names: &[&str]| {
            let process: Vec<String> = process.iter().map(|entry| (*entry).to_owned()).collect();
            hash_of(&container(names), &process)
        };
        assert_eq!(hash(&["A=x", "B=y"], &["A"]), containers_meta::env_hash([("A", "x")]));
        assert_eq!(hash(&["A= x \n"], &["A"]), containers_meta::env_hash([("A", " x \n")]));
        assert_eq!(hash(&["A=x=y"], &["A"]), containers_meta::env_hash([("A", "x=y")]));
        assert_eq!(hash(&["A=1", "A=2"], &["A"]), containers_meta::env_hash([("A", "2")]));
        assert_eq!(hash(&[], &["A"]), containers_meta::env_hash([("A", "")]));
        assert_eq!(hash(&["A=x"], &[]), 86_995_377, "no entries, no need to look");
    }

    #[test]
    fn agt_8_4_what_a_program_printed_is_read_by_zeros_or_lines() {
        assert_eq!(of_printed("A=x\ny\0B=\0"), ["A=x\ny", "B="]);
        assert_eq!(of_printed("A=x \nB=\n"), ["A=x ", "B="]);
    }
}
