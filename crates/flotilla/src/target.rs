//! `KIND/NAME`: which object a command is about.

use crate::cluster::Cluster;
use crate::error::Error;
use flotilla_model::{ObjectKey, SetKind};
use flotilla_why::LiveSet;
use std::fmt;
use std::str::FromStr;

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kind, if the word says which of them.
    pub kind: Option<SetKind>,
    /// The name.
    pub name: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "must be statefulset/NAME, statefulset.apps/NAME, statefulset.apps.kruise.io/NAME or cloneset/NAME";
        let (kind, name) = text.split_once('/').ok_or(FORM)?;
        if name.is_empty() || name.contains('/') {
            return Err(FORM.to_owned());
        }
        let kind = match kind.to_ascii_lowercase().as_str() {
            "statefulset" | "statefulsets" | "sts" => None,
            "statefulset.apps" | "statefulsets.apps" | "sts.apps" => Some(SetKind::Native),
            "statefulset.apps.kruise.io" | "statefulsets.apps.kruise.io" | "sts.apps.kruise.io" | "asts" => {
                Some(SetKind::Advanced)
            }
            "cloneset" | "clonesets" | "clone" | "cloneset.apps.kruise.io" | "clonesets.apps.kruise.io" => {
                Some(SetKind::Clone)
            }
            other => return Err(format!("unknown kind {other:?}: {FORM}")),
        };
        Ok(Target {
            kind,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&kind_name(self.kind.unwrap_or(SetKind::Advanced), &self.name))
    }
}

/// A set in the words of kubectl.
pub fn kind_name(kind: SetKind, name: &str) -> String {
    kind.describe(name)
}

/// Finds the set that was meant. A bare `statefulset/NAME` must be one of the two kinds, not both.
pub async fn find(cluster: &Cluster, target: &Target) -> Result<LiveSet, Error> {
    let key = ObjectKey::new(cluster.namespace.as_str(), target.name.as_str());
    let kinds = match target.kind {
        Some(kind) => vec![kind],
        None => vec![SetKind::Advanced, SetKind::Native],
    };
    let mut found = Vec::new();
    for kind in kinds {
        if let Some(object) = cluster.get(kind.resource(), &key).await? {
            found.push(LiveSet {
                kind,
                key: key.clone(),
                object,
            });
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => Err(Error::Ambiguous { name: key.to_string() }),
        (None, _) => Err(missing(cluster, target).await?),
    }
}

/// Why a set is not found: it is not there, or nobody can have one of its kind.
async fn missing(cluster: &Cluster, target: &Target) -> Result<Error, Error> {
    let kind = target.kind.unwrap_or(SetKind::Advanced);
    let words = match target.kind {
        Some(_) => target.to_string(),
        None => format!("statefulset/{}", target.name),
    };
    let (version, plural) = (kind.resource().api_version(), kind.resource().plural());
    let not_found = Error::NotFound {
        target: words.clone(),
        namespace: cluster.namespace.clone(),
    };
    if kind == SetKind::Native {
        return Ok(not_found);
    }
    let what = format!("read which kinds of {version} there are");
    let served = cluster.get_at(&format!("/apis/{version}"), &what).await?;
    let mut kinds = served.iter().filter_map(|list| list["resources"].as_array()).flatten();
    if kinds.any(|resource| resource["name"] == plural) {
        return Ok(not_found);
    }
    Ok(no_definition(kind, &words, &cluster.namespace))
}

/// A set is not found, as nobody can have one of its kind.
pub fn no_definition(kind: SetKind, words: &str, namespace: &str) -> Error {
    let (version, plural) = (kind.resource().api_version(), kind.resource().plural());
    let group = version.split_once('/').map_or(version, |(group, _)| group);
    Error::NotPossible(format!(
        "{words} was not found in namespace {namespace}: the cluster has no definition {plural}.{group} (in {version}), and so no set of that kind; \
         if somebody deleted it, its sets went with it, and they have to be applied again after this: flotilla install --only-crds --yes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_kinds() {
        for (text, kind) in [
            ("statefulset/web", None),
            ("sts/web", None),
            ("StatefulSet.apps/web", Some(SetKind::Native)),
            ("asts/web", Some(SetKind::Advanced)),
            ("clone/web", Some(SetKind::Clone)),
            ("cloneset/web", Some(SetKind::Clone)),
            ("clonesets.apps.kruise.io/web", Some(SetKind::Clone)),
            ("statefulsets.apps.kruise.io/web", Some(SetKind::Advanced)),
        ] {
            assert_eq!(
                text.parse::<Target>().unwrap(),
                Target {
                    kind,
                    name: "web".into()
                },
                "{text}"
            );
        }
        for text in ["web", "pod/web", "sts/", "sts/a/b"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
